/*
 * task.c
 *		Tasks: submit them, start, finish and cancel them.
 *
 * Runs in the caller's session.  Each step is one conditional UPDATE of the task's row,
 * so that one of several callers wins.  The trigger of task_row.c lists the steps.  Shares nothing but the tables; a
 * crash, or the caller's rollback, undoes it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/cached_plan.h"
#include "base/spi.h"
#include "work/caller.h"
#include "work/task.h"
#include "work/task_row.h"
#include "work/task_xact.h"
#include "work/worker_lost.h"

PG_FUNCTION_INFO_V1(ssw_submit);
PG_FUNCTION_INFO_V1(ssw_start_task);
PG_FUNCTION_INFO_V1(ssw_finish_task);
PG_FUNCTION_INFO_V1(ssw_cancel_task);

/* Of a time-ordered uuid (RFC 9562, version 7): 48 bits of ms, 12 of parts of one. */
#define PARTS_OF_MS		4096
#define US_PER_MS		1000

/*
 * An identifier that is greater than those made before: here, and elsewhere as
 * far as the clocks agree.
 */
pg_uuid_t  *
ssw_task_identifier(void)
{
	static uint64 last = 0;
	pg_uuid_t  *id = palloc(UUID_LEN);
	TimestampTz now = GetCurrentTimestamp() + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
	uint64		parts = (uint64) now / US_PER_MS * PARTS_OF_MS + (uint64) now % US_PER_MS * PARTS_OF_MS / US_PER_MS;
	uint64		first;

	last = Max(last + 1, parts);
	if (!pg_strong_random(id, UUID_LEN))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	first = pg_hton64(last / PARTS_OF_MS << 16 | 7 << 12 | last % PARTS_OF_MS);
	memcpy(id->data, &first, sizeof(first));
	id->data[8] = (id->data[8] & 0x3f) | 0x80;
	return id;
}

/* The job to which a task may be submitted, which does not go before the transaction ends. */
static Datum
hold_job(FunctionCallInfo fcinfo, Datum *names)
{
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID};

	if (ssw_plan_execute("SELECT job FROM sweeper.job WHERE room = $1 AND category = $2 AND name = $3 AND deleted_at IS NULL FOR KEY SHARE",
						 3, types, names, NULL, false) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("job \"%s\" does not exist", ssw_caller_label(fcinfo, 0)),
				 errdetail("No worker offers it."),
				 errhint("SELECT * FROM sweeper.job_status; lists those that are offered.")));
	return ssw_spi_column(0, 1);
}

/* submit(room, category, name, payload, group_role) → the task. */
Datum
ssw_submit(PG_FUNCTION_ARGS)
{
	static const char *const sql =
	"INSERT INTO sweeper.task (task, job, payload, status, owner, group_role, created_at, enqueued_at)"
	" VALUES ($1, $2, $3, 'enqueued', $4, $5, $6, $6)";
	Oid			types[] = {UUIDOID, INT8OID, JSONBOID, TEXTOID, TEXTOID, TIMESTAMPTZOID};
	Datum		names[3];
	Datum		values[6];
	pg_uuid_t  *id = ssw_task_identifier();
	SswCaller	c;

	names[0] = ssw_caller_name(fcinfo, 0, "room");
	names[1] = ssw_caller_name(fcinfo, 1, "category");
	names[2] = ssw_caller_name(fcinfo, 2, "name");
	ssw_argument_not_null(fcinfo, 3, "payload");
	ssw_argument_bound(fcinfo, 3, "payload", SSW_MAX_PAYLOAD);
	values[4] = PG_ARGISNULL(4) ? (Datum) 0 : CStringGetTextDatum(GetUserNameFromId(PG_GETARG_OID(4), false));
	c = ssw_caller_begin("sweeper.submit()");
	values[0] = UUIDPGetDatum(id);
	values[1] = hold_job(fcinfo, names);
	values[2] = PG_GETARG_DATUM(3);
	values[3] = CStringGetTextDatum(c.name);
	values[5] = TimestampTzGetDatum(GetCurrentTimestamp());
	ssw_plan_execute(sql, 6, types, values, NULL, false);
	ssw_task_xact_task_changed(id);
	ssw_task_xact_task_waits(DatumGetInt64(values[1]));
	ssw_caller_end(&c);
	PG_RETURN_UUID_P(id);
}

/* In an UPDATE by update_held(): is it still the worker role's, and the attempt the one that the caller names? */
#define IS_HELD(n1, n2)	"worker_role = $" n1 " AND (attempt = $" n2 " OR $" n2 " = 0)"

/*
 * Run an UPDATE of a task that a worker of the caller's holds.  $1 is the task; the last two
 * are those of IS_HELD().  The attempt distinguishes a worker that lost the task from the one
 * that has it now.  True: a row was updated, and what it returns is in SPI_tuptable.
 */
static bool
update_held(const SswCaller *c, FunctionCallInfo fcinfo, int attempt, const char *sql, int nargs, Oid *types, Datum *values)
{
	Oid			type = UUIDOID;
	char	   *role;

	if (ssw_plan_execute("SELECT worker_role FROM sweeper.task WHERE task = $1", 1, &type, values, NULL, false) == 0)
		return false;
	role = ssw_spi_text(0, 1);
	if (role == NULL || !(strcmp(role, c->name) == 0 || ssw_caller_acts_as(c, role)))
		return false;
	types[nargs] = TEXTOID;
	values[nargs] = CStringGetTextDatum(role);
	types[nargs + 1] = INT4OID;
	values[nargs + 1] = PG_ARGISNULL(attempt) ? Int32GetDatum(0) : PG_GETARG_DATUM(attempt);
	return ssw_plan_execute(sql, nargs + 2, types, values, NULL, false) > 0;
}

/* start_task(task, attempt): false when it is not, or no more, claimed by the caller's worker. */
Datum
ssw_start_task(PG_FUNCTION_ARGS)
{
	Oid			types[4] = {UUIDOID, TIMESTAMPTZOID};
	Datum		values[4];
	SswCaller	c;
	bool		done;

	ssw_argument_not_null(fcinfo, 0, "task");
	c = ssw_caller_begin("sweeper.start_task()");
	values[0] = PG_GETARG_DATUM(0);
	values[1] = TimestampTzGetDatum(GetCurrentTimestamp());
	done = update_held(&c, fcinfo, 1, "UPDATE sweeper.task SET status = 'running', started_at = $2"
					   " WHERE task = $1 AND status = 'claimed' AND " IS_HELD("3", "4"), 2, types, values);
	if (done)
		ssw_task_xact_task_changed(DatumGetUUIDP(values[0]));
	ssw_caller_end(&c);
	PG_RETURN_BOOL(done);
}

/* After a task of it has ended: is the job, in an array in the first row's column, an orphan now? */
static void
look_at_job(int col)
{
	Datum		jobs = ssw_spi_column(0, col);

	if (jobs != 0)
		ssw_worker_lost_orphans(jobs);
}

/* finish_task(task, status, result, error, attempt): false when it has ended or is not the caller's. */
Datum
ssw_finish_task(PG_FUNCTION_ARGS)
{
	static const char *const sql =
	"UPDATE sweeper.task AS t SET status = $2, result = $3, error = $4, finished_at = $5"
	" WHERE task = $1 AND status IN ('claimed', 'running') AND " IS_HELD("6", "7")
	" RETURNING CASE WHEN NOT EXISTS (SELECT FROM sweeper.job_worker AS w WHERE w.job = t.job) THEN ARRAY[job] END";
	Oid			types[7] = {UUIDOID, TEXTOID, JSONBOID, TEXTOID, TIMESTAMPTZOID};
	Datum		values[7];
	char	   *status;
	SswCaller	c;
	bool		done;

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
	c = ssw_caller_begin("sweeper.finish_task()");
	values[0] = PG_GETARG_DATUM(0);
	values[1] = PG_GETARG_DATUM(1);
	values[2] = PG_ARGISNULL(2) ? (Datum) 0 : PG_GETARG_DATUM(2);
	values[3] = PG_ARGISNULL(3) ? (Datum) 0 : PG_GETARG_DATUM(3);
	values[4] = TimestampTzGetDatum(GetCurrentTimestamp());
	done = update_held(&c, fcinfo, 4, sql, 5, types, values);
	if (done)
	{
		look_at_job(1);
		ssw_task_row_progress(values[0]);
		ssw_task_xact_task_changed(DatumGetUUIDP(values[0]));
		if (strcmp(status, "completed") != 0)
			ssw_task_row_comment(values[0], c.name, PG_ARGISNULL(3) ? status :
								 psprintf("%s: %s", status, text_to_cstring(PG_GETARG_TEXT_PP(3))));
	}
	ssw_caller_end(&c);
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
		look_at_job(1);
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
