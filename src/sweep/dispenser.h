/*
 * dispenser.h
 *		What the workers of a pass share: its cursor, its chunks, its end.
 */
#ifndef SSW_DISPENSER_H
#define SSW_DISPENSER_H

#include "sweep/candidates.h"

extern bool ssw_dispenser_take(SswWork *w);
extern bool ssw_dispenser_advance(SswWork *w, List *leaves);
extern TimestampTz ssw_dispenser_cutoff(SswWork *w);
extern void ssw_dispenser_give(SswWork *w, const SswChunk *chunk);
extern bool ssw_dispenser_has_checks(const SswPass *pass);
extern bool ssw_dispenser_pull_check(SswWork *w, bool first, ItemPointerData *tid);
extern void ssw_dispenser_await_answers(SswWork *w);
extern void ssw_dispenser_give_back(SswPass *pass, const SswChunk *chunk, int64 rows);
extern bool ssw_dispenser_leave(SswWork *w, uint64 *met, TimestampTz next);

#endif							/* SSW_DISPENSER_H */
