/*
 * notify.c
 *		Notifications, as far as the server takes them.
 *
 * Runs in workers, coordinators and callers' sessions.  The queue of NOTIFY is the
 * cluster's, and a commit that finds it full fails: any session that listens and
 * does not read could stop every sweep.  So above half of it we notify nobody,
 * count what we left out, and log that once.
 *
 * A commit that notifies holds a lock of the whole server until it has ended, and one that
 * waits for a synchronous standby does not end.  So we take that lock ourselves, just
 * before, and leave out what would have to wait for longer than PATIENCE_MS.
 *
 * A transaction that has notified cannot be prepared.  So notifications wait until
 * the transaction is about to commit, and one that is prepared sends none.
 *
 * Shares the count and whether the queue was too full, both atomic.  A crash empties
 * both, and the queue.
 */
#include "postgres.h"

#include "catalog/pg_database.h"
#include "commands/async.h"
#include "fmgr.h"
#include "storage/lock.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/notify.h"
#include "base/shmem.h"
#include "base/xact_list.h"

/* Beyond, the server's queue is left to others. */
#define QUEUE_FULL	0.5

/* So long a commit waits for others that notify; when it did not help, the next do not wait. */
#define PATIENCE_MS		100
#define IMPATIENT_US	(5 * USECS_PER_SEC)

typedef struct NotifyState
{
	pg_atomic_uint64 skipped;
	pg_atomic_uint32 full;		/* 1: the log says so */
} NotifyState;

static NotifyState *state = NULL;

typedef struct Notification
{
	SswXactItem item;
	const char *channel;
	const char *payload;
} Notification;

static void send(XactEvent event);

static SswXactList pending = {.at_event = send};

static void
init_state(LWLock *lock)
{
	pg_atomic_init_u64(&state->skipped, 0);
	pg_atomic_init_u32(&state->full, 0);
}

void
ssw_notify_init(void)
{
	ssw_shmem_add_struct("session_sweeper notifications", sizeof(NotifyState), &state, init_state);
}

/* Is there room in the server's queue?  Logged once when there is none. */
bool
ssw_notify_has_room(void)
{
	bool		full = DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage, (Datum) 0)) > QUEUE_FULL;

	if (!ssw_shmem_available() || full == (pg_atomic_read_u32(&state->full) != 0))
		return !full;
	if (pg_atomic_exchange_u32(&state->full, full) == 0 && full)
		ereport(LOG,
				(errmsg("session_sweeper sends no notifications while the notification queue is more than half full"),
				 errdetail("A session that listens does not read its notifications: it may be idle in a transaction."),
				 errhint("See pg_stat_activity for old transactions of sessions that LISTEN.")));
	return !full;
}

/* May this transaction notify, without waiting for others?  Then it can until it ends. */
bool
ssw_notify_lock(void)
{
	LOCKTAG		tag;

	/* as PreCommit_Notify() */
	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, InvalidOid, 0);
	return LockAcquire(&tag, AccessExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* The same, but wait a little. */
static bool
lock_soon(void)
{
	static TimestampTz failed_at = 0;
	TimestampTz now = GetCurrentTimestamp();
	int			patience = failed_at <= now && now < failed_at + IMPATIENT_US ? 0 : PATIENCE_MS;

	for (int ms = 0; !ssw_notify_lock(); ms++)
	{
		if (ms >= patience)
		{
			if (patience > 0)
				ereport(LOG,
						(errmsg("session_sweeper left out notifications because another session holds the lock of NOTIFY"),
						 errhint("To find it: SELECT * FROM pg_locks WHERE locktype = 'object' AND database = 0::oid AND classid = 'pg_database'::regclass::oid AND objid = 0::oid;")));
			failed_at = GetCurrentTimestamp();
			return false;
		}
		pg_usleep(1000);
	}
	failed_at = 0;
	return true;
}

/* Those that cannot be sent are counted only. */
static void
send(XactEvent event)
{
	ListCell   *lc;

	if (event != XACT_EVENT_PRE_COMMIT || pending.items == NIL)
		return;
	if (ssw_notify_has_room() && lock_soon())
		foreach(lc, pending.items)
			Async_Notify(((Notification *) lfirst(lc))->channel, ((Notification *) lfirst(lc))->payload);
	else if (ssw_shmem_available())
		pg_atomic_fetch_add_u64(&state->skipped, list_length(pending.items));
}

/* NOTIFY when the current transaction commits, unless it is prepared. */
void
ssw_notify(const char *channel, const char *payload)
{
	Notification *n = ssw_xact_list_add(&pending, sizeof(Notification));

	n->channel = MemoryContextStrdup(TopTransactionContext, channel);
	n->payload = MemoryContextStrdup(TopTransactionContext, payload);
}

/* How many notifications were left out since the server started. */
uint64
ssw_notify_skipped(void)
{
	return pg_atomic_read_u64(&state->skipped);
}
