/*
 * runner_demand.c
 *		For which role a runner is wanted.
 *
 * Runs in the coordinator.  Roles whose commands wait take turns, in the order of their
 * numbers.  Sessions call here at their commit, to wake runners.
 *
 * Shares SswDatabase.runner_role and the runners' slots, under SswShared->lock.  A crash
 * empties them: the next coordinator looks at the commands.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "base/process_slot.h"
#include "base/shmem.h"
#include "work/runner_demand.h"
#include "work/work_state.h"

/* Of a cancel: the launcher interrupts the command at once. */
#define LONG_AGO	1

static bool
is_runner(const SswProc *p)
{
	return p->state != SSW_STATE_FREE && p->kind == SSW_PROC_RUNNER && p->database == MyDatabaseId;
}

/* How many runners a role has here, and how many could take a command now; these are woken. */
static int
count_runners(Oid role, int *ready)
{
	int			n = 0;

	*ready = 0;
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (!is_runner(p) || p->role != role || p->stop)
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

/*
 * Choose the role for which a runner is wanted: of those that have none the next by number,
 * so that all take turns; when all have runners, the first whose runners are all busy.
 * Returns when a role whose starts have failed is tried again.  Roles are in order.
 */
TimestampTz
ssw_runner_demand(const Oid *roles, int n, TimestampTz now)
{
	TimestampTz next = DT_NOEND;
	Oid			first = InvalidOid;
	Oid			after = InvalidOid;
	Oid			busy = InvalidOid;
	Oid			wanted;
	SswDatabase *d;
	SswWorkState state = ssw_work_read(MyDatabaseId);

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	for (int i = 0; d && i < n; i++)
	{
		int			ready;
		int			all = count_runners(roles[i], &ready);
		TimestampTz not_before = ssw_work_failed_starts(&state, roles[i]).not_before;

		if (ssw_process_role_is_full(roles[i]))
		{
			next = Min(next, now + USECS_PER_SEC);
			continue;
		}
		if (all > 0 && ready == 0 && !OidIsValid(busy))
			busy = roles[i];
		if (all > 0)
			continue;
		if (not_before > now)
		{
			next = Min(next, not_before);
			continue;
		}
		if (!OidIsValid(first))
			first = roles[i];
		/* one that waits for the launcher keeps its turn */
		if (!OidIsValid(after) && (roles[i] > d->last_runner_role || roles[i] == d->runner_role))
			after = roles[i];
	}
	wanted = OidIsValid(after) ? after : OidIsValid(first) ? first : busy;
	if (d && wanted != busy)
		d->last_runner_role = wanted;
	if (d && d->runner_role != wanted)
	{
		d->runner_role = wanted;
		d->runner_since = now;
		if (OidIsValid(wanted))
			ssw_shmem_wake_launcher();
	}
	LWLockRelease(SswShared->lock);
	return next;
}

/* No commands are to run now: runners leave, after their command or (interrupt) at once. */
void
ssw_runner_demand_none(bool interrupt)
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

		if (!is_runner(p) || p->latch == NULL)
			continue;
		if (!p->stop)
			p->stop_at = GetCurrentTimestamp();
		p->stop = true;
		/* also of one that was to leave after its command */
		if (interrupt && p->has_task)
			p->cancel_since = LONG_AGO;
		SetLatch(p->latch);
	}
	LWLockRelease(SswShared->lock);
}

/*
 * Commands of these roles (Oid *) wait: an idle runner takes them, or the coordinator
 * gets one.
 */
void
ssw_runner_wake(const List *roles)
{
	ListCell   *lc;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	foreach(lc, roles)
	{
		Oid			role = *(Oid *) lfirst(lc);
		SswDatabase *d = ssw_shmem_database(MyDatabaseId, false);
		int			ready = 0;

		if (OidIsValid(role))
			(void) count_runners(role, &ready);
		/* a runner that is wanted already will see this command, too */
		if (!(ready > 0 || (d && OidIsValid(role) && d->runner_role == role)) &&
			ssw_work_add(MyDatabaseId, SSW_WORK_COMMANDS))
			ssw_shmem_wake_coordinator(MyDatabaseId);
	}
	LWLockRelease(SswShared->lock);
}

/*
 * Does a runner have the task?  It is to stop it if since is not 0: it may notice that
 * itself until cancel_grace after that time, then the launcher interrupts it.
 */
bool
ssw_runner_cancel(const pg_uuid_t *task, TimestampTz since)
{
	bool		found = false;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (!is_runner(p) || !p->has_task || memcmp(&p->task, task, UUID_LEN) != 0)
			continue;
		found = true;
		if (since != 0 && (p->cancel_since == 0 || since < p->cancel_since))
			p->cancel_since = since;
	}
	if (since != 0)
		ssw_shmem_wake_launcher();
	LWLockRelease(SswShared->lock);
	return found;
}
