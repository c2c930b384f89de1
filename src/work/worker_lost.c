/*
 * worker_lost.c
 *		What ends with a worker: its tasks, its providers, the jobs that no other
 *		worker offers.
 *
 * Runs where sessions end (cleanup_event.c), in that transaction, as the extension's
 * owner: in a worker process, or in the session that releases.  Each step is one
 * statement for all workers of a batch.  Shares nothing but the tables; a crash, or a
 * rollback, undoes it with the end itself.
 *
 * At every isolation level it reads what is committed now: other sessions claim, offer
 * and submit under locks of the worker's and the job's rows, and what they did before we
 * got our lock must be seen.
 *
 * A task or job whose row another session holds is left, because that transaction may
 * stay open; so are those beyond a number, because others wait.  The coordinator ends what
 * was left (ssw_worker_lost_rest()).
 *
 * Lock order: as in caller.c.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/identity.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "grace/service_log.h"
#include "policy/policy.h"
#include "policy/policy_hooks.h"
#include "registry/usage_event.h"
#include "work/task_retry.h"
#include "work/task_xact.h"
#include "work/worker_lost.h"

/* Of tasks t: their workers are these, and have made no progress since then. */
#define UNHEARD(workers, since) \
	"t.worker = ANY (" workers ") AND (" since " = 'infinity' OR " since " > " \
	"greatest(t.claimed_at, t.started_at, t.progress_at, (SELECT p.progress_at FROM sweeper._task_progress(t.task) AS p)))"

static const char *const end_attempts = SSW_END_ATTEMPTS(UNHEARD("$4", "$5"));

static const char *const end_providers = "DELETE FROM sweeper.provider WHERE worker = ANY ($1) RETURNING room";

static const char *const end_links =
"WITH gone AS (DELETE FROM sweeper.job_worker WHERE worker = ANY ($1) RETURNING job)"
" SELECT job, room FROM sweeper.job WHERE job IN (SELECT job FROM gone)";

#define IS_ORPHAN \
	" j.deleted_at IS NULL AND NOT j.permanent AND j.room <> '@internal' AND NOT EXISTS (SELECT FROM sweeper.job_worker AS w WHERE w.job = j.job)" \
	" AND NOT EXISTS (SELECT FROM sweeper.task AS t WHERE t.job = j.job AND t.status = 'enqueued')" \
	" AND NOT EXISTS (SELECT FROM sweeper.task AS t WHERE t.job = j.job AND t.status IN ('claimed', 'running') AND t.worker IS NOT NULL)" \
	" AND NOT EXISTS (SELECT FROM sweeper.task AS t WHERE t.job = j.job AND t.status = 'allocated')"

/* Of orphans for which a condition is true, those that nobody holds, but not very many at once. */
#define LOCK_ORPHANS(condition) \
	"WITH mine AS MATERIALIZED (SELECT j.job FROM sweeper.job AS j WHERE" condition IS_ORPHAN \
	" ORDER BY j.job LIMIT " CppAsString2(SSW_MOST_ENDS) " FOR UPDATE SKIP LOCKED)" \
	" SELECT array_agg(job), count(*) = " CppAsString2(SSW_MOST_ENDS) " FROM mine"

/*
 * Delete jobs softly that nobody offers and no task waits for, or may yet go back to: of
 * these (bigint[], or 0), by statements that lock them and that find one that is left.
 * True: there may be more.
 */
static bool
end_orphans(const char *lock, const char *left, Datum jobs)
{
	/*
	 * of those that we hold: what somebody did before we got the lock is to
	 * be seen
	 */
	static const char *const delete =
	"UPDATE sweeper.job AS j SET deleted_at = clock_timestamp() WHERE j.job = ANY ($1) AND" IS_ORPHAN " RETURNING j.room";
	Oid			type = INT8ARRAYOID;
	int			nargs = jobs != 0 ? 1 : 0;
	Datum		mine;
	bool		more;

	ssw_plan_execute_fresh(lock, nargs, &type, &jobs);
	mine = ssw_spi_column(0, 1);
	more = DatumGetBool(ssw_spi_column(0, 2));
	if (mine != 0)
	{
		uint64		rows = ssw_plan_execute_fresh(delete, 1, &type, &mine);

		for (uint64 i = 0; i < rows; i++)
			ssw_task_xact_room_changed(SSW_JOBS_CHANGED, ssw_spi_text(i, 1));
	}
	if (!more && ssw_plan_execute_fresh(left, nargs, &type, &jobs) > 0)
		ssw_task_xact_left_over();
	return more;
}

/* The same, of these jobs. */
void
ssw_worker_lost_orphans(Datum jobs)
{
	static const char *const left = "SELECT FROM sweeper.job AS j WHERE j.job = ANY ($1) AND" IS_ORPHAN " LIMIT 1";
	SswIdentity save;

	ssw_spi_begin_as_extension(&save);
	if (end_orphans(LOCK_ORPHANS(" j.job = ANY ($1) AND"), left, jobs))
		ssw_task_xact_left_over();
	ssw_spi_end_as(&save);
}

/* End the tasks that the workers (uuid[]) hold and that made no progress since; returns how many. */
static uint64
end_unheard(Datum workers, TimestampTz since, const char *reason)
{
	Oid			types[] = {UUIDARRAYOID, TIMESTAMPTZOID};
	Datum		values[] = {CStringGetTextDatum(reason), BoolGetDatum(false), CStringGetTextDatum(SSW_EXTENSION), workers, TimestampTzGetDatum(since)};

	return ssw_task_retry_end(end_attempts, lengthof(values), types, values);
}

/* Do the workers hold such tasks, which others have locked? */
static bool
hold_unheard(Datum workers, TimestampTz since)
{
	static const char *const left = "SELECT FROM sweeper.task AS t WHERE t.status IN ('claimed', 'running') AND " UNHEARD("$1", "$2") " LIMIT 1";
	Oid			types[] = {UUIDARRAYOID, TIMESTAMPTZOID};
	Datum		values[] = {workers, TimestampTzGetDatum(since)};

	return ssw_plan_execute_fresh(left, lengthof(types), types, values) > 0;
}

/* End the tasks that lost workers (uuid[]) hold.  True: there may be more. */
static bool
end_tasks_of(Datum workers)
{
	if (end_unheard(workers, DT_NOEND, "Worker disconnected") == SSW_MOST_ENDS)
		return true;
	if (hold_unheard(workers, DT_NOEND))
		ssw_task_xact_left_over();
	return false;
}

/*
 * A worker, whose row is locked, claims.  It may have forgotten tasks in a crash or
 * fail-over.  Those that it held before, and without a report for one time to live since
 * service began, are lost.
 */
void
ssw_worker_lost_unheard(Datum worker, int64 ttl_us)
{
	static pg_uuid_t checked;	/* has reported all that it holds */
	Datum		workers;
	SswIdentity save;

	if (ssw_service_is_clean() || ssw_service_began() == 0 || GetCurrentTimestamp() < ssw_service_began() + ttl_us ||
		memcmp(&checked, DatumGetUUIDP(worker), UUID_LEN) == 0)
		return;
	workers = PointerGetDatum(construct_array(&worker, 1, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	ssw_spi_begin_as_extension(&save);
	if (end_unheard(workers, ssw_service_began(), "Not reported by its worker since the server crashed or failed over") == 0 &&
		!hold_unheard(workers, ssw_service_began()))
		checked = *DatumGetUUIDP(worker);
	ssw_spi_end_as(&save);
}

/* Of the sessions that ended, what the workers among them had ends, too. */
static void
workers_ended(SswEndedRow *rows, int nrows, const char *end_type, int64 event)
{
	Oid			type = UUIDARRAYOID;
	Datum	   *ids = palloc(nrows * sizeof(Datum));
	int			n = 0;
	Datum		array;
	SswIdentity save;
	uint64		found;

	for (int i = 0; i < nrows; i++)
		if (rows[i].group && VARSIZE_ANY_EXHDR(rows[i].group) == strlen(SSW_WORKER_POOL) &&
			memcmp(VARDATA_ANY(rows[i].group), SSW_WORKER_POOL, strlen(SSW_WORKER_POOL)) == 0)
			ids[n++] = UUIDPGetDatum(&((SswLife *) rows[i].extra)->session);
	if (n == 0)
		return;
	array = PointerGetDatum(construct_array(ids, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	ssw_spi_begin_as_extension(&save);
	if (end_tasks_of(array))
		ssw_task_xact_left_over();
	found = ssw_plan_execute_fresh(end_providers, 1, &type, &array);
	for (uint64 i = 0; i < found; i++)
		ssw_task_xact_room_changed(SSW_PROVIDERS_CHANGED, ssw_spi_text(i, 1));
	found = ssw_plan_execute_fresh(end_links, 1, &type, &array);
	if (found > 0)
	{
		Datum	   *jobs = palloc(found * sizeof(Datum));

		for (uint64 i = 0; i < found; i++)
		{
			jobs[i] = ssw_spi_column(i, 1);
			ssw_task_xact_room_changed(SSW_JOBS_CHANGED, ssw_spi_text(i, 2));
		}
		ssw_worker_lost_orphans(PointerGetDatum(construct_array(jobs, found, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)));
	}
	ssw_spi_end_as(&save);
}

/*
 * End what the ends of workers had to leave, because others held the rows, or there were too
 * many.  As the extension, in SPI.  True: there may be more.
 */
bool
ssw_worker_lost_rest(void)
{
	/*
	 * a list: a task that another worker has claimed meanwhile must not be
	 * taken for lost when its row is locked
	 */
	static const char *const workers =
	"SELECT array_agg(DISTINCT t.worker) FROM sweeper.task AS t WHERE t.status IN ('claimed', 'running') AND t.worker IS NOT NULL"
	" AND NOT EXISTS (SELECT FROM sweeper.session AS s WHERE s.session = t.worker AND s.status = 'active')";
	static const char *const left = "SELECT FROM sweeper.job AS j WHERE" IS_ORPHAN " LIMIT 1";
	Datum		lost;
	bool		more;

	ssw_plan_execute_fresh(workers, 0, NULL, NULL);
	lost = ssw_spi_column(0, 1);
	more = lost != 0 && end_tasks_of(lost);
	return end_orphans(LOCK_ORPHANS(""), left, 0) || more;
}

static SswPolicyHooks hooks = {.policy_id = SSW_SESSION_POLICY_ID,.rows_ended = workers_ended};

void
ssw_worker_lost_init(void)
{
	ssw_policy_hooks_add(&hooks);
}
