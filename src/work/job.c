/*
 * job.c
 *		Jobs and providers: what workers offer.
 *
 * Runs in the session that registers, makes or drops them, or that submits a task.  Shares
 * nothing but the tables; a crash, or the caller's rollback, undoes it.
 *
 * A job that no worker offers and no task waits for is marked as deleted, unless
 * create_job() made it.  That takes its row FOR UPDATE, and a submit takes it FOR KEY SHARE,
 * so that no task comes to a job that goes.  A submit makes a job that does not exist, or
 * revives it: it is provisional until a worker or create_job() says what it is.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/cached_plan.h"
#include "base/spi.h"
#include "policy/policy_rights.h"
#include "registry/pool.h"
#include "work/caller.h"
#include "work/job.h"
#include "work/task_xact.h"

PG_FUNCTION_INFO_V1(ssw_register_job);
PG_FUNCTION_INFO_V1(ssw_create_job);
PG_FUNCTION_INFO_V1(ssw_drop_job);
PG_FUNCTION_INFO_V1(ssw_register_provider);
PG_FUNCTION_INFO_V1(ssw_unregister_provider);

/* Of a job that workers or tasks have made. */
#define DEFAULT_MAX_ATTEMPTS	3
#define MOST_ATTEMPTS			1000

/* What a worker offers and provides ends with it, in one transaction. */
#define MOST_OF_A_WORKER		10000

/* What a job is, in the order of the parameters of write_job(). */
enum
{
	ROOM, CATEGORY, NAME, SCHEMA, ON_WORKER_LOSS, REGISTERED_BY, MAX_ATTEMPTS, BACKOFF, MAX_BACKOFF, TIMEOUT, PERMANENT, OLD_JOB, N_VALUES
};

/* Registered already, or it was. */
typedef struct Job
{
	int64		id;
	bool		open;			/* deleted or provisional: it can be defined */
	bool		permanent;
	bool		same_schema;
	char	   *on_worker_loss;
	char	   *registered_by;	/* null: no role yet */
} Job;

/* Only admins may use rooms that all see. */
static void
check_room(const SswCaller *c, Datum room)
{
	char	   *name = TextDatumGetCString(room);

	if ((strcmp(name, "@global") == 0 || strcmp(name, "@internal") == 0) && !ssw_rights_is_admin(c->userid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for room \"%s\"", name),
				 errhint("It needs access level admin. A superuser can run: SELECT sweeper.grant_access(%s, 'admin');",
						 quote_literal_cstr(quote_identifier(c->name)))));
}

static Job
lock_job(Datum *values)
{
	static const char *const sql =
	"SELECT job, deleted_at IS NOT NULL OR provisional, permanent, schema = $4, on_worker_loss, registered_by FROM sweeper.job"
	" WHERE room = $1 AND category = $2 AND name = $3 FOR NO KEY UPDATE";
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID, JSONBOID};
	Job			j = {0};

	if (ssw_plan_execute(sql, 4, types, values, NULL, false) == 0)
		return j;
	j.id = DatumGetInt64(ssw_spi_column(0, 1));
	j.open = DatumGetBool(ssw_spi_column(0, 2));
	j.permanent = DatumGetBool(ssw_spi_column(0, 3));
	j.same_schema = DatumGetBool(ssw_spi_column(0, 4));
	j.on_worker_loss = ssw_spi_text(0, 5);
	j.registered_by = ssw_spi_text(0, 6);
	return j;
}

/*
 * Write a job that is new, or the old one, which is locked; returns its number, or 0:
 * another session has just written it.
 */
static int64
write_job(Datum *values)
{
	static const char *const sql =
	"INSERT INTO sweeper.job AS j (room, category, name, schema, on_worker_loss, registered_by, max_attempts, backoff, max_backoff, timeout, permanent)"
	" VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
	" ON CONFLICT (room, category, name) DO UPDATE SET schema = $4, on_worker_loss = $5, registered_by = $6, max_attempts = $7,"
	" backoff = $8, max_backoff = $9, timeout = $10, permanent = $11, provisional = false, deleted_at = NULL WHERE j.job = $12 RETURNING job";
	Oid			types[N_VALUES] = {TEXTOID, TEXTOID, TEXTOID, JSONBOID, TEXTOID, TEXTOID, INT4OID, INTERVALOID, INTERVALOID, INTERVALOID, BOOLOID, INT8OID};

	return ssw_plan_execute(sql, N_VALUES, types, values, NULL, false) == 0 ? 0 : DatumGetInt64(ssw_spi_column(0, 1));
}

/*
 * The job's number: a new one, a revived one, or one that others offer too.  The words of
 * create_job() count more than those of workers.
 */
static int64
find_or_write(const SswCaller *c, const char *label, Datum *values)
{
	for (;;)
	{
		Job			j = lock_job(values);
		int64		id;

		/* the role that had it may come back: it keeps the job */
		if (j.id != 0 && j.registered_by && (!j.open || OidIsValid(get_role_oid(j.registered_by, true))))
		{
			ssw_caller_require_role(c, j.registered_by, psprintf("job \"%s\"", label));
			values[REGISTERED_BY] = CStringGetTextDatum(j.registered_by);
		}
		if (j.id != 0 && !j.open && !DatumGetBool(values[PERMANENT]))
		{
			if (!j.permanent && (!j.same_schema || strcmp(j.on_worker_loss, TextDatumGetCString(values[ON_WORKER_LOSS])) != 0))
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_OBJECT),
						 errmsg("job \"%s\" exists with another %s", label, j.same_schema ? "on_worker_loss" : "schema"),
						 errdetail("Other workers offer it, or tasks wait for it."),
						 errhint("Register it unchanged, or under another name, or change it with sweeper.create_job().")));
			return j.id;
		}
		values[OLD_JOB] = Int64GetDatum(j.id);
		id = write_job(values);
		if (id != 0)
			return id;
	}
}

/* Read room, category, name, schema and on_worker_loss, which are arguments from the first on; the rest get their defaults. */
static void
read_definition(FunctionCallInfo fcinfo, int first, Datum *values)
{
	char	   *on_loss;

	values[ROOM] = ssw_caller_name(fcinfo, first, "room");
	values[CATEGORY] = ssw_caller_name(fcinfo, first + 1, "category");
	values[NAME] = ssw_caller_name(fcinfo, first + 2, "name");
	ssw_argument_not_null(fcinfo, first + 3, "schema");
	ssw_argument_bound(fcinfo, first + 3, "schema", SSW_MAX_TEXT);
	values[SCHEMA] = PG_GETARG_DATUM(first + 3);
	ssw_argument_not_null(fcinfo, first + 4, "on_worker_loss");
	values[ON_WORKER_LOSS] = PG_GETARG_DATUM(first + 4);
	on_loss = TextDatumGetCString(values[ON_WORKER_LOSS]);
	if (strcmp(on_loss, "fail") != 0 && strcmp(on_loss, "requeue") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("on_worker_loss must not be \"%s\"", on_loss),
				 errhint("Use one of \"fail\", \"requeue\".")));
	values[MAX_ATTEMPTS] = Int32GetDatum(DEFAULT_MAX_ATTEMPTS);
	values[BACKOFF] = ssw_interval_of(USECS_PER_SEC);
	values[MAX_BACKOFF] = ssw_interval_of(10 * USECS_PER_MINUTE);
	values[TIMEOUT] = 0;
	values[PERMANENT] = BoolGetDatum(false);
}

/* An error if the worker, which does not end meanwhile, has too many of these; sql finds the last of them. */
static void
check_number(const char *does, const char *what, const char *sql, Datum worker)
{
	Oid			types[] = {UUIDOID, INT4OID};
	Datum		values[] = {worker, Int32GetDatum(MOST_OF_A_WORKER)};

	if (ssw_plan_execute_fresh(sql, 2, types, values) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("a worker cannot %s more than %d %s", does, MOST_OF_A_WORKER, what),
				 errhint("Register another worker for the others.")));
}

/* register_job(worker, room, category, name, schema, on_worker_loss) → its number. */
Datum
ssw_register_job(PG_FUNCTION_ARGS)
{
	Datum		values[N_VALUES];
	Oid			types[] = {UUIDOID, INT8OID};
	Datum		link[2];
	SswCaller	c;

	ssw_argument_not_null(fcinfo, 0, "worker");
	read_definition(fcinfo, 1, values);
	c = ssw_caller_begin("sweeper.register_job()");
	check_room(&c, values[ROOM]);
	(void) ssw_caller_hold_worker(&c, PG_GETARG_DATUM(0));
	values[REGISTERED_BY] = CStringGetTextDatum(c.name);
	link[0] = PG_GETARG_DATUM(0);
	link[1] = Int64GetDatum(find_or_write(&c, ssw_caller_label(fcinfo, 1), values));
	if (ssw_plan_execute("INSERT INTO sweeper.job_worker (worker, job) VALUES ($1, $2) ON CONFLICT DO NOTHING",
						 2, types, link, NULL, false) > 0)
	{
		check_number("offer", "jobs", "SELECT FROM sweeper.job_worker WHERE worker = $1 LIMIT 1 OFFSET $2", link[0]);
		ssw_task_xact_room_changed(SSW_JOBS_CHANGED, TextDatumGetCString(values[ROOM]));
	}
	ssw_caller_end(&c);
	PG_RETURN_DATUM(link[1]);
}

/* create_job(room, category, name, schema, on_worker_loss, max_attempts, backoff, max_backoff, timeout) → its number. */
Datum
ssw_create_job(PG_FUNCTION_ARGS)
{
	Datum		values[N_VALUES];
	SswCaller	c;
	int64		job;

	read_definition(fcinfo, 0, values);
	ssw_argument_not_null(fcinfo, 5, "max_attempts");
	values[MAX_ATTEMPTS] = Int32GetDatum(ssw_argument_number("max_attempts", PG_GETARG_INT32(5), 1, MOST_ATTEMPTS));
	ssw_argument_not_null(fcinfo, 6, "backoff");
	values[BACKOFF] = ssw_interval_of(ssw_argument_interval("backoff", PG_GETARG_INTERVAL_P(6), 0));
	ssw_argument_not_null(fcinfo, 7, "max_backoff");
	values[MAX_BACKOFF] = ssw_interval_of(ssw_argument_interval("max_backoff", PG_GETARG_INTERVAL_P(7), 0));
	if (!PG_ARGISNULL(8))
		values[TIMEOUT] = ssw_interval_of(ssw_argument_interval("timeout", PG_GETARG_INTERVAL_P(8), SSW_MIN_LIFETIME));
	values[PERMANENT] = BoolGetDatum(true);
	c = ssw_caller_begin("sweeper.create_job()");
	check_room(&c, values[ROOM]);
	values[REGISTERED_BY] = CStringGetTextDatum(c.name);
	job = find_or_write(&c, ssw_caller_label(fcinfo, 0), values);
	ssw_task_xact_room_changed(SSW_JOBS_CHANGED, TextDatumGetCString(values[ROOM]));
	/* tasks that run may be over their time now */
	if (!PG_ARGISNULL(8))
		ssw_task_xact_look_by(GetCurrentTimestamp());
	ssw_caller_end(&c);
	PG_RETURN_INT64(job);
}

/* The job to which a task may be submitted, which does not go before the transaction ends; it is made if it does not exist. */
Datum
ssw_job_hold(const SswCaller *c, Datum *names)
{
	static const char *const hold =
	"SELECT job FROM sweeper.job WHERE room = $1 AND category = $2 AND name = $3 AND deleted_at IS NULL FOR KEY SHARE";
	static const char *const make =
	"INSERT INTO sweeper.job AS j (room, category, name, schema, on_worker_loss, provisional) VALUES ($1, $2, $3, '{}', 'requeue', true)"
	" ON CONFLICT (room, category, name) DO UPDATE SET deleted_at = NULL, provisional = true WHERE j.deleted_at IS NOT NULL RETURNING job";
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID};

	/* another session may make or delete it between both */
	while (ssw_plan_execute(hold, 3, types, names, NULL, false) == 0)
	{
		check_room(c, names[0]);
		if (ssw_plan_execute(make, 3, types, names, NULL, false) == 0)
			continue;
		ssw_task_xact_room_changed(SSW_JOBS_CHANGED, TextDatumGetCString(names[0]));
		break;
	}
	return ssw_spi_column(0, 1);
}

/* drop_job(room, category, name): tasks that wait for it are cancelled. */
Datum
ssw_drop_job(PG_FUNCTION_ARGS)
{
	static const char *const lock =
	"SELECT job, registered_by FROM sweeper.job WHERE room = $1 AND category = $2 AND name = $3 AND deleted_at IS NULL FOR UPDATE";
	static const char *const cancel =
	"WITH waiting AS MATERIALIZED (SELECT task FROM sweeper.task WHERE (job = $1 AND status = 'enqueued') OR (job = $1 AND status = 'allocated')"
	" ORDER BY task FOR NO KEY UPDATE),"
	" ended AS (UPDATE sweeper.task AS t SET status = 'cancelled', cancel_requested_at = clock_timestamp(), finished_at = clock_timestamp()"
	" FROM waiting WHERE t.task = waiting.task RETURNING t.task),"
	" said AS (INSERT INTO sweeper.task_comment (task, actor, comment) SELECT task, $2, 'cancelled: its job was dropped' FROM ended)"
	" SELECT task FROM ended";
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID};
	Datum		names[] = {ssw_caller_name(fcinfo, 0, "room"), ssw_caller_name(fcinfo, 1, "category"), ssw_caller_name(fcinfo, 2, "name")};
	Oid			job_types[] = {INT8OID, TEXTOID};
	Datum		job[2];
	SswCaller	c = ssw_caller_begin("sweeper.drop_job()");
	char	   *label = ssw_caller_label(fcinfo, 0);
	uint64		n;

	if (ssw_plan_execute(lock, 3, types, names, NULL, false) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("job \"%s\" does not exist", label),
				 errhint("SELECT * FROM sweeper.job_status; lists the jobs.")));
	job[0] = ssw_spi_column(0, 1);
	job[1] = CStringGetTextDatum(c.name);
	/* tasks made it, which belong to several roles */
	if (ssw_spi_text(0, 2) == NULL && !ssw_rights_is_admin(c.userid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for job \"%s\"", label),
				 errdetail("It belongs to no role yet."),
				 errhint("Cancel your tasks with sweeper.cancel_task(); the job ends with the last one.")));
	if (ssw_spi_text(0, 2))
		ssw_caller_require_role(&c, ssw_spi_text(0, 2), psprintf("job \"%s\"", label));
	n = ssw_plan_execute_fresh(cancel, 2, job_types, job);
	for (uint64 i = 0; i < n; i++)
		ssw_task_xact_task_changed(DatumGetUUIDP(ssw_spi_column(i, 1)));
	ssw_plan_execute_fresh("DELETE FROM sweeper.job_worker WHERE job = $1", 1, job_types, job);
	ssw_plan_execute("UPDATE sweeper.job SET deleted_at = clock_timestamp(), permanent = false, provisional = false WHERE job = $1",
					 1, job_types, job, NULL, false);
	ssw_task_xact_room_changed(SSW_JOBS_CHANGED, TextDatumGetCString(names[0]));
	ssw_caller_end(&c);
	PG_RETURN_VOID();
}

/* register_provider(worker, room, category, name, metadata) → its number. */
Datum
ssw_register_provider(PG_FUNCTION_ARGS)
{
	static const char *const sql =
	"INSERT INTO sweeper.provider AS p (room, category, name, worker, owner, metadata) VALUES ($1, $2, $3, $4, $5, $6)"
	" ON CONFLICT (room, category, name) DO UPDATE SET worker = $4, metadata = $6 RETURNING provider, p.owner";
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID, UUIDOID, TEXTOID, JSONBOID};
	Datum		values[6];
	SswCaller	c;
	Datum		provider;

	ssw_argument_not_null(fcinfo, 0, "worker");
	values[0] = ssw_caller_name(fcinfo, 1, "room");
	values[1] = ssw_caller_name(fcinfo, 2, "category");
	values[2] = ssw_caller_name(fcinfo, 3, "name");
	values[3] = PG_GETARG_DATUM(0);
	ssw_argument_not_null(fcinfo, 4, "metadata");
	values[5] = ssw_pool_metadata(fcinfo, 4);
	c = ssw_caller_begin("sweeper.register_provider()");
	check_room(&c, values[0]);
	(void) ssw_caller_hold_worker(&c, values[3]);
	values[4] = CStringGetTextDatum(c.name);
	ssw_plan_execute(sql, 6, types, values, NULL, false);
	provider = ssw_spi_column(0, 1);
	/* undone with the caller's statement */
	ssw_caller_require_role(&c, ssw_spi_text(0, 2),
							psprintf("provider \"%s\"", ssw_caller_label(fcinfo, 1)));
	check_number("provide", "things", "SELECT FROM sweeper.provider WHERE worker = $1 LIMIT 1 OFFSET $2", values[3]);
	ssw_task_xact_room_changed(SSW_PROVIDERS_CHANGED, TextDatumGetCString(values[0]));
	ssw_caller_end(&c);
	PG_RETURN_DATUM(provider);
}

/* unregister_provider(provider). */
Datum
ssw_unregister_provider(PG_FUNCTION_ARGS)
{
	Oid			type = INT8OID;
	Datum		provider;
	SswCaller	c;

	ssw_argument_not_null(fcinfo, 0, "provider");
	provider = PG_GETARG_DATUM(0);
	c = ssw_caller_begin("sweeper.unregister_provider()");
	if (ssw_plan_execute("DELETE FROM sweeper.provider WHERE provider = $1 RETURNING room, owner", 1, &type, &provider, NULL, false) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("provider " INT64_FORMAT " does not exist", DatumGetInt64(provider)),
				 errhint("SELECT * FROM sweeper.provider_status; lists the providers.")));
	/* undone with the caller's statement */
	ssw_caller_require_role(&c, ssw_spi_text(0, 2), psprintf("provider " INT64_FORMAT, DatumGetInt64(provider)));
	ssw_task_xact_room_changed(SSW_PROVIDERS_CHANGED, ssw_spi_text(0, 1));
	ssw_caller_end(&c);
	PG_RETURN_VOID();
}
