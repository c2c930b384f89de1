/*
 * alive_by_function.c
 *		Ask a policy's is_alive function about dead-looking rows, one by one.
 *
 * Runs in workers.  The list of rows is in the pass (shared memory, guarded by
 * SswShared->lock); each worker pulls the next row, so slow checks overlap and
 * no worker waits for another.  Alive: a new deadline.  Dead: the row action.
 * After an error or null the row is left and recorded as failed: tried again later, and
 * quarantined in the end.  A verdict belongs
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

typedef enum Verdict
{
	VERDICT_GONE,				/* the row is no longer dead, or not there */
	VERDICT_ALIVE,
	VERDICT_DEAD,
	VERDICT_UNKNOWN
} Verdict;

/* Rows that got the same answer. */
typedef struct Judged
{
	int			n;
	ItemPointerData tid[SSW_CHECK_LIST];
	Datum		identity[SSW_CHECK_LIST];	/* text */
} Judged;

/*
 * Ask about one row, in a transaction of its own, as the owner; *identity distinguishes
 * the row from others, in cxt.
 */
static Verdict
ask(SswWork *w, const ItemPointerData *tid, MemoryContext cxt, Datum *identity)
{
	SswIdentity save;
	Oid			types[SSW_ROW_PARAMS];
	Datum		values[SSW_ROW_PARAMS];
	Verdict		verdict = VERDICT_GONE;
	bool		isnull;

	if (ssw_batch_begin(w))
	{
		MemoryContextSwitchTo(w->batch_cxt);
		ssw_action_lock_leaf(w->policy, w->target.leaf, AccessShareLock);
		w->step = SSW_STEP_ROWS;
		ssw_batch_hurry(w);
		ssw_spi_begin_as_owner(w->policy->owner, w->policy->search_path, &save);
		ssw_action_row_params(&w->target, ssw_action_tid_array(tid, 1), types, values);
		ssw_in_hand_set(w->policy->id, w->target.leaf, ssw_in_hand_place(tid));
		if (ssw_plan_execute(ssw_sweep_sql_check(w->policy, w->target.leaf, w->target.phase),
							 SSW_ROW_PARAMS, types, values, NULL, false) > 0)
		{
			MemoryContext old;
			Datum		d = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull);

			verdict = isnull ? VERDICT_UNKNOWN : DatumGetBool(d) ? VERDICT_ALIVE : VERDICT_DEAD;
			old = MemoryContextSwitchTo(cxt);
			*identity = PointerGetDatum(DatumGetTextPCopy(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
																		1, &isnull)));
			MemoryContextSwitchTo(old);
		}
		ssw_deferred_fire();
		ssw_spi_end_as(&save);
	}
	ssw_batch_end(w, NULL, 0, 0, 0, 0);
	return verdict;
}

static Verdict
ask_safely(SswWork *w, const ItemPointerData *tid, MemoryContext cxt, Datum *identity)
{
	volatile Verdict verdict = VERDICT_UNKNOWN;
	volatile bool answers = false;
	int			code;
	const char *message;
	TimestampTz start = GetCurrentTimestamp();
	SswFailureClass class;
	bool		persists;

	MemoryContextReset(w->batch_cxt);
	w->interrupted = false;
	w->slow_us = 0;
	if (ssw_single_is_deadly(w, tid, "the workers that asked is_alive about the row were ended"))
		return VERDICT_UNKNOWN;
	PG_TRY();
	{
		verdict = ask(w, tid, cxt, identity);
		if (verdict == VERDICT_ALIVE || verdict == VERDICT_DEAD)
			w->answered = w->pass->answered = true;
		ssw_batch_took(w, GetCurrentTimestamp() - start);
		answers = true;
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
	}
	PG_END_TRY();
	if (answers)
	{
		code = ERRCODE_NO_DATA_FOUND;
		message = "is_alive returned null";
	}
	else
	{
		code = w->error->sqlerrcode;
		message = ssw_failed_row_text(w->policy, w->error);
		class = ssw_error_classify(code);
		persists = (class == SSW_FAIL_POLICY || class == SSW_FAIL_TRANSIENT) && !w->answered &&
			ssw_failed_row_pending(w->failures) >= MANY_UNKNOWN;
		if (!w->interrupted && (w->step == SSW_STEP_BEGIN || persists))
			ssw_batch_fail(w, w->error);
	}
	if (w->slow_us > 0)
	{
		if (!w->answered && ssw_failed_row_pending(w->failures) >= SSW_DOUBT && ssw_batch_more_patience(w))
			return VERDICT_GONE;
		message = psprintf("is_alive took longer than %g s", w->slow_us / 1e6);
	}
	if (verdict == VERDICT_UNKNOWN)
		w->pass->unanswered++;
	if (verdict == VERDICT_UNKNOWN && !w->failed && !w->interrupted)
		ssw_single_record(w, tid, w->slow_us > 0 ? ssw_batch_slow_class(w) : "check", code, message);
	return verdict;
}

/* Act on the rows that got one answer. */
static void
act_on(SswWork *w, Judged *j, bool alive)
{
	w->target.judged = PointerGetDatum(construct_array(j->identity, j->n, TEXTOID, -1, false, TYPALIGN_INT));
	w->target.refresh = alive;
	ssw_run_batches(w, j->tid, j->n, j->n);
	w->target.judged = (Datum) 0;
}

/* Pull and ask for one turn, then act on the verdicts. */
void
ssw_alive_by_function(SswWork *w)
{
	MemoryContext cxt = AllocSetContextCreate(MemoryContextGetParent(w->batch_cxt), "verdicts", ALLOCSET_DEFAULT_SIZES);
	Judged	   *alive = MemoryContextAllocZero(cxt, sizeof(Judged));
	Judged	   *dead = MemoryContextAllocZero(cxt, sizeof(Judged));
	ItemPointerData tid;
	TimestampTz start = GetCurrentTimestamp();

	/* all answers of the chunk first, where the fuse judges by them */
	TimestampTz until = w->pass->suspect ? DT_NOEND : start + SSW_BATCH_TARGET_US;
	bool		first = true;

	w->target.full_cutoff = w->pass->full_cutoff;
	w->target.skip_locked = w->pass->skip_locked;
	w->cleanup_type = "zombie";

	while (!ssw_batch_must_stop(w) && GetCurrentTimestamp() < until && !w->unhurried &&
		   ssw_dispenser_pull_check(w, first, &tid))
	{
		Datum		identity;
		Verdict		v;
		Judged	   *j;

		CHECK_FOR_INTERRUPTS();
		first = false;
		v = ask_safely(w, &tid, cxt, &identity);
		if (v != VERDICT_ALIVE && v != VERDICT_DEAD)
			continue;
		j = v == VERDICT_ALIVE ? alive : dead;
		j->identity[j->n] = identity;
		j->tid[j->n++] = tid;
	}
	if (!w->failed)
	{
		MemoryContextSwitchTo(cxt);
		act_on(w, alive, true);
		MemoryContextSwitchTo(cxt);
		if (!ssw_fuse_answers(w, dead->n, alive->n))
			act_on(w, dead, false);
	}
	if (w->unhurried)
		ssw_run_batches_tried_slow(w, start);
	MemoryContextSwitchTo(MemoryContextGetParent(cxt));
	MemoryContextDelete(cxt);
}
