/*
 * board.h
 *		What happens to tasks, in shared memory: events to be told, progress.
 */
#ifndef SSW_BOARD_H
#define SSW_BOARD_H

#include "storage/condition_variable.h"
#include "utils/uuid.h"

#include "ssw.h"

#define SSW_MAX_ROOM		256 /* bytes of a room's name and its end */
#define SSW_PROGRESS_LEN	128
#define SSW_APPENDED_ENOUGH	1000	/* rows that are written before their time */

typedef enum SswRoomEvent
{
	SSW_JOBS_CHANGED,
	SSW_PROVIDERS_CHANGED
} SswRoomEvent;

/* What is to be told of a database, in CurrentMemoryContext. */
typedef struct SswTold
{
	int			ntasks;
	pg_uuid_t  *tasks;
	int			njobs;			/* for which tasks wait */
	int64	   *jobs;
	int			nrooms;
	SswRoomEvent *kinds;
	char	  **rooms;
	bool		lost;			/* there was more than memory holds */
} SswTold;

typedef struct SswProgressKey
{
	Oid			database;
	pg_uuid_t	task;
} SswProgressKey;

/* A task that runs, as its worker tells it. */
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

extern void ssw_board_request(void);
extern void ssw_board_startup(void);

extern void ssw_board_task_changed(const pg_uuid_t * task);
extern void ssw_board_task_waits(int64 job);
extern void ssw_board_room_changed(SswRoomEvent kind, const char *room);
extern void ssw_board_task_cancelled(const pg_uuid_t * task);
extern void ssw_board_command_waits(Oid role);
extern void ssw_board_row_appended(void);
extern void ssw_board_flush_now(void);
extern bool ssw_board_collect(SswTold *told);
extern void ssw_board_forget(Oid database);
extern ConditionVariable *ssw_board_changed(void);

extern bool ssw_board_publish(const SswProgress *p);
extern bool ssw_board_change(const SswProgressKey *key, SswProgressChange change, void *arg);
extern bool ssw_board_find(const SswProgressKey *key, SswProgress *copy);

#endif							/* SSW_BOARD_H */
