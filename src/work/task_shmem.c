/*
 * task_shmem.c
 *		What happens to tasks, in shared memory: events for listeners, progress.
 *
 * Runs in every session and process.  At its commit a transaction posts what it did to
 * tasks, jobs and providers (task_xact.c).  The coordinator of the database collects that
 * and notifies listeners (task_notify.c): a NOTIFY in each transaction would serialise all
 * commits.
 *
 * Progress is what the worker of a task last reported.  A change of the task removes the
 * entry; then the worker's next report reads the row again.
 *
 * Shares both under one lock, held for a few instructions; fixed memory of about 1.4 MB.  A
 * crash empties it: progress that was not written to a row is lost.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "base/shmem.h"
#include "work/task_shmem.h"

#define MAX_EVENTS		4096
#define MAX_PROGRESS	1024
#define FOR_COMMANDS	256		/* more, as many as can run */
#define WAIT_PARTS		16

typedef struct Shared
{
	LWLock	   *lock;
	ConditionVariable changed[WAIT_PARTS];	/* by database */
	pg_atomic_uint64 changes[WAIT_PARTS];
	int			nevents;
	SswTaskEvent events[MAX_EVENTS];
} Shared;

static Shared *shared = NULL;
static HTAB *progress;

static void
init_shared(LWLock *lock)
{
	HASHCTL		ctl = {.keysize = sizeof(SswProgressKey),.entrysize = sizeof(SswProgress)};

	shared->lock = lock;
	for (int i = 0; i < WAIT_PARTS; i++)
	{
		ConditionVariableInit(&shared->changed[i]);
		pg_atomic_init_u64(&shared->changes[i], 0);
	}
	progress = ShmemInitHash("session_sweeper progress", MAX_PROGRESS + FOR_COMMANDS, MAX_PROGRESS + FOR_COMMANDS, &ctl,
							 HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* Called from _PG_init. */
void
ssw_task_shmem_init(void)
{
	ssw_shmem_add("session_sweeper tasks", sizeof(Shared), hash_estimate_size(MAX_PROGRESS + FOR_COMMANDS, sizeof(SswProgress)), 1,
				  &shared, init_shared);
}

/* Tasks of this database have changed: wake the sessions that wait for that. */
void
ssw_task_shmem_tell(void)
{
	int			part = MyDatabaseId % WAIT_PARTS;

	pg_atomic_fetch_add_u64(&shared->changes[part], 1);
	ConditionVariableBroadcast(&shared->changed[part]);
}

/* How often they have, for ssw_task_shmem_wait(). */
uint64
ssw_task_shmem_changes(void)
{
	return pg_atomic_read_u64(&shared->changes[MyDatabaseId % WAIT_PARTS]);
}

/* Sleep until they have changed since, or a time is over. */
void
ssw_task_shmem_wait(uint64 since, long timeout_ms, uint32 wait_event)
{
	ConditionVariable *cv = &shared->changed[MyDatabaseId % WAIT_PARTS];

	ConditionVariablePrepareToSleep(cv);
	if (ssw_task_shmem_changes() == since)
		(void) ConditionVariableTimedSleep(cv, timeout_ms, wait_event);
	ConditionVariableCancelSleep();
}

/* The lock is held. */
static void
forget_progress(const pg_uuid_t *task)
{
	SswProgressKey key = {.database = MyDatabaseId,.task = *task};

	hash_search(progress, &key, HASH_REMOVE, NULL);
}

/*
 * Post the events (of SswTaskEvent) of a transaction; false: not all of them find room.
 * Half of the room is kept for databases whose coordinator collects them.
 */
bool
ssw_task_shmem_post(const List *events)
{
	int			most = shared->nevents + list_length(events) <= MAX_EVENTS / 2 || ssw_shmem_is_served() ? MAX_EVENTS : MAX_EVENTS / 2;
	ListCell   *lc;
	bool		fits = true;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	foreach(lc, events)
	{
		const SswTaskEvent *e = lfirst(lc);

		if (e->kind == SSW_TASK_CHANGED)
			forget_progress(&e->of.task);
		fits = shared->nevents < most;
		if (fits)
			shared->events[shared->nevents++] = *e;
	}
	LWLockRelease(shared->lock);
	return fits;
}

/* Take the events of a database away, to an array; or with null all that is known of its tasks.  Returns how many. */
static int
take_events(Oid database, SswTaskEvent *to)
{
	HASH_SEQ_STATUS seq;
	SswProgress *p;
	int			kept = 0;
	int			taken = 0;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nevents; i++)
		if (shared->events[i].database != database)
			shared->events[kept++] = shared->events[i];
		else if (to)
			to[taken++] = shared->events[i];
	shared->nevents = kept;
	if (to == NULL)
	{
		hash_seq_init(&seq, progress);
		while ((p = hash_seq_search(&seq)) != NULL)
			if (p->key.database == database)
				hash_search(progress, &p->key, HASH_REMOVE, NULL);
	}
	LWLockRelease(shared->lock);
	return taken;
}

/* In the coordinator: take the events of this database, in CurrentMemoryContext; returns how many. */
int
ssw_task_shmem_collect(SswTaskEvent **events)
{
	*events = palloc(MAX_EVENTS * sizeof(SswTaskEvent));
	return take_events(MyDatabaseId, *events);
}

/* The database, or its extension, is gone. */
void
ssw_task_shmem_forget(Oid database)
{
	(void) take_events(database, NULL);
}

static void
copy_out(SswProgress *p, void *arg)
{
	*(SswProgress *) arg = *p;
}

/* Change what is known of a task, or copy it, locked; false: it is unknown, or memory is full. */
static bool
change_progress(const SswProgressKey *key, HASHACTION action, int most, SswProgressChange change, void *arg)
{
	SswProgress *entry;

	LWLockAcquire(shared->lock, change == copy_out ? LW_SHARED : LW_EXCLUSIVE);
	entry = hash_search(progress, key, hash_get_num_entries(progress) < most ? action : HASH_FIND, NULL);
	if (entry && change)
		change(entry, arg);
	LWLockRelease(shared->lock);
	return entry != NULL;
}

static void
copy_in(SswProgress *p, void *arg)
{
	*p = *(const SswProgress *) arg;
}

/*
 * What is known of a task whose row is locked; false when memory is full.  For commands
 * there is always room: theirs would have to be written in their own transactions.
 */
bool
ssw_task_shmem_publish(const SswProgress *p, bool command)
{
	return change_progress(&p->key, HASH_ENTER_NULL, MAX_PROGRESS + (command ? FOR_COMMANDS : 0), copy_in, unconstify(SswProgress *, p));
}

bool
ssw_task_shmem_change(const SswProgressKey *key, SswProgressChange change, void *arg)
{
	return change_progress(key, HASH_FIND, 0, change, arg);
}

/* A copy of what is known of a task; false: nothing. */
bool
ssw_task_shmem_find(const SswProgressKey *key, SswProgress *copy)
{
	return change_progress(key, HASH_FIND, 0, copy_out, copy);
}
