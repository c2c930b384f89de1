/*
 * rows_left.h
 *		How many rows a pass has still to handle, about.
 */
#ifndef SSW_ROWS_LEFT_H
#define SSW_ROWS_LEFT_H

#include "sweep/candidates.h"

extern void ssw_rows_left(SswWork *w, List *leaves, const SswChunk *chunk);

#endif							/* SSW_ROWS_LEFT_H */
