/*
 * explain_row.c
 *		explain_row(): why a row is, or is not, gone.
 *
 * Runs in the session of a caller who may see the policy.  Nothing is changed:
 * see row_facts.c for how a row is looked up.
 *
 * Copies the policy's state out of shared memory under SswShared->lock and
 * works without shared memory as well.  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/locks.h"
#include "base/relation_guard.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "heartbeat/target_cache.h"
#include "monitor/all_nodes.h"
#include "monitor/row_facts.h"
#include "policy/partition.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"
#include "process/brake.h"
#include "sweep/alive_by_heartbeat.h"

PG_FUNCTION_INFO_V1(ssw_explain_row);

/* What explain_row() answers, and what it is concluded from. */
typedef struct Explanation
{
	SswPolicy  *policy;
	TimestampTz now;
	SswRowFacts row;
	TimestampTz deadline;		/* as the row says, or 0 */
	TimestampTz heartbeat;		/* that memory knows, or 0 */
	bool		held;			/* by it: the row's first deadline is its end */
	SswPolicyState state;		/* of the policy */
	const char *why;			/* it is in that state, or null */
	const char *verdict;
	const char *reason;			/* or null */
	char	   *hint;			/* a statement to paste, or null */
} Explanation;

/* Is the row past its maximum age, whatever is_alive says? */
static bool
too_old(const Explanation *e)
{
	return e->row.has_due[1] && e->row.due[1] <= e->now - e->policy->keep_for_us;
}

static char *
retry_hint(const Explanation *e)
{
	return psprintf("SELECT sweeper.retry_row(%s, %s);", quote_literal_cstr(e->policy->name),
					quote_literal_cstr(e->row.key));
}

static bool
conclude(Explanation *e, const char *verdict, const char *reason, char *hint)
{
	e->verdict = verdict;
	e->reason = reason;
	e->hint = hint;
	return true;
}

/* Brakes that keep every row of the policy; state alone is not enough. */
static bool
braked(Explanation *e)
{
	SswPolicy  *p = e->policy;

	if (e->state == SSW_POLICY_PAUSED)
		return conclude(e, "paused", e->why, ssw_repair_hint_or_resume(p, NULL));
	if (e->state == SSW_POLICY_HELD)
		return conclude(e, "held", e->why, ssw_repair_hint_or_resume(p, NULL));
	/* the registry's own max_ttl ends it anyway */
	if (e->row.fused && !(p->registry && too_old(e)))
		return conclude(e, "held by fuse", p->fuse_detail,
						ssw_repair_hint_or_resume(p, p->fuse_until > e->now ? NULL : e->row.group));
	return false;
}

/* Does grace, or the time credited after a stop, still cover the row? */
static bool
in_grace(Explanation *e)
{
	SswPolicy  *p = e->policy;
	TimestampTz cutoffs[2];

	if (!ssw_shmem_available() || RecoveryInProgress())
		return false;
	ssw_grace_cutoffs(p, e->now, cutoffs);
	for (int i = 0; i < p->ndeadlines; i++)
		if (e->row.has_due[i] && !TIMESTAMP_IS_NOBEGIN(cutoffs[i]) && e->row.due[i] <= cutoffs[i] &&
			(i > 0 || !e->row.in_grace))
			return false;
	return true;
}

static char *
holders_hint(Explanation *e)
{
	char	   *pids;

	if (DatumGetPointer(e->row.holders) == NULL)
		return ssw_lock_relation_query(e->policy->relid);
	pids = OidOutputFunctionCall(F_ARRAY_OUT, e->row.holders);
	if (strcmp(pids, "{0}") == 0)
		return "SELECT * FROM pg_catalog.pg_prepared_xacts;";
	return psprintf("SELECT pid, state, xact_start, query FROM pg_catalog.pg_stat_activity WHERE pid = ANY ('%s');",
					pids);
}

/* Nothing keeps the row itself: what does the policy wait for? */
static void
conclude_due(Explanation *e)
{
	SswPolicy  *p = e->policy;
	char	   *sweep = psprintf("CALL sweeper.sweep(%s);", quote_literal_cstr(p->name));

	if (e->state < SSW_POLICY_GRACE && e->state != SSW_POLICY_FUSE)
		conclude(e, "due", psprintf("the state of the policy is \"%s\"%s%s", ssw_brake_name(e->state), e->why ? ": " : "", e->why ? e->why : ""),
				 psprintf("SELECT state, reason, next_step FROM sweeper.policy_status WHERE policy = %s;", quote_literal_cstr(p->name)));
	else if (e->row.next_attempt != 0)
		conclude(e, "due", "it failed and is tried again at next_attempt", retry_hint(e));
	else if (p->check_every_us == 0)
		conclude(e, "due", "the policy is checked only on request", sweep);
	else if (OidIsValid(p->is_alive) && !too_old(e))
		conclude(e, "due", "the next pass calls is_alive", sweep);
	else
		conclude(e, "due", "the next pass expires it", sweep);
}

/* The row's deadline has passed, keep_for too: what keeps it? */
static void
judge_dead(Explanation *e)
{
	SswRowFacts *r = &e->row;
	bool		by_null = !r->has_due[0] && !r->has_due[1];

	if (braked(e))
		return;
	if (!by_null && in_grace(e))
		conclude(e, "in grace", "after an outage rows get more time, so that clients can send heartbeats again", NULL);
	else if (r->quarantined)
		conclude(e, "quarantined", r->message,
				 retry_hint(e));
	else if (r->locked)
		conclude(e, "locked", "another transaction holds the row or its table", holders_hint(e));
	else if (r->fail_class && strcmp(r->fail_class, "check") == 0)
		conclude(e, "check unknown", r->message,
				 retry_hint(e));
	else
		conclude_due(e);
}

/* The earlier of the row's deadlines; false when it has none. */
static bool
deadline_of(const SswRowFacts *r, TimestampTz *deadline)
{
	if (r->has_due[0] && r->has_due[1])
		*deadline = Min(r->due[0], r->due[1]);
	else
		*deadline = r->has_due[0] ? r->due[0] : r->due[1];
	return r->has_due[0] || r->has_due[1];
}

/* Where memory knows that the session lives longer than its row says, that counts. */
static void
look_at_memory(Explanation *e)
{
	SswPolicy  *p = e->policy;
	SswRowFacts *r = &e->row;
	SswHeartbeatKey k;
	SswHeartbeat b;

	if (!p->heartbeats || !ssw_shmem_available())
		return;
	k = ssw_target_cache_key(p, ssw_partition_shard(p, r->leaf), r->key);
	if (!ssw_store_find(&k, &b))
		return;
	e->heartbeat = SSW_ENTRY_SEEN(pg_atomic_read_u64(&b.word));
	e->held = r->has_due[0] && r->due[0] >= b.deadline && e->heartbeat + b.ttl_us > r->due[0];
	if (e->held)
		r->due[0] = e->heartbeat + b.ttl_us;
}

static void
judge_found(Explanation *e)
{
	SswPolicy  *p = e->policy;
	SswRowFacts *r = &e->row;
	TimestampTz deadline;
	Oid			owner = ssw_relation_owner(r->leaf);

	if (OidIsValid(owner) && owner != p->owner)
		conclude(e, "held", psprintf("%s belongs to role \"%s\" and is not swept", ssw_guard_relation(r->leaf), GetUserNameFromId(owner, false)),
				 psprintf("SELECT next_step FROM sweeper.problem WHERE policy = %s AND problem = 'partition of another owner';",
						  quote_literal_cstr(p->name)));
	else if (r->excluded)
	{
		ssw_row_facts_end(p, r);
		if (r->ended_at != 0)
			conclude(e, "expired", r->end_reason ? r->end_reason : "the row action has run, and the filter now excludes the row", NULL);
		else
			conclude(e, "excluded by filter", psprintf("the filter is not true for the row: %s", p->filter), NULL);
	}
	else if (!r->has_due[0] && p->on_null == SSW_NULL_EXPIRE)
		judge_dead(e);
	else if (!deadline_of(r, &deadline))
		conclude(e, "no deadline", p->on_null == SSW_NULL_REPAIR ?
				 "its deadline is null; the next pass gives it one" : "its deadline is null",
				 p->on_null == SSW_NULL_REPAIR ? NULL :
				 psprintf("SELECT sweeper.alter_policy(%s, on_null => 'expire');", quote_literal_cstr(p->name)));
	else if (TIMESTAMP_IS_NOEND(deadline))
		conclude(e, "alive", "it never expires", NULL);
	else if (deadline > e->now)
		conclude(e, "alive", e->held && e->deadline <= e->now ?
				 "heartbeats keep it alive beyond the deadline of its row" : "its deadline is in the future", NULL);
	else if (!TIMESTAMP_IS_NOBEGIN(deadline) && deadline > e->now - p->keep_for_us)
		conclude(e, "in retention", "its deadline has passed, but the time keep_for after it has not", NULL);
	else
		judge_dead(e);
}

static void
judge_missing(Explanation *e)
{
	SswPolicy  *p = e->policy;
	SswRowFacts *r = &e->row;

	ssw_row_facts_end(p, r);
	if (r->ended_at != 0)
		conclude(e, "expired", r->end_reason, NULL);
	else if (r->elsewhere)
		conclude(e, "not found", "the key's shard is on another node", "Call explain_row() on the coordinator of the cluster.");
	else if (r->trouble)
		conclude(e, "not found", r->trouble, NULL);
	else if (p->audit > SSW_AUDIT_HASH)
		conclude(e, "not found", "no row has this key; events of this policy contain no keys", NULL);
	else
		conclude(e, "not found", "no row and no event has this key", NULL);
}

/* Gather facts and reach a verdict. */
static void
explain(Explanation *e, const char *key)
{
	SswPolicy  *p = e->policy;
	SswRowFacts *r = &e->row;
	char	   *unusable = ssw_policy_unusable(p);

	e->state = ssw_brake_state(p, e->now, &e->why);
	if (unusable)
	{
		conclude(e, "held", unusable, ssw_repair_hint_or_resume(p, NULL));
		return;
	}
	if (ConditionalLockRelationOid(p->relid, AccessShareLock))
	{
		ssw_row_facts_find(p, key, e->now - p->keep_for_us, r);
		UnlockRelationOid(p->relid, AccessShareLock);
	}
	else
		r->locked = true;
	if (r->found)
		ssw_row_facts_failure(p, r);
	(void) deadline_of(r, &e->deadline);
	if (r->done && r->found)
	{
		look_at_memory(e);
		judge_found(e);
	}
	else if (r->done)
		judge_missing(e);
	else if (r->locked)
		conclude(e, "locked", "another transaction holds the table", holders_hint(e));
	else
		conclude(e, "held", psprintf("the row cannot be read: %s", r->trouble), "SELECT * FROM sweeper.problem;");
}

static void
set_time(TimestampTz t, int col, Datum *values, bool *nulls)
{
	values[col] = TimestampTzGetDatum(t);
	nulls[col] = t == 0;
}

/* As in problem and policy_status: a key in it may have characters that a terminal obeys. */
static char *
pasteable(const Explanation *e)
{
	Oid			types[] = {TEXTOID, TEXTOID};
	Datum		values[2];

	if (e->hint == NULL)
		return NULL;
	values[0] = CStringGetTextDatum(e->hint);
	values[1] = CStringGetTextDatum(psprintf("SELECT * FROM sweeper.failed_row WHERE policy_id = %d;", e->policy->id));
	return ssw_spi_text_as_extension("SELECT sweeper._pasteable($1, $2)", 2, types, values, true);
}

static void
set_text(const char *s, int col, Datum *values, bool *nulls)
{
	nulls[col] = s == NULL;
	values[col] = s ? CStringGetTextDatum(s) : (Datum) 0;
}

/*
 * The answer of the node that has the row; or, if none has it, of the one that ended it
 * last; 0: no node that answers knows the row.
 */
static Datum
ask_nodes(const SswPolicy *p, const char *key, const char **silent)
{
	static const char *const sql =
	"SELECT e.found, e.state, e.deadline, e.last_seen, e.last_heartbeat, e.verdict, e.reason, e.attempts, e.next_attempt, e.last_error, e.blocked_by,"
	" e.ended_at, e.cleanup_type, CASE WHEN e.hint IS NOT NULL THEN pg_catalog.concat(e.hint, ' -- on node ', e.node) END"
	" FROM pg_catalog.unnest($1) AS a (answer), pg_catalog.json_to_record(a.answer::pg_catalog.json) AS e (node text, found boolean, state text,"
	" deadline timestamptz, last_seen timestamptz, last_heartbeat timestamptz, verdict text, reason text, attempts int, next_attempt timestamptz,"
	" last_error text, blocked_by int[], ended_at timestamptz, cleanup_type text, hint text)"
	" WHERE e.found IS NOT FALSE OR e.ended_at IS NOT NULL ORDER BY e.found DESC NULLS LAST, e.ended_at DESC LIMIT 1";
	Oid			type = TEXTARRAYOID;
	Datum		answers = PointerGetDatum(ssw_nodes_rows(psprintf("SELECT * FROM sweeper.explain_row(%s, %s)", quote_literal_cstr(p->name), quote_literal_cstr(key)), silent));
	Datum		row = (Datum) 0;

	ssw_spi_begin();
	if (ssw_spi_exec(sql, 1, &type, &answers, NULL, true, 1) > 0)
		row = HeapTupleHeaderGetDatum(SPI_returntuple(SPI_tuptable->vals[0], SPI_tuptable->tupdesc));
	ssw_spi_end();
	return row;
}

/* The row is on another node, and those that answer do not have it. */
static void
judge_asked(Explanation *e, const char *silent)
{
	e->row.elsewhere = false;
	judge_missing(e);
	if (silent == NULL)
		return;
	e->row.done = false;
	conclude(e, "unknown", psprintf("node %s does not answer", silent), NULL);
}

/* explain_row(policy, key): one row. */
Datum
ssw_explain_row(PG_FUNCTION_ARGS)
{
	Explanation e = {.now = GetCurrentTimestamp()};
	SswRowFacts *r = &e.row;
	TupleDesc	desc;
	Datum		v[14] = {0};
	bool		n[14] = {0};

	e.policy = ssw_rights_policy(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), SSW_RIGHT_SEE_ROW);
	ssw_argument_not_null(fcinfo, 1, "key");
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	explain(&e, text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (!r->found && ssw_nodes->leads(e.policy->relid))
	{
		const char *silent;
		Datum		row = ask_nodes(e.policy, text_to_cstring(PG_GETARG_TEXT_PP(1)), &silent);

		if (row != (Datum) 0)
			PG_RETURN_DATUM(row);
		if (r->elsewhere && r->ended_at == 0)
			judge_asked(&e, silent);
	}

	v[0] = BoolGetDatum(r->found);
	n[0] = !r->done;
	set_text(ssw_brake_name(e.state), 1, v, n);
	set_time(r->found ? e.deadline : r->end_deadline, 2, v, n);
	set_time(r->found ? r->seen : r->end_seen, 3, v, n);
	set_time(e.heartbeat, 4, v, n);
	set_text(e.verdict, 5, v, n);
	set_text(e.reason, 6, v, n);
	v[7] = Int32GetDatum(r->attempts);
	n[7] = r->fail_class == NULL;
	set_time(r->next_attempt, 8, v, n);
	set_text(r->message, 9, v, n);
	v[10] = r->holders;
	n[10] = DatumGetPointer(r->holders) == NULL;
	set_time(r->ended_at, 11, v, n);
	set_text(r->cleanup_type, 12, v, n);
	set_text(pasteable(&e), 13, v, n);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), v, n)));
}
