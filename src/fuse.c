/*
 * fuse.c
 *		The brake that stops a pass which would remove implausibly much.
 *
 * Runs in the worker that collects first in a pass, in its transaction.  Cheap
 * when little is dead: it counts no further than it must.  Shares the verdict
 * through the pass; the coordinator writes it to the policy's row.  A crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "optimizer/plancat.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "identity.h"
#include "pass.h"
#include "sql.h"
#include "stmt.h"

static double
estimated_rows(List *leaves)
{
	double		total = 0;
	ListCell   *lc;

	foreach(lc, leaves)
	{
		Relation	rel = table_open(lfirst_oid(lc), AccessShareLock);
		BlockNumber pages;
		double		tuples,
					allvisible;

		estimate_rel_size(rel, NULL, &pages, &tuples, &allvisible);
		total += tuples;
		table_close(rel, NoLock);
	}
	return total;
}

/* Rows of one leaf and clock that would go, at most limit. */
static int64
count_dead(SswWork *w, Oid leaf, SswPhase phase, TimestampTz cutoff, int64 limit)
{
	const SswClock *c = ssw_stmt_clock(w->policy, phase);
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, c->sort_type, INT4OID, INT8OID};
	Datum		values[5] = {0};
	char		nulls[6] = "  nn ";
	bool		fresh = w->pass->fuse_exempt != 0;
	bool		isnull;

	values[0] = TimestampTzGetDatum(w->pass->fuse_exempt);
	if (fresh)
	{
		if (cutoff <= w->pass->fuse_exempt)
			return 0;
		ssw_sql_exec(psprintf("SELECT (%s)", c->bound), 1, types, values, NULL, true, 1);
		values[2] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		nulls[2] = isnull ? 'n' : ' ';
	}
	values[0] = TimestampTzGetDatum(cutoff);
	values[1] = TimestampTzGetDatum(w->pass->service_start);
	values[4] = Int64GetDatum(limit);
	ssw_sql_exec(ssw_stmt_count(w->policy, leaf, phase, fresh), 5, types, values, nulls, true, 1);
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/* Rows of a leaf that would stay, at most limit: the estimate may be stale. */
static int64
count_alive(SswWork *w, Oid leaf, int64 limit)
{
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID, INT4OID, INT8OID};
	Datum		values[5] = {0};
	StringInfoData sql;
	bool		isnull;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT pg_catalog.count(*) FROM (SELECT FROM ONLY %s AS t WHERE true",
					 ssw_stmt_relation(leaf));
	for (int i = 0; i < w->policy->nclocks; i++)
		if (!TIMESTAMP_IS_NOBEGIN(w->pass->clock_cutoff[i]))
			appendStringInfo(&sql, " AND (%s) IS NOT TRUE",
							 ssw_stmt_dead(w->policy, SSW_PHASE_CLOCK_1 + i));
	appendStringInfoString(&sql, " LIMIT $5) AS a");
	values[0] = TimestampTzGetDatum(w->pass->now - w->policy->keep_for_us);
	values[1] = TimestampTzGetDatum(w->pass->service_start);
	values[4] = Int64GetDatum(limit);
	ssw_sql_exec(sql.data, 5, types, values, "  nn ", true, 1);
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/*
 * Would this pass remove too much?  Then the pass ends, with the numbers in its
 * message.  Rows due at registration, and those of a lifted fuse, do not count.
 */
bool
ssw_fuse_trips(SswWork *w, List *leaves)
{
	SswPolicy  *p = w->policy;
	SswIdentity save;
	double		total = estimated_rows(leaves);
	int64		limit = Max((int64) p->fuse_min, (int64) (total * p->fuse_fraction)) + 1;
	int64		dead = 0;
	int64		alive = 0;
	int64		enough;
	ListCell   *lc;
	bool		trips;

	if (p->fuse_fraction >= 1 || w->pass->fuse_open)
		return false;
	ssw_identity_become_owner(p->owner, p->search_path, &save);
	ssw_sql_begin();
	foreach(lc, leaves)
		for (int i = 0; i < p->nclocks && dead < limit; i++)
		if (!TIMESTAMP_IS_NOBEGIN(w->pass->clock_cutoff[i]))
			dead += count_dead(w, lfirst_oid(lc), SSW_PHASE_CLOCK_1 + i,
							   w->pass->clock_cutoff[i], limit - dead);
	trips = dead >= p->fuse_min && dead > 0;
	if (trips)
	{
		enough = p->fuse_fraction > 0 ?
			(int64) (dead * (1 - p->fuse_fraction) / p->fuse_fraction) : INT64CONST(1) << 40;
		foreach(lc, leaves)
			if (alive < enough)
			alive += count_alive(w, lfirst_oid(lc), enough - alive);
		trips = alive < enough;
	}
	ssw_sql_end();
	ssw_identity_restore(&save);
	if (trips)
	{
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		w->pass->end = SSW_END_FUSE;
		snprintf(w->pass->message, SSW_MESSAGE_LEN,
				 "the pass would expire " INT64_FORMAT " or more rows and leave " INT64_FORMAT " alive",
				 dead, alive);
		LWLockRelease(SswShared->lock);
	}
	return trips;
}
