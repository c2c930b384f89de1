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
 * it dies, its workers go on; the next coordinator adopts the passes it finds
 * in shared memory, and after a crash closes the rows of those that are gone.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "base/compat.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "process/brake.h"
#include "process/late_look.h"
#include "process/pass_assign.h"
#include "process/pass_lifecycle.h"
#include "process/policy_state.h"
#include "process/sweep_request.h"
#include "storage/latch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/process_slot.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "grace/service_log.h"
#include "heartbeat/attach.h"
#include "heartbeat/store_scan.h"
#include "process/coordinator_turn.h"
#include "process/policy_watch.h"
#include "process/worker.h"
#include "process/written_tables.h"
#include "sweep/lower_bound.h"
#include "work/command_queue.h"
#include "work/runner_demand.h"
#include "work/task_notify.h"
#include "work/task_shmem.h"
#include "work/work_state.h"

#define MARK_EVERY_S		(60 * 60)
#define RELOAD_EVERY_US		(60 * USECS_PER_SEC)
#define MAX_SLEEP_US		(60 * USECS_PER_SEC)
#define EXTENSION_BUSY_US	(USECS_PER_SEC / 5)
/* A coordinator that stays for so long looks at all policies by itself. */
#define ASLEEP_US			(1 * USECS_PER_SEC)

PGDLLEXPORT void ssw_coordinator_main(Datum main_arg);

static List *watches = NIL;		/* in TopMemoryContext */
static MemoryContext generation_cxt = NULL;
static uint64 generation = 0;
static bool reload_wanted = true;
static bool reloading = false;
static TimestampTz reloaded_at = 0;
static bool begun = false;
static TimestampTz marked_at = 0;
static bool cut_wanted = false; /* sessions may have deadlines of a fast clock */

/* A swept relation, or its owner's functions, may have changed. */
static void
on_relcache(Datum arg, Oid relid)
{
	ListCell   *lc;

	/* while they are loaded, the list lacks new ones */
	reload_wanted = reload_wanted || reloading || !OidIsValid(relid);
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->policy && w->policy->relid == relid)
			reload_wanted = true;
	}
}

static SswWatch *
find_watch(int policy_id)
{
	ListCell   *lc;

	foreach(lc, watches)
		if (((SswWatch *) lfirst(lc))->policy_id == policy_id)
		return lfirst(lc);
	return NULL;
}

/*
 * The policy was unregistered.  True when its watch is still needed: until its
 * workers have left and who called sweep has been told.
 */
static bool
retire(SswWatch *w)
{
	uint64		request = ssw_request_pending(w, NULL);

	w->policy = NULL;
	w->runs = false;
	w->brake_until = w->not_before = 0;
	if (request)
		ssw_request_complete(w, request, 0, ERRCODE_UNDEFINED_OBJECT, "it was unregistered");
	ssw_passes_close_open(w);
	return w->pass != NULL || request != 0;
}

/*
 * Of the entries that there were before the policies were read, those of policies
 * that are gone make room for others; who waits for one is told by its absence.
 */
static void
forget_gone(const int *ids, int n)
{
	bool		any = false;

	for (int i = 0; i < n; i++)
	{
		if (find_watch(ids[i]) != NULL)
			continue;
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		ssw_shmem_forget_policy(MyDatabaseId, ids[i]);
		LWLockRelease(SswShared->lock);
		any = true;
	}
	if (any)
		ConditionVariableBroadcast(&SswShared->request_cv);
}

/* Judge a policy that was just read, or that has something due; in the generation's context. */
static void
judge(SswWatch *w, TimestampTz now)
{
	w->asleep_until = 0;
	w->unprobed = true;			/* what was known may be of another definition */
	w->judged_generation = generation;
	w->rest.shut_until = 0;		/* it may have another window */
	w->fuse_left = 0;
	if (!w->runs || w->held_above != 0)
		w->next_look = now;
	w->held_above = 0;
	ssw_watch_judge(w, now);
	if (!w->runs)
		ssw_passes_close_open(w);
	if (w->policy->check_every_us != 0)
		w->next_look = Min(w->next_look, now + w->policy->check_every_us);
	else if (!w->unfinished)
		w->next_look = DT_NOEND;
	ssw_passes_publish(w);
}

/*
 * The first time: may a policy go on sleeping, as the coordinator before us left it?
 * Until something is due there, it is not even judged, unless we stay: the statistics
 * are not read for a database with a coordinator.
 */
static bool
stays_asleep(SswWatch *w, TimestampTz now)
{
	SswDatabase *d;
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MyDatabaseId, false);
	s = ssw_shmem_policy(MyDatabaseId, w->policy_id, false);
	if (d && d->judged_generation == generation + 1 && s && s->state != SSW_POLICY_UNKNOWN && s->next_look > now && s->running_pass < 0)
		w->asleep_until = s->next_look;
	LWLockRelease(SswShared->lock);
	w->next_look = now + ASLEEP_US;
	return w->asleep_until != 0;
}

/* Judge those in which something is due by now, or may be, or somebody asked for. */
static void
wake_sleepers(TimestampTz now)
{
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->asleep_until != 0 &&
			(Min(w->asleep_until, w->next_look) <= now || w->pass || ssw_request_pending(w, NULL) ||
			 Min(ssw_passes_gone_at(w), ssw_passes_refresh_at(w)) <= now))
		{
			MemoryContext old = MemoryContextSwitchTo(generation_cxt);

			judge(w, now);
			MemoryContextSwitchTo(old);
		}
	}
}

/*
 * Statistics say that tables were written: what is due may be earlier than was
 * known.  Policies are looked at as if they had just been found idle.
 */
static void
look_anew(void)
{
	SswDatabase *d;
	bool		wanted;
	ListCell   *lc;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	wanted = d && d->look_anew;
	if (wanted)
		d->look_anew = false;
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);
		SswPolicyShared *s = wanted ? ssw_shmem_policy(MyDatabaseId, w->policy_id, false) : NULL;
		TimestampTz look;

		if (s == NULL || w->policy == NULL || w->policy->check_every_us == 0)
			continue;
		look = s->last_look + w->policy->check_every_us;
		w->idle = 0;
		w->unprobed = true;
		w->next_look = Min(w->next_look, look);
		/* also for the next coordinator: it is not told again */
		if (w->asleep_until != 0)
			s->next_look = w->asleep_until = Min(w->asleep_until, look);
	}
	LWLockRelease(SswShared->lock);
}

/* Read all policies and judge them. */
static void
reload(TimestampTz now)
{
	MemoryContext old_cxt = generation_cxt;
	List	   *policies;
	List	   *kept = NIL;
	ListCell   *lc;
	SswDatabase *d;
	int		   *ids;
	int			nids;

	reload_wanted = false;
	reloading = true;
	reloaded_at = now;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	generation = d ? d->policy_generation : 0;
	if (d)
		d->recheck = false;
	LWLockRelease(SswShared->lock);

	generation_cxt = AllocSetContextCreate(TopMemoryContext, "policies", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(generation_cxt);
	nids = ssw_shmem_policy_ids(MyDatabaseId, &ids);
	policies = ssw_policy_load_all();
	foreach(lc, policies)
	{
		SswPolicy  *p = lfirst(lc);
		SswWatch   *w = find_watch(p->id);

		if (w == NULL)
		{
			w = MemoryContextAllocZero(TopMemoryContext, sizeof(SswWatch));
			w->policy_id = p->id;
			w->tokens = p->rate_limit;
			w->backlog_tokens = p->backlog_rate;
			w->tokens_at = now;
			ssw_passes_inherit(w);
		}
		w->policy = p;
		if (old_cxt != NULL || !stays_asleep(w, now))
			judge(w, now);
		MemoryContextSwitchTo(TopMemoryContext);
		kept = lappend(kept, w);
		MemoryContextSwitchTo(generation_cxt);
	}
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (list_member_ptr(kept, w))
			continue;
		if (!retire(w))
			pfree(w);
		else
		{
			MemoryContextSwitchTo(TopMemoryContext);
			kept = lappend(kept, w);
			MemoryContextSwitchTo(generation_cxt);
		}
	}
	list_free(watches);
	watches = ssw_passes_adopt(kept);
	forget_gone(ids, nids);
	ssw_written_watch(policies);
	reloading = false;
	if (old_cxt)
		MemoryContextDelete(old_cxt);
}

/* The relation cannot even be looked at: back off as after a failed pass. */
static void
probe_failed(SswWatch *w, ErrorData *error, TimestampTz now)
{
	SswPass    *pass = palloc0(sizeof(SswPass));

	pass->sqlerrcode = error->sqlerrcode;
	ssw_shmem_text(pass->message, error->message ? error->message : "unknown error", SSW_MESSAGE_LEN);
	ssw_policy_state_failed(w, pass);
	ssw_watch_rejudge(w, now);
	ssw_passes_publish(w);
}

/* Look at one policy if it is time, or somebody asked for it. */
static void
look(SswWatch *w, TimestampTz now)
{
	uint64		request;
	bool		gone;
	bool		due;

	if (w->policy == NULL || w->pass != NULL || w->asleep_until != 0 || now < w->not_before || ssw_watch_patient(w, now))
		return;
	request = ssw_request_pending(w, &generation);
	if (request)
		now = GetCurrentTimestamp();	/* what was due when it was called */
	if (!w->runs)
	{
		if (request)
			ssw_request_complete(w, request, 0,
								 w->locked ? ERRCODE_LOCK_NOT_AVAILABLE : ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
								 w->reason[0] ? psprintf("%s: %s", ssw_brake_name(w->state), w->reason) : ssw_brake_name(w->state));
		ssw_late_look(w, now);
		return;
	}
	w->rest.state = SSW_POLICY_UNKNOWN;
	gone = ssw_passes_gone_at(w) <= now;
	if (request == 0 && !w->owed && !gone && now < w->next_look)
		return;
	due = gone || (request && w->policy->heartbeats) || now >= ssw_passes_refresh_at(w) || !w->plain || w->excluded > 0 || w->open_pass_id != 0 || w->policy->failures > 0 ||
		(w->held_above != 0 && now >= w->full_at);
	if (!due)
	{
		SswPolicyShared *s;
		ErrorData  *error;

		if (request)
		{
			w->held_above = 0;
			w->read_all = true;
		}
		error = ssw_watch_probe(w, now);
		if (error)
		{
			if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
				ssw_watch_locked(w);
			else
				probe_failed(w, error, now);
			if (request && !ssw_watch_patient(w, now))
				ssw_request_complete(w, request, 0, error->sqlerrcode,
									 error->message ? error->message : "unknown error");
			ssw_passes_publish(w);
			return;
		}
		due = w->unprobed || (w->earliest != 0 && w->earliest <= now);
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		s = ssw_shmem_policy(MyDatabaseId, w->policy_id, true);
		if (s)
		{
			s->last_look = now;
			s->last_success = due ? s->last_success : now;
			s->looks++;
		}
		LWLockRelease(SswShared->lock);
	}
	if (due && request == 0 && !w->owed && ssw_passes_rest(w, now, gone))
	{
		ssw_passes_publish(w);
		return;
	}
	if (due)
	{
		ssw_passes_open(w, generation, now, request != 0 || w->owed);
		w->request = w->pass ? request : 0;
		w->next_look = now + ssw_min_interval * INT64CONST(1000);
	}
	else
		ssw_passes_nothing_due(w, now, request);
	ssw_passes_publish(w);
}

/* Passes whose workers have all left and that have ended, or must. */
static void
collect_results(TimestampTz now)
{
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);
		bool		over;

		if (w->pass == NULL)
			continue;
		LWLockAcquire(SswShared->lock, LW_SHARED);
		over = w->pass->workers == 0 &&
			(w->pass->end != SSW_END_NONE || (w->pass->max_workers_seen > 0 && now > w->pass->soft_deadline) || w->policy == NULL ||
			 ssw_shmem_pass_is_stale(w->pass) || !w->runs);
		LWLockRelease(SswShared->lock);
		if (over)
			ssw_passes_close(w, now);
	}
}

static TimestampTz
next_wakeup(TimestampTz now)
{
	TimestampTz next = now + MAX_SLEEP_US;
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->pass)
			next = Min(next, now + USECS_PER_SEC);
		else if (w->asleep_until != 0)
			next = Min(next, Min(w->asleep_until, w->next_look));
		else if (w->not_before > now)
			next = Min(next, w->not_before);
		else if (w->runs)
			next = Min(next, Min(w->next_look, ssw_passes_gone_at(w)));
		else if (w->brake_until != 0)
			next = Min(next, w->brake_until);
		if (w->policy && w->policy->fuse_next > now)
			next = Min(next, w->policy->fuse_next);
	}
	return next;
}

/* How often this coordinator was woken up to now. */
static uint64
wakeups(void)
{
	SswDatabase *d;
	uint64		n;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MyDatabaseId, false);
	n = d ? d->wakeups : 0;
	LWLockRelease(SswShared->lock);
	return n;
}

/* Is the extension there that we serve?  Else note that this database has nothing to do, or another one is to be looked for. */
static bool
extension_present(void)
{
	Oid			oid = get_extension_oid(SSW_EXTENSION, true);
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	if (OidIsValid(oid) && (d == NULL || !OidIsValid(d->extension) || d->extension == oid))
	{
		if (d)
			d->extension = oid;
		LWLockRelease(SswShared->lock);
		return true;
	}
	if (d)
	{
		d->state = OidIsValid(oid) ? SSW_DB_UNKNOWN : SSW_DB_ABSENT;
		d->extension = InvalidOid;
		d->workers_wanted = 0;
		d->append_waits = InvalidOid;
		d->judged_generation = d->marked_at = 0;
	}
	ssw_shmem_forget_policies(MyDatabaseId);
	ssw_shmem_forget_passes(MyDatabaseId);
	LWLockRelease(SswShared->lock);
	ssw_store_forget(MyDatabaseId);
	ssw_attach_forget(MyDatabaseId);
	ssw_task_shmem_forget(MyDatabaseId);
	ssw_work_forget(MyDatabaseId);
	ssw_runner_demand_none(true);
	return false;
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
				(errmsg("session_sweeper rests in this database: its SQL is version %s, the library version %s",
						version, SSW_VERSION),
				 errhint("ALTER EXTENSION session_sweeper UPDATE; or restart the server with the library of that version.")));
	if (told && !version)
		reload_wanted = true;
	told = version != NULL;
	return told;
}

/* First acts: note the start, close what a crash left open, mind a long gap. */
static void
begin_service(TimestampTz now)
{
	TimestampTz mark = ssw_policy_state_mark(true);
	bool		passes = false;

	marked_at = now;
	cut_wanted = true;
	LWLockAcquire(SswShared->lock, LW_SHARED);
	for (int i = 0; i < SswShared->nprocs; i++)
		passes = passes || (SswPasses[i].in_use && SswPasses[i].database == MyDatabaseId);
	LWLockRelease(SswShared->lock);
	if (!passes)
		ssw_policy_state_abandon();
	if (ssw_max_gap > 0 && mark != 0 && now - mark > ssw_max_gap * USECS_PER_SEC)
	{
		ssw_policy_state_long_gap();
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
keep_mark(TimestampTz now)
{
	int64		every = (ssw_max_gap > 0 ? Min(MARK_EVERY_S, ssw_max_gap / 4) : MARK_EVERY_S) * USECS_PER_SEC;

	if (XactReadOnly)
		return DT_NOEND;
	if (!begun)
		marked_at = ssw_turn_inherit();
	/* an old one may be of a time before a long gap */
	if (!begun && (marked_at == 0 || now - marked_at > every))
		begin_service(now);
	else if (now - marked_at > every || now < marked_at)
	{
		ssw_policy_state_mark(true);
		marked_at = now;
		cut_wanted = true;
	}
	if (cut_wanted)
		cut_wanted = ssw_policy_state_cut_deadlines();
	begun = true;
	return marked_at + every;
}

/* When this database needs a coordinator, if nobody writes its tables. */
static TimestampTz
needed_at(TimestampTz next, TimestampTz now)
{
	ListCell   *lc;

	next = Min(next, now + SSW_IDLE_TURN_US);
	foreach(lc, watches)
		next = Min(next, ssw_passes_needed_at(lfirst(lc), now));
	return next;
}

/* What the next coordinator goes by, and the views meanwhile. */
static void
leave_behind(TimestampTz now)
{
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->policy == NULL || w->asleep_until != 0)
			continue;
		w->next_look = ssw_passes_needed_at(w, now);
		ssw_passes_publish(w);
	}
	ssw_turn_bequeath(!reload_wanted && !ssw_turn_is_told(), generation, marked_at);
}

static void
note_grace(TimestampTz now)
{
	ListCell   *lc;

	if (XactReadOnly)
		return;
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->policy && ssw_grace_note(w->policy, now))
			ssw_policy_state_horizons(w->policy);
	}
}

/* The clock was set: nothing waits for a time of the old one. */
static void
forget_times(void)
{
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		ssw_lower_bound_forget(w->policy_id);
		w->not_before = w->block_look_at = w->open_pass_at = 0;
		if (!TIMESTAMP_IS_NOEND(w->next_look))
			w->next_look = 0;
	}
	reload_wanted = true;
	marked_at = 0;
	ssw_turn_begin();
}

/* When blocked policies are looked at again, whoever waits for a turn. */
static TimestampTz locks_at = 0;

/*
 * One round; returns when the next is due, or 0 when the extension is gone; *needed:
 * when a coordinator must be here.
 */
static TimestampTz
round_of_work(TimestampTz *needed)
{
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;
	SswDatabase *d;
	TimestampTz next;
	TimestampTz others;
	TimestampTz tell_at;
	TimestampTz queue_at;
	bool		over;

	locks_at = DT_NOEND;
	*needed = now + EXTENSION_BUSY_US;
	if (ssw_service_watch_clock())
		forget_times();
	ssw_spi_start_transaction();
	ssw_watch_begin_round();
	if (!ssw_lock_extension(false))
	{
		/* who drops or updates it may take his time, and others their turns */
		if (ssw_turn_is_over(watches, now))
			ssw_turn_stop(watches);
		ssw_spi_commit();
		return now + EXTENSION_BUSY_US;
	}
	if (!extension_present())
	{
		ssw_spi_commit();
		return 0;
	}
	if (other_version())
	{
		(void) ssw_turn_is_over(watches, now);
		ssw_spi_commit();
		*needed = now + MAX_SLEEP_US;
		return now + MAX_SLEEP_US;
	}
	ssw_turn_check_settings(now);
	others = keep_mark(now);
	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MyDatabaseId, false);
	reload_wanted = reload_wanted || ssw_watch_resubscribed() || (d && (d->policy_generation != generation || d->recheck));
	LWLockRelease(SswShared->lock);
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->policy && w->asleep_until == 0 && !w->runs && w->brake_until != 0 && w->brake_until <= now)
			reload_wanted = true;
		/* what the fuse held goes now */
		if (w->policy && w->policy->fuse_next != 0 && w->policy->fuse_next <= now)
			reload_wanted = true;
	}
	if (reload_wanted || now - reloaded_at > RELOAD_EVERY_US)
		reload(now);
	/* what was altered while it was looked at may have been seen by halves */
	for (int tries = 0; reload_wanted && tries < 3; tries++)
		reload(now);
	look_anew();
	wake_sleepers(now);
	locks_at = ssw_watch_blocked(watches, now);
	note_grace(now);
	ssw_throttle_look(now);
	over = ssw_turn_is_over(watches, now);
	if (over)
		ssw_turn_stop(watches);
	/* what passes did waits until it can be written */
	if (!XactReadOnly)
		collect_results(now);
	if (over)
		ssw_turn_close(watches);
	else
		foreach(lc, watches)
			look(lfirst(lc), now);
	/* not inside of Min(), which would call them twice */
	tell_at = ssw_task_notify(now);
	queue_at = ssw_queue_round(now);
	others = Min(others, Min(tell_at, queue_at));
	ssw_assign(watches, now);
	if (XactReadOnly)
		others = Min(others, now + SSW_SETTINGS_EVERY_US);
	next = Min(next_wakeup(now), others);
	*needed = needed_at(others, now);
	ssw_spi_commit();
	ssw_request_answer(watches);
	return next;
}

void
ssw_coordinator_main(Datum main_arg)
{
	static uint32 wait_event = 0;
	MemoryContext round_cxt;

	if (!ssw_process_attach(&main_arg))
		return;
	ssw_process_connect(MySswProc->database);
	CacheRegisterRelcacheCallback(on_relcache, (Datum) 0);
	ssw_watch_subscriptions();
	round_cxt = AllocSetContextCreate(TopMemoryContext, "round", ALLOCSET_DEFAULT_SIZES);
	ssw_process_set_state(SSW_STATE_IDLE);

	for (;;)
	{
		TimestampTz next;
		TimestampTz needed;
		TimestampTz now;
		uint64		seen = wakeups();

		/* brakes and retention depend on settings */
		reload_wanted |= ssw_worker_reload();
		MemoryContextSwitchTo(round_cxt);
		next = round_of_work(&needed);
		if (!MySswProc->ready)
			ssw_process_ready();
		MemoryContextSwitchTo(TopMemoryContext);
		MemoryContextReset(round_cxt);
		now = GetCurrentTimestamp();
		if (next == 0)
			break;
		if (ssw_turn_must_leave(watches, now, wakeups() != seen ? now : needed))
		{
			leave_behind(now);
			break;
		}
		if (wakeups() != seen)
			continue;
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(1, (Min(next, locks_at) - now + 999) / 1000),
						 ssw_wait_event("SessionSweeperCoordinatorMain", wait_event));
		ResetLatch(MyLatch);
	}
}
