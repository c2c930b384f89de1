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
#include "access/xlog.h"
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
#include "commands/args.h"
#include "commands/policy_store.h"
#include "commands/preview.h"
#include "commands/preview_nodes.h"
#include "commands/register.h"
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

/* Fewer rows than these are no reason to ask first. */
#define BACKLOG_ROWS	20

/* ereport that a name is taken, with one that is free. */
static void
name_taken(const char *name)
{
	char	   *free_name = NULL;

	for (int i = 2; free_name == NULL; i++)
	{
		char	   *candidate = psprintf("%s_%d", name, i);

		if (ssw_policy_find(candidate, true) == NULL)
			free_name = candidate;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("policy \"%s\" already exists", name),
			 errhint("Give a name that is free, for example policy => %s, or change the policy with sweeper.alter_policy().",
					 quote_literal_cstr(free_name))));
}

/* ereport that a policy's table was dropped. */
void
ssw_register_table_gone(const SswPolicy *p)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("table %s of policy \"%s\" no longer exists", p->relation, p->name),
			 errhint("SELECT sweeper.unregister(%s);", quote_literal_cstr(p->name))));
}

/* May a policy have this name? */
void
ssw_register_check_name(const char *name)
{
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("the name of a policy must not be empty")));
	if (strlen(name) > SSW_MAX_NAME)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("the name of a policy must not be longer than %d bytes", SSW_MAX_NAME)));
	if (strncmp(name, SSW_BUILTIN_PREFIX, strlen(SSW_BUILTIN_PREFIX)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("policy name \"%s\" is reserved", name),
				 errdetail("Names that begin with \"%s\" are those of the built-in policies.", SSW_BUILTIN_PREFIX),
				 errhint("Give another name.")));
	if (ssw_policy_find(name, true))
		name_taken(name);
}

/* As regclass prints it with an empty search_path, without "public.". */
static char *
default_name(Oid relid)
{
	if (get_rel_namespace(relid) == get_namespace_oid("public", true))
		return pstrdup(quote_identifier(get_rel_name(relid)));
	return ssw_guard_relation(relid);
}

/* Say how to make a sweep cheap. */
static void
notice_index(const SswPolicy *p, const SswPreview *v)
{
	ListCell   *lc;

	foreach(lc, v->missing)
		ereport(NOTICE,
				(errmsg("policy \"%s\": no index finds the dead rows of %s", p->name, p->relation),
				 errdetail("Each look reads the whole table; while it is small, that costs little."),
				 errhint("%s", (char *) lfirst(lc))));
}

/* The arguments that adopt() guessed, as "name => value"; or, to be completed, the one that says what is dead. */
static char *
doubtful_args(const SswPolicy *p, bool values)
{
	const SswArgs *a = p->args;
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, a->assumed)
		appendStringInfo(&buf, "%s%s => %s", buf.len ? ", " : "", ssw_fields[lfirst_int(lc)].name,
						 values ? quote_literal_cstr(ssw_args_text(lfirst_int(lc), a->value[lfirst_int(lc)])) : "'...'");
	if (buf.len == 0 && !values)
		appendStringInfo(&buf, "%s => '...'", p->last_seen ? "last_seen" : "deadline");
	return buf.data;
}

/* How a held policy is resumed, and how it is corrected. */
static char *
held_hint(const SswPolicy *p)
{
	char	   *name = quote_literal_cstr(p->name);

	if (p->args->dry_run)
		return psprintf("If that is right: %s If it is not, give %s.",
						ssw_args_call(p->args, "start", "now"), doubtful_args(p, false));
	return psprintf("If that is right: SELECT sweeper.resume(%s); If it is not: SELECT sweeper.alter_policy(%s, %s), sweeper.resume(%s);",
					name, name, doubtful_args(p, false), name);
}

/*
 * Why nothing must be removed before somebody has confirmed it, or null: what the
 * deadline means is a guess, or most rows are dead already.
 */
static const char *
hold(const SswPolicy *p, const SswPreview *v)
{
	const SswArgs *a = p->args;
	bool		guessed = a->assumed != NIL || a->doubt != NULL;
	const char *about = v->exact ? "" : "about ";

	if (!guessed && (v->rows < BACKLOG_ROWS || v->sample_dead <= 0.5))
		return NULL;
	ereport(NOTICE,
			(guessed ? errmsg("policy \"%s\" %s held: adopt() had to guess some arguments", p->name, a->dry_run ? "would be" : "is") :
			 errmsg("policy \"%s\" %s held: more than half of its rows are dead already", p->name, a->dry_run ? "would be" : "is"),
			 errdetail("Of %s" INT64_FORMAT " rows, %s" INT64_FORMAT " would be expired now.%s%s%s%s%s", about, v->rows, about, v->dead,
					   a->assumed ? " Assumed: " : "", doubtful_args(p, true), a->assumed ? "." : "",
					   a->doubt ? " " : "", a->doubt ? a->doubt : ""),
			 errhint("%s", held_hint(p))));
	return guessed ? "assumed" : "backlog";
}

/* Look at the table, refuse what is implausible and say what is held, why (*held), and what makes a sweep cheap. */
SswPreview *
ssw_register_look(SswPolicy *p, Relation rel, const char **held)
{
	SswPreview *v = ssw_preview_run(p, rel);

	ssw_preview_check_plausible(p, v);
	notice_index(p, v);
	if (p->args->alter || strcmp(p->args->start, "auto") == 0)
		*held = hold(p, v);
	return v;
}

/* What the policy is bound to. */
void
ssw_register_identity(SswPolicy *p, Relation rel)
{
	p->relid = RelationGetRelid(rel);
	p->relation = ssw_guard_relation(p->relid);
	p->owner = rel->rd_rel->relowner;
	p->owner_name = GetUserNameFromId(p->owner, false);
	p->system_identifier = GetSystemIdentifier();
	p->database = MyDatabaseId;
}

static void
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
	ssw_policy_store_add_fields(&q, a, p, rel);
	q.nulls[q.n] = '\0';
	ssw_lock_policy_name(p->name);
	p->id = ssw_policy_store_exec(psprintf("INSERT INTO sweeper.policy (%s) VALUES (%s)"
										   " ON CONFLICT (policy) DO NOTHING RETURNING policy_id",
										   q.columns.data, q.params.data),
								  q.n, q.types, q.values, q.nulls);
	/* another session took the name meanwhile */
	if (p->id == 0)
		name_taken(p->name);
}

/*
 * Check a registration and, unless it is a dry run, carry it out.  The caller
 * holds a lock on rel and has read the arguments; returns the preview row.
 */
Datum
ssw_register_relation(FunctionCallInfo fcinfo, SswArgs *a, Relation rel)
{
	SswPolicy  *p = palloc0(sizeof(SswPolicy));
	SswPreview *v;
	const char *held = NULL;

	if (strcmp(a->start, "auto") != 0 && strcmp(a->start, "now") != 0 && strcmp(a->start, "paused") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown start \"%s\"", a->start),
				 errhint("Use \"auto\", \"now\" or \"paused\".")));
	p->args = a;
	p->name = a->policy ? a->policy : default_name(RelationGetRelid(rel));
	ssw_register_identity(p, rel);
	ssw_args_fill_limits(a, p);
	ssw_args_fill(a, p);
	/* before the name: on a node that follows, the table's own policy has it */
	ssw_target_check(p, rel);
	ssw_register_check_name(p->name);
	v = ssw_register_look(p, rel, &held);
	v->advice = list_concat(v->advice, a->advice);
	if (!a->dry_run)
	{
		insert_policy(a, p, v, rel, held);
		ssw_policy_store_log(p->id, p->name, "register", NULL);
		ssw_policy_xact_changed(p->id, SSW_SCAN_NOTHING);
		if (!ssw_shmem_available())
			ereport(WARNING,
					(errmsg("policy \"%s\" is registered, but session_sweeper is not running in this server", p->name),
					 errhint(SSW_PRELOAD_HINT)));
	}
	return ssw_preview_row(fcinfo, p, v,
						   a->dry_run ? "dry run" : held ? "held" :
						   strcmp(a->start, "paused") == 0 ? "paused" : "waiting");
}

/* register(relation, policy, fields, start, dry_run): see schema/20_register.sql. */
Datum
ssw_register(PG_FUNCTION_ARGS)
{
	SswArgs    *a = palloc0(sizeof(SswArgs));
	Relation	rel;
	Datum		result;
	int			level = ssw_identity_pin("quote_all_identifiers", "off");

	ssw_argument_not_null(fcinfo, 0, "relation");
	ssw_argument_not_null(fcinfo, 2 + SSW_NARGS, "start");
	ssw_argument_not_null(fcinfo, 3 + SSW_NARGS, "dry_run");
	rel = ssw_target_open(PG_GETARG_OID(0));
	a->function = "register";
	a->first = quote_literal_cstr(ssw_guard_relation(PG_GETARG_OID(0)));
	a->policy = PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1));
	a->start = text_to_cstring(PG_GETARG_TEXT_PP(2 + SSW_NARGS));
	a->dry_run = PG_GETARG_BOOL(3 + SSW_NARGS);
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
