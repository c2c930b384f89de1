/*
 * meant.c
 *		Does a statement run on the tables and functions that it means?
 *
 * Runs in any process that has loaded the library.  Statements name tables, functions
 * and types, and whoever owns a schema can give its name to another one at any moment,
 * between our look at the name and the server's.  So a schema that a statement names
 * is locked first, as CREATE and DROP in it do; ALTER SCHEMA ... RENAME, which locks
 * nothing by itself, waits for that (hooks.c).  And beside the name of a table or
 * function stands the OID that is meant, as a comment, which is compared with what
 * the parser has found: before rules, planner, executor or triggers, which run code.
 *
 * Shares nothing but these locks, which last until the end of the transaction; a crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/analyze.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "meant.h"
#include "ssw.h"

#define MARK		"/*OID "
#define MARK_END	"*/"

static post_parse_analyze_hook_type prev_post_parse_analyze = NULL;

/* The name of a schema, which is its name until the end of the transaction; or null. */
char	   *
ssw_meant_schema(Oid schema)
{
	if (schema != PG_CATALOG_NAMESPACE)
		LockDatabaseObject(NamespaceRelationId, schema, 0, AccessShareLock);
	return get_namespace_name(schema);
}

/* The role that renames a schema waits for those that have named it. */
void
ssw_meant_rename(const char *schema)
{
	Oid			oid = get_namespace_oid(schema, true);

	if (OidIsValid(oid))
		LockDatabaseObject(NamespaceRelationId, oid, 0, AccessExclusiveLock);
}

static char *
marked(Oid schema, const char *name, Oid oid, int code)
{
	char	   *schema_now = OidIsValid(schema) ? ssw_meant_schema(schema) : NULL;

	if (schema_now == NULL || name == NULL)
		ereport(ERROR,
				(errcode(code),
				 errmsg("%s with OID %u does not exist", code == ERRCODE_UNDEFINED_TABLE ? "relation" : "function", oid)));
	return psprintf("%s " MARK "%u" MARK_END, quote_qualified_identifier(schema_now, name), oid);
}

/* The name of a table for a statement in which it has alias t. */
char	   *
ssw_meant_table(Oid relid)
{
	return marked(get_rel_namespace(relid), get_rel_name(relid), relid, ERRCODE_UNDEFINED_TABLE);
}

/* The name of a function for a statement. */
char	   *
ssw_meant_function(Oid func)
{
	return marked(get_func_namespace(func), get_func_name(func), func, ERRCODE_UNDEFINED_FUNCTION);
}

/* The name of a type for a statement; its owner is trusted not to rename it. */
char	   *
ssw_meant_type(Oid type, int32 typmod)
{
	Oid			element = get_element_type(type);
	HeapTuple	tup = SearchSysCache1(TYPEOID, ObjectIdGetDatum(OidIsValid(element) ? element : type));

	if (HeapTupleIsValid(tup))
	{
		Oid			schema = ((Form_pg_type) GETSTRUCT(tup))->typnamespace;

		ReleaseSysCache(tup);
		(void) ssw_meant_schema(schema);
	}
	return format_type_extended(type, typmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
}

/* The statement as people read it. */
char	   *
ssw_meant_plain(const char *sql)
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

/* Take the OIDs that the query uses off the list. */
static bool
find_used(Node *node, List **meant)
{
	if (node == NULL || *meant == NIL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = castNode(RangeTblEntry, node);

		if (rte->rtekind == RTE_RELATION && rte->alias && strcmp(rte->alias->aliasname, "t") == 0)
			*meant = list_delete_oid(*meant, rte->relid);
		return false;
	}
	if (IsA(node, FuncExpr))
		*meant = list_delete_oid(*meant, castNode(FuncExpr, node)->funcid);
	if (IsA(node, Query))
		return query_tree_walker(castNode(Query, node), find_used, meant, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, find_used, meant);
}

static void
check(const char *sql, Query *query)
{
	List	   *meant = NIL;

	for (const char *s = strstr(sql, MARK); s; s = strstr(s, MARK))
	{
		s += strlen(MARK);
		meant = lappend_oid(meant, strtoul(s, NULL, 10));
	}
	if (meant == NIL)
		return;
	(void) find_used((Node *) query, &meant);
	if (meant != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the name of a table or function of the policy is that of another one now"),
				 errdetail("It was renamed, or dropped and created again, while a statement was prepared."),
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
ssw_meant_init(void)
{
	prev_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = post_parse_analyze;
}
