/*
 * pace.c
 *		How fast a policy's rows can be handled, as its workers learn.
 *
 * Runs in workers.  Each learns from its own batches; when two write at the same time
 * the last one wins, and the next batches correct it.
 *
 * Shares SswPolicyShared.pace, under SswShared->lock; no other file touches it.  A crash
 * forgets it.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "sweep/pace.h"

SswPace
ssw_pace_get(int policy_id)
{
	SswPace		pace;

	(void) ssw_shmem_read_field(MyDatabaseId, policy_id, pace, &pace);
	return pace;
}

void
ssw_pace_set(int policy_id, const SswPace *pace)
{
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, true);
	if (s)
		s->pace = *pace;
	LWLockRelease(SswShared->lock);
}
