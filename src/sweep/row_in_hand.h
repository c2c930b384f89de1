/*
 * row_in_hand.h
 *		The row on which a worker runs code of users.
 */
#ifndef SSW_ROW_IN_HAND_H
#define SSW_ROW_IN_HAND_H

#include "storage/itemptr.h"

/* A row that has ended so many workers is not tried again. */
#define SSW_MAX_DEATHS	2

/* Rows are numbered: by their places, or appended rows by their ids. */
static inline int64
ssw_in_hand_place(const ItemPointerData *tid)
{
	return (int64) ItemPointerGetBlockNumber(tid) << 16 | ItemPointerGetOffsetNumber(tid);
}

extern void ssw_in_hand_init(void);
extern void ssw_in_hand_set(int policy_id, Oid relid, int64 row);
extern void ssw_in_hand_clear(void);
extern bool ssw_in_hand_singly(int policy_id, Oid relid);
extern int	ssw_in_hand_deaths(int policy_id, Oid relid, int64 row);
extern bool ssw_in_hand_blame(int policy_id);
extern void ssw_in_hand_went_well(int policy_id);
extern void ssw_in_hand_forget(int policy_id, Oid relid);

#endif							/* SSW_ROW_IN_HAND_H */
