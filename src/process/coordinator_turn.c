/*
 * coordinator_turn.c
 *		A coordinator's turn, and how it leaves.
 *
 * Runs in the coordinator.  Databases take turns where there are more than may
 * have coordinators.  A coordinator that leaves, because another waits or because it
 * was asked to, opens no pass, ends those that have no worker, lets the others end after their
 * batch, and closes their rows.  A worker that is long in its batch is left to the
 * successor, which adopts its pass.
 *
 * Shares passes, the database's entry and our slot, under SswShared->lock.  A
 * crash empties them.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/process_slot.h"
#include "work/append_demand.h"
#include "process/coordinator_turn.h"
#include "process/worker_quota.h"

/* While others wait: with work at hand so long, without it no longer than until what is due at once. */
#define TURN_US				(1 * USECS_PER_SEC)
#define AT_ONCE_US			(50 * 1000)
/* The same while no pass has had a worker: the launcher makes room for one. */
#define UNSERVED_TURN_US	(10 * USECS_PER_SEC)
/* So long the workers may take to leave their passes. */
#define LEAVE_US			(2 * USECS_PER_SEC)

static TimestampTz begun_at = 0;	/* policies were first looked at */
static TimestampTz leaving_since = 0;

/*
 * What ALTER DATABASE and ALTER ROLE ... SET say holds for processes that connect
 * afterwards: when it has changed, our processes in this database that connected before
 * give way to others.
 */
void
ssw_turn_check_settings(TimestampTz now)
{
	static TimestampTz checked_at = 0;

	if (checked_at != 0 && now - checked_at < SSW_SETTINGS_EVERY_US && now >= checked_at)
		return;
	checked_at = now;
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];
		SswProc		was;

		LWLockAcquire(SswShared->lock, LW_SHARED);
		was = *p;
		LWLockRelease(SswShared->lock);
		if (was.state == SSW_STATE_FREE || was.stop || was.database != MyDatabaseId || was.settings == 0 ||
			was.settings == ssw_process_settings(was.role))
			continue;
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		if (p->state != SSW_STATE_FREE && p->generation == was.generation)
			ssw_quota_ask_to_leave(p, now);
		LWLockRelease(SswShared->lock);
	}
}

/* A turn begins with the next look: also when the clock was set. */
void
ssw_turn_begin(void)
{
	begun_at = leaving_since = 0;
}

/* What the database's entry says at the beginning of a round; what it asks for is taken. */
void
ssw_turn_begin_round(SswTurn *t)
{
	SswDatabase *d;

	memset(t, 0, sizeof(SswTurn));
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	t->closed = d == NULL || d->closed > 0 || d->idle;
	t->others_wait = SswShared->coordinators_waiting;
	if (d)
	{
		t->wakeups = d->wakeups;
		t->generation = d->policy_generation;
		t->marked_at = d->marked_at;
		t->may_be_due = d->may_be_due;
		d->may_be_due = false;
	}
	for (int i = 0; i < SswShared->nprocs; i++)
		t->passes = t->passes || (SswPasses[i].in_use && SswPasses[i].database == MyDatabaseId);
	LWLockRelease(SswShared->lock);
}

/* Are passes open, and none of them has ever had a worker? */
static bool
unserved(List *watches)
{
	bool		open = false;
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->pass && w->pass->max_workers_seen > 0)
			return false;
		open = open || w->pass;
	}
	return open;
}

/* Must this process leave, whatever it has not looked at yet? */
static bool
is_asked_to_leave(void)
{
	return MySswProc->terminating || MySswProc->stop;
}

/* Is it time to leave?  Asked before each look at the policies, and a turn has at least one of those. */
bool
ssw_turn_is_over(const SswTurn *t, List *watches, TimestampTz now)
{
	bool		over = is_asked_to_leave() || !ssw_enabled || t->closed;

	if (!over && t->others_wait && begun_at != 0)
		over = now - begun_at > (unserved(watches) ? UNSERVED_TURN_US : TURN_US);
	if (!over)
		leaving_since = 0;
	else if (leaving_since == 0)
		leaving_since = now;
	/* what was to be done before the first look is not taken off the turn */
	if (begun_at == 0)
		begun_at = GetCurrentTimestamp();
	return over;
}

/*
 * Leave now?  When the turn is over, no worker is in a pass and no appended rows wait
 * for one, or that takes too long; also when another database waits and here is nothing
 * to do at once.  Then a coordinator is started when it is needed again, or when
 * somebody wakes it.
 */
SswTurnEnd
ssw_turn_end_round(const SswTurn *t, List *watches, TimestampTz now, TimestampTz needed, TimestampTz marked_at)
{
	SswDatabase *d;
	ListCell   *lc;
	bool		idle = true;
	bool		leave;
	bool		woken;

	foreach(lc, watches)
		idle = idle && ((SswWatch *) lfirst(lc))->pass == NULL;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	idle = idle && !OidIsValid(ssw_append_demand_next(0, ssw_quota_has_its_share));
	d = ssw_shmem_database(MyDatabaseId, false);
	woken = d && d->wakeups != t->wakeups;
	if (woken)
		needed = now;
	if (leaving_since != 0)
		leave = idle || now - leaving_since > LEAVE_US;
	else
		leave = idle && SswShared->coordinators_waiting && needed > now + AT_ONCE_US;
	if (d)
	{
		/* after those that wait, although it did not look at what was due */
		d->next_due = is_asked_to_leave() || d->may_be_due ? now : Max(needed, now);
		d->looked_at = now;
	}
	if (d && leave)
	{
		d->coordinator = -1;
		d->marked_at = marked_at;
	}
	LWLockRelease(SswShared->lock);
	return leave ? SSW_TURN_LEAVES : woken ? SSW_TURN_GOES_ON : SSW_TURN_WAITS;
}
