/*
 * session.c
 *		The registry's sessions: the policy that sweeps them, and how they end.
 *
 * Runs in sessions that release, acquire, claim or drop a pool.  Each end goes through the
 * row action of policy sweeper.session, as in a pass (end_rows.c).  That takes only active
 * rows, so that a session ends once.
 *
 * Shares nothing.  Keeps the policy and its SQL for the life of the process; reads it
 * again when policies or the table have changed.
 * A crash, or the caller's rollback, undoes an end with all its evidence.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "policy/deadline.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "grace/service_log.h"
#include "heartbeat/policy_xact.h"
#include "heartbeat/refusal.h"
#include "policy/policy_rights.h"
#include "policy/sweep_sql.h"
#include "registry/session.h"
#include "sweep/alive_by_heartbeat.h"

PG_FUNCTION_INFO_V1(ssw_release);
PG_FUNCTION_INFO_V1(ssw_dead_sessions);
PG_FUNCTION_INFO_V1(ssw_claim_session);

/* An index entry must hold it, with the pool's name. */
#define MAX_OWNER	1024
#define LOCK_TIMEOUT_MS	500		/* until the policy is known */

/* The policy's own sets status "expired"; a session that is released lived until now ($5). */
#define RELEASED_SET \
	"status = 'released', released_at = $5, ended_at = GREATEST(t.acquired_at, LEAST(t.ends_at, $5))\n"

/* The policy as it was read, when so many changes of policies had committed. */
static SswPolicy *kept = NULL;
static MemoryContext kept_cxt = NULL;
static uint64 kept_generation;
static bool kept_stale = false;

/* The owner in an argument that is not null; callers know it by that name. */
char	   *
ssw_session_owner(FunctionCallInfo fcinfo, int arg, const char *name)
{
	char	   *owner = text_to_cstring(PG_GETARG_TEXT_PP(arg));

	if (owner[0] == '\0' || strlen(owner) > MAX_OWNER)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty or longer than %d bytes", name, MAX_OWNER)));
	return owner;
}

static void
on_relcache(Datum arg, Oid relid)
{
	kept_stale = kept_stale || kept == NULL || !OidIsValid(relid) || relid == kept->relid;
}

/* Read the policy and build its SQL, to be kept. */
static void
keep(void)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "policy of sessions", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SswPolicy  *p;
	Relation	rel;
	static bool registered = false;

	if (!registered)
		CacheRegisterRelcacheCallback(on_relcache, (Datum) 0);
	registered = true;
	/* an error below leaves none, and the next call reads again */
	kept = NULL;
	kept_stale = false;
	kept_generation = ssw_shmem_policy_generation();
	p = ssw_policy_find(SSW_SESSION_POLICY, false);
	rel = table_open(p->relid, RowExclusiveLock);
	ssw_deadline_build(p, rel);
	table_close(rel, NoLock);
	MemoryContextSwitchTo(old);
	MemoryContextSetParent(cxt, TopMemoryContext);
	if (kept_cxt)
		MemoryContextDelete(kept_cxt);
	kept = p;
	kept_cxt = cxt;
	/* what this transaction has changed may be undone */
	if (ssw_policy_xact_any())
		kept_stale = true;
}

/*
 * Until the end of the current nest level of settings, wait for a lock as long as the
 * session's lock_timeout says, or, if that is 0, the policy's; null: it is not known yet.
 */
static void
limit_wait(const SswPolicy *p)
{
	if (LockTimeout == 0)
		ssw_identity_lock_timeout(p ? p->lock_timeout_ms : LOCK_TIMEOUT_MS);
}

/* The policy as it is now, locked against changes until the transaction ends. */
static void
lock_policy(void)
{
	(void) ssw_lock_extension(true);
	if (kept == NULL || kept_stale || ssw_policy_xact_any())
		keep();
	(void) ssw_rights_lock(kept, RowShareLock, 0);
	LockRelationOid(kept->relid, RowExclusiveLock);
	if (kept_stale || kept_generation != ssw_shmem_policy_generation())
		keep();
}

/*
 * The policy of the sessions, locked against changes until the transaction ends,
 * if they may be ended now.  It lives until the next call.
 */
static SswPolicy *
session_policy(void)
{
	int			level;
	char	   *trouble;

	/* heartbeats keep sessions alive */
	ssw_shmem_require();
	level = NewGUCNestLevel();
	limit_wait(kept);
	lock_policy();
	trouble = ssw_policy_unusable(kept);
	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot end sessions: %s", trouble),
				 errhint("If this is intended: SELECT sweeper.resume('%s');", SSW_SESSION_POLICY)));
	AtEOXact_GUC(false, level);
	return kept;
}

static void
pool_is_held(const char *pool, int patience_ms)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not lock pool \"%s\" within %d ms", pool, patience_ms),
			 errdetail("A transaction that acquired in the pool, or changed it, has not ended."),
			 errhint("Try again; transactions that acquire should end at once. To find them: %s", ssw_lock_pool_query(pool))));
}

/* Hold a pool until the transaction ends. */
void
ssw_session_lock_pool(const char *pool, LOCKMODE mode)
{
	int			patience_ms;
	int			level;

	if (ssw_lock_pool(pool, mode, false))
		return;
	patience_ms = LockTimeout ? LockTimeout : session_policy()->lock_timeout_ms;
	level = NewGUCNestLevel();
	ssw_identity_lock_timeout(patience_ms);
	PG_TRY();
	{
		(void) ssw_lock_pool(pool, mode, true);
	}
	PG_CATCH();
	{
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			PG_RE_THROW();
		FlushErrorState();
		pool_is_held(pool, patience_ms);
	}
	PG_END_TRY();
	AtEOXact_GUC(false, level);
}

/* Find the sessions that match the condition over t, lock and end them. */
static int64
end_by(const SswPolicy *p, const SswEnd *e, const char *matches, int nargs, Oid *types, Datum *values)
{
	SswFound   *found = ssw_end_begin();
	SswIdentity save;

	ssw_identity_become_owner(p->owner, p->search_path, &save);
	limit_wait(p);
	ssw_spi_begin();
	ssw_end_find(found, p, e, matches, nargs, types, values);
	ssw_spi_end();
	ssw_identity_restore(&save);
	return ssw_end_found(found, p, e);
}

/* End the active sessions that match the condition over t; returns how many. */
int64
ssw_session_end(const SswEnd *e, const char *matches, int nargs, Oid *types, Datum *values)
{
	SswPolicy	p = *session_policy();

	if (strcmp(e->type, SSW_RELEASED) == 0)
		p.set_clause = RELEASED_SET;
	return end_by(&p, e, matches, nargs, types, values);
}

/*
 * End the sessions of a pool, and of an owner unless that is null, that are dead
 * by the policy's deadlines and have had their grace; returns how many.  Before
 * service has begun nobody knows what grace there is, and none is dead.
 */
int64
ssw_session_end_dead(Datum pool, Datum owner, bool skip_locked)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz cutoffs[2];
	SswPolicy	p = *session_policy();
	int64		ended = 0;

	if (!ssw_shmem_available() || ssw_service_began() == 0)
		return 0;
	ssw_grace_cutoffs(&p, now, cutoffs);
	ssw_grace_rows(&p);
	for (int i = 0; i < p.ndeadlines; i++)
	{
		SswEnd		e = {
			.type = p.deadlines[i].activity ? SSW_ZOMBIE : SSW_EXPIRED,.reason = "found by acquire",
			.phase = SSW_PHASE_DEADLINE + i,.cutoff = cutoffs[i],.skip_locked = skip_locked
		};
		Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, TEXTOID};
		Datum		values[4];

		values[0] = values[1] = TimestampTzGetDatum(cutoffs[i]);
		values[2] = pool;
		values[3] = owner;
		if (!TIMESTAMP_IS_NOBEGIN(cutoffs[i]))
			ended += end_by(&p, &e, psprintf("t.pool " SSW_OP("=") " $3%s AND %s",
											 owner ? " AND t.owner " SSW_OP("=") " $4" : "", ssw_sweep_sql_dead(&p, e.phase)),
							owner ? 4 : 3, types, values);
	}
	return ended;
}

/* Add the sessions that a deadline says are dead, and memory does not hold. */
static void
add_dead(SswPolicy *p, int which, TimestampTz cutoff, ReturnSetInfo *rsinfo)
{
	SswPhase	phase = SSW_PHASE_DEADLINE + which;
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[] = {TimestampTzGetDatum(cutoff), TimestampTzGetDatum(cutoff)};
	uint64		n;

	n = ssw_spi_exec(psprintf("SELECT t.pool, t.fence, t.session, t.expires_at FROM sweeper.session AS t WHERE %s",
							  ssw_sweep_sql_dead(p, phase)), 2, types, values, NULL, true, 0);
	for (uint64 i = 0; i < n; i++)
	{
		HeapTuple	tup = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		Datum		v[2];
		bool		nulls[2];
		bool		isnull;
		Datum		due = SPI_getbinval(tup, desc, 4, &isnull);

		if (which == 0 && ssw_alive_holds(p, InvalidOid, SPI_getvalue(tup, desc, 3), DatumGetTimestampTz(due), cutoff))
			continue;
		for (int col = 0; col < 2; col++)
			v[col] = SPI_getbinval(tup, desc, col + 1, &nulls[col]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, nulls);
	}
}

/* _dead_sessions() → those whose seats acquire() takes: their pools and fences, which are no secrets. */
Datum
ssw_dead_sessions(PG_FUNCTION_ARGS)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz cutoffs[2];
	SswPolicy  *p;
	Relation	rel;
	SswIdentity save;

	InitMaterializedSRF(fcinfo, 0);
	if (RecoveryInProgress() || !ssw_shmem_available() || ssw_service_began() == 0)
		return (Datum) 0;
	p = ssw_policy_find(SSW_SESSION_POLICY, false);
	if (ssw_policy_unusable(p))
		return (Datum) 0;
	rel = table_open(p->relid, AccessShareLock);
	ssw_deadline_build(p, rel);
	table_close(rel, NoLock);
	ssw_grace_cutoffs(p, now, cutoffs);
	ssw_grace_rows(p);
	ssw_spi_begin_as_extension(&save);
	for (int i = 0; i < p->ndeadlines; i++)
		if (!TIMESTAMP_IS_NOBEGIN(cutoffs[i]))
			add_dead(p, i, cutoffs[i], (ReturnSetInfo *) fcinfo->resultinfo);
	ssw_spi_end_as(&save);
	return (Datum) 0;
}

/* release(session) → did this call end it? */
Datum
ssw_release(PG_FUNCTION_ARGS)
{
	SswEnd		e = {.type = SSW_RELEASED,.phase = SSW_PHASE_MANUAL,.cutoff = GetCurrentTimestamp()};
	Oid			type = UUIDOID;
	Datum		value;

	ssw_argument_not_null(fcinfo, 0, "session");
	ssw_shmem_require();
	ssw_spi_refuse_read_only("sweeper.release()");
	value = PG_GETARG_DATUM(0);
	if (ssw_session_end(&e, "t.session " SSW_OP("=") " $1", 1, &type, &value) > 0)
		PG_RETURN_BOOL(true);
	ssw_refusal_check_registry();
	PG_RETURN_BOOL(false);
}

/* What is known of a session before it is claimed; in SPI. */
typedef struct Claim
{
	char	   *pool;			/* null: the session is gone */
	char	   *owner;			/* null: it has none */
	bool		full;			/* the new owner has as many as its pool
								 * allows */
} Claim;

static Claim
look(Datum session, Datum owner)
{
	static const char *const sql =
	"SELECT s.pool, s.owner, p.max_per_owner <= CASE WHEN p.max_per_owner IS NOT NULL THEN"
	" (SELECT count(*) FROM sweeper.session AS o WHERE o.pool = s.pool AND o.status = 'active' AND o.owner = $2) END"
	" FROM sweeper.session AS s LEFT JOIN sweeper.pool AS p USING (pool) WHERE s.session = $1 AND s.status = 'active'";
	Oid			types[] = {UUIDOID, TEXTOID};
	Datum		values[] = {session, owner};
	Claim		c = {0};

	if (ssw_plan_execute_fresh(sql, 2, types, values) == 0)
		return c;
	c.pool = ssw_spi_text(0, 1);
	c.owner = ssw_spi_text(0, 2);
	c.full = DatumGetBool(ssw_spi_column(0, 3));
	return c;
}

/*
 * Give the session to the owner if it has none; returns who has it, null when it is gone.
 * Under the pool's lock, as an acquire.
 */
static char *
claim(Datum session, char *owner)
{
	static const char *const give =
	"UPDATE sweeper.session SET owner = $2 WHERE session = $1 AND status = 'active' AND owner IS NULL";
	Oid			types[] = {UUIDOID, TEXTOID};
	Datum		values[] = {session, CStringGetTextDatum(owner)};
	Claim		c = look(session, values[1]);

	if (c.pool == NULL || c.owner)
		return c.owner;
	ssw_session_lock_pool(c.pool, ShareUpdateExclusiveLock);
	c = look(session, values[1]);
	if (c.pool && !c.owner && c.full && ssw_session_end_dead(CStringGetTextDatum(c.pool), values[1], false) > 0)
		c = look(session, values[1]);
	if (c.pool == NULL || c.owner)
		return c.owner;
	if (c.full)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("owner \"%s\" already has the maximum number of sessions in pool \"%s\"", owner, c.pool),
				 errhint("Release one of them first.")));
	if (ssw_plan_execute(give, 2, types, values, NULL, false) == 1)
		return owner;
	c = look(session, values[1]);
	if (c.pool && !c.owner)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access: the session is younger than the transaction")));
	return c.owner;
}

/* claim_session(session, owner) → its owner now, null when it is gone. */
Datum
ssw_claim_session(PG_FUNCTION_ARGS)
{
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;
	char	   *owner;

	ssw_argument_not_null(fcinfo, 0, "session");
	ssw_argument_not_null(fcinfo, 1, "owner");
	owner = ssw_session_owner(fcinfo, 1, "owner");
	ssw_shmem_require();
	ssw_spi_refuse_read_only("sweeper.claim_session()");
	ssw_identity_become_extension(&save);
	limit_wait(session_policy());
	ssw_spi_begin();
	owner = claim(PG_GETARG_DATUM(0), owner);
	owner = owner ? MemoryContextStrdup(cxt, owner) : NULL;
	ssw_spi_end_as(&save);
	if (owner == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(owner));
}
