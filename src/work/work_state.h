/*
 * work_state.h
 *		What the coordinator of a database is to do for tasks, commands and appended
 *		rows, in shared memory.
 */
#ifndef SSW_WORK_STATE_H
#define SSW_WORK_STATE_H

#include "base/shmem.h"

/* The coordinator looks again after that, when another session holds what is due. */
#define SSW_LOCKED_REST_US	(100 * INT64CONST(1000))
/* Looks that read all tasks of workers have a tenth of the coordinator's time, and come at least so often. */
#define SSW_MOST_REST_US	(60 * USECS_PER_SEC)

/* Reasons why the coordinator is to look. */
#define SSW_WORK_COMMANDS		0x01	/* commands or runners have changed */
#define SSW_WORK_LEFT_OVER		0x02	/* rows of a lost worker: others held
										 * them, or they were too many */
#define SSW_WORK_APPENDED		0x04	/* rows were appended */
#define SSW_WORK_EVENTS			0x08	/* listeners are to be notified */
#define SSW_WORK_EVENTS_LOST	0x10	/* of more than memory holds */
#define SSW_WORK_TIMED			0x20	/* tasks are due at a time */

#define SSW_MAX_FAILED_ROLES	8

/* A role for which no runner could be started. */
typedef struct SswFailedStarts
{
	Oid			role;
	int			failures;		/* 0: the entry is free */
	TimestampTz not_before;		/* none is tried */
} SswFailedStarts;

/* Of a database. */
typedef struct SswWorkState
{
	int			reasons;
	TimestampTz look_at;		/* the coordinator looks then without a
								 * reason, or 0: at once */
	TimestampTz timed_at;		/* the earliest of those times since the last
								 * look */
	TimestampTz failing_since;	/* its looks fail, or 0 */
	char		error[128];

	SswFailedStarts failed[SSW_MAX_FAILED_ROLES];

	int64		appended;		/* rows since the last look */
	bool		rows_counted;	/* there was a look */
	int64		most_rows;		/* that a table had then */
	int64		flush_up_to;	/* rows up to that number are due */
} SswWorkState;

extern TimestampTz ssw_work_rest(TimestampTz began);
extern void ssw_work_init(void);
extern void ssw_work_forget(Oid database);

extern SswWorkState ssw_work_read(Oid database);
extern SswWorkState ssw_work_take(Oid database, int reasons);
extern bool ssw_work_add(Oid database, int reasons);
extern void ssw_work_signal(int reasons);
extern void ssw_work_look_by(TimestampTz at);
extern void ssw_work_looked(TimestampTz look_at, const char *error);
extern void ssw_work_look_again(void);

extern void ssw_work_runner_started(Oid database, Oid role, bool failed);
extern SswFailedStarts ssw_work_failed_starts(const SswWorkState *s, Oid role);
extern void ssw_work_runner_leaves(SswDatabase *d, SswProc *proc);

extern void ssw_work_rows_appended(int64 n);
extern void ssw_work_rows_counted(int64 most);
extern void ssw_work_flush(int64 up_to);

#endif							/* SSW_WORK_STATE_H */
