/*
 * worker_pass.c
 *		A worker's part of a pass: collect dead rows, act on them in batches.
 *
 * Runs in workers; several may work on one pass.  The pass struct in shared
 * memory is a dispenser: one worker at a time is its collector, reads the next
 * chunk of candidates in due order with a keyset cursor, moves the cursor, and
 * hands the dispenser on before it acts on its chunk.  Cursor fields belong to
 * the collector; everything else in the struct is guarded by SswShared->lock.
 *
 * A worker that dies loses its chunk, whose rows are still dead and found by
 * the next pass.  A crash leaves nothing but a row in table pass that says
 * "running"; the next coordinator closes it.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "policy/deadline.h"
#include "storage/lmgr.h"
#include "sweep/alive_check.h"
#include "sweep/fuse_hold.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "policy/partition.h"
#include "policy/policy_hooks.h"
#include "policy/sweep_sql.h"
#include "sweep/bad_expression.h"
#include "sweep/bisect.h"
#include "sweep/candidates.h"
#include "sweep/fuse.h"
#include "sweep/lower_bound.h"
#include "sweep/single_row.h"
#include "sweep/throttle.h"
#include "sweep/worker_pass.h"

/* Memory that a worker keeps from batch to batch, instead of giving it back. */
#define BATCH_KEEP	(4 * 1024 * 1024)

/* Become the one who may read and move the cursor; false: leave the pass. */
static bool
take_dispenser(SswWork *w)
{
	static uint32 wait_event = 0;
	int			me = MySswProc - SswProcs;
	bool		mine = false;
	bool		over = false;

	while (!mine && !over && !ssw_batch_must_stop(w))
	{
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		over = w->pass->end != SSW_END_NONE;
		if (!over && w->pass->collector < 0)
		{
			w->pass->collector = me;
			mine = true;
		}
		LWLockRelease(SswShared->lock);
		if (!mine && !over)
			ConditionVariableTimedSleep(&w->pass->collector_cv, 100,
										ssw_wait_event("SessionSweeperCollect", wait_event));
	}
	ConditionVariableCancelSleep();
	return mine;
}

static void
give_dispenser(SswPass *pass)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	if (pass->collector == MySswProc - SswProcs)
		pass->collector = -1;
	LWLockRelease(SswShared->lock);
	ConditionVariableBroadcast(&pass->collector_cv);
}

/*
 * The phase after this one, the first after the last.  Rows beyond their greatest
 * age go first where the others are asked about, lest these wade through them.
 */
static SswPhase
phase_after(const SswPolicy *p, SswPhase phase)
{
	bool		swap = OidIsValid(p->is_alive) && p->ndeadlines > 1;

	switch (phase)
	{
		case SSW_PHASE_DEADLINE:
			return swap ? SSW_PHASE_NULLS : SSW_PHASE_MAX_AGE;
		case SSW_PHASE_MAX_AGE:
			return swap ? SSW_PHASE_DEADLINE : SSW_PHASE_NULLS;
		case SSW_PHASE_NULLS:
			return SSW_PHASE_END;
		default:
			return swap ? SSW_PHASE_MAX_AGE : SSW_PHASE_DEADLINE;
	}
}

/* Move the cursor to the next leaf, phase or segment; false at the end. */
static bool
advance(SswWork *w, List *leaves)
{
	SswPass    *pass = w->pass;
	ListCell   *lc;

	pass->cursor_kind = SSW_CURSOR_NONE;
	pass->ranged = 0;
	pass->nblocks = 0;
	if (OidIsValid(pass->leaf) && phase_after(w->policy, pass->phase) != SSW_PHASE_END)
	{
		pass->phase = phase_after(w->policy, pass->phase);
		return true;
	}
	foreach(lc, leaves)
		if (lfirst_oid(lc) > pass->leaf)
	{
		pass->leaf = lfirst_oid(lc);
		pass->phase = phase_after(w->policy, SSW_PHASE_END);
		return true;
	}
	if (pass->backlog_before != 0 && !pass->backlog_segment && !pass->refresh_only)
	{
		pass->backlog_segment = true;
		pass->leaf = InvalidOid;
		return advance(w, leaves);
	}
	return false;
}

/* The cutoff of the cursor's phase, or DT_NOBEGIN when there is nothing to do. */
static TimestampTz
phase_cutoff(SswWork *w)
{
	SswPass    *pass = w->pass;
	TimestampTz cutoff;

	if (pass->phase == SSW_PHASE_NULLS)
		return !pass->refresh_only && w->policy->null_predicate && !pass->backlog_segment ? pass->now : DT_NOBEGIN;
	if (pass->phase - SSW_PHASE_DEADLINE >= w->policy->ndeadlines)
		return DT_NOBEGIN;
	cutoff = pass->deadline_cutoff[pass->phase - SSW_PHASE_DEADLINE];
	if (pass->phase == SSW_PHASE_DEADLINE)
		cutoff = Max(cutoff, pass->refresh_cutoff);
	if (pass->backlog_segment)
		cutoff = Min(cutoff, pass->backlog_before);
	else if (pass->backlog_before != 0 && cutoff <= pass->backlog_before)
		return DT_NOBEGIN;
	return cutoff;
}

static void
end_pass(SswPass *pass, SswPassEnd end, const char *message)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	if (pass->end == SSW_END_NONE)
	{
		pass->end = end;
		if (end == SSW_END_LOCKED)
			pass->sqlerrcode = ERRCODE_LOCK_NOT_AVAILABLE;
		if (message)
			ssw_shmem_text(pass->message, message, SSW_MESSAGE_LEN);
	}
	LWLockRelease(SswShared->lock);
}

/* The fuse counts in all that can be read; for what cannot, it does not wait for ever. */
static bool
fuse_trips(SswWork *w)
{
	uint32		others;
	List	   *leaves = ssw_partition_free_leaves(w->policy, AccessShareLock, &others);

	return ssw_fuse_trips(w, leaves, others == 0 || w->pass->locked_for_long);
}

/* Take tokens of the rates for n rows; the caller holds the lock. */
static void
spend(SswPass *pass, const SswChunk *chunk, int64 n)
{
	if (pass->tokens >= 0)
		pass->tokens = Max(0, pass->tokens - n);
	if (chunk->backlog && pass->backlog_tokens >= 0)
		pass->backlog_tokens = Max(0, pass->backlog_tokens - n);
}

/*
 * The next chunk, read by this worker as collector.  An empty one means that
 * the pass has ended.  A transaction of its own, which takes no transaction id
 * unless the pass's row must be written.
 */
static void
collect(SswWork *w, SswChunk *chunk)
{
	SswPass    *pass = w->pass;
	SswIdentity save;
	List	   *leaves;
	bool		more = true;
	uint32		others;
	SswRest		rest_now = {0};

	if (!ssw_batch_begin(w))
		return;
	leaves = ssw_partition_free_leaves(w->policy, RowExclusiveLock, &others);
	if (!pass->counted)
	{
		pass->counted = true;
		pass->left_out = others;
		if (!pass->fuse_open && fuse_trips(w))
			return;
		pass->fuse_open = true;
		ssw_fuse_recall(w);
		ssw_fuse_grace(w, leaves);
	}
	else if (others != pass->left_out)
	{
		/* what is free now may not have been counted */
		end_pass(pass, SSW_END_LOCKED, "somebody holds a lock on a partition");
		return;
	}
	ssw_fuse_recall(w);
	if (!OidIsValid(pass->leaf))
		more = advance(w, leaves);
	while (more && chunk->n == 0)
	{
		int64		limit = ssw_collect_limit(w);
		TimestampTz start = GetCurrentTimestamp();
		bool		rest = false;

		chunk->leaf = pass->leaf;
		chunk->phase = pass->phase;
		chunk->cutoff = phase_cutoff(w);
		if (!TIMESTAMP_IS_NOBEGIN(chunk->cutoff))
		{
			if (limit <= 0 || (!pass->forced && !pass->refresh_only && ssw_throttle_rests(w->policy, start, &rest_now)))
			{
				end_pass(pass, SSW_END_LIMIT, NULL);
				return;
			}
			ssw_action_lock_leaf(w->policy, pass->leaf, AccessShareLock);
			ssw_identity_become_owner(w->policy->owner, w->policy->search_path, &save);
			ssw_spi_begin();
			rest = ssw_collect(w, chunk, limit);
			ssw_spi_end();
			ssw_identity_restore(&save);
			if (chunk->n > 0)
				ssw_collect_more(w, start);
		}
		if (!rest)
			more = advance(w, leaves);
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		pass->more = rest;
		pass->estimate += chunk->n;
		pass->unfinished += chunk->n > 0;
		pass->fuse_left -= chunk->n;
		chunk->backlog = pass->backlog_segment;
		spend(pass, chunk, chunk->n);
		LWLockRelease(SswShared->lock);
	}
	if (chunk->n > 0 && ssw_stmt_asks(w->policy, chunk->phase))
		ssw_fuse_expect(w, leaves, chunk->n);
	if (chunk->n > 0 && pass->pass_id == 0)
		ssw_batch_open_pass(w);
	if (!more && chunk->n == 0)
		end_pass(pass, pass->left_out != 0 ? SSW_END_LOCKED : pass->by_index ? SSW_END_LIMIT : SSW_END_DONE,
				 pass->left_out != 0 ? "somebody holds a lock on a partition" : NULL);
	else if (pass->more)
	{
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		ssw_shmem_wake_coordinator(MyDatabaseId);
		LWLockRelease(SswShared->lock);
	}
}

/* What a death in this phase is called. */
static const char *
cleanup_type(const SswPolicy *p, SswPhase phase)
{
	const SswDeadline *c = ssw_stmt_deadline(p, phase);

	return ssw_stmt_asks(p, phase) || (c && c->activity) ? "zombie" : "expired";
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
	w->target.range = NULL;
	w->target.refresh = chunk->phase == SSW_PHASE_NULLS && w->policy->on_null == SSW_NULL_REPAIR;
	w->cleanup_type = cleanup_type(w->policy, chunk->phase);
}

/* The rows of a range that could not be handled together. */
static void
read_range(SswWork *w, SswChunk *chunk)
{
	SswIdentity save;

	w->target.range = NULL;
	ssw_spi_start_transaction();
	ssw_batch_arm(w);
	ssw_action_lock_leaf(w->policy, chunk->leaf, AccessShareLock);
	ssw_identity_become_owner(w->policy->owner, w->policy->search_path, &save);
	ssw_spi_begin();
	ssw_collect_range(w, chunk);
	ssw_spi_end();
	ssw_identity_restore(&save);
	ssw_batch_disarm();
	ssw_spi_commit();
	MemoryContextSwitchTo(chunk->cxt);
}

static void
act(SswWork *w, SswChunk *chunk)
{
	aim(w, chunk);
	if (chunk->ranged)
	{
		w->target.range = &chunk->range;
		if (!w->singly && ssw_bisect_run_range(w, chunk->n))
			return;
		read_range(w, chunk);
	}
	ssw_bisect_run(w, chunk->tids, chunk->n - chunk->nslow);
	ssw_bisect_run_slow(w, chunk->tids + chunk->n - chunk->nslow, chunk->nslow);
}

/* Fill the shared list that is_alive checks are pulled from; it is no chunk. */
static void
publish_checks(SswWork *w, const SswChunk *chunk)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	w->pass->unfinished--;
	w->pass->check_leaf = chunk->leaf;
	w->pass->check_phase = chunk->phase;
	w->pass->check_cutoff = chunk->cutoff;
	memcpy(w->pass->check_tid, chunk->tids, chunk->n * sizeof(ItemPointerData));
	w->pass->next_check = 0;
	w->pass->nchecks = chunk->n;
	w->pass->check_slow = chunk->n - chunk->nslow;
	LWLockRelease(SswShared->lock);
}

static bool
checks_left(SswPass *pass)
{
	bool		left;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	left = pass->next_check < pass->nchecks;
	LWLockRelease(SswShared->lock);
	return left;
}

/* The chunk was handled to its end; one whose worker left stays unfinished. */
static void
finish_chunk(SswWork *w)
{
	if (ssw_batch_must_stop(w))
		return;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	w->pass->unfinished--;
	LWLockRelease(SswShared->lock);
}

/* Rows that somebody holds may be many, and would keep the rate from those behind them. */
static void
give_back(SswWork *w, const SswChunk *chunk)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	spend(w->pass, chunk, -w->left);
	LWLockRelease(SswShared->lock);
}

/* One turn: a chunk of this worker's own, or checks from the shared list. */
static bool
turn(SswWork *w, MemoryContext chunk_cxt)
{
	bool		checks = OidIsValid(w->policy->is_alive);
	SswChunk	chunk = {.cxt = chunk_cxt};

	MemoryContextReset(chunk_cxt);
	if (checks && checks_left(w->pass))
	{
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		w->pass->unfinished++;
		LWLockRelease(SswShared->lock);
		ssw_alive_check_work(w);
		finish_chunk(w);
		return true;
	}
	if (!take_dispenser(w))
		return false;
	for (const SswPolicyHooks *h = w->policy->hooks; h; h = h->next)
		if (h->before_collect)
			h->before_collect(w, chunk_cxt);
	if (!(checks && checks_left(w->pass)))
	{
		MemoryContextSwitchTo(chunk_cxt);
		collect(w, &chunk);
		ssw_spi_commit();
		MemoryContextSwitchTo(chunk_cxt);
		ssw_batch_disarm();
		if (chunk.n > 0 && ssw_stmt_asks(w->policy, chunk.phase))
		{
			publish_checks(w, &chunk);
			chunk.n = -1;
		}
	}
	give_dispenser(w->pass);
	if (chunk.n > 0)
	{
		w->left = 0;
		act(w, &chunk);
		if (w->left > 0)
			give_back(w, &chunk);
		finish_chunk(w);
	}
	return chunk.n != 0 || (checks && checks_left(w->pass));
}

/*
 * Rows that is_alive must be asked about cannot be witnesses: at the end of the
 * pass, was there none that went well?
 */
static void
blame_policy(SswWork *w)
{
	SswFailureClass class = ssw_error_classify(ssw_failures_same_code(w->failures));
	bool		none;

	if (!OidIsValid(w->policy->is_alive) || ssw_failures_count(w->failures) > 0 ||
		ssw_failures_pending(w->failures) == 0 || w->failed || w->error == NULL)
		return;
	LWLockAcquire(SswShared->lock, LW_SHARED);
	none = w->pass->end == SSW_END_DONE && w->pass->expired + w->pass->refreshed == 0;
	LWLockRelease(SswShared->lock);
	if (none && ((class == SSW_FAIL_POLICY && (!w->answered || w->streak > 0)) ||
				 (class == SSW_FAIL_TRANSIENT && !w->answered && ssw_failures_pending(w->failures) >= SSW_DOUBT) ||
				 ((class == SSW_FAIL_ROW || class == SSW_FAIL_TRANSIENT) && w->streak >= SSW_DOUBT)))
		ssw_batch_fail(w, w->error);
}

/* Write what is known of failures, and what the next look should know. */
static void
finish(SswWork *w)
{
	bool		purge;
	bool		alone;
	uint64		met[SSW_MET_WORDS] = {0};
	TimestampTz next;

	blame_policy(w);
	ssw_failures_met(w->failures, w->pass->started_at, met);
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	/* the last to leave knows what all have met */
	w->pass->judging--;
	purge = w->pass->end == SSW_END_DONE && !w->pass->refresh_only && w->pass->judging == 0 &&
		w->pass->unfinished == 0 && ssw_failures_count(w->failures) > 0;
	alone = w->pass->max_workers_seen == 1;
	for (int i = 0; i < SSW_MET_WORDS; i++)
		met[i] = w->pass->met[i] |= met[i];
	w->pass->excluded += ssw_failures_pending(w->failures);
	LWLockRelease(SswShared->lock);
	next = ssw_failures_next_attempt(w->failures);
	if (purge || ssw_failures_pending(w->failures) > 0)
	{
		ssw_spi_start_transaction();
		/* who changes the policy now decides about its failed rows too */
		if (ssw_lock_policy_batch_conditional(w->policy->id))
			ssw_failures_flush(w->failures, purge, w->pass->started_at, alone ? NULL : met);
		ssw_spi_commit();
	}
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	if (next != 0 && (w->pass->next_due == 0 || next < w->pass->next_due))
		w->pass->next_due = next;
	LWLockRelease(SswShared->lock);
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
		ssw_batch_watch(w, rel);
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
		ssw_grace_rows(w->policy);
		ssw_fuse_load(w->policy);
		if (!w->pass->forced)
			ssw_lower_bound_apply(w->policy, w->pass->now);
		w->failures = ssw_failures_load(w->policy);
	}
	if (rel)
		relation_close(rel, NoLock);
	ssw_batch_disarm();
	ssw_spi_commit();
	MemoryContextSwitchTo(cxt);
	return rel && w->policy;
}

/* Turn by turn; false after an error, which is in w->error. */
static bool
work(SswWork *w, MemoryContext cxt, MemoryContext chunk_cxt, bool first)
{
	volatile bool ok = false;

	PG_TRY();
	{
		if (first && !prepare(w, cxt))
			end_pass(w->pass, SSW_END_STOPPED, "the policy or its relation is gone");
		else
		{
			if (first)
				(void) ssw_single_recall(w);
			while (!ssw_batch_must_stop(w) && turn(w, chunk_cxt))
				CHECK_FOR_INTERRUPTS();
			MemoryContextSwitchTo(cxt);
			finish(w);
		}
		ok = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		w->error = CopyErrorData();
		FlushErrorState();
		ssw_batch_disarm();
		ssw_spi_abort();
		give_dispenser(w->pass);
	}
	PG_END_TRY();
	return ok;
}

/*
 * Work on a pass until it ends or this worker is told to leave.  Whatever goes
 * wrong outside a batch is the policy's failure, never this process's end.
 */
void
ssw_pass_work(SswPass *pass)
{
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext, "pass", ALLOCSET_DEFAULT_SIZES);
	MemoryContext chunk_cxt = AllocSetContextCreate(cxt, "chunk", ALLOCSET_DEFAULT_SIZES);
	SswWork    *w = MemoryContextAllocZero(cxt, sizeof(SswWork));
	bool		ok;

	w->pass = pass;
	w->batch_cxt = AllocSetContextCreate(cxt, "batch", BATCH_KEEP, ALLOCSET_DEFAULT_INITSIZE, ALLOCSET_DEFAULT_MAXSIZE);
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	pass->judging++;
	LWLockRelease(SswShared->lock);
	ok = work(w, cxt, chunk_cxt, true);
	while (!ok)
	{
		ErrorData  *error = w->error;

		/* somebody wants it to leave, and no one is at fault */
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && MySswProc->interrupted)
			break;
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && ssw_collect_less(w))
		{
			end_pass(pass, SSW_END_LIMIT, NULL);
			break;
		}
		if (!ssw_bad_expression_leave_out(w, cxt))
		{
			/* more of them than there was time for: the next pass knows these */
			if (!(w->failures && ssw_failures_pending(w->failures) > 0 && w->policy->left_out &&
				  ssw_batch_must_stop(w) && work(w, cxt, chunk_cxt, false)))
				ssw_batch_fail(w, error);
			break;
		}
		ok = work(w, cxt, chunk_cxt, false);
	}
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(cxt);
}
