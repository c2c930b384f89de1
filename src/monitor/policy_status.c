/*
 * policy_status.c
 *		A policy's state: decided here, for all that show it.
 *
 * Runs in the session of whoever asks: policy_status, problem, metrics, preview and
 * explain_row read it.  A state is what the server says, else what the policy's row
 * and its table say, else what the coordinator found when it last judged the
 * policy; what that found before the policy was changed does not count.
 *
 * Reads the policy's entry under SswShared->lock; writes nothing.  A crash leaves
 * nothing behind.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/identity.h"
#include "base/shmem.h"
#include "heartbeat/policy_xact.h"
#include "monitor/policy_status.h"
#include "policy/policy_rights.h"
#include "grace/service_log.h"

PG_FUNCTION_INFO_V1(ssw_stat_state);

static const char *const names[] = {
	[SSW_POLICY_STANDBY] = "standby",
	[SSW_POLICY_NOT_RUNNING] = "not running",
	[SSW_POLICY_RESTART_NEEDED] = "restart needed",
	[SSW_POLICY_DISABLED] = "disabled",
	[SSW_POLICY_PAUSED] = "paused",
	[SSW_POLICY_HELD] = "held",
	[SSW_POLICY_FUSE] = "fuse",
	[SSW_POLICY_BROKEN] = "broken",
	[SSW_POLICY_FAILING] = "failing",
	[SSW_POLICY_READ_ONLY] = "read-only",
	[SSW_POLICY_LOCKED] = "locked",
	[SSW_POLICY_OUTSIDE_WINDOW] = "outside window",
	[SSW_POLICY_THROTTLED] = "throttled",
	[SSW_POLICY_RUNNING] = "running",
	[SSW_POLICY_GRACE] = "grace",
	[SSW_POLICY_WAITING] = "waiting",
};

const char *
ssw_state_name(SswPolicyState state)
{
	return names[state];
}

/* What the server says of all policies of this database; false: nothing. */
static bool
state_of_server(SswPolicyState *state, char **reason)
{
	char	   *version;
	int			launcher = -1;

	if (ssw_shmem_available())
	{
		LWLockAcquire(SswShared->lock, LW_SHARED);
		launcher = SswShared->launcher;
		LWLockRelease(SswShared->lock);
	}
	if (RecoveryInProgress())
		*state = SSW_POLICY_STANDBY;
	else if (launcher < 0 || !ssw_guc_database_wanted(get_database_name(MyDatabaseId)))
		*state = SSW_POLICY_NOT_RUNNING;
	else if ((version = ssw_identity_other_version()) != NULL)
	{
		*state = SSW_POLICY_RESTART_NEEDED;
		*reason = psprintf("the library is version %s, the SQL version %s", SSW_VERSION, version);
	}
	else if (!ssw_enabled)
		*state = SSW_POLICY_DISABLED;
	else
		return false;
	return true;
}

/* What its row and its table say; false: it may run. */
static bool
state_of_row(const SswPolicy *p, TimestampTz now, SswPolicyState *state, char **reason)
{
	if (p->paused_at != 0 && (p->paused_until == 0 || p->paused_until > now))
	{
		*state = SSW_POLICY_PAUSED;
		*reason = p->paused_reason;
	}
	else if (p->held_reason)
	{
		*state = SSW_POLICY_HELD;
		*reason = p->held_reason;
	}
	else if (p->fuse_until > now)
	{
		*state = SSW_POLICY_FUSE;
		*reason = p->fuse_detail;
	}
	else if (p->failures > 0)
	{
		*state = p->broken ? SSW_POLICY_BROKEN : SSW_POLICY_FAILING;
		*reason = p->last_error;
	}
	else
		return false;
	return true;
}

/* Time is credited to rows that live by activity, after a crash or before this start. */
static bool
in_grace(const SswPolicy *p, TimestampTz now)
{
	int64		life = p->ttl_us + p->keep_for_us;

	if (!(p->last_seen || OidIsValid(p->is_alive)))
		return false;
	/* of a crash before a clean start the last note is left */
	if (ssw_service_is_clean())
		return p->nhorizons > 0 && now < p->horizon[p->nhorizons - 1].service + life;
	return now < ssw_service_began() + life &&
		!(p->nhorizons > 0 && p->horizon[0].service != ssw_service_began() && now >= p->horizon[0].service + life);
}

/*
 * What the coordinator found when it judged the policy as it is now.  A look that
 * has found nothing yet is no pass.
 */
static SswPolicyState
state_of_looks(const SswPolicy *p, TimestampTz now, char **reason)
{
	SswPolicyState state = SSW_POLICY_WAITING;
	SswPolicyShared *s;
	SswPolicyShared copy;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	s = ssw_shmem_policy(MyDatabaseId, p->id, false);
	if (s)
		copy = *s;
	if (s && s->running_pass >= 0 && SswPasses[s->running_pass].pass_id == 0 && s->open_pass_id == 0 &&
		strcmp(copy.state, names[SSW_POLICY_RUNNING]) == 0)
		s = NULL;
	LWLockRelease(SswShared->lock);
	if (s && copy.judged_generation >= copy.changed_at && !ssw_policy_xact_any())
	{
		for (int i = SSW_POLICY_READ_ONLY; i <= SSW_POLICY_RUNNING; i++)
			if (strcmp(copy.state, names[i]) == 0)
				state = i;
		/* it does not fit its table */
		if (strcmp(copy.state, names[SSW_POLICY_BROKEN]) == 0)
			state = SSW_POLICY_BROKEN;
		if (copy.reason[0] && (state != SSW_POLICY_WAITING || strcmp(copy.state, names[SSW_POLICY_WAITING]) == 0))
			*reason = pstrdup(copy.reason);
	}
	return state == SSW_POLICY_WAITING && in_grace(p, now) ? SSW_POLICY_GRACE : state;
}

/* Why it does not fit its table and functions any more, whatever else holds it; or null. */
static char *
misfit(const SswPolicy *p)
{
	if (ssw_policy_is_foreign(p))
		return NULL;
	return !OidIsValid(ssw_relation_owner(p->relid)) ? ssw_policy_unusable(p) :
		p->columns.renamed ? p->columns.renamed : ssw_policy_hook_trouble(p);
}

/* The state of a policy, as its row was read, and why it is in it, or null. */
SswPolicyState
ssw_state_of(const SswPolicy *p, TimestampTz now, char **reason)
{
	SswPolicyState state;

	*reason = NULL;
	if (state_of_server(&state, reason))
		return state;
	if (!state_of_row(p, now, &state, reason))
	{
		if ((*reason = misfit(p)) != NULL)
			state = SSW_POLICY_BROKEN;
		else if ((*reason = ssw_policy_unusable(p)) != NULL)
			state = SSW_POLICY_HELD;
		else
			state = state_of_looks(p, now, reason);
	}
	if (*reason && (*reason)[0] == '\0')
		*reason = NULL;
	/* it holds some groups only, and others go on */
	if (*reason == NULL && state >= SSW_POLICY_READ_ONLY)
		*reason = p->fuse_detail;
	return state;
}

/* _state(): one row a policy that the reader may see. */
Datum
ssw_stat_state(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, ssw_policy_load_all())
	{
		SswPolicy  *p = lfirst(lc);
		Datum		v[4];
		bool		n[4] = {0};
		char	   *reason;
		char	   *trouble;

		if (!ssw_rights_have(p, SSW_RIGHT_SEE))
			continue;
		v[0] = Int32GetDatum(p->id);
		v[1] = CStringGetTextDatum(names[ssw_state_of(p, now, &reason)]);
		n[2] = reason == NULL;
		v[2] = reason ? CStringGetTextDatum(reason) : (Datum) 0;
		trouble = misfit(p);
		n[3] = trouble == NULL;
		v[3] = trouble ? CStringGetTextDatum(trouble) : (Datum) 0;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
	}
	return (Datum) 0;
}
