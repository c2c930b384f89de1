/*
 * own_row.c
 *		Rows of the extension's own tables, found, locked and written without a
 *		statement.
 *
 * Runs in any session or process.  A statement that changes one row by its key spends
 * most of its time on starting and ending the executor; what is called for each task
 * goes this way instead.  Like multi_insert.c it needs no right of a role: only types,
 * operators and indexes of the extension are involved, and triggers do not fire.
 *
 * Rows are found, locked and changed as by SELECT ... FOR UPDATE and UPDATE, at each
 * isolation level, unless the caller gives a snapshot of its own.  A row that nobody holds is
 * changed without locking it before.  Shares nothing; a rollback or crash undoes it.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/identity.h"
#include "base/multi_insert.h"
#include "base/own_row.h"
#include "base/spi.h"
#include "base/ssw.h"

/* For a row that another session has locked, where the session has no lock_timeout. */
#define LOCK_TIMEOUT_MS	500

/* As a new statement: it sees what this transaction has done, and what is committed. */
Snapshot
ssw_own_snapshot(void)
{
	ssw_spi_refuse_parallel();
	CommandCounterIncrement();
	return RegisterSnapshot(GetTransactionSnapshot());
}

/* What is committed now, whatever the transaction's snapshot sees, and what it has done. */
Snapshot
ssw_own_latest(void)
{
	ssw_spi_refuse_parallel();
	return RegisterSnapshot(GetLatestSnapshot());
}

/* The rows that were written are seen by the next statement. */
void
ssw_own_release(Snapshot snapshot)
{
	UnregisterSnapshot(snapshot);
	CommandCounterIncrement();
}

void
ssw_own_open(SswOwnTable *t, const char *table, int ncolumns, const char *index, LOCKMODE mode, Snapshot snapshot)
{
	memset(t, 0, sizeof(SswOwnTable));
	t->rel = table_open(ssw_multi_insert_relation(table), mode);
	t->ncolumns = ncolumns;
	if (RelationGetDescr(t->rel)->natts < ncolumns)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"sweeper.%s\" does not have the expected columns", table),
				 errhint("Run ALTER EXTENSION session_sweeper UPDATE.")));
	t->index = index_open(ssw_multi_insert_relation(index), mode);
	t->mode = mode;
	t->snapshot = snapshot;
	t->slot = table_slot_create(t->rel, NULL);
}

/*
 * A table that was only read is unlocked, as catalogs are: a session has room for 16 locks
 * that cost little, and a claim comes near that.
 */
void
ssw_own_close(SswOwnTable *t)
{
	LOCKMODE	mode = t->mode == AccessShareLock ? AccessShareLock : NoLock;

	if (t->estate)
	{
		ExecCloseIndices(t->rri);
		FreeExecutorState(t->estate);
	}
	if (t->scan)
		index_endscan(t->scan);
	ExecDropSingleTupleTableSlot(t->slot);
	index_close(t->index, mode);
	table_close(t->rel, mode);
}

/* From now on by this snapshot. */
void
ssw_own_see(SswOwnTable *t, Snapshot snapshot)
{
	t->snapshot = snapshot;
	if (t->scan)
		t->scan->xs_snapshot = snapshot;
}

/* With as many keys each time. */
static void
begin_scan(SswOwnTable *t, ScanKey keys, int nkeys, bool want_entry)
{
	if (t->scan == NULL)
		t->scan = ssw_index_beginscan(t->rel, t->index, t->snapshot, nkeys);
	t->scan->xs_want_itup = want_entry;
	index_rescan(t->scan, keys, nkeys, NULL, 0);
}

/*
 * A column of the first entry with these keys in a btree index, which may be that of a row
 * that nobody sees, or not any more.  False: there is none.
 */
bool
ssw_own_peek(SswOwnTable *t, ScanKey keys, int nkeys, AttrNumber column, Datum *value)
{
	bool		isnull;

	begin_scan(t, keys, nkeys, true);
	if (index_getnext_tid(t->scan, ForwardScanDirection) == NULL)
		return false;
	*value = index_getattr(t->scan->xs_itup, column, t->scan->xs_itupdesc, &isnull);
	return true;
}

/* The first row with these keys, which are of columns of the index. */
bool
ssw_own_find(SswOwnTable *t, ScanKey keys, int nkeys)
{
	begin_scan(t, keys, nkeys, false);
	return ssw_own_next(t);
}

/* The first row whose first columns of the index are these texts. */
bool
ssw_own_find_texts(SswOwnTable *t, const Datum *texts, int n)
{
	ScanKeyData keys[INDEX_MAX_KEYS];

	for (int i = 0; i < n; i++)
		ScanKeyEntryInitialize(&keys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid,
							   t->index->rd_indcollation[i], F_TEXTEQ, texts[i]);
	return ssw_own_find(t, keys, n);
}

/* The next one in the order of the index. */
bool
ssw_own_next(SswOwnTable *t)
{
	CHECK_FOR_INTERRUPTS();
	if (index_getnext_slot(t->scan, ForwardScanDirection, t->slot))
		return true;
	/* what it holds may be half of a row that was looked at */
	ExecClearTuple(t->slot);
	return false;
}

/*
 * A transaction whose snapshot is older than the row with these unique keys, or than its
 * newest version, is to be tried again: it must not take that for the row's end.
 * t->slot has what the snapshot sees, or nothing.
 */
void
ssw_own_refuse_stale(SswOwnTable *t, ScanKey keys, int nkeys)
{
	Snapshot	latest;
	IndexScanDesc scan;
	TupleTableSlot *slot;

	if (!IsolationUsesXactSnapshot())
		return;
	latest = ssw_own_latest();
	slot = table_slot_create(t->rel, NULL);
	scan = ssw_index_beginscan(t->rel, t->index, latest, nkeys);
	index_rescan(scan, keys, nkeys, NULL, 0);
	if (index_getnext_slot(scan, ForwardScanDirection, slot) &&
		(TTS_EMPTY(t->slot) || !ItemPointerEquals(&t->slot->tts_tid, &slot->tts_tid)))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent update")));
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	ssw_own_release(latest);
}

Datum
ssw_own_column(SswOwnTable *t, AttrNumber column, bool *isnull)
{
	return slot_getattr(t->slot, column, isnull);
}

/* A column of type text; null is null. */
char	   *
ssw_own_text(SswOwnTable *t, AttrNumber column)
{
	bool		isnull;
	Datum		value = slot_getattr(t->slot, column, &isnull);

	return isnull ? NULL : TextDatumGetCString(value);
}

/*
 * Lock a row that was found.  True: it is in t->slot, in its newest version, which may
 * be other than the one that was found if we waited.  False: it is gone, or, without
 * waiting, another session has locked or changed it.
 */
bool
ssw_own_lock(SswOwnTable *t, ItemPointerData tid, LockTupleMode mode, bool wait)
{
	ItemPointerData place = tid;
	TM_FailureData failure;
	TM_Result	result;
	int			flags = wait && !IsolationUsesXactSnapshot() ? TUPLE_LOCK_FLAG_FIND_LAST_VERSION : 0;

	ExecClearTuple(t->slot);
	result = table_tuple_lock(t->rel, &place, t->snapshot, t->slot, GetCurrentCommandId(false), mode, LockWaitSkip, flags, &failure);
	if (result == TM_WouldBlock && wait)
	{
		int			level = NewGUCNestLevel();

		if (LockTimeout == 0)
			ssw_identity_lock_timeout(LOCK_TIMEOUT_MS);
		place = tid;
		result = table_tuple_lock(t->rel, &place, t->snapshot, t->slot, GetCurrentCommandId(false), mode, LockWaitBlock, flags, &failure);
		AtEOXact_GUC(false, level);
	}
	if ((result == TM_Updated || result == TM_Deleted) && IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent %s", result == TM_Updated ? "update" : "delete")));
	return result == TM_Ok;
}

/* Read a row that was found before into t->slot. */
void
ssw_own_fetch(SswOwnTable *t, ItemPointerData tid)
{
	if (!TTS_EMPTY(t->slot) && ItemPointerEquals(&t->slot->tts_tid, &tid))
		return;
	if (!table_tuple_fetch_row_version(t->rel, &tid, t->snapshot, t->slot))
		elog(ERROR, "a row that was found is gone");
}

/*
 * Write a new version of the row in t->slot.  False: it is not locked by us, and another
 * session has locked or changed it.
 */
bool
ssw_own_update(SswOwnTable *t, bool locked, Datum *values, bool *nulls, bool *replace)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(t->rel), &TTSOpsHeapTuple);
	HeapTuple	old = ExecFetchSlotHeapTuple(t->slot, false, NULL);
	TM_FailureData failure;
	LockTupleMode mode;
	ssw_update_indexes which;
	int			natts;
	bool		done;

	/* columns of a later version keep their values */
	natts = RelationGetDescr(t->rel)->natts;
	if (natts > t->ncolumns)
	{
		values = memcpy(palloc0(natts * sizeof(Datum)), values, t->ncolumns * sizeof(Datum));
		nulls = memcpy(palloc0(natts * sizeof(bool)), nulls, t->ncolumns * sizeof(bool));
		replace = memcpy(palloc0(natts * sizeof(bool)), replace, t->ncolumns * sizeof(bool));
	}
	if (t->estate == NULL)
	{
		t->estate = CreateExecutorState();
		t->rri = makeNode(ResultRelInfo);
		InitResultRelInfo(t->rri, t->rel, 0, NULL, 0);
		ExecOpenIndices(t->rri, false);
	}
	ExecStoreHeapTuple(heap_modify_tuple(old, RelationGetDescr(t->rel), values, nulls, replace), slot, true);
	done = table_tuple_update(t->rel, &t->slot->tts_tid, slot, GetCurrentCommandId(true), t->snapshot, InvalidSnapshot, locked,
							  &failure, &mode, &which) == TM_Ok;
	if (done && which)
		list_free(ssw_update_index_tuples(t->rri, slot, t->estate, which));
	ResetPerTupleExprContext(t->estate);
	ExecDropSingleTupleTableSlot(slot);
	return done;
}
