/*
 * brake.c
 *		The state of a policy: one list of all states, in their order.
 *
 * Runs in the coordinator, which asks whether a policy may run, and in any session
 * that reads a state: policy_status, problem, metrics, preview, explain_row and
 * sweep.  Reads catalogs only.
 *
 * A policy is in the first state of the list whose check holds:
 *
 *	standby			the server is a standby
 *	not running		the launcher does not run, or the database is not listed
 *	restart needed	library and SQL have different versions
 *	disabled		session_sweeper.enabled is off
 *	paused			pause()
 *	held			somebody must confirm: registration, a restore, another owner
 *	fuse			a pass would have ended implausibly many rows
 *	broken			it does not fit its table and functions, or failed eight times in a row
 *	failing			its passes fail, and are tried again
 *	off				the retention of a built-in one is 0
 *	read-only		default_transaction_read_only is on
 *	locked			another transaction holds a lock on its table
 *	outside window	its maintenance window is closed
 *	throttled		max_wal_rate or max_replica_lag
 *	running			a pass
 *	grace			nothing keeps it but the grace after an outage
 *	waiting			for the next look
 *
 * The policy's row, its table and the server say all up to "off".  The rest is what
 * the coordinator found when it last judged the policy; that does not count when the
 * policy was changed since.
 *
 * Shares nothing itself, writes nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/identity.h"
#include "base/shmem.h"
#include "grace/service_log.h"
#include "heartbeat/policy_xact.h"
#include "policy/partition.h"
#include "process/brake.h"

typedef struct Facts
{
	const SswPolicy *policy;
	TimestampTz now;
	SswPolicyState found;		/* by the coordinator */
	const char *found_reason;
	const char *reason;			/* of the check that holds, or null */
} Facts;

static bool
is_standby(Facts *f)
{
	return RecoveryInProgress();
}

static bool
is_not_running(Facts *f)
{
	return !ssw_shmem_available() || SswShared->launcher < 0 || !ssw_guc_database_wanted(get_database_name(MyDatabaseId));
}

static bool
needs_restart(Facts *f)
{
	char	   *version = ssw_identity_other_version();

	if (version)
		f->reason = psprintf("the library is version %s, the SQL version %s", SSW_VERSION, version);
	return version != NULL;
}

static bool
is_disabled(Facts *f)
{
	return !ssw_enabled;
}

static bool
is_paused(Facts *f)
{
	f->reason = f->policy->paused_reason;
	return f->policy->paused_at != 0 && (f->policy->paused_until == 0 || f->policy->paused_until > f->now);
}

static bool
is_held(Facts *f)
{
	f->reason = f->policy->held_reason;
	if (f->reason == NULL && ssw_brake_misfit(f->policy) == NULL)
		f->reason = ssw_policy_unusable(f->policy);
	return f->reason != NULL;
}

static bool
is_fused(Facts *f)
{
	f->reason = f->policy->fuse_detail;
	return f->policy->fuse_until > f->now;
}

static bool
is_broken(Facts *f)
{
	f->reason = ssw_brake_misfit(f->policy);
	if (f->reason == NULL && f->policy->failures > 0 && f->policy->broken)
		f->reason = f->policy->last_error;
	else if (f->reason == NULL && f->found == SSW_POLICY_BROKEN)
		f->reason = f->found_reason;
	else
		return f->reason != NULL;
	return true;
}

/* Of a built-in one. */
static bool
is_off(Facts *f)
{
	f->reason = "its retention is 0: rows are kept";
	return f->policy->off;
}

static bool
is_failing(Facts *f)
{
	f->reason = f->policy->last_error;
	return f->policy->failures > 0;
}

/* Time is credited to rows that activity keeps alive, after a crash or before this start. */
static bool
in_grace(Facts *f)
{
	const SswPolicy *p = f->policy;
	int64		life = p->ttl_us + p->keep_for_us;

	if (!ssw_shmem_available() || !(p->last_seen || OidIsValid(p->is_alive)))
		return false;
	/* of a crash before a clean start the last note is left */
	if (ssw_service_is_clean())
		return p->nhorizons > 0 && f->now < p->horizon[p->nhorizons - 1].service + life;
	return f->now < ssw_service_began() + life &&
		!(p->nhorizons > 0 && p->horizon[0].service != ssw_service_began() && f->now >= p->horizon[0].service + life);
}

/* The list; a state without a check holds when the coordinator found it. */
static const struct
{
	const char *name;
	bool		(*holds) (Facts *f);
}			states[] = {
	[SSW_POLICY_STANDBY] = {"standby", is_standby},
	[SSW_POLICY_NOT_RUNNING] = {"not running", is_not_running},
	[SSW_POLICY_RESTART_NEEDED] = {"restart needed", needs_restart},
	[SSW_POLICY_DISABLED] = {"disabled", is_disabled},
	[SSW_POLICY_PAUSED] = {"paused", is_paused},
	[SSW_POLICY_HELD] = {"held", is_held},
	[SSW_POLICY_FUSE] = {"fuse", is_fused},
	[SSW_POLICY_BROKEN] = {"broken", is_broken},
	[SSW_POLICY_FAILING] = {"failing", is_failing},
	[SSW_POLICY_OFF] = {"off", is_off},
	[SSW_POLICY_READ_ONLY] = {"read-only"},
	[SSW_POLICY_LOCKED] = {"locked"},
	[SSW_POLICY_OUTSIDE_WINDOW] = {"outside window"},
	[SSW_POLICY_THROTTLED] = {"throttled"},
	[SSW_POLICY_RUNNING] = {"running"},
	[SSW_POLICY_GRACE] = {"grace", in_grace},
	[SSW_POLICY_WAITING] = {"waiting"},
};

const char *
ssw_brake_name(SswPolicyState state)
{
	return states[state].name;
}

/* Why the policy does not fit its table and functions, whatever else holds it; or null. */
char	   *
ssw_brake_misfit(const SswPolicy *p)
{
	char	   *trouble;

	if (ssw_policy_is_foreign(p))
		return NULL;
	if (!OidIsValid(ssw_relation_owner(p->relid)))
		return ssw_policy_unusable(p);
	trouble = p->stale_detail ? p->stale_detail : ssw_policy_hook_trouble(p);
	return trouble || !ssw_shards ? trouble : ssw_shards->misfit(p, NULL);
}

/* What the coordinator found; a look that has found nothing yet is no pass. */
static void
read_found(Facts *f)
{
	SswPolicyShared s;

	if (!ssw_shmem_available() || ssw_policy_xact_any())
		return;
	if (!ssw_shmem_read_policy(f->policy->id, &s))
	{
		if (f->policy->id <= SSW_LAST_BUILTIN || !ssw_shmem_policies_full())
			return;
		f->found = SSW_POLICY_WAITING;
		f->found_reason = "it has no slot in shared memory, so its looks are not shown";
		return;
	}
	if (s.judged_generation < s.changed_at ||
		(s.state == SSW_POLICY_RUNNING && s.reason[0] == '\0' && s.running_pass >= 0 && SswPasses[s.running_pass].pass_id == 0))
		return;
	f->found = s.state;
	f->found_reason = pstrdup(s.reason);
}

static SswPolicyState
first_state(Facts *f, SswPolicyState from, SswPolicyState last)
{
	for (SswPolicyState state = from; state < last; state++)
	{
		f->reason = NULL;
		if (states[state].holds ? states[state].holds(f) : state == f->found)
			return state;
	}
	f->reason = NULL;
	return last;
}

/* The state of a policy, as its row was read, and why it is in it, or null. */
SswPolicyState
ssw_brake_state(const SswPolicy *p, TimestampTz now, const char **reason)
{
	Facts		f = {.policy = p,.now = now};
	SswPolicyState state;

	read_found(&f);
	state = first_state(&f, SSW_POLICY_STANDBY, SSW_POLICY_WAITING);
	if (state >= SSW_POLICY_READ_ONLY && (state == f.found || f.found == SSW_POLICY_WAITING))
		f.reason = f.found_reason;
	if (f.reason && f.reason[0] == '\0')
		f.reason = NULL;
	/* it holds some groups only, and the others are swept */
	if (f.reason == NULL && state >= SSW_POLICY_READ_ONLY)
		f.reason = p->fuse_detail;
	*reason = f.reason;
	return state;
}

/*
 * The first brake from that one on that the policy's row, its table and functions put
 * on, and why; SSW_POLICY_WAITING: none.
 */
SswPolicyState
ssw_brake_of_policy(const SswPolicy *p, TimestampTz now, SswPolicyState from, const char **reason)
{
	Facts		f = {.policy = p,.now = now};
	SswPolicyState state = first_state(&f, from, SSW_POLICY_READ_ONLY);

	*reason = f.reason;
	return state == SSW_POLICY_READ_ONLY ? SSW_POLICY_WAITING : state;
}

/* Is that brake on, whatever comes before it?  The fuse also when it holds some groups only. */
bool
ssw_brake_is_on(const SswPolicy *p, TimestampTz now, SswPolicyState brake)
{
	Facts		f = {.policy = p,.now = now};

	read_found(&f);
	return states[brake].holds(&f) || (brake == SSW_POLICY_FUSE && p->fuse_detail != NULL);
}
