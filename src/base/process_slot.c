/*
 * process_slot.c
 *		Common life of our background processes: slot, signals, connection.
 *
 * A process belongs to a slot of SswProcs, guarded by SswShared->lock; the
 * launcher reserves a slot, registers the process, and the process attaches if
 * the slot's generation is still its own.  The exit callback frees the slot and
 * whatever the process held in a pass.  A crash empties shared memory.
 *
 * SIGTERM asks for a graceful end and is noted in the slot.  A second one of another
 * process than the postmaster, one that comes to a batch which ignores its cancel, or one
 * that code of users sends to its own process, ends it at the next interrupt check, batch
 * or not.  The launcher, whose end is bounded anyway, ignores it.
 */
#include "postgres.h"

#include <signal.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_db_role_setting.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/process_slot.h"

#define MAX_LEAVING	3

static uint32 my_generation;

/* Does a process continue although its batch was cancelled?  No code of users catches its end. */
bool
ssw_process_ignores_cancel(const SswProc *p, TimestampTz now)
{
	return p->batch_deadline != 0 && now >= p->batch_deadline + SSW_CANCEL_GRACE_US;
}

/* Whose code a process runs, or invalid. */
Oid
ssw_process_role(const SswProc *p)
{
	if (p->state == SSW_STATE_FREE)
		return InvalidOid;
	if (p->kind == SSW_PROC_RUNNER)
		return p->role;
	return p->kind == SSW_PROC_WORKER && p->pass >= 0 ? SswPasses[p->pass].owner : p->append_owner;
}

/*
 * Has a role processes that cannot be ended, and with them as many as there are places?
 * Then it gets no others.  The caller holds the lock.
 */
bool
ssw_process_role_is_full(Oid role)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		stuck = false;
	int			n = 0;

	for (int i = 0; i < SswShared->nprocs; i++)
	{
		if (ssw_process_role(&SswProcs[i]) != role)
			continue;
		n++;
		stuck = stuck || ssw_process_ignores_cancel(&SswProcs[i], now);
	}
	return stuck && n >= ssw_max_workers;
}

static void
handle_sigterm(int postgres_signal_arg, siginfo_t * info, void *context)
{
	int			save_errno = errno;

	if (MySswProc == NULL || info->si_pid == MyProcPid || ssw_process_ignores_cancel(MySswProc, GetCurrentTimestamp()))
		die(postgres_signal_arg);
	else if (MySswProc->terminating)
	{
		/*
		 * the postmaster signals a child and then its process group, which
		 * means the same
		 */
		if (MySswProc->kind != SSW_PROC_LAUNCHER && info->si_pid != PostmasterPid)
			die(postgres_signal_arg);
	}
	else
	{
		MySswProc->terminating = true;
		ssw_shmem_wake_launcher();
		SetLatch(MyLatch);
	}
	errno = save_errno;
}

/* Cancelled, by a time-out of its own, too. */
static void
handle_sigint(SIGNAL_ARGS)
{
	int			save_errno = errno;

	StatementCancelHandler(postgres_signal_arg);
	if (MySswProc)
		ssw_shmem_wake_launcher();
	errno = save_errno;
}

/*
 * Cancel what a process is at; if it ignores that, the launcher ends it.  The caller
 * holds the lock exclusively.
 */
void
ssw_process_cancel(SswProc *p)
{
	TimestampTz now = GetCurrentTimestamp();

	if (p->pid == 0 || p->interrupted)
		return;
	p->interrupted = true;
	if (p->batch_deadline == 0 || p->batch_deadline > now)
		p->batch_deadline = now;
	kill(p->pid, SIGINT);
}

/* Cancel the batches of a policy that somebody stops; no other one begins in their passes. */
void
ssw_process_cancel_policy(int policy_id)
{
	if (!ssw_shmem_available())
		return;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];
		SswPass    *pass = p->kind == SSW_PROC_WORKER && p->state == SSW_STATE_BUSY && p->pass >= 0 ? &SswPasses[p->pass] : NULL;

		if (pass == NULL || pass->database != MyDatabaseId || pass->policy_id != policy_id || p->pid == MyProcPid)
			continue;
		if (pass->end <= SSW_END_SPENT)
			pass->end = SSW_END_STOPPED;
		if (p->batch_deadline != 0)
			ssw_process_cancel(p);
	}
	LWLockRelease(SswShared->lock);
}

/* Take a free slot for a process to be started, a runner of that role; -1 when there is none.  The caller holds the lock exclusively. */
int
ssw_process_reserve(SswProcKind kind, Oid database, Oid role)
{
	for (int i = 0; i < SswShared->nprocs; i++)
		if (SswProcs[i].state == SSW_STATE_FREE)
		{
			uint32		generation = SswProcs[i].generation + 1;

			SswProcs[i] = (SswProc)
			{
				.kind = kind,.state = SSW_STATE_STARTING,.generation = generation,.database = database,
					.role = role,.pass = -1,.state_since = GetCurrentTimestamp()
			};
			return i;
		}
	return -1;
}

/* It will not be started, or never came: its slot is free again.  The caller holds the lock exclusively. */
void
ssw_process_release(int slot)
{
	SswProcs[slot].generation++;
	SswProcs[slot].state = SSW_STATE_FREE;
}

static const struct
{
	const char *type;
	const char *function;
}			kinds[] = {
	[SSW_PROC_LAUNCHER] = {"session_sweeper launcher", "ssw_launcher_main"},
	[SSW_PROC_COORDINATOR] = {"session_sweeper coordinator", "ssw_coordinator_main"},
	[SSW_PROC_WORKER] = {"session_sweeper worker", "ssw_worker_main"},
	[SSW_PROC_RUNNER] = {"session_sweeper worker", "ssw_runner_main"},
};

/* Register the process of a reserved slot.  No handle is asked for: it would stay in the launcher's memory. */
bool
ssw_process_start(int slot)
{
	BackgroundWorker bgw = {0};
	const SswProc *proc = &SswProcs[slot];

	bgw.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	bgw.bgw_start_time = BgWorkerStart_RecoveryFinished;
	bgw.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(bgw.bgw_type, kinds[proc->kind].type, sizeof(bgw.bgw_type));
	strlcpy(bgw.bgw_name, kinds[proc->kind].type, sizeof(bgw.bgw_name));
	strlcpy(bgw.bgw_library_name, SSW_EXTENSION, sizeof(bgw.bgw_library_name));
	strlcpy(bgw.bgw_function_name, kinds[proc->kind].function, sizeof(bgw.bgw_function_name));
	bgw.bgw_main_arg = Int32GetDatum(slot);
	memcpy(bgw.bgw_extra, &proc->generation, sizeof(proc->generation));
	return RegisterDynamicBackgroundWorker(&bgw, NULL);
}

/* Leave a pass, or appended rows: the last one out wakes the coordinator. */
static void
leave_pass(SswProc *proc)
{
	int			me = proc - SswProcs;

	proc->append_owner = InvalidOid;
	if (proc->pass < 0)
		return;
	if (SswPasses[proc->pass].collector == me)
		SswPasses[proc->pass].collector = -1;
	if (SswPasses[proc->pass].workers > 0 && --SswPasses[proc->pass].workers == 0)
		SswPasses[proc->pass].waits_since = GetCurrentTimestamp();
	proc->pass = -1;
	proc->policy_id = 0;
}

/*
 * A process came to nothing in that database: the next tries later, up to a
 * minute.  The caller holds the lock exclusively.
 */
static void
failed_start(SswDatabase *d, SswProcKind kind)
{
	TimestampTz again;

	d->start_failures++;
	again = GetCurrentTimestamp() + Min(60, d->start_failures) * USECS_PER_SEC;
	if (kind == SSW_PROC_WORKER)
		d->workers_not_before = again;
	else
		d->not_before = again;
}

/* This process could do what it was started for. */
void
ssw_process_ready(void)
{
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	MySswProc->ready = true;
	d = ssw_shmem_database(MySswProc->database, false);
	if (d)
		d->start_failures = 0;
	/* it may come again as soon as it is due */
	if (d && MySswProc->kind == SSW_PROC_COORDINATOR)
		d->not_before = 0;
	LWLockRelease(SswShared->lock);
}

/* What other modules do when one of our processes leaves. */
static SswLeaving leaving[MAX_LEAVING];
static int	nleaving = 0;

/* Called from _PG_init; the callback runs under SswShared->lock, and has nothing to free. */
void
ssw_process_on_leaving(SswLeaving callback)
{
	Assert(nleaving < MAX_LEAVING);
	leaving[nleaving++] = callback;
}

static void
free_slot(int code, Datum arg)
{
	int			me = MySswProc - SswProcs;
	SswDatabase *d;

	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	if (MySswProc->generation == my_generation)
	{
		d = ssw_shmem_database(MySswProc->database, false);
		for (int i = 0; i < nleaving; i++)
			leaving[i] (d, MySswProc);
		leave_pass(MySswProc);
		/* if it wants another, after those that wait now */
		if (d && MySswProc->kind == SSW_PROC_WORKER)
			d->wanted_since = GetCurrentTimestamp();
		if (SswShared->launcher == me)
			SswShared->launcher = -1;
		if (d && d->coordinator == me)
		{
			d->coordinator = -1;
			if (code != 0)
			{
				/*
				 * it did not mean to leave: its successor starts from the
				 * beginning
				 */
				d->next_due = d->marked_at = 0;
				d->not_before = GetCurrentTimestamp() + USECS_PER_SEC;
			}
		}
		if (d && (d->coordinator >= 0 || MySswProc->kind == SSW_PROC_RUNNER))
			ssw_shmem_wake_coordinator(d->oid);
		if (d && !MySswProc->ready && !(MySswProc->connected && MySswProc->terminating) && MySswProc->kind != SSW_PROC_RUNNER)
			failed_start(d, MySswProc->kind);
		MySswProc->state = SSW_STATE_FREE;
		MySswProc->latch = NULL;
		MySswProc->pid = 0;
	}
	ssw_shmem_wake_launcher();
	LWLockRelease(SswShared->lock);
	ConditionVariableBroadcast(&SswShared->exit_cv);
	MySswProc = NULL;
}

static void
set_signals(void)
{
	/* pqsignal() would not tell who has sent it */
	struct sigaction action = {.sa_sigaction = handle_sigterm,.sa_flags = SA_RESTART | SA_SIGINFO};

	sigemptyset(&action.sa_mask);
	sigaction(SIGTERM, &action, NULL);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, handle_sigint);
	BackgroundWorkerUnblockSignals();
}

/* The process of a reserved slot begins.  The caller holds the lock exclusively. */
static void
occupy(int slot)
{
	SswDatabase *d = ssw_shmem_database(SswProcs[slot].database, false);

	MySswProc = &SswProcs[slot];
	my_generation = MySswProc->generation;
	MySswProc->pid = MyProcPid;
	MySswProc->latch = MyLatch;
	MySswProc->started_at = MySswProc->state_since = GetCurrentTimestamp();
	MySswProc->state = SSW_STATE_IDLE;
	if (MySswProc->kind == SSW_PROC_COORDINATOR && d)
		d->coordinator = slot;
	if (MySswProc->kind == SSW_PROC_LAUNCHER)
	{
		MySswProc->connected = true;	/* as far as it ever will be */
		SswShared->launcher = slot;
	}
}

/*
 * Attach to the slot that main_arg names; the launcher, without one, takes a slot by
 * itself.  False: the slot is not ours any more, and the process should exit.
 */
bool
ssw_process_attach(const Datum *main_arg)
{
	int			slot;
	uint32		generation;

	memcpy(&generation, MyBgworkerEntry->bgw_extra, sizeof(generation));
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	slot = main_arg ? DatumGetInt32(*main_arg) : ssw_process_reserve(SSW_PROC_LAUNCHER, InvalidOid, InvalidOid);
	if (slot >= 0 && SswProcs[slot].state == SSW_STATE_STARTING && (!main_arg || SswProcs[slot].generation == generation))
		occupy(slot);
	LWLockRelease(SswShared->lock);
	if (MySswProc)
		before_shmem_exit(free_slot, (Datum) 0);
	set_signals();
	return MySswProc != NULL;
}

/* Must this process leave: asked to, or because its database is closed? */
bool
ssw_process_must_leave(void)
{
	SswDatabase *d;
	bool		leave;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MySswProc->database, false);
	leave = MySswProc->stop || MySswProc->terminating || d == NULL || d->closed > 0;
	LWLockRelease(SswShared->lock);
	return leave;
}

/*
 * What ALTER DATABASE and ALTER ROLE ... SET say of processes that connect now to this
 * database as that role, invalid for workers and coordinators: a number that is not 0.
 * Needs a transaction.
 */
uint32
ssw_process_settings(Oid role)
{
	Oid			user = OidIsValid(role) ? role : BOOTSTRAP_SUPERUSERID;
	const Oid	whose[][2] = {{MyDatabaseId, user}, {InvalidOid, user}, {MyDatabaseId, InvalidOid}, {InvalidOid, InvalidOid}};
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	uint32		hash = 1;

	for (int i = 0; i < lengthof(whose); i++)
	{
		ScanKeyData keys[2];
		SysScanDesc scan;
		HeapTuple	tup;

		ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(whose[i][0]));
		ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(whose[i][1]));
		scan = systable_beginscan(rel, DbRoleSettingDatidRolidIndexId, true, NULL, 2, keys);
		while (HeapTupleIsValid(tup = systable_getnext(scan)))
			hash = hash_combine(hash, hash_bytes((unsigned char *) tup->t_data + tup->t_data->t_hoff, tup->t_len - tup->t_data->t_hoff));
		systable_endscan(scan);
	}
	table_close(rel, AccessShareLock);
	return Max(hash, 1);
}

/* A change from now on is noticed.  Called right after the connection, once no time-out of the host ends the transaction. */
void
ssw_process_note_settings(void)
{
	StartTransactionCommand();
	MySswProc->settings = ssw_process_settings(MySswProc->role);
	CommitTransactionCommand();
}

/* Connect, and override what a host may have set for its own sessions. */
void
ssw_process_connect(Oid database)
{
	static const char *const overrides[][2] = {
		{"session_replication_role", "origin"},
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_deferrable", "off"},
		{"search_path", "pg_catalog, pg_temp"},
		{"statement_timeout", "0"},
		{"transaction_timeout", "0"},
		{"lock_timeout", "0"},
		{"stats_fetch_consistency", "none"},
		{"zero_damaged_pages", "off"},
		{"exit_on_error", "off"},
		{"check_function_bodies", "on"},
		/* see ssw_action_run() */
		{"track_counts", "on"},
	};

	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	MySswProc->connected = true;
	ssw_identity_pin_process();
	for (int i = 0; i < lengthof(overrides); i++)
		if (GetConfigOption(overrides[i][0], true, false) != NULL)
			SetConfigOption(overrides[i][0], overrides[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	ssw_process_note_settings();
	SetConfigOption("synchronous_commit", GetConfigOption("session_sweeper.synchronous_commit", false, false),
					PGC_SUSET, PGC_S_OVERRIDE);
	pgstat_report_appname(MyBgworkerEntry->bgw_type);
}

/* Change this process's state, leaving its pass when it becomes idle. */
void
ssw_process_set_state(SswProcState state)
{
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	MySswProc->state = state;
	MySswProc->state_since = GetCurrentTimestamp();
	if (state == SSW_STATE_IDLE)
	{
		/* a cancel of the last batch came too late */
		if (MySswProc->kind == SSW_PROC_WORKER)
			MySswProc->batch_deadline = 0;
		leave_pass(MySswProc);
		d = ssw_shmem_database(MySswProc->database, false);
		if (d && MySswProc->kind == SSW_PROC_RUNNER)
		{
			if (OidIsValid(d->runner_role))
				ssw_shmem_wake_launcher();
		}
		else if (d && d->coordinator >= 0)
			ssw_shmem_wake_coordinator(d->oid);
	}
	LWLockRelease(SswShared->lock);
}
