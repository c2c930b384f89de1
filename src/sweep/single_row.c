/*
 * single_row.c
 *		Rows one by one: which of a batch failed, and which did not go.
 *
 * Runs in a worker.  A batch that failed down to a few rows is run with a
 * subtransaction for each; what fails is remembered and written after the pass
 * (failed_row.c).  Where what ends with the rows fails, a row has a transaction of its
 * own.  A row that takes too long is set aside, and tried after others, with all the
 * time of the hard limit.  After many failures alike and no success, other dead rows are
 * tried as witnesses: when one goes, the rows are at fault, else the policy is.
 *
 * Shares counts of the pass under SswShared->lock.  A crash leaves nothing.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/deferred.h"
#include "base/error_class.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "policy/sweep_sql.h"
#include "sweep/batch.h"
#include "sweep/alive_by_heartbeat.h"
#include "sweep/row_holders.h"
#include "sweep/row_in_hand.h"
#include "sweep/single_row.h"

/* Instead of SSW_DOUBT when rows have gone in this pass, or cannot be witnesses. */
#define DOUBT_LATER		1000

/* Witnesses from the latest deadlines, and from pages at random. */
#define WITNESSES		10
#define WITNESS_PAGES	200

/* Run a statement on rows given by their tids; see SPI_tuptable. */
static void
lookup_rows(SswWork *w, const char *sql, Datum tids)
{
	Oid			types[SSW_ROW_PARAMS];
	Datum		values[SSW_ROW_PARAMS];

	ssw_action_row_params(&w->target, tids, types, values);
	if (tids != (Datum) 0)
		ssw_plan_by_place(sql, SSW_ROW_PARAMS, types);
	ssw_plan_execute(sql, SSW_ROW_PARAMS, types, values, NULL, false);
}

/* Remember the rows of SPI_tuptable (ctid, key, due) as failed; were they known to? */
static bool
record_rows(SswWork *w, const char *class, int sqlerrcode, const char *message)
{
	bool		known = false;

	for (uint64 i = 0; i < SPI_processed; i++)
	{
		HeapTuple	tup = SPI_tuptable->vals[i];
		bool		nokey,
					nodue,
					isnull;
		Datum		holders = (Datum) 0;
		char	   *prepared = NULL;
		Datum		key = SPI_getbinval(tup, SPI_tuptable->tupdesc, 2, &nokey);
		Datum		due = SPI_getbinval(tup, SPI_tuptable->tupdesc, 3, &nodue);

		/* see ssw_stmt_moved() */
		if (nokey || (SPI_tuptable->tupdesc->natts > 3 &&
					  DatumGetInt64(SPI_getbinval(tup, SPI_tuptable->tupdesc, 4, &isnull)) < w->first_cid))
			continue;
		if (ssw_error_classify(sqlerrcode) == SSW_FAIL_LOCKED || sqlerrcode == ERRCODE_SSW_LOCKED)
		{
			TransactionId xid = InvalidTransactionId;

			holders = ssw_holders_of_row(w->target.leaf,
										 (ItemPointer) DatumGetPointer(SPI_getbinval(tup, SPI_tuptable->tupdesc, 1, &isnull)),
										 CurrentMemoryContext, &xid);
			prepared = ssw_holders_prepared_name(xid, CurrentMemoryContext);
		}
		known |= ssw_failures_add(w->failures, w->target.leaf, TextDatumGetCString(key),
								  nodue ? 0 : DatumGetTimestampTz(due), !nodue,
								  class, sqlerrcode,
								  prepared ? psprintf("prepared transaction \"%s\" holds the row", prepared) : message, holders);
	}
	return known;
}

/*
 * Rows that the action neither returned nor failed on, yet are still there and
 * dead: a trigger kept them, or, when locked rows are skipped, somebody holds
 * them.  As the owner, in the batch's transaction.
 */
static int
find_in_place(SswWork *w, const ItemPointerData *tids, int n)
{
	SswTarget  *t = &w->target;
	Datum		rows = ssw_action_tid_array(tids, n);
	int			how = ssw_action_rows(t);
	int			missing;

	lookup_rows(w, ssw_stmt_missing(w->policy, t->leaf, t->phase, how & ~SSW_ROWS_SKIP_LOCKED), rows);
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
		(void) record_rows(w, "locked", ERRCODE_SSW_LOCKED, "another transaction holds the row");
		lookup_rows(w, ssw_stmt_missing(w->policy, t->leaf, t->phase, how),
					ssw_action_tid_array(found, missing));
		suppressed = SPI_processed;
		w->held += missing - suppressed;
		if (suppressed == 0)
			return missing;
	}
	(void) record_rows(w, "suppressed", ERRCODE_SSW_SUPPRESSED,
					   "the row action did not return the row: a BEFORE trigger returned null");
	return missing;
}

/* Could an action on rows have updated others before it came to them? */
static bool
has_before_trigger(Oid leaf)
{
	Relation	rel = table_open(leaf, NoLock);
	bool		has = rel->trigdesc && (rel->trigdesc->trig_delete_before_row || rel->trigdesc->trig_update_before_row);

	table_close(rel, NoLock);
	return has;
}

/*
 * The action took some of the rows.  How many stay dead?  Those in their places are
 * recorded.  Others were updated by a trigger on their neighbours: the
 * next pass finds them where they are now.  Where the action took none, it was their
 * own, unless they had gone before; and where it is so pass after pass, nobody asks.
 */
int
ssw_single_find_missing(SswWork *w, const ItemPointerData *tids, int n, int taken)
{
	SswTarget  *t = &w->target;
	int			missing = find_in_place(w, tids, n);
	int			moved;

	if (taken + missing >= n || !has_before_trigger(t->leaf))
		return missing;
	lookup_rows(w, ssw_stmt_moved(w->policy, t->leaf, t->phase), ssw_action_tid_array(tids, n));
	moved = SPI_processed;
	if (moved > 0)
		w->pass->moved = true;
	if (taken == 0 || w->pass->moves)
		(void) record_rows(w, "suppressed", ERRCODE_SSW_SUPPRESSED,
						   "a BEFORE trigger updated the row, and the row action did not return it");
	return missing + moved;
}

static const char *
class_name(int code)
{
	if (code == ERRCODE_SSW_ACTION_LEFT_ROW_DEAD)
		return "action_left_row_dead";
	switch (ssw_error_classify(code))
	{
		case SSW_FAIL_LOCKED:
			return "locked";
		case SSW_FAIL_TRANSIENT:
			return "transient";
		default:
			return "error";
	}
}

/* Look up a row that failed, to record it.  In a transaction, as the owner. */
static void
lookup_failed(SswWork *w, const ItemPointerData *tid)
{
	lookup_rows(w, ssw_stmt_missing(w->policy, w->target.leaf, w->target.phase,
									ssw_action_rows(&w->target) & ~SSW_ROWS_SKIP_LOCKED),
				ssw_action_tid_array(tid, 1));
}

/* Record a row that failed by itself. */
static void
record_failure(SswWork *w, const ItemPointerData *tid, const ErrorData *e)
{
	lookup_failed(w, tid);
	/* a row that others outlived says nothing of the policy */
	if (w->slow_us > 0 ?
		record_rows(w, ssw_batch_slow_class(w), e->sqlerrcode, psprintf("the row action took longer than %g s", w->slow_us / 1e6)) :
		record_rows(w, class_name(e->sqlerrcode), e->sqlerrcode, ssw_failure_text(w->policy, e)))
		return;
	w->streak = e->sqlerrcode == w->streak_code ? w->streak + 1 : 1;
	w->streak_code = e->sqlerrcode;
}

typedef struct Attempt
{
	SswWork    *work;
	const ItemPointerData *tid;
	SswSink    *sink;
	uint64		rows;
	int			missing;
} Attempt;

static bool
try_row(void *arg)
{
	Attempt    *a = arg;
	SswWork    *w = a->work;
	int64		prolonged = w->prolonged;
	uint64		acted;

	ssw_in_hand_set(w->policy->id, w->target.leaf, ssw_in_hand_place(a->tid), 1);
	w->first_cid = GetCurrentCommandId(false);
	ssw_batch_hurry(w);
	acted = ssw_alive_run(&w->target, a->tid, 1, a->sink);
	if (acted == 0 && w->prolonged == prolonged)
		a->missing += ssw_single_find_missing(w, a->tid, 1, 0);
	ssw_deferred_fire();
	a->rows += acted;
	return true;
}

/* One row in a subtransaction; returns its error, or null. */
static ErrorData *
run_one(Attempt *a)
{
	SswWork    *w = a->work;
	int			mark = ssw_audit_mark(a->sink);
	int64		prolonged = w->prolonged;
	Attempt		before = *a;
	ErrorData  *error;

	MemoryContextSwitchTo(w->batch_cxt);	/* errors outlive the transaction */
	error = ssw_spi_try(try_row, a);
	if (error)
	{
		ssw_batch_note_cancel(w, error);
		ssw_audit_truncate(a->sink, mark);
		w->prolonged = prolonged;
		*a = before;
	}
	ssw_in_hand_set(w->policy->id, w->target.leaf, 0, 0);
	/* what ends the batch is no row's */
	ssw_batch_limit(ssw_batch_hard_limit(w->policy));
	return error;
}

/* Are there so many failures alike that the policy may be at fault? */
static bool
doubtful(SswWork *w)
{
	SswFailureClass class = ssw_error_classify(w->streak_code);
	bool		early = w->succeeded == 0 && !ssw_stmt_asks(w->policy, w->target.phase);

	return class != SSW_FAIL_LOCKED &&
		w->streak >= (early ? SSW_DOUBT : DOUBT_LATER);
}

/*
 * A few rows in one transaction, each in a subtransaction of its own.  Returns
 * how many were tried: not all when they leave *doubt, the error of the last.
 * -1 and w->error: all is rolled back, for what ends with the rows that went (a
 * worker's tasks) failed.
 */
static int
run_singly(SswWork *w, const ItemPointerData *tids, int n, ErrorData **doubt)
{
	TimestampTz start = GetCurrentTimestamp();
	volatile int tried = 0;
	volatile bool went = false;
	volatile bool deadly = false;

	MemoryContextSwitchTo(w->batch_cxt);
	PG_TRY();
	{
		Attempt		a = {.work = w};
		int			failed = 0;

		if (ssw_batch_begin(w))
		{
			SswIdentity save;

			MemoryContextSwitchTo(w->batch_cxt);
			a.sink = ssw_audit_begin(w->policy, w->pass->pass_id, w->cleanup_type, w->reason, NULL);
			ssw_action_lock_leaf(w->policy, w->target.leaf, RowExclusiveLock);
			w->locked_leaf = true;
			ssw_spi_begin_as_owner(w->policy->owner, w->policy->search_path, &save);
			MemoryContextSwitchTo(w->batch_cxt);
			ssw_deferred_fire();
			/* those that went do not wait long for their commit */
			while (tried < n && !(doubt && *doubt) && GetCurrentTimestamp() - start < SSW_BATCH_TARGET_US)
			{
				ErrorData  *e;

				a.tid = &tids[tried];
				if (w->singly && ssw_in_hand_deaths(w->policy->id, w->target.leaf, ssw_in_hand_place(a.tid)) >= SSW_MAX_DEATHS)
				{
					lookup_failed(w, a.tid);
					(void) record_rows(w, SSW_FAIL_DEADLY, ERRCODE_ADMIN_SHUTDOWN, "the workers that acted on the row were ended");
					tried++;
					failed++;
					deadly = true;
					continue;
				}
				e = run_one(&a);
				if (e && w->interrupted)
					break;
				tried++;
				if (e == NULL)
					continue;
				failed++;
				record_failure(w, a.tid, e);
				if (doubt && a.rows == 0 && doubtful(w))
					*doubt = e;
			}
			ssw_deferred_fire();
			ssw_spi_end_as(&save);
			MemoryContextSwitchTo(w->batch_cxt);
			went = a.rows > 0;
			ssw_audit_end(a.sink);
		}
		ssw_batch_end(w, a.sink, start, tried, a.rows, a.missing);
		w->nfailed += failed;
		if (deadly)
			ssw_single_write_deadly(w);
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
		/* each row would wait for our own lock that another session holds */
		if (w->interrupted)
			tried = 0;
		else if (went && ssw_error_classify(w->error->sqlerrcode) != SSW_FAIL_LOCKED)
			tried = -1;
		else
			ssw_batch_fail(w, w->error);
	}
	PG_END_TRY();
	return tried;
}

/* Dead rows other than known failures: the latest, or some from anywhere. */
static int
find_witnesses(SswWork *w, bool latest, ItemPointerData *tids)
{
	SswIdentity save;
	int			n = 0;

	ssw_batch_begin_read(w, w->target.leaf, &save);
	lookup_rows(w, ssw_stmt_witnesses(w->policy, w->target.leaf, w->target.phase,
									  latest ? 0 : WITNESS_PAGES), (Datum) 0);
	for (uint64 i = 0; i < SPI_processed && n < WITNESSES; i++)
	{
		bool		nokey,
					nodue,
					isnull,
					slow;
		HeapTuple	tup = SPI_tuptable->vals[i];
		ItemPointer tid = (ItemPointer) DatumGetPointer(SPI_getbinval(tup, SPI_tuptable->tupdesc, 1, &isnull));
		Datum		key = SPI_getbinval(tup, SPI_tuptable->tupdesc, 2, &nokey);
		Datum		due = SPI_getbinval(tup, SPI_tuptable->tupdesc, 3, &nodue);

		if (nokey || !ssw_failures_excluded(w->failures, w->target.leaf, TextDatumGetCString(key),
											nodue ? 0 : DatumGetTimestampTz(due), !nodue, GetCurrentTimestamp(), &slow))
			tids[n++] = *tid;
	}
	ssw_batch_end_read(w, &save);
	return n;
}

/*
 * Does any other dead row end?  Rows that is_alive has not checked cannot show it.  The
 * oldest alone would not do: a role that may insert rows may insert old ones.
 */
bool
ssw_single_witnesses(SswWork *w)
{
	const SswRange *range = w->target.range;
	uint64		before = w->succeeded;
	ItemPointerData tids[WITNESSES];

	if (ssw_stmt_asks(w->policy, w->target.phase))
		return false;
	w->target.range = NULL;
	PG_TRY();
	{
		for (int latest = 1; latest >= 0 && w->succeeded == before && !ssw_batch_must_stop(w); latest--)
		{
			int			n = find_witnesses(w, latest, tids);

			if (n > 0 && run_singly(w, tids, n, NULL) < 0)
				for (int i = 0; i < n && w->succeeded == before && !ssw_batch_must_stop(w); i++)
					run_singly(w, &tids[i], 1, NULL);
		}
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
	}
	PG_END_TRY();
	w->target.range = range;
	return w->succeeded > before;
}

/* So many rows failed alike: whose fault is it? */
static void
settle(SswWork *w, const ErrorData *e)
{
	uint64		before = w->succeeded;
	int64		slow_us = w->slow_us;

	if (ssw_single_witnesses(w) || ssw_batch_must_stop(w))
		return;
	w->slow_us = slow_us;
	if (before == 0)
	{
		if (!ssw_batch_more_patience(w))
			ssw_batch_fail(w, e);
	}
	else
	{
		/* it went well at first: see how the next pass fares */
		ssw_batch_end_pass(w->pass, SSW_END_LIMIT, 0, NULL);
	}
}

/* A row that failed in a transaction of its own. */
void
ssw_single_record(SswWork *w, const ItemPointerData *tid)
{
	ErrorData  *error = w->error;
	SswIdentity save;

	PG_TRY();
	{
		ssw_batch_begin_read(w, w->target.leaf, &save);
		record_failure(w, tid, error);
		ssw_batch_end_read(w, &save);
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(w->batch_cxt);
	w->nfailed++;
	if (doubtful(w))
		settle(w, error);
}

/* A few rows, each in a transaction. */
static void
run_apart(SswWork *w, const ItemPointerData *tids, int n)
{
	for (int i = 0; i < n && !ssw_batch_must_stop(w); i++)
	{
		ErrorData  *doubt = NULL;

		if (run_singly(w, &tids[i], 1, &doubt) < 0)
			ssw_single_record(w, &tids[i]);
		else if (doubt)
			settle(w, doubt);
	}
}

/* A few rows, each in a subtransaction. */
void
ssw_single_run(SswWork *w, const ItemPointerData *tids, int n)
{
	while (n > 0 && !ssw_batch_must_stop(w))
	{
		ErrorData  *doubt = NULL;
		int			tried = run_singly(w, tids, n, &doubt);

		if (tried == 0)
			return;
		if (tried < 0)
		{
			run_apart(w, tids, n);
			return;
		}
		if (doubt)
			settle(w, doubt);
		tids += tried;
		n -= tried;
	}
}

/* Rows that have ended their workers are written down at once: the next one may end this worker, too. */
void
ssw_single_write_deadly(SswWork *w)
{
	ssw_spi_start_transaction();
	if (ssw_lock_policy_batch_conditional(w->policy->id))
		ssw_failures_flush(w->failures, false, 0, NULL);
	ssw_spi_commit();
}

/* What ended workers mean for this one; false: the policy is at fault. */
bool
ssw_single_recall(SswWork *w)
{
	const char *blame = ssw_in_hand_blame(w->policy->id, false);
	ErrorData	e = {.sqlerrcode = ERRCODE_ADMIN_SHUTDOWN,.message = unconstify(char *, blame)};

	w->singly = ssw_in_hand_singly(w->policy->id, InvalidOid);
	if (blame)
		ssw_batch_fail(w, &e);
	return blame == NULL;
}
