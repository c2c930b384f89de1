/*
 * multi_insert.c
 *		Add rows to a table of the evidence, many at once.
 *
 * Runs in a worker, or in a session that ends rows, inside the transaction of
 * what the rows report; shares nothing.  Rows go by multi-insert straight into
 * the heap and its indexes: no statement of a user's rights is involved, so
 * nobody needs the right to write such a table.  A crash leaves nothing: the
 * rows are part of the transaction.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "executor/executor.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/compat.h"
#include "base/multi_insert.h"
#include "base/ssw.h"
#include "base/wal.h"

#define MULTI_INSERT_ROWS	256

struct SswMultiInsert
{
	Relation	rel;
	EState	   *estate;
	ResultRelInfo *rri;
	BulkInsertState bistate;
	bool		once_a_block;	/* index one row of each block */
	BlockNumber indexed;		/* the last block with such a row */
	TupleDesc	desc;			/* a copy: slots of the relation's own would
								 * each register it with the resource owner */
	TupleTableSlot *slots[MULTI_INSERT_ROWS];
	int			nslots;
};

/* A table or sequence of the extension. */
Oid
ssw_multi_insert_relation(const char *name)
{
	return get_relname_relid(name, get_namespace_oid(SSW_SCHEMA, false));
}

/*
 * Is a BRIN index on the time all there is?  All rows of one transaction have the
 * same time, so the second row of a block would tell it nothing.
 */
static bool
only_brin_on_time(ResultRelInfo *rri, AttrNumber time)
{
	Relation	index;

	if (rri->ri_NumIndices != 1)
		return false;
	index = rri->ri_IndexRelationDescs[0];
	return index->rd_rel->relam == BRIN_AM_OID && index->rd_index->indnatts == 1 &&
		index->rd_index->indkey.values[0] == time &&
		RelationGetIndexPredicate(index) == NIL;
}

/* Open a table of the extension as COPY does; time is the column that BRIN indexes, or 0. */
SswMultiInsert *
ssw_multi_insert_open(const char *table, int ncolumns, AttrNumber time)
{
	SswMultiInsert *a = palloc0(sizeof(SswMultiInsert));

	a->rel = table_open(ssw_multi_insert_relation(table), RowExclusiveLock);
	if (RelationGetDescr(a->rel)->natts != ncolumns)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"sweeper.%s\" does not have the expected columns", table),
				 errhint("Run ALTER EXTENSION session_sweeper UPDATE.")));
	a->desc = CreateTupleDescCopy(RelationGetDescr(a->rel));
	a->estate = CreateExecutorState();
	a->rri = makeNode(ResultRelInfo);
	InitResultRelInfo(a->rri, a->rel, 1, NULL, 0);
	ExecOpenIndices(a->rri, false);
	a->once_a_block = only_brin_on_time(a->rri, time);
	a->indexed = InvalidBlockNumber;
	a->bistate = GetBulkInsertState();
	return a;
}

static void
index_row(SswMultiInsert *a, TupleTableSlot *slot)
{
	BlockNumber block = ItemPointerGetBlockNumber(&slot->tts_tid);

	if (a->rri->ri_NumIndices == 0 || (a->once_a_block && block == a->indexed))
		return;
	list_free(ssw_insert_index_tuples(a->rri, slot, a->estate));
	a->indexed = block;
}

static void
flush(SswMultiInsert *a)
{
	if (a->nslots == 0)
		return;
	table_multi_insert(a->rel, a->slots, a->nslots, GetCurrentCommandId(true), 0, a->bistate);
	for (int i = 0; i < a->nslots; i++)
	{
		index_row(a, a->slots[i]);
		ExecClearTuple(a->slots[i]);
	}
	a->nslots = 0;
	ssw_wal_start_writing();
}

/*
 * The slot of the next row, to be filled: no column is null.  What its values
 * point to must live until the table is closed.
 */
TupleTableSlot *
ssw_multi_insert_slot(SswMultiInsert *a)
{
	TupleTableSlot *slot = a->slots[a->nslots];

	if (slot == NULL)
		slot = a->slots[a->nslots] = MakeSingleTupleTableSlot(a->desc, table_slot_callbacks(a->rel));
	ExecClearTuple(slot);
	memset(slot->tts_isnull, 0, slot->tts_tupleDescriptor->natts * sizeof(bool));
	return slot;
}

/* The slot is filled. */
void
ssw_multi_insert_row(SswMultiInsert *a)
{
	ExecStoreVirtualTuple(a->slots[a->nslots]);
	if (++a->nslots == MULTI_INSERT_ROWS)
		flush(a);
}

void
ssw_multi_insert_close(SswMultiInsert *a)
{
	flush(a);
	for (int i = 0; i < MULTI_INSERT_ROWS && a->slots[i]; i++)
		ExecDropSingleTupleTableSlot(a->slots[i]);
	FreeBulkInsertState(a->bistate);
	ExecCloseIndices(a->rri);
	FreeExecutorState(a->estate);
	table_close(a->rel, NoLock);
}
