/*
 * watch_list.c
 *		The coordinator's list of policies: read, judged, retired.
 *
 * Runs in the coordinator, in the transaction of a round.  Policies are read again when
 * one was changed, when a swept relation or its owner's functions may have changed, and
 * once a minute.  The list is private to the process; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "sweep/lower_bound.h"
#include "process/pass_lifecycle.h"
#include "process/policy_watch.h"
#include "process/sweep_request.h"
#include "process/watch_list.h"
#include "process/written_tables.h"

#define RELOAD_EVERY_US		(60 * USECS_PER_SEC)

static List *watches = NIL;		/* in TopMemoryContext */
static MemoryContext generation_cxt = NULL;
static uint64 generation = 0;
static bool reload_wanted = true;
static bool all_changed = true;
static bool reloading = false;
static bool rows_written = false;
static TimestampTz reloaded_at = 0;

/* All are to be read again: which one has changed is not known. */
void
ssw_watch_list_reload(void)
{
	reload_wanted = all_changed = true;
}

/* A swept relation, or its owner's functions, may have changed. */
static void
on_relcache(Datum arg, Oid relid)
{
	ListCell   *lc;

	/* while they are loaded, the list lacks new ones */
	if (reloading || !OidIsValid(relid))
		ssw_watch_list_reload();
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->policy && w->policy->relid == relid)
			reload_wanted = w->changed = true;
	}
}

/* A table became the target of a subscription, or is one no more: which table is not known. */
static void
on_subscription(Datum arg, int cacheid, uint32 hash)
{
	ssw_watch_list_reload();
}

/* A function, or what else an expression names, may be another now, and with it a filter. */
static void
on_function(Datum arg, int cacheid, uint32 hash)
{
	rows_written = true;
}

void
ssw_watch_list_init(void)
{
	CacheRegisterRelcacheCallback(on_relcache, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, on_subscription, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, on_function, (Datum) 0);
	CacheRegisterSyscacheCallback(OPEROID, on_function, (Datum) 0);
	CacheRegisterSyscacheCallback(CASTSOURCETARGET, on_function, (Datum) 0);
	CacheRegisterSyscacheCallback(ENUMOID, on_function, (Datum) 0);
}

List	   *
ssw_watch_list_all(void)
{
	return watches;
}

/* The generation of the policies when they were read. */
uint64
ssw_watch_list_generation(void)
{
	return generation;
}

/* The search begins at *at, and leaves it behind what it found: policies are nearly always in the same order. */
static SswWatch *
find_watch(List *among, int policy_id, int *at)
{
	for (int i = 0; i < list_length(among); i++)
	{
		int			n = (*at + i) % list_length(among);
		SswWatch   *w = list_nth(among, n);

		if (w->policy_id != policy_id)
			continue;
		*at = n + 1;
		return w;
	}
	return NULL;
}

/*
 * The policy was unregistered.  True when its watch is still needed: until its
 * workers have left and its CALL sweep is answered.
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
	return w->pass != NULL || request != 0;
}

/* A worker must say again which index serves. */
static void
doubt_index(SswWatch *w, TimestampTz now)
{
	w->reported_since = now;
	w->reported_index = w->policy->reported_index = InvalidOid;
}

/*
 * Judge a policy that was just read; in the generation's context.  When it begins to be
 * watched, it is looked at; but one that a worker must look at, not before the time that
 * the coordinator before has left.
 */
static void
judge(SswWatch *w, bool begins, bool changed, TimestampTz now)
{
	changed = changed || w->changed;
	w->changed = false;
	/* what was known may be of another definition */
	w->unprobed = w->unprobed || begins || changed;
	w->judged_generation = generation;
	w->fuse_left = 0;
	if (begins)
		w->due_rows = -1;
	if (!begins && (!w->runs || w->rest.state != SSW_POLICY_UNKNOWN || w->held_above != 0))
		w->next_look = now;
	w->held_above = 0;
	if (begins)
		w->reported_since = now;
	else if (changed)
		doubt_index(w, now);
	ssw_watch_judge(w, now);
	if (w->policy->check_every_us == 0)
		w->next_look = w->unfinished ? w->next_look : DT_NOEND;
	else
	{
		if (begins && ssw_watch_probes(w))
			w->next_look = now;
		/* the time that was left may be of another setting */
		else if (begins || changed)
			w->next_look = Min(w->next_look, now + w->policy->check_every_us);
		w->next_look = ssw_min(w->next_look, ssw_passes_refresh_at(w));
	}
	ssw_passes_publish(w, NULL);
}

/* Begin to watch a policy. */
static SswWatch *
begin_watch(SswPolicy *p, TimestampTz now)
{
	SswWatch   *w = MemoryContextAllocZero(TopMemoryContext, sizeof(SswWatch));

	w->policy_id = p->id;
	w->written = PG_UINT64_MAX;
	w->tokens = p->rate_limit;
	w->backlog_tokens = p->backlog_rate;
	w->tokens_at = now;
	ssw_passes_inherit(w);
	return w;
}

static bool
is_of_this_database(const SswPass *pass)
{
	bool		ours;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	ours = pass->in_use && pass->database == MyDatabaseId;
	LWLockRelease(SswShared->lock);
	return ours;
}

/*
 * Add passes that a coordinator before us left with living workers; those of policies
 * that are gone get watches of their own, until they are closed.  Only this process
 * opens passes of this database and closes them.
 */
static List *
adopt_passes(List *kept)
{
	int			at = 0;

	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswWatch   *w;

		if (!is_of_this_database(&SswPasses[i]))
			continue;
		w = find_watch(kept, SswPasses[i].policy_id, &at);
		if (w == NULL)
		{
			w = MemoryContextAllocZero(TopMemoryContext, sizeof(SswWatch));
			w->policy_id = SswPasses[i].policy_id;
			kept = lappend(kept, w);
		}
		w->pass = &SswPasses[i];
	}
	return kept;
}

/* Read all policies and judge them. */
static void
reload(const SswTurn *t, bool changed, TimestampTz now)
{
	MemoryContext old_cxt = generation_cxt;
	MemoryContext caller;
	List	   *policies;
	List	   *kept = NIL;
	Bitmapset  *known = NULL;
	int			at = 0;
	ListCell   *lc;

	reload_wanted = all_changed = false;
	reloading = true;
	reloaded_at = now;
	generation = t->generation;
	generation_cxt = AllocSetContextCreate(TopMemoryContext, "policies", ALLOCSET_DEFAULT_SIZES);
	caller = MemoryContextSwitchTo(generation_cxt);
	policies = ssw_policy_load_all();
	foreach(lc, policies)
	{
		SswPolicy  *p = lfirst(lc);
		SswWatch   *w = find_watch(watches, p->id, &at);
		bool		begins = w == NULL;

		if (begins)
			w = begin_watch(p, now);
		w->policy = p;
		judge(w, begins, changed, now);
		kept = lappend(kept, w);
		known = bms_add_member(known, p->id);
	}
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (bms_is_member(w->policy_id, known))
			continue;
		if (retire(w))
			kept = lappend(kept, w);
		else
			pfree(w);
	}
	kept = adopt_passes(kept);
	foreach(lc, kept)
		known = bms_add_member(known, ((SswWatch *) lfirst(lc))->policy_id);
	MemoryContextSwitchTo(TopMemoryContext);
	list_free(watches);
	watches = list_copy(kept);
	MemoryContextSwitchTo(generation_cxt);
	/* a CALL sweep of a policy that is gone finds out by that */
	if (ssw_shmem_forget_unknown(known, generation))
		ConditionVariableBroadcast(&SswShared->request_cv);
	ssw_written_watch(policies);
	reloading = false;
	MemoryContextSwitchTo(caller);
	if (old_cxt)
		MemoryContextDelete(old_cxt);
}

/* Is a brake over, or does the fuse let rows go that it held? */
static bool
is_brake_over(const SswWatch *w, TimestampTz now)
{
	if (w->policy == NULL)
		return false;
	return (!w->runs && w->brake_until != 0 && w->brake_until <= now) ||
		(w->policy->fuse_next != 0 && w->policy->fuse_next <= now);
}

/*
 * Tables or functions were written: what is due may be earlier than was known, and by
 * another index.  Policies are looked at as if they had just been found idle.
 */
static void
look_again(TimestampTz now)
{
	ListCell   *lc;

	rows_written = false;
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->policy == NULL)
			continue;
		w->unprobed = true;
		if (w->policy->filter_unread)
			doubt_index(w, now);
		if (w->policy->check_every_us != 0)
			ssw_written_note(w, now);
	}
}

/* What the database's entry asks for; it is done in ssw_watch_list_update(). */
void
ssw_watch_list_note(const SswTurn *t)
{
	if (t->generation != generation)
		ssw_watch_list_reload();
	rows_written = rows_written || t->may_be_due;
}

/* Bring the list up to date. */
void
ssw_watch_list_update(const SswTurn *t, TimestampTz now)
{
	bool		judge_again = now - reloaded_at > RELOAD_EVERY_US;
	ListCell   *lc;

	foreach(lc, watches)
		judge_again = judge_again || is_brake_over(lfirst(lc), now);
	/* what was altered while it was looked at may have been seen by halves */
	for (int tries = 0; (reload_wanted || judge_again) && tries < 4; tries++)
	{
		judge_again = false;
		reload(t, all_changed, now);
	}
	if (rows_written)
		look_again(now);
}

/* The clock was set: nothing waits for a time of the old one. */
void
ssw_watch_list_forget_times(void)
{
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		ssw_lower_bound_forget(w->policy_id);
		w->not_before = w->block_look_at = 0;
		if (!TIMESTAMP_IS_NOEND(w->next_look))
			w->next_look = 0;
	}
	ssw_watch_list_reload();
}
