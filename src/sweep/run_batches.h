/*
 * run_batches.h
 *		Run the rows of a chunk in batches, divide what fails, and judge whose fault it is.
 */
#ifndef SSW_RUN_BATCHES_H
#define SSW_RUN_BATCHES_H

#include "sweep/batch.h"

extern int	ssw_run_batches_blocks(SswWork *w, int n);
extern void ssw_run_batches_tried_slow(SswWork *w, TimestampTz start);
extern void ssw_run_batches_slow(SswWork *w, const ItemPointerData *tids, int n);
extern void ssw_run_batches(SswWork *w, const ItemPointerData *tids, int n, int most);

#endif							/* SSW_RUN_BATCHES_H */
