/*
 * watch.c
 *		Brakes, cutoffs and probes of one policy.
 *
 * Runs in the coordinator, in a transaction.  Judging reads catalogs only; a
 * probe reads plain columns of built-in types, as the relation's owner, and
 * takes no transaction id.  Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "action.h"
#include "compat.h"
#include "grace.h"
#include "guc.h"
#include "identity.h"
#include "pass.h"
#include "sql.h"
#include "stmt.h"
#include "watch.h"

/* A probe slower than this remembers a lower bound to begin at. */
#define SLOW_PROBE_US		1000
#define FULL_PROBE_US		(60 * USECS_PER_SEC)
/* A probe must not hang the coordinator. */
#define PROBE_TIMEOUT_MS	2000
/* Nor must a lock on a relation, or not all of a round's together. */
#define LOCK_PATIENCE_MS	"5"
#define LOCKED_AGAIN_US		(1 * USECS_PER_SEC)

/*
 * Somebody may hold a table for hours, and user code in an index may hang: the
 * coordinator waits a moment only, because all policies would wait with it.
 */
static int
begin_patience(void)
{
	int			level = NewGUCNestLevel();

	(void) set_config_option("lock_timeout", LOCK_PATIENCE_MS, PGC_SUSET, PGC_S_OVERRIDE,
							 GUC_ACTION_SAVE, true, 0, false);
	return level;
}

static bool
brake(SswWatch *w, const char *state, const char *reason, TimestampTz until)
{
	w->runs = false;
	strlcpy(w->state, state, sizeof(w->state));
	strlcpy(w->reason, reason ? reason : "", sizeof(w->reason));
	w->brake_until = until;
	return true;
}

/* The texts beside the oids are what a dump is restored by. */
static void
follow_rename(SswPolicy *p)
{
	char	   *relation = ssw_stmt_relation(p->relid);
	char	   *owner = GetUserNameFromId(p->owner, false);

	if (XactReadOnly || (strcmp(relation, p->relation) == 0 && strcmp(owner, p->owner_name) == 0))
		return;
	p->relation = relation;
	p->owner_name = owner;
	ssw_ledger_renamed(p);
}

/* Somebody holds a table of the policy: try again soon. */
void
ssw_watch_locked(SswWatch *w)
{
	(void) brake(w, "locked", "somebody holds a lock on its table", GetCurrentTimestamp() + LOCKED_AGAIN_US);
}

/* Is the policy still about the objects it was registered for? */
static bool
identity_brake(SswWatch *w)
{
	SswPolicy  *p = w->policy;
	Oid			owner = ssw_relation_owner(p->relid);
	char	   *trouble;

	if (ssw_policy_is_foreign(p))
	{
		if (OidIsValid(owner) && owner == p->owner &&
			strcmp(ssw_stmt_relation(p->relid), p->relation) == 0 &&
			p->system_identifier != SswShared->system_identifier &&
			p->database == MyDatabaseId && ssw_ledger_was_in(p->system_identifier))
		{
			ssw_ledger_restamp(p);
			return brake(w, "waiting", "moved by pg_upgrade", GetCurrentTimestamp());
		}
		else
		{
			ssw_ledger_hold(p);
			return brake(w, "held", "restored", 0);
		}
	}
	else if (OidIsValid(owner) && owner == p->owner)
		follow_rename(p);
	if (!OidIsValid(owner))
		return brake(w, "broken", psprintf("relation %s does not exist", p->relation), 0);
	if (owner != p->owner)
		return brake(w, "held", psprintf("owner changed from %s to %s", p->owner_name,
										 GetUserNameFromId(owner, false)), 0);
	trouble = p->renamed ? p->renamed : ssw_policy_hook_trouble(p);
	return trouble != NULL && brake(w, "broken", trouble, 0);
}

/* Build the fragments; what does not fit the relation any more is a brake. */
static bool
shape_brake(SswWatch *w)
{
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext cxt = CurrentMemoryContext;
	volatile bool bad = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		int			level = begin_patience();
		Relation	rel = table_open(w->policy->relid, AccessShareLock);

		ssw_clock_build(w->policy, rel);
		table_close(rel, NoLock);
		AtEOXact_GUC(false, level);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *e;

		MemoryContextSwitchTo(cxt);
		e = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (e->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
			ssw_watch_locked(w);
		else
			brake(w, "broken", e->message, 0);
		bad = true;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	return bad;
}

static bool
row_brake(SswWatch *w, TimestampTz now)
{
	SswPolicy  *p = w->policy;

	if (p->paused_at != 0)
		return brake(w, "paused", "", p->paused_until);
	if (p->held_reason)
		return brake(w, "held", p->held_reason, 0);
	if (p->fuse_until > now)
		return brake(w, "fuse", "the last pass would have removed too much", p->fuse_until);
	if (p->failures > 0 && p->retry_at > now)
		return brake(w, p->broken ? "broken" : "failing", "", p->retry_at);
	return false;
}

/* Judge again what a pass may have changed: failures, fuse. */
void
ssw_watch_rejudge(SswWatch *w, TimestampTz now)
{
	if (!w->runs)
		return;
	strlcpy(w->state, "waiting", sizeof(w->state));
	w->reason[0] = '\0';
	(void) row_brake(w, now);
}

/*
 * Decide whether the policy may run now, and why not.  The policy struct was
 * just loaded; fragments are built in CurrentMemoryContext, which lives as long.
 */
void
ssw_watch_judge(SswWatch *w, TimestampTz now)
{
	SswPolicy  *p = w->policy;

	w->runs = true;
	w->brake_until = 0;
	strlcpy(w->state, "waiting", sizeof(w->state));
	w->reason[0] = '\0';
	w->plain = false;
	if (DefaultXactReadOnly && brake(w, "read-only", "default_transaction_read_only is on", 0))
		return;
	if (identity_brake(w) || shape_brake(w) || row_brake(w, now))
		return;
	w->plain = p->filter == NULL && p->on_null == SSW_NULL_IGNORE;
	for (int i = 0; i < p->nclocks; i++)
		w->plain = w->plain && p->clock[i].plain && p->clock[i].row_ttl == NULL;
}

static Datum
low_datum(const SswClock *c, char *text)
{
	Oid			input,
				ioparam;

	getTypeInputInfo(c->sort_type, &input, &ioparam);
	return OidInputFunctionCall(input, text, ioparam, -1);
}

/* The earliest deadline of one leaf and clock, or 0. */
static TimestampTz
probe_leaf(SswWatch *w, Oid leaf, int i, bool low, char *first)
{
	SswPolicy  *p = w->policy;
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, p->clock[i].sort_type};
	Datum		values[3] = {0};
	bool		isnull;
	Datum		due;
	char	   *text;

	if (low)
		values[2] = low_datum(&p->clock[i], w->low[i]);
	/* with a snapshot of its own: the round's may be older than a request */
	if (ssw_action_execute(ssw_stmt_probe(p, leaf, SSW_PHASE_CLOCK_1 + i, low),
						   3, types, values, NULL, false) == 0)
		return 0;
	due = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	text = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);

	if (text &&strlen(text) < SSW_CURSOR_LEN)
		strlcpy(first, text, SSW_CURSOR_LEN);
	return isnull ? 0 : DatumGetTimestampTz(due);
}

/*
 * Find the earliest time at which a row of a plain policy is due; w->earliest
 * is 0 when it has no rows.  One index probe a leaf and clock.
 */
static void
probe(SswWatch *w, TimestampTz now)
{
	SswPolicy  *p = w->policy;
	bool		low = w->slow_probe && now - w->full_probe_at < FULL_PROBE_US;
	List	   *leaves;
	ListCell   *lc;
	SswIdentity save;
	TimestampTz start = GetCurrentTimestamp();
	TimestampTz cutoffs[2];
	char		first[2][SSW_CURSOR_LEN] = {"", ""};

	w->earliest = 0;
	ssw_grace_cutoffs(p, now, cutoffs);
	leaves = ssw_pass_leaves(p);
	enable_timeout_after(STATEMENT_TIMEOUT, PROBE_TIMEOUT_MS);
	ssw_identity_become_owner(p->owner, p->search_path, &save);
	ssw_sql_begin();
	foreach(lc, leaves)
		for (int i = 0; i < p->nclocks; i++)
	{
		TimestampTz due = probe_leaf(w, lfirst_oid(lc), i, low && w->low[i][0], first[i]);
		int64		credit = ssw_grace_credit(p, i, cutoffs[i], now);

		if (due == 0 || TIMESTAMP_IS_NOEND(due))
			continue;
		if (TIMESTAMP_IS_NOBEGIN(due))
			due = now - USECS_PER_DAY;
		due += p->keep_for_us;
		if (due <= now + credit)
			due = Max(due, TIMESTAMP_IS_NOBEGIN(cutoffs[i]) ? now + credit : due + credit);
		if (w->earliest == 0 || due < w->earliest)
			w->earliest = due;
	}
	ssw_sql_end();
	ssw_identity_restore(&save);
	disable_timeout(STATEMENT_TIMEOUT, false);
	if (!low)
	{
		w->full_probe_at = now;
		w->slow_probe = list_length(leaves) == 1 && GetCurrentTimestamp() - start > SLOW_PROBE_US;
		for (int i = 0; i < 2; i++)
			strlcpy(w->low[i], first[i], SSW_CURSOR_LEN);
	}
}

/*
 * Probe; an error of the relation's (an index expression, a dropped column) is
 * returned, and is the policy's failure, not the coordinator's.
 */
ErrorData  *
ssw_watch_probe(SswWatch *w, TimestampTz now)
{
	ResourceOwner owner = CurrentResourceOwner;
	MemoryContext cxt = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		int			level = begin_patience();

		probe(w, now);
		AtEOXact_GUC(false, level);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		disable_timeout(STATEMENT_TIMEOUT, false);
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
	return error;
}
