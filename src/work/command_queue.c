/*
 * command_queue.c
 *		Commands of submit_sql(): which of them wait, and which lost their runner.  Tasks
 *		that wait for their time, or run for too long.
 *
 * Runs in the coordinator, in the transaction of a round, as the extension's
 * owner.  It looks when there is a reason (work_state.c), or something is due.  It says
 * for which role the launcher is to start a runner, and ends or tries again the commands
 * whose runners have gone.  When its time has come it has a task wait for workers.
 *
 * Shares the runners' slots, under SswShared->lock, and work_state.c.  Commands belong
 * to a run of the server; after a crash, as after a stop, the next coordinator
 * drops what is left of them.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "base/compat.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/cached_plan.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "grace/service_log.h"
#include "policy/policy.h"
#include "work/append_demand.h"
#include "work/command_queue.h"
#include "work/runner_demand.h"
#include "work/task_retry.h"
#include "work/task_row.h"
#include "work/task_xact.h"
#include "work/work_state.h"
#include "work/worker_lost.h"

#define LOOK_EVERY_US		(30 * USECS_PER_SEC)	/* while commands run */
#define FAILED_REST_US		(5 * USECS_PER_SEC)
#define LOCK_TIMEOUT_MS		2000	/* more than it takes to end an autovacuum */
#define MAX_DUE				1000	/* tasks in one look */
#define MAX_FAILED_STARTS	5

#define STILL_THERE			"command IS NOT NULL AND finished_at IS NULL"

static bool begun = false;
static TimestampTz next_at = 0;
static TimestampTz timed_at = 0;	/* tasks are due, or over their time */
static TimestampTz rest_at = DT_NOEND;	/* look at what was left */
static TimestampTz rest_not_before = 0;

/* The run of the server, and the database, to which a command belongs. */
char	   *
ssw_queue_incarnation(void)
{
	return psprintf(UINT64_FORMAT "/%X/" INT64_FORMAT "/%u", GetSystemIdentifier(), GetWALInsertionTimeLine(), ssw_service_incarnation(), MyDatabaseId);
}

/* What this server is called in its tasks. */
char	   *
ssw_queue_machine(void)
{
	char		host[256];

	if (ssw_machine_id && ssw_machine_id[0])
		return pstrdup(ssw_machine_id);
	if (gethostname(host, sizeof(host)) != 0)
		strlcpy(host, "localhost", sizeof(host));
	host[sizeof(host) - 1] = '\0';
	return psprintf("%s:%d", host, PostPortNumber);
}

/*
 * End an attempt of a command.  Status "failed" means: if it is not to be tried
 * again.  False: it has ended already.  As the extension, in SPI.
 */
bool
ssw_queue_end(Datum task, int attempt, const char *status, const char *error, const char *comment)
{
	/*
	 * all of it by the row that is written: somebody may cancel the task
	 * meanwhile
	 */
#define AGAIN "CASE WHEN $3 = 'failed' AND attempt <= max_retries AND cancel_requested_at IS NULL THEN "
	static const char *const sql =
	"UPDATE sweeper.task SET error = $4, status = " AGAIN "'allocated' ELSE $3 END, finished_at = " AGAIN "NULL ELSE clock_timestamp() END,"
	" not_before = " AGAIN "clock_timestamp() + sweeper._backoff(attempt, '1 s', '10 min') END"
	" WHERE task = $1 AND attempt = $2 AND status = 'running' RETURNING status = 'allocated', not_before";
	Oid			types[] = {UUIDOID, INT4OID, TEXTOID, TEXTOID};
	Datum		values[4];
	bool		again;
	TimestampTz at;

	values[0] = task;
	values[1] = Int32GetDatum(attempt);
	values[2] = CStringGetTextDatum(status);
	values[3] = error ? CStringGetTextDatum(error) : (Datum) 0;
	if (ssw_plan_execute(sql, 4, types, values, NULL, false) == 0)
		return false;
	again = DatumGetBool(ssw_spi_column(0, 1));
	at = again ? DatumGetTimestampTz(ssw_spi_column(0, 2)) : DT_NOEND;
	ssw_task_row_progress(task);
	ssw_task_xact_task_changed(DatumGetUUIDP(task));
	if (comment)
		ssw_task_row_comment(task, "session_sweeper", again ? psprintf("%s\nIt is tried again.", comment) : comment);
	ssw_task_xact_look_by(at);
	return true;
}

/* Run a statement that drops commands, and returns each with its last status and the reason. */
static void
drop(const char *sql, int nargs, Oid *types, Datum *values)
{
	uint64		n = ssw_plan_execute(sql, nargs, types, values, NULL, false);
	SPITupleTable *rows = SPI_tuptable;

	for (uint64 i = 0; i < n; i++)
	{
		bool		isnull;
		Datum		task = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull);

		ssw_task_xact_task_changed(DatumGetUUIDP(task));
		ssw_task_row_comment(task, "session_sweeper", psprintf("dropped: %s (it was %s)", SPI_getvalue(rows->vals[i], rows->tupdesc, 3),
															   SPI_getvalue(rows->vals[i], rows->tupdesc, 2)));
	}
}

/* Drop commands that were submitted before the server started, or to a database that was copied to this one. */
static void
drop_others(void)
{
	static const char *const sql =
	"WITH old AS MATERIALIZED (SELECT task, status FROM sweeper.task WHERE " STILL_THERE " AND incarnation <> $1"
	" ORDER BY task FOR NO KEY UPDATE SKIP LOCKED)"
	" UPDATE sweeper.task AS t SET status = 'dropped', finished_at = clock_timestamp(), error = CASE WHEN starts_with(incarnation, $2)"
	" THEN 'the database is a copy of the one to which it was submitted' ELSE $3 END"
	" FROM old WHERE t.task = old.task RETURNING t.task, old.status, t.error";
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID};
	char	   *ours = ssw_queue_incarnation();
	Datum		values[3];

	values[0] = CStringGetTextDatum(ours);
	values[1] = CStringGetTextDatum(pnstrdup(ours, strrchr(ours, '/') + 1 - ours));
	values[2] = CStringGetTextDatum(ssw_service_is_clean() ? "the server was stopped before it ended" :
									"the server crashed, or another took over, before it ended");
	drop(sql, 3, types, values);
}

/* The commands of a role cannot run. */
static void
drop_role(Oid role, const char *reason)
{
	static const char *const sql =
	"WITH old AS MATERIALIZED (SELECT task, status FROM sweeper.task WHERE " STILL_THERE
	" AND owner_oid = $1 AND status IN ('allocated', 'enqueued') ORDER BY task FOR NO KEY UPDATE SKIP LOCKED)"
	" UPDATE sweeper.task AS t SET status = 'dropped', finished_at = clock_timestamp(), error = $2"
	" FROM old WHERE t.task = old.task RETURNING t.task, old.status, t.error";
	Oid			types[] = {OIDOID, TEXTOID};
	Datum		values[] = {ObjectIdGetDatum(role), CStringGetTextDatum(reason)};

	drop(sql, 2, types, values);
}

/* False: another session holds it, and it waits until the next look. */
static bool
lock_task(Datum task)
{
	Oid			type = UUIDOID;

	return ssw_plan_execute("SELECT FROM sweeper.task WHERE task = $1 FOR NO KEY UPDATE SKIP LOCKED", 1, &type, &task, NULL, false) > 0;
}

/* Commands whose runner was ended are cancelled, have failed, or are tried again; runners of those that were cancelled are to stop them. */
static void
look_at_running(TimestampTz now)
{
	uint64		n = ssw_plan_execute("SELECT task, attempt, cancel_requested_at IS NOT NULL FROM sweeper.task WHERE " STILL_THERE " AND status = 'running'",
									 0, NULL, NULL, NULL, false);
	SPITupleTable *rows = SPI_tuptable;

	/* a runner has its task before its row says that it runs */
	for (uint64 i = 0; i < n; i++)
	{
		bool		isnull;
		Datum		task = SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull);
		int			attempt = DatumGetInt32(SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &isnull));
		bool		cancelled = DatumGetBool(SPI_getbinval(rows->vals[i], rows->tupdesc, 3, &isnull));

		if (!ssw_runner_cancel(DatumGetUUIDP(task), cancelled ? now : 0) && lock_task(task))
			(void) ssw_queue_end(task, attempt, cancelled ? "cancelled" : "failed", SSW_RUNNER_ENDED,
								 cancelled ? "cancelled: " SSW_RUNNER_ENDED : "failed: " SSW_RUNNER_ENDED);
	}
	if (n > 0)
		next_at = Min(next_at, now + LOOK_EVERY_US);
}

/* Tasks whose time has come wait for a worker, or a runner.  Returns when the next one's time comes. */
static TimestampTz
enqueue_due(TimestampTz now)
{
	static const char *const move =
	"WITH due AS MATERIALIZED (SELECT task FROM sweeper.task WHERE status = 'allocated' AND not_before <= clock_timestamp()"
	" ORDER BY not_before LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED)"
	" UPDATE sweeper.task AS t SET status = 'enqueued', enqueued_at = clock_timestamp(), not_before = NULL"
	" FROM due WHERE t.task = due.task RETURNING t.task, t.owner_oid, t.job, t.priority";
	Oid			type = INT4OID;
	Datum		most = Int32GetDatum(MAX_DUE);
	TimestampTz began = GetCurrentTimestamp();
	uint64		n = ssw_plan_execute(move, 1, &type, &most, NULL, false);
	Datum		not_before;

	for (uint64 i = 0; i < n; i++)
	{
		pg_uuid_t  *task = DatumGetUUIDP(ssw_spi_column(i, 1));
		Datum		job = ssw_spi_column(i, 3);

		ssw_task_xact_task_changed(task);
		if (job != 0)
			ssw_task_xact_task_waits(DatumGetInt64(job), DatumGetInt32(ssw_spi_column(i, 4)), task);
		else
			/* a runner that is woken before we commit does not see them */
			ssw_task_xact_command_waits(DatumGetObjectId(ssw_spi_column(i, 2)));
	}
	ssw_plan_execute("SELECT min(not_before) FROM sweeper.task WHERE status = 'allocated'", 0, NULL, NULL, NULL, false);
	not_before = ssw_spi_column(0, 1);
	if (n == MAX_DUE)
		return now;
	if (not_before == 0)
		return DT_NOEND;
	if (DatumGetTimestampTz(not_before) > now)
		return DatumGetTimestampTz(not_before);
	/* others hold what is due, perhaps very many */
	return ssw_max(now + SSW_LOCKED_REST_US, ssw_work_rest(began));
}

/* Find the roles whose commands wait, one index probe each. */
static void
look_at_waiting(TimestampTz now)
{
	static const char *const sql =
	"WITH RECURSIVE w AS ((SELECT owner, owner_oid, task FROM sweeper.task WHERE " STILL_THERE " AND status = 'enqueued' ORDER BY owner_oid, task LIMIT 1)"
	" UNION ALL SELECT n.owner, n.owner_oid, n.task FROM w CROSS JOIN LATERAL (SELECT t.owner, t.owner_oid, t.task FROM sweeper.task AS t"
	" WHERE t.command IS NOT NULL AND t.finished_at IS NULL AND t.status = 'enqueued' AND t.owner_oid > w.owner_oid ORDER BY t.owner_oid, t.task LIMIT 1) AS n)"
	" SELECT owner, owner_oid FROM w ORDER BY owner_oid";
	uint64		n = ssw_plan_execute(sql, 0, NULL, NULL, NULL, false);
	SPITupleTable *rows = SPI_tuptable;
	SswWorkState state = ssw_work_read(MyDatabaseId);
	Oid		   *roles = palloc((n + 1) * sizeof(Oid));
	int			nroles = 0;
	TimestampTz again_at;

	for (uint64 i = 0; i < n; i++)
	{
		char	   *owner = SPI_getvalue(rows->vals[i], rows->tupdesc, 1);
		bool		isnull;
		Oid			role = DatumGetObjectId(SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &isnull));

		if (ssw_work_failed_starts(&state, role).failures >= MAX_FAILED_STARTS)
		{
			drop_role(role, psprintf("no process could connect as role \"%s\"; the server's log says why", owner));
			/* if it submits others, they are tried */
			ssw_work_runner_started(MyDatabaseId, role, false);
		}
		else
			roles[nroles++] = role;
	}
	again_at = ssw_runner_demand(roles, nroles, now);
	next_at = Min(next_at, again_at);
}

static bool
try_look(void *arg)
{
	TimestampTz now = *(TimestampTz *) arg;
	TimestampTz others_at;
	SswIdentity save;

	ssw_spi_begin_as_extension(&save);
	ssw_identity_lock_timeout(LOCK_TIMEOUT_MS);
	drop_others();
	if (!begun || now >= rest_at)
	{
		TimestampTz began = GetCurrentTimestamp();
		bool		more = ssw_worker_lost_rest();

		rest_not_before = ssw_work_rest(began);
		rest_at = more ? rest_not_before : DT_NOEND;
	}
	next_at = Min(next_at, rest_at);
	look_at_running(now);
	if (now >= timed_at)
	{
		timed_at = enqueue_due(now);
		others_at = ssw_task_retry_look(now);
		timed_at = Min(timed_at, others_at);
	}
	next_at = Min(next_at, timed_at);
	look_at_waiting(now);
	others_at = ssw_append_demand_look(now);
	next_at = Min(next_at, others_at);
	ssw_spi_end_as(&save);
	begun = true;
	return true;
}

/*
 * Look at the commands if there is a reason to; returns when to look next.  An error does not delay
 * the policies, and a lock on the tables of tasks not for long.
 */
TimestampTz
ssw_queue_round(TimestampTz now)
{
	static TimestampTz not_before = 0;
	static TimestampTz last = 0;
	SswWorkState s = ssw_work_take(MyDatabaseId, SSW_WORK_COMMANDS | SSW_WORK_LEFT_OVER | SSW_WORK_TIMED);
	ErrorData  *e;

	/* the clock was set back */
	if (now < last)
		next_at = timed_at = rest_at = rest_not_before = not_before = 0;
	last = now;

	/* the coordinator before us knew when there is something to do again */
	if (!begun && next_at == 0)
		next_at = s.look_at;
	if (s.reasons & SSW_WORK_TIMED)
	{
		timed_at = Min(timed_at, s.timed_at);
		next_at = Min(next_at, timed_at);
	}

	/* what is still left after that is signalled again */
	if (s.reasons & SSW_WORK_LEFT_OVER)
		rest_at = ssw_min(rest_at, ssw_max(now + USECS_PER_SEC, rest_not_before));
	if (XactReadOnly)
	{
		/* nothing is written by default, not by commands either */
		ssw_runner_demand_none(false);
		next_at = 0;
		return DT_NOEND;
	}
	if (now < not_before)
		return not_before;
	if ((s.reasons & (SSW_WORK_COMMANDS | SSW_WORK_LEFT_OVER | SSW_WORK_APPENDED)) == 0 && now < next_at)
	{
		/* if this process ends, the next one knows */
		if (s.reasons & SSW_WORK_TIMED)
			ssw_work_looked(next_at, NULL);
		return next_at;
	}
	next_at = DT_NOEND;
	e = ssw_spi_try(try_look, &now);
	ssw_work_looked(next_at, e ? e->message : NULL);
	if (e == NULL)
		return next_at;
	not_before = now + FAILED_REST_US;
	next_at = timed_at = 0;
	rest_at = rest_not_before;
	ereport(WARNING,
			(errcode(e->sqlerrcode),
			 errmsg("could not serve the commands and appended rows of database \"%s\": %s",
					get_database_name(MyDatabaseId), e->message),
			 errdetail("They wait, and it is tried again in %d s.", (int) (FAILED_REST_US / USECS_PER_SEC)),
			 errhint("Look for locks on, and triggers of, the tables of schema sweeper.")));
	return not_before;
}
