/*
 * task_shmem.h
 *		What happens to tasks, in shared memory: events for listeners, progress.
 */
#ifndef SSW_TASK_SHMEM_H
#define SSW_TASK_SHMEM_H

#include "nodes/pg_list.h"
#include "utils/uuid.h"

#include "base/ssw.h"

#define SSW_MAX_ROOM		256 /* bytes of a room's name and its end */
#define SSW_PROGRESS_LEN	128

typedef enum SswEventKind
{
	SSW_TASK_CHANGED,
	SSW_TASK_WAITS,				/* for a job */
	SSW_JOBS_CHANGED,			/* of a room */
	SSW_PROVIDERS_CHANGED		/* of a room */
} SswEventKind;

/* What listeners are to be notified of; unused bytes are zeros. */
typedef struct SswTaskEvent
{
	Oid			database;
	SswEventKind kind;
	union
	{
		pg_uuid_t	task;
		int64		job;
		char		room[SSW_MAX_ROOM];
	}			of;
} SswTaskEvent;

typedef struct SswProgressKey
{
	Oid			database;
	pg_uuid_t	task;
} SswProgressKey;

/* A task that runs, as its worker reported it. */
typedef struct SswProgress
{
	SswProgressKey key;			/* must be first */
	Oid			role;			/* of the worker */
	int			attempt;
	pg_uuid_t	worker;
	bool		stop;			/* it was asked to */
	bool		has_done;
	bool		has_total;
	TimestampTz at;
	int64		done;
	int64		total;
	char		message[SSW_PROGRESS_LEN];	/* "": none */
} SswProgress;

typedef void (*SswProgressChange) (SswProgress *p, void *arg);

extern void ssw_task_shmem_init(void);

extern bool ssw_task_shmem_post(const List *events);
extern int	ssw_task_shmem_collect(SswTaskEvent **events);
extern void ssw_task_shmem_forget(Oid database);
extern void ssw_task_shmem_tell(void);
extern uint64 ssw_task_shmem_changes(void);
extern void ssw_task_shmem_wait(uint64 since, long timeout_ms, uint32 wait_event);

extern bool ssw_task_shmem_publish(const SswProgress *p, bool command);
extern bool ssw_task_shmem_change(const SswProgressKey *key, SswProgressChange change, void *arg);
extern bool ssw_task_shmem_find(const SswProgressKey *key, SswProgress *copy);

#endif							/* SSW_TASK_SHMEM_H */
