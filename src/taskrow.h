/*
 * taskrow.h
 *		What is written to a task besides its state: progress and comments.
 */
#ifndef SSW_TASKROW_H
#define SSW_TASKROW_H

extern void ssw_taskrow_said(Datum task, const int64 *done, const int64 *total, const char *message);
extern void ssw_taskrow_progress(Datum task);
extern void ssw_taskrow_comment(Datum task, const char *actor, const char *comment);

#endif							/* SSW_TASKROW_H */
