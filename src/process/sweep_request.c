/*
 * sweep_request.c
 *		The coordinator's side of CALL sweep: what was asked, what is answered.
 *
 * Runs in the coordinator.  Requests are numbers in SswPolicyShared, under
 * SswShared->lock; an answer is kept in the watch and published after the commit
 * of the round, so that the caller sees what the round wrote.  A crash loses both;
 * the caller's session is gone then too.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "utils/timestamp.h"

#include "process/sweep_request.h"

/*
 * The newest request that was not dealt with, or 0.  With current, not one that may
 * have come after a change of the policy that the caller has not read yet.
 */
uint64
ssw_request_pending(SswWatch *w, const uint64 *current)
{
	SswPolicyShared *s;
	uint64		request = 0;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, w->policy_id, false);
	if (s && (current == NULL || s->changed_at <= *current) && s->requested > Max(s->completed, w->answered))
	{
		request = s->requested;
		w->force = w->force || s->request_force;
		w->exact = w->exact || s->request_exact;
		s->request_force = s->request_exact = false;
	}
	LWLockRelease(SswShared->lock);
	return request;
}

/*
 * To be published after the round's commit: the caller then sees the pass's row.  A
 * code other than 0 says that it did not end well, and message why; without one it
 * says why rows were left.  If it found nothing because an earlier pass was stopped after
 * the last row, that is the answer.
 */
void
ssw_request_complete(SswWatch *w, uint64 request, int64 pass_id, int code, const char *message)
{
	w->answered = request;
	w->force = false;
	w->owed = code == ERRCODE_LOCK_NOT_AVAILABLE;
	w->answer = pass_id;
	w->found = pass_id != 0 || w->unfinished;
	w->answer_code = code;
	ssw_shmem_text(w->answer_error, message, sizeof(w->answer_error));
}

/* The answer to CALL sweep from a pass that has ended. */
void
ssw_request_complete_with(SswWatch *w, uint64 request, const SswPass *pass)
{
	if (pass->end == SSW_END_FAILED || pass->end == SSW_END_LOCKED)
		ssw_request_complete(w, request, pass->pass_id, pass->sqlerrcode, pass->message);
	else if (pass->end == SSW_END_FUSE)
		ssw_request_complete(w, request, pass->pass_id, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							 psprintf("held by its fuse: %s", pass->message));
	else
		ssw_request_complete(w, request, pass->pass_id, 0,
							 w->policy->fuse_next > GetCurrentTimestamp() ? "its fuse holds some of them" : "");
}

/* Answer the requests of CALL sweep that the round has dealt with. */
void
ssw_request_answer(List *watches)
{
	ListCell   *lc;
	bool		any = false;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);
		SswPolicyShared *s;

		if (w->answered == 0)
			continue;
		s = ssw_shmem_policy(MyDatabaseId, w->policy_id, false);
		if (s)
		{
			s->completed = Max(s->completed, w->answered);
			s->last_pass_id = w->answer ? w->answer : s->last_pass_id;
			s->request_found = w->found;
			s->request_code = w->answer_code;
			strlcpy(s->request_error, w->answer_error, sizeof(s->request_error));
		}
		w->answered = 0;
		any = true;
	}
	LWLockRelease(SswShared->lock);
	if (any)
		ConditionVariableBroadcast(&SswShared->request_cv);
}
