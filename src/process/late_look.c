/*
 * late_look.c
 *		How late is what falls due while a brake keeps passes from running?
 *
 * Runs in the coordinator, in the transaction of a round.  Shares when it looked last,
 * in the policy's entry, under SswShared->lock.  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "process/late_look.h"
#include "process/pass_lifecycle.h"
#include "process/policy_watch.h"

/* How late is what a brake holds?  Looked at no more often. */
#define LATE_LOOK_US		(10 * USECS_PER_SEC)
#define LATE_LOOK_PART		500
#define LATE_LOOK_MAX_US	(15 * USECS_PER_MINUTE)

/*
 * A brake is on.  What falls due meanwhile is late all the same, and the views tell
 * how late: look, where that runs nobody's code, and do not mind when it cannot be.
 * A look that takes long is rare, also where coordinators take turns: others wait for it.
 */
void
ssw_late_look(SswWatch *w, TimestampTz now)
{
	SswPolicyShared *s;
	TimestampTz next = DT_NOEND;
	ErrorData  *error;

	if (!w->plain)
		return;
	LWLockAcquire(SswShared->lock, LW_SHARED);
	s = ssw_shmem_policy(MyDatabaseId, w->policy_id, false);
	if (s)
		next = s->late_look_at;
	LWLockRelease(SswShared->lock);
	/* one that is farther away was noted before the clock was set back */
	if (s == NULL || (now < next && next < now + 2 * LATE_LOOK_MAX_US))
		return;
	error = ssw_watch_probe(w, now);
	if (error)
		FreeErrorData(error);
	next = Max(Max(LATE_LOOK_US, w->policy->check_every_us), (GetCurrentTimestamp() - now) * LATE_LOOK_PART);
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, w->policy_id, false);
	if (s)
		s->late_look_at = now + Min(next, LATE_LOOK_MAX_US);
	LWLockRelease(SswShared->lock);
	ssw_passes_publish(w);
}
