/*
 * launcher.c
 *		The one static process of the server: it starts all others.
 *
 * Connected to no database; starts when recovery has finished, so a standby has
 * none and promotion starts it.  At every tick it compares what is wanted
 * (databases with the extension that are due, workers their coordinators ask
 * for) with what runs, and starts or stops processes, never more than the
 * settings allow.  It runs no SQL of users.
 *
 * Shares SswShared->databases and SswProcs under SswShared->lock.  It exits 1
 * so that the postmaster brings it back; a successor finds the others through
 * shared memory.  A crash empties that, and it starts from the beginning.
 */
#include "postgres.h"

#include <limits.h>
#include <signal.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/guc.h"
#include "base/process_slot.h"
#include "base/spi.h"
#include "grace/service_log.h"
#include "heartbeat/file.h"
#include "sweep/throttle.h"
#include "work/work_state.h"
#include "process/launcher.h"
#include "process/worker_quota.h"
#include "process/written_tables.h"

#define RESCAN_MS			(60 * 1000)
#define BUSY_TICK_MS		500
#define IDLE_TICK_MS		(10 * 1000)
#define START_TIMEOUT_US	(30 * USECS_PER_SEC)
#define SLOT_AGAIN_US		(100 * INT64CONST(1000))
#define CONNECT_TIMEOUT_US	(10 * USECS_PER_SEC)

PGDLLEXPORT void ssw_launcher_main(Datum main_arg);

static TimestampTz rescan_at = 0;
static TimestampTz start_again_at = 0;	/* the server had no slot for a
										 * coordinator */
static TimestampTz sample_at = 0;	/* of the WAL; see throttle.c */

/* Register the launcher; called while the postmaster preloads the library. */
void
ssw_launcher_register(void)
{
	BackgroundWorker bgw = {0};

	bgw.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	bgw.bgw_start_time = BgWorkerStart_RecoveryFinished;
	bgw.bgw_restart_time = 1;
	strlcpy(bgw.bgw_type, "session_sweeper launcher", sizeof(bgw.bgw_type));
	strlcpy(bgw.bgw_name, "session_sweeper launcher", sizeof(bgw.bgw_name));
	strlcpy(bgw.bgw_library_name, SSW_EXTENSION, sizeof(bgw.bgw_library_name));
	strlcpy(bgw.bgw_function_name, "ssw_launcher_main", sizeof(bgw.bgw_function_name));
	RegisterBackgroundWorker(&bgw);
}

/* A database that takes connections is known from now on, if it is to be swept; false: there is no room. */
static bool
note_database(Oid oid, bool wanted)
{
	SswDatabase *d = ssw_shmem_database(oid, wanted);

	if (d)
		d->idle = !wanted;
	return d || !wanted;
}

/* Compare the list of databases with pg_database. */
static void
scan_databases(void)
{
	static bool full_logged = false;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tup;
	List	   *wanted = NIL;
	List	   *others = NIL;
	bool		full = false;
	ListCell   *lc;
	TimestampTz began = GetCurrentTimestamp();

	ssw_spi_start_transaction();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tup = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database db = (Form_pg_database) GETSTRUCT(tup);

		if (!db->datallowconn || db->datconnlimit == -2)
			continue;
		if (ssw_guc_database_wanted(NameStr(db->datname)))
			wanted = lappend_oid(wanted, db->oid);
		else
			others = lappend_oid(others, db->oid);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	foreach(lc, wanted)
		full = !note_database(lfirst_oid(lc), true) || full;
	foreach(lc, others)
		(void) note_database(lfirst_oid(lc), false);
	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &SswShared->databases[i];

		/* one that was made known meanwhile may be too new for our snapshot */
		bool		gone = OidIsValid(d->oid) && d->known_since < began && !list_member_oid(wanted, d->oid) && !list_member_oid(others, d->oid);

		if (gone && d->closed == 0 && d->coordinator < 0)
		{
			ssw_shmem_forget_policies(d->oid);
			ssw_shmem_forget_passes(d->oid);
			d->oid = InvalidOid;
		}
		else if (gone)
			d->idle = true;
		if (d->state == SSW_DB_ABSENT)
			ssw_shmem_forget_passes(d->oid);
	}
	SswShared->rescan = false;
	LWLockRelease(SswShared->lock);
	ssw_spi_commit();
	if (full && !full_logged)
		ereport(LOG,
				(errmsg("session_sweeper already serves %d databases and ignores the others", SSW_MAX_DATABASES),
				 errhint("List the databases to sweep in \"session_sweeper.databases\".")));
	full_logged = full;
	rescan_at = GetCurrentTimestamp() + RESCAN_MS * INT64CONST(1000);
}

/* Free slots whose process never came. */
static void
reap_starting(TimestampTz now)
{
	for (int i = 0; i < SswShared->nprocs; i++)
		if (SswProcs[i].state == SSW_STATE_STARTING && now - SswProcs[i].state_since > START_TIMEOUT_US)
			ssw_process_release(i);
}

/* The database whose coordinator is to be started; invalid: none waits, or none may.  *waiting: one waits for a turn. */
static Oid
next_database(TimestampTz now, bool *waiting)
{
	SswDatabase *best = NULL;

	*waiting = false;
	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &SswShared->databases[i];

		if (!OidIsValid(d->oid) || d->state == SSW_DB_ABSENT || d->closed > 0 ||
			d->idle || d->next_due > now || d->not_before > now ||
			ssw_quota_count(SSW_PROC_COORDINATOR, d->oid) > 0)
			continue;
		if (best == NULL || d->next_due < best->next_due)
			best = d;
	}
	*waiting = best && ssw_quota_count(SSW_PROC_COORDINATOR, InvalidOid) >= ssw_quota_most_coordinators(now);
	if (best == NULL || *waiting)
		return InvalidOid;
	best->not_before = now + USECS_PER_SEC; /* should it die at once */
	return best->oid;
}

/* Coordinators know whether a database waits for one to leave. */
static void
let_others_in(bool waiting)
{
	bool		waited = SswShared->coordinators_waiting;

	SswShared->coordinators_waiting = waiting;
	for (int i = 0; waiting && !waited && i < SswShared->nprocs; i++)
		if (SswProcs[i].state != SSW_STATE_FREE && SswProcs[i].kind == SSW_PROC_COORDINATOR && SswProcs[i].latch)
			SetLatch(SswProcs[i].latch);
}

/* A process to be started. */
typedef struct Start
{
	SswProcKind kind;
	Oid			database;
	Oid			role;			/* of a runner */
	int			slot;			/* -1: none is free */
} Start;

/* The next process to be started; false: none.  The caller holds the lock exclusively. */
static bool
next_start(Start *s, TimestampTz now)
{
	bool		waiting;

	if (now < start_again_at)
		return false;
	s->role = InvalidOid;
	s->kind = SSW_PROC_COORDINATOR;
	s->database = next_database(now, &waiting);
	let_others_in(waiting);
	if (!OidIsValid(s->database))
	{
		s->kind = SSW_PROC_WORKER;
		s->database = ssw_quota_next_worker(now);
	}
	if (!OidIsValid(s->database))
	{
		s->kind = SSW_PROC_RUNNER;
		s->database = ssw_quota_next_runner(now, &s->role);
	}
	if (!OidIsValid(s->database))
		return false;
	s->slot = ssw_process_reserve(s->kind, s->database, s->role);
	return true;
}

/*
 * The server has no slot for it.  A coordinator is tried again soon, not at once: the slot
 * of one that has left is free when the server has seen that.  Nobody else gets it meanwhile.
 */
static void
start_failed(const Start *s, TimestampTz now)
{
	SswDatabase *d = ssw_shmem_database(s->database, false);

	if (s->slot >= 0)
		ssw_process_release(s->slot);
	if (s->kind == SSW_PROC_COORDINATOR)
		start_again_at = now + SLOT_AGAIN_US;
	if (d && s->kind == SSW_PROC_COORDINATOR)
		d->not_before = now;
	ssw_quota_no_slot(s->kind, s->database, s->role, now);
}

/* Start what is wanted and may be started, until the server has no slot. */
static void
start_processes(TimestampTz now)
{
	Start		start;
	bool		failed = false;
	bool		more = true;

	while (more)
	{
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		if (failed)
			start_failed(&start, now);
		more = !failed && next_start(&start, now);
		LWLockRelease(SswShared->lock);
		failed = more && (start.slot < 0 || !ssw_process_start(start.slot));
		if (failed)
			ssw_quota_note_no_slot(now);
	}
}

/* Does a command wait until we have left the process's database? */
static bool
is_closed(const SswProc *p)
{
	SswDatabase *d = OidIsValid(p->database) ? ssw_shmem_database(p->database, false) : NULL;

	return d && d->closed > 0;
}

/*
 * Must a command be interrupted?  It was cancelled, or its process is to leave, and
 * had time to end by itself; some is left to write that down.
 */
static bool
is_over(const SswProc *p, TimestampTz now)
{
	return (p->cancel_since != 0 && now - p->cancel_since > ssw_cancel_grace * INT64CONST(1000)) ||
		(p->stop_since != 0 && now - p->stop_since > ssw_shutdown_timeout * INT64CONST(1000) / 2);
}

/*
 * SIGTERM for processes that are to leave, a second one for those that take longer
 * than shutdown_timeout to end, whose batch exceeds its hard limit, or that cannot
 * connect because a session holds their database.  Returns how many processes run.
 */
static int
enforce_limits(TimestampTz now, bool stopping)
{
	int			left = 0;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	if (!stopping)
		reap_starting(now);
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];
		bool		late;

		if (p->state == SSW_STATE_FREE || p == MySswProc)
			continue;

		/*
		 * nor is a process waited for that has not begun: a server that stops
		 * begins none
		 */
		if (p->pid == 0)
			continue;
		left++;
		if (!p->terminating && (stopping || is_closed(p)))
			kill(p->pid, SIGTERM);
		if (p->terminating && p->stop_since == 0)
			p->stop_since = now;
		late = p->stop_since != 0 && now - p->stop_since > ssw_shutdown_timeout * INT64CONST(1000);
		/* off stops sweeps at once */
		if (!ssw_enabled && p->kind == SSW_PROC_WORKER)
		{
			p->stop = true;
			if (p->latch)
				SetLatch(p->latch);
			if (p->batch_deadline != 0)
				ssw_process_cancel(p);
		}
		if (ssw_process_ignores_cancel(p, now) ||
			(!p->connected && now - p->started_at > CONNECT_TIMEOUT_US))
		{
			if (!p->terminating)
				kill(p->pid, SIGTERM);
			late = true;
		}
		if (late && p->terminating)
			kill(p->pid, SIGTERM);
		else if (p->has_task && is_over(p, now))
			ssw_process_cancel(p);
	}
	if (!stopping && ssw_enabled)
	{
		ssw_quota_take_back(now);
		ssw_quota_enforce(now);
	}
	LWLockRelease(SswShared->lock);
	return left;
}

/* Milliseconds until something is due. */
static long
sleep_ms(TimestampTz now)
{
	TimestampTz next = now + IDLE_TICK_MS * INT64CONST(1000);
	bool		busy;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	busy = SswShared->no_slot_since != 0;
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		busy = busy || SswProcs[i].state == SSW_STATE_BUSY || (SswProcs[i].pid != 0 && !SswProcs[i].connected) ||
			SswProcs[i].state == SSW_STATE_STARTING || SswProcs[i].terminating;
		/* cancelled: is it heeded? */
		if (SswProcs[i].batch_deadline != 0 && SswProcs[i].batch_deadline <= now)
			next = Min(next, SswProcs[i].batch_deadline + SSW_CANCEL_GRACE_US);
	}
	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &SswShared->databases[i];
		TimestampTz due = Max(d->next_due, d->not_before);

		if (!ssw_enabled || !OidIsValid(d->oid) || d->closed > 0 || d->idle)
			continue;
		/* for those that wait for a turn, a coordinator that leaves wakes us */
		if (d->state != SSW_DB_ABSENT && d->coordinator < 0)
			next = Min(next, due <= now && SswShared->coordinators_waiting ? now + BUSY_TICK_MS * INT64CONST(1000) : due);
		else if (d->coordinator >= 0 && d->workers_wanted > 0 && d->workers_not_before > now)
			next = Min(next, d->workers_not_before);
		if (OidIsValid(d->runner_role))
			next = Min(next, now + BUSY_TICK_MS * INT64CONST(1000));
	}
	LWLockRelease(SswShared->lock);
	if (busy)
		next = Min(next, now + BUSY_TICK_MS * INT64CONST(1000));
	if (start_again_at > now)
		next = Min(next, start_again_at);
	next = Min(next, Min(rescan_at, sample_at));
	return Max(5, (next - now) / 1000);
}

static void
wait_tick(long ms)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
					 ssw_wait_event("SessionSweeperLauncherMain", wait_event));
	ResetLatch(MyLatch);
}

/* End our processes, in order, within shutdown_timeout and a little. */
static void
stop_all(void)
{
	TimestampTz until = GetCurrentTimestamp() + (ssw_shutdown_timeout + 1000) * INT64CONST(1000);

	while (enforce_limits(GetCurrentTimestamp(), true) > 0 && GetCurrentTimestamp() < until)
		wait_tick(20);
}

/* Each database is to judge its policies again: settings have changed, or the clock, and then nothing waits for a time of the old one. */
static void
judge_again(bool clock_set)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &SswShared->databases[i];

		d->next_due = 0;
		if (clock_set)
			d->not_before = d->workers_not_before = 0;
	}
	LWLockRelease(SswShared->lock);
	ssw_work_look_again();
	rescan_at = 0;
	if (!clock_set)
		return;
	start_again_at = 0;
	ssw_quota_forget_short();
	ssw_throttle_forget();
}

void
ssw_launcher_main(Datum main_arg)
{
	if (!ssw_process_attach(NULL))
		proc_exit(1);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SetConfigOption("stats_fetch_consistency", "none", PGC_SUSET, PGC_S_OVERRIDE);
	pgstat_report_appname(MyBgworkerEntry->bgw_type);
	ssw_service_note_promotion();
	ssw_service_start(ssw_file_load(ssw_service_began() == 0));
	ereport(LOG, (errmsg("session_sweeper launcher started")));

	while (!MySswProc->terminating)
	{
		TimestampTz now;

		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			judge_again(false);
		}
		ssw_service_watch_read_only(false);
		now = GetCurrentTimestamp();
		if (ssw_service_watch_clock())
			judge_again(true);
		ssw_service_alive(false);
		SswShared->counts_writes = pgstat_track_counts;
		ssw_file_clean();
		if (now >= rescan_at || SswShared->rescan)
			scan_databases();
		sample_at = ssw_min(ssw_throttle_sample(now), ssw_written_look(now));
		(void) enforce_limits(now, false);
		if (ssw_enabled)
			start_processes(now);
		wait_tick(sleep_ms(GetCurrentTimestamp()));
	}
	/* clients are on their way out: what follows is no service */
	ssw_service_watch_read_only(true);
	ssw_service_alive(true);
	stop_all();
	ssw_file_write();
	/* 1, so that the postmaster starts another unless the server stops */
	proc_exit(1);
}
