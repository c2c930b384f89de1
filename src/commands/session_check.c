/*
 * session_check.c
 *		Does an expression of a policy mean something else in another session?
 *
 * Runs in the backend that registers or alters a policy.  A pass evaluates
 * expressions in UTC and with ISO dates; where that is not what the application
 * does, living rows would die.  What depends on the time zone is refused: by what it
 * is made of, and by its constants.  Text of a row may have an offset, or none: where
 * it is read as a time, somebody has to confirm what it means.  Expressions are parsed as the relation's
 * owner.  Shares and changes nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "nodes/primnodes.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/spi.h"
#include "commands/args.h"
#include "commands/preview.h"
#include "commands/session_check.h"
#include "policy/expr.h"
#include "policy/sweep_sql.h"

static bool
is_local(Oid type)
{
	return type == TIMESTAMPOID || type == DATEOID || type == TIMEOID || type == TIMETZOID;
}

/* Does a function of the server turn instants into local times, or back, or compare them? */
static bool
mixes(Oid func, void *context)
{
	Oid		   *args;
	int			n;
	Oid			result;
	bool		instant,
				local;

	if (func >= FirstGenbkiObjectId || func_volatile(func) != PROVOLATILE_STABLE)
		return false;
	if (func == F_DATE_TRUNC_TEXT_TIMESTAMPTZ || func == F_TO_CHAR_TIMESTAMPTZ_TEXT || func == F_TO_TIMESTAMP_TEXT_TEXT)
		return true;
	result = get_func_signature(func, &args, &n);
	instant = result == TIMESTAMPTZOID;
	local = is_local(result);
	for (int i = 0; i < n; i++)
	{
		instant |= args[i] == TIMESTAMPTZOID;
		local |= is_local(args[i]);
	}
	return instant && local;
}

static bool
depends(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, SQLValueFunction) && is_local(((SQLValueFunction *) node)->type))
		return true;
	return check_functions_in_node(node, mixes, context) || expression_tree_walker(node, depends, context);
}

/* Is text read as an instant? */
static bool
reads_text(Node *node, void *context)
{
	if (node == NULL)
		return false;
	return (IsA(node, CoerceViaIO) && ((CoerceViaIO *) node)->resulttype == TIMESTAMPTZOID) ||
		expression_tree_walker(node, reads_text, context);
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

static void
compare(void *arg)
{
	Parsed	   *m = arg;
	Node	   *theirs = ssw_expr_parse_here(m->rel, m->field, m->sql);

	m->ours = ssw_expr_parse(m->rel, m->field, m->sql);
	m->same = equal(theirs, m->ours);
}

/* An expression as the caller gave it; one that decides about a row must not depend on the zone, either. */
static void
check_text(const SswPolicy *p, Relation rel, const char *field, const char *sql, bool decides)
{
	Parsed		m = {.rel = rel,.field = field,.sql = sql};

	if (sql == NULL || ssw_expr_find_column(rel, sql) != InvalidAttrNumber)
		return;
	ssw_gate_unpinned(p->owner, p->search_path, compare, &m);
	if (!m.same || (decides && depends(m.ours, NULL)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s depends on settings of the session", field),
				 errdetail("A pass evaluates it in UTC, with ISO dates and standard_conforming_strings: %s", sql),
				 errhint("For a local time, give only the column's name, with timezone => '...'. In an expression, give constants an offset and convert with AT TIME ZONE. Write each backslash once, and IS NULL instead of = NULL.")));
	if (decides && reads_text(m.ours, NULL))
		p->args->doubt = psprintf("Text without an offset in %s is read as UTC.", field);
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
