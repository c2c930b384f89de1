/*
 * control.c
 *		SQL functions that set and lift brakes: pause, resume, their _all forms, retry_row.
 *
 * Run in the caller's session.  Brakes are columns of sweeper.policy, written as
 * the extension's owner after the caller's rights were checked, in the caller's
 * transaction.  Share nothing else; a crash rolls back.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/process_slot.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "grace/arrival.h"
#include "heartbeat/policy_xact.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"
#include "policy/row_key.h"

PG_FUNCTION_INFO_V1(ssw_pause);
PG_FUNCTION_INFO_V1(ssw_pause_all);
PG_FUNCTION_INFO_V1(ssw_resume);
PG_FUNCTION_INFO_V1(ssw_resume_all);
PG_FUNCTION_INFO_V1(ssw_retry_row);
PG_FUNCTION_INFO_V1(ssw_announce);

/* How long pause_all() and resume_all() wait in all for policies that others hold. */
#define PATIENCE_FOR_ALL_US	(5 * USECS_PER_SEC)

static text *
arg_text(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : PG_GETARG_TEXT_PP(n);
}

/* One statement on our tables: $1 is the policy's id, $2 the caller's name, $3 a text or null. */
static uint64
change(const SswPolicy *p, const char *sql, const char *text)
{
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID};
	Datum		values[3] = {Int32GetDatum(p->id), CStringGetTextDatum(ssw_identity_actor())};
	uint64		n;

	if (text)
		values[2] = CStringGetTextDatum(text);
	n = ssw_spi_exec_as_extension(sql, lengthof(types), types, values, text ? NULL : "  n", false);
	CommandCounterIncrement();
	return n;
}

static void
log_change(const SswPolicy *p, const char *what, const char *detail)
{
	change(p, psprintf("INSERT INTO sweeper.policy_change (policy_id, policy, changed_by, change, new)"
					   " SELECT policy_id, policy, $2, '%s', pg_catalog.jsonb_build_object('detail', $3)"
					   " FROM sweeper.policy WHERE policy_id = $1", what), detail);
}

static void
pause_one(const SswPolicy *p, FunctionCallInfo fcinfo, int reason, int until)
{
	char	   *why;

	ssw_argument_bound(fcinfo, reason, "reason", SSW_MAX_TEXT);
	why = PG_ARGISNULL(reason) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(reason));
	if (!PG_ARGISNULL(until) && PG_GETARG_TIMESTAMPTZ(until) <= GetCurrentTimestamp())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("until must be in the future")));
	change(p, psprintf("UPDATE sweeper.policy SET paused_at = pg_catalog.clock_timestamp(), paused_by = $2,"
					   " paused_reason = $3, paused_until = %s WHERE policy_id = $1",
					   PG_ARGISNULL(until) ? "NULL" : quote_literal_cstr(timestamptz_to_str(PG_GETARG_TIMESTAMPTZ(until)))), why);
	log_change(p, "pause", why);
	ssw_policy_xact_changed(p->id, SSW_SCAN_NOTHING);
}

/* pause(policy, reason, until): cancels the batches in flight, and waits for their end. */
Datum
ssw_pause(PG_FUNCTION_ARGS)
{
	ssw_spi_refuse_read_only("sweeper.pause()");
	ssw_process_cancel_policy(ssw_rights_policy(arg_text(fcinfo, 0), SSW_RIGHT_ADMIN)->id);
	pause_one(ssw_rights_locked(arg_text(fcinfo, 0), SSW_RIGHT_ADMIN, ShareUpdateExclusiveLock), fcinfo, 1, 2);
	PG_RETURN_VOID();
}

/* pause_all(reason, until): every policy the caller may pause. */
Datum
ssw_pause_all(PG_FUNCTION_ARGS)
{
	List	   *all = ssw_policy_load_all();
	TimestampTz until = GetCurrentTimestamp() + PATIENCE_FOR_ALL_US;
	ListCell   *lc;

	ssw_spi_refuse_read_only("sweeper.pause_all()");
	foreach(lc, all)
	{
		SswPolicy  *p = lfirst(lc);

		if (!ssw_rights_have(p, SSW_RIGHT_ADMIN))
			continue;
		ssw_process_cancel_policy(p->id);
		if (!ssw_rights_lock(p, ShareUpdateExclusiveLock, until))
			continue;
		p = ssw_policy_load(p->id); /* as it is now */
		if (p && ssw_rights_have(p, SSW_RIGHT_ADMIN))
			pause_one(p, fcinfo, 0, 1);
	}
	PG_RETURN_VOID();
}

static void
lift(ArrayBuildState **names, const char *name)
{
	*names = accumArrayResult(*names, CStringGetTextDatum(name), false, TEXTOID, CurrentMemoryContext);
}

/*
 * Only a member of the new owner may confirm it.  The session's user does not
 * count: it may be a superuser whose call runs code of a table's owner, and that gets here.
 */
static void
check_relation(const SswPolicy *p, Oid relid)
{
	Oid			owner = ssw_policy_new_owner(p);

	if (ssw_policy_is_foreign(p) && !OidIsValid(ssw_relation_owner(relid)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("cannot resume policy \"%s\": relation %s does not exist", p->name, p->relation),
				 errhint("Create the relation, or SELECT sweeper.unregister(%s);", quote_literal_cstr(p->name))));
	if (OidIsValid(owner) && !has_privs_of_role(GetUserId(), owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot resume policy \"%s\": relation %s belongs to role \"%s\", not to \"%s\"",
						p->name, p->relation, GetUserNameFromId(owner, false), p->owner_name),
				 errhint("Only a member of role \"%s\" can take the policy over.", GetUserNameFromId(owner, false))));
	if (ssw_policy_is_lost(p))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot resume policy \"%s\": relation %s belongs to superuser \"%s\" now", p->name, p->relation,
						GetUserNameFromId(owner, false)),
				 errdetail("Expressions, functions and triggers that role \"%s\" defined would run as a superuser.", p->owner_name),
				 errhint("%s", ssw_repair_hint(p))));
}

/* After a restore: the objects of the same names, in this cluster. */
static void
bind_again(const SswPolicy *p, Oid relid)
{
	change(p, psprintf("UPDATE sweeper.policy AS p SET relid = c.oid, owner = c.relowner,"
					   " owner_name = pg_catalog.pg_get_userbyid(c.relowner), database = d.oid,"
					   " system_identifier = (SELECT system_identifier FROM pg_catalog.pg_control_system()),"
					   " on_expire = pg_catalog.to_regprocedure(p.on_expire_name), is_alive = pg_catalog.to_regprocedure(p.is_alive_name),"
					   " columns = sweeper._columns(c.oid), held_reason = NULL, held_at = NULL, horizons = NULL"
					   " FROM pg_catalog.pg_class AS c, pg_catalog.pg_database AS d WHERE p.policy_id = $1"
					   " AND c.oid = %u AND d.datname = pg_catalog.current_database()", relid), NULL);
}

/* Lift the brakes of a policy that is locked. */
static void
resume_one(SswPolicy *p, Oid relid, ArrayBuildState **names)
{
	ssw_lock_relation(relid, AccessShareLock);	/* nobody hands it over now */
	check_relation(p, relid);
	/* the owner before has said who may end its rows */
	if (OidIsValid(ssw_policy_new_owner(p)))
		ssw_rights_forget_policy(p->id);
	if (p->paused_at != 0)
		lift(names, "paused");
	if (ssw_policy_is_foreign(p))
	{
		bind_again(p, relid);
		ssw_arrival_replace(p->id);
		/* what the rows of another table said is nothing against these */
		ssw_policy_xact_changed(p->id, SSW_SCAN_VOID);
		lift(names, "restored");
	}
	if (p->held_reason && strcmp(p->held_reason, "restored") != 0)
		lift(names, p->held_reason);
	if (change(p, "UPDATE sweeper.fuse_hold SET held_until = pg_catalog.clock_timestamp()"
			   " WHERE policy_id = $1 AND held_until > pg_catalog.clock_timestamp()", NULL) > 0)
		lift(names, "fuse");
	if (p->failures > 0)
		lift(names, p->broken ? "broken" : "failing");
	if (!ssw_policy_is_foreign(p) && OidIsValid(ssw_policy_new_owner(p)))
	{
		change(p, "UPDATE sweeper.policy AS p SET owner = c.relowner, owner_name = pg_catalog.pg_get_userbyid(c.relowner)"
			   " FROM pg_catalog.pg_class AS c WHERE p.policy_id = $1 AND c.oid = p.relid", NULL);
		lift(names, "owner");
	}
	if (change(p, "DELETE FROM sweeper.failed_row WHERE policy_id = $1", NULL) > 0)
		lift(names, "quarantine");
	change(p, psprintf("UPDATE sweeper.policy SET paused_at = NULL, paused_by = NULL, paused_reason = NULL, paused_until = NULL,"
					   " backlog_before = %s, held_reason = NULL, held_at = NULL,"
					   " failures = 0, failing_since = NULL, broken = false, retry_at = NULL, last_error = NULL, last_sqlstate = NULL,"
					   " resumed_at = CASE WHEN shared_as IS NULL THEN pg_catalog.clock_timestamp() ELSE resumed_at END WHERE policy_id = $1",
					   p->held_reason ? "pg_catalog.clock_timestamp()" : "backlog_before"), NULL);
	log_change(p, "resume", NULL);
	ssw_policy_xact_changed(p->id, SSW_SCAN_NOTHING);
}

/* The policy of that name, if the caller may resume it. */
static SswPolicy *
may_resume(text *name)
{
	SswPolicy  *p = name ? ssw_policy_find(text_to_cstring(name), false) : NULL;
	Oid			owner = p ? ssw_relation_owner(ssw_policy_relation_now(p)) : InvalidOid;

	return OidIsValid(owner) && has_privs_of_role(GetUserId(), owner) ? p : ssw_rights_policy(name, SSW_RIGHT_ADMIN);
}

/* Lift the hold of one group, and no other brake. */
static void
resume_group(const SswPolicy *p, const char *group, ArrayBuildState **names)
{
	if (change(p, "UPDATE sweeper.fuse_hold SET held_until = least(held_until, pg_catalog.clock_timestamp())"
			   " WHERE policy_id = $1 AND \"group\" = $3", group) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the fuse of policy \"%s\" does not hold group \"%s\"", p->name, group),
				 errhint("SELECT * FROM sweeper.problem WHERE policy = %s; lists what it holds.", quote_literal_cstr(p->name))));
	lift(names, "fuse");
	log_change(p, "resume", psprintf("group %s", group));
	ssw_policy_xact_changed(p->id, SSW_SCAN_NOTHING);
}

/* resume(policy, group_value) → the brakes it lifted; the relation's owner of today may always. */
Datum
ssw_resume(PG_FUNCTION_ARGS)
{
	ArrayBuildState *names = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	SswPolicy  *p;
	int			id = 0;

	ssw_spi_refuse_read_only("sweeper.resume()");
	while ((p = may_resume(arg_text(fcinfo, 0)))->id != id)
	{
		(void) ssw_rights_lock(p, ExclusiveLock, 0);
		id = p->id;
	}
	if (PG_ARGISNULL(1))
		resume_one(p, ssw_policy_relation_now(p), &names);
	else
		resume_group(p, text_to_cstring(PG_GETARG_TEXT_PP(1)), &names);
	PG_RETURN_DATUM(makeArrayResult(names, CurrentMemoryContext));
}

/* Why nobody lifts the policy's brakes in passing; null: they may be lifted. */
static const char *
wants_attention(const SswPolicy *p, Oid relid)
{
	if (ssw_policy_is_foreign(p) && !OidIsValid(relid))
		return "its relation does not exist";
	if (OidIsValid(ssw_policy_new_owner(p)))
		return "its relation has another owner";
	if (p->held_reason && strcmp(p->held_reason, "assumed") == 0)
		return "the meaning of some arguments is not certain";
	if (p->held_reason && strcmp(p->held_reason, "backlog") == 0)
		return "more than half of its rows were dead when it was registered";
	return p->fuse_next != 0 ? "its fuse holds rows" : NULL;
}

/*
 * resume_all() → a row for each policy that the caller may resume.  Nobody lets held rows go or
 * confirms a new owner in passing, and one that cannot be resumed holds up no other.
 */
Datum
ssw_resume_all(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	List	   *all = ssw_policy_load_all();
	TimestampTz until = GetCurrentTimestamp() + PATIENCE_FOR_ALL_US;
	ListCell   *lc;

	ssw_spi_refuse_read_only("sweeper.resume_all()");
	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, all)
	{
		SswPolicy  *p = lfirst(lc);
		ArrayBuildState *names = initArrayResult(TEXTOID, CurrentMemoryContext, false);
		Datum		values[2];
		bool		nulls[2] = {false, false};
		const char *why;
		Oid			relid;

		if (!ssw_rights_have(p, SSW_RIGHT_ADMIN))
			continue;
		if (!ssw_rights_lock(p, ExclusiveLock, until))
			continue;
		p = ssw_policy_load(p->id); /* as it is now */
		if (p == NULL || !ssw_rights_have(p, SSW_RIGHT_ADMIN))
			continue;
		relid = ssw_policy_relation_now(p);
		if (OidIsValid(relid) && !ConditionalLockRelationOid(relid, AccessShareLock))
			ereport(WARNING,
					(errmsg("policy \"%s\" is not resumed: another transaction holds a lock on its table", p->name),
					 errhint("Try again when it has ended. To find it: %s", ssw_lock_relation_query(relid))));
		else if ((why = wants_attention(p, relid)) != NULL)
			ereport(WARNING,
					(errmsg("policy \"%s\" is not resumed: %s", p->name, why),
					 errhint("%s", ssw_repair_hint_or_resume(p, NULL))));
		else
		{
			resume_one(p, relid, &names);
			if (names->nelems == 0)
				continue;
			values[0] = CStringGetTextDatum(p->name);
			values[1] = makeArrayResult(names, CurrentMemoryContext);
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
		}
	}
	PG_RETURN_NULL();
}

/* retry_row(policy, key): try failed rows of that key, plain or hashed, again at the next look. */
Datum
ssw_retry_row(PG_FUNCTION_ARGS)
{
	SswPolicy  *p;

	ssw_spi_refuse_read_only("sweeper.retry_row()");
	ssw_argument_not_null(fcinfo, 1, "key");
	p = ssw_rights_locked(arg_text(fcinfo, 0), SSW_RIGHT_ADMIN, ShareUpdateExclusiveLock);
	if (change(p, "UPDATE sweeper.failed_row SET state = 'retrying', attempts = 0, next_attempt = pg_catalog.clock_timestamp()"
			   " WHERE policy_id = $1 AND key IN ($3, " SSW_KEY_HASH("$3") ")", text_to_cstring(PG_GETARG_TEXT_PP(1))) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_NO_DATA_FOUND),
				 errmsg("policy \"%s\" has no failed row with that key", p->name),
				 errhint("SELECT key FROM sweeper.failed_row WHERE policy = %s;", quote_literal_cstr(p->name))));
	ssw_policy_xact_changed(p->id, SSW_SCAN_NOTHING);
	PG_RETURN_VOID();
}

/* _announce(): tell the launcher, at commit, that this database takes part. */
Datum
ssw_announce(PG_FUNCTION_ARGS)
{
	if (!ssw_shmem_available())
		ereport(WARNING,
				(errmsg("session_sweeper does not run in this server yet"),
				 errhint(SSW_PRELOAD_HINT)));
	ssw_policy_xact_extension_created();
	PG_RETURN_VOID();
}
