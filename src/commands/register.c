/*
 * register.c
 *		SQL functions register and preview.
 *
 * Run in the caller's session and transaction: an error, or the caller's
 * rollback, leaves no trace.  Rights are checked as the caller; what the caller
 * supplies as code is parsed and evaluated as the relation's owner; the row of
 * sweeper.policy is written as the extension's owner (policy_store.c).  Shares nothing
 * but that table.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/relation_guard.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "commands/alter_policy.h"
#include "commands/args.h"
#include "commands/policy_store.h"
#include "commands/preview.h"
#include "commands/preview_nodes.h"
#include "commands/register.h"
#include "commands/register_checks.h"
#include "commands/target_check.h"
#include "heartbeat/policy_xact.h"
#include "monitor/all_nodes.h"
#include "policy/deadline.h"
#include "policy/policy.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"
#include "process/brake.h"

PG_FUNCTION_INFO_V1(ssw_register);
PG_FUNCTION_INFO_V1(ssw_preview);

/* The policy that the call alters, which is of the same table; null: there is none of that name. */
static SswPolicy *
find_altered(const SswPolicy *p)
{
	SswPolicy  *old = ssw_policy_find(p->name, true);
	Oid			relid = old ? ssw_policy_relation_now(old) : InvalidOid;

	if (old == NULL || relid == p->relid)
		return old;
	if (!OidIsValid(ssw_relation_owner(relid)))
		ssw_register_table_gone(old);
	ssw_register_name_taken(p->name, "policy", p->relation);
	return NULL;
}

/* As regclass prints it with an empty search_path, without "public.". */
static char *
default_name(Oid relid)
{
	if (get_rel_namespace(relid) == get_namespace_oid("public", true))
		return pstrdup(quote_identifier(get_rel_name(relid)));
	return ssw_guard_relation(relid);
}

/* False: another session took the name meanwhile. */
static bool
insert_policy(const SswArgs *a, SswPolicy *p, const SswPreview *v, Relation rel, const char *held)
{
	SswParams	q = {0};
	bool		paused = strcmp(a->start, "paused") == 0;
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());

	ssw_policy_store_add_text(&q, "policy", p->name);
	ssw_policy_store_add(&q, "relid", OIDOID, ObjectIdGetDatum(p->relid), false);
	ssw_policy_store_add_text(&q, "relation", p->relation);
	ssw_policy_store_add(&q, "owner", OIDOID, ObjectIdGetDatum(p->owner), false);
	ssw_policy_store_add_text(&q, "owner_name", p->owner_name);
	ssw_policy_store_add(&q, "system_identifier", INT8OID, Int64GetDatum((int64) p->system_identifier), false);
	ssw_policy_store_add(&q, "database", OIDOID, ObjectIdGetDatum(p->database), false);
	ssw_policy_store_add_text(&q, "held_reason", held);
	ssw_policy_store_add(&q, "held_at", TIMESTAMPTZOID, now, held == NULL);
	ssw_policy_store_add(&q, "paused_at", TIMESTAMPTZOID, now, !paused);
	ssw_policy_store_add_text(&q, "registered_by", ssw_identity_actor());
	ssw_policy_store_add_text(&q, "paused_by", paused ? ssw_identity_actor() : NULL);
	ssw_policy_store_add_text(&q, "paused_reason", paused ? "registered paused" : NULL);
	ssw_policy_store_add(&q, "backlog_before", TIMESTAMPTZOID, now, v->dead == 0);
	ssw_policy_store_add(&q, "backlog_rows", INT8OID, Int64GetDatum(v->dead), v->dead == 0);
	ssw_policy_store_add_fields(&q, a, p, rel);
	q.nulls[q.n] = '\0';
	ssw_lock_policy_name(p->name);
	p->id = ssw_policy_store_exec(psprintf("INSERT INTO sweeper.policy (%s) VALUES (%s)"
										   " ON CONFLICT (policy) DO NOTHING RETURNING policy_id",
										   q.columns.data, q.params.data),
								  q.n, q.types, q.values, q.nulls);
	return p->id != 0;
}

/*
 * Check a registration and, unless it is a dry run, carry it out.  The caller
 * holds a lock on rel and has read the arguments; returns the preview row.
 */
Datum
ssw_register_relation(FunctionCallInfo fcinfo, SswArgs *a, Relation rel)
{
	SswPolicy  *p = palloc0(sizeof(SswPolicy));
	SswPolicy	given;
	SswPolicy  *old;
	SswPreview *v;
	SswPolicyState state;
	const char *why;
	const char *held = NULL;

	p->args = a;
	p->name = a->policy ? a->policy : default_name(RelationGetRelid(rel));
	ssw_register_identity(p, rel);
	ssw_args_fill_limits(a, p);
	ssw_args_fill(a, p);
	given = *p;
	/* before the name: on a node that follows, the table's own policy has it */
	ssw_target_check(p, rel);
	if (a->or_alter)
	{
		ssw_register_check_spelling(p->name, "policy");
		if ((old = find_altered(p)) != NULL)
			return ssw_alter_as_registered(fcinfo, &given, p, old, rel);
	}
	else
		ssw_register_check_name(p->name, "policy");
	v = ssw_register_look(p, rel, &held);
	v->advice = list_concat(v->advice, a->advice);
	if (!a->dry_run)
	{
		ssw_spi_refuse_read_only(psprintf("sweeper.%s()", a->function));
		if (!insert_policy(a, p, v, rel, held))
		{
			if (a->or_alter && (old = find_altered(p)) != NULL)
				return ssw_alter_as_registered(fcinfo, &given, p, old, rel);
			ssw_register_name_taken(p->name, "policy", NULL);
		}

		/*
		 * a restore of the schema alone may have left who had access to a
		 * policy of this number
		 */
		ssw_rights_forget_policy(p->id);
		ssw_policy_store_log(p->id, p->name, "register", NULL);
		ssw_policy_xact_changed(p->id, SSW_SCAN_NOTHING);
		if (ssw_shmem_available())
			ssw_shmem_add_policy(p->id);
		else
			ereport(WARNING,
					(errmsg("policy \"%s\" is registered, but session_sweeper is not running in this server", p->name),
					 errhint(SSW_PRELOAD_HINT)));
	}
	state = ssw_brake_of_policy(p, GetCurrentTimestamp(), SSW_POLICY_STANDBY, &why);
	return ssw_preview_row(fcinfo, p, v,
						   a->dry_run ? "dry run" : state < SSW_POLICY_PAUSED ? ssw_brake_name(state) : held ? "held" :
						   strcmp(a->start, "paused") == 0 ? "paused" : "waiting");
}

/* register(relation, policy, fields, start, if_exists, dry_run): see schema/20_register.sql. */
Datum
ssw_register(PG_FUNCTION_ARGS)
{
	SswArgs    *a = palloc0(sizeof(SswArgs));
	Relation	rel;
	Datum		result;
	int			level = ssw_identity_pin("quote_all_identifiers", "off");

	ssw_argument_not_null(fcinfo, 0, "relation");
	rel = ssw_target_open(PG_GETARG_OID(0));
	a->function = "register";
	a->first = quote_literal_cstr(ssw_guard_relation(PG_GETARG_OID(0)));
	a->policy = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	ssw_args_read_start(a, fcinfo, 2 + SSW_NARGS);
	ssw_args_read(a, fcinfo, 2, false);
	result = ssw_register_relation(fcinfo, a, rel);
	table_close(rel, NoLock);
	AtEOXact_GUC(true, level);
	return result;
}

/* preview(policy): what a pass would find now. */
Datum
ssw_preview(PG_FUNCTION_ARGS)
{
	SswPolicy  *p;
	Relation	rel;
	SswPreview *found;
	Datum		result;
	char	   *unusable;
	char	   *step;
	const char *reason;

	ssw_argument_not_null(fcinfo, 0, "policy");
	p = ssw_rights_policy(PG_GETARG_TEXT_PP(0), SSW_RIGHT_SEE);
	rel = ssw_policy_is_foreign(p) ? NULL : try_table_open(p->relid, AccessShareLock);
	if (rel == NULL && !ssw_policy_is_foreign(p))
		ssw_register_table_gone(p);
	if (rel)
		p = ssw_policy_present(p);
	unusable = ssw_policy_unusable(p);
	step = unusable ? ssw_repair_hint(p) : NULL;
	if (unusable)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot preview policy \"%s\": %s", p->name, unusable),
				 step ? errhint("%s", step) :
				 errhint("BEGIN; SELECT sweeper.resume(%1$s); SELECT * FROM sweeper.preview(%1$s); then COMMIT, or ROLLBACK to leave it as it is.",
						 quote_literal_cstr(p->name))));
	ssw_deadline_build(p, rel);
	found = ssw_preview_here(p, rel);
	if (ssw_nodes->leads(p->relid))
		ssw_preview_add_nodes(p, found);
	result = ssw_preview_row(fcinfo, p, found,
							 ssw_brake_name(ssw_brake_state(p, GetCurrentTimestamp(), &reason)));
	table_close(rel, NoLock);
	return result;
}
