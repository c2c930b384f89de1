/*
 * task_row.h
 *		The states of a task, and what else is written to its row: progress and comments.
 */
#ifndef SSW_TASK_ROW_H
#define SSW_TASK_ROW_H

#include "access/attnum.h"

#include "work/task_shmem.h"

/* Columns of sweeper.task in the order of schema/47_work.sql; new ones come last. */
enum
{
	SSW_TASK_TASK = 1, SSW_TASK_JOB, SSW_TASK_COMMAND, SSW_TASK_SUMMARY, SSW_TASK_PAYLOAD, SSW_TASK_STATUS, SSW_TASK_OWNER,
	SSW_TASK_OWNER_OID, SSW_TASK_GROUP_ROLE, SSW_TASK_WORKER, SSW_TASK_WORKER_ID, SSW_TASK_WORKER_NAME, SSW_TASK_WORKER_ROLE,
	SSW_TASK_MACHINE_ID, SSW_TASK_INCARNATION, SSW_TASK_TIME_LIMIT, SSW_TASK_MAX_RETRIES, SSW_TASK_NOT_BEFORE, SSW_TASK_ATTEMPT,
	SSW_TASK_CANCEL_REQUESTED_AT, SSW_TASK_CREATED_AT, SSW_TASK_ENQUEUED_AT, SSW_TASK_CLAIMED_AT, SSW_TASK_STARTED_AT,
	SSW_TASK_PROGRESS_AT, SSW_TASK_FINISHED_AT, SSW_TASK_CONSUMED_AT, SSW_TASK_DONE, SSW_TASK_TOTAL, SSW_TASK_MESSAGE,
	SSW_TASK_RESULT, SSW_TASK_ERROR, SSW_TASK_PRIORITY, SSW_TASK_UNIQUE_KEY, SSW_TASK_ORIGIN, SSW_TASK_COLUMNS = SSW_TASK_ORIGIN
};

/* A new value of a column, in the arrays of ssw_own_update(). */
static inline void
ssw_task_row_set(AttrNumber column, Datum value, Datum *values, bool *replace)
{
	values[column - 1] = value;
	replace[column - 1] = true;
}

extern char *ssw_task_row_states(void);
extern void ssw_task_row_check_step(const char *from, const char *to);
extern void ssw_task_row_said(Datum task, const SswProgress *p);
extern void ssw_task_row_progress(Datum task);
extern void ssw_task_row_comment(Datum task, const char *actor, const char *comment);

#endif							/* SSW_TASK_ROW_H */
