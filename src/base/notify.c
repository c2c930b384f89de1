/*
 * notify.c
 *		Notifications, as far as the server's queue has room for them.
 *
 * Runs in workers, coordinators and callers' sessions.  The queue of NOTIFY is the
 * cluster's, and a commit that finds it full fails: any session that listens and
 * does not read could stop every sweep.  So above half of it we notify nobody,
 * count what we left out, and log that once.
 *
 * A transaction that has notified cannot be prepared.  So notifications wait until
 * the transaction is about to commit, and one that is prepared sends none.
 *
 * Shares the count and whether the queue was too full, both atomic.  A crash empties
 * both, and the queue.
 */
#include "postgres.h"

#include "commands/async.h"
#include "fmgr.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

#include "base/notify.h"
#include "base/shmem.h"
#include "base/xact_list.h"

/* Beyond, the server's queue is left to others. */
#define QUEUE_FULL	0.5

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

/* Where the queue has no room, they are counted only. */
static void
send(XactEvent event)
{
	ListCell   *lc;

	if (event != XACT_EVENT_PRE_COMMIT || pending.items == NIL)
		return;
	if (ssw_notify_has_room())
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
