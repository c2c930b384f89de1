/*
 * submit.c
 *		submit() and submit_many(): tasks for workers.
 *
 * Runs in the caller's session and transaction.  A task that is not to run yet waits for
 * its time (command_queue.c), the others for a worker.  Of tasks of a job that have the same
 * unique key and have not ended there is one, by a unique index.  Shares nothing but the
 * tables; a crash, or the caller's rollback, undoes it.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/cached_plan.h"
#include "base/spi.h"
#include "work/caller.h"
#include "work/job.h"
#include "work/task_id.h"
#include "work/task_xact.h"

PG_FUNCTION_INFO_V1(ssw_submit);
PG_FUNCTION_INFO_V1(ssw_submit_many);

/* A claim looks at each priority that a job has. */
#define MAX_PRIORITY	100

/* Arguments of both functions. */
enum
{
	A_ROOM, A_CATEGORY, A_NAME, A_PAYLOAD, A_GROUP_ROLE, A_RUN_AT, A_PRIORITY, A_UNIQUE_KEY, A_ORIGIN
};

/* Parameters of the statement. */
enum
{
	P_TASK, P_JOB, P_PAYLOAD, P_STATUS, P_OWNER, P_GROUP_ROLE, P_NOW, P_RUN_AT, P_PRIORITY, P_UNIQUE_KEY, P_ORIGIN, N_PARAMETERS
};

typedef struct Submit
{
	Datum		values[N_PARAMETERS];
	Datum		names[3];		/* of the job */
	SswCaller	c;
} Submit;

/* Read what all tasks of a call have in common, and become the extension. */
static void
begin(Submit *s, FunctionCallInfo fcinfo, const char *function)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz run_at = PG_ARGISNULL(A_RUN_AT) ? now : PG_GETARG_TIMESTAMPTZ(A_RUN_AT);

	s->names[0] = ssw_caller_name(fcinfo, A_ROOM, "room");
	s->names[1] = ssw_caller_name(fcinfo, A_CATEGORY, "category");
	s->names[2] = ssw_caller_name(fcinfo, A_NAME, "name");
	ssw_argument_not_null(fcinfo, A_PRIORITY, "priority");
	s->values[P_STATUS] = CStringGetTextDatum(run_at > now ? "allocated" : "enqueued");
	s->values[P_GROUP_ROLE] = PG_ARGISNULL(A_GROUP_ROLE) ? (Datum) 0 : CStringGetTextDatum(GetUserNameFromId(PG_GETARG_OID(A_GROUP_ROLE), false));
	s->values[P_NOW] = TimestampTzGetDatum(now);
	s->values[P_RUN_AT] = TimestampTzGetDatum(run_at);
	s->values[P_PRIORITY] = Int32GetDatum(ssw_argument_number("priority", PG_GETARG_INT32(A_PRIORITY), -MAX_PRIORITY, MAX_PRIORITY));
	s->values[P_UNIQUE_KEY] = PG_ARGISNULL(A_UNIQUE_KEY) ? (Datum) 0 : ssw_caller_key(fcinfo, A_UNIQUE_KEY, "unique_key");
	s->values[P_ORIGIN] = PG_ARGISNULL(A_ORIGIN) ? (Datum) 0 : ssw_caller_name(fcinfo, A_ORIGIN, "origin");
	s->c = ssw_caller_begin(function);
	s->values[P_OWNER] = CStringGetTextDatum(s->c.name);
	s->values[P_JOB] = ssw_job_hold(&s->c, s->names);
}

/* The task of the job that has the key and has not ended; null: it has just ended. */
static pg_uuid_t *
find_same(Submit *s)
{
	static const char *const sql = "SELECT task FROM sweeper.task WHERE job = $1 AND unique_key = $2 AND finished_at IS NULL";
	Oid			types[] = {INT8OID, TEXTOID};
	Datum		values[] = {s->values[P_JOB], s->values[P_UNIQUE_KEY]};

	return ssw_plan_execute(sql, 2, types, values, NULL, false) == 0 ? NULL : DatumGetUUIDP(ssw_spi_column(0, 1));
}

/* Write a task; returns it, or the one that has its key. */
static pg_uuid_t *
write_task(Submit *s, Datum payload)
{
#define INSERT_TASK \
	"INSERT INTO sweeper.task (task, job, payload, status, owner, group_role, created_at, enqueued_at, not_before, priority, unique_key, origin)" \
	" VALUES ($1, $2, $3, $4, $5, $6, $7, CASE WHEN $4 = 'enqueued' THEN $7 END, CASE WHEN $4 = 'allocated' THEN $8 END, $9, $10, $11)"
	static const char *const insert_unique =
	INSERT_TASK " ON CONFLICT (job, unique_key) WHERE unique_key IS NOT NULL AND finished_at IS NULL DO NOTHING";
	Oid			types[N_PARAMETERS] = {UUIDOID, INT8OID, JSONBOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID, TEXTOID, TEXTOID};
	pg_uuid_t  *id = ssw_task_identifier();

	s->values[P_TASK] = UUIDPGetDatum(id);
	s->values[P_PAYLOAD] = payload;
	/* it waits for another session that submits or ends one with this key */
	while (ssw_plan_execute(s->values[P_UNIQUE_KEY] ? insert_unique : INSERT_TASK, N_PARAMETERS, types, s->values, NULL, false) == 0)
	{
		pg_uuid_t  *same = find_same(s);

		if (same)
			return same;
	}
	ssw_task_xact_task_changed(id);
	if (DatumGetTimestampTz(s->values[P_RUN_AT]) > DatumGetTimestampTz(s->values[P_NOW]))
		ssw_task_xact_look_by(DatumGetTimestampTz(s->values[P_RUN_AT]));
	else
		ssw_task_xact_task_waits(DatumGetInt64(s->values[P_JOB]), DatumGetInt32(s->values[P_PRIORITY]), id);
	return id;
}

/* submit(room, category, name, payload, group_role, run_at, priority, unique_key, origin) → the task. */
Datum
ssw_submit(PG_FUNCTION_ARGS)
{
	pg_uuid_t  *id = palloc(UUID_LEN);
	Submit		s;

	ssw_argument_not_null(fcinfo, A_PAYLOAD, "payload");
	ssw_argument_bound(fcinfo, A_PAYLOAD, "payload", SSW_MAX_PAYLOAD);
	begin(&s, fcinfo, "sweeper.submit()");
	*id = *write_task(&s, PG_GETARG_DATUM(A_PAYLOAD));
	ssw_caller_end(&s.c);
	PG_RETURN_UUID_P(id);
}

/* submit_many(room, category, name, payloads, …) → the tasks. */
Datum
ssw_submit_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum	   *payloads;
	int			n = ssw_argument_elements(fcinfo, A_PAYLOAD, "payloads", JSONBOID, &payloads);
	Submit		s;

	for (int i = 0; i < n; i++)
		if (toast_raw_datum_size(payloads[i]) - VARHDRSZ > SSW_MAX_PAYLOAD)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("a payload must not be longer than %d bytes", SSW_MAX_PAYLOAD)));
	if (n > 1 && !PG_ARGISNULL(A_UNIQUE_KEY))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("several payloads cannot have one unique_key"),
				 errhint("Call sweeper.submit() for each, with a key of its own.")));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	begin(&s, fcinfo, "sweeper.submit_many()");
	for (int i = 0; i < n; i++)
	{
		Datum		id = UUIDPGetDatum(write_task(&s, payloads[i]));
		bool		isnull = false;

		CHECK_FOR_INTERRUPTS();
		tuplestore_putvalues(result->setResult, result->setDesc, &id, &isnull);
	}
	ssw_caller_end(&s.c);
	return (Datum) 0;
}
