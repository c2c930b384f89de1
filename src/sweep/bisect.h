/*
 * bisect.h
 *		Run the rows of a chunk in batches, and halve what fails.
 */
#ifndef SSW_BISECT_H
#define SSW_BISECT_H

#include "sweep/batch.h"

extern bool ssw_bisect_run_range(SswWork *w, int n);
extern void ssw_bisect_tried_slow(SswWork *w, TimestampTz start);
extern void ssw_bisect_run_slow(SswWork *w, const ItemPointerData *tids, int n);
extern void ssw_bisect_run(SswWork *w, const ItemPointerData *tids, int n);

#endif							/* SSW_BISECT_H */
