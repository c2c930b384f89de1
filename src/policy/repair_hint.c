/*
 * repair_hint.c
 *		A statement that makes a policy fit its table and functions again.
 *
 * Runs in the session that asks (problem, explain_row), reads catalogs only and
 * changes nothing.  The statement can be pasted as it is.  Where a person has to decide,
 * it only shows the facts, and the statement that changes something is in a comment: it
 * needs a corrected expression, or would run code of another role as the owner.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "policy/partition.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"

PG_FUNCTION_INFO_V1(ssw_repair_hint_sql);

/* A statement, and what comes next in a comment.  A second line would end the comment, and be run. */
char	   *
ssw_repair_with_comment(char *statement, const char *next)
{
	return strpbrk(next, "\r\n") ? statement : psprintf("%s -- %s", statement, next);
}

/* Arguments that name columns which have other names now, or are gone. */
static char *
columns_step(const SswPolicy *p, const char *name)
{
	StringInfoData fields;
	StringInfoData call;

	initStringInfo(&fields);
	initStringInfo(&call);
	for (int i = 0; i < SSW_NARGS; i++)
		if (p->stale & UINT64CONST(1) << i)
		{
			appendStringInfo(&fields, "%s%s", fields.len ? ", " : "", ssw_fields[i].name);
			appendStringInfo(&call, ", %s => '...'", ssw_fields[i].name);
		}
	return ssw_repair_with_comment(psprintf("SELECT %s FROM sweeper.policy WHERE policy = %s;", fields.data, name),
								   psprintf("then, corrected: SELECT sweeper.alter_policy(%s%s);", name, call.data));
}

/* A right that the owner of the table has lost. */
static char *
grant_step(const SswPolicy *p, const char *name, const char *right)
{
	return psprintf("GRANT %s TO %s; SELECT sweeper.resume(%s);", right, quote_identifier(GetUserNameFromId(p->owner, false)), name);
}

/* Rights on the table, and on its schema, without which no pass goes through; null: all are there. */
static char *
rights_step(const SswPolicy *p, const char *name)
{
	static const char *const actions[] = {[SSW_ACTION_DELETE] = "DELETE",[SSW_ACTION_UPDATE] = "UPDATE",[SSW_ACTION_CALL] = NULL};
	Oid			relid = ssw_policy_relation_now(p);
	const char *rights[] = {"SELECT", actions[p->action], p->heartbeats ? "UPDATE" : NULL};
	StringInfoData missing;
	Oid			schema = get_rel_namespace(relid);

	if (!DatumGetBool(DirectFunctionCall3(has_schema_privilege_id_id, ObjectIdGetDatum(p->owner), ObjectIdGetDatum(schema), CStringGetTextDatum("USAGE"))))
		return grant_step(p, name, psprintf("USAGE ON SCHEMA %s", quote_identifier(get_namespace_name(schema))));
	initStringInfo(&missing);
	for (int i = 0; i < lengthof(rights); i++)
		if (rights[i] && strstr(missing.data, rights[i]) == NULL &&
			!DatumGetBool(DirectFunctionCall3(has_table_privilege_id_id, ObjectIdGetDatum(p->owner), ObjectIdGetDatum(relid), CStringGetTextDatum(rights[i]))))
			appendStringInfo(&missing, "%s%s", missing.len ? ", " : "", rights[i]);
	return missing.len == 0 ? NULL : grant_step(p, name, psprintf("%s ON %s", missing.data, ssw_guard_relation(relid)));
}

/* A hook that cannot be called; null: it can.  Pasting this never makes a policy run without its hook. */
static char *
hook_step(const SswPolicy *p, const char *name, const char *field, Oid func, const char *signature)
{
	HeapTuple	tup = signature ? SearchSysCache1(PROCOID, ObjectIdGetDatum(func)) : NULL;
	char	   *alter;
	Oid			owner;

	if (signature == NULL)
		return NULL;
	if (!HeapTupleIsValid(tup) && p->from_coordinator)
		return ssw_repair_with_comment(psprintf("SELECT pg_catalog.to_regprocedure(%s);", quote_literal_cstr(signature)),
									   "if that is null, create the function here as it is on the coordinator; then the policy continues by itself");
	alter = psprintf("SELECT sweeper.alter_policy(%s, %s => %s);", name, field, quote_literal_cstr(signature));
	if (!HeapTupleIsValid(tup) && OidIsValid(ssw_policy_hook_now(signature)))
		return alter;
	if (!HeapTupleIsValid(tup))
		return ssw_repair_with_comment(psprintf("SELECT sweeper.unregister(%s);", name), psprintf("or, with another %s: %s", field, alter));
	owner = ((Form_pg_proc) GETSTRUCT(tup))->proowner;
	ReleaseSysCache(tup);
	signature = format_procedure_extended(func, FORMAT_PROC_FORCE_QUALIFY);
	if (owner == p->owner || superuser_arg(owner))
		return DatumGetBool(DirectFunctionCall3(has_function_privilege_id_id, ObjectIdGetDatum(p->owner), ObjectIdGetDatum(func), CStringGetTextDatum("EXECUTE"))) ? NULL :
			grant_step(p, name, psprintf("EXECUTE ON FUNCTION %s", signature));
	return ssw_repair_with_comment(psprintf("SELECT pg_catalog.pg_get_functiondef(%s::pg_catalog.regprocedure);", quote_literal_cstr(signature)),
								   psprintf("if that may run as role %1$s: ALTER FUNCTION %2$s OWNER TO %1$s; SELECT sweeper.resume(%3$s);",
											quote_identifier(GetUserNameFromId(p->owner, false)), signature, name));
}

/*
 * The statement, or null when the policy fits: then something else stopped it.
 */
char	   *
ssw_repair_hint(const SswPolicy *p)
{
	Oid			owner = ssw_relation_owner(ssw_policy_relation_now(p));
	char	   *name = quote_literal_cstr(p->name);
	char	   *step;

	if (!OidIsValid(owner) && p->from_coordinator)
		return ssw_repair_with_comment(psprintf("SELECT pg_catalog.to_regclass(%s);", quote_literal_cstr(p->relation)),
									   "if that is null, the coordinator removes the policy here in a moment; else it continues by itself");
	if (!OidIsValid(owner))
		return psprintf("SELECT sweeper.unregister(%s);", name);
	if (ssw_policy_is_lost(p))
		return ssw_repair_with_comment(psprintf("SELECT sweeper.unregister(%s);", name), "then, having read its code, register the table again");
	if (OidIsValid(ssw_policy_new_owner(p)))
		return ssw_repair_with_comment(psprintf("SELECT * FROM sweeper.policy WHERE policy = %s;", name),
									   psprintf("if its code may run as role %1$s, then, as a member of that role: SELECT sweeper.resume(%2$s);",
												quote_identifier(GetUserNameFromId(owner, false)), name));
	if (ssw_policy_is_foreign(p))
		return NULL;
	if (p->stale)
		return columns_step(p, name);
	step = rights_step(p, name);
	if (step == NULL)
		step = hook_step(p, name, "on_expire", p->on_expire, p->on_expire_name);
	if (step == NULL)
		step = hook_step(p, name, "is_alive", p->is_alive, p->is_alive_name);
	if (step == NULL && ssw_shards && ssw_shards->misfit(p, &step))
		return step;
	if (step == NULL && OidIsValid(ssw_partition_subscribed(p)))
		step = psprintf("SELECT sweeper.alter_policy(%s, allow_replicated => true);", name);
	return step;
}

/* What lifts a brake, of a group of the fuse if one is given.  A person sees first which rows would go. */
char	   *
ssw_repair_hint_or_resume(const SswPolicy *p, const char *group)
{
	char	   *name = quote_literal_cstr(p->name);
	char	   *step = ssw_repair_hint(p);

	if (step)
		return step;
	step = psprintf("SELECT sweeper.resume(%s%s%s);", name, group ? ", " : "", group ? quote_literal_cstr(group) : "");
	return p->fuse_next != 0 || (p->held_reason && strcmp(p->held_reason, "restored") != 0) ?
		ssw_repair_with_comment(psprintf("SELECT * FROM sweeper.preview(%s);", name), psprintf("then %s%s", step, p->paused_at != 0 ? " which ends the pause, too" : "")) : step;
}

/* _repair_hint(policy_id): the same for views; null also for callers who may not see the policy. */
Datum
ssw_repair_hint_sql(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = ssw_policy_load(PG_GETARG_INT32(0));
	char	   *step = p && ssw_rights_have(p, SSW_RIGHT_SEE) ? ssw_repair_hint(p) : NULL;

	if (step == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(step));
}
