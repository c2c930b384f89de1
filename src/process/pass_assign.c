/*
 * pass_assign.c
 *		Which pass gets which worker, and who writes appended rows.
 *
 * Runs in the coordinator, once a round.  A pass without any worker comes first,
 * then the one that was served longest ago; when all workers are held by others
 * the pass with most of them gives up after its batch; no role takes all while
 * another waits (worker_quota.c).  Nobody is starved.
 *
 * Shares passes and process slots under SswShared->lock.  A crash empties both.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/process_slot.h"
#include "work/append_demand.h"
#include "process/pass_assign.h"
#include "process/worker_quota.h"

/* A pass that waits lets the others have their workers for so long. */
#define YIELD_AFTER_US		(500 * 1000)
/* Others wait so long for a worker that is to come, or to leave. */
#define COMING_US			USECS_PER_SEC

/* The pass that has waited longest for a worker, may use one more, and was not passed over. */
static SswWatch *
neediest(List *watches)
{
	SswWatch   *best = NULL;
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->pass == NULL || w->policy == NULL || w->pass->end != SSW_END_NONE || w->pass->yield ||
			w->pass->workers >= w->pass->target || ssw_quota_has_its_share(w->policy->owner) || w->passed_over)
			continue;
		if (best == NULL || w->pass->workers < best->pass->workers ||
			(w->pass->workers == best->pass->workers && w->served_at < best->served_at))
			best = w;
	}
	return best;
}

/* An idle worker for code of that role, or for none: one that has run that, or none; else another role's. */
static SswProc *
idle_worker(Oid owner)
{
	SswProc    *best = NULL;

	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (p->kind != SSW_PROC_WORKER || p->database != MyDatabaseId || p->state != SSW_STATE_IDLE || p->pass >= 0 ||
			OidIsValid(p->append_owner) || p->stop || p->terminating || p->latch == NULL)
			continue;
		if (!OidIsValid(owner) || p->code_owner == owner)
			return p;
		if (best == NULL || !OidIsValid(p->code_owner))
			best = p;
	}
	return best;
}

/* Does it serve that role?  Code of one owner must not find what that of another left in the process. */
static bool
serves(const SswProc *p, Oid owner)
{
	return !OidIsValid(owner) || !OidIsValid(p->code_owner) || p->code_owner == owner;
}

/* So many places will be free for a worker that has run no users' code; one that takes long to leave, or to come, does not count. */
static int
count_coming(TimestampTz now)
{
	int			n = 0;

	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (p->state != SSW_STATE_FREE && p->kind == SSW_PROC_WORKER && p->database == MyDatabaseId &&
			(p->stop ? now - p->stop_at < COMING_US : p->state == SSW_STATE_STARTING && now - p->state_since < COMING_US))
			n++;
	}
	return n;
}

/* Whose code a pass runs; built-in policies have none. */
static Oid
code_owner(const SswWatch *w)
{
	return w->policy_id > SSW_LAST_BUILTIN ? w->policy->owner : InvalidOid;
}

/*
 * So many workers have rows to handle, as far as is known: chunks, and calls of is_alive,
 * are divided.
 */
static int
useful_workers(const SswWatch *w)
{
	const SswPass *pass = w->pass;
	int			most = w->policy->max_workers > 0 ? w->policy->max_workers : ssw_max_workers;

	return pass->more ? most : Min(most, pass->workers + pass->nchecks - pass->next_check);
}

/* A pass without any worker while others hold all: they yield after a batch. */
static void
make_others_yield(List *watches, TimestampTz now)
{
	SswWatch   *most = NULL;
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->pass && w->pass->workers > 0 && !w->pass->yield && now - w->served_at > YIELD_AFTER_US &&
			(most == NULL || w->pass->workers > most->pass->workers))
			most = w;
	}
	if (most == NULL)
		return;
	most->pass->yield = true;
	/* the launcher cancels batches that take too long */
	ssw_shmem_wake_launcher();
}

/* A worker for the pass, whose limits count from its first one. */
static void
give(SswWatch *w, SswProc *proc, TimestampTz now)
{
	proc->pass = w->pass - SswPasses;
	proc->policy_id = w->policy_id;
	if (OidIsValid(code_owner(w)))
		proc->code_owner = code_owner(w);
	if (w->pass->max_workers_seen == 0)
	{
		w->pass->started_at = now;
		w->pass->soft_deadline = now + w->policy->soft_limit_us;
	}
	proc->asking = 0;
	w->pass->workers++;
	w->pass->unfinished++;
	w->pass->max_workers_seen = Max(w->pass->max_workers_seen, w->pass->workers);
	w->served_at = now;
}

/* How many workers of a pass ignore that they were cancelled. */
static int
stuck_workers(const SswPass *pass, TimestampTz now)
{
	int			n = 0;

	for (int i = 0; i < SswShared->nprocs; i++)
		n += SswProcs[i].kind == SSW_PROC_WORKER && SswProcs[i].pass == pass - SswPasses && ssw_process_ignores_cancel(&SswProcs[i], now);
	return n;
}

/* How many workers are wanted, and whose appended rows wait for one. */
static void
tell_launcher(int wanted, Oid append_waits, TimestampTz now)
{
	SswDatabase *d = ssw_shmem_database(MyDatabaseId, false);

	if (d && d->append_waits != append_waits)
	{
		d->append_waits = append_waits;
		d->append_waits_since = now;
	}
	if (d && d->workers_wanted != wanted)
	{
		if (d->workers_wanted <= ssw_quota_count(SSW_PROC_WORKER, MyDatabaseId))
			d->wanted_since = now;
		d->workers_wanted = wanted;
		ssw_shmem_wake_launcher();
	}
}

/* Give passes and appended rows to idle workers, and tell the launcher how many are wanted. */
void
ssw_assign(List *watches, TimestampTz now)
{
	static bool appended_last = false;	/* passes and appended rows take turns */
	SswWatch   *w;
	SswProc    *proc;
	Oid			owner;
	int			wanted;
	int			coming;
	int			owners_passed_over = 0;
	Oid			append_waits = InvalidOid;
	bool		waits = false;	/* a pass without any worker, or appended rows */
	ListCell   *lc;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	wanted = ssw_append_demand_wanted();
	foreach(lc, watches)
	{
		w = lfirst(lc);
		w->passed_over = false;
		if (w->pass == NULL || w->policy == NULL)
			continue;
		if (w->pass->workers == 0)
			w->pass->yield = false;
		w->pass->target = ssw_max(w->pass->target, useful_workers(w));
		if (w->pass->end == SSW_END_NONE)
			wanted += (ssw_quota_has_its_share(w->policy->owner) ? w->pass->workers : w->pass->target) - stuck_workers(w->pass, now);
	}
	coming = count_coming(now);
	for (;;)
	{
		bool		append;
		Oid			code_of;

		w = neediest(watches);
		owner = ssw_append_demand_next(owners_passed_over, ssw_quota_has_its_share);
		if (w == NULL && !OidIsValid(owner))
			break;
		append = OidIsValid(owner) && (w == NULL || w->pass->workers > 0 || !appended_last);
		code_of = append ? owner : code_owner(w);
		proc = idle_worker(code_of);
		if (proc && serves(proc, code_of))
		{
			appended_last = append;
			if (append)
				ssw_append_demand_give(proc, owner);
			else
				give(w, proc, now);
			SetLatch(proc->latch);
			continue;
		}

		/*
		 * it waits for one that comes, or another leaves, and the launcher
		 * starts one
		 */
		waits = waits || append || w->pass->workers == 0;
		if (append && owners_passed_over++ == 0)
			append_waits = owner;
		if (!append)
			w->passed_over = true;
		if (coming > 0)
			coming--;
		else if (proc)
			ssw_quota_ask_to_leave(proc, now);
	}
	if (waits)
		make_others_yield(watches, now);
	tell_launcher(Min(wanted, ssw_max_workers), append_waits, now);
	LWLockRelease(SswShared->lock);
}
