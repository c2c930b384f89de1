/*
 * deadline_index.c
 *		The index that the coordinator reads deadlines from, and values in its order.
 *
 * Runs in the coordinator, as part of a probe.  Indexes are read directly, because a plan
 * would evaluate constants of their owner; see probe.c.  Shares nothing; a crash leaves
 * nothing behind.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "executor/spi.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/spi.h"
#include "sweep/lower_bound.h"
#include "process/deadline_index.h"

/* Is its first column that one, or an expression (0)?  Others need not be opened. */
static bool
begins_with(Oid index, AttrNumber attnum)
{
	HeapTuple	tup = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	bool		does = HeapTupleIsValid(tup) && ((Form_pg_index) GETSTRUCT(tup))->indkey.values[0] == attnum;

	if (HeapTupleIsValid(tup))
		ReleaseSysCache(tup);
	return does;
}

/* Is this a btree in that order, of all rows or of those of the filter? */
static bool
index_serves(const SswPolicy *p, Relation index, Oid type)
{
	Form_pg_index form = index->rd_index;

	return form->indisvalid && form->indisready && form->indislive && index->rd_rel->relam == BTREE_AM_OID &&
		(heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) == !p->filter_indexed || RelationGetRelid(index) == p->reported_index) &&
		index->rd_opfamily[0] == lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY)->btree_opf;
}

/* Such an index, opened, or null.  It does not wait for a lock, because all policies would wait. */
Relation
ssw_deadline_index_open(const SswPolicy *p, Relation leaf, const SswDeadline *c)
{
	bool		same = RelationGetRelid(leaf) == p->relid || c->attnum == 0;
	AttrNumber	attnum = same ? c->attnum : get_attnum(RelationGetRelid(leaf), get_attname(p->relid, c->attnum, false));
	bool		reported = attnum == 0 || begins_with(p->reported_index, attnum);
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(leaf))
	{
		Relation	index;

		if (!begins_with(lfirst_oid(lc), attnum) || (reported && lfirst_oid(lc) != p->reported_index))
			continue;
		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock))
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not obtain lock on an index of relation %s", p->relation)));
		index = index_open(lfirst_oid(lc), NoLock);
		if (index_serves(p, index, c->sort_type))
			return index;
		index_close(index, AccessShareLock);
	}
	return NULL;
}

/* The value of the deadline's column that is due then, or the lower of that and another; false: none, or no bound fits. */
bool
ssw_deadline_index_value(const SswDeadline *c, TimestampTz due, const Datum *other, int64 *result)
{
	Oid			types[] = {TIMESTAMPTZOID, c->sort_type};
	Datum		values[] = {TimestampTzGetDatum(due), other ? *other : (Datum) 0};
	char		nulls[] = {' ', other ? ' ' : 'n', '\0'};
	Datum		value;
	bool		isnull;

	if (!ssw_lower_bound_fits(c))
		return false;
	ssw_spi_begin();
	ssw_spi_exec(psprintf("SELECT LEAST($2, %s)", c->bound), 2, types, values, nulls, true, 1);
	value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	*result = isnull ? 0 : DatumGetInt64(value);
	ssw_spi_end();
	return !isnull;
}
