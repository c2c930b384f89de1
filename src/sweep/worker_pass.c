/*
 * worker_pass.c
 *		A worker's part of a pass: collect dead rows, act on them in batches.
 *
 * Runs in workers; several may work on one pass, and share it by dispenser.c.
 *
 * A worker that dies loses its chunk, whose rows are still dead and found by
 * the next pass.  A crash leaves nothing but a row in table pass that says
 * "running"; the next coordinator closes it.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/error_class.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "policy/deadline.h"
#include "policy/index.h"
#include "policy/partition.h"
#include "policy/policy_hooks.h"
#include "policy/sweep_sql.h"
#include "sweep/alive_by_function.h"
#include "sweep/bad_expression.h"
#include "sweep/candidates.h"
#include "sweep/dispenser.h"
#include "sweep/fuse.h"
#include "sweep/fuse_hold.h"
#include "sweep/lower_bound.h"
#include "sweep/rows_left.h"
#include "sweep/run_batches.h"
#include "sweep/single_row.h"
#include "sweep/throttle.h"
#include "sweep/worker_pass.h"

/* Memory that a worker keeps from batch to batch, instead of giving it back. */
#define BATCH_KEEP	(4 * 1024 * 1024)

/* How much of the cursor's leaf and phase was read. */
typedef enum ReadEnd
{
	READ_ALL,
	READ_PART,
	READ_NOT_NOW				/* rates or load care forbid it */
} ReadEnd;

static void
end_locked(SswPass *pass)
{
	ssw_batch_end_pass(pass, SSW_END_LOCKED, ERRCODE_LOCK_NOT_AVAILABLE, "another transaction holds a lock on a partition");
}

/*
 * No row is read that the fuse has not counted: it counts before the first chunk, in the
 * same transaction, and the pass ends when a partition that was locked then is free now.
 */
static bool
is_counted(SswWork *w, uint32 locked)
{
	SswPass    *pass = w->pass;

	/*
	 * if nothing was handed out, what the fuse wrote may have been rolled
	 * back
	 */
	if (pass->handed_out == 0)
	{
		bool		trips = !pass->fuse_open && ssw_fuse_trips(w);

		pass->counted = true;
		pass->left_out = locked;
		return !trips;
	}
	if (locked != pass->left_out)
		end_locked(pass);
	return locked == pass->left_out;
}

static ReadEnd
read_rows(SswWork *w, SswChunk *chunk)
{
	SswPass    *pass = w->pass;
	int64		limit = ssw_candidates_limit(w);
	TimestampTz start = GetCurrentTimestamp();
	SswRest		rest = {0};
	SswIdentity save;
	bool		more;

	chunk->leaf = pass->leaf;
	chunk->phase = pass->phase;
	chunk->backlog = pass->backlog_segment;
	chunk->cutoff = ssw_dispenser_cutoff(w);
	if (TIMESTAMP_IS_NOBEGIN(chunk->cutoff))
		return READ_ALL;
	if (limit <= 0 || (!pass->forced && !pass->refresh_only && ssw_throttle_rests(w->policy, start, &rest)))
		return READ_NOT_NOW;
	ssw_action_lock_leaf(w->policy, pass->leaf, AccessShareLock);
	ssw_spi_begin_as_owner(w->policy->owner, w->policy->search_path, &save);
	more = ssw_candidates_collect(w, chunk, limit);
	if (!more && chunk->phase == SSW_PHASE_DEADLINE && w->policy->row_grace && !pass->graced && pass->above == 0)
		pass->graced = ssw_candidates_graced(w, chunk);
	ssw_spi_end_as(&save);
	if (chunk->n > 0)
		ssw_candidates_read_more(w, start);
	return more ? READ_PART : READ_ALL;
}

/*
 * The next chunk, read by this worker as collector: from the cursor on, leaf by leaf and
 * phase by phase, until there are rows.  An empty one means that the pass has ended.  A
 * transaction of its own, which takes no transaction id.
 */
static void
collect(SswWork *w, SswChunk *chunk)
{
	SswPass    *pass = w->pass;
	ReadEnd		end = READ_ALL;
	List	   *leaves;
	uint32		locked;
	bool		more;

	if (!ssw_batch_begin(w))
		return;
	leaves = ssw_partition_leaves(w->policy, RowExclusiveLock, &locked);
	if (!is_counted(w, locked))
		return;
	/* it may have held groups since this worker loaded the policy */
	if (pass->fuse_trips > 0)
		ssw_fuse_load(w->policy);
	more = OidIsValid(pass->leaf) || ssw_dispenser_advance(w, leaves);
	while (more && chunk->n == 0 && end != READ_NOT_NOW)
	{
		end = read_rows(w, chunk);
		if (end == READ_ALL)
			more = ssw_dispenser_advance(w, leaves);
	}
	chunk->more = end == READ_PART;
	if (chunk->n > 0 && ssw_sweep_sql_asks(w->policy, chunk->phase))
		ssw_fuse_expect(w, leaves, chunk);
	if (chunk->n > 0 || end == READ_NOT_NOW)
		ssw_rows_left(w, leaves, chunk);
	if (end == READ_NOT_NOW)
		ssw_batch_end_pass(pass, SSW_END_SPENT, 0, NULL);
	else if (!more && chunk->n == 0 && locked != 0)
		end_locked(pass);
	else if (!more && chunk->n == 0)
		ssw_batch_end_pass(pass, SSW_END_DONE, 0, NULL);
}

/* What a death in this phase is called. */
static const char *
cleanup_type(const SswPolicy *p, SswPhase phase)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(p, phase);

	return ssw_sweep_sql_asks(p, phase) || (c && c->activity) ? "zombie" : "expired";
}

static void
aim(SswWork *w, const SswChunk *chunk)
{
	w->target.leaf = chunk->leaf;
	w->target.phase = chunk->phase;
	w->target.cutoff = w->policy->heartbeats && chunk->phase == SSW_PHASE_DEADLINE ?
		w->pass->deadline_cutoff[0] : chunk->cutoff;
	w->target.prolonged = &w->prolonged;
	w->target.full_cutoff = w->pass->full_cutoff;
	w->target.skip_locked = w->pass->skip_locked || w->singly;
	w->target.blocks = NULL;
	w->target.refresh = chunk->phase == SSW_PHASE_NULLS && w->policy->on_null == SSW_NULL_REPAIR;
	w->cleanup_type = cleanup_type(w->policy, chunk->phase);
}

/* The rows of blocks that could not be handled together. */
static void
read_blocks(SswWork *w, SswChunk *chunk)
{
	SswIdentity save;

	ssw_batch_begin_read(w, chunk->leaf, &save);
	ssw_candidates_of_blocks(w, chunk);
	ssw_batch_end_read(w, &save);
	MemoryContextSwitchTo(chunk->cxt);
}

static void
act(SswWork *w, SswChunk *chunk)
{
	int			most = PG_INT32_MAX;

	aim(w, chunk);
	if (chunk->by_blocks)
	{
		w->target.blocks = &chunk->blocks;
		if (!w->singly)
			most = ssw_run_batches_blocks(w, chunk->n);
		w->target.blocks = NULL;
		if (most == 0)
			return;
		read_blocks(w, chunk);
	}
	ssw_run_batches(w, chunk->tids, chunk->n - chunk->nslow, most);
	ssw_run_batches_slow(w, chunk->tids + chunk->n - chunk->nslow, chunk->nslow);
}

/* Hold the dispenser, and read the next chunk; false: leave the pass. */
static bool
next_chunk(SswWork *w, SswChunk *chunk)
{
	if (!ssw_dispenser_take(w))
		return false;
	for (const SswPolicyHooks *h = w->policy->hooks; h; h = h->next)
		if (h->before_collect)
			h->before_collect(w, chunk->cxt);
	/* another worker may have published checks meanwhile */
	if (ssw_dispenser_has_checks(w->pass))
		ssw_dispenser_give(w, NULL);
	else
	{
		MemoryContextSwitchTo(chunk->cxt);
		collect(w, chunk);
		ssw_spi_commit();
		ssw_batch_disarm();
		if (chunk->n > 0 && w->pass->pass_id == 0)
			ssw_batch_open_pass(w);
		MemoryContextSwitchTo(chunk->cxt);
		ssw_dispenser_give(w, chunk);
	}
	return true;
}

/*
 * Handle checks from the shared list, or a chunk of this worker's own; false: leave the
 * pass.  An error, or the end of this worker, leaves rows unhandled.
 */
static bool
handle_rows(SswWork *w, MemoryContext chunk_cxt)
{
	SswChunk	chunk = {.cxt = chunk_cxt};
	bool		checks = ssw_dispenser_has_checks(w->pass);

	MemoryContextReset(chunk_cxt);
	if (!checks && !next_chunk(w, &chunk))
		return false;
	if (!checks && (chunk.n == 0 || ssw_sweep_sql_asks(w->policy, chunk.phase)))
		return chunk.n > 0 || ssw_dispenser_has_checks(w->pass);
	w->unhandled++;
	w->left = 0;
	if (checks)
		ssw_alive_by_function(w);
	else
		act(w, &chunk);
	if (!ssw_batch_must_stop(w))
		w->unhandled--;
	if (w->left > 0 && !checks)
		ssw_dispenser_give_back(w->pass, &chunk, w->left);
	return true;
}

/*
 * Rows that is_alive must check cannot be witnesses: at the end of the pass, did none
 * of them succeed?
 */
static void
blame_policy(SswWork *w)
{
	SswFailureClass class = ssw_error_classify(ssw_failed_row_same_code(w->failures));
	ErrorData	e = {0};
	bool		none;

	if (!OidIsValid(w->policy->is_alive) || ssw_failed_row_count(w->failures) > 0 ||
		ssw_failed_row_pending(w->failures) == 0 || w->failed || w->error == NULL)
		return;
	ssw_dispenser_await_answers(w);
	if (w->pass->answered && !w->answered)
		return;
	none = w->pass->end == SSW_END_DONE && w->pass->expired + w->pass->refreshed == 0;
	if (none && ((class == SSW_FAIL_POLICY && (!w->answered || w->streak > 0)) ||
				 (class == SSW_FAIL_TRANSIENT && !w->answered && w->pass->unanswered >= SSW_DOUBT) ||
				 ((class == SSW_FAIL_ROW || class == SSW_FAIL_TRANSIENT) && w->streak >= SSW_DOUBT)))
	{
		/* w->error may be gone: batches have been since */
		ssw_failed_row_last(w->failures, &e);
		ssw_batch_fail(w, &e);
	}
}

/* Write what is known of failures, and what the next look should know. */
static void
finish(SswWork *w)
{
	bool		purge;
	uint64		met[SSW_MET_WORDS] = {0};

	blame_policy(w);
	/* another worker may have found that it is not the rows' fault */
	if (w->pass->end == SSW_END_FAILED)
		ssw_failed_row_discard(w->failures);
	ssw_failed_row_met(w->failures, w->pass->started_at, met);
	purge = ssw_dispenser_leave(w, met, ssw_failed_row_next_attempt(w->failures)) &&
		ssw_failed_row_count(w->failures) > 0;
	if (purge || ssw_failed_row_pending(w->failures) > 0)
	{
		ssw_spi_start_transaction();

		/*
		 * a session that changes the policy now decides about its failed
		 * rows, too
		 */
		if (ssw_lock_policy_batch_conditional(w->policy->id))
			ssw_failed_row_flush(w->failures, purge, w->pass->started_at, met);
		ssw_spi_commit();
	}
}

/* Load the policy and its known failures; false when it is gone. */
static bool
prepare(SswWork *w, MemoryContext cxt)
{
	Relation	rel = NULL;

	ssw_spi_start_transaction();
	MemoryContextSwitchTo(cxt);
	w->target.policy = w->policy = ssw_policy_load(w->pass->policy_id);
	if (w->policy)
	{
		ssw_batch_arm(w);
		rel = try_relation_open(w->policy->relid, AccessShareLock);
	}
	if (rel)
	{
		/*
		 * again, now that the relation stays as it is; it may be gone
		 * meanwhile
		 */
		ssw_batch_note_shape(w, rel);
		w->target.policy = w->policy = ssw_policy_load(w->pass->policy_id);
	}
	if (rel && w->policy)
	{
		char	   *trouble = ssw_policy_unusable(w->policy);

		if (trouble == NULL)
			trouble = ssw_policy_hook_trouble(w->policy);
		if (trouble)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg_internal("%s", trouble)));
		ssw_deadline_build(w->policy, rel);
		w->pass->reported_index = ssw_index_to_read(rel, w->policy);
		ssw_grace_rows(w->policy);
		ssw_fuse_load(w->policy);
		ssw_lower_bound_apply(w->policy, w->pass);
		w->failures = ssw_failed_row_load(w->policy);
	}
	if (rel)
		relation_close(rel, NoLock);
	ssw_batch_disarm();
	ssw_spi_commit();
	MemoryContextSwitchTo(cxt);
	return rel && w->policy;
}

/* Until the pass ends, or this worker leaves it; false after an error, which is in w->error. */
static bool
work(SswWork *w, MemoryContext cxt, MemoryContext chunk_cxt)
{
	volatile bool ok = false;

	PG_TRY();
	{
		if (w->failures == NULL && prepare(w, cxt))
			ssw_single_recall(w);
		if (w->failures == NULL)
			ssw_batch_end_pass(w->pass, SSW_END_STOPPED, 0, "the policy or its relation is gone");
		else
		{
			while (!ssw_batch_must_stop(w) && handle_rows(w, chunk_cxt))
				CHECK_FOR_INTERRUPTS();
			MemoryContextSwitchTo(cxt);
			finish(w);
		}
		ok = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		w->error = ssw_error_catch();
		ssw_batch_disarm();
		ssw_spi_abort();
		ssw_dispenser_give(w, NULL);
	}
	PG_END_TRY();
	return ok;
}

/*
 * After an error outside a batch, w->error: can this worker continue?  If not, it is
 * the policy's failure, unless the pass is just to be continued with less.
 */
static bool
recover(SswWork *w, MemoryContext cxt)
{
	ErrorData  *error = w->error;

	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
	{
		/* it was asked to leave */
		if (MySswProc->interrupted)
			return false;
		if (ssw_candidates_read_less(w))
		{
			ssw_batch_end_pass(w->pass, SSW_END_LIMIT, 0, NULL);
			return false;
		}
	}
	if (ssw_bad_expression_leave_out(w, cxt))
		return true;
	/* there was no time to find all rows at fault: the next pass knows these */
	if (w->failures && ssw_failed_row_pending(w->failures) > 0 && w->policy->left_out && ssw_batch_must_stop(w) && !w->out_of_time)
		return w->out_of_time = true;
	ssw_batch_fail(w, error);
	return false;
}

/* Work on a pass until it ends or this worker is asked to leave.  No error ends this process. */
void
ssw_pass_work(SswPass *pass)
{
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext, "pass", ALLOCSET_DEFAULT_SIZES);
	MemoryContext chunk_cxt = AllocSetContextCreate(cxt, "chunk", ALLOCSET_DEFAULT_SIZES);
	SswWork    *w = MemoryContextAllocZero(cxt, sizeof(SswWork));

	w->pass = pass;
	w->batch_cxt = AllocSetContextCreate(cxt, "batch", BATCH_KEEP, ALLOCSET_DEFAULT_INITSIZE, ALLOCSET_DEFAULT_MAXSIZE);
	while (!work(w, cxt, chunk_cxt) && recover(w, cxt))
		;
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(cxt);
}
