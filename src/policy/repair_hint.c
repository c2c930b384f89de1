/*
 * repair_hint.c
 *		A statement that makes a policy fit its table and functions again.
 *
 * Runs in the session that asks (problem, explain_row), reads catalogs only and
 * changes nothing.  What a policy can do without is reset.  An expression that names
 * a column which has another name now is for somebody to correct, and a policy that
 * would remove other rows without what is gone, or none, is better unregistered: the
 * statement that goes on with it then is in a comment, for somebody to complete.  So
 * is one that would have code of others run as the owner.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "parser/parse_coerce.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "base/identity.h"
#include "policy/partition.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"

PG_FUNCTION_INFO_V1(ssw_mend_policy);

typedef struct Mend
{
	const SswPolicy *p;
	StringInfoData code;		/* statements that show functions of others */
	StringInfoData give;		/* those that have them run as the owner */
	StringInfoData fields;		/* arguments of alter_policy */
	StringInfoData reset;		/* names for its reset */
	const char *vital;			/* what the policy cannot do without, or null */
	const char *meaning;		/* timezone or unit, which it has to be told */
	bool		renamed;		/* an expression is to be corrected */
} Mend;

/* Is the column gone that had the name? */
static bool
is_gone(const SswPolicy *p, const char *name)
{
	int			number = ssw_columns_number(&p->columns, name);

	return number != 0 && ssw_columns_name(p->relid, number) == NULL;
}

static void
reset_field(Mend *m, const char *name)
{
	appendStringInfo(&m->reset, "%s%s", m->reset.len ? "," : "", name);
}

/* It cannot be left out: who alters the policy has to say what it is now. */
static void
need(Mend *m, const char *name, const char *value)
{
	m->vital = m->vital ? psprintf("%s and %s", m->vital, name) : name;
	appendStringInfo(&m->fields, ", %s => %s", name, quote_literal_cstr(value));
}

/* An expression, or a column, that the policy is made of; vital: it cannot be left out. */
static void
mend_field(Mend *m, const char *name, const char *text, int field, bool vital, const char *also)
{
	bool		stale = m->p->columns.stale & field;
	bool		gone = m->p->columns.gone & field;

	if (text == NULL)
		return;
	if (!stale && get_attnum(m->p->relid, text) == InvalidAttrNumber)
		gone = is_gone(m->p, text);
	if ((gone && vital) || (stale && !gone))
		need(m, name, "...");
	else if (gone)
	{
		reset_field(m, name);
		if (also)
			reset_field(m, also);
	}
	m->renamed |= stale && !gone;
}

/* Columns that are named one by one. */
static void
mend_names(Mend *m, const char *field, char *const *names, int n, bool stale)
{
	for (int i = 0; i < n && !stale; i++)
		stale = get_attnum(m->p->relid, names[i]) == InvalidAttrNumber;
	if (stale)
		reset_field(m, field);
}

/* A policy does not go on without its hook because somebody pastes this. */
static void
mend_hook(Mend *m, const char *field, Oid func, const char *name)
{
	HeapTuple	tup;
	Oid			owner;

	if (name == NULL)
		return;
	tup = SearchSysCache1(PROCOID, ObjectIdGetDatum(func));
	if (!HeapTupleIsValid(tup))
	{
		if (OidIsValid(ssw_policy_hook_now(name)))
			appendStringInfo(&m->fields, ", %s => %s", field, quote_literal_cstr(name));
		else
			need(m, field, name);
		return;
	}
	owner = ((Form_pg_proc) GETSTRUCT(tup))->proowner;
	ReleaseSysCache(tup);
	if (owner != m->p->owner && !superuser_arg(owner))
	{
		char	   *signature = format_procedure_extended(func, FORMAT_PROC_FORCE_QUALIFY);

		appendStringInfo(&m->code, "SELECT pg_catalog.pg_get_functiondef(%s::pg_catalog.regprocedure); ", quote_literal_cstr(signature));
		appendStringInfo(&m->give, "ALTER FUNCTION %s OWNER TO %s; ", signature, quote_identifier(GetUserNameFromId(m->p->owner, false)));
	}
}

/* A column whose values have no zone, or no unit, any more. */
static void
mend_meaning(Mend *m, const char *column)
{
	AttrNumber	att = column ? get_attnum(m->p->relid, column) : InvalidAttrNumber;
	Oid			type = att != InvalidAttrNumber ? getBaseType(get_atttype(m->p->relid, att)) : InvalidOid;

	if ((type == TIMESTAMPOID || type == DATEOID) && m->p->timezone == NULL)
		m->meaning = "timezone";
	else if (OidIsValid(type) && TypeCategory(type) == TYPCATEGORY_NUMERIC && m->p->unit == NULL)
		m->meaning = "unit";
}

static void
look(Mend *m)
{
	const SswPolicy *p = m->p;

	mend_names(m, "key", p->key, p->nkeys, p->columns.stale & SSW_STALE_KEY);
	mend_names(m, "capture", p->capture, p->ncapture, p->columns.stale & SSW_STALE_CAPTURE);
	mend_field(m, "group_by", p->group_by, SSW_STALE_GROUP_BY, false, NULL);
	mend_field(m, "created", p->created, SSW_STALE_CREATED, false, "max_age");
	mend_field(m, "ttl_column", p->ttl_column, SSW_STALE_TTL_COLUMN, p->ttl_us == 0, NULL);
	mend_field(m, "last_seen", p->last_seen, SSW_STALE_LAST_SEEN, true, NULL);
	mend_field(m, "deadline", p->deadline, SSW_STALE_DEADLINE, true, NULL);
	mend_field(m, "set_clause", p->set_clause, SSW_STALE_SET_CLAUSE, true, NULL);
	mend_field(m, "filter", p->filter, SSW_STALE_FILTER, true, NULL);
	mend_meaning(m, p->last_seen);
	mend_meaning(m, p->deadline);
	mend_meaning(m, p->created);
	mend_hook(m, "on_expire", p->on_expire, p->on_expire_name);
	mend_hook(m, "is_alive", p->is_alive, p->is_alive_name);
	if (OidIsValid(ssw_partition_subscribed(p)))
		appendStringInfoString(&m->fields, ", allow_replicated => true");
}

/* A statement, and what comes next in a comment; a second line would end that, and go on as a statement. */
static char *
in_comment(const char *statement, const char *next)
{
	return strpbrk(next, "\r\n") ? pnstrdup(statement, strlen(statement) - 1) : psprintf("%s-- %s", statement, next);
}

/*
 * The statement, or null when nothing is wrong that one could mend: then what
 * stopped the policy is not what it is made of.
 */
char	   *
ssw_repair_hint(const SswPolicy *p)
{
	Mend		m = {.p = p};
	Oid			owner = ssw_relation_owner(ssw_policy_relation_now(p));
	char	   *name = quote_literal_cstr(p->name);
	char	   *rest;

	if (!OidIsValid(owner))
		return psprintf("SELECT sweeper.unregister(%s);", name);
	if (ssw_policy_is_lost(p))
		return psprintf("SELECT sweeper.unregister(%s); -- then, having read its code, register the table again", name);
	if (ssw_policy_is_foreign(p) || owner != p->owner)
		return NULL;
	initStringInfo(&m.code);
	initStringInfo(&m.give);
	initStringInfo(&m.fields);
	initStringInfo(&m.reset);
	look(&m);
	/* which one, nobody here knows */
	if (m.meaning)
		appendStringInfo(&m.fields, ", %s => '...'", m.meaning);
	if (m.reset.len > 0)
		appendStringInfo(&m.fields, ", reset => '{%s}'", m.reset.data);
	rest = m.fields.len > 0 ? psprintf("SELECT sweeper.alter_policy(%s%s);", name, m.fields.data) :
		psprintf("SELECT sweeper.resume(%s);", name);

	/*
	 * what others wrote must not run as the owner because somebody pastes
	 * this
	 */
	if (m.give.len > 0)
		return in_comment(m.code.data, psprintf("if that may run as role %s: %s%s", quote_identifier(GetUserNameFromId(p->owner, false)),
												m.give.data, rest));
	if (m.fields.len == 0)
		return NULL;
	if (m.renamed)
		return in_comment(psprintf("SELECT deadline, last_seen, filter, set_clause, group_by FROM sweeper.policy WHERE policy = %s; ", name),
						  psprintf("then, with another %s: %s", m.vital, rest));
	if (m.vital)
		return in_comment(psprintf("SELECT sweeper.unregister(%s); ", name), psprintf("or, with another %s: %s", m.vital, rest));
	return rest;
}

/* What lifts a brake. */
char	   *
ssw_repair_hint_or_resume(const SswPolicy *p)
{
	char	   *step = ssw_repair_hint(p);

	return step ? step : psprintf("SELECT sweeper.resume(%s);", quote_literal_cstr(p->name));
}

/* _mend(policy_id): the same for views; null also for who may not see the policy. */
Datum
ssw_mend_policy(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = ssw_policy_load(PG_GETARG_INT32(0));
	char	   *step = p && ssw_rights_have(p, SSW_RIGHT_SEE) ? ssw_repair_hint(p) : NULL;

	if (step == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(step));
}
