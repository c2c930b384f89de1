/*
 * policy_rights.c
 *		Who may do what to a policy.
 *
 * Runs in the caller's session; shares nothing.  An access level is the right
 * to execute a marker function, so that membership and pg_dump carry it.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/locks.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "policy/policy_rights.h"

PG_FUNCTION_INFO_V1(ssw_give_access);

static Oid
find_marker(const char *marker)
{
	return LookupFuncName(list_make2(makeString(SSW_SCHEMA), makeString(pstrdup(marker))), 0, NULL, true);
}

static bool
has_level(Oid userid, const char *marker)
{
	Oid			func = find_marker(marker);

	return OidIsValid(func) &&
		DatumGetBool(DirectFunctionCall3(has_function_privilege_id_id, ObjectIdGetDatum(userid),
										 ObjectIdGetDatum(func), CStringGetTextDatum("EXECUTE")));
}

bool
ssw_rights_is_admin(Oid userid)
{
	return has_level(userid, "_admin");
}

/* Does the role see what belongs to others? */
bool
ssw_rights_is_monitor(Oid userid)
{
	return has_level(userid, "_monitor") || has_level(userid, "_admin");
}

/* What stands for a policy, or a pool: see schema/60_access.sql. */
static char *
marker_of_policy(int id)
{
	return psprintf("_user_of_policy_%d", id);
}

static char *
marker_of_pool(const char *pool)
{
	Datum		hash = DirectFunctionCall1(sha256_bytea, CStringGetTextDatum(pool));

	/* a name holds no more; nobody finds two pools with 192 bits alike */
	return psprintf("_user_of_pool_%.48s", TextDatumGetCString(DirectFunctionCall2(binary_encode, hash, CStringGetTextDatum("hex"))));
}

/* May the current user take seats of the pool? */
void
ssw_rights_check_pool(const char *pool)
{
	Oid			userid = GetUserId();

	if (!has_level(userid, "_user") && !has_level(userid, marker_of_pool(pool)))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for pool \"%s\"", pool),
				 errhint("Have SELECT sweeper.grant_access(%s, 'user', pool => %s); run by a role of level admin.",
						 quote_literal_cstr(quote_identifier(GetUserNameFromId(userid, false))), quote_literal_cstr(pool))));
}

/* Whose the policy is: in another cluster its oid may be any role's. */
static Oid
owner_here(const SswPolicy *p)
{
	if (p->system_identifier == GetSystemIdentifier())
		return p->owner;
	return get_role_oid(p->owner_name, true);
}

/*
 * Does the current user see the policy?  The owner of its relation of today must find out
 * why nothing expires.  The same for views: policy "visible" of sweeper.policy.
 */
static bool
may_see(const SswPolicy *p)
{
	return ssw_rights_is_monitor(GetUserId()) ||
		(p->system_identifier == GetSystemIdentifier() && has_privs_of_role(GetUserId(), ssw_relation_owner(p->relid)));
}

/* May the current user do this to the policy? */
bool
ssw_rights_have(const SswPolicy *p, SswRight right)
{
	/*
	 * who has lost the table sees why nothing expires, and has no say in what
	 * ends its rows
	 */
	bool		lost = right != SSW_RIGHT_SEE && OidIsValid(ssw_policy_new_owner(p));

	if (has_privs_of_role(GetUserId(), lost ? InvalidOid : owner_here(p)))
		return true;
	switch (right)
	{
		case SSW_RIGHT_SEE:
			return may_see(p);
		case SSW_RIGHT_SEE_ROW:
			return may_see(p) || has_level(GetUserId(), marker_of_policy(p->id));
		case SSW_RIGHT_ADMIN:
			return ssw_rights_is_admin(GetUserId());
		case SSW_RIGHT_END_ROW:
			return ssw_rights_is_admin(GetUserId()) || has_level(GetUserId(), marker_of_policy(p->id));
		case SSW_RIGHT_OWNER:
			break;
	}
	return false;
}

/*
 * May the current user keep rows of the policy alive, or ask whether they live?  Row
 * security that would restrict the user is not evaluated: its expressions are the
 * owner's, and would run with the rights of the user.
 */
static bool
may_use_rows(const SswPolicy *p, AclMode mode)
{
	return (pg_class_aclcheck(p->relid, GetUserId(), mode) == ACLCHECK_OK && check_enable_rls(p->relid, InvalidOid, true) != RLS_ENABLED) ||
		has_level(GetUserId(), marker_of_policy(p->id));
}

void
ssw_rights_check_rows(const SswPolicy *p, AclMode mode)
{
	char	   *role;

	if (may_use_rows(p, mode))
		return;
	role = GetUserNameFromId(GetUserId(), false);
	if (pg_class_aclcheck(p->relid, GetUserId(), mode) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for table %s", get_rel_name(p->relid)),
				 errdetail("Role \"%s\" has neither level user of policy \"%s\" nor %s on its table.", role, p->name, mode == ACL_UPDATE ? "UPDATE" : "SELECT"),
				 errhint("Have SELECT sweeper.grant_access(%s, 'user', policy => %s); run by the policy's owner or level admin; or GRANT %s ON %s TO %s;",
						 quote_literal_cstr(quote_identifier(role)), quote_literal_cstr(p->name),
						 mode == ACL_UPDATE ? "UPDATE" : "SELECT", ssw_guard_relation(p->relid), quote_identifier(role))));
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("row security of table \"%s\" applies to role \"%s\"", get_rel_name(p->relid), role),
			 errdetail("It is not evaluated here, because its expressions would run with the rights of the caller."),
			 errhint("To let the role send heartbeats for any row of the policy: SELECT sweeper.grant_access(%s, 'user', policy => %s);",
					 quote_literal_cstr(quote_identifier(role)), quote_literal_cstr(p->name))));
}

/* Only its owner has a right, and the relation is another role's now. */
static void
refuse_lost(const SswPolicy *p)
{
	Oid			owner = ssw_policy_new_owner(p);

	if (OidIsValid(owner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for policy \"%s\"", p->name),
				 errdetail("Its relation belongs to role \"%s\" now, which has not taken the policy over.", GetUserNameFromId(owner, false)),
				 errhint("As a member of that role: SELECT sweeper.resume(%s);", quote_literal_cstr(p->name))));
}

/* The policy of that name, or an error when it is not there or not allowed. */
SswPolicy  *
ssw_rights_policy(text *name, SswRight right)
{
	SswPolicy  *p;

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("policy must not be null")));
	p = ssw_policy_find(text_to_cstring(name), false);
	if (ssw_rights_have(p, right))
		return p;
	refuse_lost(p);
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for policy \"%s\"", p->name),
			 errdetail("It belongs to role \"%s\".", p->owner_name),
			 right == SSW_RIGHT_OWNER ? errhint("Call as a member of that role.") :
			 right == SSW_RIGHT_SEE_ROW || right == SSW_RIGHT_END_ROW ?
			 errhint("Call as a member of that role, or let a member run SELECT sweeper.grant_access(%s, 'user', policy => %s);",
					 quote_literal_cstr(quote_identifier(GetUserNameFromId(GetUserId(), false))), quote_literal_cstr(p->name)) :
			 errhint("Call as a member of that role, or have SELECT sweeper.grant_access(%s, '%s'); run by a superuser.",
					 quote_literal_cstr(quote_identifier(GetUserNameFromId(GetUserId(), false))),
					 right == SSW_RIGHT_SEE ? "monitor" : "admin")));
	return NULL;
}

/* pool: null, or the one that must exist. */
static void
set_access(Oid role, const char *marker, const char *pool, bool granted)
{
	Oid			types[] = {OIDOID, TEXTOID, BOOLOID, TEXTOID};
	Datum		values[] = {ObjectIdGetDatum(role), CStringGetTextDatum(marker), BoolGetDatum(granted), pool ? CStringGetTextDatum(pool) : (Datum) 0};
	ObjectAddress extension,
				function;
	SswIdentity save;

	if (granted)
		ssw_lock_extension_object();
	ssw_spi_begin_as_extension(&save);
	if (ssw_spi_exec("SELECT sweeper._set_access($1, $2, $3) WHERE $4 IS NULL OR EXISTS (SELECT FROM sweeper.pool WHERE pool = $4)",
					 4, types, values, pool ? NULL : "   n", false, 0) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT), errmsg("pool \"%s\" does not exist", pool),
				 errhint("SELECT pool FROM sweeper.pool_status; lists the pools of this database.")));

	/*
	 * as ALTER FUNCTION ... DEPENDS ON EXTENSION, which waits for all who use
	 * it
	 */
	ObjectAddressSet(extension, ExtensionRelationId, get_extension_oid(SSW_EXTENSION, false));
	ObjectAddressSet(function, ProcedureRelationId, find_marker(marker));
	if (granted && getAutoExtensionsOfObject(ProcedureRelationId, function.objectId) == NIL)
		recordDependencyOn(&function, &extension, DEPENDENCY_AUTO_EXTENSION);
	ssw_spi_end_as(&save);
}

/* _give_access(role, policy, pool, granted) */
Datum
ssw_give_access(PG_FUNCTION_ARGS)
{
	Oid			role = PG_ARGISNULL(0) ? InvalidOid : PG_GETARG_OID(0);
	char	   *name;

	if (!OidIsValid(role) || PG_ARGISNULL(3))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("role must not be null")));
	/* an error where there is none */
	(void) GetUserNameFromId(role, false);
	if (PG_ARGISNULL(1) == PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("policy and pool must not both be given")));
	if (!PG_ARGISNULL(1))
	{
		set_access(role, marker_of_policy(ssw_rights_locked(PG_GETARG_TEXT_PP(1), SSW_RIGHT_ADMIN, ShareUpdateExclusiveLock)->id), NULL, PG_GETARG_BOOL(3));
		PG_RETURN_VOID();
	}
	name = text_to_cstring(PG_GETARG_TEXT_PP(2));
	if (!ssw_rights_is_admin(GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for pool \"%s\"", name),
				 errhint("Only level admin may give access to a pool. A superuser can run: SELECT sweeper.grant_access(%s, 'admin');",
						 quote_literal_cstr(quote_identifier(GetUserNameFromId(GetUserId(), false))))));
	set_access(role, marker_of_pool(name), name, PG_GETARG_BOOL(3));
	PG_RETURN_VOID();
}

/* What was dropped has no users: another of its name begins without. */
static void
forget(const char *marker)
{
	if (OidIsValid(find_marker(marker)))
		(void) ssw_spi_exec_as_extension(psprintf("SELECT sweeper._forget_access('%s')", marker), 0, NULL, NULL, NULL, false);
}

void
ssw_rights_forget_policy(int policy_id)
{
	forget(marker_of_policy(policy_id));
}

void
ssw_rights_forget_pool(const char *pool)
{
	forget(marker_of_pool(pool));
}

/*
 * Lock a policy in one of the modes of locks.c; for a change (ExclusiveLock) first wait
 * for its batches.  An error if others hold it for longer than lock_timeout.  If that is
 * 0, a batch has its time limit, and callers, behind whom others wait, the policy's
 * lock_timeout.  With until, no longer than until then; then a warning, and false.
 */
bool
ssw_rights_lock(const SswPolicy *p, LOCKMODE mode, TimestampTz until)
{
	int			patience_ms = p->lock_timeout_ms + (mode == ExclusiveLock ? 0 : p->hard_limit_us / 1000);

	if (mode == ExclusiveLock && !ssw_rights_lock(p, ShareUpdateExclusiveLock, until))
		return false;
	if (until)
		patience_ms = Min(patience_ms, TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until));
	if (ssw_lock_policy(p->id, mode, patience_ms))
		return true;
	ereport(until ? WARNING : ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not lock policy \"%s\" within %d ms", p->name, LockTimeout ? LockTimeout : patience_ms),
			 mode == ExclusiveLock ?
			 errdetail("An open transaction ended rows of the policy by a call, or other calls wait for such a transaction.") :
			 errdetail("A transaction that changes the policy, or a batch, has not ended."),
			 errhint("Try again when they have ended, or SET lock_timeout to wait longer. To find them: %s",
					 ssw_lock_policy_query(p->id))));
	return false;
}

/* The policy of that name as it is now, locked. */
SswPolicy  *
ssw_rights_locked(text *name, SswRight right, LOCKMODE mode)
{
	SswPolicy  *p = ssw_rights_policy(name, right);
	int			id;

	do
	{
		id = p->id;
		(void) ssw_rights_lock(p, mode, 0);
		p = ssw_rights_policy(name, right);
	} while (p->id != id);
	return p;
}

/* The same, to be changed: no batch runs, and nobody else ends rows of it. */
SswPolicy  *
ssw_rights_change(text *name, SswRight right)
{
	SswPolicy  *p = ssw_rights_locked(name, right, ShareUpdateExclusiveLock);

	if (p->from_coordinator)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" is defined on the coordinator of the cluster", p->name),
				 errhint("Call the function there. The other nodes follow. pause() and resume() also work here, for this node.")));
	(void) ssw_rights_lock(p, ExclusiveLock, 0);
	return p;
}
