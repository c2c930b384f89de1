/*
 * alter_policy.c
 *		SQL functions alter_policy and unregister, and register of a policy that exists.
 *
 * Run in the caller's session and transaction, like register().  They hold the
 * policy's lock (locks.c), so they wait for the batches in flight and keep new
 * ones out until they commit.  Share nothing else; a crash leaves nothing
 * behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/process_slot.h"
#include "base/spi.h"
#include "commands/alter_policy.h"
#include "commands/args.h"
#include "commands/policy_store.h"
#include "commands/preview.h"
#include "commands/register_checks.h"
#include "commands/target_check.h"
#include "heartbeat/policy_xact.h"
#include "policy/policy.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"
#include "process/brake.h"
#include "sweep/heartbeat_flush.h"

PG_FUNCTION_INFO_V1(ssw_alter_policy);
PG_FUNCTION_INFO_V1(ssw_unregister);

/* Put arguments back to their defaults; naming one that is given is an error. */
static void
reset_args(SswArgs *a, FunctionCallInfo fcinfo, int arg)
{
	Datum	   *names;
	int			n = ssw_argument_elements(fcinfo, arg, "reset", TEXTOID, &names);

	for (int i = 0; i < n; i++)
	{
		SswArg		field = ssw_args_find(TextDatumGetCString(names[i]));

		if (a->given[field])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must not be both given and reset", ssw_fields[field].name)));
		ssw_args_default(a, field);
		a->given[field] = true;
	}
}

/* What names a column by a name that it had is not taken for one that has the name now. */
static void
check_stale(const SswArgs *a, const SswPolicy *p)
{
	for (int i = 0; i < SSW_NARGS; i++)
		if ((p->stale & UINT64CONST(1) << i) && !a->given[i])
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot alter policy \"%s\" without a new %s", p->name, ssw_fields[i].name),
					 errdetail("The present one names a column that was renamed or dropped."),
					 errhint("%s", ssw_repair_hint(p))));
}

/* Is an argument given that touches these (flags), or one that touches none of them? */
static bool
any_given(const SswArgs *a, int flags, bool touches)
{
	for (int i = 0; i < SSW_NARGS; i++)
		if (a->given[i] && ((ssw_fields[i].flags & flags) != 0) == touches)
			return true;
	return false;
}

/* Are other rows dead now?  keep_for only says how long they stay. */
static bool
changes_deaths(const SswArgs *a)
{
	for (int i = 0; i < SSW_NARGS; i++)
		if (a->given[i] && (ssw_fields[i].flags & SSW_FIELD_DEADLINE) && i != SSW_ARG_KEEP_FOR)
			return true;
	return false;
}

static void
update_policy(const SswArgs *a, const SswPolicy *p, const SswPreview *v, Relation rel, const char *held)
{
	SswParams	q = {0};
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());

	ssw_policy_store_add_text(&q, "policy", p->name);
	ssw_policy_store_add_fields(&q, a, p, rel);
	if (rel)
	{
		/* it has just been checked as a new one */
		ssw_policy_store_add(&q, "broken", BOOLOID, BoolGetDatum(false), false);
		ssw_policy_store_add(&q, "failures", INT4OID, Int32GetDatum(0), false);
		ssw_policy_store_add(&q, "failing_since", TIMESTAMPTZOID, (Datum) 0, true);
		ssw_policy_store_add(&q, "retry_at", TIMESTAMPTZOID, (Datum) 0, true);
	}

	/*
	 * what dies of this change counts for the fuse: no registration, no end
	 * of a hold and no resume() meant it
	 */
	if (v)
	{
		if (changes_deaths(a))
			ssw_policy_store_add(&q, "backlog_before", TIMESTAMPTZOID, (Datum) 0, true);
		ssw_policy_store_exec(psprintf("DELETE FROM sweeper.fuse_hold WHERE policy_id = %d AND (held_until <= pg_catalog.clock_timestamp()%s)",
									   p->id, a->given[SSW_ARG_GROUP_BY] ? " OR \"group\" IS NOT NULL" : ""), 0, NULL, NULL, NULL);
		ssw_policy_store_add(&q, "horizons", TIMESTAMPTZARRAYOID, (Datum) 0, true);
	}
	if (held)
	{
		ssw_policy_store_add_text(&q, "held_reason", held);
		ssw_policy_store_add(&q, "held_at", TIMESTAMPTZOID, now, false);
	}
	q.nulls[q.n] = '\0';
	ssw_policy_store_exec(psprintf("UPDATE sweeper.policy SET (%s) = ROW(%s) WHERE policy_id = %d",
								   q.columns.data, q.params.data, p->id),
						  q.n, q.types, q.values, q.nulls);
	ssw_policy_store_name_failed_rows(p->id);
}

/* Whether the relation still is what was registered. */
static void
check_relation(const SswPolicy *p)
{
	if (strncmp(p->name, SSW_BUILTIN_PREFIX, strlen(SSW_BUILTIN_PREFIX)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" is built in", p->name),
				 errdetail("Only how often and how much it sweeps can be changed."),
				 errhint("How long rows are kept: session_sweeper.cleanup_event_retention, .pass_retention and .usage_event_retention. How long sessions live: sweeper.alter_pool().")));
	if (ssw_policy_is_foreign(p))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot alter policy \"%s\": %s", p->name, ssw_policy_unusable(p)),
				 errhint("If this is intended: SELECT sweeper.resume(%s);", quote_literal_cstr(p->name))));
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(p->relid)))
		ssw_register_table_gone(p);
}

/* The same of the owner; the caller has a lock on rel. */
static void
check_owner(const SswPolicy *p, Relation rel)
{
	if (rel->rd_rel->relowner != p->owner)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the owner of table %s has changed since policy \"%s\" was registered", p->relation, p->name),
				 errdetail("It was registered for role \"%s\".", p->owner_name),
				 errhint("%s", ssw_repair_hint_or_resume(p, NULL))));
}

/* Does what a row says of its deadline have another meaning now? */
static bool
redefines(const SswArgs *a, const SswPolicy *p)
{
	return a->given[SSW_ARG_DEADLINE] || a->given[SSW_ARG_LAST_SEEN] || a->given[SSW_ARG_UNIT] || a->given[SSW_ARG_TIMEZONE] ||
		(p->last_seen && (a->given[SSW_ARG_TTL] || a->given[SSW_ARG_TTL_COLUMN]));
}

/*
 * Change what is given.  The caller has locked the policy and, unless only limits change
 * (rel is null), its relation.  Returns what a look at the relation found, or null.
 */
static SswPreview *
alter(SswArgs *a, SswPolicy *old, Relation rel, const char *new_name)
{
	SswPolicy  *p;
	SswPreview *v = NULL;
	const char *held = NULL;
	char	   *before;

	/* the policy as it will be: what is not given stays */
	p = ssw_policy_again(old);
	p->args = a;
	/* a filter that is a renamed column is written by its name of today */
	if (!a->given[SSW_ARG_FILTER])
		ssw_args_set_text(a, SSW_ARG_FILTER, p->filter);
	if (!a->given[SSW_ARG_SET_CLAUSE])
		ssw_args_set_text(a, SSW_ARG_SET_CLAUSE, p->set_clause);
	if (new_name)
	{
		if (strcmp(new_name, old->name) != 0)
		{
			ssw_lock_policy_name(new_name);
			ssw_register_check_name(new_name, "new_name");
		}
		p->name = pstrdup(new_name);
	}
	before = ssw_policy_store_json(old->id);
	ssw_args_fill_limits(a, p);
	if (rel)
	{
		ssw_register_identity(p, rel);
		ssw_args_fill(a, p);
		ssw_target_check(p, rel);
	}
	if (rel && any_given(a, SSW_FIELD_DEADLINE, true))
		v = ssw_register_look(p, rel, &held);
	if (rel && (a->given[SSW_ARG_KEY] || (a->given[SSW_ARG_HEARTBEATS] && !p->heartbeats)))
		ssw_heartbeat_flush(old);
	update_policy(a, p, v, rel, held);
	ssw_policy_store_log(p->id, p->name, "alter", before);
	ssw_policy_xact_changed(p->id, rel == NULL ? SSW_SCAN_NOTHING : redefines(a, p) ? SSW_SCAN_VOID : SSW_SCAN_LOOK);
	return v;
}

/* alter_policy(policy, fields, reset, new_name): null leaves a field. */
Datum
ssw_alter_policy(PG_FUNCTION_ARGS)
{
	SswArgs    *a = palloc0(sizeof(SswArgs));
	SswPolicy  *old;
	Relation	rel = NULL;
	char	   *new_name = PG_ARGISNULL(2 + SSW_NARGS) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2 + SSW_NARGS));
	int			level = ssw_identity_pin("quote_all_identifiers", "off");

	ssw_spi_refuse_read_only("sweeper.alter_policy()");
	ssw_argument_not_null(fcinfo, 0, "policy");
	old = ssw_rights_change(PG_GETARG_TEXT_PP(0), SSW_RIGHT_ADMIN);
	a->alter = true;
	a->start = "auto";
	ssw_args_read(a, fcinfo, 1, true);
	reset_args(a, fcinfo, 1 + SSW_NARGS);
	if (any_given(a, SSW_FIELD_LIMIT, false) || new_name)
	{
		(void) ssw_rights_policy(PG_GETARG_TEXT_PP(0), SSW_RIGHT_OWNER);
		check_relation(old);
		rel = ssw_target_open(old->relid);
		check_owner(old, rel);
		/* nobody renames its columns from now on */
		old = ssw_policy_again(old);
		check_stale(a, old);
	}
	(void) alter(a, old, rel, new_name);
	if (rel)
		table_close(rel, NoLock);
	AtEOXact_GUC(true, level);
	PG_RETURN_VOID();
}

/* Mark as given what registering would change, or what has lost its meaning.  False: nothing. */
static bool
mark_changes(SswArgs *a, const SswPolicy *given, const SswPolicy *resolved, const SswPolicy *old)
{
	bool		any = false;

	for (int i = 0; i < SSW_NARGS; i++)
	{
		const SswField *f = &ssw_fields[i];
		bool		stored_resolved = f->kind == SSW_FIELD_NAMES || (f->flags & SSW_FIELD_RESOLVED);

		a->given[i] = !ssw_field_equal(stored_resolved ? resolved : given, old, f) || (old->stale & UINT64CONST(1) << i);
		any |= a->given[i];
	}
	return any;
}

/* May the caller make it what register() says? */
static void
check_may_alter(const SswPolicy *old, Relation rel)
{
	(void) ssw_rights_policy(cstring_to_text(old->name), SSW_RIGHT_OWNER);
	check_relation(old);
	check_owner(old, rel);
}

/*
 * register() or adopt() of a policy that exists, of the same relation, with if_exists
 * "alter": its definition becomes p, which has been checked; given is the same with its
 * texts as they were given.  Brakes and counters stay.  Nothing is written, and no lock
 * on the policy taken, if it is so already.  Returns the preview row.
 *
 * The relation is locked before the policy here.  The caller's transaction may have
 * altered it, too; batches do not wait for it longer than the policy's lock_timeout.
 */
Datum
ssw_alter_as_registered(FunctionCallInfo fcinfo, const SswPolicy *given, SswPolicy *p, SswPolicy *old, Relation rel)
{
	SswArgs		a = *p->args;
	SswPreview *v = NULL;
	const char *unused;
	bool		changes;

	a.alter = true;
	check_may_alter(old, rel);
	changes = mark_changes(&a, given, p, old);
	if (changes && !a.dry_run)
	{
		ssw_spi_refuse_read_only(psprintf("sweeper.%s()", a.function));
		old = ssw_rights_change(cstring_to_text(p->name), SSW_RIGHT_OWNER);
		check_may_alter(old, rel);
		if (mark_changes(&a, given, p, old))
			v = alter(&a, old, any_given(&a, SSW_FIELD_LIMIT, false) ? rel : NULL, NULL);
	}
	else if (any_given(&a, SSW_FIELD_DEADLINE, true))
		v = ssw_register_look(p, rel, &unused);
	if (v == NULL)
		v = ssw_preview_run(p, rel);
	v->advice = list_concat(v->advice, a.advice);
	return ssw_preview_row(fcinfo, p, v, a.dry_run ? "dry run" :
						   ssw_brake_name(ssw_brake_state(ssw_policy_again(old), GetCurrentTimestamp(), &unused)));
}

/* unregister(policy): cancels the batches in flight; the evidence stays. */
Datum
ssw_unregister(PG_FUNCTION_ARGS)
{
	SswPolicy  *p;

	ssw_spi_refuse_read_only("sweeper.unregister()");
	ssw_argument_not_null(fcinfo, 0, "policy");
	ssw_process_cancel_policy(ssw_rights_policy(PG_GETARG_TEXT_PP(0), SSW_RIGHT_OWNER)->id);
	p = ssw_rights_change(PG_GETARG_TEXT_PP(0), SSW_RIGHT_OWNER);
	if (strncmp(p->name, SSW_BUILTIN_PREFIX, strlen(SSW_BUILTIN_PREFIX)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" is built in", p->name),
				 errhint("SELECT sweeper.pause(%s); stops it.", quote_literal_cstr(p->name))));
	ssw_heartbeat_flush(p);
	ssw_policy_store_remove(p->id, p->name);
	PG_RETURN_VOID();
}
