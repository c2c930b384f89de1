/*
 * want.c
 *		For which role a runner is wanted.
 *
 * Runs in the coordinator.  Roles whose commands or appended rows wait take turns:
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

#include "shmem.h"
#include "want.h"

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

/* When a role last had a runner; it has gone without for longest whom we never saw with one. */
typedef struct Served
{
	Oid			role;
	TimestampTz at;
} Served;

static HTAB *served = NULL;

/* Note who has runners; returns when this role had one before. */
static TimestampTz
served_at(Oid role, bool now_served, TimestampTz now)
{
	Served	   *s;
	bool		found;

	if (served == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(Served)};

		served = hash_create("roles with runners", 64, &ctl, HASH_ELEM | HASH_BLOBS);
	}
	s = hash_search(served, &role, now_served ? HASH_ENTER : HASH_FIND, &found);
	if (now_served)
		s->at = now;
	return s ? s->at : 0;
}

/*
 * For which of the roles is a runner wanted?  The one that has gone without for
 * longest; of those, the first in the list; when all have some, the first whose
 * runners are all busy.  None: invalid.  A role without one that was told to the
 * launcher keeps its turn.
 */
void
ssw_want_runner(const Oid *roles, int n, TimestampTz now)
{
	Oid			wanted = InvalidOid;
	Oid			busy = InvalidOid;
	TimestampTz longest = DT_NOEND;
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	for (int i = 0; d && i < n; i++)
	{
		int			ready;
		int			all = count_runners(roles[i], &ready);
		TimestampTz at = all > 0 ? DT_NOEND : roles[i] == d->runner_role ? DT_NOBEGIN : served_at(roles[i], false, now);

		if (at < longest)
		{
			longest = at;
			wanted = roles[i];
		}
		if (ready == 0 && all > 0 && !OidIsValid(busy))
			busy = roles[i];
		if (all > 0)
			(void) served_at(roles[i], true, now);
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
}

/* Nobody is to run commands now: those who do leave. */
void
ssw_want_none(void)
{
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	if (d)
		d->runner_role = InvalidOid;
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (p->state == SSW_STATE_FREE || p->kind != SSW_PROC_RUNNER || p->database != MyDatabaseId || p->stop || p->latch == NULL)
			continue;
		p->stop = true;
		p->stop_at = GetCurrentTimestamp();
		SetLatch(p->latch);
	}
	LWLockRelease(SswShared->lock);
}

/* Did runners for the role that waits fail to start, again and again? */
bool
ssw_want_cannot_start(void)
{
	SswDatabase *d;
	bool		failed;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	failed = d && d->runner_failures >= MAX_FAILED_STARTS;
	if (failed)
		d->runner_failures = 0;
	LWLockRelease(SswShared->lock);
	return failed;
}
