/*
 * policy_outage.c
 *		Times in which nobody could show that he lives.
 *
 * Sessions whose heartbeats fail, and the coordinator, tell of them; grace.c credits
 * them.  One a policy, the last, in SswShared under SswShared->lock; file.c keeps it
 * over a clean stop.  A crash forgets it, and is followed by a grace anyway.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "grace/policy_outage.h"

/*
 * Of a time to live: rows are prolonged earlier than that before they are due, so that
 * a shorter time without writes is no outage.
 */
#define OUTAGE_PART		8

static void
note_refused(SswPolicyShared *s, TimestampTz since, TimestampTz until)
{
	if (since > s->refused_at || since < s->refused_since)
		s->refused_since = since;
	s->refused_at = until;
}

/*
 * In that time nobody could have sent a heartbeat: silence is no evidence then.  It
 * began at since, 0: at the last start of service.
 */
void
ssw_outage_note(Oid dboid, int policy_id, TimestampTz since, TimestampTz until)
{
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(dboid, policy_id, true);
	if (s)
		note_refused(s, since, until);
	LWLockRelease(SswShared->lock);
}

/* So long rows may not be written before that is an outage; ttl_us is the policy's, or 0. */
int64
ssw_outage_patience(int policy_id, int64 ttl_us)
{
	SswPolicyShared *s;
	int64		shortest = ttl_us;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, false);
	if (s && s->heartbeat_ttl_us > 0 && (ttl_us == 0 || s->heartbeat_ttl_us < ttl_us))
		shortest = s->heartbeat_ttl_us;
	LWLockRelease(SswShared->lock);
	return shortest / OUTAGE_PART;
}

/*
 * The coordinator has looked whether rows can be written.  Returns since when they
 * could not, up to now; 0: they can, and could when one looked last.  Where databases
 * take turns that may be longer ago than gap_us; nobody knows what was meanwhile.
 */
TimestampTz
ssw_outage_looked(int policy_id, bool writable, int64 gap_us, TimestampTz now)
{
	TimestampTz since = 0;
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, true);
	if (s)
	{
		/* the clock may be set back */
		if (!writable && (s->unwritable_since == 0 || s->unwritable_since > now))
			s->unwritable_since = s->writable_at != 0 && s->writable_at < now - gap_us ? s->writable_at : now;
		since = s->unwritable_since;
		if (writable)
		{
			s->writable_at = now;
			/* what heartbeats met before it is over */
			s->unwritable_since = s->refusing_since = 0;
		}
	}
	LWLockRelease(SswShared->lock);
	return since;
}

/* A heartbeat could not look at rows; when all could not for so long, it counts as refused. */
void
ssw_outage_unheard(int policy_id, int64 patience_us)
{
	TimestampTz now = GetCurrentTimestamp();
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, true);
	if (s && (s->refusing_since == 0 || s->refusing_since > now))
		s->refusing_since = now;
	if (s && now - s->refusing_since >= patience_us)
		note_refused(s, s->refusing_since, now);
	LWLockRelease(SswShared->lock);
}

/* A heartbeat could look at its row. */
void
ssw_outage_heard(int policy_id)
{
	SswPolicyShared *s;
	bool		refusing;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, false);
	refusing = s && s->refusing_since != 0;
	LWLockRelease(SswShared->lock);
	if (!refusing)
		return;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, false);
	if (s)
		s->refusing_since = 0;
	LWLockRelease(SswShared->lock);
}

/*
 * Since then nobody could write the policy's rows: who lives by that could not show it.
 * A short time does not matter, because heartbeats write well before a row is due.
 */
void
ssw_outage_since(const SswPolicy *p, TimestampTz since, TimestampTz now)
{
	if (p && (p->heartbeats || p->last_seen) && now - since > ssw_outage_patience(p->id, p->ttl_us))
		ssw_outage_note(MyDatabaseId, p->id, since, now);
}
