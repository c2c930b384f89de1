/*
 * pass_lifecycle.c
 *		The coordinator's side of a pass: open it, close it, look again when.
 *
 * Runs in the coordinator, in a transaction.  A pass is opened in shared memory;
 * its row is written by the worker that finds the first dead row, and closed here.
 *
 * Shares passes and policy entries under SswShared->lock.  A crash leaves a row
 * in table pass that says "running"; the next coordinator closes it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "grace/grace.h"
#include "heartbeat/attach.h"
#include "sweep/drain.h"
#include "sweep/lower_bound.h"
#include "sweep/row_in_hand.h"
#include "process/pass_lifecycle.h"
#include "process/policy_row.h"
#include "process/policy_watch.h"
#include "process/sweep_request.h"
#include "process/worker_quota.h"
#include "process/written_tables.h"

/* So many passes look at a row between refresh_ahead and its deadline. */
#define REFRESHES	8
/* For partitions that are locked for longer the fuse does not wait. */
#define LONG_LOCK_US	(60 * USECS_PER_SEC)
/* Grace is noted no more often where nothing else is due. */
#define MIN_NOTE_US	(10 * USECS_PER_SEC)
/* All rows that the fuse holds are read so often at most, and in such a part of the time. */
#define MIN_FULL_US		(1 * USECS_PER_SEC)
#define MAX_FULL_US		(60 * USECS_PER_SEC)
#define FULL_PART		20
#define FEW_ROWS		100
/* Sessions whose connections have gone, and that a pass has left, wait so long for the next. */
#define GONE_AGAIN_US	(2 * USECS_PER_SEC)

/* Which of its rates makes a pass wait. */
static void
limiting_rate(const SswWatch *w, char *text, Size size)
{
	const SswPolicy *p = w->policy;
	bool		all = p->rate_limit > 0 && (p->backlog_before == 0 || p->backlog_rate == 0 || p->rate_limit <= p->backlog_rate);

	snprintf(text, size, "%s lets %d rows a second go", all ? "rate_limit" : "backlog_rate", all ? p->rate_limit : p->backlog_rate);
}

/* Is it looked at only when a CALL sweep asks for it? */
static bool
is_resting(const SswWatch *w)
{
	return w->policy && (w->policy->check_every_us == 0 || w->state == SSW_POLICY_PAUSED || w->state == SSW_POLICY_HELD || w->state == SSW_POLICY_OFF);
}

/* What a pass did; the caller holds the lock. */
static void
count_pass(SswPolicyShared *s, const SswPass *pass)
{
	double		seconds = Max(0, s->last_look - pass->started_at) / 1e6;
	int			b = 0;

	while (b < SSW_DURATION_BUCKETS - 1 && seconds > ssw_duration_bounds[b])
		b++;
	if (pass->pass_id != 0)
	{
		s->passes++;
		s->duration_hist[b]++;
		s->duration_sum += seconds;
		s->last_pass_id = pass->pass_id;
	}
	s->failed += pass->failed;
	s->skipped += pass->skipped;
	if ((pass->end == SSW_END_DONE || pass->end == SSW_END_REFRESHED) && pass->failed == 0 && pass->skipped == 0)
		s->compared_at = pass->now;
	s->failed_passes += pass->end == SSW_END_FAILED;
	s->fuse_trips += pass->fuse_trips;
	ssw_drain_ended(s, pass->end);
}

/* Show what the policy is doing, and what a pass did that has ended, if any. */
void
ssw_passes_publish(SswWatch *w, const SswPass *ended)
{
	SswPolicyShared *s;
	SswPolicyState state;
	char		rate[sizeof(s->reason)] = "";
	bool		throttled = w->policy && w->runs && w->rate_waits;
	bool		rests = w->policy && w->runs && w->rest.state != SSW_POLICY_UNKNOWN;

	if (throttled)
		limiting_rate(w, rate, sizeof(rate));
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, w->policy_id, true);
	if (s)
	{
		ssw_drain_runs(s, w->pass || throttled);
		s->judged_generation = w->judged_generation;
		state = rests ? w->rest.state : w->pass || throttled ? SSW_POLICY_RUNNING : w->state;
		if (state != s->state || s->state_since == 0)
			s->state_since = GetCurrentTimestamp();
		s->state = state;
		strlcpy(s->reason, rests ? w->rest.reason : throttled ? rate : w->reason, sizeof(s->reason));
		s->unfinished = w->unfinished;
		s->next_look = w->runs ? w->next_look : 0;
		s->last_look = w->last_look;
		s->last_success = w->last_success ? w->last_success : s->last_success;
		s->looks += w->looks;
		w->looks = 0;
		s->running_pass = w->pass ? w->pass - SswPasses : -1;
		s->oldest_due = w->earliest;
		s->due_rows = w->runs ? -1 : w->due_rows;
		s->refresh_at = w->refresh_at;
		s->idle = w->idle;
		s->trusted = w->trusted;
		s->excluded = w->excluded;
		s->reported_index = w->reported_index;
		s->tokens = w->tokens;
		s->backlog_tokens = w->backlog_tokens;
		s->tokens_at = w->tokens_at;
		s->locked = s->locked && !is_resting(w);
		if (ended)
			count_pass(s, ended);
	}
	LWLockRelease(SswShared->lock);
}

/* What a coordinator before this one knew: a pass to be continued, what is due when. */
void
ssw_passes_inherit(SswWatch *w)
{
	SswPolicyShared s;

	(void) ssw_shmem_read_policy(w->policy_id, &s);
	if (s.state != SSW_POLICY_UNKNOWN)
	{
		w->unfinished = s.unfinished;
		w->earliest = s.oldest_due;
		w->refresh_at = s.refresh_at;
		w->idle = s.idle;
		w->trusted = s.trusted;
		w->excluded = s.excluded;
		/* statistics show whether functions have changed since */
		w->reported_index = s.judged_generation >= s.changed_at && SswShared->counts_writes ? s.reported_index : InvalidOid;
		w->blocked_since = s.blocked_since;
		if (s.judged_generation >= s.changed_at)
		{
			w->next_look = s.next_look;
			if (s.state == SSW_POLICY_OUTSIDE_WINDOW || s.state == SSW_POLICY_THROTTLED)
			{
				w->rest.state = s.state;
				strlcpy(w->rest.reason, s.reason, sizeof(w->rest.reason));
			}
		}
	}
	w->last_look = s.last_look;
	if (s.tokens_at != 0)
	{
		w->tokens = s.tokens;
		w->backlog_tokens = s.backlog_tokens;
		w->tokens_at = s.tokens_at;
	}
}

/* Tokens of the two rates, at most a second's worth. */
static void
refill(SswWatch *w, TimestampTz now)
{
	/* the clock may be set back */
	double		elapsed = Max(0, now - w->tokens_at) / 1e6;
	SswPolicy  *p = w->policy;

	w->tokens_at = now;
	w->tokens = p->rate_limit > 0 ? Min(p->rate_limit, w->tokens + elapsed * p->rate_limit) : -1;
	w->backlog_tokens = p->backlog_rate > 0 ?
		Min(p->backlog_rate, Max(0, w->backlog_tokens) + elapsed * p->backlog_rate) : -1;
}

/*
 * How far a pass looks ahead for rows that heartbeats keep alive.  Several passes
 * see a row before its deadline; the caller holds the lock.
 */
static TimestampTz
refresh_cutoff(SswWatch *w, TimestampTz now)
{
	SswPolicyShared *s = ssw_shmem_policy(MyDatabaseId, w->policy_id, false);

	if (!w->policy->heartbeats || s == NULL || s->heartbeat_ttl_us == 0)
		return DT_NOBEGIN;
	w->refresh_at = now + Max(ssw_min_interval * INT64CONST(1000),
							  (int64) (s->heartbeat_ttl_us * ssw_refresh_ahead / REFRESHES));
	return now + (int64) (s->heartbeat_ttl_us * ssw_refresh_ahead);
}

/* When the next look for heartbeats is wanted, at the latest; or DT_NOEND. */
TimestampTz
ssw_passes_refresh_at(SswWatch *w)
{
	int64		ttl_us;

	if (w->policy == NULL || !w->policy->heartbeats || w->policy->check_every_us == 0)
		return DT_NOEND;
	return ssw_shmem_read_field(MyDatabaseId, w->policy_id, heartbeat_ttl_us, &ttl_us) && ttl_us > 0 ? w->refresh_at : DT_NOEND;
}

/*
 * When must a coordinator look at the policy, if nobody writes its table?  Where the
 * coordinator reads the earliest deadline itself: then; else when it would look anyway.
 */
TimestampTz
ssw_passes_needed_at(SswWatch *w, TimestampTz now)
{
	const SswPolicy *p = w->policy;
	TimestampTz next = w->next_look;

	if (p == NULL || w->pass)
		return now;
	if (!w->runs)
		return w->brake_until != 0 ? w->brake_until : DT_NOEND;
	if (w->plain && !w->unprobed && w->excluded == 0 && p->failures == 0 && p->backlog_before == 0 &&
		!w->unfinished && !w->owed && (w->earliest == 0 || w->earliest > now))
		next = ssw_min(w->earliest != 0 && p->check_every_us > 0 ? w->earliest : DT_NOEND, ssw_passes_refresh_at(w));
	next = ssw_min(next, ssw_passes_gone_at(w));
	if (w->held_above != 0)
		next = Min(next, p->fuse_next != 0 ? Min(w->full_at, p->fuse_next) : w->full_at);
	/* how far service has judged is noted ever more rarely; see grace.c */
	if (p->nhorizons > 0)
		next = Min(next, now + Max(MIN_NOTE_US, (now - p->horizon[p->nhorizons - 1].service) / 4));
	return Max(next, w->not_before);
}

/*
 * When a pass is wanted for sessions whose connections have gone: at once for a new
 * post, later for what a pass has left; or DT_NOEND.
 */
TimestampTz
ssw_passes_gone_at(const SswWatch *w)
{
	uint64		posts;

	if (w->policy_id != SSW_SESSION_POLICY_ID || ssw_attach_posted(NULL, &posts) == 0)
		return DT_NOEND;
	return posts != w->disconnects ? DT_NOBEGIN : w->disconnects_at;
}

/*
 * Do passes wait that nobody has asked for?  Not those that refresh the rows of sessions
 * that live, which end nothing then, nor that for connections which have gone.
 */
bool
ssw_passes_rest(SswWatch *w, TimestampTz now, bool gone)
{
	w->rest.state = SSW_POLICY_UNKNOWN;
	if (!ssw_throttle_rests(w->policy, now, &w->rest))
		return false;
	if (w->policy->heartbeats && (gone || now >= ssw_passes_refresh_at(w)))
	{
		/* such a pass does not find what is due */
		if (w->plain)
			(void) ssw_watch_probe(w, now);
		return false;
	}
	ssw_watch_note_lock(w, false, now);
	w->next_look = ssw_min(Max(w->rest.until, now + ssw_min_interval * INT64CONST(1000)), ssw_passes_refresh_at(w));
	return true;
}

/* Open a pass in shared memory, if there is room; its row is written when it finds a row. */
void
ssw_passes_open(SswWatch *w, uint64 generation, TimestampTz now, bool requested)
{
	SswPolicy  *p = w->policy;
	SswPolicyShared *s;
	ConditionVariable cv;
	SswPass    *pass;
	TimestampTz cutoffs[2] = {DT_NOBEGIN, DT_NOBEGIN};
	uint64		disconnects = w->disconnects;

	/* the pass takes what is posted */
	if (p->id == SSW_SESSION_POLICY_ID)
		(void) ssw_attach_posted(NULL, &disconnects);
	refill(w, now);
	if (requested)
		w->rest.state = SSW_POLICY_UNKNOWN;
	if (w->rest.state == SSW_POLICY_UNKNOWN)
		ssw_grace_cutoffs(p, now, cutoffs);
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	pass = ssw_quota_free_pass(p);
	if (pass)
	{
		w->disconnects = disconnects;
		w->disconnects_at = now + GONE_AGAIN_US;
		cv = pass->collector_cv;
		memset(pass, 0, sizeof(SswPass));
		pass->collector_cv = cv;
		pass->in_use = true;
		pass->database = MyDatabaseId;
		pass->policy_id = p->id;
		pass->owner = p->owner;
		pass->waits_since = now;
		pass->policy_generation = generation;
		pass->forced = requested;
		pass->refresh_only = w->rest.state != SSW_POLICY_UNKNOWN;

		/*
		 * one that ends nothing has nothing to count, one that continues
		 * takes a few of the rows that were counted
		 */
		pass->fuse_open = w->force || pass->refresh_only || p->fuse_until > now || (w->rate_waits && w->tokens >= 0 && w->fuse_left >= w->tokens && !requested);
		pass->fuse_left = w->fuse_left;
		pass->started_at = pass->now = now;
		pass->soft_deadline = now + p->soft_limit_us;
		pass->deadline_cutoff[0] = cutoffs[0];
		pass->deadline_cutoff[1] = cutoffs[1];
		pass->refresh_cutoff = refresh_cutoff(w, now);
		memcpy(pass->low, w->low, sizeof(pass->low));
		pass->full_cutoff = now - p->keep_for_us;
		pass->backlog_before = p->backlog_before ? p->backlog_before - p->keep_for_us : 0;
		pass->above = w->held_above != 0 && now < w->full_at && !requested ? w->held_above : 0;
		pass->locked_for_long = w->blocked_since != 0 && now - w->blocked_since > LONG_LOCK_US;
		s = ssw_shmem_policy(MyDatabaseId, p->id, false);

		/*
		 * sessions that memory did not know then had to write their rows
		 * since
		 */
		if (pass->refresh_only && s)
			pass->backlog_before = Max(pass->backlog_before, s->compared_at);
		pass->tokens = requested ? -1 : w->tokens;
		pass->backlog_tokens = requested ? -1 : w->backlog_tokens;
		pass->collector = -1;

		/*
		 * acquire() may wait for rows of the pass: both waiting would be a
		 * deadlock
		 */
		pass->skip_locked = p->registry;
		pass->target = 1;
		pass->previous = s ? s->last_pass_id : 0;
		w->pass = pass;
		w->served_at = now;
		w->trusted = 0;
	}
	LWLockRelease(SswShared->lock);
}

/* The policy looks again then, or sooner for heartbeats or for rows that are held; or not by itself. */
static void
look_again_at(SswWatch *w, TimestampTz at, TimestampTz soon)
{
	w->next_look = ssw_min(at, ssw_passes_refresh_at(w));
	if (w->held_above != 0)
		w->next_look = Min(w->next_look, Max(soon, w->full_at));
	if (w->policy->check_every_us == 0 && !w->unfinished)
		w->next_look = DT_NOEND;
}

/*
 * A look that finds nothing is repeated after check_every, which doubles while nothing is
 * found.  It is at a time that other policies have, too: a round that looks at one or at
 * many has the same cost for all that it does not look at.  Looks of workers are spread.
 */
static TimestampTz
idle_until(const SswWatch *w, TimestampTz now)
{
	bool		tells = ssw_written_tells(w);
	int64		most_us = Max(w->policy->check_every_us, SSW_IDLE_LOOK_US);
	int			times = Min(1 << Min(Max(w->idle - 1, 0), 6), tells ? SSW_UNWRITTEN_MAX : SSW_IDLE_MAX);
	int64		every = Min(w->policy->check_every_us * times, most_us);
	TimestampTz at = now + every;

	return ssw_min(at - at % Max(1, tells ? every : every / SSW_IDLE_MAX), ssw_lower_bound_until(w->policy_id, now));
}

/*
 * When a policy looks again after a pass: soon, when rows are left or more may be due; else
 * when the next row is due, or when an idle policy does.
 */
static void
schedule_after(SswWatch *w, const SswPass *pass, TimestampTz now)
{
	TimestampTz soon = now + ssw_min_interval * INT64CONST(1000);
	TimestampTz at;
	TimestampTz next_due = pass->next_due;
	bool		known;
	bool		did = pass->expired + pass->refreshed + pass->repaired > 0;
	bool		stopped = pass->end == SSW_END_STOPPED;
	bool		limited = pass->end == SSW_END_LIMIT;

	/* one that did nothing leaves true what the last probe has found */
	known = !did && next_due == 0 && w->plain && !w->unprobed && w->excluded + pass->excluded == 0 &&
		(w->earliest == 0 || w->earliest > now);
	if (known)
		next_due = w->earliest;
	w->idle = did ? 0 : w->idle + 1;
	w->excluded = pass->excluded;
	w->unfinished = limited || (stopped && (pass->forced || w->unfinished));
	if (pass->end == SSW_END_DONE)
		w->earliest = next_due;
	else if (limited && pass->oldest_due != 0)
		w->earliest = pass->oldest_due;
	w->unprobed |= w->earliest == 0 && !known;
	at = idle_until(w, now);
	if (next_due != 0)
		at = Min(at, Max(soon, next_due));
	if (stopped || limited)
		at = soon;
	/* at once, if another database waits for this look */
	else if (did && w->excluded == 0 && ssw_watch_probes(w))
		at = SswShared->coordinators_waiting ? now : soon;
	/* not at once: a change of the policy may take long */
	if (stopped)
		w->not_before = soon;
	look_again_at(w, at, soon);
}

/* A look that somebody may have asked for has found nothing. */
void
ssw_passes_nothing_due(SswWatch *w, TimestampTz now, uint64 request)
{
	TimestampTz at;

	ssw_drain_nothing_due(w->policy_id);
	if (request)
		ssw_request_complete(w, request, 0, 0, "");
	w->idle++;
	w->trusted++;
	w->unfinished = w->rate_waits = false;
	ssw_watch_note_lock(w, false, now);
	at = idle_until(w, now);
	look_again_at(w, w->earliest != 0 ? Min(at, w->earliest) : at, now);
	if (w->policy->backlog_before != 0)
		ssw_policy_row_succeeded(w);
	if (w->held_above == 0)
		ssw_policy_row_rearm(w, now);
	w->owed = false;
}

/*
 * May the fuse trip again?  Not before the pile is gone that a hold leaves, and
 * that grows while it is worked on.  A pass that has removed everything, and took
 * no longer than there may be between two, leaves none.
 */
static bool
is_harmless(const SswPolicy *p, const SswPass *pass, TimestampTz now)
{
	return !pass->refresh_only && pass->above == 0 &&
		(pass->harmless ||
		 (pass->end == SSW_END_DONE && (p->check_every_us == 0 || now - pass->now <= p->check_every_us)));
}

/* Did the pass come to the end of what is due?  Rows that the fuse holds, or grace covers, do not count. */
static bool
came_through(const SswPass *pass)
{
	return !TIMESTAMP_IS_NOBEGIN(pass->deadline_cutoff[0]) &&
		(pass->end == SSW_END_FUSE || (pass->end == SSW_END_DONE && pass->left_out == 0));
}

/*
 * Rows that the fuse holds, or that grace covers, are read rarely: passes begin behind the
 * last one that was due, w->held_above.  From w->full_at on a pass reads them all again,
 * ever more rarely, the more it has to read.  So it does when other rows were left there.
 */
static void
note_holds(SswWatch *w, const SswPass *pass, TimestampTz now)
{
	SswPolicy  *p = w->policy;
	int64		rest = (now - pass->started_at) * FULL_PART;
	bool		left = pass->failed + pass->skipped + pass->excluded > 0;

	/*
	 * grace ends row by row, so that a pass that found many may find others
	 * soon
	 */
	bool		graced = pass->graced && pass->expired + pass->refreshed < FEW_ROWS;

	/* what it held may have been let go since */
	if (pass->policy_generation != w->judged_generation)
	{
		w->held_above = 0;
		return;
	}
	if (pass->fuse_until != 0)
		p->fuse_until = pass->fuse_until;
	if (pass->fuse_next != 0 && (p->fuse_next == 0 || pass->fuse_next < p->fuse_next))
		p->fuse_next = pass->fuse_next;
	if (!came_through(pass))
		return;
	if (pass->above != 0)
	{
		/* nothing is left between those that it did not read and its end */
		if (w->held_above != 0 && !left)
			w->held_above = pass->deadline_cutoff[0];
	}
	else if (p->fuse_next > now || graced)
	{
		w->held_above = pass->deadline_cutoff[0];
		w->full_at = now + Min(MAX_FULL_US, Max(MIN_FULL_US, rest));
		if (left)
			w->full_at = pass->skipped == 0 && pass->next_due > now ? Min(w->full_at, pass->next_due) : now;
	}
	else
		w->held_above = 0;
}

/* How a pass without workers ended. */
static SswPassEnd
how_it_ended(const SswPass *pass, TimestampTz now)
{
	switch (pass->end)
	{
		case SSW_END_NONE:
			return pass->max_workers_seen > 0 && now > pass->soft_deadline ? SSW_END_LIMIT : SSW_END_STOPPED;
		case SSW_END_DONE:
			/* a worker left, or was ended, with rows that no other has seen */
			if (pass->unfinished > 0)
				return SSW_END_STOPPED;
			return pass->refresh_only ? SSW_END_REFRESHED : SSW_END_DONE;
		case SSW_END_SPENT:
			return SSW_END_LIMIT;
		default:
			return pass->end;
	}
}

/* Give the slot back, and return a copy of what was in it. */
static SswPass
take_pass(SswWatch *w, TimestampTz now)
{
	SswPass		pass;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	pass = *w->pass;
	w->fuse_left = ssw_shmem_pass_is_stale(w->pass) ? 0 : pass.fuse_left;
	w->pass->in_use = false;
	LWLockRelease(SswShared->lock);
	pass.end = how_it_ended(&pass, now);
	w->pass = NULL;
	return pass;
}

/* A pass without workers that has ended: write down what it did, and say what comes next. */
void
ssw_passes_close(SswWatch *w, TimestampTz now)
{
	SswPass		pass = take_pass(w, now);

	if (pass.pass_id != 0)
		ssw_policy_row_close_pass(w, &pass);
	/* unregistered */
	if (w->policy == NULL)
		return;
	w->rate_waits = pass.end == SSW_END_LIMIT && now <= pass.soft_deadline;
	if (w->policy->rate_limit > 0 && pass.tokens >= 0)
		w->tokens = pass.tokens;
	if (pass.backlog_tokens >= 0)
		w->backlog_tokens = pass.backlog_tokens;
	w->looks++;
	w->last_look = now;
	if (pass.end == SSW_END_DONE || (pass.end == SSW_END_LIMIT && !pass.refresh_only))
		w->last_success = now;
	if (pass.end == SSW_END_DONE)
		ssw_in_hand_forget(w->policy_id, InvalidOid);
	if (pass.end == SSW_END_FAILED)
		ssw_policy_row_failed(w, &pass);
	else if (pass.end == SSW_END_DONE && (pass.pass_id != 0 || w->policy->failures > 0 || w->policy->backlog_before != 0))
		ssw_policy_row_succeeded(w);
	if (pass.started_at >= w->reported_since && pass.end == SSW_END_DONE)
		w->policy->reported_index = w->reported_index = pass.reported_index;
	note_holds(w, &pass, now);
	if (is_harmless(w->policy, &pass, now))
		ssw_policy_row_rearm(w, pass.now);
	ssw_watch_rejudge(w, now);
	if (pass.end == SSW_END_LIMIT && !pass.forced)
		(void) ssw_throttle_rests(w->policy, now, &w->rest);
	if (pass.request != 0 && pass.end != SSW_END_STOPPED)
		ssw_request_complete_with(w, pass.request, &pass);
	schedule_after(w, &pass, now);
	w->owed = w->owed && pass.end == SSW_END_LOCKED;
	if (pass.end == SSW_END_LOCKED)
		ssw_watch_locked(w);
	else if (pass.left_out != 0 || pass.counted)
		ssw_watch_note_lock(w, pass.left_out != 0, now);
	ssw_passes_publish(w, &pass);
}
