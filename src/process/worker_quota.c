/*
 * worker_quota.c
 *		Who gets the places of processes: sweeps and commands of all databases.
 *
 * Runs in the launcher, which starts every other process.  There are max_workers
 * places; commands have at most max_task_workers of them, and never the last one, which
 * is for sweeps.  A process that waits without a place makes another
 * one leave, at the end of its batch or command; so do those above a limit that
 * was lowered.  While another role waits, a role (the owner of swept tables, or who
 * submitted commands) has at most max_workers - 1 places, and at least one: it gets
 * no more, and a batch that keeps one for long is cancelled.
 *
 * A process that does not end when it is cancelled takes no place.  A role that has such
 * processes gets no others when it has max_workers in all.
 *
 * The last slots for passes are for owners that have none, whichever database's.
 *
 * Shares SswDatabase and SswProcs, under SswShared->lock.  A crash empties both.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/process_slot.h"
#include "base/shmem.h"
#include "work/work_state.h"
#include "process/worker_quota.h"

#define TENURE_US			(200 * INT64CONST(1000))
#define MAKE_ROOM_US		(1 * USECS_PER_SEC)
#define SHORT_US			(60 * USECS_PER_SEC)
/* A part of the slots for passes. */
#define LAST_PASSES			4
/* A role that has all places gives one back when another has waited for so long. */
#define PATIENCE_US			(2 * USECS_PER_SEC)

/* While the server has too few slots, coordinators have half of those that we hold. */
static int	slots = 0;
static TimestampTz short_until = 0;

int
ssw_quota_most_coordinators(TimestampTz now)
{
	return now < short_until ? Min(Max(1, slots / 2), ssw_max_coordinators) : ssw_max_coordinators;
}

/* The clock was set. */
void
ssw_quota_forget_short(void)
{
	short_until = 0;
	SswShared->no_slot_at = 0;
}

/* How many places processes of a kind take, in a database or in all. */
int
ssw_quota_count(SswProcKind kind, Oid database)
{
	TimestampTz now = GetCurrentTimestamp();
	int			n = 0;

	for (int i = 0; i < SswShared->nprocs; i++)
		if (SswProcs[i].state != SSW_STATE_FREE && SswProcs[i].kind == kind &&
			(!OidIsValid(database) || SswProcs[i].database == database) &&
			!ssw_process_ignores_cancel(&SswProcs[i], now))
			n++;
	return n;
}

/* The server has no slot for a process: the log says so once. */
void
ssw_quota_note_no_slot(TimestampTz now)
{
	bool		first = SswShared->no_slot_since == 0;

	/* only the launcher writes them */
	SswShared->no_slot_at = now;
	if (!first)
		return;
	SswShared->no_slot_since = now;
	ereport(LOG,
			(errmsg("session_sweeper could not start a background process"),
			 errdetail("All background worker slots are in use."),
			 errhint("Raise \"max_worker_processes\" (now %d) and restart the server. Until then sweeps use what is free; without a slot for the launcher, a coordinator and a worker nothing expires.",
					 max_worker_processes)));
}

/* The database in which a pass, or appended rows, of another role have waited for a worker since before then. */
static Oid
waiting_in(Oid role, TimestampTz before)
{
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswPass    *pass = &SswPasses[i];

		if (pass->in_use && pass->owner != role && pass->workers == 0 && pass->end == SSW_END_NONE && pass->waits_since <= before &&
			!ssw_process_role_is_full(pass->owner))
			return pass->database;
	}
	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &SswShared->databases[i];

		if (OidIsValid(d->oid) && OidIsValid(d->append_waits) && d->append_waits != role && d->append_waits_since <= before)
			return d->oid;
	}
	return InvalidOid;
}

/* How many places are taken. */
static int
taken_places(void)
{
	return ssw_quota_count(SSW_PROC_WORKER, InvalidOid) + ssw_quota_count(SSW_PROC_RUNNER, InvalidOid);
}

/* How many places a role has. */
static int
places_of(Oid role)
{
	TimestampTz now = GetCurrentTimestamp();
	int			n = 0;

	for (int i = 0; i < SswShared->nprocs; i++)
		n += ssw_process_role(&SswProcs[i]) == role && !ssw_process_ignores_cancel(&SswProcs[i], now);
	return n;
}

/*
 * How many places a role has, beyond its share when another role waits.  Where the server
 * has no slot for more, there are only those that are taken.
 */
static int
beyond_share(Oid role)
{
	int			places = SswShared->no_slot_since != 0 ? ssw_min(ssw_max_workers, taken_places()) : ssw_max_workers;

	return places_of(role) - Max(1, places - 1);
}

/* Must a role not get another place, because another role waits, or it is full?  The caller holds the lock. */
bool
ssw_quota_has_its_share(Oid role)
{
	return ssw_process_role_is_full(role) || (beyond_share(role) >= 0 && OidIsValid(waiting_in(role, DT_NOEND)));
}

/*
 * Of a role that has all places while another waits, the batch that began last is
 * cancelled, and its worker leaves the pass.  Short batches make room by themselves.
 * The caller holds the lock exclusively.
 */
void
ssw_quota_take_back(TimestampTz now)
{
	SswProc    *victim = NULL;
	Oid			waiting = InvalidOid;

	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];
		Oid			role = ssw_process_role(p);
		Oid			w;

		if (p->kind != SSW_PROC_WORKER || p->state != SSW_STATE_BUSY || ssw_process_ignores_cancel(p, now) || !OidIsValid(role) ||
			now - p->state_since < PATIENCE_US || (victim && p->state_since <= victim->state_since) || beyond_share(role) <= 0)
			continue;
		w = waiting_in(role, now - PATIENCE_US);
		if (!OidIsValid(w))
			continue;
		victim = p;
		waiting = w;
	}
	if (victim)
	{
		if (victim->pass >= 0)
			SswPasses[victim->pass].yield = true;
		if (victim->pass < 0 || victim->database != waiting)
			victim->stop = true;
		if (victim->batch_deadline != 0)
			ssw_process_cancel(victim);
	}
}

/* How many of the workers may run commands: one is always left for sweeps. */
static int
most_runners(void)
{
	return Min(ssw_max_task_workers, ssw_max_workers - 1);
}

/*
 * A slot for a pass of that policy, or null.  The last ones are for owners that have none, and for
 * built-in policies.  The caller holds the lock.
 */
SswPass    *
ssw_quota_free_pass(const SswPolicy *p)
{
	SswPass    *found = NULL;
	bool		has_others = false;
	int			n = 0;

	for (int i = 0; i < SswShared->nprocs; i++)
	{
		has_others = has_others || (SswPasses[i].in_use && SswPasses[i].owner == p->owner);
		if (SswPasses[i].in_use)
			continue;
		found = &SswPasses[i];
		n++;
	}
	return has_others && p->id > SSW_LAST_BUILTIN && n <= Max(1, SswShared->nprocs / LAST_PASSES) ? NULL : found;
}

/* Is it idle, and not because it is about to be given a pass? */
static bool
is_spare(const SswProc *p)
{
	SswDatabase *d = ssw_shmem_database(p->database, false);

	if (p->kind == SSW_PROC_RUNNER)
		return !p->has_task;
	return p->state == SSW_STATE_IDLE && p->pass < 0 && !OidIsValid(p->append_owner) &&
		(d == NULL || d->coordinator < 0 || d->workers_wanted < ssw_quota_count(SSW_PROC_WORKER, p->database));
}

/* It was started for work that waits, too, and has had no time for it. */
static bool
is_new(const SswProc *p, TimestampTz now)
{
	TimestampTz since = p->state == SSW_STATE_STARTING ? p->state_since : p->started_at;

	return (p->kind == SSW_PROC_RUNNER || !is_spare(p)) && since <= now && now - since < TENURE_US;
}

/* Ask it to leave at the end of its batch or command. */
void
ssw_quota_ask_to_leave(SswProc *p, TimestampTz now)
{
	p->stop = true;
	p->stop_at = now;
	if (p->latch)
		SetLatch(p->latch);
}

/*
 * Ask a worker or runner to make room for a process that waits.  Those of the same kind,
 * database and role serve what it is for, and stay.  Of the others a spare one leaves;
 * if the waiting database has none, any: that of the database with most, there longest.
 * The caller holds the lock exclusively.
 */
static void
make_room(SswProcKind kind, Oid database, Oid role, TimestampTz now)
{
	bool		any = kind == SSW_PROC_RUNNER || ssw_quota_count(SSW_PROC_WORKER, database) == 0;
	bool		runners_only = kind == SSW_PROC_RUNNER && ssw_quota_count(kind, InvalidOid) >= most_runners();
	SswProc    *victim = NULL;
	int			most = 0;

	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];
		int			n;

		if (p->state == SSW_STATE_FREE || (p->kind != SSW_PROC_RUNNER && (runners_only || p->kind != SSW_PROC_WORKER)) ||
			(p->kind == kind && p->database == database && p->role == role) || ssw_process_ignores_cancel(p, now))
			continue;
		/* one is leaving already, unless it is long in its batch */
		if ((p->stop && now - p->stop_at < MAKE_ROOM_US) || is_new(p, now))
			return;
		if (p->stop || p->latch == NULL)
			continue;
		n = is_spare(p) ? INT_MAX : any ? ssw_quota_count(p->kind, p->database) : 0;
		if (n > most || (victim && n == most && p->started_at < victim->started_at))
		{
			most = n;
			victim = p;
		}
	}
	if (victim)
		ssw_quota_ask_to_leave(victim, now);
}

/*
 * The server had no slot for that process.  Coordinators take turns with half of the
 * slots that we have; if they have no more, another process leaves for it.  The caller
 * holds the lock exclusively.
 */
void
ssw_quota_no_slot(SswProcKind kind, Oid database, Oid role, TimestampTz now)
{
	int			coordinators = ssw_quota_count(SSW_PROC_COORDINATOR, InvalidOid);

	slots = coordinators + taken_places();
	short_until = now + SHORT_US;
	if (coordinators <= ssw_quota_most_coordinators(now) - (kind == SSW_PROC_COORDINATOR))
		make_room(kind, database, role, now);
}

/*
 * The database that gets the next worker: that with the fewest, *has of them; of several,
 * the one that has waited longest.
 */
static SswDatabase *
neediest(TimestampTz now, int *has)
{
	SswDatabase *best = NULL;

	*has = INT_MAX;
	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &SswShared->databases[i];
		int			n;

		if (!OidIsValid(d->oid) || d->closed > 0 || d->coordinator < 0 || d->workers_not_before > now)
			continue;
		n = ssw_quota_count(SSW_PROC_WORKER, d->oid);
		if (n < d->workers_wanted && (n < *has || (n == *has && d->wanted_since < best->wanted_since)))
		{
			best = d;
			*has = n;
		}
	}
	return best;
}

/* The database whose commands have waited longest for a runner; the caller holds the lock. */
static SswDatabase *
longest_without_runner(void)
{
	SswDatabase *best = NULL;

	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &SswShared->databases[i];

		if (OidIsValid(d->oid) && d->closed == 0 && OidIsValid(d->runner_role) && !ssw_process_role_is_full(d->runner_role) &&
			(best == NULL || d->runner_since < best->runner_since))
			best = d;
	}
	return best;
}

/* How many places are free. */
static int
free_places(void)
{
	return ssw_max_workers - taken_places();
}

/*
 * The database, and the role, for whose commands a runner is to be started: those that
 * have waited longest.  Invalid: none, or another process leaves first.  The caller
 * holds the lock exclusively.
 */
Oid
ssw_quota_next_runner(TimestampTz now, Oid *role)
{
	SswDatabase *best = longest_without_runner();

	if (best == NULL)
		return InvalidOid;
	if (ssw_quota_count(SSW_PROC_RUNNER, InvalidOid) >= most_runners() || free_places() <= 0)
		make_room(SSW_PROC_RUNNER, best->oid, best->runner_role, now);
	else
	{
		*role = best->runner_role;
		best->runner_role = InvalidOid;
		/* others may wait */
		(void) ssw_work_add(best->oid, SSW_WORK_COMMANDS);
		ssw_shmem_wake_coordinator(best->oid);
		return best->oid;
	}
	return InvalidOid;
}

/* Is the last free place for commands that have waited longer than that?  The caller holds the lock. */
static bool
is_for_runner(TimestampTz since)
{
	SswDatabase *d = longest_without_runner();

	return d && d->runner_since < since && free_places() == 1 && ssw_quota_count(SSW_PROC_RUNNER, InvalidOid) < most_runners();
}

/*
 * The database for which a worker is to be started.  Invalid: none, or another process
 * leaves first.  The caller holds the lock exclusively.
 */
Oid
ssw_quota_next_worker(TimestampTz now)
{
	int			has;
	SswDatabase *d = neediest(now, &has);

	if (d == NULL || is_for_runner(has > 0 ? DT_NOEND : d->wanted_since))
		return InvalidOid;
	if (free_places() > 0)
		return d->oid;
	make_room(SSW_PROC_WORKER, d->oid, InvalidOid, now);
	return InvalidOid;
}

/* Does a leave before b?  Idle ones leave first; then the oldest, which had its turn. */
static bool
leaves_before(const SswProc *a, const SswProc *b)
{
	if ((a->state == SSW_STATE_IDLE) != (b->state == SSW_STATE_IDLE))
		return a->state == SSW_STATE_IDLE;
	return a->started_at < b->started_at;
}

/* Have those of a kind that are more than may be leave. */
static void
stop_surplus(SswProcKind kind, int most, TimestampTz now)
{
	for (;;)
	{
		SswProc    *victim = NULL;
		int			n = 0;

		for (int i = 0; i < SswShared->nprocs; i++)
		{
			SswProc    *p = &SswProcs[i];

			if (p->state == SSW_STATE_FREE || p->kind != kind || p->stop || ssw_process_ignores_cancel(p, now))
				continue;
			n++;
			if (p->latch && (victim == NULL || leaves_before(p, victim)))
				victim = p;
		}
		if (n <= most || victim == NULL)
			return;
		ssw_quota_ask_to_leave(victim, now);
	}
}

/* The limits may have been lowered.  The caller holds the lock exclusively. */
void
ssw_quota_enforce(TimestampTz now)
{
	int			runners = 0;

	/*
	 * slots are no longer short when none was missing for so long, because
	 * coordinators are tried again only after SHORT_US
	 */
	if (now - SswShared->no_slot_at > 2 * SHORT_US)
		SswShared->no_slot_since = 0;
	stop_surplus(SSW_PROC_COORDINATOR, ssw_quota_most_coordinators(now), now);
	stop_surplus(SSW_PROC_RUNNER, most_runners(), now);
	for (int i = 0; i < SswShared->nprocs; i++)
		runners += SswProcs[i].state != SSW_STATE_FREE && SswProcs[i].kind == SSW_PROC_RUNNER && !SswProcs[i].stop &&
			!ssw_process_ignores_cancel(&SswProcs[i], now);
	stop_surplus(SSW_PROC_WORKER, ssw_max_workers - runners, now);
}
