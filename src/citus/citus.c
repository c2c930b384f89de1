/*
 * citus.c
 *		Tables whose rows are in shards of Citus.
 *
 * Runs in any process that looks for the leaves of a policy, in a transaction.  Citus
 * is found at run time: its catalogs are read by name, and its functions called by name.
 * A shard is a leaf on the node that has its active placement.  A copy that a move
 * makes, or has left behind, is none.
 *
 * Shares nothing.  A batch holds the lock of a shard's metadata that DML of Citus takes,
 * and a move conflicts with; a crash releases it.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "parser/parse_func.h"
#include "storage/bufmgr.h"
#include "storage/lockdefs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/varlena.h"

#include "citus/citus.h"
#include "policy/partition.h"

/* Columns of Citus's catalogs, the same since Citus 10. */
#define SHARD_TABLE			1	/* pg_dist_shard.logicalrelid */
#define SHARD_ID			2	/* pg_dist_shard.shardid */
#define PLACEMENT_SHARD		2	/* pg_dist_placement.shardid */
#define PLACEMENT_STATE		3	/* pg_dist_placement.shardstate */
#define PLACEMENT_GROUP		5	/* pg_dist_placement.groupid */
#define PARTITION_TABLE		1	/* pg_dist_partition.logicalrelid */
#define PARTITION_METHOD	2	/* pg_dist_partition.partmethod */
#define PARTITION_KEY		3	/* pg_dist_partition.partkey */
#define PARTITION_MODEL		5	/* pg_dist_partition.repmodel */
#define LOCAL_GROUP			1	/* pg_dist_local_group.groupid */

#define PLACEMENT_ACTIVE	1

/* A scan of one of Citus's catalogs, by an index over one column or of all rows. */
typedef struct CatalogScan
{
	Relation	rel;
	SysScanDesc scan;
} CatalogScan;

static Oid
catalog(const char *name)
{
	return get_relname_relid(name, PG_CATALOG_NAMESPACE);
}

static bool
begin(CatalogScan *s, const char *name, const char *index, AttrNumber column, RegProcedure equals, Datum value)
{
	Oid			relid = catalog(name);
	ScanKeyData key;

	if (!OidIsValid(relid))
		return false;
	s->rel = table_open(relid, AccessShareLock);
	if (index)
		ScanKeyInit(&key, column, BTEqualStrategyNumber, equals, value);
	s->scan = systable_beginscan(s->rel, index ? catalog(index) : InvalidOid, index != NULL, NULL, index ? 1 : 0, &key);
	return true;
}

static HeapTuple
next(CatalogScan *s)
{
	return systable_getnext(s->scan);
}

static Datum
column(const CatalogScan *s, HeapTuple tup, AttrNumber number)
{
	bool		isnull;

	return heap_getattr(tup, number, RelationGetDescr(s->rel), &isnull);
}

static void
end(CatalogScan *s)
{
	systable_endscan(s->scan);
	table_close(s->rel, AccessShareLock);
}

static Oid
function(char *name, int nargs, const Oid *types)
{
	return LookupFuncName(list_make2(makeString("pg_catalog"), makeString(name)), nargs, types, false);
}

/* A distributed table as Citus describes it. */
typedef struct Distributed
{
	char		method;
	char		replication;
	char	   *column;			/* null: one shard */
} Distributed;

static char *
column_name(Oid relid, Datum key)
{
	static const Oid types[] = {REGCLASSOID, TEXTOID};

	return TextDatumGetCString(OidFunctionCall2(function("column_to_column_name", 2, types), ObjectIdGetDatum(relid), key));
}

/* Is the table distributed, and how? */
static bool
is_distributed(Oid relid, Distributed *d)
{
	CatalogScan s;
	HeapTuple	tup;
	bool		isnull;

	if (!begin(&s, "pg_dist_partition", "pg_dist_partition_logical_relid_index", PARTITION_TABLE, F_OIDEQ, ObjectIdGetDatum(relid)))
		return false;
	if (HeapTupleIsValid(tup = next(&s)))
	{
		Datum		key = heap_getattr(tup, PARTITION_KEY, RelationGetDescr(s.rel), &isnull);

		d->method = DatumGetChar(column(&s, tup, PARTITION_METHOD));
		d->replication = DatumGetChar(column(&s, tup, PARTITION_MODEL));
		d->column = isnull ? NULL : column_name(relid, key);
	}
	end(&s);
	return HeapTupleIsValid(tup);
}

/* Do several nodes have the same rows? */
static bool
has_copies(const Distributed *d)
{
	return d->replication == 't' || (d->replication == 'c' && d->method != 'n');
}

static int32
local_group(void)
{
	CatalogScan s;
	HeapTuple	tup;
	int32		group = 0;

	if (!begin(&s, "pg_dist_local_group", NULL, 0, 0, 0))
		return 0;
	if (HeapTupleIsValid(tup = next(&s)))
		group = DatumGetInt32(column(&s, tup, LOCAL_GROUP));
	end(&s);
	return group;
}

/* Is the shard's active placement on this node? */
static bool
is_placed_here(int64 shard_id, int32 group)
{
	CatalogScan s;
	HeapTuple	tup;
	bool		here = false;

	if (!begin(&s, "pg_dist_placement", "pg_dist_placement_shardid_index", PLACEMENT_SHARD, F_INT8EQ, Int64GetDatum(shard_id)))
		return false;
	while (!here && HeapTupleIsValid(tup = next(&s)))
		here = DatumGetInt32(column(&s, tup, PLACEMENT_GROUP)) == group &&
			DatumGetInt32(column(&s, tup, PLACEMENT_STATE)) == PLACEMENT_ACTIVE;
	end(&s);
	return here;
}

/* The table that is the shard on this node, or invalid. */
static Oid
shard_table(Oid relid, int64 shard_id)
{
	static const Oid types[] = {REGCLASSOID, INT8OID, BOOLOID};
	Datum		name = OidFunctionCall3(function("shard_name", 3, types), ObjectIdGetDatum(relid), Int64GetDatum(shard_id), BoolGetDatum(false));

	return RangeVarGetRelid(makeRangeVarFromNameList(textToQualifiedNameList(DatumGetTextPP(name))), NoLock, true);
}

/* The shards of a distributed table that have their rows on this node; false: it is none. */
static bool
find_shards(Oid relid, List **shards)
{
	CatalogScan s;
	HeapTuple	tup;
	Distributed d;
	int32		group;

	*shards = NIL;
	if (!is_distributed(relid, &d))
		return false;
	/* made so after its registration: the copies on other nodes would stay */
	if (has_copies(&d))
		return true;
	group = local_group();
	if (!begin(&s, "pg_dist_shard", "pg_dist_shard_logical_relid_index", SHARD_TABLE, F_OIDEQ, ObjectIdGetDatum(relid)))
		return true;
	while (HeapTupleIsValid(tup = next(&s)))
	{
		int64		shard_id = DatumGetInt64(column(&s, tup, SHARD_ID));
		Oid			shard = is_placed_here(shard_id, group) ? shard_table(relid, shard_id) : InvalidOid;

		if (OidIsValid(shard))
			*shards = lappend_oid(*shards, shard);
	}
	end(&s);
	return true;
}

/* The number at the end of a shard's name; 0: there is none. */
static int64
shard_id_of(Oid relid)
{
	char	   *name = get_rel_name(relid);
	char	   *number = name ? strrchr(name, '_') : NULL;

	return number ? strtoll(number + 1, NULL, 10) : 0;
}

/* Wait for a move of the shard, as DML through Citus does, and keep others off until the end of the transaction. */
static void
lock_shard(int64 shard_id)
{
	static const Oid types[] = {INT4OID, INT8ARRAYOID};
	Datum		id = Int64GetDatum(shard_id);
	ArrayType  *ids = construct_array(&id, 1, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);

	(void) OidFunctionCall2(function("lock_shard_metadata", 2, types), Int32GetDatum(ShareLock), PointerGetDatum(ids));
}

/*
 * The distributed table of a shard that has its active placement here, until the
 * transaction ends; invalid if it is no such shard.
 */
static Oid
hold_shard(Oid leaf)
{
	int64		shard_id = OidIsValid(catalog("pg_dist_shard")) ? shard_id_of(leaf) : 0;
	Oid			relid = InvalidOid;
	CatalogScan s;
	HeapTuple	tup;

	if (shard_id == 0 ||
		!begin(&s, "pg_dist_shard", "pg_dist_shard_shardid_index", SHARD_ID, F_INT8EQ, Int64GetDatum(shard_id)))
		return InvalidOid;
	if (HeapTupleIsValid(tup = next(&s)))
		relid = DatumGetObjectId(column(&s, tup, SHARD_TABLE));
	end(&s);
	if (!OidIsValid(relid) || shard_table(relid, shard_id) != leaf)
		return InvalidOid;
	lock_shard(shard_id);
	return is_placed_here(shard_id, local_group()) ? relid : InvalidOid;
}

static void
refuse(const SswPolicy *p, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot sweep \"%s\"", get_rel_name(p->relid)),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

/* Can a policy sweep the table, if it is distributed? */
static void
check(const SswPolicy *p)
{
	Distributed d;
	Relation	rel;
	bool		in_key = p->nkeys == 0;

	if (!is_distributed(p->relid, &d))
		return;
	if (d.method == 'n' && d.replication == 't')
		refuse(p, "It is a reference table: every node has all its rows, and would expire them.",
			   "Use a distributed table, or a table that is local to one node.");
	if (d.method == 'a')
		refuse(p, "It is distributed by append.", "Distribute it by hash: SELECT alter_distributed_table(...).");
	if (has_copies(&d))
		refuse(p, "Its shards may have several placements, and each would expire the rows.",
			   "Distribute it again with citus.shard_replication_factor = 1.");
	if (p->heartbeats)
		refuse(p, "It is distributed, and heartbeats are kept on one node.", "Renew leases by an UPDATE of the deadline: heartbeats => false.");
	for (int i = 0; i < p->nkeys && d.column; i++)
		in_key = in_key || strcmp(p->key[i], d.column) == 0;
	if (d.column && !in_key)
		refuse(p, psprintf("Its key is without the distribution column \"%s\".", d.column),
			   psprintf("Give a key that contains it: key => ARRAY['%s', ...].", d.column));
	rel = table_open(p->relid, AccessShareLock);
	if (rel->rd_rel->relkind == RELKIND_RELATION && RelationGetNumberOfBlocks(rel) > 0)
		refuse(p, "This node still has the rows from before it was distributed.",
			   psprintf("SELECT truncate_local_data_after_distributing_table(%s);", quote_literal_cstr(p->relation)));
	table_close(rel, NoLock);
}

void
ssw_citus_init(void)
{
	static const SswShards shards = {.find = find_shards,.hold = hold_shard,.check = check};

	ssw_shards = &shards;
}
