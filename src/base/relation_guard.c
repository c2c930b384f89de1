/*
 * relation_guard.c
 *		Does a statement run on the tables, functions, operators and types that it means?
 *
 * Runs in any process that has loaded the library.  Statements name objects, and the
 * owner of a schema can give its name to another one at any moment, between our look at
 * the name and the server's, without a lock that we would notice.  So beside each name
 * stands the OID that is meant, as a comment, which is compared with what the parser
 * has found: before rules, planner, executor or triggers, which run code.  No lock on
 * the schema would do: others would queue for it, without any right.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_operator.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/relation_guard.h"
#include "base/ssw.h"

#define MARK		"/*session_sweeper OID "
#define MARK_END	"*/"
/* Our statements begin so.  Others may have such marks, too: in a value of a row that users' code puts into a statement. */
#define HEAD		"/*session_sweeper*/ "

/* A statement, the OIDs in it that have not been found yet, and whether one is at fault. */
typedef struct Statement
{
	const char *sql;
	List	   *meant;
	bool		wrong;
} Statement;

static post_parse_analyze_hook_type prev_post_parse_analyze = NULL;

static char *
marked(const char *name, Oid oid)
{
	return psprintf("%s " MARK "%u" MARK_END, name, oid);
}

/* schema.name, quoted. */
char	   *
ssw_guard_relation(Oid relid)
{
	char	   *schema = get_namespace_name(get_rel_namespace(relid));
	char	   *name = get_rel_name(relid);

	if (name == NULL || schema == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", relid)));
	return quote_qualified_identifier(schema, name);
}

/* The same for a statement in which it has alias t. */
char	   *
ssw_guard_table(Oid relid)
{
	return marked(ssw_guard_relation(relid), relid);
}

/* The name of a function for a statement. */
char	   *
ssw_guard_function(Oid func)
{
	char	   *schema = get_namespace_name(get_func_namespace(func));
	char	   *name = get_func_name(func);

	if (name == NULL || schema == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("function with OID %u does not exist", func)));
	return marked(quote_qualified_identifier(schema, name), func);
}

/* An operator between two columns or parameters. */
char	   *
ssw_guard_operator(Oid op)
{
	HeapTuple	tup = SearchSysCache1(OPEROID, ObjectIdGetDatum(op));
	Form_pg_operator form;
	char	   *schema;
	char	   *result;

	if (!HeapTupleIsValid(tup))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("operator with OID %u does not exist", op)));
	form = (Form_pg_operator) GETSTRUCT(tup);
	schema = get_namespace_name(form->oprnamespace);
	result = psprintf("OPERATOR(%s.%s)", quote_identifier(schema ? schema : ""), NameStr(form->oprname));
	ReleaseSysCache(tup);
	return op < FirstNormalObjectId ? result : marked(result, op);
}

/* The name of a type to which a statement casts, or of a column of a function. */
char	   *
ssw_guard_type(Oid type, int32 typmod)
{
	char	   *name = format_type_extended(type, typmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);

	return type < FirstNormalObjectId ? name : marked(name, type);
}

/* The statement, to be prepared. */
char	   *
ssw_guard_statement(const char *sql)
{
	return psprintf(HEAD "%s", sql);
}

/* The statement as people read it. */
char	   *
ssw_guard_plain(const char *sql)
{
	char	   *plain = pstrdup(sql);
	char	   *mark;

	while ((mark = strstr(plain, " " MARK)) != NULL)
	{
		char	   *end = strstr(mark, MARK_END);

		if (end == NULL)
			break;
		end += strlen(MARK_END);
		memmove(mark, end, strlen(end) + 1);
	}
	return plain;
}

/* The OID that stands behind the name at that place of the statement, or invalid. */
static Oid
meant_at(const char *sql, int location)
{
	const char *s = location < 0 || location >= strlen(sql) ? "" : sql + location;
	bool		quoted = false;

	if (strncmp(s, "OPERATOR(", 9) == 0)
		s += 9;
	for (; *s && (quoted || strchr(" ,(;", *s) == NULL); s++)
		quoted ^= *s == '"';
	return strncmp(s, " " MARK, strlen(MARK) + 1) == 0 ? strtoul(s + strlen(MARK) + 1, NULL, 10) : InvalidOid;
}

/* What an expression calls, or casts to; what is named with an OID must have that one. */
static void
drop_used(Node *node, Statement *st)
{
	List	  **meant = &st->meant;
	Oid			named = InvalidOid;
	Oid			found = InvalidOid;

	switch (nodeTag(node))
	{
		case T_FuncExpr:
			found = ((FuncExpr *) node)->funcid;
			if (((FuncExpr *) node)->funcformat == COERCE_EXPLICIT_CALL)
				named = meant_at(st->sql, ((FuncExpr *) node)->location);
			/* a cast by a function */
			if (((FuncExpr *) node)->funcformat == COERCE_EXPLICIT_CAST)
				*meant = list_delete_oid(*meant, ((FuncExpr *) node)->funcresulttype);
			break;
		case T_OpExpr:
			found = ((OpExpr *) node)->opno;
			named = meant_at(st->sql, ((OpExpr *) node)->location);
			break;
		case T_ScalarArrayOpExpr:
			found = ((ScalarArrayOpExpr *) node)->opno;
			named = meant_at(st->sql, ((ScalarArrayOpExpr *) node)->location);
			break;
		case T_RelabelType:
		case T_CoerceViaIO:
		case T_ArrayCoerceExpr:
		case T_ConvertRowtypeExpr:
		case T_RowExpr:
		case T_CoerceToDomain:
			*meant = list_delete_oid(*meant, exprType(node));
			break;
		default:
			break;
	}
	*meant = list_delete_oid(*meant, found);
	st->wrong = st->wrong || (OidIsValid(named) && named != found);
}

/* Take the OIDs that the query uses off the list. */
static bool
find_used(Node *node, Statement *st)
{
	ListCell   *lc;

	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = castNode(RangeTblEntry, node);

		if (rte->rtekind == RTE_RELATION && rte->alias && strcmp(rte->alias->aliasname, "t") == 0)
			st->meant = list_delete_oid(st->meant, rte->relid);
		return false;
	}
	if (IsA(node, RangeTblFunction))
		foreach(lc, castNode(RangeTblFunction, node)->funccoltypes)
			st->meant = list_delete_oid(st->meant, lfirst_oid(lc));
	drop_used(node, st);
	if (IsA(node, Query))
		return query_tree_walker(castNode(Query, node), find_used, st, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, find_used, st);
}

static void
check(const char *sql, Query *query)
{
	Statement	st = {.sql = sql};

	if (strncmp(sql, HEAD, strlen(HEAD)) != 0)
		return;
	for (const char *s = strstr(sql, MARK); s; s = strstr(s, MARK))
	{
		s += strlen(MARK);
		st.meant = lappend_oid(st.meant, strtoul(s, NULL, 10));
	}
	if (st.meant == NIL)
		return;
	(void) find_used((Node *) query, &st);
	if (st.meant != NIL || st.wrong)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("a name in a statement on rows of a policy now refers to another object"),
				 errdetail("A table, function, operator or type, or its schema, was renamed, or dropped and created again, while the statement was prepared."),
				 errhint("Try again.")));
}

/* Only what runs as a table's owner has such marks; what EXPLAIN explains comes by itself. */
static void
post_parse_analyze(ParseState *pstate, Query *query, JumbleState *jumble)
{
	if (InSecurityRestrictedOperation() && pstate->p_sourcetext && query->commandType != CMD_UTILITY)
		check(pstate->p_sourcetext, query);
	if (prev_post_parse_analyze)
		prev_post_parse_analyze(pstate, query, jumble);
}

void
ssw_guard_init(void)
{
	prev_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = post_parse_analyze;
}
