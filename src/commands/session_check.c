/*
 * session_check.c
 *		Does an expression of a policy mean something else in another session?
 *
 * Runs in the backend that registers or alters a policy.  A pass evaluates
 * expressions in UTC and with ISO dates; where that is not what the application
 * does, living rows would die.  What depends on the time zone is refused: by what it
 * is made of, and by its constants.  Text of a row may have an offset, or none, and what
 * a user's function does with times is not known: somebody has to confirm what is meant.
 * Expressions are parsed as the relation's owner.  Shares and changes nothing; a crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "nodes/primnodes.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "commands/args.h"
#include "commands/session_check.h"
#include "policy/expr.h"

/* What makes an expression depend on the time zone. */
typedef struct Zone
{
	Node	   *node;			/* that is looked at */
	bool		instants;		/* among what it takes and returns */
	bool		local_times;
	bool		needed;
	bool		read_from_text;
	Oid			function;		/* of a user, that may need it */
} Zone;

static bool
is_instant(Oid type)
{
	Oid			element = get_element_type(getBaseType(type));

	return getBaseType(OidIsValid(element) ? element : type) == TIMESTAMPTZOID;
}

static bool
is_local(Oid type)
{
	Oid			element = get_element_type(getBaseType(type));

	type = getBaseType(OidIsValid(element) ? element : type);
	return type == TIMESTAMPOID || type == DATEOID || type == TIMEOID || type == TIMETZOID;
}

/* Is it extract(epoch from ...)? */
static bool
extracts_epoch(const Node *node, Oid func)
{
	const		Const *field;

	if (func != F_EXTRACT_TEXT_TIMESTAMPTZ && func != F_DATE_PART_TEXT_TIMESTAMPTZ)
		return false;
	field = linitial(((const FuncExpr *) node)->args);
	return IsA(field, Const) && !field->constisnull && pg_strcasecmp(TextDatumGetCString(field->constvalue), "epoch") == 0;
}

/* Functions of the server that take or return instants, are not immutable, and need no zone. */
static bool
is_without_zone(const Node *node, Oid func)
{
	switch (func)
	{
		case F_NOW:
		case F_TRANSACTION_TIMESTAMP:
		case F_STATEMENT_TIMESTAMP:
		case F_CLOCK_TIMESTAMP:
		case F_DATE_TRUNC_TEXT_TIMESTAMPTZ_TEXT:
		case F_MAKE_TIMESTAMPTZ_INT4_INT4_INT4_INT4_INT4_FLOAT8_TEXT:
		case F_TIMESTAMPTZ_PL_INTERVAL: /* a day is 24 hours, as in UTC */
		case F_TIMESTAMPTZ_MI_INTERVAL:
		case F_INTERVAL_PL_TIMESTAMPTZ:
			return true;
		default:
			return extracts_epoch(node, func);
	}
}

static bool
look_at_function(Oid func, void *context)
{
	Zone	   *zone = context;

	if (func >= FirstGenbkiObjectId && (zone->instants || zone->local_times))
		zone->function = func;
	else if (func == F_AGE_TIMESTAMPTZ_TIMESTAMPTZ) /* is called immutable */
		zone->needed = true;
	else if (func < FirstGenbkiObjectId && func_volatile(func) != PROVOLATILE_IMMUTABLE)
		zone->needed |= func == F_CURRENT_SETTING_TEXT || func == F_CURRENT_SETTING_TEXT_BOOL || func == F_AGE_TIMESTAMP ||
			(zone->instants && !is_without_zone(zone->node, func));
	return false;
}

static bool
note_times(Node *node, void *context)
{
	Zone	   *zone = context;

	if (IsA(node, List))		/* a row's */
		return expression_tree_walker(node, note_times, zone);
	zone->instants |= is_instant(exprType(node));
	zone->local_times |= is_local(exprType(node));
	return false;
}

static bool
look_at(Node *node, void *context)
{
	Zone	   *zone = context;

	if (node == NULL)
		return false;
	if (IsA(node, CoerceViaIO))
	{
		zone->needed |= is_instant(exprType((Node *) ((CoerceViaIO *) node)->arg));
		zone->read_from_text |= is_instant(exprType(node));
	}
	else if (IsA(node, FuncExpr) || IsA(node, OpExpr) || IsA(node, DistinctExpr) || IsA(node, NullIfExpr) || IsA(node, ScalarArrayOpExpr) || IsA(node, RowCompareExpr))
	{
		zone->node = node;
		zone->instants = zone->local_times = false;
		(void) note_times(node, zone);
		(void) expression_tree_walker(node, note_times, zone);
		(void) check_functions_in_node(node, look_at_function, zone);
	}
	zone->needed |= IsA(node, SQLValueFunction) && is_local(((SQLValueFunction *) node)->type);
	return expression_tree_walker(node, look_at, zone);
}

/* What an expression means to the caller and in a pass. */
typedef struct Parsed
{
	Relation	rel;
	const char *field;
	const char *sql;
	Node	   *ours;
	bool		same;
} Parsed;

static bool
collect_local_constants(Node *node, void *context)
{
	List	  **found = context;

	if (node && IsA(node, Const) && is_local(((Const *) node)->consttype))
		*found = lappend(*found, node);
	return node && expression_tree_walker(node, collect_local_constants, context);
}

/* The local times that the text has in a zone. */
static List *
local_constants(const Parsed *m, const char *zone)
{
	int			level = NewGUCNestLevel();
	List	   *found = NIL;

	(void) set_config_option("TimeZone", zone, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) collect_local_constants(ssw_expr_parse_here(m->rel, m->field, m->sql), &found);
	AtEOXact_GUC(true, level);
	return found;
}

/* 'today' is a constant; it is never the same day in both of these zones. */
static bool
names_a_day(const Parsed *m)
{
	return !equal(local_constants(m, "Etc/GMT+12"), local_constants(m, "Etc/GMT-14"));
}

static void
compare(void *arg)
{
	Parsed	   *m = arg;
	Node	   *theirs = ssw_expr_parse_here(m->rel, m->field, m->sql);

	m->ours = ssw_expr_parse(m->rel, m->field, m->sql);
	m->same = equal(theirs, m->ours) && !names_a_day(m);
}

/* An expression as the caller gave it; one that decides about a row must not depend on the zone, either. */
static void
check_text(const SswPolicy *p, Relation rel, const char *field, const char *sql, bool decides)
{
	Parsed		m = {.rel = rel,.field = field,.sql = sql};
	Zone		zone = {0};

	if (sql == NULL || ssw_expr_find_column(rel, sql) != InvalidAttrNumber)
		return;
	ssw_gate_unpinned(p->owner, p->search_path, compare, &m);
	if (decides)
		(void) look_at(m.ours, &zone);
	if (!m.same || zone.needed)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s depends on settings of the session", field),
				 errdetail("A pass evaluates it in UTC, with ISO dates and standard_conforming_strings: %s", sql),
				 errhint("For a local time, give only the column's name, with timezone => '...'. In an expression, give constants an offset and convert with AT TIME ZONE. Write each backslash once, and IS NULL instead of = NULL.")));
	if (zone.read_from_text)
		p->args->doubt = psprintf("Text without an offset in %s is read as UTC.", field);
	else if (OidIsValid(zone.function))
		p->args->doubt = psprintf("Function %s in %s is called with time zone UTC.", format_procedure(zone.function), field);
}

/* Check what is given of the expressions; the first three decide about a row. */
void
ssw_session_check(const SswPolicy *p, Relation rel)
{
	static const SswArg texts[] = {SSW_ARG_DEADLINE, SSW_ARG_LAST_SEEN, SSW_ARG_FILTER, SSW_ARG_GROUP_BY};

	for (int i = 0; i < lengthof(texts); i++)
	{
		const SswField *f = &ssw_fields[texts[i]];

		if (p->args->given[texts[i]])
			check_text(p, rel, f->name, *(char *const *) ((const char *) p + f->offset), i < 3);
	}
}
