/*
 * is_live.c
 *		SQL function is_live, which is no heartbeat.
 *
 * Runs in clients' sessions, on the primary.  Reads the heartbeats (store.c); a crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/shmem.h"
#include "grace/grace.h"
#include "heartbeat/refusal.h"
#include "monitor/row_facts.h"
#include "policy/partition.h"
#include "policy/policy.h"
#include "policy/policy_rights.h"
#include "policy/row_key.h"
#include "sweep/alive_by_heartbeat.h"

PG_FUNCTION_INFO_V1(ssw_is_live);
PG_FUNCTION_INFO_V1(ssw_is_live_here);
PG_FUNCTION_INFO_V1(ssw_session_is_live);

/* Does the row live at that time, by what it says and what memory knows? */
static bool
lives(SswPolicy *p, const SswRowFacts *r, TimestampTz now)
{
	TimestampTz cutoffs[2];

	if (!r->found || r->excluded)
		return false;
	/* one that would be deleted when it is not kept any more is dead */
	ssw_grace_cutoffs(p, now + p->keep_for_us, cutoffs);
	if (p->ndeadlines > 1 && r->has_due[1] && r->due[1] <= cutoffs[1])
		return false;
	if (!r->has_due[0] && p->on_null == SSW_NULL_EXPIRE)
		return false;
	if (!r->has_due[0] || r->in_grace || r->due[0] > cutoffs[0])
		return true;
	return ssw_alive_holds(p, ssw_partition_shard(p, r->leaf), r->key, r->due[0], cutoffs[0]);
}

/* The policy of that name, if its rows can be looked at: before rights on its table, which may be gone. */
static SswPolicy *
find_usable(const char *name)
{
	SswPolicy  *p = ssw_policy_find(name, false);
	char	   *trouble = ssw_policy_unusable(p);

	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot read a row of policy \"%s\": %s", p->name, trouble),
				 errhint("SELECT next_step FROM sweeper.policy_status WHERE policy = %s;", quote_literal_cstr(p->name))));
	return p;
}

/* Does it live?  Unless allowed, a row on another node is an error. */
static bool
is_live(SswPolicy *p, const char *key, bool elsewhere)
{
	bool		live;
	bool		isnull;

	SswRowFacts r = {0};

	ssw_row_facts_find(p, key, GetCurrentTimestamp(), &r);
	if (r.trouble)
		ereport(ERROR,
				(errcode(r.locked ? ERRCODE_LOCK_NOT_AVAILABLE : r.done ? ERRCODE_INVALID_TEXT_REPRESENTATION :
						 ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot read a row of policy \"%s\": %s", p->name, r.trouble)));
	live = lives(p, &r, GetCurrentTimestamp());
	/* what is known here counts only if the shard has not left meanwhile */
	if (r.shard.id == 0 || (!r.elsewhere && ssw_shard_route->is_here(&r.shard)))
		return live;
	if (!r.elsewhere || !elsewhere)
		ssw_refusal_moving(p);
	live = DatumGetBool(ssw_shard_route->ask(p, "_is_live_here", r.key, TEXTOID, CStringGetTextDatum(r.key), &isnull));
	return live && !isnull;
}

/* What lives is known where heartbeats come. */
static void
check_primary(void)
{
	ssw_shmem_require();
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute is_live() on a standby"),
				 errhint("Heartbeats are in the memory of the primary: call it there.")));
}

static Datum
is_live_of_call(FunctionCallInfo fcinfo, bool elsewhere)
{
	SswPolicy  *p;

	ssw_argument_not_null(fcinfo, 0, "policy");
	ssw_argument_not_null(fcinfo, 1, "key");
	check_primary();
	p = find_usable(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	ssw_rights_check_rows(p, ACL_SELECT);
	if (PG_NARGS() > 2)
		ssw_key_check_place(p, fcinfo);
	PG_RETURN_BOOL(is_live(p, text_to_cstring(PG_GETARG_TEXT_PP(1)), elsewhere));
}

/* is_live(policy, key): is no heartbeat. */
Datum
ssw_is_live(PG_FUNCTION_ARGS)
{
	return is_live_of_call(fcinfo, true);
}

/* _is_live_here(policy, key, place): the key's row is on this node, or it is an error. */
Datum
ssw_is_live_here(PG_FUNCTION_ARGS)
{
	return is_live_of_call(fcinfo, false);
}

/* is_live(session): any role that knows the session id may call it. */
Datum
ssw_session_is_live(PG_FUNCTION_ARGS)
{
	bool		live;

	ssw_argument_not_null(fcinfo, 0, "session");
	check_primary();
	live = is_live(find_usable(SSW_SESSION_POLICY), DatumGetCString(DirectFunctionCall1(uuid_out, PG_GETARG_DATUM(0))), false);
	if (!live)
		ssw_refusal_check_registry();
	PG_RETURN_BOOL(live);
}
