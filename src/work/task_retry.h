/*
 * task_retry.h
 *		An attempt of a task has failed: it is tried again, or fails for good.
 */
#ifndef SSW_TASK_RETRY_H
#define SSW_TASK_RETRY_H

#include "datatype/timestamp.h"

/*
 * End the attempts of tasks (t) of jobs (j) for which a condition is true, of at most
 * SSW_MOST_ENDS at once: those that were claimed first, because no index has them in that
 * order, so that the planner reads no tasks that ended long ago.  Their jobs are locked,
 * too: either drop_job() sees the task that is tried again, or this sees that the job is
 * dropped.  $1: the reason; $2: they are tried again, whatever on_worker_loss says; $3: who
 * says so; the condition has the further parameters.
 */
#define SSW_MOST_ENDS			1000

#define SSW_END_ATTEMPTS(condition) \
	"WITH lost AS MATERIALIZED (SELECT t.task, t.attempt, t.cancel_requested_at IS NOT NULL AS cancelled," \
	" ($2 OR j.on_worker_loss = 'requeue') AND t.attempt < j.max_attempts AND j.deleted_at IS NULL AND t.cancel_requested_at IS NULL AS again," \
	" clock_timestamp() + sweeper._backoff(t.attempt, j.backoff, j.max_backoff) AS again_at" \
	" FROM sweeper.task AS t JOIN sweeper.job AS j ON j.job = t.job" \
	" WHERE t.status IN ('claimed', 'running') AND t.worker IS NOT NULL AND " condition \
	" ORDER BY t.claimed_at LIMIT " CppAsString2(SSW_MOST_ENDS) " FOR NO KEY UPDATE OF t SKIP LOCKED FOR KEY SHARE OF j SKIP LOCKED)," \
	" ended AS (UPDATE sweeper.task AS t SET status = CASE WHEN lost.cancelled THEN 'cancelled' WHEN lost.again THEN 'allocated' ELSE 'failed' END," \
	" finished_at = CASE WHEN NOT lost.again THEN clock_timestamp() END, not_before = CASE WHEN lost.again THEN lost.again_at END," \
	" worker = CASE WHEN NOT lost.again THEN t.worker END, error = $1 FROM lost WHERE t.task = lost.task RETURNING t.task, t.status, t.attempt, t.not_before)," \
	" said AS (INSERT INTO sweeper.task_comment (task, actor, comment)" \
	" SELECT task, $3, CASE WHEN status = 'allocated' THEN concat('attempt ', attempt, ' failed: ', $1, E'\\nIt is tried again.')" \
	" ELSE status || ': ' || $1 END FROM ended)" \
	" SELECT task, not_before FROM ended"

/* Parameters that come before those of the condition. */
#define SSW_END_ATTEMPTS_PARAMETERS	3

extern TimestampTz ssw_task_retry_look(TimestampTz now);
extern uint64 ssw_task_retry_end(const char *sql, int nargs, const Oid *types, Datum *values);

#endif							/* SSW_TASK_RETRY_H */
