/*
 * expr.c
 *		Columns and SQL expressions that users name in a policy: look them up,
 *		parse them over the row, refuse what is not one plain expression.
 *
 * Runs in any process that validates or uses a policy, in a transaction, with a
 * lock on the relation, and inside of the gate (identity.c): parsing already runs
 * code of users, as the CHECK of a domain whose constant is read.  Shares nothing.
 * A crash leaves nothing behind.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/analyze.h"
#include "parser/parse_coerce.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/varlena.h"

#include "base/compat.h"
#include "base/identity.h"
#include "policy/expr.h"

/* Names farther apart than this are not suggested. */
#define MAX_DISTANCE	3

/* What a syntax or parse analysis error is about. */
typedef struct UserText
{
	const char *field;
	const char *sql;
} UserText;

/* Error positions are in our statement, not in the client's. */
static void
expr_error_callback(void *arg)
{
	UserText   *cxt = arg;
	int			pos = geterrposition();

	if (pos > 0)
	{
		errposition(0);
		internalerrposition(pos);
		internalerrquery(cxt->sql);
	}
	errcontext("policy argument \"%s\"", cxt->field);
}

/* The candidate most like name, or null; half of a short name is another name. */
const char *
ssw_expr_similar(const char *name, const char *const *candidates, int n)
{
	const char *best = NULL;
	int			limit = Min(MAX_DISTANCE, strlen(name) / 2);

	for (int i = 0; i < n && limit >= 0; i++)
	{
		int			d = pg_strcasecmp(name, candidates[i]) == 0 ? 0 :
		varstr_levenshtein_less_equal(name, strlen(name), candidates[i], strlen(candidates[i]), 1, 1, 1, limit, true);

		if (d <= limit)
		{
			best = candidates[i];
			limit = d - 1;
		}
	}
	return best;
}

/* The user column of exactly this name, or 0. */
AttrNumber
ssw_expr_find_column(Relation rel, const char *name)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), name);

	return attnum > 0 ? attnum : InvalidAttrNumber;
}

/* A column that must exist. */
AttrNumber
ssw_expr_column(Relation rel, const char *field, const char *name)
{
	TupleDesc	desc = RelationGetDescr(rel);
	AttrNumber	attnum = ssw_expr_find_column(rel, name);
	const char **names;
	const char *similar;
	int			n = 0;

	if (attnum != InvalidAttrNumber)
		return attnum;
	names = palloc(sizeof(char *) * Max(desc->natts, 1));
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped)
			names[n++] = NameStr(TupleDescAttr(desc, i)->attname);
	similar = ssw_expr_similar(name, names, n);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of relation \"%s\" does not exist", name,
					RelationGetRelationName(rel)),
			 errdetail("Argument \"%s\" of the policy names it.", field),
			 similar ? errhint("Perhaps you meant the column \"%s\".", similar) :
			 errhint("Give a column's name exactly as it is stored, without quotes.")));
	return InvalidAttrNumber;
}

/* Is this select nothing but one unnamed target? */
static bool
is_bare_select(const SelectStmt *s)
{
	ResTarget  *target;

	if (s->op != SETOP_NONE || list_length(s->targetList) != 1 || s->distinctClause ||
		s->intoClause || s->fromClause || s->whereClause || s->groupClause ||
		s->groupDistinct || s->havingClause || s->windowClause || s->valuesLists ||
		s->sortClause || s->limitOffset || s->limitCount || s->lockingClause ||
		s->withClause)
		return false;
	target = linitial_node(ResTarget, s->targetList);
	if (target->name || target->indirection)
		return false;
	if (IsA(target->val, ColumnRef) &&
		IsA(llast(((ColumnRef *) target->val)->fields), A_Star))
		return false;
	return true;
}

/*
 * The raw tree of exactly one expression.  The text is parsed without
 * added parentheses, so that it cannot close them; a comment at its end ends
 * with the line.
 */
static Node *
parse_raw(const char *field, const char *text)
{
	UserText	cxt = {field, psprintf("SELECT %s", text)};
	ErrorContextCallback callback = {error_context_stack, expr_error_callback, &cxt};
	List	   *stmts;
	Node	   *stmt = NULL;

	error_context_stack = &callback;
	stmts = raw_parser(psprintf("%s\n", cxt.sql), RAW_PARSE_DEFAULT);
	error_context_stack = callback.previous;
	if (list_length(stmts) == 1)
		stmt = linitial_node(RawStmt, stmts)->stmt;
	if (stmt == NULL || !IsA(stmt, SelectStmt) || !is_bare_select((SelectStmt *) stmt))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("argument \"%s\" of the policy is not a single expression", field),
				 errdetail("It reads: %s", text),
				 errhint("Give a single SQL expression over the columns of the row.")));
	return linitial_node(ResTarget, ((SelectStmt *) stmt)->targetList)->val;
}

/* What can make an expression unfit, beyond its syntax. */
static void
check_contents(const char *field, const char *text, ParseState *pstate, Node *node)
{
	const char *what = NULL;

	if (pstate->p_hasSubLinks)
		what = "a subquery";
	else if (pstate->p_hasAggs)
		what = "an aggregate";
	else if (pstate->p_hasWindowFuncs)
		what = "a window function";
	else if (expression_returns_set(node))
		what = "a set-returning function";
	if (what)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("argument \"%s\" of the policy must not contain %s", field, what),
				 errdetail("It is evaluated for each row by itself."),
				 errhint("Move it into a stable function that takes columns of the row.")));
	if (contain_volatile_functions(node))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("argument \"%s\" of the policy must not be volatile", field),
				 errdetail("A volatile expression can have another value each time it is evaluated."),
				 errhint("Use columns and immutable or stable functions only; the time is now().")));
	/* a filter may be a function that switches the policy off */
	if (strcmp(field, "filter") != 0 && !contain_var_clause(node))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must depend on the row", field),
				 errdetail("%s is the same for every row.", text),
				 errhint("Use a column, or an expression over columns. A column whose name is a key word needs double quotes.")));
}

/*
 * Parse an expression over a row of rel, known as t, its constants as in this
 * session.  What needs other rows or tables goes into a function, which runs with
 * the rights of the owner.
 */
Node	   *
ssw_expr_parse_here(Relation rel, const char *field, const char *text)
{
	UserText	cxt = {field, psprintf("SELECT %s", text)};
	ErrorContextCallback callback = {error_context_stack, expr_error_callback, &cxt};
	ParseState *pstate = make_parsestate(NULL);
	ParseNamespaceItem *nsitem;
	Node	   *raw;
	Node	   *node;
	Oid			type;

	ssw_gate_require();
	if (ssw_expr_find_column(rel, text) != InvalidAttrNumber)
	{
		/* a column of exactly this name needs no quotes */
		ColumnRef  *ref = makeNode(ColumnRef);

		ref->fields = list_make1(makeString(pstrdup(text)));
		ref->location = -1;
		raw = (Node *) ref;
	}
	else
	{
		List	   *fields;

		raw = parse_raw(field, text);
		/* a name alone means a column, or nothing */
		fields = IsA(raw, ColumnRef) ? ((ColumnRef *) raw)->fields : NIL;
		if (list_length(fields) == 1 && IsA(linitial(fields), String))
			(void) ssw_expr_column(rel, field, strVal(linitial(fields)));
	}
	error_context_stack = &callback;
	pstate->p_sourcetext = cxt.sql;
	nsitem = addRangeTableEntryForRelation(pstate, rel, AccessShareLock,
										   makeAlias("t", NIL), false, true);
	addNSItemToQuery(pstate, nsitem, false, true, true);
	node = transformExpr(pstate, raw, EXPR_KIND_OTHER);
	type = exprType(node);
	if (strcmp(field, "filter") == 0)
		node = coerce_to_boolean(pstate, node, field);
	else if (type == UNKNOWNOID)
		node = coerce_type(pstate, node, type, TEXTOID, -1, COERCION_IMPLICIT,
						   COERCE_IMPLICIT_CAST, -1);
	assign_expr_collations(pstate, node);
	error_context_stack = callback.previous;
	check_contents(field, text, pstate, node);
	free_parsestate(pstate);
	return node;
}

/* The same, constants as a pass reads them. */
Node	   *
ssw_expr_parse(Relation rel, const char *field, const char *text)
{
	int			level = NewGUCNestLevel();
	Node	   *node;

	ssw_identity_pin_text();
	node = ssw_expr_parse_here(rel, field, text);
	AtEOXact_GUC(true, level);
	return node;
}

/* The column that an expression is, or 0. */
AttrNumber
ssw_expr_as_column(const Node *node)
{
	const		Var *var = (const Var *) node;

	return IsA(node, Var) && var->varlevelsup == 0 && var->varattno > 0 ? var->varattno : InvalidAttrNumber;
}

/*
 * SQL for a parsed expression, names qualified as the present search_path
 * needs, constants as a pass reads them; prefix for "t.column", else for a CREATE
 * INDEX statement.
 */
char	   *
ssw_expr_text(Relation rel, Node *node, bool prefix)
{
	List	   *context = deparse_context_for("t", RelationGetRelid(rel));
	int			level = NewGUCNestLevel();
	char	   *text;

	ssw_identity_pin_text();
	text = deparse_expression(node, context, prefix, false);

	AtEOXact_GUC(true, level);
	return text;
}

/* As the planner would see it, to compare with index expressions. */
Node	   *
ssw_expr_folded(Node *node)
{
	ssw_gate_require();
	return eval_const_expressions(NULL, copyObject(node));
}

static bool
refuse_parameters(Node *node, void *arg)
{
	if (node && IsA(node, ParamRef))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("there is no parameter $%d", ((ParamRef *) node)->number)));
	return node && raw_expression_tree_walker(node, refuse_parameters, arg);
}

/*
 * Names of the columns that a SET list writes.  An error when it is more than that: no
 * WHERE, FROM or second statement hides in it.
 */
List	   *
ssw_expr_set_columns(const char *set_clause)
{
	UserText	cxt = {"set_clause", psprintf("UPDATE t SET %s", set_clause)};
	ErrorContextCallback callback = {error_context_stack, expr_error_callback, &cxt};
	List	   *stmts;
	UpdateStmt *stmt = NULL;
	List	   *names = NIL;
	ListCell   *lc;
	int			level = NewGUCNestLevel();

	ssw_identity_pin_text();
	error_context_stack = &callback;
	stmts = raw_parser(psprintf("%s\n", cxt.sql), RAW_PARSE_DEFAULT);
	if (list_length(stmts) == 1)
		stmt = (UpdateStmt *) linitial_node(RawStmt, stmts)->stmt;
	if (stmt && IsA(stmt, UpdateStmt))
		(void) refuse_parameters((Node *) stmt, NULL);
	error_context_stack = callback.previous;
	AtEOXact_GUC(true, level);
	if (stmt == NULL || !IsA(stmt, UpdateStmt) || stmt->whereClause || stmt->fromClause ||
		ssw_update_returning(stmt) || stmt->withClause)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("argument \"%s\" of the policy is not a single SET list", "set_clause"),
				 errdetail("It reads: %s", set_clause),
				 errhint("Give what stands between SET and WHERE, for example: set_clause => 'revoked = true'.")));
	foreach(lc, stmt->targetList)
		names = lappend(names, lfirst_node(ResTarget, lc)->name);
	return names;
}
