/*
 * index_read.c
 *		Read rows of a table of the extension by texts that an index has.
 *
 * Runs in callers' sessions; shares nothing; a crash leaves nothing behind.  At every
 * isolation level the rows are those that are committed now, and what this transaction
 * has done.  No statement is involved, so nobody needs a right on the table.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "base/compat.h"
#include "base/index_read.h"
#include "base/multi_insert.h"

/* Rows whose first n columns of the index are these texts. */
void
ssw_index_read_begin(SswIndexRead *r, const char *table, int ncolumns, const char *index, const Datum *texts, int n)
{
	ScanKeyData keys[INDEX_MAX_KEYS];

	r->table = ssw_multi_insert_table(table, ncolumns, AccessShareLock);
	r->index = index_open(ssw_multi_insert_relation(index), AccessShareLock);
	for (int i = 0; i < n; i++)
		ScanKeyEntryInitialize(&keys[i], 0, i + 1, BTEqualStrategyNumber, InvalidOid,
							   r->index->rd_indcollation[i], F_TEXTEQ, texts[i]);
	r->snapshot = RegisterSnapshot(GetLatestSnapshot());
	r->scan = ssw_index_beginscan(r->table, r->index, r->snapshot, n);
	index_rescan(r->scan, keys, n, NULL, 0);
	r->slot = table_slot_create(r->table, NULL);
}

/* Is there another row?  It is in the slot until the next call. */
bool
ssw_index_read_next(SswIndexRead *r)
{
	CHECK_FOR_INTERRUPTS();
	return index_getnext_slot(r->scan, ForwardScanDirection, r->slot);
}

void
ssw_index_read_end(SswIndexRead *r)
{
	ExecDropSingleTupleTableSlot(r->slot);
	index_endscan(r->scan);
	UnregisterSnapshot(r->snapshot);
	index_close(r->index, NoLock);
	table_close(r->table, NoLock);
}
