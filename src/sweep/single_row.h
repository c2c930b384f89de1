/*
 * single_row.h
 *		Record rows that did not end: why, and who holds them.
 */
#ifndef SSW_SINGLE_ROW_H
#define SSW_SINGLE_ROW_H

#include "sweep/batch.h"

extern int	ssw_single_find_missing(SswWork *w, const ItemPointerData *tids, int n, int taken);
extern bool ssw_single_record(SswWork *w, const ItemPointerData *tid, const char *class, int sqlerrcode, const char *message);
extern void ssw_single_record_error(SswWork *w, const ItemPointerData *tid);
extern bool ssw_single_is_deadly(SswWork *w, const ItemPointerData *tid, const char *message);
extern void ssw_single_recall(SswWork *w);

#endif							/* SSW_SINGLE_ROW_H */
