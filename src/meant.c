/*
 * meant.c
 *		Does a statement run on the tables that it means?
 *
 * Runs in any process that has loaded the library.  Statements name tables, and whoever
 * owns a schema can give its name to another one at any moment, between our look at
 * the name and the server's, without a lock that we would notice.  So beside each name
 * stands the OID that is meant, as a comment; when the executor starts, before any
 * trigger, the tables that were found are compared with it.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "nodes/plannodes.h"

#include "meant.h"
#include "ssw.h"

#define MARK		"/*OID "
#define MARK_END	"*/"

static ExecutorStart_hook_type prev_executor_start = NULL;

/* The name of a table for a statement in which it has alias t. */
char	   *
ssw_meant(const char *name, Oid relid)
{
	return psprintf("%s " MARK "%u" MARK_END, name, relid);
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

static void
check(const char *sql, const PlannedStmt *stmt)
{
	List	   *meant = NIL;
	ListCell   *lc;

	for (const char *s = strstr(sql, MARK); s; s = strstr(s, MARK))
	{
		s += strlen(MARK);
		meant = lappend_oid(meant, strtoul(s, NULL, 10));
	}
	if (meant == NIL)
		return;
	foreach(lc, stmt->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->rtekind == RTE_RELATION && rte->alias && strcmp(rte->alias->aliasname, "t") == 0)
			meant = list_delete_oid(meant, rte->relid);
	}
	if (meant != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("the name of a table of the policy is that of another one now"),
				 errdetail("The table, or its schema, was renamed while a statement on it was prepared."),
				 errhint("Try again.")));
	list_free(meant);
}

/* Only what runs as a table's owner has such marks. */
static void
executor_start(QueryDesc * desc, int eflags)
{
	if (InSecurityRestrictedOperation() && desc->sourceText)
		check(desc->sourceText, desc->plannedstmt);
	if (prev_executor_start)
		prev_executor_start(desc, eflags);
	else
		standard_ExecutorStart(desc, eflags);
}

void
ssw_meant_init(void)
{
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}
