/*
 * sql.c
 *		SPI scope, statement helpers, and transactions of our processes.
 *
 * Runs in any process inside a transaction; shares nothing; an abort cleans up
 * whatever is open.  Identifiers reach SQL through quote_identifier() and
 * values through parameters only.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"

#include "sql.h"

void
ssw_sql_begin(void)
{
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
}

/* For a procedure that may end the transaction. */
void
ssw_sql_begin_nonatomic(void)
{
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
}

void
ssw_sql_end(void)
{
	SPI_finish();
}

/*
 * Analyse a statement of ours.  FORCE ROW LEVEL SECURITY does not hide a table's
 * rows from its owner here, or sweeping such a table would silently skip them.
 * Only here: of what the statement then runs, functions that others define for
 * their callers would be exempt from it too.
 */
SPIPlanPtr
ssw_sql_prepare(const char *sql, int nargs, Oid *types, int options)
{
	Oid			userid;
	int			sec_context;
	SPIPlanPtr	plan;

	GetUserIdAndSecContext(&userid, &sec_context);
	SetUserIdAndSecContext(userid, sec_context | SECURITY_NOFORCE_RLS);
	plan = SPI_prepare_cursor(sql, nargs, types, options);
	SetUserIdAndSecContext(userid, sec_context);
	if (plan == NULL)
		elog(ERROR, "could not prepare statement: %s", sql);
	return plan;
}

static bool
find_security_quals(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
		return ((RangeTblEntry *) node)->securityQuals != NIL;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, find_security_quals, context, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, find_security_quals, context);
}

/* Was a kept plan analysed anew since, so that row security restricts it? */
bool
ssw_sql_is_restricted(SPIPlanPtr plan)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));
	ListCell   *lc;

	foreach(lc, source->query_list)
	{
		Query	   *query = lfirst(lc);

		if (query->hasRowSecurity && find_security_quals((Node *) query, NULL))
			return true;
	}
	return false;
}

/*
 * Run one statement with parameters and return the number of rows; results are
 * in SPI_tuptable.  limit 0 is no limit.
 */
uint64
ssw_sql_exec(const char *sql, int nargs, Oid *types, Datum *values,
			 const char *nulls, bool read_only, long limit)
{
	SPIPlanPtr	plan = ssw_sql_prepare(sql, nargs, types, CURSOR_OPT_CUSTOM_PLAN);
	int			rc = SPI_execute_plan(plan, values, nulls, read_only, limit);

	if (rc < 0)
		elog(ERROR, "statement failed with SPI code %d: %s", rc, sql);
	SPI_freeplan(plan);
	return SPI_processed;
}

static ParamListInfo
make_params(int nargs, Oid *types, Datum *values, const bool *nulls)
{
	ParamListInfo params = makeParamList(nargs);

	for (int i = 0; i < nargs; i++)
	{
		params->params[i].value = values[i];
		params->params[i].isnull = nulls && nulls[i];
		params->params[i].pflags = PARAM_FLAG_CONST;
		params->params[i].ptype = types[i];
	}
	return params;
}

/* Run one statement that only reads; its rows go to dest. */
void
ssw_sql_send(const char *sql, int nargs, Oid *types, Datum *values,
			 const bool *nulls, DestReceiver *dest)
{
	SPIExecuteOptions options = {.params = make_params(nargs, types, values, nulls),.read_only = true,.dest = dest};
	SPIPlanPtr	plan = ssw_sql_prepare(sql, nargs, types, CURSOR_OPT_CUSTOM_PLAN);
	int			rc = SPI_execute_plan_extended(plan, &options);

	if (rc < 0)
		elog(ERROR, "statement failed with SPI code %d: %s", rc, sql);
	SPI_freeplan(plan);
}

/* A column as text, in CurrentMemoryContext of SPI, or null. */
char	   *
ssw_sql_value(HeapTuple tup, TupleDesc desc, int col)
{
	return SPI_getvalue(tup, desc, col);
}

Datum
ssw_sql_datum(HeapTuple tup, TupleDesc desc, int col, bool *isnull)
{
	return SPI_getbinval(tup, desc, col, isnull);
}

void
ssw_sql_start_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

/* Nothing that code of users left in the session outlives its transaction. */
static void
reset_session(void)
{
	LockReleaseAll(USER_LOCKMETHOD, true);
	ResetSequenceCaches();
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
}

/* Commit, and hand this process's statistics to the cumulative system. */
void
ssw_sql_commit(void)
{
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	CommitTransactionCommand();
	reset_session();
}

/* Abort after an error was copied and flushed. */
void
ssw_sql_abort(void)
{
	AbortCurrentTransaction();
	reset_session();
}
