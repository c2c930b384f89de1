/*
 * task_row.h
 *		The states of a task, and what else is written to its row: progress and comments.
 */
#ifndef SSW_TASK_ROW_H
#define SSW_TASK_ROW_H

#include "work/task_shmem.h"

extern void ssw_task_row_said(Datum task, const SswProgress *p);
extern void ssw_task_row_progress(Datum task);
extern void ssw_task_row_comment(Datum task, const char *actor, const char *comment);

#endif							/* SSW_TASK_ROW_H */
