/*
 * task_shmem.c
 *		What happens to tasks, in shared memory: events to be told, progress.
 *
 * Runs in every session and process.  Transactions post at their commit what they
 * did to tasks, jobs and providers (task_xact.c), and the coordinator of the database
 * takes that from here to tell listeners (task_notify.c): a NOTIFY in each transaction
 * would serialise all commits.
 *
 * Progress is what the worker of a task last said.  An entry goes with the next
 * change of its task; then the worker's next word looks at the row again.
 *
 * One lock guards all of it, held for a few instructions.  Fixed memory, about
 * 400 kB; a crash empties it: progress that was not written to a row is lost.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "work/task_shmem.h"

#define TRANCHE			"session_sweeper tasks"
#define MAX_TASKS		4096
#define MAX_JOBS		256
#define MAX_ROOMS		128
#define MAX_PROGRESS	1024
#define FOR_COMMANDS	256		/* more, as many as can run */
#define WAIT_PARTS		16

typedef struct TaskEvent
{
	Oid			database;
	pg_uuid_t	task;
} TaskEvent;

typedef struct JobEvent
{
	Oid			database;
	int64		job;
} JobEvent;

typedef struct Board
{
	LWLock	   *lock;
	ConditionVariable changed[WAIT_PARTS];	/* by database */
	pg_atomic_uint64 changes[WAIT_PARTS];
	int			ntasks;
	int			njobs;
	int			nrooms;
	TaskEvent	tasks[MAX_TASKS];
	JobEvent	jobs[MAX_JOBS];
	SswRoomEvent rooms[MAX_ROOMS];
} Board;

static Board *board = NULL;
static HTAB *progress;

/* In the shmem_request hook. */
void
ssw_task_shmem_request(void)
{
	RequestAddinShmemSpace(add_size(sizeof(Board), hash_estimate_size(MAX_PROGRESS + FOR_COMMANDS, sizeof(SswProgress))));
	RequestNamedLWLockTranche(TRANCHE, 1);
}

/* In the shmem_startup hook, under AddinShmemInitLock. */
void
ssw_task_shmem_startup(void)
{
	HASHCTL		ctl = {.keysize = sizeof(SswProgressKey),.entrysize = sizeof(SswProgress)};
	bool		found;

	board = ShmemInitStruct(TRANCHE, sizeof(Board), &found);
	if (!found)
	{
		board->lock = &GetNamedLWLockTranche(TRANCHE)->lock;
		board->ntasks = board->njobs = board->nrooms = 0;
		for (int i = 0; i < WAIT_PARTS; i++)
		{
			ConditionVariableInit(&board->changed[i]);
			pg_atomic_init_u64(&board->changes[i], 0);
		}
	}
	progress = ShmemInitHash("session_sweeper progress", MAX_PROGRESS + FOR_COMMANDS, MAX_PROGRESS + FOR_COMMANDS, &ctl,
							 HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* Tasks of this database have changed: wake who waits for that. */
void
ssw_task_shmem_tell(void)
{
	int			part = MyDatabaseId % WAIT_PARTS;

	pg_atomic_fetch_add_u64(&board->changes[part], 1);
	ConditionVariableBroadcast(&board->changed[part]);
}

/* How often they have, for ssw_task_shmem_wait(). */
uint64
ssw_task_shmem_changes(void)
{
	return pg_atomic_read_u64(&board->changes[MyDatabaseId % WAIT_PARTS]);
}

/* Sleep until they have changed since, or a time is over. */
void
ssw_task_shmem_wait(uint64 since, long timeout_ms, uint32 wait_event)
{
	ConditionVariable *cv = &board->changed[MyDatabaseId % WAIT_PARTS];

	ConditionVariablePrepareToSleep(cv);
	if (ssw_task_shmem_changes() == since)
		(void) ConditionVariableTimedSleep(cv, timeout_ms, wait_event);
	ConditionVariableCancelSleep();
}

static void
forget_progress(const pg_uuid_t *task)
{
	SswProgressKey key = {.database = MyDatabaseId,.task = *task};

	hash_search(progress, &key, HASH_REMOVE, NULL);
}

/* Put what the transaction did on the lists; false when there is no room. */
static bool
post_tasks(const List *tasks)
{
	ListCell   *lc;
	bool		lost = false;

	foreach(lc, tasks)
	{
		pg_uuid_t  *task = lfirst(lc);

		forget_progress(task);
		lost = lost || board->ntasks == MAX_TASKS;
		if (!lost)
			board->tasks[board->ntasks++] = (TaskEvent)
		{
			.database = MyDatabaseId,.task = *task
		};
	}
	return !lost;
}

static bool
post_jobs(const List *jobs)
{
	ListCell   *lc;

	foreach(lc, jobs)
	{
		int64		job = *(int64 *) lfirst(lc);
		int			i = 0;

		while (i < board->njobs && (board->jobs[i].job != job || board->jobs[i].database != MyDatabaseId))
			i++;
		if (i == MAX_JOBS)
			return false;
		board->jobs[i] = (JobEvent)
		{
			.database = MyDatabaseId,.job = job
		};
		board->njobs = Max(board->njobs, i + 1);
	}
	return true;
}

static bool
post_rooms(const List *rooms)
{
	ListCell   *lc;

	foreach(lc, rooms)
	{
		const SswRoomEvent *r = lfirst(lc);
		int			i = 0;

		while (i < board->nrooms && memcmp(&board->rooms[i], r, sizeof(SswRoomEvent)) != 0)
			i++;
		if (i == MAX_ROOMS)
			return false;
		board->rooms[i] = *r;
		board->nrooms = Max(board->nrooms, i + 1);
	}
	return true;
}

/* What a transaction has done is to be told; false: not all of it finds room. */
bool
ssw_task_shmem_post(const List *tasks, const List *jobs, const List *rooms)
{
	bool		fits;

	LWLockAcquire(board->lock, LW_EXCLUSIVE);
	fits = post_tasks(tasks);
	fits = post_jobs(jobs) && fits;
	fits = post_rooms(rooms) && fits;
	LWLockRelease(board->lock);
	return fits;
}

/* What the worker of a task said counts no more. */
void
ssw_task_shmem_forget_progress(const pg_uuid_t *task)
{
	LWLockAcquire(board->lock, LW_EXCLUSIVE);
	forget_progress(task);
	LWLockRelease(board->lock);
}

/*
 * Take what is to be told of a database off the lists, into told unless that is
 * null.  The lock is held.
 */
static void
take_off(Oid database, SswTold *told)
{
	int			kept = 0;

	for (int i = 0; i < board->ntasks; i++)
		if (board->tasks[i].database != database)
			board->tasks[kept++] = board->tasks[i];
		else if (told)
			told->tasks[told->ntasks++] = board->tasks[i].task;
	board->ntasks = kept;
	kept = 0;
	for (int i = 0; i < board->njobs; i++)
		if (board->jobs[i].database != database)
			board->jobs[kept++] = board->jobs[i];
		else if (told)
			told->jobs[told->njobs++] = board->jobs[i].job;
	board->njobs = kept;
	kept = 0;
	for (int i = 0; i < board->nrooms; i++)
		if (board->rooms[i].database != database)
			board->rooms[kept++] = board->rooms[i];
		else if (told)
		{
			told->kinds[told->nrooms] = board->rooms[i].kind;
			strlcpy(told->rooms[told->nrooms++], board->rooms[i].room, SSW_MAX_ROOM);
		}
	board->nrooms = kept;
}

/* In the coordinator: take what is to be told of this database. */
void
ssw_task_shmem_collect(SswTold *told)
{
	memset(told, 0, sizeof(SswTold));
	told->tasks = palloc(MAX_TASKS * sizeof(pg_uuid_t));
	told->jobs = palloc(MAX_JOBS * sizeof(int64));
	told->kinds = palloc(MAX_ROOMS * sizeof(SswRoomKind));
	told->rooms = palloc(MAX_ROOMS * sizeof(char *));
	for (int i = 0; i < MAX_ROOMS; i++)
		told->rooms[i] = palloc(SSW_MAX_ROOM);
	LWLockAcquire(board->lock, LW_EXCLUSIVE);
	take_off(MyDatabaseId, told);
	LWLockRelease(board->lock);
}

/* The database, or its extension, is gone: nobody tells. */
void
ssw_task_shmem_forget(Oid database)
{
	HASH_SEQ_STATUS seq;
	SswProgress *p;

	LWLockAcquire(board->lock, LW_EXCLUSIVE);
	take_off(database, NULL);
	hash_seq_init(&seq, progress);
	while ((p = hash_seq_search(&seq)) != NULL)
		if (p->key.database == database)
			hash_search(progress, &p->key, HASH_REMOVE, NULL);
	LWLockRelease(board->lock);
}

/*
 * What is known of a task whose row is locked; false when memory is full.  For commands
 * there is always room: theirs would have to be written in their own transactions.
 */
bool
ssw_task_shmem_publish(const SswProgress *p, bool command)
{
	SswProgress *entry;

	LWLockAcquire(board->lock, LW_EXCLUSIVE);
	entry = hash_search(progress, &p->key,
						command || hash_get_num_entries(progress) < MAX_PROGRESS ? HASH_ENTER_NULL : HASH_FIND, NULL);
	if (entry)
		*entry = *p;
	LWLockRelease(board->lock);
	return entry != NULL;
}

/* Change what is known of a task, locked; false: it is unknown. */
bool
ssw_task_shmem_change(const SswProgressKey *key, SswProgressChange change, void *arg)
{
	SswProgress *entry;

	LWLockAcquire(board->lock, LW_EXCLUSIVE);
	entry = hash_search(progress, key, HASH_FIND, NULL);
	if (entry)
		change(entry, arg);
	LWLockRelease(board->lock);
	return entry != NULL;
}

/* A copy of what is known of a task; false: nothing. */
bool
ssw_task_shmem_find(const SswProgressKey *key, SswProgress *copy)
{
	SswProgress *entry;

	LWLockAcquire(board->lock, LW_SHARED);
	entry = hash_search(progress, key, HASH_FIND, NULL);
	if (entry)
		*copy = *entry;
	LWLockRelease(board->lock);
	return entry != NULL;
}
