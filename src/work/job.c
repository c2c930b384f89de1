/*
 * job.c
 *		Jobs and providers: what workers offer.
 *
 * Runs in the session that registers them, or that ends the last worker or task of a
 * job.  Shares nothing but the tables; a crash, or the caller's
 * rollback, undoes it.
 *
 * A job that no worker offers and no task waits for is marked as deleted.  That takes its
 * row FOR UPDATE, and a submit takes it FOR KEY SHARE, so that no task comes to a job that
 * goes.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/jsonb.h"

#include "base/argument_checks.h"
#include "base/cached_plan.h"
#include "base/spi.h"
#include "policy/policy_rights.h"
#include "registry/pool.h"
#include "work/caller.h"
#include "work/task_xact.h"

PG_FUNCTION_INFO_V1(ssw_register_job);
PG_FUNCTION_INFO_V1(ssw_register_provider);

/* Registered already, or it was. */
typedef struct Job
{
	int64		id;
	bool		deleted;
	bool		same_schema;
	char	   *on_worker_loss;
	char	   *registered_by;
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
	"SELECT job, deleted_at IS NOT NULL, schema = $4, on_worker_loss, registered_by FROM sweeper.job"
	" WHERE room = $1 AND category = $2 AND name = $3 FOR NO KEY UPDATE";
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID, JSONBOID};
	Job			j = {0};

	if (ssw_plan_execute(sql, 4, types, values, NULL, false) == 0)
		return j;
	j.id = DatumGetInt64(ssw_spi_column(0, 1));
	j.deleted = DatumGetBool(ssw_spi_column(0, 2));
	j.same_schema = DatumGetBool(ssw_spi_column(0, 3));
	j.on_worker_loss = ssw_spi_text(0, 4);
	j.registered_by = ssw_spi_text(0, 5);
	return j;
}

/*
 * Write a job that is new, or the old one, which is locked; returns its number, or 0:
 * another session has just written it.
 */
static int64
write_job(const Job *old, Datum *values)
{
	static const char *const sql =
	"INSERT INTO sweeper.job AS j (room, category, name, schema, on_worker_loss, registered_by) VALUES ($1, $2, $3, $4, $5, $6)"
	" ON CONFLICT (room, category, name) DO UPDATE SET schema = $4, on_worker_loss = $5, registered_by = $6, deleted_at = NULL"
	" WHERE j.job = $7 AND j.deleted_at IS NOT NULL RETURNING job";
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID, JSONBOID, TEXTOID, TEXTOID, INT8OID};
	Datum		v[7];

	memcpy(v, values, 6 * sizeof(Datum));
	v[6] = Int64GetDatum(old->id);
	if (ssw_plan_execute(sql, 7, types, v, NULL, false) == 0)
		return 0;
	return DatumGetInt64(ssw_spi_column(0, 1));
}

/* The job's number: a new one, a revived one, or one that others offer too. */
static int64
find_or_write(const SswCaller *c, FunctionCallInfo fcinfo, Datum *values)
{
	for (;;)
	{
		Job			j = lock_job(values);
		int64		id;

		if (j.id != 0 && !j.deleted)
		{
			ssw_caller_require_role(c, j.registered_by, psprintf("job \"%s\"", ssw_caller_label(fcinfo, 1)));
			if (!j.same_schema || strcmp(j.on_worker_loss, TextDatumGetCString(values[4])) != 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_OBJECT),
						 errmsg("job \"%s\" exists with another %s", ssw_caller_label(fcinfo, 1),
								j.same_schema ? "on_worker_loss" : "schema"),
						 errdetail("Other workers offer it, or tasks wait for it."),
						 errhint("Register it unchanged, or under another name. It can be changed when no worker offers it and no task waits for it.")));
			return j.id;
		}

		/* the role that offered it may come back: it keeps the job */
		if (j.id != 0 && OidIsValid(get_role_oid(j.registered_by, true)))
		{
			ssw_caller_require_role(c, j.registered_by, psprintf("job \"%s\"", ssw_caller_label(fcinfo, 1)));
			values[5] = CStringGetTextDatum(j.registered_by);
		}
		id = write_job(&j, values);
		if (id != 0)
			return id;
	}
}

/* register_job(worker, room, category, name, schema, on_worker_loss) → its number. */
Datum
ssw_register_job(PG_FUNCTION_ARGS)
{
	Datum		values[6];
	Oid			types[] = {UUIDOID, INT8OID};
	Datum		link[2];
	char	   *on_loss;
	SswCaller	c;

	ssw_argument_not_null(fcinfo, 0, "worker");
	values[0] = ssw_caller_name(fcinfo, 1, "room");
	values[1] = ssw_caller_name(fcinfo, 2, "category");
	values[2] = ssw_caller_name(fcinfo, 3, "name");
	ssw_argument_not_null(fcinfo, 4, "schema");
	ssw_argument_bound(fcinfo, 4, "schema", SSW_MAX_TEXT);
	values[3] = PG_GETARG_DATUM(4);
	ssw_argument_not_null(fcinfo, 5, "on_worker_loss");
	values[4] = PG_GETARG_DATUM(5);
	on_loss = TextDatumGetCString(values[4]);
	if (strcmp(on_loss, "fail") != 0 && strcmp(on_loss, "requeue") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("on_worker_loss must not be \"%s\"", on_loss),
				 errhint("Use one of \"fail\", \"requeue\".")));
	c = ssw_caller_begin("sweeper.register_job()");
	check_room(&c, values[0]);
	(void) ssw_caller_hold_worker(&c, PG_GETARG_DATUM(0));
	values[5] = CStringGetTextDatum(c.name);
	link[0] = PG_GETARG_DATUM(0);
	link[1] = Int64GetDatum(find_or_write(&c, fcinfo, values));
	if (ssw_plan_execute("INSERT INTO sweeper.job_worker (worker, job) VALUES ($1, $2) ON CONFLICT DO NOTHING",
						 2, types, link, NULL, false) > 0)
		ssw_task_xact_room_changed(SSW_JOBS_CHANGED, TextDatumGetCString(values[0]));
	ssw_caller_end(&c);
	PG_RETURN_DATUM(link[1]);
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
	ssw_task_xact_room_changed(SSW_PROVIDERS_CHANGED, TextDatumGetCString(values[0]));
	ssw_caller_end(&c);
	PG_RETURN_DATUM(provider);
}
