/*
 * runner_demand.c
 *		For which role a runner is wanted.
 *
 * Runs in the coordinator.  Roles whose commands wait take turns:
 * the launcher is told the one that has gone without a runner for longest.
 *
 * Shares SswDatabase and the runners' slots, under SswShared->lock; keeps for itself
 * who had a turn.  A crash, or another coordinator, begins anew.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "work/runner_demand.h"

#define MAX_FAILED_STARTS	5

/* How many runners a role has here, and how many could take a command now; these are woken. */
static int
count_runners(Oid role, int *ready)
{
	int			n = 0;

	*ready = 0;
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (p->state == SSW_STATE_FREE || p->kind != SSW_PROC_RUNNER || p->database != MyDatabaseId || p->role != role || p->stop)
			continue;
		n++;
		if (p->has_task)
			continue;
		(*ready)++;
		if (p->latch)
			SetLatch(p->latch);
	}
	return n;
}

/* What is known of a role whose commands waited. */
typedef struct Served
{
	Oid			role;
	TimestampTz at;				/* it last had a runner; 0: we never saw one */
	int			failures;		/* of runners to start since */
	TimestampTz not_before;		/* none is tried */
} Served;

static HTAB *served = NULL;

static Served *
find_served(Oid role)
{
	Served	   *s;
	bool		found;

	if (served == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(Served)};

		served = hash_create("roles with runners", 64, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	s = hash_search(served, &role, HASH_ENTER, &found);
	if (!found)
		*s = (Served)
	{
		.role = role
	};
	return s;
}

/* Who was given up may come again: he begins anew. */
static void
forget_failures(void)
{
	HASH_SEQ_STATUS seq;
	Served	   *s;

	hash_seq_init(&seq, served);
	while ((s = hash_seq_search(&seq)) != NULL)
		if (s->failures >= MAX_FAILED_STARTS)
			s->failures = 0;
}

/*
 * For which of the roles is a runner wanted?  The one that has gone without for
 * longest; of those, the first in the list; when all have some, the first whose
 * runners are all busy.  None: invalid.  A role without one that was told to the
 * launcher keeps its turn.  Returns when one that is not tried now is to be.
 */
TimestampTz
ssw_runner_demand(const Oid *roles, int n, TimestampTz now)
{
	TimestampTz next = DT_NOEND;
	Oid			wanted = InvalidOid;
	Oid			busy = InvalidOid;
	TimestampTz longest = DT_NOEND;
	SswDatabase *d;
	Served	  **of = palloc(Max(n, 1) * sizeof(Served *));

	for (int i = 0; i < n; i++)
		of[i] = find_served(roles[i]);
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	for (int i = 0; d && i < n; i++)
	{
		Served	   *s = of[i];
		int			ready;
		int			all = count_runners(roles[i], &ready);
		TimestampTz at = all > 0 ? DT_NOEND : roles[i] == d->runner_role ? DT_NOBEGIN : s->at;

		if (all == 0 && s->failures > 0 && s->not_before > now)
		{
			next = Min(next, s->not_before);
			continue;
		}
		if (at < longest)
		{
			longest = at;
			wanted = roles[i];
		}
		if (ready == 0 && all > 0 && !OidIsValid(busy))
			busy = roles[i];
		if (all > 0)
			s->at = now;
	}
	if (!OidIsValid(wanted))
		wanted = busy;
	if (d && d->runner_role != wanted)
	{
		d->runner_role = wanted;
		d->runner_since = now;
		if (OidIsValid(wanted))
			ssw_shmem_wake_launcher();
	}
	LWLockRelease(SswShared->lock);
	if (served)
		forget_failures();
	return next;
}

/* Nobody is to run commands now: those who do leave, at once if it is in vain. */
void
ssw_runner_demand_none(bool in_vain)
{
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	if (d)
		d->runner_role = InvalidOid;
	ssw_shmem_wake_launcher();
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (p->state == SSW_STATE_FREE || p->kind != SSW_PROC_RUNNER || p->database != MyDatabaseId || p->latch == NULL)
			continue;
		if (!p->stop)
			p->stop_at = GetCurrentTimestamp();
		p->stop = true;
		/* also of one that was to leave after its command */
		if (in_vain && p->has_task)
			p->cancel_since = 1;	/* long ago */
		SetLatch(p->latch);
	}
	LWLockRelease(SswShared->lock);
}

/*
 * Take note of the runners that started, and of those that came to nothing: the next for
 * that role is tried later, up to a minute.  Before the roles are looked at.
 */
void
ssw_runner_demand_note_starts(TimestampTz now)
{
	static bool first = true;
	static uint32 noted = 0;
	SswRunnerStart start[SSW_RUNNER_STARTS];
	int			n = 0;
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	if (d)
	{
		if (first)
			noted = d->runner_starts;
		first = false;
		n = Min(d->runner_starts - noted, SSW_RUNNER_STARTS);
		for (int i = 0; i < n; i++)
			start[i] = d->runner_start[(d->runner_starts - n + i) % SSW_RUNNER_STARTS];
		noted = d->runner_starts;
	}
	LWLockRelease(SswShared->lock);
	for (int i = 0; i < n; i++)
	{
		Served	   *s = find_served(start[i].role);

		s->failures = start[i].failed ? s->failures + 1 : 0;
		if (start[i].failed)
			s->not_before = now + Min(60, s->failures) * USECS_PER_SEC;
	}
}

/* Did runners for the role fail to start, again and again?  Until the next ssw_runner_demand(). */
bool
ssw_runner_demand_cannot_start(Oid role)
{
	return find_served(role)->failures >= MAX_FAILED_STARTS;
}
