/*
 * policy_watch.c
 *		Brakes of one policy, as the coordinator sees them.
 *
 * Runs in the coordinator, in a transaction.  Judging reads catalogs only; no
 * code of users is run or analysed.  Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/guc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "policy/partition.h"
#include "grace/arrival.h"
#include "grace/policy_outage.h"
#include "grace/service_log.h"
#include "process/brake.h"
#include "process/owner_budget.h"
#include "process/policy_row.h"
#include "process/policy_watch.h"
#include "process/probe.h"

/* So long at most for a lock on an index; for the table it does not wait. */
#define LOCK_TIMEOUT_MS		"1"
#define LOCKED_AGAIN_US		(1 * USECS_PER_SEC)
#define LOCKED_SOON_US		(50 * 1000)
/* What is set for a database alone is looked at so often. */
#define SETTINGS_US			(5 * USECS_PER_SEC)

/* Shards that have come are looked for so often. */
#define ARRIVALS_US			(500 * 1000)

/* CALL sweep waits so long for a lock on its table. */
#define LOCKED_TELL_US		(10 * USECS_PER_SEC)

/*
 * Somebody may hold a table for hours: the coordinator does not wait for it, because all
 * policies would wait with it.
 */
static void
lock_at_once(const SswPolicy *p)
{
	if (!ConditionalLockRelationOid(p->relid, AccessShareLock))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not obtain lock on relation %s", p->relation)));
}

/* The same, for what locks others, too. */
static int
begin_without_waits(const SswPolicy *p)
{
	int			level = NewGUCNestLevel();

	(void) set_config_option("lock_timeout", LOCK_TIMEOUT_MS, PGC_SUSET, PGC_S_OVERRIDE, GUC_ACTION_SAVE, true, 0, false);
	lock_at_once(p);
	return level;
}

static bool
brake(SswWatch *w, SswPolicyState state, const char *reason, TimestampTz until)
{
	w->runs = false;
	w->state = state;
	ssw_shmem_text(w->reason, reason ? reason : "", sizeof(w->reason));
	w->brake_until = until;
	w->locked = false;
	return true;
}

/* Nobody renames a column while it is written that somebody has. */
static void
follow_columns(const SswPolicy *p)
{
	SswPolicy  *present;

	if (!p->columns_changed || p->stale || !ConditionalLockRelationOid(p->relid, AccessShareLock))
		return;
	present = ssw_policy_load(p->id);
	if (present && present->columns_changed && !present->stale)
		ssw_policy_row_columns(present);
}

/* The texts beside the oids are what a dump is restored by. */
static void
follow_rename(SswPolicy *p)
{
	char	   *relation = ssw_guard_relation(p->relid);
	char	   *owner = GetUserNameFromId(p->owner, false);

	if (XactReadOnly)
		return;
	follow_columns(p);
	if (strcmp(relation, p->relation) == 0 && strcmp(owner, p->owner_name) == 0)
		return;
	/* of a swap of names we may have seen the first half only */
	if (ssw_policy_is_foreign(p))
		return;
	p->relation = relation;
	p->owner_name = owner;
	ssw_policy_row_renamed(p);
}

/* Can rows be written that depend on activity?  Passes do not find out while none is due. */
static bool
look_whether_blocked(SswWatch *w, TimestampTz now)
{
	SswPolicy  *p = w->policy;
	SswBlock	block = SSW_BLOCK_NONE;

	if (p == NULL || !ssw_outage_watches(p) || now < w->block_look_at)
		return true;
	if (!ssw_partition_is_writable(p->relid))
		block = SSW_BLOCK_LOCK;
	else if (XactReadOnly || (p->heartbeats && (w->unfit || p->failures > 0)))
		block = SSW_BLOCK_OTHER;
	w->block_look_at = ssw_outage_look(p, block, now, &w->blocked_since);
	return true;
}

/* Which policies are blocked?  Returns when the next look is. */
TimestampTz
ssw_watch_blocked(List *watches, TimestampTz now)
{
	static int	first = 0;
	TimestampTz next = DT_NOEND;
	ListCell   *lc;

	if (!ssw_owner_budget_each(watches, &first, look_whether_blocked, now))
		return now;
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->policy && ssw_outage_watches(w->policy))
			next = ssw_min(next, w->block_look_at);
	}
	return next;
}

/* A pass has found a lock, or none: what ssw_watch_blocked() looks at needs no pass for that. */
void
ssw_watch_note_lock(SswWatch *w, bool locked, TimestampTz now)
{
	if (!ssw_outage_watches(w->policy) && (locked || w->blocked_since != 0))
		(void) ssw_outage_look(w->policy, locked ? SSW_BLOCK_LOCK : SSW_BLOCK_NONE, now, &w->blocked_since);
}

/*
 * Somebody holds a table of the policy, and what was begun failed: try again soon, most
 * often the transaction that registered it ends; and more rarely the longer it lasts.
 */
void
ssw_watch_locked(SswWatch *w)
{
	TimestampTz now = GetCurrentTimestamp();

	(void) ssw_outage_look(w->policy, SSW_BLOCK_LOCK, now, &w->blocked_since);
	(void) brake(w, SSW_POLICY_LOCKED, "another transaction holds a lock on its table",
				 now + Max(LOCKED_SOON_US, Min(LOCKED_AGAIN_US, now - w->blocked_since)));
	w->locked = true;
}

/* Is a lock on its table the only brake, and too new to be reported? */
bool
ssw_watch_patient(const SswWatch *w, TimestampTz now)
{
	/* when it was found free meanwhile, it is judged again soon */
	return !w->runs && w->locked && (w->blocked_since == 0 || now - w->blocked_since < LOCKED_TELL_US);
}

/* Is the policy still about the objects it was registered for?  What was moved or renamed is followed. */
static bool
identity_brake(SswWatch *w)
{
	SswPolicy  *p = w->policy;
	Oid			owner = ssw_relation_owner(p->relid);

	if (ssw_policy_is_foreign(p))
	{
		if (OidIsValid(owner) && owner == p->owner &&
			strcmp(ssw_guard_relation(p->relid), p->relation) == 0 &&
			p->system_identifier != ssw_service_system_identifier() &&
			p->database == MyDatabaseId && ssw_policy_row_was_in(p->system_identifier))
		{
			ssw_policy_row_restamp(p);
			return brake(w, SSW_POLICY_WAITING, "moved by pg_upgrade", GetCurrentTimestamp());
		}
		return brake(w, SSW_POLICY_HELD, "restored", ssw_policy_row_hold(p) ? 0 : GetCurrentTimestamp() + LOCKED_SOON_US);
	}
	if (OidIsValid(owner) && owner == p->owner)
		follow_rename(p);
	return false;
}

/* Is its table, or a part of it, the target of a subscription? */
static bool
subscription_brake(SswWatch *w)
{
	Oid			replicated = ssw_partition_subscribed(w->policy);

	return OidIsValid(replicated) &&
		brake(w, SSW_POLICY_BROKEN, psprintf("%s is the target of a subscription: its rows are the publisher's",
											 ssw_guard_relation(replicated)), 0);
}

static bool
build(void *arg)
{
	SswWatch   *w = arg;
	int			level = begin_without_waits(w->policy);
	Relation	rel = table_open(w->policy->relid, AccessShareLock);

	w->plain = ssw_probe_build(w, rel);
	table_close(rel, NoLock);
	AtEOXact_GUC(false, level);
	return true;
}

/*
 * Build the fragments; what does not fit the relation any more is a brake.  Of a
 * policy with code of its owner's no more than the outline: analysing an expression
 * can run that code, which a worker may do, and not for longer than its limits.
 */
static bool
shape_brake(SswWatch *w)
{
	ErrorData  *e = ssw_spi_try(build, w);

	if (e == NULL)
		return false;
	if (e->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		ssw_watch_locked(w);
	else
		brake(w, SSW_POLICY_BROKEN, e->message, 0);
	return true;
}

/* What its row, its table and its functions say; see brake.c. */
static bool
policy_brake(SswWatch *w, TimestampTz now)
{
	SswPolicy  *p = w->policy;
	const char *reason;
	SswPolicyState state;

	state = ssw_brake_of_policy(p, now, SSW_POLICY_PAUSED, &reason);
	/* what heartbeats keep alive is refreshed, and what ends otherwise ends */
	if (state == SSW_POLICY_FUSE && p->heartbeats)
		state = ssw_brake_of_policy(p, now, SSW_POLICY_BROKEN, &reason);
	switch (state)
	{
		case SSW_POLICY_WAITING:
			return false;
		case SSW_POLICY_PAUSED:
			return brake(w, state, reason, p->paused_until);
		case SSW_POLICY_FUSE:
			return brake(w, state, reason, p->fuse_until);
		case SSW_POLICY_FAILING:
			return p->retry_at > now && brake(w, state, reason, p->retry_at);
		case SSW_POLICY_BROKEN:
			if (ssw_brake_misfit(p))
				return brake(w, state, reason, 0);
			return p->retry_at > now && brake(w, state, reason, p->retry_at);
		default:
			return brake(w, state, reason, 0);
	}
}

/* Judge again what a pass may have changed: failures, fuse. */
void
ssw_watch_rejudge(SswWatch *w, TimestampTz now)
{
	if (!w->runs)
		return;
	w->state = SSW_POLICY_WAITING;
	w->reason[0] = '\0';
	(void) policy_brake(w, now);
}

/*
 * Decide whether the policy may run now, and why not.  The policy struct was
 * just loaded; fragments are built in CurrentMemoryContext, which lives as long.
 */
void
ssw_watch_judge(SswWatch *w, TimestampTz now)
{
	w->runs = true;
	w->brake_until = 0;
	w->state = SSW_POLICY_WAITING;
	w->reason[0] = '\0';
	w->plain = w->locked = w->unfit = false;
	/* ALTER DATABASE sends no signal */
	if (DefaultXactReadOnly)
		(void) brake(w, SSW_POLICY_READ_ONLY, "default_transaction_read_only is on", now + SETTINGS_US);
	else if (identity_brake(w))
	{
		w->unfit = true;
		return;
	}
	else
		w->unfit = (ssw_policy_unusable(w->policy) || subscription_brake(w) || shape_brake(w)) && !w->locked;
	(void) policy_brake(w, now);
}

typedef struct Probe
{
	SswWatch   *watch;
	TimestampTz now;
} Probe;

static bool
try_probe(void *arg)
{
	Probe	   *p = arg;

	lock_at_once(p->watch->policy);
	ssw_probe(p->watch, p->now);
	return true;
}

static bool
try_note_arrivals(void *arg)
{
	SswWatch   *w = arg;
	int			level = begin_without_waits(w->policy);

	ssw_arrival_note(w->policy);
	AtEOXact_GUC(false, level);
	return true;
}

/* Note which shards have come, before a pass looks at them; what cannot be read or written now is noted later. */
void
ssw_watch_arrivals(SswWatch *w, TimestampTz now)
{
	ErrorData  *error;

	if (ssw_shards == NULL || w->policy == NULL || !w->policy->heartbeats || !w->runs ||
		(now >= w->arrivals_at && now - w->arrivals_at < ARRIVALS_US))
		return;
	w->arrivals_at = now;
	error = ssw_spi_try(try_note_arrivals, w);
	if (error)
		FreeErrorData(error);
}

/*
 * Probe; an error of the relation's (an index expression, a dropped column) is
 * returned, and is the policy's failure, not the coordinator's.
 */
ErrorData  *
ssw_watch_probe(SswWatch *w, TimestampTz now)
{
	Probe		probe = {.watch = w,.now = now};
	ErrorData  *error = ssw_spi_try(try_probe, &probe);

	if (error)
		disable_timeout(STATEMENT_TIMEOUT, false);
	return error;
}
