/*
 * lost.h
 *		Rows on which a worker was at work when it was ended.
 */
#ifndef SSW_LOST_H
#define SSW_LOST_H

#include "base/shmem.h"

extern void ssw_lost_arm(void);
extern void ssw_lost_disarm(void);
extern void ssw_lost_rows(int n);
extern void ssw_lost_row(Oid leaf, SswPhase phase, TimestampTz cutoff, const ItemPointerData *tid, bool check);
extern void ssw_lost_note(SswDatabase *d, SswProc *proc);

extern int	ssw_lost_take(int policy_id, SswLostRow *rows);
extern bool ssw_lost_singly(int policy_id);

#endif							/* SSW_LOST_H */
