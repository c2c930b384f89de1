/*
 * batch.c
 *		The frame of one batch: its locks, limits, size and counts.
 *
 * Runs in a worker.  A batch is one transaction; it locks the extension and the
 * policy, and run_batches.c and alive_by_function.c do the work inside.  What the owner's code
 * leaves in the session is gone with it.
 *
 * Shares: adds its counts to the pass and to the policy's counters, under
 * SswShared->lock, after the commit.  A crash rolls the transaction back: row,
 * event and notification together.
 *
 * Lock order: extension object, policy, relation, rows.
 */
#include "postgres.h"

#include "access/tupdesc.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/error_class.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "policy/sweep_sql.h"
#include "sweep/batch.h"
#include "sweep/drain.h"
#include "sweep/pace.h"
#include "sweep/row_in_hand.h"
#include "sweep/throttle.h"

/* Bounds of the adaptive batch size; a batch aims at TARGET_US. */
#define FIRST_ROWS		500
#define MAX_ROWS		20000
#define TARGET_US		SSW_BATCH_TARGET_US

/*
 * A batch that takes so long, or four times what the policy's usually take, is
 * cancelled, and its rows are tried in smaller ones.
 */
#define PATIENCE_US		(2 * USECS_PER_SEC)
#define PATIENCE_TIMES	4

/* The pass ends.  What matters more wins: later ends of SswPassEnd. */
void
ssw_batch_end_pass(SswPass *pass, SswPassEnd end, int sqlerrcode, const char *message)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	if (end > pass->end)
	{
		pass->end = end;
		pass->sqlerrcode = sqlerrcode;
		ssw_shmem_text(pass->message, message ? message : "", SSW_MESSAGE_LEN);
	}
	LWLockRelease(SswShared->lock);
}

/*
 * Somebody changes the policy or the extension, and may take as long as a user
 * thinks, or transactions are read-only by default now: the pass ends, so that it is
 * not tried again at once.  Always false.
 */
static bool
stop_pass(SswWork *w)
{
	ssw_batch_end_pass(w->pass, SSW_END_STOPPED, 0, NULL);
	return false;
}

/*
 * Should this worker leave its pass before the next batch?  Not because another
 * has found the end: what was handed out before is handled first.
 */
bool
ssw_batch_must_stop(SswWork *w)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		stop;

	if (w->failed || MySswProc->terminating || !ssw_enabled)
		return true;

	/*
	 * the clock was set back: what was dead by the old one may have its grace
	 * by the new
	 */
	if (now < w->pass->now)
		return !stop_pass(w);
	LWLockAcquire(SswShared->lock, LW_SHARED);
	stop = MySswProc->stop || ssw_shmem_is_closed() || w->pass->end > SSW_END_SPENT || w->pass->yield ||
		ssw_shmem_pass_is_stale(w->pass);
	LWLockRelease(SswShared->lock);
	return stop || now > w->pass->soft_deadline;
}

/* The longest that a batch may take. */
static int64
hard_limit(const SswPolicy *p)
{
	return Min(p->hard_limit_us, ssw_max_hard_time_limit * INT64CONST(1000));
}

/* How long the present limit is. */
static int64 limit_us = 0;

/* From now on it is cancelled after so long. */
void
ssw_batch_set_limit(int64 us)
{
	TimestampTz until = GetCurrentTimestamp() + us;

	if (MySswProc->interrupted)
		return;
	limit_us = us;
	MySswProc->batch_deadline = until;
	enable_timeout_at(STATEMENT_TIMEOUT, until);
}

/* The rows of a batch, or one of them, begin: they may take as long as such rows usually do. */
void
ssw_batch_hurry(SswWork *w)
{
	int64		hard = hard_limit(w->policy);
	SswPace		pace = ssw_pace_get(w->policy->id);
	int64		us = Max(PATIENCE_US, pace.patience_us);

	ssw_batch_set_limit(w->unhurried ? hard : Min(us, hard));
}

/* An error ended the rows: was it a cancel, and whose? */
static void
note_cancel(SswWork *w, const ErrorData *e)
{
	bool		cancelled = e->sqlerrcode == ERRCODE_QUERY_CANCELED;

	w->interrupted = cancelled && MySswProc->interrupted;
	w->slow_us = cancelled && !w->interrupted && MySswProc->batch_deadline != 0 &&
		GetCurrentTimestamp() >= MySswProc->batch_deadline ? limit_us : 0;
}

/* What a row that was cancelled because it was slow fails with: it is set aside until it has had all its time. */
const char *
ssw_batch_slow_class(SswWork *w)
{
	return w->slow_us < hard_limit(w->policy) ? SSW_FAIL_SET_ASIDE : "slow";
}

/* A batch, or the answer for one row, took so long: others may, too. */
void
ssw_batch_took(SswWork *w, int64 us)
{
	SswPace		pace = ssw_pace_get(w->policy->id);

	if (pace.patience_us <= PATIENCE_TIMES * us)
		return;
	pace.patience_us = PATIENCE_TIMES * us;
	ssw_pace_set(w->policy->id, &pace);
}

/*
 * All rows were slow: nobody is at fault, and all get their time from the next pass on.
 * False: they had it.
 */
bool
ssw_batch_more_patience(SswWork *w)
{
	int64		hard = hard_limit(w->policy);
	SswPace		pace;

	if (w->slow_us == 0 || w->slow_us >= hard)
		return false;
	pace = ssw_pace_get(w->policy->id);
	pace.patience_us = hard;
	ssw_pace_set(w->policy->id, &pace);
	ssw_batch_end_pass(w->pass, SSW_END_LIMIT, 0, NULL);
	ssw_failed_row_discard(w->failures);
	return true;
}

/* From now on code of users and waits for locks have an end. */
void
ssw_batch_arm(SswWork *w)
{
	/* a cancel that came too late was not meant for it */
	disable_timeout(STATEMENT_TIMEOUT, false);
	QueryCancelPending = false;
	MySswProc->interrupted = false;
	ssw_batch_set_limit(hard_limit(w->policy));
	ssw_in_hand_set(w->policy->id, InvalidOid, 0);
	SetConfigOption("lock_timeout", psprintf("%d", w->policy->lock_timeout_ms),
					PGC_SUSET, PGC_S_OVERRIDE);
}

/* The batch is over, or failed. */
void
ssw_batch_disarm(void)
{
	ssw_in_hand_clear();
	MySswProc->batch_deadline = 0;
	disable_timeout(STATEMENT_TIMEOUT, false);
}

/* What the texts of a policy mean depends on this of its relation. */
struct SswShape
{
	Oid			owner;
	Oid			schema;
	NameData	name;
	TupleDesc	columns;
};

/* Remember the relation as it is.  It is locked, and its policy is loaded next. */
void
ssw_batch_note_shape(SswWork *w, Relation rel)
{
	w->shape = palloc(sizeof(SswShape));
	w->shape->owner = rel->rd_rel->relowner;
	w->shape->schema = RelationGetNamespace(rel);
	w->shape->name = rel->rd_rel->relname;
	w->shape->columns = CreateTupleDescCopyConstr(RelationGetDescr(rel));
}

/*
 * Is the relation, which is locked, as it was in what matters?  Others analyse it
 * or create indexes all the time, and so may code of the owner's in the batch.
 */
static bool
has_shape(SswWork *w)
{
	Relation	rel = RelationIdGetRelation(w->policy->relid);
	const SswShape *s = w->shape;
	bool		same;

	if (!RelationIsValid(rel))
		return false;
	same = rel->rd_rel->relowner == s->owner && RelationGetNamespace(rel) == s->schema &&
		strcmp(RelationGetRelationName(rel), NameStr(s->name)) == 0 && equalTupleDescs(RelationGetDescr(rel), s->columns);
	RelationClose(rel);
	return same;
}

/*
 * Start the transaction of a batch and take its locks.  False when it cannot write, or
 * the extension or the policy's present version is gone; the transaction is open in either
 * case.
 */
bool
ssw_batch_begin(SswWork *w)
{
	Oid			extoid;

	w->prolonged = w->held = 0;
	w->file = InvalidOid;
	w->step = SSW_STEP_BEGIN;
	ssw_spi_start_transaction();
	pgstat_report_activity(STATE_RUNNING, w->policy->name);
	ssw_batch_arm(w);
	extoid = get_extension_oid(SSW_EXTENSION, true);
	if (XactReadOnly || !OidIsValid(extoid))
		return stop_pass(w);
	(void) ssw_lock_extension(true);
	if (get_extension_oid(SSW_EXTENSION, true) != extoid || ssw_identity_other_version())
		return stop_pass(w);
	if (!ssw_lock_policy_batch_conditional(w->policy->id))
		return stop_pass(w);
	LockRelationOid(w->policy->relid, AccessShareLock);
	if (!has_shape(w))
		return stop_pass(w);
	return !ssw_batch_must_stop(w);
}

/*
 * A transaction that reads rows of a leaf as the relation's owner, in SPI, and acts on
 * none.  What is allocated there goes to batch_cxt.  Returns the leaf's file.
 */
Oid
ssw_batch_begin_read(SswWork *w, Oid leaf, SswIdentity *save)
{
	Oid			file;

	ssw_spi_start_transaction();
	ssw_batch_arm(w);
	MemoryContextSwitchTo(w->batch_cxt);
	file = ssw_action_lock_leaf(w->policy, leaf, AccessShareLock);
	ssw_spi_begin_as_owner(w->policy->owner, w->policy->search_path, save);
	return file;
}

void
ssw_batch_end_read(SswWork *w, const SswIdentity *save)
{
	ssw_spi_end_as(save);
	ssw_batch_disarm();
	ssw_spi_commit();
	MemoryContextSwitchTo(w->batch_cxt);
}

/*
 * Where rows fall due all the time there are several passes a second: those of a
 * minute share a row.  0: the last one is too old, was asked for, or failed.
 */
static int64
reopen_pass(SswWork *w)
{
	Oid			types[] = {INT8OID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	int64		id = w->pass->previous;
	Datum		values[] = {Int64GetDatum(id), Int32GetDatum(w->policy->id), TimestampTzGetDatum(w->pass->started_at), TimestampTzGetDatum(w->pass->now)};

	if (id == 0 || w->pass->forced)
		return 0;
	return ssw_plan_execute("UPDATE sweeper.pass SET status = 'running', finished_at = NULL, passes = passes + 1, cutoff = $4"
							" WHERE pass = $1 AND policy_id = $2 AND status = 'done' AND NOT forced AND sqlstate IS NULL"
							" AND $3 >= started_at AND $3 < started_at + interval '1 minute'",
							4, types, values, NULL, false) > 0 ? id : 0;
}

static int64
insert_pass(SswWork *w)
{
	Oid			types[] = {INT8OID, INT4OID, TEXTOID, TIMESTAMPTZOID, BOOLOID, TIMESTAMPTZOID};
	int64		id = nextval_internal(get_relname_relid("pass_seq", get_namespace_oid(SSW_SCHEMA, false)), false);
	Datum		values[] = {Int64GetDatum(id), Int32GetDatum(w->policy->id), CStringGetTextDatum(w->policy->name),
	TimestampTzGetDatum(w->pass->started_at), BoolGetDatum(w->pass->forced), TimestampTzGetDatum(w->pass->now)};

	ssw_spi_exec("INSERT INTO sweeper.pass (pass, policy_id, policy, started_at, status, forced, cutoff)"
				 " VALUES ($1, $2, $3, $4, 'running', $5, $6)", 6, types, values, NULL, false, 0);
	return id;
}

/* Write the row of the pass, before its first batch, in a transaction of its own. */
void
ssw_batch_open_pass(SswWork *w)
{
	SswIdentity save;
	int64		id = 0;

	if (ssw_batch_begin(w))
	{
		ssw_spi_begin_as_extension(&save);
		id = reopen_pass(w);
		if (id == 0)
			id = insert_pass(w);
		ssw_spi_end_as(&save);
	}
	ssw_batch_disarm();
	ssw_spi_commit();
	w->pass->pass_id = id;
}

/* How many rows the next batch takes. */
int
ssw_batch_rows(SswWork *w)
{
	int			most = w->policy->batch_size;
	int			rows = ssw_pace_get(w->policy->id).batch_rows;

	if (rows == 0)
		return most > 0 ? most : FIRST_ROWS;
	return most > 0 ? Min(rows, most) : rows;
}

/* Batches have so many rows from now on, and more again while that goes well. */
void
ssw_batch_set_rows(SswWork *w, int rows)
{
	SswPace		pace = ssw_pace_get(w->policy->id);

	pace.batch_rows = rows;
	ssw_pace_set(w->policy->id, &pace);
}

/*
 * A batch of n candidates went well: the size grows at most twofold, or shrinks at once to
 * what fits.  Parts of a batch that failed say nothing, unless they are too slow.
 */
static void
adapt(SswWork *w, int64 elapsed_us, int64 wal, int n)
{
	int			rows = ssw_batch_rows(w);
	double		fit = w->policy->batch_size;
	double		most = n * ssw_throttle_batch_bytes() / Max(1, wal);

	if (elapsed_us <= 0 || (n < rows && elapsed_us <= TARGET_US))
		return;
	if (fit == 0)
		fit = Min(MAX_ROWS, Min((double) n * TARGET_US / elapsed_us, most));
	ssw_batch_set_rows(w, Max(1, Min(fit, rows * 2.0)));
}

/* Add what n candidates came to, after the commit. */
static void
count(SswWork *w, SswSink *sink, int64 elapsed_us, int64 wal, int n, uint64 rows, int missing)
{
	TimestampTz now = GetCurrentTimestamp();
	SswPass    *pass = w->pass;
	SswPolicyShared *s;
	bool		newer = pass->backlog_before != 0 && !w->policy->heartbeats && w->target.cutoff > pass->backlog_before;
	bool		repair = w->target.refresh && !ssw_sweep_sql_asks(w->policy, w->target.phase);
	uint64		repaired = repair ? rows : 0;
	uint64		refreshed = w->prolonged + (w->target.refresh && !repair ? rows : 0);
	uint64		expired = w->target.refresh ? 0 : rows;
	int64		max_lag = 0;
	double		lag_sum = 0;
	int64		hist[SSW_LAG_BUCKETS] = {0};
	SswDrain	handled;

	if (!w->target.refresh)
		ssw_cleanup_event_lags(sink, now, &max_lag, &lag_sum, hist);
	handled = (SswDrain)
	{
		.expired = expired,.refreshed = refreshed,.repaired = repaired,.skipped = missing,.batches = 1,.max_lag_us = max_lag
	};
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	pass->batches++;
	pass->repaired += repaired;
	pass->refreshed += refreshed;
	pass->expired += expired;
	pass->skipped += missing;
	pass->failed += w->nfailed;
	handled.failed = w->nfailed;
	w->nfailed = 0;
	s = ssw_shmem_policy(MyDatabaseId, w->policy->id, true);
	pass->max_lag_us = Max(pass->max_lag_us, max_lag);

	/*
	 * rows go in order, so no other has waited for longer; but newer ones go
	 * before a backlog
	 */
	if (max_lag > 0 && !newer)
		pass->oldest_due = now - max_lag;
	if (s)
	{
		if (max_lag > 0 && !newer)
			s->oldest_due = pass->oldest_due;
		if (rows + w->prolonged > 0)
			s->went_at = now;
		ssw_drain_handled(s, &handled);
		s->batches++;
		s->repaired += repaired;
		s->refreshed += refreshed;
		s->expired += expired;
		s->max_lag_us = Max(s->max_lag_us, max_lag);
		s->lag_sum += lag_sum;
		s->busy_seconds += elapsed_us / 1e6;
		for (int i = 0; i < SSW_LAG_BUCKETS; i++)
			s->lag_hist[i] += hist[i];
	}
	LWLockRelease(SswShared->lock);
	adapt(w, elapsed_us, wal, n);
	if (rows > 0 && !OidIsValid(w->policy->is_alive))
		ssw_batch_took(w, elapsed_us);
	MySswProc->rows += rows;
	w->succeeded += rows + w->prolonged;
	if (w->singly && rows > 0)
		ssw_in_hand_went_well(w->policy->id);
	w->left += w->held;
	if (rows + w->prolonged > 0)
		w->streak = 0;
}

/*
 * Commit the batch that began at start, with n candidates: rows went, missing were
 * left alone.  No sink: it did nothing.
 */
void
ssw_batch_end(SswWork *w, SswSink *sink, TimestampTz start, int n, uint64 rows, int missing)
{
	int64		wal;

	ssw_batch_disarm();
	ssw_spi_commit();
	MemoryContextSwitchTo(w->batch_cxt);
	wal = ssw_throttle_spend(w->pass->forced);
	if (sink)
		count(w, sink, GetCurrentTimestamp() - start, wal, n, rows, missing);
}

/* Roll back after an error, and keep it in w->error. */
void
ssw_batch_save_error(SswWork *w)
{
	MemoryContextSwitchTo(w->batch_cxt);
	w->error = ssw_error_catch();
	note_cancel(w, w->error);
	ssw_batch_disarm();
	ssw_spi_abort();
	MemoryContextSwitchTo(w->batch_cxt);
}

/*
 * Blame the policy: the pass ends, the coordinator backs off.  Not when somebody
 * holds a table that the pass needs, or a partition has left: then it is tried again
 * at the next look.
 */
void
ssw_batch_fail(SswWork *w, const ErrorData *e)
{
	/*
	 * before the known failures are loaded, no code of the owner's has met a
	 * row
	 */
	const char *text = w->failures ? ssw_failed_row_text(w->policy, e) : e->message;

	w->failed = true;
	ssw_batch_end_pass(w->pass, e->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ? SSW_END_LOCKED :
					   ssw_error_is_ours(e, ERRCODE_SSW_LEFT) ? SSW_END_STOPPED : SSW_END_FAILED, e->sqlerrcode, text);
	if (w->failures)
		ssw_failed_row_discard(w->failures);
}
