/*
 * pace.h
 *		How fast a policy's rows can be handled, as its workers learn.
 *
 * For workers.  Each learns from its own batches; when two write at the same time the last
 * one wins, and the next batches correct it.
 *
 * Shares SswPolicyShared.pace, under SswShared->lock; no other file touches it.  A crash
 * forgets it.
 */
#ifndef SSW_PACE_H
#define SSW_PACE_H

#include "miscadmin.h"

#include "base/shmem.h"

static inline SswPace
ssw_pace_get(int policy_id)
{
	SswPace		pace;

	(void) ssw_shmem_read_field(MyDatabaseId, policy_id, pace, &pace);
	return pace;
}

static inline void
ssw_pace_set(int policy_id, const SswPace *pace)
{
	ssw_shmem_write_field(policy_id, pace, pace, true);
}

#endif							/* SSW_PACE_H */
