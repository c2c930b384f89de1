/*
 * dispenser.c
 *		What the workers of a pass share: its cursor, its chunks, its end.
 *
 * Runs in workers; several may work on one pass.  One of them at a time holds the
 * dispenser: it reads the next chunk in due order, moves the cursor, and gives the
 * dispenser on before it acts on its chunk.  The cursor is the holder's.  Rows that
 * is_alive checks are a list from which each worker pulls the next one; when it is empty,
 * the holder may publish another list.
 *
 * Shares the pass: all but the cursor under SswShared->lock.  A worker that dies loses
 * its chunk; its rows are still dead, and the next pass finds them.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/compat.h"
#include "policy/sweep_sql.h"
#include "sweep/dispenser.h"
#include "sweep/drain.h"

/* Take the dispenser, to read and move the cursor; false: leave the pass. */
bool
ssw_dispenser_take(SswWork *w)
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

/*
 * The phase after this one, the first after the last.  Rows beyond their greatest
 * age come first where is_alive checks the others, which may take the whole pass.
 */
static SswPhase
phase_after(const SswPolicy *p, SswPhase phase)
{
	static const SswPhase after[2][4] = {
		{SSW_PHASE_MAX_AGE, SSW_PHASE_NULLS, SSW_PHASE_END, SSW_PHASE_DEADLINE},
		{SSW_PHASE_NULLS, SSW_PHASE_DEADLINE, SSW_PHASE_END, SSW_PHASE_MAX_AGE}
	};

	return after[OidIsValid(p->is_alive) && p->ndeadlines > 1][phase];
}

/* Move the cursor to the next leaf, phase or segment; false at the end. */
bool
ssw_dispenser_advance(SswWork *w, List *leaves)
{
	SswPass    *pass = w->pass;
	ListCell   *lc;

	pass->cursor_kind = SSW_CURSOR_NONE;
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
		return ssw_dispenser_advance(w, leaves);
	}
	return false;
}

/* The cutoff of the cursor's phase, or DT_NOBEGIN when there is nothing to do. */
TimestampTz
ssw_dispenser_cutoff(SswWork *w)
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

/* Take tokens of the rates for n rows; the caller holds the lock. */
static void
spend(SswPass *pass, const SswChunk *chunk, int64 n)
{
	if (pass->tokens >= 0)
		pass->tokens = Max(0, pass->tokens - n);
	if (chunk->backlog && pass->backlog_tokens >= 0)
		pass->backlog_tokens = Max(0, pass->backlog_tokens - n);
}

/* Fill the list that checks are pulled from. */
static void
publish_checks(SswPass *pass, const SswChunk *chunk)
{
	pass->check_leaf = chunk->leaf;
	pass->check_phase = chunk->phase;
	pass->check_cutoff = chunk->cutoff;
	memcpy(pass->check_tid, chunk->tids, chunk->n * sizeof(ItemPointerData));
	pass->check_list++;
	pass->next_check = 0;
	pass->nchecks = chunk->n;
	pass->check_slow = chunk->n - chunk->nslow;
}

/*
 * Give the dispenser on, after this chunk was read; null: none was.  Rows that is_alive
 * checks are for all workers; others are this worker's.
 */
void
ssw_dispenser_give(SswWork *w, const SswChunk *chunk)
{
	SswPass    *pass = w->pass;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	if (chunk)
	{
		pass->handed_out += chunk->n;
		pass->fuse_left -= chunk->n;
		pass->excluded += w->excluded;
		spend(pass, chunk, chunk->n);
		pass->more = chunk->more && (int64) pass->tokens != 0 && !(chunk->backlog && (int64) pass->backlog_tokens == 0);
		if (chunk->n > 0 && ssw_sweep_sql_asks(w->policy, chunk->phase))
			publish_checks(pass, chunk);
		if (pass->more || pass->nchecks > 1)
			ssw_shmem_wake_coordinator(MyDatabaseId);
	}
	if (pass->collector == MySswProc - SswProcs)
		pass->collector = -1;
	LWLockRelease(SswShared->lock);
	w->excluded = 0;
	ConditionVariableBroadcast(&pass->collector_cv);
}

/* Read without the lock: ssw_dispenser_pull_check() decides. */
bool
ssw_dispenser_has_checks(const SswPass *pass)
{
	return pass->next_check < pass->nchecks;
}

/*
 * The next row to check.  The first of a turn sets the target; the others are of the same
 * list: another worker may have published the next one, which may be of another leaf.  A
 * row that was slow before is only given as the first, because the verdicts of the turn
 * wait for it.
 */
bool
ssw_dispenser_pull_check(SswWork *w, bool first, ItemPointerData *tid)
{
	SswPass    *pass = w->pass;
	bool		got;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	if (first)
	{
		w->check_list = pass->check_list;
		w->target.leaf = pass->check_leaf;
		w->target.phase = pass->check_phase;
		w->target.cutoff = pass->check_cutoff;
	}
	if (first)
		MySswProc->asking = 0;
	got = pass->check_list == w->check_list && pass->next_check < (first ? pass->nchecks : pass->check_slow);
	if (got)
	{
		w->unhurried = pass->next_check >= pass->check_slow;
		*tid = pass->check_tid[pass->next_check++];
		MySswProc->asking++;
	}
	LWLockRelease(SswShared->lock);
	return got;
}

/* Does another worker have rows whose answers it has not added yet? */
static bool
do_others_ask(const SswPass *pass)
{
	bool		ask = false;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	for (int i = 0; i < SswShared->nprocs && !ask; i++)
		ask = &SswProcs[i] != MySswProc && SswProcs[i].pass == pass - SswPasses && SswProcs[i].asking > 0;
	LWLockRelease(SswShared->lock);
	return ask;
}

/* This worker's answers are known.  Wait for those of the others. */
void
ssw_dispenser_await_answers(SswWork *w)
{
	static uint32 wait_event = 0;

	ConditionVariableBroadcast(&w->pass->collector_cv);
	while (do_others_ask(w->pass) && !ssw_batch_must_stop(w))
		ConditionVariableTimedSleep(&w->pass->collector_cv, 100, ssw_wait_event("SessionSweeperAnswers", wait_event));
	ConditionVariableCancelSleep();
}

/*
 * Rows of a chunk that somebody holds may be many, and would keep the rate from those
 * behind them: they are given back to it.
 */
void
ssw_dispenser_give_back(SswPass *pass, const SswChunk *chunk, int64 rows)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	spend(pass, chunk, -rows);
	LWLockRelease(SswShared->lock);
}

/*
 * This worker leaves.  met has bits of the failed rows that it met, and returns those
 * of all; next is when a failed row is tried again, or 0.  True: it is the last, and
 * all dead rows were seen.
 */
bool
ssw_dispenser_leave(SswWork *w, uint64 *met, TimestampTz next)
{
	SswPass    *pass = w->pass;
	SswDrain	failed = {.failed = w->nfailed};
	SswPolicyShared *s;
	bool		all_seen;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	if (w->unhandled == 0)
		pass->unfinished--;
	all_seen = pass->end == SSW_END_DONE && !pass->refresh_only && pass->unfinished == 0;
	for (int i = 0; i < SSW_MET_WORDS; i++)
		met[i] = pass->met[i] |= met[i];
	pass->excluded += ssw_failed_row_pending(w->failures);
	pass->failed += failed.failed;
	s = ssw_shmem_policy(MyDatabaseId, w->policy->id, false);
	if (s && failed.failed > 0)
		ssw_drain_handled(s, &failed);
	w->nfailed = 0;
	MySswProc->asking = 0;
	if (next != 0 && (pass->next_due == 0 || next < pass->next_due))
		pass->next_due = next;
	LWLockRelease(SswShared->lock);
	return all_seen;
}
