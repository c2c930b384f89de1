/*
 * spi.c
 *		SPI scope, statement helpers, and transactions of our processes.
 *
 * Runs in any process inside a transaction; shares nothing; an abort cleans up
 * whatever is open.  Identifiers reach SQL through quote_identifier() and
 * values through parameters only.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "base/error_class.h"
#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"

/* What we run takes new snapshots, which parallel queries do not allow. */
void
ssw_spi_refuse_parallel(void)
{
	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot run statements of session_sweeper during a parallel operation"),
				 errhint("Mark the function that calls it PARALLEL UNSAFE.")));
}

/* ereport where nothing can be written; the server would, but without a hint. */
void
ssw_spi_refuse_read_only(const char *function)
{
	if (!XactReadOnly)
		return;
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute %s on a standby", function),
				 errhint("Call it on the primary.")));
	ereport(ERROR,
			(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
			 errmsg("cannot execute %s in a read-only transaction", function),
			 errhint("SET TRANSACTION READ WRITE; or look at \"default_transaction_read_only\".")));
}

void
ssw_spi_begin(void)
{
	ssw_spi_refuse_parallel();
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
}

/* For a procedure that may end the transaction. */
void
ssw_spi_begin_nonatomic(void)
{
	ssw_spi_refuse_parallel();
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
}

void
ssw_spi_end(void)
{
	SPI_finish();
}

/* The same as the extension's owner, for our own statements, until ssw_spi_end_as(). */
void
ssw_spi_begin_as_extension(SswIdentity *save)
{
	ssw_identity_become_extension(save);
	ssw_spi_begin();
}

/* The same in the gate, for statements on that role's tables. */
void
ssw_spi_begin_as_owner(Oid owner, const char *search_path, SswIdentity *save)
{
	ssw_identity_become_owner(owner, search_path, save);
	ssw_spi_begin();
}

void
ssw_spi_end_as(const SswIdentity *save)
{
	ssw_spi_end();
	ssw_identity_restore(save);
}

/* Are we the owner of this table, and does FORCE ROW LEVEL SECURITY hide rows from us? */
static bool
is_forced(const RangeTblEntry * rte)
{
	return rte->rtekind == RTE_RELATION && rte->securityQuals != NIL && ssw_relation_owner(rte->relid) == GetUserId();
}

/* Find it in tables that the statement itself names; lift: and take it away. */
static bool
find_forced(Query *query, bool lift)
{
	bool		found = false;
	ListCell   *lc;

	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst(lc);

		if (rte->rtekind == RTE_SUBQUERY)
			found = find_forced(rte->subquery, lift) || found;
		if (!is_forced(rte))
			continue;
		found = true;
		if (lift && query->resultRelation > 0 && rt_fetch(query->resultRelation, query->rtable) == rte)
			query->withCheckOptions = NIL;
		if (lift)
			rte->securityQuals = NIL;
	}
	foreach(lc, query->cteList)
		found = find_forced((Query *) lfirst_node(CommonTableExpr, lc)->ctequery, lift) || found;
	return found;
}

static bool
find_forced_in_plan(SPIPlanPtr plan, bool lift)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));
	bool		found = false;
	ListCell   *lc;

	foreach(lc, source->query_list)
	{
		Query	   *query = lfirst_node(Query, lc);

		if (query->hasRowSecurity)
			found = find_forced(query, lift) || found;
	}
	return found;
}

/*
 * Tables of other roles that are no superusers can have code of these roles: a statement
 * on one belongs into the gate.
 */
static void
check_tables(SPIPlanPtr plan)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));
	ListCell   *lc;

	if (InSecurityRestrictedOperation())
		return;
	foreach(lc, source->relationOids)
	{
		Oid			owner = ssw_relation_owner(lfirst_oid(lc));

		if (OidIsValid(owner) && owner != GetUserId() && !superuser_arg(owner))
			ssw_gate_require();
	}
}

/*
 * Analyse one of our statements.  FORCE ROW LEVEL SECURITY does not hide a swept
 * table's rows from it, or sweeping such a table would silently skip them.  It does
 * in subqueries that users wrote, and in all that the statement calls: the server's
 * own switch would lift it for views and functions of others, too.
 */
SPIPlanPtr
ssw_spi_prepare(const char *sql, int nargs, Oid *types, int options)
{
	SPIPlanPtr	plan = SPI_prepare_cursor(ssw_guard_statement(sql), nargs, types, options);

	if (plan == NULL)
		elog(ERROR, "could not prepare statement: %s", sql);
	check_tables(plan);
	(void) find_forced_in_plan(plan, true);
	return plan;
}

/* Was a kept plan analysed again since, so that row security restricts it? */
bool
ssw_spi_is_restricted(SPIPlanPtr plan)
{
	return find_forced_in_plan(plan, false);
}

/*
 * Call it in a subtransaction, which it may have undone.  Returns its error, or null;
 * both contexts are the caller's, in the call too.
 */
ErrorData  *
ssw_spi_try(SswTry call, void *arg)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		if (call(arg))
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		error = ssw_error_catch();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	return error;
}

/*
 * Run one statement with parameters and return the number of rows; results are
 * in SPI_tuptable.  limit 0 is no limit.
 */
uint64
ssw_spi_exec(const char *sql, int nargs, Oid *types, Datum *values,
			 const char *nulls, bool read_only, long limit)
{
	SPIPlanPtr	plan = ssw_spi_prepare(sql, nargs, types, CURSOR_OPT_CUSTOM_PLAN);
	int			rc = SPI_execute_plan(plan, values, nulls, read_only, limit);

	if (rc < 0)
		elog(ERROR, "statement failed with SPI code %d: %s", rc, sql);
	SPI_freeplan(plan);
	return SPI_processed;
}

/* Parameters of a statement.  Without nulls, a value by reference that is 0 is null. */
ParamListInfo
ssw_spi_params(int nargs, Oid *types, Datum *values, const bool *nulls)
{
	ParamListInfo params = makeParamList(nargs);

	for (int i = 0; i < nargs; i++)
	{
		params->params[i].value = values[i];
		params->params[i].isnull = nulls ? nulls[i] : values[i] == (Datum) 0 && !get_typbyval(types[i]);
		params->params[i].pflags = PARAM_FLAG_CONST;
		params->params[i].ptype = types[i];
	}
	return params;
}

/* Run one statement that only reads; its rows go to dest. */
void
ssw_spi_send(const char *sql, int nargs, Oid *types, Datum *values,
			 const bool *nulls, DestReceiver *dest)
{
	SPIExecuteOptions options = {.params = ssw_spi_params(nargs, types, values, nulls),.read_only = true,.dest = dest};
	SPIPlanPtr	plan = ssw_spi_prepare(sql, nargs, types, CURSOR_OPT_CUSTOM_PLAN);
	int			rc = SPI_execute_plan_extended(plan, &options);

	if (rc < 0)
		elog(ERROR, "statement failed with SPI code %d: %s", rc, sql);
	SPI_freeplan(plan);
}

/* A column of a row that the last query returned; null is 0. */
Datum
ssw_spi_column(uint64 row, int col)
{
	bool		isnull;

	return SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, col, &isnull);
}

/* The same as text; null is null. */
char	   *
ssw_spi_text(uint64 row, int col)
{
	return SPI_getvalue(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, col);
}

/* Run one statement as the extension's owner; returns its rows.  One that only reads sees what the active snapshot does. */
uint64
ssw_spi_exec_as_extension(const char *sql, int nargs, Oid *types, Datum *values,
						  const char *nulls, bool read_only)
{
	SswIdentity save;
	uint64		n;

	ssw_spi_begin_as_extension(&save);
	n = ssw_spi_exec(sql, nargs, types, values, nulls, read_only, 0);
	ssw_spi_end_as(&save);
	return n;
}

/* The same for the first column of its first row, in CurrentMemoryContext; null when there is none. */
char	   *
ssw_spi_text_as_extension(const char *sql, int nargs, Oid *types, Datum *values, bool read_only)
{
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;
	char	   *result = NULL;

	ssw_spi_begin_as_extension(&save);
	if (ssw_spi_exec(sql, nargs, types, values, NULL, read_only, 1) > 0)
		result = ssw_spi_text(0, 1);
	if (result)
		result = MemoryContextStrdup(cxt, result);
	ssw_spi_end_as(&save);
	return result;
}

void
ssw_spi_start_transaction(void)
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
ssw_spi_commit(void)
{
	if (ActiveSnapshotSet())
		PopActiveSnapshot();
	CommitTransactionCommand();
	reset_session();
}

/* Abort after an error was copied and flushed. */
void
ssw_spi_abort(void)
{
	AbortCurrentTransaction();
	reset_session();
}
