/*
 * catalog.c
 *		Readers of Citus's catalogs.
 *
 * Run in any process, in a transaction.  Citus is found at run time: its catalogs are
 * read by name, and its functions are called by name.  Share nothing, and a crash leaves
 * nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/varlena.h"

#include "citus/catalog.h"

/* A catalog of Citus or one of its indexes; invalid without Citus. */
Oid
ssw_citus_catalog(const char *name)
{
	return get_relname_relid(name, PG_CATALOG_NAMESPACE);
}

/* Begin a scan, with an index for the rows with one value in the column; false without Citus. */
bool
ssw_citus_begin(SswCitusScan *s, const char *name, const char *index, AttrNumber column, RegProcedure equals, Datum value)
{
	return ssw_citus_begin_with(s, name, index, column, equals, value, NULL);
}

/* The same, with a snapshot. */
bool
ssw_citus_begin_with(SswCitusScan *s, const char *name, const char *index, AttrNumber column, RegProcedure equals, Datum value, Snapshot snapshot)
{
	Oid			relid = ssw_citus_catalog(name);
	ScanKeyData key;

	if (!OidIsValid(relid))
		return false;
	s->rel = table_open(relid, AccessShareLock);
	if (index)
		ScanKeyInit(&key, column, BTEqualStrategyNumber, equals, value);
	s->scan = systable_beginscan(s->rel, index ? ssw_citus_catalog(index) : InvalidOid, index != NULL, snapshot, index ? 1 : 0, &key);
	return true;
}

HeapTuple
ssw_citus_next(SswCitusScan *s)
{
	return systable_getnext(s->scan);
}

/* A column that is never null. */
Datum
ssw_citus_column(const SswCitusScan *s, HeapTuple tup, AttrNumber number)
{
	bool		isnull;

	return heap_getattr(tup, number, RelationGetDescr(s->rel), &isnull);
}

void
ssw_citus_end(SswCitusScan *s)
{
	systable_endscan(s->scan);
	table_close(s->rel, AccessShareLock);
}

/* A function of Citus. */
Oid
ssw_citus_function(char *name, int nargs, const Oid *types)
{
	return LookupFuncName(list_make2(makeString("pg_catalog"), makeString(name)), nargs, types, false);
}

static char *
column_name(Oid relid, Datum key)
{
	static const Oid types[] = {REGCLASSOID, TEXTOID};

	return TextDatumGetCString(OidFunctionCall2(ssw_citus_function("column_to_column_name", 2, types), ObjectIdGetDatum(relid), key));
}

/* Is the table distributed, and how? */
bool
ssw_citus_is_distributed(Oid relid, SswDistributed *d)
{
	SswCitusScan s;
	HeapTuple	tup;
	bool		isnull;

	if (!ssw_citus_begin(&s, "pg_dist_partition", "pg_dist_partition_logical_relid_index", PARTITION_TABLE, F_OIDEQ, ObjectIdGetDatum(relid)))
		return false;
	if (HeapTupleIsValid(tup = ssw_citus_next(&s)))
	{
		Datum		key = heap_getattr(tup, PARTITION_KEY, RelationGetDescr(s.rel), &isnull);

		d->method = DatumGetChar(ssw_citus_column(&s, tup, PARTITION_METHOD));
		d->replication = DatumGetChar(ssw_citus_column(&s, tup, PARTITION_MODEL));
		d->column = isnull ? NULL : column_name(relid, key);
	}
	ssw_citus_end(&s);
	return HeapTupleIsValid(tup);
}

/* Do several nodes have the same rows? */
bool
ssw_citus_has_copies(const SswDistributed *d)
{
	return d->replication == 't' || (d->replication == 'c' && d->method != 'n');
}

int32
ssw_citus_local_group(void)
{
	SswCitusScan s;
	HeapTuple	tup;
	int32		group = 0;

	if (!ssw_citus_begin(&s, "pg_dist_local_group", NULL, 0, 0, 0))
		return 0;
	if (HeapTupleIsValid(tup = ssw_citus_next(&s)))
		group = DatumGetInt32(ssw_citus_column(&s, tup, LOCAL_GROUP));
	ssw_citus_end(&s);
	return group;
}

/* The number of the node with the shard's active placement, or SSW_NO_GROUP. */
int32
ssw_citus_placement(int64 shard_id)
{
	SswCitusScan s;
	HeapTuple	tup;
	int32		group = SSW_NO_GROUP;

	if (!ssw_citus_begin(&s, "pg_dist_placement", "pg_dist_placement_shardid_index", PLACEMENT_SHARD, F_INT8EQ, Int64GetDatum(shard_id)))
		return SSW_NO_GROUP;
	while (group == SSW_NO_GROUP && HeapTupleIsValid(tup = ssw_citus_next(&s)))
		if (DatumGetInt32(ssw_citus_column(&s, tup, PLACEMENT_STATE)) == PLACEMENT_ACTIVE)
			group = DatumGetInt32(ssw_citus_column(&s, tup, PLACEMENT_GROUP));
	ssw_citus_end(&s);
	return group;
}

/* Is the shard's active placement on this node? */
bool
ssw_citus_is_placed_here(int64 shard_id, int32 group)
{
	return ssw_citus_placement(shard_id) == group;
}

/* The table that is the shard on this node, or invalid. */
Oid
ssw_citus_shard_table(Oid relid, int64 shard_id)
{
	static const Oid types[] = {REGCLASSOID, INT8OID, BOOLOID};
	Datum		name = OidFunctionCall3(ssw_citus_function("shard_name", 3, types), ObjectIdGetDatum(relid), Int64GetDatum(shard_id), BoolGetDatum(false));

	return RangeVarGetRelid(makeRangeVarFromNameList(textToQualifiedNameList(DatumGetTextPP(name))), NoLock, true);
}

/* The number at the end of a shard's name; 0: there is none. */
int64
ssw_citus_shard_id(Oid relid)
{
	char	   *name = get_rel_name(relid);
	char	   *number = name ? strrchr(name, '_') : NULL;

	return number ? strtoll(number + 1, NULL, 10) : 0;
}
