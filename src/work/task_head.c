/*
 * task_head.c
 *		Where the tasks that wait for a job begin.
 *
 * A snapshot that somebody holds keeps the index entries of tasks that were claimed since,
 * and each claim would walk over all of them.  So shared memory remembers, for each job and
 * priority, a task before which none waits, and claims begin there.
 *
 * Runs in sessions that claim, and at the commit of what makes tasks wait (task_xact.c).
 * A claim reads the place and the counter of its slot before it takes its snapshot.  Then
 * it writes the first task that the snapshot sees, unless the counter has moved: a task that
 * another session is just claiming is seen, so an abort needs nothing.  For the same reason
 * a transaction that has changed tasks writes nothing.  The commit of a
 * task that is older than HORIZON_US moves the place back, and the counter on.  A place is
 * never later than HORIZON_US before the claim, so younger tasks need not do that: either
 * they were committed before the snapshot, or they are behind the place.
 *
 * It is a hint for whatever else writes the table, as a restore does, or for a clock that is
 * set back: once in LIFE_US one claim begins at the first entry.
 *
 * Shares an array of places under a lock of its own, held for a few instructions; those
 * with the same slot overwrite each other's place.  A crash empties it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "work/task_head.h"
#include "work/task_id.h"

#define HEADS		1024
#define HORIZON_US	(100 * 1000)
#define LIFE_US		(60 * USECS_PER_SEC)

typedef struct Head
{
	uint64		lowered;		/* how often a place of this slot moved back */
	Oid			database;
	int32		priority;
	int64		job;
	pg_uuid_t	from;
	TimestampTz walked_at;		/* from the first entry */
} Head;

typedef struct Shared
{
	LWLock	   *lock;
	Head		heads[HEADS];
} Shared;

static Shared *shared = NULL;

static void
init_shared(LWLock *lock)
{
	shared->lock = lock;
}

void
ssw_task_head_init(void)
{
	ssw_shmem_add_struct("session_sweeper task heads", sizeof(Shared), &shared, init_shared);
}

/* The slot of a job and priority, locked. */
static Head *
lock_slot(int64 job, int32 priority)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	return &shared->heads[((uint64) job + MyDatabaseId + (uint32) priority * 31) % HEADS];
}

static bool
is_of(const Head *h, int64 job, int32 priority)
{
	return h->database == MyDatabaseId && h->job == job && h->priority == priority;
}

/* Where a claim with a snapshot that is still to be taken may begin. */
SswTaskHead
ssw_task_head_read(int64 job, int32 priority)
{
	TimestampTz now = GetCurrentTimestamp();
	SswTaskHead read = {.job = job,.priority = priority,.horizon = ssw_task_first_identifier(now - HORIZON_US)};
	Head	   *h = lock_slot(job, priority);

	if (!is_of(h, job, priority))
	{
		h->database = MyDatabaseId;
		h->job = job;
		h->priority = priority;
		h->from = read.from;	/* zeros */
		h->walked_at = now;
	}
	else if (now < h->walked_at || now - h->walked_at > LIFE_US)
		h->walked_at = now;		/* this claim walks, others do not */
	else
		read.from = h->from;
	read.lowered = h->lowered;
	LWLockRelease(shared->lock);
	return read;
}

/* The first task that this claim's snapshot saw waiting; null: none. */
void
ssw_task_head_seen(const SswTaskHead *read, const pg_uuid_t *first)
{
	const pg_uuid_t *from = first && memcmp(first, &read->horizon, UUID_LEN) < 0 ? first : &read->horizon;
	Head	   *h = lock_slot(read->job, read->priority);

	/* a claim that walks may have found an earlier one meanwhile */
	if (is_of(h, read->job, read->priority) && h->lowered == read->lowered && memcmp(&h->from, &read->from, UUID_LEN) >= 0)
		h->from = *from;
	LWLockRelease(shared->lock);
}

/* A task that waits for the job has just been committed. */
void
ssw_task_head_waits(int64 job, int32 priority, const pg_uuid_t *task)
{
	pg_uuid_t	horizon = ssw_task_first_identifier(GetCurrentTimestamp() - HORIZON_US);
	Head	   *h = lock_slot(job, priority);
	bool		before = is_of(h, job, priority) && memcmp(task, &h->from, UUID_LEN) < 0;

	if (before)
		h->from = *task;
	if (before || memcmp(task, &horizon, UUID_LEN) <= 0)
		h->lowered++;
	LWLockRelease(shared->lock);
}
