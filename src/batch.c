/*
 * batch.c
 *		One batch: one transaction, or as many as a bad row makes necessary.
 *
 * Runs in a worker.  A batch locks the extension, the policy and the leaf,
 * becomes the owner, acts, comes back, writes events, commits.  A batch that
 * fails is run again as two halves, down to groups small enough for one
 * subtransaction a row, so one bad row costs its neighbours nothing.
 *
 * Shares: adds its counts to the pass and to the policy's counters, under
 * SswShared->lock, after the commit.  A crash rolls the transaction back: row,
 * event and notification together.
 *
 * Lock order: extension object, policy, relation, rows.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "batch.h"
#include "guc.h"
#include "holders.h"
#include "identity.h"
#include "lock.h"
#include "sql.h"
#include "stmt.h"

/* Rows that must fail alike, with none succeeding, to blame the policy. */
#define SAME_FAILURES	10

/* Bounds of the adaptive batch size; a batch aims at TARGET_US. */
#define MIN_ROWS		10
#define FIRST_ROWS		500
#define MAX_ROWS		20000
#define TARGET_US		(200 * 1000)

/*
 * Should this worker leave its pass before the next batch?  Not because another
 * has found the end: what was handed out before is handled first.
 */
bool
ssw_batch_must_stop(SswWork *w)
{
	bool		stop;
	SswDatabase *d;

	if (w->failed || MySswProc->terminating || !ssw_enabled)
		return true;
	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MyDatabaseId, false);
	stop = MySswProc->stop || (w->pass->end != SSW_END_NONE && w->pass->end != SSW_END_DONE) || w->pass->yield ||
		d == NULL || d->closed > 0 ||
		d->policy_generation != w->pass->policy_generation;
	LWLockRelease(SswShared->lock);
	return stop || GetCurrentTimestamp() > w->pass->soft_deadline;
}

static void
arm_hard_limit(SswWork *w)
{
	int64		left = w->pass->started_at + w->policy->hard_limit_us - GetCurrentTimestamp();
	int			ms = Max(1000, left / 1000);

	enable_timeout_after(STATEMENT_TIMEOUT, ms);
	MySswProc->batch_deadline = GetCurrentTimestamp() + ms * INT64CONST(1000);
}

/* The batch is over, or failed. */
void
ssw_batch_disarm(void)
{
	MySswProc->batch_deadline = 0;
	disable_timeout(STATEMENT_TIMEOUT, false);
}

/*
 * Start the transaction of a batch and take its locks.  False when the
 * extension or the policy's present version is gone; the transaction is open
 * all the same.
 */
bool
ssw_batch_begin(SswWork *w)
{
	Oid			extoid;

	ssw_sql_start_transaction();
	pgstat_report_activity(STATE_RUNNING, w->policy->name);
	arm_hard_limit(w);
	SetConfigOption("lock_timeout", psprintf("%d", w->policy->lock_timeout_ms),
					PGC_SUSET, PGC_S_OVERRIDE);
	extoid = get_extension_oid(SSW_EXTENSION, true);
	if (!OidIsValid(extoid))
		return false;
	LockDatabaseObject(ExtensionRelationId, extoid, 0, AccessShareLock);
	if (get_extension_oid(SSW_EXTENSION, true) != extoid || ssw_identity_other_version())
		return false;
	if (!ssw_lock_policy_batch_conditional(w->policy->id))
		return false;
	return !ssw_batch_must_stop(w);
}

/* Nothing that the owner's code left in the session outlives its batch. */
void
ssw_batch_reset_session(void)
{
	LockReleaseAll(USER_LOCKMETHOD, true);
	ResetSequenceCaches();
}

static void
count_results(SswWork *w, uint64 rows, SswSink *sink, int64 elapsed_us, int n)
{
	TimestampTz now = GetCurrentTimestamp();
	SswPass    *pass = w->pass;
	SswPolicyShared *s;
	int64		max_lag = 0;
	double		lag_sum = 0;
	int64		hist[SSW_LAG_BUCKETS] = {0};

	if (!w->target.refresh)
		ssw_audit_lags(sink, now, &max_lag, &lag_sum, hist);
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	pass->batches++;
	pass->progress_at = now;
	s = ssw_shmem_policy(MyDatabaseId, w->policy->id, true);
	if (w->target.refresh && w->target.phase == SSW_PHASE_NULLS)
		pass->repaired += rows;
	else if (w->target.refresh)
		pass->refreshed += rows;
	else
		pass->expired += rows;
	pass->max_lag_us = Max(pass->max_lag_us, max_lag);
	if (s)
	{
		s->batches++;
		if (w->target.refresh && w->target.phase == SSW_PHASE_NULLS)
			s->repaired += rows;
		else if (w->target.refresh)
			s->refreshed += rows;
		else
			s->expired += rows;
		s->max_lag_us = Max(s->max_lag_us, max_lag);
		s->lag_sum += lag_sum;
		s->busy_seconds += elapsed_us / 1e6;
		for (int i = 0; i < SSW_LAG_BUCKETS; i++)
			s->lag_hist[i] += hist[i];
		if (s->batch_rows <= 0)
			s->batch_rows = FIRST_ROWS;
		if (n >= s->batch_rows && elapsed_us > 0)
		{
			double		fit = (double) n * TARGET_US / elapsed_us;

			/* grow at most fourfold at a time, shrink at once */
			s->batch_rows = Max(MIN_ROWS, Min(MAX_ROWS, Min(fit, s->batch_rows * 4.0)));
		}
	}
	LWLockRelease(SswShared->lock);
	MySswProc->rows += rows;
	w->succeeded += rows;
}

static void
lookup_rows(SswWork *w, const char *sql, Datum tids)
{
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID};
	Datum		values[3];

	values[0] = TimestampTzGetDatum(w->target.cutoff);
	values[1] = TimestampTzGetDatum(w->target.service);
	values[2] = tids;
	ssw_action_execute(sql, 3, types, values, NULL, false);
}

/* Remember the rows of SPI_tuptable (ctid, key, due) as failed. */
static void
record_rows(SswWork *w, const char *class, int sqlerrcode, const char *message)
{
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	tup = SPI_tuptable->vals[i];
		bool		nokey,
					nodue,
					isnull;
		Datum		holders = (Datum) 0;
		Datum		key = SPI_getbinval(tup, SPI_tuptable->tupdesc, 2, &nokey);
		Datum		due = SPI_getbinval(tup, SPI_tuptable->tupdesc, 3, &nodue);

		if (nokey)
			continue;
		if (ssw_failure_classify(sqlerrcode) == SSW_FAIL_LOCKED || sqlerrcode == ERRCODE_SSW_LOCKED)
			holders = ssw_holders_of_row(w->target.leaf,
										 (ItemPointer) DatumGetPointer(SPI_getbinval(tup, SPI_tuptable->tupdesc, 1, &isnull)),
										 CurrentMemoryContext);
		ssw_failures_add(w->failures, TextDatumGetCString(key),
						 nodue ? 0 : DatumGetTimestampTz(due), !nodue,
						 class, sqlerrcode, message, holders);
	}
}

/*
 * Rows that the action neither returned nor failed on, yet are still there and
 * dead: a trigger kept them, or, when locked rows are skipped, somebody holds
 * them.  As the owner, in the batch's transaction.
 */
static int
find_missing(SswWork *w, const ItemPointerData *tids, int n)
{
	SswTarget  *t = &w->target;
	Datum		rows = ssw_action_tid_array(tids, n);
	int			missing;

	lookup_rows(w, ssw_stmt_missing(w->policy, t->leaf, t->phase, false), rows);
	missing = SPI_processed;
	if (missing == 0)
		return 0;
	if (t->skip_locked)
	{
		ItemPointerData *found = palloc(missing * sizeof(ItemPointerData));
		uint64		suppressed;
		bool		isnull;

		for (int i = 0; i < missing; i++)
			found[i] = *(ItemPointer) DatumGetPointer(SPI_getbinval(SPI_tuptable->vals[i],
																	SPI_tuptable->tupdesc, 1, &isnull));
		record_rows(w, "locked", ERRCODE_SSW_LOCKED, "another transaction holds the row");
		lookup_rows(w, ssw_stmt_missing(w->policy, t->leaf, t->phase, true),
					ssw_action_tid_array(found, missing));
		suppressed = SPI_processed;
		if (suppressed == 0)
			return missing;
	}
	record_rows(w, "suppressed", ERRCODE_SSW_SUPPRESSED,
				"the row action did not return the row: a BEFORE trigger returned null");
	return missing;
}

static void
note_missing(SswWork *w, int missing)
{
	if (missing == 0)
		return;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	w->pass->skipped += missing;
	LWLockRelease(SswShared->lock);
}

static void
save_error(SswWork *w)
{
	MemoryContextSwitchTo(w->batch_cxt);
	w->error = CopyErrorData();
	FlushErrorState();
	ssw_batch_disarm();
	ssw_sql_abort();
	ssw_batch_reset_session();
	MemoryContextSwitchTo(w->batch_cxt);
}

/* The middle of a batch: as the owner, with deferred constraints at both ends. */
static uint64
act_as_owner(SswWork *w, const ItemPointerData *tids, int n, SswSink *sink, int *missing)
{
	SswIdentity save;
	uint64		rows;

	ssw_action_lock_leaf(w->policy, w->target.leaf, RowExclusiveLock);
	ssw_identity_become_owner(w->policy->owner, w->policy->search_path, &save);
	ssw_sql_begin();
	ssw_action_constraints_immediate();
	rows = ssw_action_run(&w->target, tids, n, sink);
	*missing = w->target.range == NULL && rows < n ? find_missing(w, tids, n) : 0;
	ssw_action_constraints_immediate();
	ssw_sql_end();
	ssw_identity_restore(&save);
	return rows;
}

/* One transaction for all rows; false leaves its error in w->error. */
static bool
run_together(SswWork *w, const ItemPointerData *tids, int n)
{
	TimestampTz start = GetCurrentTimestamp();
	volatile bool ok = false;
	SswSink    *volatile sink = NULL;

	MemoryContextSwitchTo(w->batch_cxt);
	PG_TRY();
	{
		uint64		rows = 0;
		int			missing = 0;

		if (ssw_batch_begin(w))
		{
			MemoryContextSwitchTo(w->batch_cxt);
			sink = ssw_audit_begin(w->policy, w->pass->pass_id, w->cleanup_type, w->reason, NULL);
			rows = act_as_owner(w, tids, n, sink, &missing);
			ssw_audit_end(sink);
		}
		ssw_batch_disarm();
		ssw_sql_commit();
		ssw_batch_reset_session();
		MemoryContextSwitchTo(w->batch_cxt);
		if (sink)
		{
			count_results(w, rows, sink, GetCurrentTimestamp() - start, n);
			note_missing(w, missing);
		}
		ok = true;
	}
	PG_CATCH();
	{
		save_error(w);
	}
	PG_END_TRY();
	return ok;
}

/* Blame the policy: the pass ends, the coordinator backs off. */
void
ssw_batch_fail(SswWork *w, const ErrorData *e)
{
	w->failed = true;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	w->pass->end = SSW_END_FAILED;
	w->pass->sqlerrcode = e->sqlerrcode;
	strlcpy(w->pass->message, e->message ? e->message : "unknown error", SSW_MESSAGE_LEN);
	LWLockRelease(SswShared->lock);
	if (w->failures)
		ssw_failures_discard(w->failures);
}

static const char *
class_name(int code)
{
	if (code == ERRCODE_SSW_ACTION_LEFT_ROW_DEAD)
		return "action_left_row_dead";
	switch (ssw_failure_classify(code))
	{
		case SSW_FAIL_LOCKED:
			return "locked";
		case SSW_FAIL_TRANSIENT:
			return "transient";
		default:
			return "error";
	}
}

/* Record a row that failed by itself.  In a transaction, as the owner. */
static void
record_failure(SswWork *w, const ItemPointerData *tid, const ErrorData *e)
{
	lookup_rows(w, ssw_stmt_missing(w->policy, w->target.leaf, w->target.phase, false),
				ssw_action_tid_array(tid, 1));
	record_rows(w, class_name(e->sqlerrcode), e->sqlerrcode, e->message ? e->message : "");
}

/* One row in a subtransaction; returns its error, or null. */
static ErrorData *
run_one(SswWork *w, const ItemPointerData *tid, SswSink *sink, uint64 *rows, int *missing)
{
	ResourceOwner owner = CurrentResourceOwner;
	int			mark = ssw_audit_mark(sink);
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(w->batch_cxt);
	PG_TRY();
	{
		uint64		acted = ssw_action_run(&w->target, tid, 1, sink);

		if (acted == 0)
			*missing += find_missing(w, tid, 1);
		ssw_action_constraints_immediate();
		ReleaseCurrentSubTransaction();
		*rows += acted;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(w->batch_cxt);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		ssw_audit_truncate(sink, mark);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(w->batch_cxt);
	CurrentResourceOwner = owner;
	return error;
}

/* Do ten failures alike, and no success, say that the policy is at fault? */
static bool
all_fail(SswWork *w, uint64 rows)
{
	return w->succeeded + rows == 0 && ssw_failures_pending(w->failures) >= SAME_FAILURES &&
		ssw_failures_same_code(w->failures) != 0 &&
		ssw_failure_classify(ssw_failures_same_code(w->failures)) == SSW_FAIL_ROW;
}

/* A few rows in one transaction, each in a subtransaction of its own. */
static void
run_singly(SswWork *w, const ItemPointerData *tids, int n)
{
	TimestampTz start = GetCurrentTimestamp();

	MemoryContextSwitchTo(w->batch_cxt);
	PG_TRY();
	{
		SswSink    *sink = NULL;
		uint64		rows = 0;
		int			missing = 0;
		int			failed = 0;

		if (ssw_batch_begin(w))
		{
			SswIdentity save;
			ErrorData  *blame = NULL;

			MemoryContextSwitchTo(w->batch_cxt);
			sink = ssw_audit_begin(w->policy, w->pass->pass_id, w->cleanup_type, w->reason, NULL);
			ssw_action_lock_leaf(w->policy, w->target.leaf, RowExclusiveLock);
			ssw_identity_become_owner(w->policy->owner, w->policy->search_path, &save);
			ssw_sql_begin();
			MemoryContextSwitchTo(w->batch_cxt);
			ssw_action_constraints_immediate();
			for (int i = 0; i < n && blame == NULL; i++)
			{
				ErrorData  *e = run_one(w, &tids[i], sink, &rows, &missing);

				if (e == NULL)
					continue;
				failed++;
				if (ssw_failure_classify(e->sqlerrcode) == SSW_FAIL_POLICY)
					blame = e;
				else
				{
					record_failure(w, &tids[i], e);
					if (all_fail(w, rows))
						blame = e;
				}
			}
			ssw_action_constraints_immediate();
			ssw_sql_end();
			ssw_identity_restore(&save);
			MemoryContextSwitchTo(w->batch_cxt);
			ssw_audit_end(sink);
			if (blame)
				ssw_batch_fail(w, blame);
		}
		ssw_batch_disarm();
		ssw_sql_commit();
		ssw_batch_reset_session();
		MemoryContextSwitchTo(w->batch_cxt);
		if (sink)
		{
			count_results(w, rows, sink, GetCurrentTimestamp() - start, n);
			note_missing(w, missing);
			LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
			w->pass->failed += failed;
			LWLockRelease(SswShared->lock);
		}
	}
	PG_CATCH();
	{
		save_error(w);
		ssw_batch_fail(w, w->error);
	}
	PG_END_TRY();
}

/* A row that failed in a transaction of its own. */
static void
record_alone(SswWork *w, const ItemPointerData *tid)
{
	ErrorData  *error = w->error;
	SswIdentity save;

	PG_TRY();
	{
		ssw_sql_start_transaction();
		MemoryContextSwitchTo(w->batch_cxt);
		ssw_action_lock_leaf(w->policy, w->target.leaf, AccessShareLock);
		ssw_identity_become_owner(w->policy->owner, w->policy->search_path, &save);
		ssw_sql_begin();
		record_failure(w, tid, error);
		ssw_sql_end();
		ssw_identity_restore(&save);
		ssw_sql_commit();
	}
	PG_CATCH();
	{
		save_error(w);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(w->batch_cxt);
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	w->pass->failed++;
	LWLockRelease(SswShared->lock);
	if (all_fail(w, 0))
		ssw_batch_fail(w, error);
}

/* A batch outlived its limit: the next ones are smaller, down to single rows. */
static void
shrink(SswWork *w, int n)
{
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, w->policy->id, false);
	if (s)
		s->batch_rows = Max(1, n / 4);
	LWLockRelease(SswShared->lock);
}

/* From now on nobody waits for a lock in this pass. */
static void
skip_locked(SswWork *w)
{
	w->target.skip_locked = true;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	w->pass->skip_locked = true;
	LWLockRelease(SswShared->lock);
}

/* What the failure of n rows together means for what follows. */
static SswFailureClass
learn(SswWork *w, int n)
{
	SswFailureClass class = ssw_failure_classify(w->error->sqlerrcode);

	if (class == SSW_FAIL_POLICY)
		ssw_batch_fail(w, w->error);
	if (w->error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		shrink(w, n);
	return class;
}

/*
 * Delete the rows of the target's range, about n.  False when that failed and
 * they must be tried by their tids.
 */
bool
ssw_batch_run_range(SswWork *w, int n)
{
	SswFailureClass class;

	if (ssw_batch_must_stop(w))
		return true;
	MemoryContextReset(w->batch_cxt);
	if (run_together(w, NULL, n))
		return true;
	class = learn(w, n);
	if (class == SSW_FAIL_LOCKED)
		skip_locked(w);
	return class == SSW_FAIL_POLICY;
}

/* Run the rows; halve on failure. */
static void
run_rows(SswWork *w, const ItemPointerData *tids, int n)
{
	SswFailureClass class;

	CHECK_FOR_INTERRUPTS();
	if (n == 0 || ssw_batch_must_stop(w))
		return;
	MemoryContextReset(w->batch_cxt);
	if (run_together(w, tids, n))
		return;
	class = learn(w, n);
	if (class == SSW_FAIL_POLICY)
		return;
	if (class == SSW_FAIL_LOCKED && !w->target.skip_locked)
	{
		skip_locked(w);
		run_rows(w, tids, n);
		return;
	}
	if (n == 1)
	{
		record_alone(w, tids);
		return;
	}
	MemoryContextReset(w->batch_cxt);
	if (n <= SSW_MAX_SUBXACTS)
		run_singly(w, tids, n);
	else
	{
		run_rows(w, tids, n / 2);
		run_rows(w, tids + n / 2, n - n / 2);
	}
}

/* How many rows the next batch takes. */
int
ssw_batch_rows(SswWork *w)
{
	SswPolicyShared *s;
	int			rows = w->policy->batch_size;

	if (rows > 0)
		return Min(rows, SSW_MAX_BATCH);
	LWLockAcquire(SswShared->lock, LW_SHARED);
	s = ssw_shmem_policy(MyDatabaseId, w->policy->id, false);
	rows = s && s->batch_rows > 0 ? s->batch_rows : FIRST_ROWS;
	LWLockRelease(SswShared->lock);
	return rows;
}

/* Handle the rows of one chunk, batch by batch, until done or told to leave. */
void
ssw_batch_run(SswWork *w, const ItemPointerData *tids, int n)
{
	while (n > 0 && !ssw_batch_must_stop(w))
	{
		int			rows = Min(n, ssw_batch_rows(w));

		run_rows(w, tids, rows);
		tids += rows;
		n -= rows;
	}
}
