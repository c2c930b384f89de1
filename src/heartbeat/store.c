/*
 * store.c
 *		The heartbeats of the server, in shared memory.
 *
 * A hash table of fixed size, reserved at start: 64 bytes a session and a few
 * for its bucket.  Sessions' own backends put their heartbeats in, workers mark
 * and remove what they end; doc/heartbeats.md has the protocol, whose steps are
 * named here (H2, E1, ...).
 *
 * Each of SSW_ENTRY_PARTITIONS parts of the buckets has a lock: shared to look
 * up and to change the word of an entry, exclusive for all else.  At most one
 * of them is held at a time, for a few instructions, and nothing else is done
 * meanwhile.  Free entries are a list under a spinlock.
 *
 * A crash empties it: grace (grace.c) covers what was in it.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "base/guc.h"
#include "base/shmem.h"
#include "heartbeat/counters.h"
#include "heartbeat/store.h"

/*
 * A heartbeat so near to the row's deadline writes the row itself: the part of
 * refresh_ahead that is left when passes had their chances.
 */
#define NEAR_PART		4
#define NOBODY			0		/* no entry: numbers begin with 1 */
#define ENOUGH_ROOM		0.9		/* used of all: full no more */

typedef struct StoreHeader
{
	slock_t		mutex;			/* of the next five */
	uint32		free;			/* first of the list */
	uint32		fresh;			/* entries from here on were never used */
	uint32		used;
	int64		refused;		/* heartbeats that found no entry */
	TimestampTz full_since;		/* or 0 */
	uint32		size;			/* constant, as what follows */
	uint32		nbuckets;		/* a power of two, at least the partitions */
	LWLockPadded *locks;
	pg_atomic_uint32 stopping;	/* nobody will write them to the file any
								 * more, or yet */
} StoreHeader;

static StoreHeader *header = NULL;
static uint32 *buckets;
static SswHeartbeat *entries;

/* How many entries fit into the memory of the setting; its maximum keeps the number within 32 bits. */
static uint32
entry_count(void)
{
	int64		kb = ssw_heartbeat_memory;

	if (kb < 0)
		kb = Max(8 * 1024, Min(256 * 1024, (int64) NBuffers * (BLCKSZ / 1024) / 64));
	return Max(SSW_ENTRY_PARTITIONS, kb * 1024 / (sizeof(SswHeartbeat) + sizeof(uint32)));
}

static uint32
bucket_count(uint32 n)
{
	uint32		count = SSW_ENTRY_PARTITIONS;

	while (count <= n / 2)
		count *= 2;
	return count;
}

static void
init_store(LWLock *locks)
{
	uint32		n = entry_count();

	buckets = (uint32 *) ((char *) header + CACHELINEALIGN(sizeof(StoreHeader)));
	entries = ShmemAlloc(mul_size(n, sizeof(SswHeartbeat)));
	SpinLockInit(&header->mutex);
	header->free = NOBODY;
	header->fresh = 1;
	header->size = n;
	header->nbuckets = bucket_count(n);
	header->locks = (LWLockPadded *) locks;
	/* until the launcher runs, which writes them at a stop */
	pg_atomic_init_u32(&header->stopping, 1);
}

/* Called from _PG_init. */
void
ssw_store_init(void)
{
	uint32		n = entry_count();

	ssw_shmem_add("session_sweeper heartbeats", CACHELINEALIGN(sizeof(StoreHeader)) + mul_size(bucket_count(n), sizeof(uint32)),
				  mul_size(n, sizeof(SswHeartbeat)), SSW_ENTRY_PARTITIONS, &header, init_store);
}

static uint32
hash_key(const SswHeartbeatKey *key)
{
	return hash_bytes((const unsigned char *) key, sizeof(SswHeartbeatKey));
}

/* The lock of a bucket: neighbours have different ones. */
static LWLock *
lock_of(uint32 hash)
{
	return &header->locks[hash % SSW_ENTRY_PARTITIONS].lock;
}

static bool
same_key(const SswHeartbeatKey *a, const SswHeartbeatKey *b)
{
	return a->id.part[0] == b->id.part[0] && a->id.part[1] == b->id.part[1] &&
		a->database == b->database && a->policy_id == b->policy_id;
}

/* The link that points to the entry, or the one at the end of its bucket. */
static uint32 *
find_link(const SswHeartbeatKey *key, uint32 hash)
{
	uint32	   *link = &buckets[hash & (header->nbuckets - 1)];

	while (*link != NOBODY && !same_key(&entries[*link - 1].key, key))
		link = &entries[*link - 1].next;
	return link;
}

/* The same, with its partition locked. */
static inline uint32 *
find_link_locked(const SswHeartbeatKey *key, LWLockMode mode, LWLock **lock)
{
	uint32		hash = hash_key(key);

	*lock = lock_of(hash);
	LWLockAcquire(*lock, mode);
	return find_link(key, hash);
}

/* The entry, with its partition locked, whether there is one or not. */
static inline SswHeartbeat *
find_locked(const SswHeartbeatKey *key, LWLockMode mode, LWLock **lock)
{
	uint32		n = *find_link_locked(key, mode, lock);

	return n == NOBODY ? NULL : &entries[n - 1];
}

/* Take a free entry; NOBODY when memory is full. */
static uint32
allocate(TimestampTz now)
{
	uint32		n = NOBODY;

	SpinLockAcquire(&header->mutex);
	if (header->free != NOBODY)
	{
		n = header->free;
		header->free = entries[n - 1].next;
	}
	else if (header->fresh <= header->size)
		n = header->fresh++;
	if (n != NOBODY)
		header->used++;
	else if (header->full_since == 0)
		header->full_since = now;
	SpinLockRelease(&header->mutex);
	return n;
}

/* Unlink an entry and give it back; its partition is locked exclusively. */
static void
release(uint32 *link)
{
	uint32		n = *link;

	*link = entries[n - 1].next;
	SpinLockAcquire(&header->mutex);
	entries[n - 1].next = header->free;
	header->free = n;
	header->used--;
	if (header->used < header->size * ENOUGH_ROOM)
		header->full_since = 0;
	SpinLockRelease(&header->mutex);
}

/* How near to its deadline a row is written by the heartbeat itself. */
int64
ssw_store_margin(int64 ttl_us)
{
	return ttl_us * ssw_refresh_ahead / NEAR_PART;
}

/*
 * H1 and H2: note a heartbeat of a known session.  False when the caller must
 * look at the row: the session is unknown or marked, its row may have changed, or
 * its deadline is near; and when the session is attached to another connection.
 */
bool
ssw_store_touch(const SswHeartbeatKey *key, TimestampTz now)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_SHARED, &lock);
	bool		done = false;

	if (b && now + ssw_store_margin(b->ttl_us) < b->deadline && !SSW_ENTRY_ELSEWHERE(b->attached))
	{
		uint64		word = pg_atomic_read_u64(&b->word);

		/* never back; a failed exchange has read the word again */
		while (!done && (word & SSW_ENTRY_FLAGS) == 0)
			done = SSW_ENTRY_SEEN(word) >= now ||
				pg_atomic_compare_exchange_u64(&b->word, &word, SSW_ENTRY_WORD(now));
	}
	LWLockRelease(lock);
	if (done)
		ssw_counters_count(SSW_STAT_FAST);
	return done;
}

/*
 * S1': nothing is known, because another transaction holds the row.  A session that lived
 * at the heartbeat is not ended for one more time to live, unless its row says otherwise.
 */
void
ssw_store_spare(const SswHeartbeatKey *key, TimestampTz now)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_SHARED, &lock);

	if (b)
	{
		uint64		word = pg_atomic_read_u64(&b->word);

		while ((word & (SSW_ENTRY_MARK | SSW_ENTRY_GONE)) == 0 && SSW_ENTRY_SEEN(word) < now &&
			   SSW_ENTRY_SEEN(word) + b->ttl_us > now &&
			   !pg_atomic_compare_exchange_u64(&b->word, &word, SSW_ENTRY_WORD(now) | (word & SSW_ENTRY_LOOK)))
			;
	}
	LWLockRelease(lock);
}

/*
 * S3: what is known of a session whose row is locked, or was written by the
 * caller.  False when memory is full.  Never sets back: a heartbeat may have come
 * since, and the row's deadline been prolonged.  A mark is cleared: its owner
 * has not got the row.  A session with a heartbeat is not gone, whatever became of its
 * connection.  committed: others see the row like this.
 */
bool
ssw_store_publish(const SswHeartbeatKey *key, TimestampTz seen, int64 ttl_us, TimestampTz deadline, bool committed)
{
	LWLock	   *lock;
	uint32	   *link = find_link_locked(key, LW_EXCLUSIVE, &lock);
	SswHeartbeat *b;

	if (*link == NOBODY)
	{
		uint32		n = allocate(seen);

		if (n == NOBODY)
		{
			LWLockRelease(lock);
			return false;
		}
		b = &entries[n - 1];
		b->key = *key;
		b->deadline = DT_NOBEGIN;
		b->attached = 0;
		b->next = NOBODY;
		pg_atomic_init_u64(&b->word, SSW_ENTRY_WORD(seen));
		*link = n;
	}
	b = &entries[*link - 1];
	/* the row as it is, which the application may have set back */
	b->deadline = committed ? deadline : Max(b->deadline, deadline);
	b->ttl_us = ttl_us;
	{
		uint64		word = pg_atomic_read_u64(&b->word);
		uint64		flags = committed ? 0 : word & SSW_ENTRY_LOOK;

		/*
		 * another word than before: a process that clears its mark late must
		 * not find it again
		 */
		seen = Max(SSW_ENTRY_SEEN(word) + 1, seen);
		pg_atomic_write_u64(&b->word, SSW_ENTRY_WORD(seen) | flags);
	}
	LWLockRelease(lock);
	return true;
}

/* A copy of the entry; false when there is none. */
bool
ssw_store_find(const SswHeartbeatKey *key, SswHeartbeat *copy)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_SHARED, &lock);

	if (b)
	{
		memcpy(copy, b, sizeof(SswHeartbeat));
		pg_atomic_init_u64(&copy->word, pg_atomic_read_u64(&b->word));
	}
	LWLockRelease(lock);
	return b != NULL;
}

/*
 * E1: may the session end whose row is due?  Then it is marked, and *word is what
 * it is marked with.  Alive: its last heartbeat holds it beyond the cutoff, and
 * the row does not say otherwise: a deadline earlier than the one remembered was
 * written by the application.  By name: it ends in any case.  If gone: not when it
 * had a heartbeat since.  Locked: the caller has locked the row;
 * another process that has marked it cannot continue, and loses its mark.
 */
SswHeartbeatVerdict
ssw_store_mark(const SswHeartbeatKey *key, TimestampTz due, TimestampTz cutoff, SswHeartbeatEnd end, bool locked, uint64 *word)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_SHARED, &lock);
	SswHeartbeatVerdict verdict = end == SSW_END_IF_GONE ? SSW_VERDICT_ALIVE : SSW_VERDICT_NONE;

	if (b)
	{
		uint64		w = pg_atomic_read_u64(&b->word);

		verdict = SSW_VERDICT_NONE;
		do
		{
			uint64		marked = w | SSW_ENTRY_MARK;

			if (end == SSW_END_IF_GONE && (w & SSW_ENTRY_GONE) == 0)
			{
				verdict = SSW_VERDICT_ALIVE;
				break;
			}
			if ((w & SSW_ENTRY_MARK) && !locked)
			{
				verdict = SSW_VERDICT_BUSY;
				break;
			}
			if (w & SSW_ENTRY_MARK)
				marked += SSW_ENTRY_WORD(1);	/* so that it is not theirs */
			if (end == SSW_END_IF_DEAD && due >= b->deadline && SSW_ENTRY_SEEN(w) + b->ttl_us > cutoff)
			{
				verdict = SSW_VERDICT_ALIVE;
				break;
			}
			if (pg_atomic_compare_exchange_u64(&b->word, &w, marked))
			{
				*word = marked;
				verdict = SSW_VERDICT_MARKED;
			}
		} while (verdict == SSW_VERDICT_NONE);
	}
	LWLockRelease(lock);
	return verdict;
}

/*
 * Is the entry as we marked it?  That a connection went or came, or that the next
 * heartbeat is to look at the row, is no sign of life, and does not matter here.
 */
static bool
is_same(uint64 w, uint64 word)
{
	return ((w ^ word) & ~(SSW_ENTRY_GONE | SSW_ENTRY_LOOK)) == 0;
}

/* E3: does the entry carry our mark still?  With word 0: is there still none? */
bool
ssw_store_is_marked(const SswHeartbeatKey *key, uint64 word)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_SHARED, &lock);
	bool		result;

	result = b ? is_same(pg_atomic_read_u64(&b->word), word) : word == 0;
	LWLockRelease(lock);
	return result;
}

/*
 * E4, E4': take our mark off.  look: the session may have ended, so the next heartbeat
 * looks at the row.  What the row said stays known: one that the application has
 * shortened overrules it still.
 */
void
ssw_store_unmark(const SswHeartbeatKey *key, uint64 word, bool look)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_SHARED, &lock);

	if (b)
	{
		uint64		w = pg_atomic_read_u64(&b->word);

		while (is_same(w, word) &&
			   !pg_atomic_compare_exchange_u64(&b->word, &w, (w & ~SSW_ENTRY_MARK) | (look ? SSW_ENTRY_LOOK : 0)))
			;
	}
	LWLockRelease(lock);
}

/* E4: the session has ended: remove its entry, if it carries our mark. */
void
ssw_store_remove(const SswHeartbeatKey *key, uint64 word)
{
	LWLock	   *lock;
	uint32	   *link = find_link_locked(key, LW_EXCLUSIVE, &lock);

	if (*link != NOBODY && is_same(pg_atomic_read_u64(&entries[*link - 1].word), word))
		release(link);
	/* of a life that was undone: the row knows better */
	else if (*link != NOBODY)
		(void) pg_atomic_fetch_or_u64(&entries[*link - 1].word, SSW_ENTRY_LOOK);
	LWLockRelease(lock);
}

/*
 * The row that a heartbeat was for never came to be: remove its entry, unless
 * others have seen a row since.
 */
void
ssw_store_unpublish(const SswHeartbeatKey *key)
{
	LWLock	   *lock;
	uint32	   *link = find_link_locked(key, LW_EXCLUSIVE, &lock);

	if (*link != NOBODY)
	{
		SswHeartbeat *b = &entries[*link - 1];

		if (TIMESTAMP_IS_NOBEGIN(b->deadline) && (pg_atomic_read_u64(&b->word) & SSW_ENTRY_MARK) == 0)
			release(link);
	}
	LWLockRelease(lock);
}

/* The application shortened the row: the next heartbeat looks at it, and counts. */
void
ssw_store_look(const SswHeartbeatKey *key)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_SHARED, &lock);

	if (b)
	{
		uint64		word = pg_atomic_read_u64(&b->word);

		while ((word & SSW_ENTRY_FLAGS) == 0 &&
			   !pg_atomic_compare_exchange_u64(&b->word, &word, word | SSW_ENTRY_LOOK))
			;
	}
	LWLockRelease(lock);
}

/* Change what is known of a session, with its partition locked; false: it is unknown. */
bool
ssw_store_change(const SswHeartbeatKey *key, SswHeartbeatChange change, void *arg)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_EXCLUSIVE, &lock);

	if (b)
		change(b, arg);
	LWLockRelease(lock);
	return b != NULL;
}

/*
 * R2: the row has this deadline, and time to live, now.  When the entry has another
 * deadline than the one remembered, the row was read later, or written twice: the entry
 * gets what ends the session later, and the next heartbeat looks at the row.
 */
void
ssw_store_prolong(const SswHeartbeatKey *key, TimestampTz remembered, TimestampTz deadline, int64 ttl_us)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_EXCLUSIVE, &lock);

	if (b && b->deadline == remembered)
	{
		b->deadline = deadline;
		b->ttl_us = ttl_us != 0 ? ttl_us : b->ttl_us;
	}
	else if (b)
	{
		b->deadline = Min(b->deadline, deadline);
		b->ttl_us = Max(b->ttl_us, ttl_us);
		(void) pg_atomic_fetch_or_u64(&b->word, SSW_ENTRY_LOOK);
	}
	LWLockRelease(lock);
}

/*
 * S2: the row, which is locked, says that the session is gone: memory does not say
 * otherwise to the next heartbeat.  Once only, so that heartbeats of an
 * ended session do not clear the mark of the worker that ends it.
 */
void
ssw_store_refute(const SswHeartbeatKey *key)
{
	LWLock	   *lock;
	SswHeartbeat *b = find_locked(key, LW_EXCLUSIVE, &lock);
	uint64		word = b ? pg_atomic_read_u64(&b->word) : SSW_ENTRY_LOOK;

	/* another word than before, as in S3: a mark is cleared */
	if ((word & SSW_ENTRY_LOOK) == 0)
		pg_atomic_write_u64(&b->word, SSW_ENTRY_WORD(SSW_ENTRY_SEEN(word) + 1) |
							(word & SSW_ENTRY_FLAGS & ~SSW_ENTRY_MARK) | SSW_ENTRY_LOOK);
	LWLockRelease(lock);
}

/*
 * Show every entry of a partition, locked, to the visitor; those for which it
 * answers true are removed if that is allowed and nobody has marked them.
 */
void
ssw_store_visit(int partition, SswHeartbeatVisitor visitor, void *arg, bool may_remove)
{
	LWLock	   *lock = &header->locks[partition].lock;

	LWLockAcquire(lock, may_remove ? LW_EXCLUSIVE : LW_SHARED);
	for (uint32 bucket = partition; bucket < header->nbuckets; bucket += SSW_ENTRY_PARTITIONS)
	{
		uint32	   *link = &buckets[bucket];

		while (*link != NOBODY)
		{
			SswHeartbeat *b = &entries[*link - 1];

			if (visitor(b, arg) && may_remove && (pg_atomic_read_u64(&b->word) & SSW_ENTRY_MARK) == 0)
				release(link);
			else
				link = &b->next;
		}
	}
	LWLockRelease(lock);
}

/* How many entries there are, and how many there can be. */
void
ssw_store_counts(SswHeartbeatCounts *c)
{
	SpinLockAcquire(&header->mutex);
	c->used = header->used;
	c->refused = header->refused;
	c->full_since = header->full_since;
	SpinLockRelease(&header->mutex);
	c->most = header->size;
}

/* A heartbeat found no room, however often it was looked for. */
void
ssw_store_count_refused(void)
{
	SpinLockAcquire(&header->mutex);
	header->refused++;
	SpinLockRelease(&header->mutex);
}

/* H3: is, or was, the file being written?  Call it after ssw_store_touch(). */
bool
ssw_store_stopping(void)
{
	/* the exchange before was a full barrier, if it took place */
	pg_memory_barrier();
	return pg_atomic_read_u32(&header->stopping) != 0;
}

/* T1, T4 */
void
ssw_store_set_stopping(bool stopping)
{
	pg_atomic_write_u32(&header->stopping, stopping ? 1 : 0);
	pg_memory_barrier();
}
