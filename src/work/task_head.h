/*
 * task_head.h
 *		Where the tasks that wait for a job begin.
 */
#ifndef SSW_TASK_HEAD_H
#define SSW_TASK_HEAD_H

#include "utils/uuid.h"

/* What a session read, before the snapshot by which it looks for tasks. */
typedef struct SswTaskHead
{
	int64		job;
	int32		priority;
	pg_uuid_t	from;			/* no task before this one waits */
	pg_uuid_t	horizon;		/* identifiers before it are not made now */
	uint64		lowered;
} SswTaskHead;

extern void ssw_task_head_init(void);
extern SswTaskHead ssw_task_head_read(int64 job, int32 priority);
extern void ssw_task_head_seen(const SswTaskHead *read, const pg_uuid_t *first);
extern void ssw_task_head_waits(int64 job, int32 priority, const pg_uuid_t *task);

#endif							/* SSW_TASK_HEAD_H */
