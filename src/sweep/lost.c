/*
 * lost.c
 *		Rows on which a worker was at work when it was ended.
 *
 * Runs in workers.  Code of a table's owner can end its process: it outlives the
 * hard limit, terminates its own backend, makes an error FATAL.  Nothing is
 * caught then, so the process leaves word as it exits: which row it was at, or
 * that it was at several, which the next worker takes one by one.  That worker
 * records the row as failed (single_row.c).
 *
 * Shares SswPolicyShared and the pass, under SswShared->lock.  After a crash of
 * the server nobody knows.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "sweep/lost.h"

/* So many ended workers, and no row handled: the policy is at fault. */
#define MANY_DEATHS		10

/* What this process is at; armed: in code of users. */
static bool armed = false;
static int	together = 0;
static bool single = false;
static SswLostRow row;

/* From now on code of users may run, on no row in particular. */
void
ssw_lost_arm(void)
{
	armed = true;
	together = 0;
	single = false;
}

void
ssw_lost_disarm(void)
{
	armed = false;
}

/* It runs on n rows, or on none. */
void
ssw_lost_rows(int n)
{
	together = n;
	single = false;
}

/* It runs on one row; check: is_alive is asked about it. */
void
ssw_lost_row(Oid leaf, SswPhase phase, TimestampTz cutoff, const ItemPointerData *tid, bool check)
{
	row.leaf = leaf;
	row.phase = phase;
	row.cutoff = cutoff;
	row.tid = *tid;
	row.check = check;
	single = true;
}

static void
blame_policy(SswPass *pass, const char *message)
{
	if (pass->end != SSW_END_NONE && pass->end != SSW_END_DONE)
		return;
	pass->end = SSW_END_FAILED;
	pass->sqlerrcode = ERRCODE_ADMIN_SHUTDOWN;
	ssw_shmem_text(pass->message, message, SSW_MESSAGE_LEN);
}

/*
 * This worker exits with a pass in its hands: leave word if it did not mean to.
 * The caller holds the lock exclusively.
 */
void
ssw_lost_note(SswDatabase *d, SswProc *proc)
{
	SswPass    *pass = proc->pass >= 0 ? &SswPasses[proc->pass] : NULL;
	SswPolicyShared *s;

	if (!armed || pass == NULL || d == NULL || d->closed > 0)
		return;
	armed = false;
	s = ssw_shmem_policy(pass->database, pass->policy_id, true);
	if (s == NULL || (!single && together == 0))
		blame_policy(pass, "its worker was ended while it looked for rows");
	else if (++s->deaths >= MANY_DEATHS)
		blame_policy(pass, "its rows end one worker after the other");
	if (s == NULL)
		return;
	s->singly = true;
	if (single && s->nlost < SSW_MAX_LOST)
		s->lost[s->nlost++] = row;
}

/* Rows whose workers were ended since the last call. */
int
ssw_lost_take(int policy_id, SswLostRow *rows)
{
	SswPolicyShared *s;
	int			n = 0;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, false);
	if (s)
	{
		n = s->nlost;
		memcpy(rows, s->lost, n * sizeof(SswLostRow));
		s->nlost = 0;
	}
	LWLockRelease(SswShared->lock);
	return n;
}

/* Must rows go one by one, because a worker was ended and no pass got through since? */
bool
ssw_lost_singly(int policy_id)
{
	SswPolicyShared *s;
	bool		singly;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, false);
	singly = s && s->singly;
	LWLockRelease(SswShared->lock);
	return singly;
}
