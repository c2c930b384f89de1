/*
 * task.c
 *		Tasks: start, finish, cancel and retry them.
 *
 * Runs in the caller's session.  Each step locks the task's row and looks at its state
 * again, so that one of several callers wins.  task_row.c lists the steps.  Shares nothing
 * but the tables; a crash, or the caller's rollback, undoes it.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/cached_plan.h"
#include "base/own_row.h"
#include "base/spi.h"
#include "work/caller.h"
#include "work/job.h"
#include "work/task.h"
#include "work/task_retry.h"
#include "work/task_row.h"
#include "work/task_xact.h"
#include "work/worker_lost.h"

PG_FUNCTION_INFO_V1(ssw_start_task);
PG_FUNCTION_INFO_V1(ssw_finish_task);
PG_FUNCTION_INFO_V1(ssw_cancel_task);
PG_FUNCTION_INFO_V1(ssw_retry_task);

/* How long an open transaction that drops the job is waited for, if the session says nothing. */
#define JOB_TIMEOUT_MS	500

/* New values of a task's row. */
typedef struct Change
{
	Datum		values[SSW_TASK_COLUMNS];
	bool		nulls[SSW_TASK_COLUMNS];
	bool		replace[SSW_TASK_COLUMNS];
} Change;

/* A text column of a row; "" for null. */
static const char *
text_of(SswOwnTable *t, AttrNumber column)
{
	char	   *text = ssw_own_text(t, column);

	return text ? text : "";
}

/*
 * Is the task in the slot held by a worker of the caller's, and can it go to that status?
 * The attempt distinguishes a worker that lost the task from the one that has it now.
 */
static bool
is_held(SswOwnTable *tasks, const SswCaller *c, FunctionCallInfo fcinfo, int attempt, const char *to)
{
	const char *role = text_of(tasks, SSW_TASK_WORKER_ROLE);
	const char *status = text_of(tasks, SSW_TASK_STATUS);
	bool		isnull;

	if (strcmp(status, "claimed") != 0 && (strcmp(status, "running") != 0 || strcmp(to, status) == 0))
		return false;
	if (role[0] == '\0' || !(strcmp(role, c->name) == 0 || ssw_caller_acts_as(c, role)))
		return false;
	if (!PG_ARGISNULL(attempt) && PG_GETARG_INT32(attempt) != 0 &&
		PG_GETARG_INT32(attempt) != DatumGetInt32(ssw_own_column(tasks, SSW_TASK_ATTEMPT, &isnull)))
		return false;
	ssw_task_row_check_step(status, to);
	return true;
}

/* Write a task that the caller's worker holds, in the first argument; its old row is then in the slot. */
static bool
update_held(SswOwnTable *tasks, const SswCaller *c, FunctionCallInfo fcinfo, int attempt, const char *to, Change *change)
{
	ScanKeyData key;
	bool		found;
	bool		locked = false;

	ssw_task_row_set(SSW_TASK_STATUS, CStringGetTextDatum(to), change->values, change->replace);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, PG_GETARG_DATUM(0));
	found = ssw_own_find(tasks, &key, 1);
	ssw_own_refuse_stale(tasks, &key, 1);
	if (!found)
		return false;
	while (is_held(tasks, c, fcinfo, attempt, to))
	{
		if (ssw_own_update(tasks, locked, change->values, change->nulls, change->replace))
			return true;
		/* as it is when the other session is done with it */
		locked = ssw_own_lock(tasks, tasks->slot->tts_tid, LockTupleNoKeyExclusive, true);
		if (!locked)
			return false;
	}
	return false;
}

/* start_task(task, attempt): false when it is not, or no more, claimed by the caller's worker. */
Datum
ssw_start_task(PG_FUNCTION_ARGS)
{
	Change		change = {0};
	SswOwnTable tasks;
	SswCaller	c;
	Snapshot	snapshot;
	bool		done;

	ssw_argument_not_null(fcinfo, 0, "task");
	c = ssw_caller_identify("sweeper.start_task()");
	snapshot = ssw_own_snapshot();
	ssw_own_open(&tasks, "task", SSW_TASK_COLUMNS, "task_pkey", RowExclusiveLock, snapshot);
	ssw_task_row_set(SSW_TASK_STARTED_AT, TimestampTzGetDatum(GetCurrentTimestamp()), change.values, change.replace);
	done = update_held(&tasks, &c, fcinfo, 1, "running", &change);
	if (done)
		ssw_task_xact_task_changed(PG_GETARG_UUID_P(0));
	ssw_own_close(&tasks);
	ssw_own_release(snapshot);
	PG_RETURN_BOOL(done);
}

/* After a task of it has ended: does nobody offer the job any more? */
static bool
is_left_alone(int64 job, Snapshot snapshot)
{
	SswOwnTable links;
	ScanKeyData key;
	bool		found;

	ssw_own_open(&links, "job_worker", 2, "job_worker_job", AccessShareLock, snapshot);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(job));
	found = ssw_own_find(&links, &key, 1);
	ssw_own_close(&links);
	return !found;
}

/* Is the job, in an array, an orphan now? */
static void
look_at_job(Datum jobs)
{
	if (jobs != 0)
		ssw_worker_lost_orphans(jobs);
}

/* Lock a task that the caller's worker holds, in the first argument. */
static bool
lock_held(SswOwnTable *tasks, const SswCaller *c, FunctionCallInfo fcinfo, int attempt, const char *to)
{
	ScanKeyData key;
	bool		found;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, PG_GETARG_DATUM(0));
	found = ssw_own_find(tasks, &key, 1);
	ssw_own_refuse_stale(tasks, &key, 1);
	return found && is_held(tasks, c, fcinfo, attempt, to) &&
		ssw_own_lock(tasks, tasks->slot->tts_tid, LockTupleNoKeyExclusive, true) && is_held(tasks, c, fcinfo, attempt, to);
}

/* Arguments of finish_task(). */
enum
{
	F_TASK, F_STATUS, F_RESULT, F_ERROR, F_RETRY, F_ATTEMPT
};

/* The attempt failed, and the task, which is locked, may be tried again. */
static void
retry_later(FunctionCallInfo fcinfo, const SswCaller *c)
{
	static const char *const sql = SSW_END_ATTEMPTS("t.task = $4");
	static const char *const hold = "SELECT FROM sweeper.job AS j JOIN sweeper.task AS t USING (job) WHERE t.task = $1 FOR KEY SHARE OF j";
	Oid			type = UUIDOID;
	Datum		values[] = {PG_GETARG_DATUM(F_ERROR), BoolGetDatum(true), CStringGetTextDatum(c->name), PG_GETARG_DATUM(F_TASK)};
	SswIdentity save;

	if (PG_ARGISNULL(F_ERROR))
		values[0] = CStringGetTextDatum("its worker gave no reason");
	ssw_spi_begin_as_extension(&save);
	/* somebody may be dropping it, in a transaction that stays open */
	if (LockTimeout == 0)
		ssw_identity_lock_timeout(JOB_TIMEOUT_MS);
	ssw_plan_execute_fresh(hold, 1, &type, &values[SSW_END_ATTEMPTS_PARAMETERS]);
	if (ssw_task_retry_end(sql, lengthof(values), &type, values) == 0)
		elog(ERROR, "a task that was locked is gone");
	ssw_spi_end_as(&save);
}

/* finish_task(task, status, result, error, retry, attempt): false when it has ended or is not the caller's. */
Datum
ssw_finish_task(PG_FUNCTION_ARGS)
{
	Change		change = {0};
	SswOwnTable tasks;
	char	   *status;
	SswCaller	c;
	Snapshot	snapshot;
	bool		retry;
	bool		done;
	bool		alone = false;
	Datum		job;

	ssw_argument_not_null(fcinfo, F_TASK, "task");
	ssw_argument_not_null(fcinfo, F_STATUS, "status");
	ssw_argument_not_null(fcinfo, F_RETRY, "retry");
	status = text_to_cstring(PG_GETARG_TEXT_PP(F_STATUS));
	retry = PG_GETARG_BOOL(F_RETRY);
	if (strcmp(status, "completed") != 0 && strcmp(status, "failed") != 0 && strcmp(status, "cancelled") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("status must not be \"%s\"", status),
				 errhint("Use one of \"completed\", \"failed\", \"cancelled\".")));
	if (retry && strcmp(status, "failed") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a task that is %s cannot be tried again", status),
				 errhint("Use status \"failed\", or leave out retry.")));
	ssw_argument_bound(fcinfo, F_RESULT, "result", SSW_MAX_PAYLOAD);
	ssw_argument_bound(fcinfo, F_ERROR, "error", SSW_MAX_TEXT);
	c = ssw_caller_identify("sweeper.finish_task()");
	snapshot = ssw_own_snapshot();
	ssw_own_open(&tasks, "task", SSW_TASK_COLUMNS, "task_pkey", RowExclusiveLock, snapshot);
	change.nulls[SSW_TASK_RESULT - 1] = PG_ARGISNULL(F_RESULT);
	change.nulls[SSW_TASK_ERROR - 1] = PG_ARGISNULL(F_ERROR);
	ssw_task_row_set(SSW_TASK_RESULT, PG_GETARG_DATUM(F_RESULT), change.values, change.replace);
	ssw_task_row_set(SSW_TASK_ERROR, PG_GETARG_DATUM(F_ERROR), change.values, change.replace);
	ssw_task_row_set(SSW_TASK_FINISHED_AT, TimestampTzGetDatum(GetCurrentTimestamp()), change.values, change.replace);
	done = retry ? lock_held(&tasks, &c, fcinfo, F_ATTEMPT, status) : update_held(&tasks, &c, fcinfo, F_ATTEMPT, status, &change);
	if (done)
	{
		bool		isnull;

		job = ssw_own_column(&tasks, SSW_TASK_JOB, &isnull);
		alone = !isnull && is_left_alone(DatumGetInt64(job), snapshot);
	}
	ssw_own_close(&tasks);
	ssw_own_release(snapshot);
	if (done && retry)
		retry_later(fcinfo, &c);
	if (alone)
		look_at_job(PointerGetDatum(construct_array(&job, 1, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)));
	if (done && !retry)
	{
		ssw_task_row_progress(PG_GETARG_DATUM(F_TASK));
		ssw_task_xact_task_changed(PG_GETARG_UUID_P(F_TASK));
		if (strcmp(status, "completed") != 0)
			ssw_task_row_comment(PG_GETARG_DATUM(F_TASK), c.name, PG_ARGISNULL(F_ERROR) ? status :
								 psprintf("%s: %s", status, text_to_cstring(PG_GETARG_TEXT_PP(F_ERROR))));
	}
	PG_RETURN_BOOL(done);
}

/* The task does not exist, or the caller may not see it; the error does not say which. */
void
ssw_task_missing(Datum task)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("task %s does not exist, or you may not see it",
					DatumGetCString(DirectFunctionCall1(uuid_out, task))),
			 errhint("SELECT * FROM sweeper.list_tasks(); lists the tasks that you may see.")));
}

/*
 * Lock a task for its owner, its group, or admins; else an error.  The row has the columns
 * that are asked for.
 */
static void
lock_own(const SswCaller *c, Datum task, const char *columns)
{
	Oid			type = UUIDOID;
	char	   *owner;
	char	   *group;

	if (ssw_plan_execute(psprintf("SELECT owner, group_role, %s FROM sweeper.task WHERE task = $1 FOR NO KEY UPDATE", columns),
						 1, &type, &task, NULL, false) == 0)
		ssw_task_missing(task);
	owner = ssw_spi_text(0, 1);
	group = ssw_spi_text(0, 2);
	if (!ssw_caller_acts_as(c, owner) && !(group && ssw_caller_acts_as(c, group)))
		ssw_task_missing(task);
}

/* cancel_task(task): true for the one call that cancelled it, or asked its worker to stop. */
Datum
ssw_cancel_task(PG_FUNCTION_ARGS)
{
	static const char *const cancel =
	"UPDATE sweeper.task SET cancel_requested_at = $2, status = CASE WHEN status = 'running' THEN status ELSE 'cancelled' END,"
	" finished_at = CASE WHEN status <> 'running' THEN $2 END WHERE task = $1 RETURNING CASE WHEN status = 'cancelled' AND job IS NOT NULL THEN ARRAY[job] END, status";
	Oid			types[] = {UUIDOID, TIMESTAMPTZOID};
	Datum		values[2];
	SswCaller	c;
	bool		done;

	ssw_argument_not_null(fcinfo, 0, "task");
	c = ssw_caller_begin("sweeper.cancel_task()");
	values[0] = PG_GETARG_DATUM(0);
	lock_own(&c, values[0], "cancel_requested_at IS NULL AND finished_at IS NULL");
	done = DatumGetBool(ssw_spi_column(0, 3));
	if (done)
	{
		bool		running;

		values[1] = TimestampTzGetDatum(GetCurrentTimestamp());
		ssw_plan_execute(cancel, 2, types, values, NULL, false);
		running = strcmp(ssw_spi_text(0, 2), "running") == 0;
		look_at_job(ssw_spi_column(0, 1));
		ssw_task_row_progress(values[0]);
		ssw_task_xact_task_changed(DatumGetUUIDP(values[0]));
		/* the coordinator has the runner of a command stop it */
		if (running)
			ssw_task_xact_command_waits(InvalidOid);
		ssw_task_row_comment(values[0], c.name, running ? "cancel requested" : "cancelled before it started");
	}
	ssw_caller_end(&c);
	PG_RETURN_BOOL(done);
}

/* The job of a task that was ended, as a submit holds it. */
static void
hold_job_again(const SswCaller *c, Datum job)
{
	Oid			type = INT8OID;
	Datum		names[3];

	if (ssw_plan_execute("SELECT room, category, name FROM sweeper.job WHERE job = $1", 1, &type, &job, NULL, false) == 0)
		elog(ERROR, "job " INT64_FORMAT " of a task does not exist", DatumGetInt64(job));
	for (int i = 0; i < 3; i++)
		names[i] = CStringGetTextDatum(ssw_spi_text(0, i + 1));
	(void) ssw_job_hold(c, names);
}

/* Another task that has not ended may have its unique key. */
static void
check_key_is_free(Datum task)
{
	static const char *const sql =
	"SELECT o.task::text FROM sweeper.task AS o JOIN sweeper.task AS t ON o.job = t.job AND o.unique_key = t.unique_key WHERE t.task = $1 AND o.finished_at IS NULL";
	Oid			type = UUIDOID;

	if (ssw_plan_execute(sql, 1, &type, &task, NULL, false) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNIQUE_VIOLATION),
				 errmsg("another task of the job has the unique_key of task %s", DatumGetCString(DirectFunctionCall1(uuid_out, task))),
				 errdetail("Task %s has not ended.", ssw_spi_text(0, 1)),
				 errhint("Try again when that has ended.")));
}

/* retry_task(task): false unless it has failed for good. */
Datum
ssw_retry_task(PG_FUNCTION_ARGS)
{
	static const char *const retry =
	"UPDATE sweeper.task SET status = 'enqueued', enqueued_at = clock_timestamp(), finished_at = NULL, consumed_at = NULL, cancel_requested_at = NULL, worker = NULL"
	" WHERE task = $1 RETURNING job, priority";
	Oid			type = UUIDOID;
	Datum		task;
	SswCaller	c;
	bool		done;

	ssw_argument_not_null(fcinfo, 0, "task");
	task = PG_GETARG_DATUM(0);
	c = ssw_caller_begin("sweeper.retry_task()");
	lock_own(&c, task, "status = 'failed', job");
	done = DatumGetBool(ssw_spi_column(0, 3));
	if (ssw_spi_column(0, 4) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("a command cannot be tried again"),
				 errhint("Submit it again: sweeper.submit_sql().")));
	if (done)
	{
		hold_job_again(&c, ssw_spi_column(0, 4));
		check_key_is_free(task);
		ssw_plan_execute(retry, 1, &type, &task, NULL, false);
		ssw_task_xact_task_waits(DatumGetInt64(ssw_spi_column(0, 1)), DatumGetInt32(ssw_spi_column(0, 2)), DatumGetUUIDP(task));
		ssw_task_xact_task_changed(DatumGetUUIDP(task));
		ssw_task_row_comment(task, c.name, "tried again");
	}
	ssw_caller_end(&c);
	PG_RETURN_BOOL(done);
}
