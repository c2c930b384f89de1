/*
 * board.c
 *		What happens to tasks, in shared memory: events to be told, progress.
 *
 * Runs in every session and process.  A transaction notes what it does to tasks,
 * jobs and providers; at its commit that goes to a list from which the coordinator
 * of the database tells listeners (a NOTIFY in each transaction would serialise
 * all commits), and whoever waits for a task is woken.  All of it is a hint: what
 * is noted by a subtransaction that is rolled back is told all the same, and when
 * the list is full listeners are told to read the tables.
 *
 * Progress is what the worker of a task last said.  An entry goes with the next
 * change of its task; then the worker's next word looks at the row again.
 *
 * One lock guards all of it, held for a few instructions.  Fixed memory, about
 * 400 kB; a crash empties it: progress that was not written to a row is lost.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "board.h"
#include "shmem.h"

#define TRANCHE			"session_sweeper tasks"
#define MAX_TASKS		4096
#define MAX_JOBS		256
#define MAX_ROOMS		128
#define MAX_PROGRESS	1024
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

typedef struct RoomEvent
{
	Oid			database;
	SswRoomEvent kind;
	char		room[SSW_MAX_ROOM];
} RoomEvent;

typedef struct Board
{
	LWLock	   *lock;
	ConditionVariable changed[WAIT_PARTS];	/* by database */
	int			ntasks;
	int			njobs;
	int			nrooms;
	TaskEvent	tasks[MAX_TASKS];
	JobEvent	jobs[MAX_JOBS];
	RoomEvent	rooms[MAX_ROOMS];
} Board;

static Board *board = NULL;
static HTAB *progress;

/* What the current transaction has done; in TopTransactionContext. */
static List *pending_tasks = NIL;	/* of pg_uuid_t */
static List *pending_jobs = NIL;	/* of int64 */
static List *pending_rooms = NIL;	/* of RoomEvent */
static List *pending_cancels = NIL; /* of pg_uuid_t: tasks that run */
static int64 pending_rows = 0;	/* appended */
static List *pending_roles = NIL;	/* of Oid: whose commands wait */

/* In the shmem_request hook. */
void
ssw_board_request(void)
{
	RequestAddinShmemSpace(add_size(sizeof(Board), hash_estimate_size(MAX_PROGRESS, sizeof(SswProgress))));
	RequestNamedLWLockTranche(TRANCHE, 1);
}

/* In the shmem_startup hook, under AddinShmemInitLock. */
void
ssw_board_startup(void)
{
	HASHCTL		ctl = {.keysize = sizeof(SswProgressKey),.entrysize = sizeof(SswProgress)};
	bool		found;

	board = ShmemInitStruct(TRANCHE, sizeof(Board), &found);
	if (!found)
	{
		board->lock = &GetNamedLWLockTranche(TRANCHE)->lock;
		board->ntasks = board->njobs = board->nrooms = 0;
		for (int i = 0; i < WAIT_PARTS; i++)
			ConditionVariableInit(&board->changed[i]);
	}
	progress = ShmemInitHash("session_sweeper progress", MAX_PROGRESS, MAX_PROGRESS, &ctl,
							 HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* Sleep on it for changes of this database's tasks. */
ConditionVariable *
ssw_board_changed(void)
{
	return &board->changed[MyDatabaseId % WAIT_PARTS];
}

static void
forget_progress(const pg_uuid_t * task)
{
	SswProgressKey key = {.database = MyDatabaseId,.task = *task};

	hash_search(progress, &key, HASH_REMOVE, NULL);
}

/* Put what the transaction did on the lists; false when there is no room. */
static bool
post_tasks(void)
{
	ListCell   *lc;
	bool		lost = false;

	foreach(lc, pending_tasks)
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
post_jobs(void)
{
	ListCell   *lc;

	foreach(lc, pending_jobs)
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
post_rooms(void)
{
	ListCell   *lc;

	foreach(lc, pending_rooms)
	{
		RoomEvent  *r = lfirst(lc);
		int			i = 0;

		while (i < board->nrooms && memcmp(&board->rooms[i], r, sizeof(RoomEvent)) != 0)
			i++;
		if (i == MAX_ROOMS)
			return false;
		board->rooms[i] = *r;
		board->nrooms = Max(board->nrooms, i + 1);
	}
	return true;
}

/* Have the coordinator tell it, unless it knows that there is something. */
static void
wake(bool lost)
{
	SswDatabase *d;
	bool		known;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MyDatabaseId, false);
	known = d == NULL || (d->events_pending && (!lost || d->events_lost));
	LWLockRelease(SswShared->lock);
	if (known)
		return;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	if (d)
	{
		d->events_lost = d->events_lost || lost;
		d->events_pending = true;
		ssw_shmem_wake_coordinator(MyDatabaseId);
	}
	LWLockRelease(SswShared->lock);
}

/* Commands of these roles wait: a runner that is idle takes them, or the coordinator gets one. */
static void
wake_runners(void)
{
	ListCell   *lc;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	foreach(lc, pending_roles)
	{
		Oid			role = *(Oid *) lfirst(lc);
		SswDatabase *d = ssw_shmem_database(MyDatabaseId, true);
		bool		woken = false;

		for (int i = 0; i < SswShared->nprocs && !woken; i++)
		{
			SswProc    *p = &SswProcs[i];

			if (p->state != SSW_STATE_IDLE || p->kind != SSW_PROC_RUNNER || p->database != MyDatabaseId || p->role != role || p->latch == NULL)
				continue;
			SetLatch(p->latch);
			woken = true;
		}
		if (d && !woken)
		{
			d->commands_changed = true;
			ssw_shmem_wake_coordinator(MyDatabaseId);
		}
	}
	LWLockRelease(SswShared->lock);
}

/* The first of the rows that wait, or enough of them, and the coordinator looks. */
static void
count_rows(void)
{
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, true);
	if (d)
	{
		bool		first = d->appended_since == 0;
		bool		enough = d->appended < SSW_APPENDED_ENOUGH && d->appended + pending_rows >= SSW_APPENDED_ENOUGH;

		d->appended += pending_rows;
		if (first)
			d->appended_since = GetCurrentTimestamp();
		if (first || enough)
			ssw_shmem_wake_coordinator(MyDatabaseId);
	}
	LWLockRelease(SswShared->lock);
}

/* Commands that run and are to stop: their runners see it, and the launcher when time is up. */
static void
tell_cancels(void)
{
	ListCell   *lc;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	foreach(lc, pending_cancels)
		for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (p->state != SSW_STATE_FREE && p->kind == SSW_PROC_RUNNER && p->database == MyDatabaseId && p->has_task &&
			p->cancel_since == 0 && memcmp(&p->task, lfirst(lc), UUID_LEN) == 0)
			p->cancel_since = GetCurrentTimestamp();
	}
	ssw_shmem_wake_launcher();
	LWLockRelease(SswShared->lock);
}

/*
 * What is prepared is told too early, as nobody tells at COMMIT PREPARED; but the
 * rows are locked until then, so that progress looks at them anew.
 */
static void
at_xact_end(XactEvent event, void *arg)
{
	bool		any = pending_tasks || pending_jobs || pending_rooms;

	if (any && (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE))
	{
		bool		lost;

		LWLockAcquire(board->lock, LW_EXCLUSIVE);
		lost = !post_tasks();
		lost = !post_jobs() || lost;
		lost = !post_rooms() || lost;
		LWLockRelease(board->lock);
		wake(lost);
		ConditionVariableBroadcast(ssw_board_changed());
		if (pending_roles)
			wake_runners();
		if (pending_cancels)
			tell_cancels();
	}
	if (pending_rows > 0 && (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE))
		count_rows();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE || event == XACT_EVENT_ABORT)
	{
		pending_tasks = pending_jobs = pending_rooms = pending_cancels = pending_roles = NIL;
		pending_rows = 0;
	}
}

static void
watch_transaction(void)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(at_xact_end, NULL);
	registered = true;
}

/* A copy of it in the list, until the transaction ends; if it is not there yet. */
static void
note(List **list, const void *what, Size size)
{
	MemoryContext old;
	ListCell   *lc;
	void	   *copy;
	int			n = 0;

	watch_transaction();
	/* of a few it is worth a look; twice on the list does no harm */
	foreach(lc, *list)
		if (n++ < 16 && memcmp(lfirst(lc), what, size) == 0)
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	copy = palloc(size);
	memcpy(copy, what, size);
	*list = lappend(*list, copy);
	MemoryContextSwitchTo(old);
}

/* The task's row has changed; what its worker said counts no more. */
void
ssw_board_task_changed(const pg_uuid_t * task)
{
	note(&pending_tasks, task, UUID_LEN);
	/* nor does it in the rest of this transaction */
	LWLockAcquire(board->lock, LW_EXCLUSIVE);
	forget_progress(task);
	LWLockRelease(board->lock);
}

/* It runs, and is to stop. */
void
ssw_board_task_cancelled(const pg_uuid_t * task)
{
	note(&pending_cancels, task, UUID_LEN);
}

/* A row was appended. */
void
ssw_board_row_appended(void)
{
	watch_transaction();
	pending_rows++;
}

/* Appended rows are to be written now. */
void
ssw_board_flush_now(void)
{
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, true);
	if (d)
	{
		d->appended_since = GetCurrentTimestamp();
		d->flush_all = true;
		ssw_shmem_wake_coordinator(MyDatabaseId);
	}
	LWLockRelease(SswShared->lock);
}

/* A command of the role waits. */
void
ssw_board_command_waits(Oid role)
{
	note(&pending_roles, &role, sizeof(role));
}

/* A task waits for the job. */
void
ssw_board_task_waits(int64 job)
{
	note(&pending_jobs, &job, sizeof(job));
}

/* The room has other jobs or providers. */
void
ssw_board_room_changed(SswRoomEvent kind, const char *room)
{
	RoomEvent	r;

	memset(&r, 0, sizeof(r));
	r.database = MyDatabaseId;
	r.kind = kind;
	strlcpy(r.room, room, sizeof(r.room));
	note(&pending_rooms, &r, sizeof(r));
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

/* In the coordinator: take what is to be told of this database; false: nothing. */
bool
ssw_board_collect(SswTold *told)
{
	SswDatabase *d;
	bool		pending;

	memset(told, 0, sizeof(SswTold));
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	pending = d && d->events_pending;
	if (pending)
	{
		told->lost = d->events_lost;
		d->events_pending = d->events_lost = false;
	}
	LWLockRelease(SswShared->lock);
	if (!pending)
		return false;
	told->tasks = palloc(MAX_TASKS * sizeof(pg_uuid_t));
	told->jobs = palloc(MAX_JOBS * sizeof(int64));
	told->kinds = palloc(MAX_ROOMS * sizeof(SswRoomEvent));
	told->rooms = palloc(MAX_ROOMS * sizeof(char *));
	for (int i = 0; i < MAX_ROOMS; i++)
		told->rooms[i] = palloc(SSW_MAX_ROOM);
	LWLockAcquire(board->lock, LW_EXCLUSIVE);
	take_off(MyDatabaseId, told);
	LWLockRelease(board->lock);
	return true;
}

/* The database, or its extension, is gone: nobody tells. */
void
ssw_board_forget(Oid database)
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

/* What is known of a task whose row is locked; false when memory is full. */
bool
ssw_board_publish(const SswProgress *p)
{
	SswProgress *entry;

	LWLockAcquire(board->lock, LW_EXCLUSIVE);
	entry = hash_search(progress, &p->key, HASH_ENTER_NULL, NULL);
	if (entry)
		*entry = *p;
	LWLockRelease(board->lock);
	return entry != NULL;
}

/* Change what is known of a task, locked; false: it is unknown. */
bool
ssw_board_change(const SswProgressKey *key, SswProgressChange change, void *arg)
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
ssw_board_find(const SswProgressKey *key, SswProgress *copy)
{
	SswProgress *entry;

	LWLockAcquire(board->lock, LW_SHARED);
	entry = hash_search(progress, key, HASH_FIND, NULL);
	if (entry)
		*copy = *entry;
	LWLockRelease(board->lock);
	return entry != NULL;
}
