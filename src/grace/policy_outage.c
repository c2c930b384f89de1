/*
 * policy_outage.c
 *		Times in which nobody could write the rows of a policy.
 *
 * The coordinator looks regularly whether the table of a policy is locked,
 * whether its passes fail, and whether the database is read-only.  More than an eighth
 * of the time to live of that is no service: sessions could not show that they are
 * alive, and grace.c credits that time.  Heartbeats themselves report nothing.
 *
 * Each policy has one time since which it is blocked, and the last outage, in its entry,
 * under SswShared->lock.  file.c keeps the outage over a clean stop.  A crash loses both,
 * and is followed by a grace anyway.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "grace/policy_outage.h"

/*
 * Of a time to live: rows are refreshed earlier than that before they are due, so that
 * a shorter time without writes is no outage.
 */
#define OUTAGE_PART		8
/* Time between two looks: this, or a quarter of that part if it is longer; while the table is locked, the other. */
#define FREE_LOOK_US	(1 * USECS_PER_SEC)
#define LOCKED_LOOK_US	(200 * 1000)

/* Does the coordinator look whether such a policy is blocked?  For others it only matters to views. */
bool
ssw_outage_watches(const SswPolicy *p)
{
	return (p->heartbeats || p->last_seen) && (p->heartbeats || p->check_every_us != 0);
}

static void
note(SswPolicyShared *s, TimestampTz since, TimestampTz until)
{
	if (since > s->outage_until || since < s->outage_since)
		s->outage_since = since;
	s->outage_until = until;
}

/* Rows could not be written in that time. */
void
ssw_outage_note(Oid dboid, int policy_id, TimestampTz since, TimestampTz until)
{
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(dboid, policy_id, true);
	if (s)
		note(s, since, until);
	LWLockRelease(SswShared->lock);
}

/*
 * The coordinator has looked: *blocked_since is 0 when rows can be written.  Returns when
 * to look again.  Where databases take turns, what was found free longer ago than two
 * looks may have been blocked ever since.
 */
TimestampTz
ssw_outage_look(const SswPolicy *p, SswBlock block, TimestampTz now, TimestampTz *blocked_since)
{
	SswPolicyShared *s;
	int64		patience = p->ttl_us / OUTAGE_PART;
	int64		every;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, p->id, true);
	if (s && s->heartbeat_ttl_us > 0 && (patience == 0 || s->heartbeat_ttl_us / OUTAGE_PART < patience))
		patience = s->heartbeat_ttl_us / OUTAGE_PART;
	every = Max(FREE_LOOK_US, patience / 4);
	*blocked_since = 0;
	if (s)
	{
		/* the clock may be set back */
		if (block != SSW_BLOCK_NONE && (s->blocked_since == 0 || s->blocked_since > now))
			s->blocked_since = s->free_at != 0 && s->free_at < now - 2 * every ? s->free_at : now;
		if (s->blocked_since != 0 && ssw_outage_watches(p) && now - s->blocked_since > patience)
			note(s, s->blocked_since, now);
		if (block == SSW_BLOCK_NONE)
		{
			s->blocked_since = 0;
			s->free_at = ssw_outage_watches(p) ? now : 0;
		}
		s->locked = block == SSW_BLOCK_LOCK;
		*blocked_since = s->blocked_since;
	}
	LWLockRelease(SswShared->lock);
	return now + (block == SSW_BLOCK_LOCK ? LOCKED_LOOK_US : every);
}

/* The last outage; false: none is known. */
bool
ssw_outage_last(int policy_id, TimestampTz now, TimestampTz *since, TimestampTz *until)
{
	SswPolicyShared *s;

	*since = *until = 0;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, false);
	if (s)
	{
		/* the clock was fast then */
		if (s->outage_until > now)
			s->outage_since = s->outage_until = now;
		*since = s->outage_since;
		*until = s->outage_until;
	}
	LWLockRelease(SswShared->lock);
	return *until != 0;
}
