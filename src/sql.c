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
#include "pgstat.h"
#include "storage/lock.h"
#include "utils/memutils.h"
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
 * Run one statement with parameters and return the number of rows; results are
 * in SPI_tuptable.  limit 0 is no limit.
 */
uint64
ssw_sql_exec(const char *sql, int nargs, Oid *types, Datum *values,
			 const char *nulls, bool read_only, long limit)
{
	int			rc = SPI_execute_with_args(sql, nargs, types, values, nulls,
										   read_only, limit);

	if (rc < 0)
		elog(ERROR, "statement failed with SPI code %d: %s", rc, sql);
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
	int			rc = SPI_execute_extended(sql, &options);

	if (rc < 0)
		elog(ERROR, "statement failed with SPI code %d: %s", rc, sql);
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
