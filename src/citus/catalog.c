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
#include "access/transam.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#include "citus/catalog.h"

/* A catalog of Citus or one of its indexes; invalid without Citus. */
Oid
ssw_citus_catalog(const char *name)
{
	return get_relname_relid(name, PG_CATALOG_NAMESPACE);
}

/* What is read of them. */
static const struct
{
	const char *catalog;
	AttrNumber	column;
	Oid			type;
}			known_columns[] =

{
	{"pg_dist_partition", PARTITION_TABLE, REGCLASSOID},
	{"pg_dist_partition", PARTITION_METHOD, CHAROID},
	{"pg_dist_partition", PARTITION_KEY, TEXTOID},
	{"pg_dist_partition", PARTITION_MODEL, CHAROID},
	{"pg_dist_shard", SHARD_TABLE, REGCLASSOID},
	{"pg_dist_shard", SHARD_ID, INT8OID},
	{"pg_dist_shard", SHARD_LOW, TEXTOID},
	{"pg_dist_placement", PLACEMENT_SHARD, INT8OID},
	{"pg_dist_placement", PLACEMENT_STATE, INT4OID},
	{"pg_dist_placement", PLACEMENT_GROUP, INT4OID},
	{"pg_dist_local_group", LOCAL_GROUP, INT4OID},
};

/* Another version of Citus may have other catalogs: an error for the policy, not a wrong value. */
static void
check_columns(Relation rel)
{
	TupleDesc	columns = RelationGetDescr(rel);

	for (int i = 0; i < lengthof(known_columns); i++)
	{
		AttrNumber	n = known_columns[i].column;

		if (strcmp(known_columns[i].catalog, RelationGetRelationName(rel)) == 0 &&
			(n > columns->natts || TupleDescAttr(columns, n - 1)->atttypid != known_columns[i].type))
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("cannot read catalog \"%s\" of Citus", RelationGetRelationName(rel)),
					 errdetail("Its column %d is not of type %s.", n, format_type_be(known_columns[i].type)),
					 errhint("Use a version of Citus that doc/citus.md lists.")));
	}
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

	if (!OidIsValid(relid) || get_rel_relkind(relid) != RELKIND_RELATION)
	{
		/* else a table would be distributed, and nothing swept */
		if (OidIsValid(ssw_citus_catalog("pg_dist_partition")))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE),
					 errmsg("catalog \"%s\" of Citus does not exist", name),
					 errhint("Use a version of Citus that doc/citus.md lists.")));
		return false;
	}
	s->rel = table_open(relid, AccessShareLock);
	check_columns(s->rel);
	if (index)
		ScanKeyInit(&key, column, BTEqualStrategyNumber, equals, value);
	s->scan = systable_beginscan(s->rel, index ? ssw_citus_catalog(index) : InvalidOid, index && OidIsValid(ssw_citus_catalog(index)),
								 snapshot, index ? 1 : 0, &key);
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
	Datum		value = heap_getattr(tup, number, RelationGetDescr(s->rel), &isnull);

	if (isnull)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("catalog \"%s\" of Citus has null in column \"%s\"", RelationGetRelationName(s->rel),
						NameStr(TupleDescAttr(RelationGetDescr(s->rel), number - 1)->attname))));
	return value;
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

/*
 * Is the hash of equal values of a column the same on all nodes?  Not if a type of users'
 * is hashed by a function of the server, which may hash OIDs: those of enums do.
 */
bool
ssw_citus_hashes_alike(Oid relid, const char *column)
{
	Oid			type = getBaseType(get_atttype(relid, get_attnum(relid, column)));

	return type < FirstNormalObjectId || lookup_type_cache(type, TYPECACHE_HASH_PROC)->hash_proc >= FirstNormalObjectId;
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
	int32		group = -1;		/* of no node */

	if (!ssw_citus_begin(&s, "pg_dist_local_group", NULL, 0, 0, 0))
		return group;
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

	/* in the table's schema, on which the caller may have no rights */
	return get_relname_relid(strVal(llast(textToQualifiedNameList(DatumGetTextPP(name)))), get_rel_namespace(relid));
}

/* The number at the end of a shard's name; 0: there is none. */
int64
ssw_citus_shard_id(Oid relid)
{
	char	   *name = get_rel_name(relid);
	char	   *number = name ? strrchr(name, '_') : NULL;

	return number ? strtoll(number + 1, NULL, 10) : 0;
}
