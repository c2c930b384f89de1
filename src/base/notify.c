/*
 * notify.c
 *		Notifications, as far as the server's queue has room for them.
 *
 * Runs in workers, coordinators and callers' sessions.  The queue of NOTIFY is the
 * cluster's, and a commit that finds it full fails: any session that listens and
 * does not read could stop every sweep.  So above half of it we notify nobody,
 * count what we left out, and log that once.
 *
 * Shares the count (atomic) and whether the queue was too full, under
 * SswShared->lock.  A crash empties both, and the queue.
 */
#include "postgres.h"

#include "commands/async.h"
#include "fmgr.h"
#include "utils/fmgrprotos.h"

#include "base/notify.h"
#include "base/shmem.h"

/* Beyond, the server's queue is left to others. */
#define QUEUE_FULL	0.5

/* Is there room in the server's queue?  Logged once when there is none. */
bool
ssw_notify_has_room(void)
{
	bool		full = DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage, (Datum) 0)) > QUEUE_FULL;
	bool		was;

	if (!ssw_shmem_available() || full == SswShared->notify_full)
		return !full;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	was = SswShared->notify_full;
	SswShared->notify_full = full;
	LWLockRelease(SswShared->lock);
	if (full && !was)
		ereport(LOG,
				(errmsg("session_sweeper sends no notifications while the notification queue is more than half full"),
				 errdetail("A session listens and does not read: it may be idle in a transaction."),
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
		pg_atomic_fetch_add_u64(&SswShared->notifications_skipped, 1);
}
