/*
 * single_row.c
 *		Record rows that did not end: why, and who holds them.
 *
 * Runs in a worker.  Rows that an action neither took nor failed on are looked for in
 * the batch's transaction.  A row that failed alone is read again, in a transaction of
 * its own.  What is recorded is written after the pass (failed_row.c).
 *
 * Shares nothing.  A crash leaves nothing.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/memutils.h"

#include "base/error_class.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "policy/sweep_sql.h"
#include "sweep/batch.h"
#include "sweep/row_holders.h"
#include "sweep/row_in_hand.h"
#include "sweep/single_row.h"

/* Of the rows that ssw_sweep_sql_moved() has found: did this transaction move it? */
static bool
is_moved_here(uint64 row)
{
	return TransactionIdIsCurrentTransactionId(DatumGetTransactionId(ssw_spi_column(row, 4)));
}

/*
 * Remember the rows of SPI_tuptable (ctid, key, due) as failed; were they known to?  Those
 * that another transaction has moved are not.
 */
static bool
record_rows(SswWork *w, const char *class, int sqlerrcode, const char *message)
{
	bool		known = false;

	for (uint64 i = 0; i < SPI_processed; i++)
	{
		SswRow		row = ssw_action_read_row(SPI_tuptable, i);
		Datum		holders = (Datum) 0;
		char	   *prepared = NULL;

		if (row.key == NULL || (SPI_tuptable->tupdesc->natts > 3 && !is_moved_here(i)))
			continue;
		if (ssw_error_classify(sqlerrcode) == SSW_FAIL_LOCKED || sqlerrcode == ERRCODE_SSW_LOCKED)
		{
			TransactionId xid = InvalidTransactionId;

			holders = ssw_holders_of_row(w->target.leaf, &row.tid, CurrentMemoryContext, &xid);
			prepared = ssw_holders_prepared_name(xid);
		}
		known |= ssw_failed_row_add(w->failures, w->target.leaf, &row, class, sqlerrcode,
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
	int			missing = ssw_action_execute(t, ssw_sweep_sql_missing(w->policy, t->leaf, t->phase, how & ~SSW_ROWS_SKIP_LOCKED), rows, true, NULL);

	if (missing == 0)
		return 0;
	if (t->skip_locked)
	{
		Datum		found = ssw_action_column(TIDOID, missing, 1);
		uint64		suppressed;

		(void) record_rows(w, "locked", ERRCODE_SSW_LOCKED, "another transaction holds the row");
		suppressed = ssw_action_execute(t, ssw_sweep_sql_missing(w->policy, t->leaf, t->phase, how), found, true, NULL);
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
 * The action took some of the rows.  How many stay dead?  They are recorded, also those
 * that a trigger updated: they are in other places now.
 */
int
ssw_single_find_missing(SswWork *w, const ItemPointerData *tids, int n, int taken)
{
	SswTarget  *t = &w->target;
	int			missing = find_in_place(w, tids, n);

	if (taken + missing >= n || !has_before_trigger(t->leaf))
		return missing;
	(void) ssw_action_execute(t, ssw_sweep_sql_moved(w->policy, t->leaf, t->phase), ssw_action_tid_array(tids, n), true, NULL);
	for (uint64 i = 0; i < SPI_processed; i++)
		missing += is_moved_here(i);
	(void) record_rows(w, "suppressed", ERRCODE_SSW_SUPPRESSED,
					   "a BEFORE trigger updated the row, and the row action did not return it");
	return missing;
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

/*
 * Record a failure of one row, which is read in a transaction of its own.  True when the
 * row was known to fail.  If the table has been rewritten since, as by VACUUM FULL, another
 * row may be in its place: the next pass finds out.
 */
bool
ssw_single_record(SswWork *w, const ItemPointerData *tid, const char *class, int sqlerrcode, const char *message)
{
	volatile bool known = false;
	SswIdentity save;

	PG_TRY();
	{
		Oid			file = ssw_batch_begin_read(w, w->target.leaf, &save);

		if (!OidIsValid(w->file) || file == w->file)
		{
			(void) ssw_action_execute(&w->target, ssw_sweep_sql_missing(w->policy, w->target.leaf, w->target.phase,
																		ssw_action_rows(&w->target) & ~SSW_ROWS_SKIP_LOCKED),
									  ssw_action_tid_array(tid, 1), true, NULL);
			known = record_rows(w, class, sqlerrcode, message);
		}
		ssw_batch_end_read(w, &save);
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(w->batch_cxt);
	w->nfailed++;
	return known;
}

/* Record w->error of a row that was alone in its batch. */
void
ssw_single_record_error(SswWork *w, const ItemPointerData *tid)
{
	ErrorData  *e = w->error;
	bool		known;

	if (w->slow_us > 0)
		known = ssw_single_record(w, tid, ssw_batch_slow_class(w), e->sqlerrcode,
								  psprintf("the row action took longer than %g s", w->slow_us / 1e6));
	else
		known = ssw_single_record(w, tid, class_name(e->sqlerrcode), e->sqlerrcode, ssw_failed_row_text(w->policy, e));
	/* a row that others outlived says nothing of the policy */
	if (known)
		return;
	w->streak = e->sqlerrcode == w->streak_code ? w->streak + 1 : 1;
	w->streak_code = e->sqlerrcode;
}

/*
 * Has the row ended its workers?  Then it is written down at once: the next row may end
 * this worker, too.
 */
bool
ssw_single_is_deadly(SswWork *w, const ItemPointerData *tid, const char *message)
{
	if (!w->singly || ssw_in_hand_deaths(w->policy->id, w->target.leaf, ssw_in_hand_place(tid)) < SSW_MAX_DEATHS)
		return false;
	w->file = InvalidOid;
	ssw_single_record(w, tid, SSW_FAIL_DEADLY, ERRCODE_ADMIN_SHUTDOWN, message);
	ssw_spi_start_transaction();
	if (ssw_lock_policy_batch_conditional(w->policy->id))
		ssw_failed_row_flush(w->failures, false, 0, NULL);
	ssw_spi_commit();
	MemoryContextSwitchTo(w->batch_cxt);
	return true;
}

/* What ended workers mean for this one. */
void
ssw_single_recall(SswWork *w)
{
	ErrorData	e = {.sqlerrcode = ERRCODE_ADMIN_SHUTDOWN,.message = "its code ends one worker after the other"};

	w->singly = ssw_in_hand_singly(w->policy->id, InvalidOid);
	if (ssw_in_hand_blame(w->policy->id))
		ssw_batch_fail(w, &e);
}
