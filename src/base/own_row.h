/*
 * own_row.h
 *		Rows of the extension's own tables, found, locked and written without a
 *		statement.
 */
#ifndef SSW_OWN_ROW_H
#define SSW_OWN_ROW_H

#include "access/genam.h"
#include "access/skey.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"
#include "nodes/lockoptions.h"
#include "storage/lockdefs.h"
#include "utils/snapshot.h"

/* A table, read by one of its indexes; all of it lives in the memory of its opening. */
typedef struct SswOwnTable
{
	Relation	rel;
	int			ncolumns;		/* that the caller knows */
	Relation	index;
	LOCKMODE	mode;			/* of both */
	Snapshot	snapshot;
	IndexScanDesc scan;
	TupleTableSlot *slot;		/* the row that was found, or locked */
	EState	   *estate;			/* null until a row is written */
	ResultRelInfo *rri;
} SswOwnTable;

extern Snapshot ssw_own_snapshot(void);
extern Snapshot ssw_own_latest(void);
extern void ssw_own_release(Snapshot snapshot);
extern void ssw_own_open(SswOwnTable *t, const char *table, int ncolumns, const char *index, LOCKMODE mode, Snapshot snapshot);
extern void ssw_own_close(SswOwnTable *t);
extern void ssw_own_see(SswOwnTable *t, Snapshot snapshot);
extern bool ssw_own_peek(SswOwnTable *t, ScanKey keys, int nkeys, AttrNumber column, Datum *value);
extern bool ssw_own_find(SswOwnTable *t, ScanKey keys, int nkeys);
extern bool ssw_own_find_texts(SswOwnTable *t, const Datum *texts, int n);
extern bool ssw_own_next(SswOwnTable *t);
extern void ssw_own_refuse_stale(SswOwnTable *t, ScanKey keys, int nkeys);
extern Datum ssw_own_column(SswOwnTable *t, AttrNumber column, bool *isnull);
extern char *ssw_own_text(SswOwnTable *t, AttrNumber column);
extern bool ssw_own_lock(SswOwnTable *t, ItemPointerData tid, LockTupleMode mode, bool wait);
extern void ssw_own_fetch(SswOwnTable *t, ItemPointerData tid);
extern bool ssw_own_update(SswOwnTable *t, bool locked, Datum *values, bool *nulls, bool *replace);

#endif							/* SSW_OWN_ROW_H */
