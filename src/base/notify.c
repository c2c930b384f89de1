/*
 * notify.c
 *		Notifications, as far as the server's queue has room for them.
 *
 * Runs in workers, coordinators and callers' sessions.  The queue of NOTIFY is the
 * cluster's, and a commit that finds it full fails: any session that listens and
 * does not read could stop every sweep.  So above half of it we notify nobody,
 * count what we left out, and log that once.
 *
 * Shares the count and whether the queue was too full, both atomic.  A crash empties
 * both, and the queue.
 */
#include "postgres.h"

#include "commands/async.h"
#include "fmgr.h"
#include "utils/fmgrprotos.h"

#include "base/notify.h"
#include "base/shmem.h"

/* Beyond, the server's queue is left to others. */
#define QUEUE_FULL	0.5

typedef struct NotifyState
{
	pg_atomic_uint64 skipped;
	pg_atomic_uint32 full;		/* 1: the log says so */
} NotifyState;

static NotifyState *state = NULL;

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

/* NOTIFY in the current transaction; where the queue has no room, it is counted only. */
void
ssw_notify(const char *channel, const char *payload)
{
	if (ssw_notify_has_room())
		Async_Notify(channel, payload);
	else if (ssw_shmem_available())
		pg_atomic_fetch_add_u64(&state->skipped, 1);
}

/* How many notifications were left out since the server started. */
uint64
ssw_notify_skipped(void)
{
	return pg_atomic_read_u64(&state->skipped);
}
