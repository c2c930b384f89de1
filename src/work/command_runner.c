/*
 * command_runner.c
 *		A worker that runs the commands of one role: submit_sql().
 *
 * A dynamic background process, connected to the database as that role, so that a
 * command can do what its submitter can, and no more.  One transaction takes the role's
 * oldest command.  Another runs it, and marks it as completed at its end, so that its
 * effects and its end are one.  If that fails, a third records the error.
 *
 * Shares its slot, under SswShared->lock: which task it has, and whether that is to
 * stop.  When it is ended, the coordinator finds the task without a runner.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "base/compat.h"
#include "commands/discard.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/deferred.h"
#include "base/error_class.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/process_slot.h"
#include "base/spi.h"
#include "heartbeat/attach.h"
#include "work/command_queue.h"
#include "work/command_runner.h"
#include "work/task_row.h"
#include "work/task_shmem.h"
#include "work/task_xact.h"
#include "work/work_state.h"

PGDLLEXPORT void ssw_runner_main(Datum main_arg);

#define WRITE_LOCK_TIMEOUT_MS	2000

typedef struct Command
{
	pg_uuid_t	task;
	int			attempt;
	char	   *text;
	int64		limit_ms;		/* 0: none */
} Command;

/* The task that this process runs; null in all others. */
const pg_uuid_t *
ssw_runner_task(void)
{
	return MySswProc && MySswProc->kind == SSW_PROC_RUNNER && MySswProc->has_task ? &MySswProc->task : NULL;
}

/* Was its task cancelled, or is the process to leave? */
bool
ssw_runner_must_stop(void)
{
	return MySswProc->terminating || MySswProc->cancel_since != 0;
}

static bool
must_leave(void)
{
	return !ssw_enabled || ssw_process_must_leave();
}

/* Set the task of this process; null: none. */
static void
hold(const pg_uuid_t *task)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	MySswProc->has_task = task != NULL;
	if (task)
		MySswProc->task = *task;
	MySswProc->cancel_since = 0;
	MySswProc->interrupted = false;
	MySswProc->batch_deadline = 0;
	LWLockRelease(SswShared->lock);
}

/* Take the oldest command of our role; false: there is none. */
static bool
take(Command *c, MemoryContext cxt)
{
	static const char *const sql =
	"WITH next AS MATERIALIZED (SELECT task FROM sweeper.task WHERE command IS NOT NULL AND finished_at IS NULL AND status = 'enqueued'"
	" AND owner_oid BETWEEN $1 AND $1 AND incarnation = $2 ORDER BY owner_oid, task LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)"
	" UPDATE sweeper.task AS t SET status = 'running', claimed_at = clock_timestamp(), started_at = clock_timestamp(), attempt = attempt + 1,"
	" progress_at = clock_timestamp(), done = NULL, total = NULL, message = NULL, error = NULL"
	" FROM next WHERE t.task = next.task"
	" RETURNING t.task, t.attempt, t.command, pg_catalog.ceil(EXTRACT(epoch FROM t.time_limit) * 1000)::bigint,"
	" EXISTS (SELECT FROM sweeper.task AS q WHERE q.command IS NOT NULL AND q.finished_at IS NULL AND q.status = 'enqueued'"
	" AND q.owner_oid = $1 AND q.task > t.task)";
	Oid			types[] = {OIDOID, TEXTOID};
	Datum		values[2];
	SswIdentity save;
	bool		found = false;

	ssw_spi_start_transaction();
	if (OidIsValid(get_extension_oid(SSW_EXTENSION, true)) && !ssw_identity_other_version() && !XactReadOnly)
	{
		values[0] = ObjectIdGetDatum(MySswProc->role);
		values[1] = CStringGetTextDatum(ssw_queue_incarnation());
		ssw_spi_begin_as_extension(&save);
		found = ssw_plan_execute(sql, 2, types, values, NULL, false) > 0;
		if (found)
		{
			Datum		limit_ms = ssw_spi_column(0, 4);

			c->task = *DatumGetUUIDP(ssw_spi_column(0, 1));
			c->attempt = DatumGetInt32(ssw_spi_column(0, 2));
			c->text = MemoryContextStrdup(cxt, ssw_spi_text(0, 3));
			c->limit_ms = limit_ms ? DatumGetInt64(limit_ms) : ssw_task_timeout;
			ssw_task_xact_task_changed(&c->task);
			/* for another runner, where there may be one */
			if (ssw_max_task_workers > 1 && DatumGetBool(ssw_spi_column(0, 5)))
				ssw_task_xact_command_waits(MySswProc->role);
			/* before others can see that it runs */
			hold(&c->task);
		}
		ssw_spi_end_as(&save);
	}
	ssw_spi_commit();
	if (found)
	{
		SswProgress p = {.key = {.database = MyDatabaseId,.task = c->task},.role = GetUserId(),.attempt = c->attempt,.at = GetCurrentTimestamp()};

		/* others see at once that it runs */
		(void) ssw_task_shmem_publish(&p, true);
	}
	return found;
}

/* The command's last act: it has completed.  An error when it was ended meanwhile. */
static void
complete(const Command *c)
{
	static const char *const sql =
	"UPDATE sweeper.task SET status = 'completed', finished_at = clock_timestamp() WHERE task = $1 AND attempt = $2 AND status = 'running'";
	Oid			types[] = {UUIDOID, INT4OID};
	Datum		values[] = {UUIDPGetDatum(&c->task), Int32GetDatum(c->attempt)};
	SswIdentity save;

	ssw_identity_become_extension(&save);
	ssw_identity_lock_timeout(WRITE_LOCK_TIMEOUT_MS);
	ssw_spi_begin();
	if (ssw_plan_execute(sql, 2, types, values, NULL, false) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE), errmsg("the task was ended while it ran")));
	ssw_task_row_progress(values[0]);
	ssw_task_xact_task_changed(&c->task);
	ssw_spi_end_as(&save);
}

/* Run the command in a transaction of its own; an error is returned in cxt, else null. */
static ErrorData *
execute(const Command *c, MemoryContext cxt)
{
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		SPIExecuteOptions options = {.dest = None_Receiver};	/* rows are discarded */
		int			rc;

		ssw_spi_start_transaction();
		pgstat_report_activity(STATE_RUNNING, c->text);
		if (c->limit_ms > 0)
		{
			enable_timeout_after(STATEMENT_TIMEOUT, Min(c->limit_ms, INT_MAX));
			/* a command that catches the time-out is ended with the process */
			MySswProc->batch_deadline = GetCurrentTimestamp() + c->limit_ms * INT64CONST(1000);
		}
		ssw_spi_begin();
		rc = SPI_execute_extended(c->text, &options);
		if (rc < 0)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 rc == SPI_ERROR_COPY ? errmsg("a command cannot use COPY FROM STDIN or COPY TO STDOUT: it has no client") :
					 errmsg("a command cannot begin or end a transaction: the server commits after it")));
		ssw_spi_end();
		/* what is deferred belongs to the command */
		ssw_deferred_fire();
		disable_timeout(STATEMENT_TIMEOUT, false);
		CHECK_FOR_INTERRUPTS();
		complete(c);
		ssw_spi_commit();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		error = ssw_error_catch();
		disable_timeout(STATEMENT_TIMEOUT, false);
		ssw_spi_abort();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	return error;
}

/* What an error of the command makes of its task, and of the error. */
static const char *
status_after(ErrorData *e, char **comment)
{
	bool		stopped = e->sqlerrcode == ERRCODE_SSW_STOPPED || e->sqlerrcode == ERRCODE_QUERY_CANCELED;

	if (stopped && MySswProc->cancel_since != 0)
	{
		*comment = "cancelled: stopped on request";
		return "cancelled";
	}
	if (stopped && MySswProc->terminating && ssw_attach_is_stopping())
	{
		*comment = "dropped: the server is being stopped";
		return "dropped";
	}
	if (stopped && MySswProc->terminating)
	{
		e->message = SSW_RUNNER_ENDED;
		*comment = "failed: " SSW_RUNNER_ENDED;
		return "failed";
	}
	*comment = psprintf("failed: %s: %s", unpack_sql_state(e->sqlerrcode), e->message);
	return "failed";
}

/* Write how it ended; where that is not possible, the coordinator finds a task that has no runner. */
static void
record(const Command *c, ErrorData *e, MemoryContext cxt)
{
	char	   *comment;
	const char *status = status_after(e, &comment);

	PG_TRY();
	{
		SswIdentity save;

		ssw_spi_start_transaction();
		ssw_identity_become_extension(&save);
		ssw_identity_lock_timeout(WRITE_LOCK_TIMEOUT_MS);
		ssw_spi_begin();
		(void) ssw_queue_end(UUIDPGetDatum(&c->task), c->attempt, status, e->message, comment);
		ssw_spi_end_as(&save);
		ssw_spi_commit();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		EmitErrorReport();
		FlushErrorState();
		ssw_spi_abort();
	}
	PG_END_TRY();
}

/* The next command finds nothing of this one's session. */
static void
reset_session(void)
{
	DiscardStmt stmt = {.type = T_DiscardStmt,.target = DISCARD_ALL};

	ssw_spi_start_transaction();
	DiscardCommand(&stmt, true);
	ssw_spi_commit();
}

static void
run(const Command *c, MemoryContext cxt)
{
	ErrorData  *error;

	ssw_process_set_state(SSW_STATE_BUSY);
	error = execute(c, cxt);
	QueryCancelPending = false;
	if (error)
		record(c, error, cxt);
	hold(NULL);
	QueryCancelPending = false;
	MySswProc->rows++;
	pgstat_report_activity(STATE_IDLE, NULL);
	pgstat_report_stat(false);
	reset_session();
}

static void
connect_as_role(void)
{
	static const char *const overrides[][2] = {
		/* ALTER ROLE ... SET must not change the role */
		{"role", "none"},
		/* these would also count for what we write */
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "off"},
		{"default_transaction_deferrable", "off"},
		{"statement_timeout", "0"},
		{"transaction_timeout", "0"},
	};

	BackgroundWorkerInitializeConnectionByOid(MySswProc->database, MySswProc->role, SSW_BYPASS_LOGIN);
	MySswProc->connected = true;
	for (int i = 0; i < lengthof(overrides); i++)
		if (GetConfigOption(overrides[i][0], true, false) != NULL)
			SetConfigOption(overrides[i][0], overrides[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	ssw_process_note_settings();
	if (GetUserId() != MySswProc->role || GetSessionUserId() != MySswProc->role)
		ereport(FATAL,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg_internal("a process for commands of role \"%s\" is not connected as that role", GetUserNameFromId(MySswProc->role, false))));
	pgstat_report_appname(MyBgworkerEntry->bgw_type);
}

/* It can serve its role.  Where runners fail before, the next is started later. */
static void
be_ready(void)
{
	if (MySswProc->ready)
		return;
	ssw_process_ready();
	ssw_work_runner_started(MySswProc->database, MySswProc->role, false);
}

void
ssw_runner_main(Datum main_arg)
{
	static uint32 wait_event = 0;
	MemoryContext cxt;

	if (!ssw_process_attach(&main_arg))
		return;
	connect_as_role();
	cxt = AllocSetContextCreate(TopMemoryContext, "command", ALLOCSET_DEFAULT_SIZES);
	while (!must_leave())
	{
		Command		c;
		bool		found;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		MemoryContextReset(cxt);
		MemoryContextSwitchTo(cxt);
		/* a submit wakes idle runners: become idle before the last look */
		if (MySswProc->state != SSW_STATE_IDLE)
			ssw_process_set_state(SSW_STATE_IDLE);
		found = !must_leave() && take(&c, cxt);
		be_ready();
		if (found)
			run(&c, cxt);
		if (found)
			continue;
		if (TimestampDifferenceExceeds(MySswProc->state_since, GetCurrentTimestamp(), ssw_worker_idle_timeout))
			break;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Max(1, Min(ssw_worker_idle_timeout, 10000)),
						 ssw_wait_event("SessionSweeperRunnerIdle", wait_event));
		ResetLatch(MyLatch);
		QueryCancelPending = false;
	}
}
