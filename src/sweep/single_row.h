/*
 * single_row.h
 *		Rows one by one: which of a batch failed, and which did not go.
 */
#ifndef SSW_SINGLE_ROW_H
#define SSW_SINGLE_ROW_H

#include "sweep/batch.h"

/* Rows that must fail alike, with none succeeding, to doubt the policy. */
#define SSW_DOUBT	10

extern int	ssw_single_find_missing(SswWork *w, const ItemPointerData *tids, int n, int taken);
extern bool ssw_single_recall(SswWork *w);
extern void ssw_single_write_deadly(SswWork *w);
extern bool ssw_single_witnesses(SswWork *w);
extern void ssw_single_run(SswWork *w, const ItemPointerData *tids, int n);
extern void ssw_single_record(SswWork *w, const ItemPointerData *tid);

#endif							/* SSW_SINGLE_ROW_H */
