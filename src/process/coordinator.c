/*
 * coordinator.c
 *		The process that decides, for one database, which policies look when.
 *
 * A dynamic background process, at most one a database.  It judges each policy
 * (brakes), probes it or has a worker look, opens passes, asks the launcher for
 * workers and hands passes to idle ones, collects what they did, and sleeps on
 * its latch until the next thing is due.  It never writes a user's table.
 *
 * Shares passes, policy entries and worker slots, under SswShared->lock.  When
 * it dies, its workers continue; the next coordinator adopts the passes it finds
 * in shared memory, and after a crash closes the rows of those that are gone.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/process_slot.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "grace/service_log.h"
#include "heartbeat/store_scan.h"
#include "policy/partition.h"
#include "registry/pool_count.h"
#include "work/command_queue.h"
#include "work/runner_demand.h"
#include "work/task_notify.h"
#include "work/task_shmem.h"
#include "work/work_state.h"
#include "process/brake.h"
#include "process/coordinator_turn.h"
#include "process/owner_budget.h"
#include "process/pass_assign.h"
#include "process/pass_lifecycle.h"
#include "process/policy_row.h"
#include "process/policy_watch.h"
#include "process/probe.h"
#include "process/sweep_request.h"
#include "process/watch_list.h"
#include "process/worker.h"
#include "process/written_tables.h"

#define MARK_EVERY_S		(60 * 60)
#define MAX_SLEEP_US		(60 * USECS_PER_SEC)
#define EXTENSION_BUSY_US	(USECS_PER_SEC / 5)
/* An update that was prepared wakes nobody when it commits. */
#define OTHER_VERSION_US	USECS_PER_SEC
/* How late are rows that a brake holds?  Looked at no more often, and in such a part of the time. */
#define LATE_LOOK_US		(10 * USECS_PER_SEC)
#define LATE_LOOK_PART		500
#define LATE_LOOK_MAX_US	(15 * USECS_PER_MINUTE)

PGDLLEXPORT void ssw_coordinator_main(Datum main_arg);

static bool begun = false;
static TimestampTz marked_at = 0;
static TimestampTz blocked_look_at = 0; /* blocked policies are looked at,
										 * even if another database waits;
										 * now: so are policies that were left
										 * out */

/* The relation cannot even be looked at: back off as after a failed pass. */
static void
probe_failed(SswWatch *w, ErrorData *error, TimestampTz now)
{
	SswPass    *pass = palloc0(sizeof(SswPass));

	pass->sqlerrcode = error->sqlerrcode;
	ssw_shmem_text(pass->message, error->message, SSW_MESSAGE_LEN);
	ssw_policy_row_failed(w, pass);
	ssw_watch_rejudge(w, now);
	ssw_passes_publish(w, NULL);
}

/* A brake is on: CALL sweep reports which, and views show how late rows are, where that runs no users' code. */
static void
look_at_braked(SswWatch *w, uint64 request, TimestampTz now)
{
	ErrorData  *error;
	int64		every;

	if (request)
		ssw_request_complete(w, request, 0,
							 w->locked ? ERRCODE_LOCK_NOT_AVAILABLE : ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							 w->reason[0] ? psprintf("%s: %s", ssw_brake_name(w->state), w->reason) : ssw_brake_name(w->state));
	if (!w->plain || now < w->next_look)
		return;
	error = ssw_watch_probe(w, now);
	if (error)
		FreeErrorData(error);
	every = Max(LATE_LOOK_US, w->policy->check_every_us);
	w->next_look = now + Max(every, Min(LATE_LOOK_MAX_US, LATE_LOOK_PART * (GetCurrentTimestamp() - now)));
	/* what is due is counted then */
	if (w->count_at > now)
		w->next_look = Min(w->next_look, w->count_at);
	ssw_passes_publish(w, NULL);
}

/* The probe of a policy failed: its table is locked, or the policy is. */
static void
note_probe_error(SswWatch *w, ErrorData *error, uint64 request, TimestampTz now)
{
	if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		ssw_watch_locked(w);
	else
		probe_failed(w, error, now);
	if (request && !ssw_watch_patient(w, now))
		ssw_request_complete(w, request, 0, error->sqlerrcode, error->message);
	ssw_passes_publish(w, NULL);
}

/* Must a pass look, whatever a probe would say? */
static bool
needs_pass(SswWatch *w, uint64 request, TimestampTz now)
{
	return (request && w->policy->heartbeats) || now >= ssw_passes_refresh_at(w) || !w->plain || w->excluded > 0 ||
		w->policy->failures > 0 || (w->held_above != 0 && now >= w->full_at);
}

/*
 * Does a pass look though the probe has found nothing?  For a CALL, where what a worker said of the
 * filter may be old.  And now and then, so that no mistake about an index lets dead rows stay for good.
 */
static bool
is_doubted(const SswWatch *w, uint64 request, TimestampTz now)
{
	SswRest		rest;

	return (request && w->policy->filter_unread) || (w->trusted >= SSW_TRUSTED_LOOKS - 1 && !ssw_throttle_rests(w->policy, now, &rest));
}

/* Look at one policy if it is time, or somebody asked for it.  False: it wants a pass, and there is no room. */
static bool
look(SswWatch *w, TimestampTz now)
{
	uint64		generation = ssw_watch_list_generation();
	uint64		request;
	bool		gone;
	bool		due;
	bool		room = true;

	if (w->policy == NULL || w->pass != NULL || now < w->not_before || ssw_watch_patient(w, now))
		return true;
	request = ssw_request_pending(w, &generation);
	if (request)
		now = GetCurrentTimestamp();	/* what was due when it was called */
	if (!w->runs)
	{
		look_at_braked(w, request, now);
		return true;
	}
	gone = ssw_passes_gone_at(w) <= now;
	if (request == 0 && !w->owed && !gone && now < ssw_min(w->next_look, ssw_passes_refresh_at(w)))
		return true;
	w->rest.state = SSW_POLICY_UNKNOWN;
	memset(w->low, 0, sizeof(w->low));
	if (request)
		ssw_probe_requested(w);
	due = gone || needs_pass(w, request, now);
	if (!due)
	{
		ErrorData  *error;

		if (request)
			w->held_above = 0;
		error = ssw_watch_probe(w, now);
		if (error)
		{
			note_probe_error(w, error, request, now);
			return true;
		}
		due = w->unprobed || (w->earliest != 0 && w->earliest <= now) || is_doubted(w, request, now);
		w->looks++;
		w->last_look = now;
		if (!due)
			w->last_success = now;
	}
	if (!due)
		ssw_passes_nothing_due(w, now, request);
	else if (request != 0 || w->owed || !ssw_passes_rest(w, now, gone))
	{
		ssw_passes_open(w, generation, now, request != 0 || w->owed);
		room = w->pass != NULL;
		if (room)
			w->pass->request = request;
		w->next_look = now + ssw_min_interval * INT64CONST(1000);
		if (!room)
			w->not_before = w->next_look;
	}
	ssw_passes_publish(w, NULL);
	return room;
}

/* Find passes that have ended, or must, and have no worker any more; stop: all end, after the batches that workers are at. */
static void
find_ended(TimestampTz now, bool stop)
{
	ListCell   *lc;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	foreach(lc, ssw_watch_list_all())
	{
		SswWatch   *w = lfirst(lc);
		SswPass    *pass = w->pass;

		if (pass == NULL)
			continue;
		if (stop && (pass->end == SSW_END_NONE || (pass->end <= SSW_END_SPENT && pass->workers > 0)))
			pass->end = SSW_END_STOPPED;
		w->over = pass->workers == 0 &&
			(pass->end != SSW_END_NONE || (pass->max_workers_seen > 0 && now > pass->soft_deadline) || w->policy == NULL ||
			 ssw_shmem_pass_is_stale(pass) || !w->runs);
	}
	LWLockRelease(SswShared->lock);
}

static TimestampTz
next_wakeup(TimestampTz now)
{
	TimestampTz next = now + MAX_SLEEP_US;
	ListCell   *lc;

	foreach(lc, ssw_watch_list_all())
	{
		SswWatch   *w = lfirst(lc);

		if (w->pass)
			next = Min(next, now + USECS_PER_SEC);
		else if (w->not_before > now)
			next = Min(next, w->not_before);
		else if (w->runs)
			next = ssw_min(next, ssw_min(w->next_look, ssw_passes_gone_at(w)));
		else if (w->brake_until != 0)
			next = Min(next, w->brake_until);
		/* views show how late its rows are */
		if (w->policy && !w->runs && w->pass == NULL && w->plain && !w->locked)
			next = ssw_min(next, ssw_max(w->next_look, w->not_before));
		if (w->policy && w->policy->fuse_next > now)
			next = Min(next, w->policy->fuse_next);
	}
	return next;
}

/*
 * Is the extension there that we serve?  Else note that this database has none, or
 * another one; unless a commit has changed that since the round began.
 */
static bool
extension_present(const SswTurn *t)
{
	Oid			oid = get_extension_oid(SSW_EXTENSION, true);
	SswDatabase *d;
	bool		present;
	bool		gone;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	present = OidIsValid(oid) && (d == NULL || !OidIsValid(d->extension) || d->extension == oid);
	gone = !present && (d == NULL || d->policy_generation == t->generation);
	if (d && present)
	{
		d->state = SSW_DB_PRESENT;
		d->extension = oid;
	}
	if (d && gone)
	{
		d->state = OidIsValid(oid) ? SSW_DB_UNKNOWN : SSW_DB_ABSENT;
		d->extension = InvalidOid;
		d->workers_wanted = 0;
		d->append_waits = InvalidOid;
		d->marked_at = 0;
	}
	if (gone)
	{
		ssw_shmem_forget_policies(MyDatabaseId);
		ssw_shmem_forget_passes(MyDatabaseId);
	}
	LWLockRelease(SswShared->lock);
	if (gone)
	{
		ssw_store_forget(MyDatabaseId);
		ssw_task_shmem_forget(MyDatabaseId);
		ssw_work_forget(MyDatabaseId);
		ssw_pool_count_forget(MyDatabaseId);
		ssw_runner_demand_none(true);
	}
	return present;
}

/*
 * Is the SQL of another version than this library?  Its tables may be shaped
 * differently, so nothing is read or written until both are the same again.
 */
static bool
other_version(void)
{
	static bool told = false;
	char	   *version = ssw_identity_other_version();

	if (version && !told)
		ereport(WARNING,
				(errmsg("session_sweeper is inactive in this database: its SQL is version %s, the library version %s",
						version, SSW_VERSION),
				 errhint("ALTER EXTENSION session_sweeper UPDATE; or restart the server with the library of that version.")));
	if (told && !version)
		ssw_watch_list_reload();
	told = version != NULL;
	return told;
}

/* First acts: note the start, close what a crash left open, hold the policies after a long gap. */
static void
begin_service(const SswTurn *t, TimestampTz now)
{
	TimestampTz mark = ssw_policy_row_mark(true);

	marked_at = now;
	if (!t->passes)
		ssw_policy_row_abandon();
	if (ssw_max_gap > 0 && mark != 0 && now - mark > ssw_max_gap * USECS_PER_SEC)
	{
		ssw_policy_row_long_gap();
		ereport(WARNING,
				(errmsg("session_sweeper holds the policies of this database: nothing was swept since %s",
						timestamptz_to_str(mark)),
				 errhint("If the clock and the data are right, SELECT sweeper.resume_all();")));
	}
}

/*
 * Keep the mark of the last look younger than max_gap.  While the default is
 * read-only nothing can be written, and policies rest.
 */
static TimestampTz
keep_mark(const SswTurn *t, TimestampTz now)
{
	int64		every = (ssw_max_gap > 0 ? Min(MARK_EVERY_S, ssw_max_gap / 4) : MARK_EVERY_S) * USECS_PER_SEC;

	if (XactReadOnly)
		return DT_NOEND;
	if (!begun)
		marked_at = t->marked_at;
	/* an old one may be of a time before a long gap */
	if (!begun && (marked_at == 0 || now - marked_at > every))
		begin_service(t, now);
	else if (now - marked_at > every || now < marked_at)
	{
		ssw_policy_row_mark(true);
		marked_at = now;
	}
	begun = true;
	return marked_at + every;
}

/* When this database needs a coordinator, if nobody writes its tables. */
static TimestampTz
needed_at(TimestampTz next, TimestampTz now)
{
	ListCell   *lc;

	next = Min(next, now + SSW_IDLE_TURN_US);
	foreach(lc, ssw_watch_list_all())
		next = ssw_min(next, ssw_passes_needed_at(lfirst(lc), now));
	return next;
}

/* What the next coordinator goes by, and the views meanwhile. */
static void
leave_behind(TimestampTz now)
{
	ListCell   *lc;

	foreach(lc, ssw_watch_list_all())
	{
		SswWatch   *w = lfirst(lc);

		if (w->policy == NULL)
			continue;
		w->next_look = ssw_passes_needed_at(w, now);
		ssw_passes_publish(w, NULL);
	}
}

static void
note_grace(TimestampTz now)
{
	ListCell   *lc;

	if (XactReadOnly)
		return;
	foreach(lc, ssw_watch_list_all())
	{
		SswWatch   *w = lfirst(lc);

		if (w->policy && ssw_grace_note(w->policy, now))
			ssw_policy_row_horizons(w->policy);
		ssw_watch_arrivals(w, now);
	}
}

/* Close passes that have ended, then look at policies; while we leave, none is opened. */
static void
work_on_passes(TimestampTz now, bool leaving)
{
	static int	first = 0;
	ListCell   *lc;

	find_ended(now, leaving);
	/* what passes did waits until it can be written */
	foreach(lc, ssw_watch_list_all())
	{
		SswWatch   *w = lfirst(lc);

		if (w->pass && w->over && !XactReadOnly)
			ssw_passes_close(w, now);
	}
	if (leaving)
		return;
	if (!ssw_owner_budget_each(ssw_watch_list_all(), &first, look, now))
		blocked_look_at = now;
}

/*
 * One round; returns when the next is due, or 0 when the extension is gone; *needed:
 * when a coordinator must be here.
 */
static TimestampTz
round_of_work(const SswTurn *t, TimestampTz *needed)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz others;

	blocked_look_at = DT_NOEND;
	*needed = now + EXTENSION_BUSY_US;
	if (ssw_service_watch_clock())
	{
		ssw_watch_list_forget_times();
		marked_at = 0;
		ssw_turn_begin();
	}
	ssw_watch_list_note(t);
	ssw_spi_start_transaction();
	if (!ssw_lock_extension(false))
	{
		/*
		 * DROP or UPDATE of the extension may take long, and others their
		 * turns
		 */
		if (ssw_turn_is_over(t, ssw_watch_list_all(), now))
			find_ended(now, true);
		ssw_spi_commit();
		return now + EXTENSION_BUSY_US;
	}
	if (!extension_present(t))
	{
		ssw_spi_commit();
		return 0;
	}
	if (other_version())
	{
		(void) ssw_turn_is_over(t, ssw_watch_list_all(), now);
		ssw_spi_commit();
		*needed = now + MAX_SLEEP_US;
		return now + OTHER_VERSION_US;
	}
	ssw_turn_check_settings(now);
	others = keep_mark(t, now);
	ssw_watch_list_update(t, now);
	blocked_look_at = ssw_watch_blocked(ssw_watch_list_all(), now);
	note_grace(now);
	ssw_throttle_look(now);
	work_on_passes(now, ssw_turn_is_over(t, ssw_watch_list_all(), now));
	others = ssw_min(others, ssw_queue_round(now));
	others = ssw_min(others, ssw_pool_count_write(now));
	ssw_assign(ssw_watch_list_all(), now);

	/*
	 * last: its lock makes every commit with NOTIFY in all databases wait for
	 * ours
	 */
	others = ssw_min(others, ssw_task_notify(now));
	if (XactReadOnly)
		others = Min(others, now + SSW_SETTINGS_EVERY_US);
	ssw_spi_commit();
	ssw_request_answer(ssw_watch_list_all());
	if (ssw_shards)
		others = ssw_min(others, ssw_shards->share(t->generation, now));
	*needed = blocked_look_at <= now ? now : needed_at(others, now);
	return ssw_min(next_wakeup(now), others);
}

void
ssw_coordinator_main(Datum main_arg)
{
	MemoryContext round_cxt;

	if (!ssw_process_attach(&main_arg))
		return;
	ssw_process_connect(MySswProc->database);
	ssw_watch_list_init();
	round_cxt = AllocSetContextCreate(TopMemoryContext, "round", ALLOCSET_DEFAULT_SIZES);

	for (;;)
	{
		TimestampTz next;
		TimestampTz needed;
		TimestampTz now;
		SswTurn		turn;
		SswTurnEnd	end;

		/* brakes and retention depend on settings */
		if (ssw_worker_reload())
			ssw_watch_list_reload();
		ssw_turn_begin_round(&turn);
		MemoryContextSwitchTo(round_cxt);
		next = round_of_work(&turn, &needed);
		if (!MySswProc->ready)
			ssw_process_ready();
		MemoryContextSwitchTo(TopMemoryContext);
		MemoryContextReset(round_cxt);
		now = GetCurrentTimestamp();
		if (next == 0)
			break;
		end = ssw_turn_end_round(&turn, ssw_watch_list_all(), now, needed, marked_at);
		if (end == SSW_TURN_LEAVES)
		{
			leave_behind(now);
			break;
		}
		if (end == SSW_TURN_GOES_ON)
			continue;
		ssw_written_sleep(ssw_watch_list_all(), Min(next, blocked_look_at), now);
	}
}
