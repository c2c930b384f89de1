/*
 * task.h
 *		Tasks: submit them, start, finish and cancel them.
 */
#ifndef SSW_TASK_H
#define SSW_TASK_H

extern void ssw_task_missing(Datum task);

#endif							/* SSW_TASK_H */
