/*
 * attach.c
 *		Sessions that are attached to a connection, and end with it.
 *
 * Runs in clients' sessions.  An attachment is a number, given at the commit of
 * the transaction that called attach(), in the session's entry in shared memory
 * and in a list of this process.  The number contains the process: a heartbeat by
 * another process, or its attach(), removes the attachment.  So does a new one.
 *
 * The exit callback marks the sessions that still have their numbers, posts their
 * keys to a list in shared memory and wakes the coordinator; disconnect.c ends them.
 * A database has at most SSW_MAX_DISCONNECTED posts.  The callback runs when the
 * process's transaction has ended, and with it its locks; it allocates nothing, reads
 * no catalog and raises no error.  Connections that end because the server is being
 * stopped say nothing of their clients.  See doc/heartbeats.md: C1 to C5.
 *
 * Shares the heartbeats (store.c) and the list of posts, which has its own lock.  A
 * crash calls no callback, and empties both.
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/pidfile.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "heartbeat/attach.h"

/* More than the lines of the postmaster's file take. */
#define PIDFILE_SIZE	(4 * MAXPGPATH)

#define FIRST_ROOM		8

/* Of all databases together. */
#define MAX_POSTS		(8 * SSW_MAX_DISCONNECTED)

/* A session whose connection has gone. */
typedef struct Post
{
	uint64		number;
	SswHeartbeatKey key;
} Post;

typedef struct Shared
{
	LWLock	   *lock;
	pg_atomic_uint32 logged_detached;	/* 1: the log says that one was
										 * detached */
	uint64		last_number;	/* of posts */
	int			nposts;
	Post		posts[MAX_POSTS];	/* in the order of their numbers */
} Shared;

static Shared *shared = NULL;

typedef struct Attached
{
	SswHeartbeatKey key;
	uint64		attachment;
} Attached;

static Attached *attached = NULL;	/* in TopMemoryContext */
static int	nattached = 0;
static int	attached_max = 0;
static int	pending = 0;		/* attached when their transactions commit */

static void
attach(SswHeartbeat *b, void *attachment)
{
	b->attached = *(uint64 *) attachment;
	(void) pg_atomic_fetch_and_u64(&b->word, ~SSW_ENTRY_GONE);
}

/* What a connection leaves behind. */
typedef struct Leave
{
	uint64		attachment;
	TimestampTz now;
	bool		gone;
} Leave;

/*
 * The connection was a sign of life until now, unless the session was dead before.  A
 * worker that is just ending the session does not count that as a heartbeat.
 */
static void
detach(SswHeartbeat *b, void *arg)
{
	Leave	   *l = arg;
	uint64		word = pg_atomic_read_u64(&b->word);
	TimestampTz seen = SSW_ENTRY_SEEN(word);

	l->gone = b->attached == l->attachment;
	if (!l->gone)
		return;
	b->attached = 0;
	if (seen + b->ttl_us > l->now && (word & SSW_ENTRY_MARK) == 0)
		seen = Max(seen, l->now);
	pg_atomic_write_u64(&b->word, SSW_ENTRY_WORD(seen) | (word & SSW_ENTRY_FLAGS) | SSW_ENTRY_GONE);
}

/* Nothing is left that would end with the connection. */
static void
forget_gone(SswHeartbeat *b, void *arg)
{
	uint64		word = pg_atomic_read_u64(&b->word);

	if (word & SSW_ENTRY_GONE)
		pg_atomic_write_u64(&b->word, (word & ~SSW_ENTRY_GONE) | SSW_ENTRY_LOOK);
}

static void
init_shared(LWLock *lock)
{
	shared->lock = lock;
	pg_atomic_init_u32(&shared->logged_detached, 0);
}

void
ssw_attach_init(void)
{
	ssw_shmem_add_struct("session_sweeper attachments", sizeof(Shared), &shared, init_shared);
}

/*
 * C4: post sessions of this database whose connection has gone.  What finds no room
 * ends when its time to live is over.
 */
static void
post(const Attached *gone, int count)
{
	int			posted = 0;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nposts; i++)
		posted += shared->posts[i].key.database == MyDatabaseId;
	for (int i = 0; i < count && posted < SSW_MAX_DISCONNECTED && shared->nposts < MAX_POSTS; i++, posted++)
		shared->posts[shared->nposts++] = (Post)
	{
		.number = ++shared->last_number,.key = gone[i].key
	};
	LWLockRelease(shared->lock);
	ssw_shmem_wake_own_coordinator();
}

/*
 * How many sessions of this database are posted, and the number of the last post, or 0.
 * Their keys are copied to keys, which has room for SSW_MAX_DISCONNECTED or is null.
 */
int
ssw_attach_posted(SswHeartbeatKey *keys, uint64 *last)
{
	int			n_posted = 0;

	*last = 0;
	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < shared->nposts; i++)
		if (shared->posts[i].key.database == MyDatabaseId)
		{
			if (keys)
				keys[n_posted] = shared->posts[i].key;
			n_posted++;
			*last = shared->posts[i].number;
		}
	LWLockRelease(shared->lock);
	return n_posted;
}

/* Remove the database's first so many posts, but those that stay; no other process removes them. */
static void
remove_posts(Oid database, int first, const bool *stays)
{
	int			kept = 0;
	int			seen = 0;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->nposts; i++)
		if (shared->posts[i].key.database != database || seen++ >= first || (stays && stays[seen - 1]))
			shared->posts[kept++] = shared->posts[i];
	shared->nposts = kept;
	LWLockRelease(shared->lock);
}

/* Remove the posts with these keys, which are the first ones, unless the session still is to end. */
void
ssw_attach_settle(const SswHeartbeatKey *keys, int nkeys)
{
	bool	   *stays = palloc(nkeys * sizeof(bool));

	for (int i = 0; i < nkeys; i++)
	{
		SswHeartbeat b;

		stays[i] = ssw_store_find(&keys[i], &b) && (pg_atomic_read_u64(&b.word) & SSW_ENTRY_GONE) != 0;
	}
	remove_posts(MyDatabaseId, nkeys, stays);
}

/* The database, or its extension, is gone. */
void
ssw_attach_forget(Oid database)
{
	remove_posts(database, INT_MAX, NULL);
}

/*
 * Is the server being stopped?  The postmaster writes so to its file before it
 * ends any process.  When the file cannot be read nobody knows.
 */
bool
ssw_attach_is_stopping(void)
{
	char		buf[PIDFILE_SIZE];
	int			fd = open("postmaster.pid", O_RDONLY | PG_BINARY, 0);
	ssize_t		len;
	char	   *line = buf;

	if (fd < 0)
		return true;
	len = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	buf[Max(0, len)] = '\0';
	for (int i = 1; i < LOCK_FILE_LINE_PM_STATUS && line; i++)
	{
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	return line == NULL || strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
}

/* C3: this process leaves its sessions. */
static void
at_exit(int code, Datum arg)
{
	int			ngone = 0;

	if (nattached == 0 || ssw_attach_is_stopping())
		return;
	LWLockReleaseAll();
	for (int i = 0; i < nattached; i++)
	{
		Leave		l = {.attachment = attached[i].attachment,.now = GetCurrentTimestamp()};

		(void) ssw_store_change(&attached[i].key, detach, &l);
		if (l.gone)
			attached[ngone++] = attached[i];
	}
	if (ngone > 0)
		post(attached, ngone);
}

/* Forget those that have ended, or were attached again. */
static void
prune(void)
{
	int			kept = 0;

	for (int i = 0; i < nattached; i++)
	{
		SswHeartbeat b;

		if (ssw_store_find(&attached[i].key, &b) && b.attached == attached[i].attachment)
			attached[kept++] = attached[i];
	}
	nattached = kept;
}

/* C1: this transaction attaches one more, if it commits, when there is no way to fail: make room. */
void
ssw_attach_begin(void)
{
	if (attached_max == 0)
	{
		attached = MemoryContextAlloc(TopMemoryContext, FIRST_ROOM * sizeof(Attached));
		on_shmem_exit(at_exit, (Datum) 0);
		attached_max = FIRST_ROOM;
	}
	if (nattached + pending >= attached_max)
		prune();
	if (nattached + pending >= attached_max / 2)	/* it would soon be full
													 * again */
	{
		attached = repalloc_huge(attached, 2 * (Size) attached_max * sizeof(Attached));
		attached_max *= 2;
	}
	pending++;
}

/* C2: the transaction has committed.  The session may have ended meanwhile. */
void
ssw_attach_commit(const SswHeartbeatKey *key)
{
	static uint64 given = 0;
	uint64		attachment = ++given << SSW_ENTRY_PID_BITS | (uint64) MyProcPid;

	pending--;
	if (ssw_store_change(key, attach, &attachment))
		attached[nattached++] = (Attached)
	{
		*key, attachment
	};
}

/* C2': it was undone. */
void
ssw_attach_abort(void)
{
	pending--;
}

static void
leave(SswHeartbeat *b, void *left)
{
	*(bool *) left = SSW_ENTRY_ELSEWHERE(b->attached);
	if (*(bool *) left)
		b->attached = 0;
}

/*
 * C1, C5: attach() or a heartbeat comes by this connection.  If the session is attached to
 * another one, the end of that says nothing any more.  True: it was.
 */
bool
ssw_attach_leave(const SswHeartbeatKey *key, bool heartbeat)
{
	SswHeartbeat b;
	bool		left = false;

	if (ssw_store_find(key, &b) && SSW_ENTRY_ELSEWHERE(b.attached))
		(void) ssw_store_change(key, leave, &left);
	if (left && heartbeat && pg_atomic_exchange_u32(&shared->logged_detached, 1) == 0)
		ereport(LOG,
				(errmsg("detached a session from its connection: a heartbeat for it came from another connection"),
				 errdetail("The session now depends on its heartbeats. This is logged once."),
				 errhint("Attach on the connection that sends the heartbeats, or turn \"session_sweeper.allow_attach\" off for roles that connect through a pooler.")));
	return left;
}

/* There is no row any more that would end with the connection. */
void
ssw_attach_not_gone(const SswHeartbeatKey *key)
{
	(void) ssw_store_change(key, forget_gone, NULL);
}
