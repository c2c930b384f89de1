/*
 * row_holders.c
 *		Whose transaction holds a row.
 *
 * Runs in any process, in a transaction with a snapshot.  The tuple itself
 * says it, so that nothing is written or waited for, and read-only transactions
 * may ask.  Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/multixact.h"
#include "access/subtrans.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/snapmgr.h"

#include "base/spi.h"
#include "sweep/row_holders.h"

/* The pid of a transaction in progress; 0 for a prepared one, -1 for none. */
static int
holder_pid(TransactionId xid)
{
	int			pid;

	if (!TransactionIdIsNormal(xid))
		return -1;
	if (TransactionIdIsCurrentTransactionId(xid))
		return MyProcPid;
	if (!TransactionIdIsInProgress(xid))
		return -1;
	pid = BackendXidGetPid(SubTransGetTopmostTransaction(xid));
	/* it may have ended meanwhile */
	return pid == 0 && !TransactionIdIsInProgress(xid) ? -1 : pid;
}

/* Add whom a transaction belongs to, once: subtransactions share their pid. */
static void
add_holder(TransactionId xid, ArrayBuildState **pids, MemoryContext cxt, TransactionId *prepared)
{
	int			pid = holder_pid(xid);

	if (pid < 0)
		return;
	if (pid == 0 && prepared)
		*prepared = SubTransGetTopmostTransaction(xid);
	for (int i = 0; *pids && i < (*pids)->nelems; i++)
		if (DatumGetInt32((*pids)->dvalues[i]) == pid)
			return;
	*pids = accumArrayResult(*pids, Int32GetDatum(pid), false, INT4OID, cxt);
}

/*
 * Who holds the row, or is changing it: int4[] of the pids behind its xmax that
 * still run (0: a prepared transaction), in cxt; null when nobody does.  *prepared
 * is set to the id of a prepared one.
 */
Datum
ssw_holders_of_row(Oid leaf, ItemPointer tid, MemoryContext cxt, TransactionId *prepared)
{
	Relation	rel = table_open(leaf, AccessShareLock);
	HeapTupleData tup = {.t_self = *tid};
	Buffer		buffer;
	ArrayBuildState *pids = NULL;

	if (rel->rd_tableam == GetHeapamTableAmRoutine() &&
		heap_fetch(rel, GetActiveSnapshot(), &tup, &buffer, false))
	{
		uint16		mask;
		TransactionId xmax;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		mask = tup.t_data->t_infomask;
		xmax = HeapTupleHeaderGetRawXmax(tup.t_data);
		UnlockReleaseBuffer(buffer);
		if (mask & HEAP_XMAX_IS_MULTI && !(mask & HEAP_XMAX_INVALID))
		{
			MultiXactMember *members;
			int			n = GetMultiXactIdMembers(xmax, &members, HEAP_LOCKED_UPGRADED(mask),
												  HEAP_XMAX_IS_LOCKED_ONLY(mask));

			for (int i = 0; i < n; i++)
				add_holder(members[i].xid, &pids, cxt, prepared);
		}
		else if (!(mask & HEAP_XMAX_INVALID))
			add_holder(xmax, &pids, cxt, prepared);
	}
	table_close(rel, NoLock);
	return pids ? makeArrayResult(pids, cxt) : (Datum) 0;
}

/* The name of a prepared transaction; null when it has ended, or has none. */
char	   *
ssw_holders_prepared_name(TransactionId xid)
{
	Oid			type = XIDOID;
	Datum		value = TransactionIdGetDatum(xid);

	return TransactionIdIsValid(xid) ?
		ssw_spi_text_as_extension("SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE transaction = $1", 1, &type, &value, true) : NULL;
}
