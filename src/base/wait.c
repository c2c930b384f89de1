/*
 * wait.c
 *		Procedures that wait without a transaction.
 *
 * Runs in the caller's session.  A procedure looks again and again, each time in a
 * transaction of its own.  Between looks the session sleeps without a snapshot, until
 * what it waits for wakes it.  It looks at least each second: a commit of a prepared
 * transaction wakes no session.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "base/spi.h"
#include "base/wait.h"

/* Of libpq/libpq.h, which cannot be included without the headers of GSSAPI. */
extern bool pq_check_connection(void);

#define LOOK_EVERY_MS	1000

/* Refuse where a transaction cannot be ended; instead says what does not wait. */
void
ssw_wait_check_context(FunctionCallInfo fcinfo, const char *procedure, const char *instead)
{
	CallContext *context = (CallContext *) fcinfo->context;

	ssw_shmem_require();
	if (context == NULL || !IsA(context, CallContext) || context->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot wait inside a transaction block", procedure),
				 errhint("Call it outside of one; %s.", instead)));
}

/*
 * What is taken for a client that has gone would be kept from others until a time to live
 * is over.  So this session ends when its client has gone.
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

/* Look until that is enough, or the time is over; in a non-atomic SPI connection. */
void
ssw_wait_until(const SswWait *w, int64 timeout_us)
{
	TimestampTz until = GetCurrentTimestamp() + timeout_us;

	for (;;)
	{
		bool		done;
		long		left;

		SPI_commit();
		if (w->note)
			w->note(w->arg);
		check_client();
		done = w->look(w->arg);
		left = (until - GetCurrentTimestamp()) / 1000;
		if (done || left <= 0)
			return;
		SPI_freetuptable(SPI_tuptable);
		SPI_commit();
		w->sleep(w->arg, Min(left, LOOK_EVERY_MS));
	}
}

/* Begin SPI; returns what the procedure's result is made of. */
TupleDesc
ssw_wait_begin(FunctionCallInfo fcinfo)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	desc = BlessTupleDesc(desc);
	ssw_spi_begin_nonatomic();
	return desc;
}

/*
 * End SPI.  The columns of the row that was found are the procedure's result, nulls
 * without one; it is in cxt.
 */
Datum
ssw_wait_end(TupleDesc desc, MemoryContext cxt, bool found)
{
	Datum	   *v = palloc0(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	HeapTuple	tup;

	memset(isnull, true, desc->natts * sizeof(bool));
	for (int i = 0; found && i < desc->natts; i++)
		v[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1, &isnull[i]);
	MemoryContextSwitchTo(cxt);
	tup = heap_form_tuple(desc, v, isnull);
	SPI_finish();
	return HeapTupleGetDatum(tup);
}
