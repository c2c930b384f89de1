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

#include "access/stratnum.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/own_row.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "policy/policy_rights.h"
#include "work/caller.h"

#define LOCK_TIMEOUT_MS	500

/* Who calls the function, which is going to write. */
SswCaller
ssw_caller_identify(const char *function)
{
	SswCaller	c = {.userid = GetUserId()};

	ssw_shmem_require();
	ssw_spi_refuse_read_only(function);
	c.name = GetUserNameFromId(c.userid, false);
	return c;
}

/*
 * The same, and become the extension, in SPI, until ssw_caller_end().  A wait for a row
 * ends after the session's lock_timeout, or after LOCK_TIMEOUT_MS if that is 0.
 */
SswCaller
ssw_caller_begin(const char *function)
{
	SswCaller	c = ssw_caller_identify(function);

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

/* Columns of sweeper.session. */
enum
{
	SESSION_POOL = 2, SESSION_OWNER = 3, SESSION_ACQUIRED_BY = 4, SESSION_TTL = 5, SESSION_STATUS = 6, SESSION_FENCE = 13
};

/* Is the row that of a worker that lives? */
static bool
is_active_worker(SswOwnTable *sessions)
{
	char	   *pool = ssw_own_text(sessions, SESSION_POOL);
	char	   *status = ssw_own_text(sessions, SESSION_STATUS);

	return pool && status && strcmp(pool, SSW_WORKER_POOL) == 0 && strcmp(status, "active") == 0;
}

/*
 * Lock the worker, so that it lives until the transaction ends.  An error when it has
 * ended, or belongs to another role.
 */
SswWorker
ssw_caller_hold_worker(const SswCaller *c, Datum worker)
{
	Snapshot	snapshot = ssw_own_snapshot();
	SswOwnTable sessions;
	ScanKeyData key;
	SswWorker	w;
	bool		found;
	bool		isnull;

	ssw_own_open(&sessions, "session", SESSION_FENCE, "session_pkey", RowShareLock, snapshot);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, worker);
	found = ssw_own_find(&sessions, &key, 1);
	if (!found)
		ssw_own_refuse_stale(&sessions, &key, 1);
	if (!found || !is_active_worker(&sessions) ||
		!ssw_own_lock(&sessions, sessions.slot->tts_tid, LockTupleShare, true) || !is_active_worker(&sessions))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the worker does not exist"),
				 errdetail("It was released, its connection closed, or its heartbeats stopped."),
				 errhint("Stop its tasks, and register the worker again: SELECT sweeper.register_worker('...');")));
	w.name = ssw_own_text(&sessions, SESSION_OWNER);
	if (w.name == NULL)
		w.name = "";			/* the row was not written by acquire() */
	w.role = ssw_own_text(&sessions, SESSION_ACQUIRED_BY);
	w.number = DatumGetInt64(ssw_own_column(&sessions, SESSION_FENCE, &isnull));
	w.ttl_us = ssw_argument_interval("ttl", DatumGetIntervalP(ssw_own_column(&sessions, SESSION_TTL, &isnull)), 0);
	ssw_own_close(&sessions);
	ssw_own_release(snapshot);
	ssw_caller_require_role(c, w.role, "the worker");
	return w;
}

/* The text of an argument that is as long as a name. */
Datum
ssw_caller_key(FunctionCallInfo fcinfo, int arg, const char *what)
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

/* The text of an argument that names something. */
Datum
ssw_caller_name(FunctionCallInfo fcinfo, int arg, const char *what)
{
	Datum		value = ssw_caller_key(fcinfo, arg, what);
	text	   *name = DatumGetTextPP(value);

	ssw_argument_printable(VARDATA_ANY(name), VARSIZE_ANY_EXHDR(name), what, what);
	return value;
}

/* Room, category and name in three arguments, as messages say them. */
char	   *
ssw_caller_label(FunctionCallInfo fcinfo, int first)
{
	return psprintf("%s:%s:%s", text_to_cstring(PG_GETARG_TEXT_PP(first)), text_to_cstring(PG_GETARG_TEXT_PP(first + 1)),
					text_to_cstring(PG_GETARG_TEXT_PP(first + 2)));
}
