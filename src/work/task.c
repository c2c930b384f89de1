/*
 * task.c
 *		Tasks: start, finish and cancel them.
 *
 * Runs in the caller's session.  Each step locks the task's row and looks at its state
 * again, so that one of several callers wins.  task_row.c lists the steps.  Shares nothing
 * but the tables; a crash, or the caller's rollback, undoes it.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
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
#include "work/task.h"
#include "work/task_row.h"
#include "work/task_xact.h"
#include "work/worker_lost.h"

PG_FUNCTION_INFO_V1(ssw_start_task);
PG_FUNCTION_INFO_V1(ssw_finish_task);
PG_FUNCTION_INFO_V1(ssw_cancel_task);

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

/* finish_task(task, status, result, error, attempt): false when it has ended or is not the caller's. */
Datum
ssw_finish_task(PG_FUNCTION_ARGS)
{
	Change		change = {0};
	SswOwnTable tasks;
	char	   *status;
	SswCaller	c;
	Snapshot	snapshot;
	bool		done;
	bool		alone = false;
	Datum		job;

	ssw_argument_not_null(fcinfo, 0, "task");
	ssw_argument_not_null(fcinfo, 1, "status");
	status = text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (strcmp(status, "completed") != 0 && strcmp(status, "failed") != 0 && strcmp(status, "cancelled") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("status must not be \"%s\"", status),
				 errhint("Use one of \"completed\", \"failed\", \"cancelled\".")));
	ssw_argument_bound(fcinfo, 2, "result", SSW_MAX_PAYLOAD);
	ssw_argument_bound(fcinfo, 3, "error", SSW_MAX_TEXT);
	c = ssw_caller_identify("sweeper.finish_task()");
	snapshot = ssw_own_snapshot();
	ssw_own_open(&tasks, "task", SSW_TASK_COLUMNS, "task_pkey", RowExclusiveLock, snapshot);
	change.nulls[SSW_TASK_RESULT - 1] = PG_ARGISNULL(2);
	change.nulls[SSW_TASK_ERROR - 1] = PG_ARGISNULL(3);
	ssw_task_row_set(SSW_TASK_RESULT, PG_GETARG_DATUM(2), change.values, change.replace);
	ssw_task_row_set(SSW_TASK_ERROR, PG_GETARG_DATUM(3), change.values, change.replace);
	ssw_task_row_set(SSW_TASK_FINISHED_AT, TimestampTzGetDatum(GetCurrentTimestamp()), change.values, change.replace);
	done = update_held(&tasks, &c, fcinfo, 4, status, &change);
	if (done)
	{
		bool		isnull;

		job = ssw_own_column(&tasks, SSW_TASK_JOB, &isnull);
		alone = !isnull && is_left_alone(DatumGetInt64(job), snapshot);
	}
	ssw_own_close(&tasks);
	ssw_own_release(snapshot);
	if (alone)
		look_at_job(PointerGetDatum(construct_array(&job, 1, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)));
	if (done)
	{
		ssw_task_row_progress(PG_GETARG_DATUM(0));
		ssw_task_xact_task_changed(PG_GETARG_UUID_P(0));
		if (strcmp(status, "completed") != 0)
			ssw_task_row_comment(PG_GETARG_DATUM(0), c.name, PG_ARGISNULL(3) ? status :
								 psprintf("%s: %s", status, text_to_cstring(PG_GETARG_TEXT_PP(3))));
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

/* cancel_task(task): true for the one call that cancelled it, or asked its worker to stop. */
Datum
ssw_cancel_task(PG_FUNCTION_ARGS)
{
	static const char *const look =
	"SELECT owner, group_role, cancel_requested_at IS NULL AND finished_at IS NULL FROM sweeper.task WHERE task = $1 FOR NO KEY UPDATE";
	static const char *const cancel =
	"UPDATE sweeper.task SET cancel_requested_at = $2, status = CASE WHEN status = 'running' THEN status ELSE 'cancelled' END,"
	" finished_at = CASE WHEN status <> 'running' THEN $2 END WHERE task = $1 RETURNING CASE WHEN status = 'cancelled' AND job IS NOT NULL THEN ARRAY[job] END, status";
	Oid			types[] = {UUIDOID, TIMESTAMPTZOID};
	Datum		values[2];
	char	   *owner;
	char	   *group;
	SswCaller	c;
	bool		done;

	ssw_argument_not_null(fcinfo, 0, "task");
	c = ssw_caller_begin("sweeper.cancel_task()");
	values[0] = PG_GETARG_DATUM(0);
	if (ssw_plan_execute(look, 1, types, values, NULL, false) == 0)
		ssw_task_missing(values[0]);
	owner = ssw_spi_text(0, 1);
	group = ssw_spi_text(0, 2);
	done = DatumGetBool(ssw_spi_column(0, 3));
	if (!ssw_caller_acts_as(&c, owner) && !(group && ssw_caller_acts_as(&c, group)))
		ssw_task_missing(values[0]);
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
