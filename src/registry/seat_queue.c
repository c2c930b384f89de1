/*
 * seat_queue.c
 *		Sessions that wait for a seat, in the order in which they came.
 *
 * Runs in sessions that wait (acquire_wait.c), that acquire, and that end sessions.  The
 * first of a pool that can take a seat has the turn: it tries when it is woken, and
 * at least each second, because a seat also becomes free when its holder's time is over.
 * It is woken at the commit of an end, or of a change of the pool.  One whose owner has as
 * many as the pool allows lets those of other owners pass until then; it tries each second,
 * too.
 *
 * An acquire that does not wait gets no seat that one in the queue is to have.
 * So that one that hangs keeps no seat from others, a session counts only as long as it
 * has looked at the queue within STALE_US.
 *
 * Shares the queue of all pools, with a place for each session of the server, under its
 * own lock, held for a few instructions.  A crash empties it, and ends those who wait.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/shmem.h"
#include "registry/seat_queue.h"

PG_FUNCTION_INFO_V1(ssw_waiting);

#define STALE_US		(3 * USECS_PER_SEC)

typedef struct Waiter
{
	Oid			database;
	bool		lets_pass;		/* until a seat becomes free */
	uint64		pool;			/* a hash of its name */
	uint64		owner;			/* a hash, too */
	Latch	   *latch;
	TimestampTz looked_at;
} Waiter;

typedef struct Queue
{
	LWLock	   *lock;
	int			n;				/* a reader of 0 needs no lock */
	Waiter		waiters[FLEXIBLE_ARRAY_MEMBER]; /* in the order in which they
												 * came */
} Queue;

static Queue *queue = NULL;
static uint64 my_pool;
static uint64 my_owner;
static bool joined = false;

static void
init_queue(LWLock *lock)
{
	queue->lock = lock;
}

/* Called from _PG_init. */
void
ssw_seat_queue_init(void)
{
	/* MaxBackends is not known yet; a session waits for one seat at a time */
	Size		places = mul_size(MaxConnections + max_worker_processes + max_wal_senders, sizeof(Waiter));

	ssw_shmem_add_struct("session_sweeper seat queue", offsetof(Queue, waiters) + places, &queue, init_queue);
}

static uint64
hash_of(const char *name)
{
	return hash_bytes_extended((const unsigned char *) name, strlen(name), 0);
}

static bool
is_of(const Waiter *w, uint64 pool)
{
	return w->database == MyDatabaseId && w->pool == pool;
}

static bool
waits(const Waiter *w, uint64 pool, TimestampTz now)
{
	return is_of(w, pool) && now - w->looked_at <= STALE_US;
}

/* Can it take a seat?  The lock is held. */
static bool
counts(const Waiter *w, uint64 pool, TimestampTz now)
{
	return waits(w, pool, now) && !w->lets_pass;
}

/* The first that can, or null; the lock is held. */
static Waiter *
first_of(uint64 pool, TimestampTz now)
{
	for (int i = 0; i < queue->n; i++)
		if (counts(&queue->waiters[i], pool, now))
			return &queue->waiters[i];
	return NULL;
}

/* The place of this session, or null; the lock is held. */
static Waiter *
mine(void)
{
	for (int i = 0; joined && i < queue->n; i++)
		if (queue->waiters[i].latch == MyLatch)
			return &queue->waiters[i];
	return NULL;
}

static void
wake_first(uint64 pool)
{
	Waiter	   *w = first_of(pool, GetCurrentTimestamp());

	if (w && w->latch != MyLatch)
		SetLatch(w->latch);
}

/* Give the place up; it is the next one's turn. */
void
ssw_seat_queue_leave(void)
{
	Waiter	   *w;

	if (!joined)
		return;
	LWLockAcquire(queue->lock, LW_EXCLUSIVE);
	w = mine();
	if (w)
	{
		queue->n--;
		memmove(w, w + 1, (char *) &queue->waiters[queue->n] - (char *) w);
	}
	joined = false;
	wake_first(my_pool);
	LWLockRelease(queue->lock);
}

static void
at_exit(int code, Datum arg)
{
	ssw_seat_queue_leave();
}

/* Take a place at the end.  The caller must leave, also after an error; the end of the process does. */
void
ssw_seat_queue_join(const char *pool, const char *owner)
{
	static bool registered = false;

	if (!registered)
		on_shmem_exit(at_exit, (Datum) 0);
	registered = true;
	my_pool = hash_of(pool);
	my_owner = hash_of(owner);
	LWLockAcquire(queue->lock, LW_EXCLUSIVE);
	Assert(!joined);
	queue->waiters[queue->n++] = (Waiter)
	{
		.database = MyDatabaseId,.pool = my_pool,.owner = my_owner,.latch = MyLatch,.looked_at = GetCurrentTimestamp()
	};
	joined = true;
	LWLockRelease(queue->lock);
}

/* Does this session wait for a seat? */
bool
ssw_seat_queue_joined(void)
{
	return joined;
}

/* Is no session before this one that could take a seat, or another of its owner? */
bool
ssw_seat_queue_my_turn(void)
{
	TimestampTz now = GetCurrentTimestamp();
	Waiter	   *w;
	bool		turn = true;
	bool		lets_pass = false;

	LWLockAcquire(queue->lock, LW_EXCLUSIVE);
	w = mine();
	w->looked_at = now;
	for (const Waiter *before = queue->waiters; before < w; before++)
		if (waits(before, my_pool, now))
		{
			turn = turn && before->lets_pass && before->owner != my_owner;
			lets_pass = lets_pass || (before->lets_pass && before->owner == my_owner);
		}
	/* it could not take a seat either */
	if (lets_pass && !w->lets_pass)
	{
		w->lets_pass = true;
		wake_first(my_pool);
	}
	LWLockRelease(queue->lock);
	return turn;
}

/* This session's owner has as many seats as the pool allows: others come first until one becomes free. */
void
ssw_seat_queue_let_pass(void)
{
	LWLockAcquire(queue->lock, LW_EXCLUSIVE);
	mine()->lets_pass = true;
	wake_first(my_pool);
	LWLockRelease(queue->lock);
}

/* Until this session is woken, or the time is over. */
void
ssw_seat_queue_sleep(long timeout_ms)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Max(1, timeout_ms), ssw_wait_event("SessionSweeperSeat", wait_event));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* A seat of the pool may be free. */
void
ssw_seat_queue_wake(const char *pool)
{
	uint64		hash = hash_of(pool);

	if (queue == NULL || *(volatile int *) &queue->n == 0)
		return;
	LWLockAcquire(queue->lock, LW_EXCLUSIVE);
	for (int i = 0; i < queue->n; i++)
		if (is_of(&queue->waiters[i], hash))
			queue->waiters[i].lets_pass = false;
	wake_first(hash);
	LWLockRelease(queue->lock);
}

/* How many are to have a seat of the pool before this session; with an owner: of that owner. */
int
ssw_seat_queue_ahead(const char *pool, const char *owner)
{
	TimestampTz now;
	uint64		pool_hash;
	uint64		owner_hash;
	int			n = 0;

	if (joined || *(volatile int *) &queue->n == 0)
		return 0;
	now = GetCurrentTimestamp();
	pool_hash = hash_of(pool);
	owner_hash = owner ? hash_of(owner) : 0;
	LWLockAcquire(queue->lock, LW_SHARED);
	for (int i = 0; i < queue->n; i++)
	{
		const Waiter *w = &queue->waiters[i];

		/* one that lets others pass does not let those of its owner pass */
		n += owner ? waits(w, pool_hash, now) && w->owner == owner_hash : counts(w, pool_hash, now);
	}
	LWLockRelease(queue->lock);
	return n;
}

/* _waiting(pool) → how many sessions wait for a seat of it. */
Datum
ssw_waiting(PG_FUNCTION_ARGS)
{
	char	   *pool = text_to_cstring(PG_GETARG_TEXT_PP(0));
	uint64		hash = hash_of(pool);
	int			n = 0;

	if (queue == NULL)
		PG_RETURN_INT32(0);
	LWLockAcquire(queue->lock, LW_SHARED);
	for (int i = 0; i < queue->n; i++)
		n += is_of(&queue->waiters[i], hash);
	LWLockRelease(queue->lock);
	PG_RETURN_INT32(n);
}
