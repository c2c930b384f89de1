/*
 * append_demand.c
 *		Which appended rows are due.
 *
 * Runs in the coordinator, in the transaction of a round.  pass_assign.c gives the due
 * rows of one owner to one worker, which writes all of that owner's tables in turn.  So
 * a child is not written before its parent, and slow triggers of an owner keep one worker.
 *
 * Reads the workers' slots, under SswShared->lock, and work_state.c; keeps for itself
 * which owners wait.  A crash, or another coordinator, starts again from the rows, which
 * are in their table.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/process_slot.h"
#include "work/append_demand.h"
#include "work/work_state.h"

#define REST			20		/* times as long as it took to look */

static List *due = NIL;			/* owners (Oid) of tables with rows that are
								 * due, those with the oldest first; in
								 * TopMemoryContext */
static TimestampTz look_at = 0; /* without a reason */

/*
 * Set rows aside whose table or role is gone, 1,000 at a time, because all policies wait;
 * delete the streams of such tables that have no rows left.  The others get the present
 * names, which a dump takes along.
 */
static void
tidy_streams(void)
{
	static const char *const sql =
	"WITH gone AS MATERIALIZED (SELECT r.ctid, CASE WHEN c.oid IS NULL THEN '42P01' ELSE '42704' END AS code,"
	"  pg_catalog.format(CASE WHEN c.oid IS NULL THEN 'relation %1$s no longer exists' ELSE 'role \"%2$s\" no longer exists' END, s.relation, s.role) AS why"
	" FROM sweeper.append_row AS r JOIN sweeper._append_stream AS s USING (stream)"
	" LEFT JOIN pg_catalog.pg_class AS c ON c.oid = s.relid LEFT JOIN pg_catalog.pg_authid AS a ON a.oid = s.role_oid"
	" WHERE s.here AND (c.oid IS NULL OR a.oid IS NULL) LIMIT 1000 FOR UPDATE OF r SKIP LOCKED),"
	" mine AS (DELETE FROM sweeper.append_row AS r USING gone WHERE r.ctid = gone.ctid RETURNING r.id, r.stream, r.row_data, gone.code, gone.why)"
	" INSERT INTO sweeper.append_failed (id, stream, row_data, sqlstate, error) SELECT id, stream, row_data, code, why FROM mine";
	static const char *const forget =
	"DELETE FROM sweeper.append_stream AS d USING sweeper._append_stream AS s WHERE s.stream = d.stream AND s.here"
	" AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.oid = s.relid)"
	" AND NOT EXISTS (SELECT FROM sweeper.append_row AS r WHERE r.stream = s.stream)"
	" AND NOT EXISTS (SELECT FROM sweeper.append_failed AS f WHERE f.stream = s.stream)";

	static const char *const rename =
	"WITH renamed AS MATERIALIZED (SELECT d.stream, n.relation_now, n.role_now FROM sweeper.append_stream AS d JOIN sweeper._append_stream AS n USING (stream)"
	" WHERE n.here AND (n.relation_now <> d.relation OR n.role_now <> d.role) FOR UPDATE OF d SKIP LOCKED)"
	" UPDATE sweeper.append_stream AS d SET relation = coalesce(n.relation_now, d.relation), role = coalesce(n.role_now, d.role) FROM renamed AS n WHERE n.stream = d.stream";

	ssw_plan_execute(sql, 0, NULL, NULL, NULL, false);
	ssw_plan_execute(forget, 0, NULL, NULL, NULL, false);
	ssw_plan_execute(rename, 0, NULL, NULL, NULL, false);
}

/* An owner has due rows. */
static void
add_due(Oid owner)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	due = list_append_unique_oid(due, owner);
	MemoryContextSwitchTo(old);
}

/* Find the owners whose tables' rows are due, and when others are. */
static void
look(int64 up_to, TimestampTz now)
{
	static const char *const sql =
	"SELECT c.relowner, bool_or(w.here AND (w.due OR w.first <= $1)), min(w.due_at) FILTER (WHERE w.here),"
	" coalesce(sum(w.rows), 0)::bigint + coalesce(sum(f.n), 0)::bigint, bool_or(s.here AND (s.relation_now <> s.relation OR s.role_now <> s.role OR w.rows > 0 AND a.oid IS NULL OR c.oid IS NULL AND (w.rows > 0 OR f.n IS NULL)))"
	" FROM sweeper._append_stream AS s LEFT JOIN sweeper._append_waiting AS w USING (stream)"
	" LEFT JOIN (SELECT stream, count(*) AS n FROM sweeper.append_failed GROUP BY 1) AS f USING (stream)"
	" LEFT JOIN pg_catalog.pg_class AS c ON c.oid = s.relid LEFT JOIN pg_catalog.pg_authid AS a ON a.oid = s.role_oid"
	" GROUP BY s.relid, c.relowner ORDER BY 3";
	Oid			type = INT8OID;
	Datum		value = Int64GetDatum(up_to);
	TimestampTz next = DT_NOEND;
	int64		most = 0;
	bool		changed = false;
	uint64		n;
	SPITupleTable *rows;

	list_free(due);
	due = NIL;
	look_at = 0;				/* until all of this has worked */
	n = ssw_plan_execute(sql, 1, &type, &value, NULL, false);
	rows = SPI_tuptable;
	for (uint64 i = 0; i < n; i++)
	{
		bool		never,
					isnull;
		Oid			owner = DatumGetObjectId(SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull));
		bool		now_due = DatumGetBool(SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &isnull));
		Datum		at = SPI_getbinval(rows->vals[i], rows->tupdesc, 3, &never);

		most = Max(most, DatumGetInt64(SPI_getbinval(rows->vals[i], rows->tupdesc, 4, &isnull)));
		changed = DatumGetBool(SPI_getbinval(rows->vals[i], rows->tupdesc, 5, &isnull)) || changed;
		if (now_due && OidIsValid(owner))
			add_due(owner);
		else if (!now_due && !never)
			next = Min(next, DatumGetTimestampTz(at));
	}
	ssw_work_rows_counted(most);
	if (changed)
		tidy_streams();
	look_at = due != NIL || changed ? Min(next, now + USECS_PER_SEC) : next;
}

/*
 * Look if there is a reason to; returns when to look next.  A look reads all rows that
 * wait, so that many rows delay the next look.  As the extension, in SPI.
 */
TimestampTz
ssw_append_demand_look(TimestampTz now)
{
	static TimestampTz looked_at = 0;
	static TimestampTz not_before = 0;
	SswWorkState s;

	/* the clock may be set back */
	if (now < not_before && now >= looked_at)
		return not_before;
	s = ssw_work_take(MyDatabaseId, SSW_WORK_APPENDED);
	if ((s.reasons & SSW_WORK_APPENDED) || now >= look_at)
	{
		TimestampTz began = GetCurrentTimestamp();

		look(s.flush_up_to, now);
		looked_at = now;
		not_before = now + REST * (GetCurrentTimestamp() - began);
	}
	return Max(look_at, not_before);
}

/* The owner whose rows a process writes, if it is here, or invalid. */
static Oid
written_by(const SswProc *p)
{
	return p->state != SSW_STATE_FREE && p->database == MyDatabaseId ? p->append_owner : InvalidOid;
}

static bool
has_writer(Oid owner)
{
	for (int i = 0; i < SswShared->nprocs; i++)
		if (written_by(&SswProcs[i]) == owner)
			return true;
	return false;
}

/* Of the owners whose rows no worker writes and whose quota is not used up, the one after so many; or invalid. */
Oid
ssw_append_demand_next(int after, bool (*quota_used) (Oid owner))
{
	ListCell   *lc;

	foreach(lc, due)
		if (!has_writer(lfirst_oid(lc)) && !quota_used(lfirst_oid(lc)) && after-- == 0)
		return lfirst_oid(lc);
	return InvalidOid;
}

/* This worker has had its turn; more of the owner's rows are due. */
void
ssw_append_demand_left(Oid owner)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	MySswProc->append_left = owner;
	LWLockRelease(SswShared->lock);
}

/* What workers left needs no look, which takes long where many rows wait. */
static void
take_what_was_left(void)
{
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (p->state == SSW_STATE_FREE || p->database != MyDatabaseId || !OidIsValid(p->append_left))
			continue;
		add_due(p->append_left);
		p->append_left = InvalidOid;
	}
}

/* So many workers have, or should have, appended rows, without those that ignore a cancel. */
int
ssw_append_demand_wanted(void)
{
	TimestampTz now = GetCurrentTimestamp();
	int			n = 0;
	ListCell   *lc;

	take_what_was_left();
	foreach(lc, due)
		n += !has_writer(lfirst_oid(lc)) && !ssw_process_role_is_full(lfirst_oid(lc));
	for (int i = 0; i < SswShared->nprocs; i++)
		n += OidIsValid(written_by(&SswProcs[i])) && !ssw_process_ignores_cancel(&SswProcs[i], now);
	return n;
}

/* The worker is to write rows of the owner, which is not due until the next look. */
void
ssw_append_demand_give(SswProc *proc, Oid owner)
{
	proc->append_owner = proc->code_owner = owner;
	due = list_delete_oid(due, owner);
}
