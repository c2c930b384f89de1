/*
 * task_wait.c
 *		claim_wait() and wait_for_task(): wait for tasks, or for one to end.
 *
 * Run in the caller's session.  Each look is a transaction of its own; between
 * looks the session sleeps on a condition variable of task_shmem.c, without a
 * transaction or snapshot, and is woken by commits.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "base/arguments.h"
#include "base/compat.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/identity.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "work/task_shmem.h"
#include "work/task_wait.h"
#include "work/work_state.h"

PG_FUNCTION_INFO_V1(ssw_claim_wait);
PG_FUNCTION_INFO_V1(ssw_wait_for_task);

/* Of libpq/libpq.h, which cannot be included without the headers of GSSAPI. */
extern bool pq_check_connection(void);

/* A commit of a prepared transaction wakes nobody. */
#define LOOK_EVERY_MS	1000
#define FOREVER_US		(INT64CONST(100) * 365 * USECS_PER_DAY)

/* Refuse where a transaction cannot be ended; instead says what does not wait. */
void
ssw_task_wait_check_context(FunctionCallInfo fcinfo, const char *procedure, const char *instead)
{
	CallContext *context = (CallContext *) fcinfo->context;

	ssw_shmem_require();
	if (context == NULL || !IsA(context, CallContext) || context->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot wait inside a transaction block", procedure),
				 errhint("Call it outside of one; %s.", instead)));
}

/* How a query is run. */
typedef uint64 (*Execute) (const char *sql, int nargs, Oid *types, Datum *values);

static uint64
exec_as_caller(const char *sql, int nargs, Oid *types, Datum *values)
{
	return ssw_spi_exec(sql, nargs, types, values, NULL, false, 1);
}

static uint64
exec_as_extension(const char *sql, int nargs, Oid *types, Datum *values)
{
	SswIdentity save;
	uint64		n;

	ssw_identity_become_extension(&save);
	n = ssw_spi_exec(sql, nargs, types, values, NULL, false, 1);
	ssw_identity_restore(&save);
	return n;
}

/*
 * What is taken for a client that has gone is lost for others until its time to live
 * is over: end as its connection has.
 */
static void
check_client(void)
{
	if (MyProcPort == NULL || pq_check_connection())
		return;
	ClientConnectionLost = true;
	InterruptPending = true;
	CHECK_FOR_INTERRUPTS();
}

/*
 * Run the query, each time in a transaction of its own, until the last column of its
 * row is true or the time is over.  True: there is a row, in SPI_tuptable; the
 * transaction that has read it is the one in which we return.
 */
static bool
look_until(const char *sql, Execute execute, int nargs, Oid *types, Datum *values, int64 timeout_us)
{
	static uint32 wait_event = 0;
	TimestampTz until = GetCurrentTimestamp() + timeout_us;

	for (;;)
	{
		bool		isnull;
		bool		found;
		long		left;
		uint64		changes;

		/* whoever commits from here on wakes us */
		SPI_commit();
		changes = ssw_task_shmem_changes();
		check_client();
		found = execute(sql, nargs, types, values) > 0;
		left = (until - GetCurrentTimestamp()) / 1000;
		if (left <= 0 || (found && DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
															  SPI_tuptable->tupdesc->natts, &isnull))))
			return found;
		SPI_freetuptable(SPI_tuptable);
		SPI_commit();
		ssw_task_shmem_wait(changes, Min(left, LOOK_EVERY_MS), ssw_wait_event("SessionSweeperTask", wait_event));
	}
}

/* Wait; the columns of the row are the procedure's result, nulls without one. */
static Datum
wait_for_row(FunctionCallInfo fcinfo, int timeout_arg, const char *timeout_name, const char *sql, int nargs, Oid *types, Datum *values)
{
	MemoryContext cxt = CurrentMemoryContext;
	int64		timeout_us;
	TupleDesc	desc;
	Datum	   *v;
	bool	   *isnull;
	HeapTuple	tup;
	bool		found;

	timeout_us = ssw_argument_interval(timeout_name, PG_GETARG_INTERVAL_P(timeout_arg), 0);
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(desc);
	v = palloc0(desc->natts * sizeof(Datum));
	isnull = palloc(desc->natts * sizeof(bool));
	memset(isnull, true, desc->natts * sizeof(bool));
	ssw_spi_begin_nonatomic();
	found = look_until(sql, exec_as_caller, nargs, types, values, timeout_us);
	for (int i = 0; found && i < desc->natts; i++)
		v[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &isnull[i]);
	MemoryContextSwitchTo(cxt);
	tup = heap_form_tuple(desc, v, isnull);
	SPI_finish();
	return HeapTupleGetDatum(tup);
}

/* CALL claim_wait(worker, wait, start, INOUT the task): nulls when there was none. */
Datum
ssw_claim_wait(PG_FUNCTION_ARGS)
{
	Oid			types[] = {UUIDOID, BOOLOID};
	pg_uuid_t	worker;
	Datum		values[2];

	ssw_argument_not_null(fcinfo, 0, "worker");
	ssw_argument_not_null(fcinfo, 1, "wait");
	ssw_argument_not_null(fcinfo, 2, "start");
	ssw_task_wait_check_context(fcinfo, "claim_wait", "sweeper.claim() does not wait");
	worker = *PG_GETARG_UUID_P(0);
	values[0] = UUIDPGetDatum(&worker);
	values[1] = PG_GETARG_DATUM(2);
	PG_RETURN_DATUM(wait_for_row(fcinfo, 1, "wait", "SELECT c.*, true FROM sweeper.heartbeat($1) AS alive CROSS JOIN LATERAL sweeper.claim($1, 1, $2) AS c", 2, types, values));
}

/* CALL wait_for_task(task, timeout, INOUT status): the status, terminal or not. */
Datum
ssw_wait_for_task(PG_FUNCTION_ARGS)
{
	Oid			type = UUIDOID;
	pg_uuid_t	task;
	Datum		value;

	ssw_argument_not_null(fcinfo, 0, "task");
	ssw_argument_not_null(fcinfo, 1, "timeout");
	ssw_task_wait_check_context(fcinfo, "wait_for_task", "sweeper.get_task() does not wait");
	task = *PG_GETARG_UUID_P(0);
	value = UUIDPGetDatum(&task);
	PG_RETURN_DATUM(wait_for_row(fcinfo, 1, "timeout", "SELECT t.status, t.finished_at IS NOT NULL FROM sweeper.get_task($1) AS t",
								 1, &type, &value));
}

/* Until the rows of a role ($2) for a table ($1) that are accepted now are written or set aside: see flush(). */
void
ssw_task_wait_until_written(Oid *types, Datum *values)
{
	static const char *const rows =
	"FROM sweeper.append_row AS r WHERE r.stream IN (SELECT s.stream FROM sweeper._append_stream AS s"
	" WHERE s.here AND s.relid = $1 AND s.role_oid = $2)";
	bool		isnull;

	ssw_spi_begin_nonatomic();
	/* what this transaction has accepted counts with its commit */
	SPI_commit();
	exec_as_extension(psprintf("SELECT max(r.id) %s", rows), 2, types, values);
	values[2] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (!isnull)
	{
		ssw_work_flush(DatumGetInt64(values[2]));
		(void) look_until(psprintf("SELECT NOT EXISTS (SELECT %s AND r.id <= $3)", rows), exec_as_extension, 3, types, values, FOREVER_US);
	}
	SPI_finish();
}
