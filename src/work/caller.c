/*
 * caller.c
 *		What the functions of workers, jobs and tasks have in common.
 *
 * Runs in the caller's session and transaction.  Shares nothing but the tables;
 * a crash, or the caller's rollback, undoes it.
 *
 * Lock order: session of the worker, task, link of worker and job, job.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"

#include "base/argument_checks.h"
#include "base/cached_plan.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "policy/policy_rights.h"
#include "registry/session.h"
#include "work/caller.h"

#define LOCK_TIMEOUT_MS	500

/*
 * Remember the caller and become the extension, in SPI, until ssw_caller_end().  A wait
 * for a row ends after the session's lock_timeout, or after LOCK_TIMEOUT_MS if that is 0.
 */
SswCaller
ssw_caller_begin(const char *function)
{
	SswCaller	c = {.userid = GetUserId()};

	ssw_shmem_require();
	ssw_session_check_writable(function);
	c.name = GetUserNameFromId(c.userid, false);
	ssw_identity_become_extension(&c.save);
	if (LockTimeout == 0)
		ssw_identity_lock_timeout(LOCK_TIMEOUT_MS);
	ssw_spi_begin();
	return c;
}

void
ssw_caller_end(const SswCaller *c)
{
	ssw_spi_end_as(&c->save);
}

/* May the caller act as the role?  Only admins may act as one that was dropped. */
bool
ssw_caller_acts_as(const SswCaller *c, const char *role)
{
	Oid			oid = get_role_oid(role, true);

	return (OidIsValid(oid) && has_privs_of_role(c->userid, oid)) || ssw_rights_is_admin(c->userid);
}

void
ssw_caller_require_role(const SswCaller *c, const char *role, const char *what)
{
	if (!ssw_caller_acts_as(c, role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for %s", what),
				 errdetail("It belongs to role \"%s\".", role),
				 errhint("Call as a member of that role.")));
}

/*
 * Lock the worker, so that it lives until the transaction ends.  An error when it has
 * ended, or belongs to another role.
 */
SswWorker
ssw_caller_hold_worker(const SswCaller *c, Datum worker)
{
	static const char *const sql =
	"SELECT s.owner, s.acquired_by, s.fence, ARRAY(SELECT w.job FROM sweeper.job_worker AS w WHERE w.worker = $1), (extract(epoch FROM s.ttl) * 1000000)::bigint FROM sweeper.session AS s"
	" WHERE s.session = $1 AND s.pool = '" SSW_WORKER_POOL "' AND s.status = 'active' FOR SHARE OF s";
	Oid			type = UUIDOID;
	SswWorker	w = {0};

	if (ssw_plan_execute(sql, 1, &type, &worker, NULL, false) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the worker does not exist"),
				 errdetail("It was released, its connection closed, or its heartbeats stopped."),
				 errhint("Stop its tasks, and register the worker again: SELECT sweeper.register_worker('...');")));
	w.name = ssw_spi_text(0, 1);
	if (w.name == NULL)
		w.name = "";			/* the row was not written by acquire() */
	w.role = ssw_spi_text(0, 2);
	w.number = DatumGetInt64(ssw_spi_column(0, 3));
	w.jobs = ssw_spi_column(0, 4);
	w.ttl_us = DatumGetInt64(ssw_spi_column(0, 5));
	ssw_caller_require_role(c, w.role, "the worker");
	return w;
}

/* The text of an argument that names something. */
Datum
ssw_caller_name(FunctionCallInfo fcinfo, int arg, const char *what)
{
	int			len;

	ssw_argument_not_null(fcinfo, arg, what);
	len = VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(arg));
	if (len == 0 || len > SSW_MAX_NAME)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("%s must not be empty or longer than %d bytes", what, SSW_MAX_NAME)));
	return PG_GETARG_DATUM(arg);
}

/* Room, category and name in three arguments, as messages say them. */
char	   *
ssw_caller_label(FunctionCallInfo fcinfo, int first)
{
	return psprintf("%s:%s:%s", text_to_cstring(PG_GETARG_TEXT_PP(first)), text_to_cstring(PG_GETARG_TEXT_PP(first + 1)),
					text_to_cstring(PG_GETARG_TEXT_PP(first + 2)));
}
