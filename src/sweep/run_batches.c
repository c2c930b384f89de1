/*
 * run_batches.c
 *		Run the rows of a chunk in batches, divide what fails, and judge whose fault it is.
 *
 * Runs in a worker.  Rows are acted on together, in one transaction as large as
 * the policy's batch size.  One that fails is run again in parts, down to the single
 * row, so that one bad row costs its neighbours nothing: two halves after an error, and
 * SLOW_PARTS where it was cancelled because it took too long, since each part may take
 * as long again.  Later batches are as large as before.  Deletes may begin with all dead
 * rows of some blocks.  A row that takes too long by itself is set aside, and tried after
 * others, with all the time of the hard limit.
 *
 * Where rows fail alike and none has gone, other dead rows are tried as witnesses: when
 * one goes, the rows are at fault, else the policy is.
 *
 * Shares nothing itself.  A crash rolls back the batch in flight.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/deferred.h"
#include "base/error_class.h"
#include "base/identity.h"
#include "base/spi.h"
#include "policy/sweep_sql.h"
#include "sweep/run_batches.h"
#include "sweep/alive_by_heartbeat.h"
#include "sweep/row_in_hand.h"
#include "sweep/single_row.h"

/* Witnesses from the latest deadlines, and from so many pages at random: more after each failed pass. */
#define WITNESSES		10
#define MAX_WITNESSES	100
#define WITNESS_PAGES	200

/* So long the success of one row shows that another row's failure is its own. */
#define LATELY_US		(5 * USECS_PER_SEC)

/* Three cancels find a slow row among 1,000 rows, four among 30,000. */
#define SLOW_PARTS		32

/* The middle of a batch: as the owner, with deferred constraints at both ends. */
static uint64
act_as_owner(SswWork *w, const ItemPointerData *tids, int n, SswSink *sink, int *missing)
{
	SswIdentity save;
	uint64		rows;

	ssw_in_hand_set(w->policy->id, w->target.leaf, tids && n == 1 ? ssw_in_hand_place(tids) : 0);
	w->file = ssw_action_lock_leaf(w->policy, w->target.leaf, RowExclusiveLock);
	w->step = SSW_STEP_ROWS;
	ssw_spi_begin_as_owner(w->policy->owner, w->policy->search_path, &save);
	ssw_deferred_fire();
	rows = ssw_alive_act_on_dead(&w->target, tids, n, sink);
	*missing = w->target.blocks == NULL && rows < n ? ssw_single_find_missing(w, tids, n, rows + w->prolonged) : 0;
	ssw_deferred_fire();
	ssw_spi_end_as(&save);
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
			ssw_batch_hurry(w);
			sink = ssw_cleanup_event_begin(w->policy, w->pass->pass_id, w->cleanup_type, w->reason, NULL);
			rows = act_as_owner(w, tids, n, sink, &missing);
			w->step = SSW_STEP_EVIDENCE;
			ssw_cleanup_event_end(sink);
		}
		ssw_batch_end(w, sink, start, n, rows, missing);
		ok = true;
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
	}
	PG_END_TRY();
	return ok;
}

/*
 * A batch of n rows failed: so many are tried together.  Later batches are as small when
 * this worker must leave before that, or when all would take too much memory.
 */
static int
part_of(SswWork *w, int n)
{
	int			rows = Max(1, n / (w->slow_us > 0 ? SLOW_PARTS : 2));

	if (ssw_batch_must_stop(w) || w->error->sqlerrcode == ERRCODE_OUT_OF_MEMORY)
		ssw_batch_set_rows(w, rows);
	return rows;
}

/* From now on nobody waits for a lock in this pass. */
static void
skip_locked(SswWork *w)
{
	w->target.skip_locked = true;
	w->pass->skip_locked = true;
}

/* At most so many dead rows other than known failures: the latest, or some from pages at random. */
static int
find_witnesses(SswWork *w, int pages, ItemPointerData *tids, int most)
{
	SswIdentity save;
	int			n = 0;

	ssw_batch_begin_read(w, w->target.leaf, &save);
	(void) ssw_action_execute(&w->target, ssw_sweep_sql_witnesses(w->policy, w->target.leaf, w->target.phase, pages), (Datum) 0, false, NULL);
	for (uint64 i = 0; i < SPI_processed && n < most; i++)
	{
		SswRow		row = ssw_action_read_row(SPI_tuptable, i);
		bool		slow;

		if (row.key == NULL || !ssw_failed_row_excluded(w->failures, w->target.leaf, &row, &slow))
			tids[n++] = row.tid;
	}
	ssw_batch_end_read(w, &save);
	return n;
}

/*
 * Does any other dead row end?  Rows that is_alive has not checked cannot show it.  The
 * oldest alone would not do: a role that may insert rows may insert old ones.
 */
static bool
others_end(SswWork *w)
{
	const SswBlocks *blocks = w->target.blocks;
	ErrorData  *error = w->error;
	int64		slow_us = w->slow_us;
	uint64		before = w->succeeded;
	int			most = Min(WITNESSES * (w->policy->failures + 1), MAX_WITNESSES);
	ItemPointerData tids[MAX_WITNESSES];

	if (ssw_sweep_sql_asks(w->policy, w->target.phase))
		return false;
	w->target.blocks = NULL;
	PG_TRY();
	{
		for (int pages = 0; pages <= WITNESS_PAGES; pages += WITNESS_PAGES)
			for (int n = find_witnesses(w, pages, tids, most); n > 0 && w->succeeded == before && !ssw_batch_must_stop(w); n--)
				(void) run_together(w, &tids[n - 1], 1);
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
	}
	PG_END_TRY();
	w->target.blocks = blocks;
	w->error = error;
	w->slow_us = slow_us;
	return w->succeeded > before;
}

/*
 * Has a worker of this pass ended or refreshed a row lately?  Those that went before say nothing of
 * a right that was lost, or a disk that got full, since.
 */
static bool
others_went(const SswWork *w)
{
	TimestampTz went_at;

	(void) ssw_shmem_read_field(MyDatabaseId, w->policy->id, went_at, &went_at);
	return went_at >= w->pass->started_at && GetCurrentTimestamp() - went_at < LATELY_US;
}

/* What the failure of rows together means for what follows. */
static SswFailureClass
learn(SswWork *w)
{
	ErrorData  *error = w->error;
	SswFailureClass class = ssw_error_classify(error->sqlerrcode);

	/* no row was tried, or all were: somebody locks what each batch needs */
	if (w->step == SSW_STEP_BEGIN || (w->step == SSW_STEP_EVIDENCE && class == SSW_FAIL_LOCKED))
	{
		ssw_batch_fail(w, error);
		return SSW_FAIL_POLICY;
	}

	/*
	 * Rows that is_alive checked are judged at the end of the pass; and where
	 * some were known to fail, it may be they.
	 */
	if (class == SSW_FAIL_POLICY &&
		(others_went(w) || ssw_sweep_sql_asks(w->policy, w->target.phase) || ssw_failed_row_count(w->failures) > 0 ||
		 others_end(w)))
		class = SSW_FAIL_ROW;
	if (class == SSW_FAIL_POLICY)
		ssw_batch_fail(w, error);
	return class;
}

/* A row failed alone.  So many alike, and none went: is it the policy's fault? */
static void
record(SswWork *w, const ItemPointerData *tid)
{
	ErrorData  *error = w->error;

	ssw_single_record_error(w, tid);
	if (w->streak < SSW_DOUBT || others_went(w) || ssw_sweep_sql_asks(w->policy, w->target.phase) ||
		ssw_error_classify(w->streak_code) == SSW_FAIL_LOCKED)
		return;
	if (!others_end(w) && !ssw_batch_must_stop(w) && !ssw_batch_more_patience(w))
		ssw_batch_fail(w, error);
}

/*
 * Delete the rows of the target's blocks, about n.  0, or in batches of how many rows they
 * must be tried by their tids.
 */
int
ssw_run_batches_blocks(SswWork *w, int n)
{
	SswFailureClass class;

	if (ssw_batch_must_stop(w))
		return 0;
	MemoryContextReset(w->batch_cxt);
	if (run_together(w, NULL, n) || w->interrupted)
		return 0;
	class = learn(w);
	if (class == SSW_FAIL_POLICY)
		return 0;
	if (class != SSW_FAIL_LOCKED)
		return part_of(w, n);
	skip_locked(w);
	return n;
}

/* Run the rows together; in parts on failure. */
static void
run_rows(SswWork *w, const ItemPointerData *tids, int n)
{
	SswFailureClass class;

	CHECK_FOR_INTERRUPTS();
	if (n == 0 || ssw_batch_must_stop(w) ||
		(n == 1 && ssw_single_is_deadly(w, tids, "the workers that acted on the row were ended")))
		return;
	MemoryContextReset(w->batch_cxt);
	if (run_together(w, tids, n) || w->interrupted)
		return;
	class = learn(w);
	if (class == SSW_FAIL_POLICY)
		return;
	if (class == SSW_FAIL_LOCKED && !w->target.skip_locked)
	{
		skip_locked(w);
		run_rows(w, tids, n);
	}
	else if (ssw_error_is_ours(w->error, ERRCODE_SSW_HEARTBEAT))
		run_rows(w, tids, n);	/* now it is known that the row is alive */
	else if (n == 1)
		record(w, tids);
	else
		ssw_run_batches(w, tids, n, part_of(w, n));
}

/* Run the rows in batches of at most so many, until done or asked to leave. */
void
ssw_run_batches(SswWork *w, const ItemPointerData *tids, int n, int most)
{
	while (n > 0 && !ssw_batch_must_stop(w))
	{
		int			rows = w->singly ? 1 : ssw_min(Min(n, most), ssw_batch_rows(w));

		run_rows(w, tids, rows);
		tids += rows;
		n -= rows;
	}
}

/*
 * A row that was slow before was tried, with all the time of the hard limit.  When that
 * took long the pass ends: others may have fallen due meanwhile, and come first.
 */
void
ssw_run_batches_tried_slow(SswWork *w, TimestampTz start)
{
	w->unhurried = false;
	if (GetCurrentTimestamp() - start < SSW_BATCH_TARGET_US)
		return;
	ssw_batch_end_pass(w->pass, SSW_END_LIMIT, 0, NULL);
}

/* Rows that were slow before, one by one. */
void
ssw_run_batches_slow(SswWork *w, const ItemPointerData *tids, int n)
{
	for (int i = 0; i < n && !ssw_batch_must_stop(w); i++)
	{
		TimestampTz start = GetCurrentTimestamp();

		w->unhurried = true;
		run_rows(w, &tids[i], 1);
		ssw_run_batches_tried_slow(w, start);
	}
}
