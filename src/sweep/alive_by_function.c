/*
 * alive_by_function.c
 *		Ask a policy's is_alive function about dead-looking rows: one by one, or together.
 *
 * Runs in workers.  The list of rows is in the pass (shared memory, guarded by
 * SswShared->lock); each worker pulls the next row, so slow checks overlap and
 * no worker waits for another.  A function that takes many keys is called once for
 * the whole list.  Alive: a new deadline.  Dead: the row action.
 * After an error or null the row is left and recorded as failed: tried again later, and
 * quarantined in the end.  An answer belongs
 * to the row that is_alive got, not to its place (tid): the table may be rewritten
 * before the row action.
 *
 * A worker that dies loses the rows it had pulled; they still look dead and the
 * next pass asks again.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/deferred.h"
#include "base/identity.h"
#include "base/spi.h"
#include "policy/sweep_sql.h"
#include "sweep/alive_by_function.h"
#include "sweep/run_batches.h"
#include "sweep/dispenser.h"
#include "sweep/fuse.h"
#include "sweep/row_in_hand.h"
#include "sweep/single_row.h"

/* After so many rows without an answer, because a right, an object or a connection is missing, the policy fails. */
#define MANY_UNKNOWN	100

/* Rows that got the same answer. */
typedef struct Judged
{
	int			n;
	ItemPointerData tid[SSW_CHECK_LIST];
	Datum		identity[SSW_CHECK_LIST];	/* text: distinguishes a row from
											 * others that get its place */
} Judged;

/* The answers of one turn. */
typedef struct Answers
{
	MemoryContext cxt;
	Judged		alive;
	Judged		dead;
	Judged		unknown;
} Answers;

static void
add_answer(Answers *answers, Datum identity, const ItemPointerData *tid, bool isnull, bool lives)
{
	Judged	   *j = isnull ? &answers->unknown : lives ? &answers->alive : &answers->dead;

	j->tid[j->n] = *tid;
	j->identity[j->n++] = PointerGetDatum(DatumGetTextPCopy(identity));
}

/* An answer that is missing, or too many, would be taken for another row's. */
static void
check_number(SswWork *w, HeapTuple row)
{
	bool		isnull;
	int			keys = DatumGetInt32(SPI_getbinval(row, SPI_tuptable->tupdesc, 4, &isnull));
	int			answers = DatumGetInt32(SPI_getbinval(row, SPI_tuptable->tupdesc, 5, &isnull));

	if (!isnull && answers != keys)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_EXCEPTION),
				 errmsg("is_alive of policy \"%s\" did not return one answer for each key", w->policy->name),
				 errdetail("It returned %d answers for %d keys.", answers, keys)));
}

/* Read what the statement returned for the rows that are still dead. */
static void
read_answers(SswWork *w, Answers *answers, uint64 n)
{
	MemoryContext old = MemoryContextSwitchTo(answers->cxt);

	if (w->policy->asks_together && n > 0)
		check_number(w, SPI_tuptable->vals[0]);
	for (uint64 i = 0; i < n; i++)
	{
		bool		isnull;
		Datum		answer = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull);

		add_answer(answers, ssw_spi_column(i, 1), (ItemPointer) DatumGetPointer(ssw_spi_column(i, 3)), isnull, !isnull && DatumGetBool(answer));
	}
	MemoryContextSwitchTo(old);
}

/* Ask about some rows, in a transaction of its own, as the owner. */
static void
ask(SswWork *w, const ItemPointerData *tids, int n, Answers *answers)
{
	SswIdentity save;

	if (ssw_batch_begin(w))
	{
		MemoryContextSwitchTo(w->batch_cxt);
		w->file = ssw_action_lock_leaf(w->policy, w->target.leaf, AccessShareLock);
		w->step = SSW_STEP_ROWS;
		ssw_batch_hurry(w);
		ssw_spi_begin_as_owner(w->policy->owner, w->policy->search_path, &save);
		ssw_in_hand_set(w->policy->id, w->target.leaf, n == 1 ? ssw_in_hand_place(tids) : 0);
		read_answers(w, answers, ssw_action_execute(&w->target, ssw_sweep_sql_check(w->policy, w->target.leaf, w->target.phase),
													ssw_action_tid_array(tids, n), false, NULL));
		ssw_deferred_fire();
		ssw_spi_end_as(&save);
	}
	ssw_batch_end(w, NULL, 0, 0, 0, 0);
}

/* One row got no answer. */
static void
note_unknown(SswWork *w, const ItemPointerData *tid, int code, const char *message)
{
	w->unanswered++;
	if (!w->failed && !w->interrupted)
		ssw_single_record(w, tid, w->slow_us > 0 ? ssw_batch_slow_class(w) : "check", code, message);
}

/* is_alive raised an error for one row, w->error. */
static void
note_error(SswWork *w, const ItemPointerData *tid)
{
	int			code = w->error->sqlerrcode;
	const char *message = ssw_failed_row_text(w->policy, w->error);
	SswFailureClass class = ssw_error_classify(code);
	bool		persists = (class == SSW_FAIL_POLICY || class == SSW_FAIL_TRANSIENT) && !w->answered &&
	ssw_failed_row_pending(w->failures) >= MANY_UNKNOWN;

	if (!w->interrupted && (w->step == SSW_STEP_BEGIN || persists))
		ssw_batch_fail(w, w->error);
	if (w->slow_us > 0)
	{
		if (!w->answered && ssw_failed_row_pending(w->failures) >= SSW_DOUBT && ssw_batch_more_patience(w))
			return;
		message = psprintf("is_alive took longer than %g s", w->slow_us / 1e6);
	}
	note_unknown(w, tid, code, message);
}

/* Ask about some rows; after an error by halves, down to the row at fault. */
static void
ask_safely(SswWork *w, const ItemPointerData *tids, int n, Answers *answers)
{
	int			alive = answers->alive.n;
	int			dead = answers->dead.n;
	volatile bool answered = false;
	TimestampTz start = GetCurrentTimestamp();

	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(w->batch_cxt);
	w->interrupted = false;
	w->slow_us = 0;
	if (n == 1 && ssw_single_is_deadly(w, tids, "the workers that asked is_alive about the row were ended"))
	{
		w->unanswered++;
		return;
	}
	PG_TRY();
	{
		ask(w, tids, n, answers);
		answered = true;
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
	}
	PG_END_TRY();
	if (answered)
	{
		ssw_batch_took(w, GetCurrentTimestamp() - start);
		if (answers->alive.n > alive || answers->dead.n > dead)
			w->answered = true;
		while (answers->unknown.n > 0)
			note_unknown(w, &answers->unknown.tid[--answers->unknown.n], ERRCODE_NO_DATA_FOUND, "is_alive returned null");
		return;
	}
	answers->alive.n = alive;
	answers->dead.n = dead;
	answers->unknown.n = 0;
	if (n == 1 || w->interrupted || w->step == SSW_STEP_BEGIN)
	{
		note_error(w, tids);
		return;
	}
	ask_safely(w, tids, n / 2, answers);
	if (!ssw_batch_must_stop(w))
		ask_safely(w, tids + n / 2, n - n / 2, answers);
}

/* Act on the rows that got one answer. */
static void
act_on(SswWork *w, MemoryContext cxt, Judged *j, bool alive)
{
	w->target.refresh = alive;
	MemoryContextSwitchTo(cxt);
	w->target.judged = PointerGetDatum(construct_array(j->identity, j->n, TEXTOID, -1, false, TYPALIGN_INT));
	ssw_run_batches(w, j->tid, j->n, PG_INT32_MAX);
	w->target.judged = (Datum) 0;
}

/* Pull rows and ask about them, for one turn. */
static void
take_turn(SswWork *w, Answers *answers)
{
	/*
	 * all answers of the list first, where the fuse judges by them; where the
	 * next row may end this worker, one
	 */
	TimestampTz until = w->pass->suspect ? DT_NOEND : w->singly ? DT_NOBEGIN : GetCurrentTimestamp() + SSW_BATCH_TARGET_US;
	bool		together = w->policy->asks_together && !w->singly;
	ItemPointerData *tids = MemoryContextAlloc(answers->cxt, SSW_CHECK_LIST * sizeof(ItemPointerData));
	int			n = 0;

	while (!ssw_batch_must_stop(w) && (n == 0 || GetCurrentTimestamp() < until) && !w->unhurried && ssw_dispenser_pull_check(w, n == 0, &tids[n]))
	{
		if (!together)
			ask_safely(w, &tids[n], 1, answers);
		n++;
	}
	if (together && n > 0)
		ask_safely(w, tids, n, answers);
}

/* Ask for one turn, then act on the answers. */
void
ssw_alive_by_function(SswWork *w)
{
	MemoryContext cxt = AllocSetContextCreate(MemoryContextGetParent(w->batch_cxt), "answers", ALLOCSET_DEFAULT_SIZES);
	Answers    *answers = MemoryContextAllocZero(cxt, sizeof(Answers));
	TimestampTz start = GetCurrentTimestamp();

	answers->cxt = cxt;
	w->target.full_cutoff = w->pass->full_cutoff;
	w->target.skip_locked = w->pass->skip_locked;
	w->cleanup_type = "zombie";
	take_turn(w, answers);
	if (!w->failed)
	{
		act_on(w, cxt, &answers->alive, true);
		if (!ssw_fuse_answers(w, answers->dead.n, answers->alive.n))
			act_on(w, cxt, &answers->dead, false);
	}
	if (w->unhurried)
		ssw_run_batches_tried_slow(w, start);
	MemoryContextSwitchTo(MemoryContextGetParent(cxt));
	MemoryContextDelete(cxt);
}
