/*
 * work_state.c
 *		What the coordinator of a database is to do for tasks, commands and appended
 *		rows, in shared memory.
 *
 * Every process may call it.  Sessions say at their commit what has changed
 * (task_xact.c); the coordinator takes that and looks at the tables (command_queue.c,
 * append_demand.c, task_notify.c).
 *
 * Shares an entry for each database, under a lock of its own, which is held for a few
 * instructions; it may be taken while SswShared->lock is held, not the other way round.
 * A crash empties it: the tables have the facts, and the first coordinator looks.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "work/work_state.h"

#define ENOUGH_ROWS		1000	/* appended ones that are written before their
								 * time */
#define MAX_FAILED_WAIT	60		/* seconds */

typedef struct Shared
{
	LWLock	   *lock;
	int			n;
	Oid			database[SSW_MAX_DATABASES];	/* invalid: free */
	SswWorkState state[SSW_MAX_DATABASES + 1];	/* the last one is for those
												 * that find no room */
} Shared;

static Shared *shared = NULL;

static void
init_shared(LWLock *lock)
{
	shared->lock = lock;
}

void
ssw_work_init(void)
{
	ssw_shmem_add_struct("session_sweeper work", sizeof(Shared), &shared, init_shared);
}

/* The entry of a database, locked: unlock() follows in a few instructions. */
static SswWorkState *
lock_state(Oid database)
{
	int			found = SSW_MAX_DATABASES;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->n; i++)
	{
		if (shared->database[i] == database)
			return &shared->state[i];
		if (!OidIsValid(shared->database[i]))
			found = i;
	}
	if (found == SSW_MAX_DATABASES && shared->n < SSW_MAX_DATABASES)
		found = shared->n++;
	memset(&shared->state[found], 0, sizeof(SswWorkState));
	if (found < SSW_MAX_DATABASES)
		shared->database[found] = database;
	return &shared->state[found];
}

static void
unlock(void)
{
	LWLockRelease(shared->lock);
}

/* The database, or its extension, is gone. */
void
ssw_work_forget(Oid database)
{
	SswWorkState *s = lock_state(database);

	if (s < &shared->state[SSW_MAX_DATABASES])
		shared->database[s - shared->state] = InvalidOid;
	unlock();
}

/* A copy of the state; zeros when there is none.  append() calls it for each row. */
SswWorkState
ssw_work_read(Oid database)
{
	SswWorkState copy = {0};

	LWLockAcquire(shared->lock, LW_SHARED);
	for (int i = 0; i < shared->n; i++)
		if (shared->database[i] == database)
			copy = shared->state[i];
	LWLockRelease(shared->lock);
	return copy;
}

/*
 * In the coordinator: a copy of the state, from which it takes those of the reasons that
 * it now looks at.  When it took one and ends before ssw_work_looked(), the next
 * coordinator looks at once.
 */
SswWorkState
ssw_work_take(Oid database, int reasons)
{
	SswWorkState *s = lock_state(database);
	SswWorkState copy = *s;

	if (s->reasons & reasons)
		s->look_at = 0;
	if (s->reasons & reasons & SSW_WORK_APPENDED)
		s->appended = 0;
	s->reasons &= ~reasons;
	unlock();
	return copy;
}

/* There is reason to look.  True: some of it is new, and the coordinator is to be woken. */
bool
ssw_work_add(Oid database, int reasons)
{
	SswWorkState *s = lock_state(database);
	bool		is_new = (reasons & ~s->reasons) != 0;

	s->reasons |= reasons;
	unlock();
	return is_new;
}

/* In a session: the coordinator is to look, and is woken unless it has been. */
void
ssw_work_signal(int reasons)
{
	if (ssw_work_add(MyDatabaseId, reasons))
		ssw_shmem_wake_own_coordinator();
}

/* In a session: something is due then, and the coordinator is to know. */
void
ssw_work_look_by(TimestampTz at)
{
	SswWorkState *s = lock_state(MyDatabaseId);
	bool		is_new = (s->reasons & SSW_WORK_TIMED) == 0 || at < s->timed_at;
	bool		looks_before = s->look_at != 0 && s->look_at <= at;

	if (is_new)
		s->timed_at = at;
	s->reasons |= SSW_WORK_TIMED;
	s->look_at = Min(s->look_at, at);
	unlock();
	if (is_new && !looks_before)
		ssw_shmem_wake_own_coordinator();
}

/* In the coordinator: it has looked and does so again then; or an error (else null) kept it from that. */
void
ssw_work_looked(TimestampTz look_at, const char *error)
{
	SswWorkState *s = lock_state(MyDatabaseId);

	s->look_at = error ? 0 : look_at;
	if (error == NULL)
		s->failing_since = 0;
	else if (s->failing_since == 0)
		s->failing_since = GetCurrentTimestamp();
	ssw_shmem_text(s->error, error ? error : "", sizeof(s->error));
	unlock();
}

/* In the launcher: settings or the clock have changed, and each database is to look. */
void
ssw_work_look_again(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < shared->n; i++)
		shared->state[i].look_at = 0;
	LWLockRelease(shared->lock);
}

/* A runner has started, or failed to: the next for that role is tried later, up to a minute. */
void
ssw_work_runner_started(Oid database, Oid role, bool failed)
{
	SswWorkState *s = lock_state(database);
	SswFailedStarts *f = s->failed;

	/* of others, one that is free or was tried longest ago */
	for (int i = 1; i < SSW_MAX_FAILED_ROLES && f->role != role; i++)
		if (s->failed[i].role == role || s->failed[i].not_before < f->not_before)
			f = &s->failed[i];
	if (failed)
	{
		f->failures = f->role == role ? f->failures + 1 : 1;
		f->role = role;
		f->not_before = GetCurrentTimestamp() + Min(MAX_FAILED_WAIT, f->failures) * USECS_PER_SEC;
	}
	else if (f->role == role)
		memset(f, 0, sizeof(SswFailedStarts));
	unlock();
}

/* Runners for the role that failed to start since one did; none: zeros. */
SswFailedStarts
ssw_work_failed_starts(const SswWorkState *s, Oid role)
{
	SswFailedStarts none = {0};

	for (int i = 0; i < SSW_MAX_FAILED_ROLES; i++)
		if (s->failed[i].role == role)
			return s->failed[i];
	return none;
}

/* A runner leaves; SswShared->lock is held. */
void
ssw_work_runner_leaves(SswDatabase *d, SswProc *proc)
{
	if (d == NULL || proc->kind != SSW_PROC_RUNNER)
		return;
	(void) ssw_work_add(d->oid, SSW_WORK_COMMANDS);
	if (!proc->ready && !(proc->connected && proc->terminating))
		ssw_work_runner_started(d->oid, proc->role, true);
}

/* So many rows were appended.  The coordinator looks for the first ones, and when there are enough. */
void
ssw_work_rows_appended(int64 n)
{
	SswWorkState *s = lock_state(MyDatabaseId);
	bool		wake = (s->reasons & SSW_WORK_APPENDED) == 0 ||
	(s->appended < ENOUGH_ROWS && s->appended + n >= ENOUGH_ROWS);

	s->reasons |= SSW_WORK_APPENDED;
	s->appended += n;
	unlock();
	if (wake)
		ssw_shmem_wake_own_coordinator();
}

/* In the coordinator: the fullest table has so many rows. */
void
ssw_work_rows_counted(int64 most)
{
	SswWorkState *s = lock_state(MyDatabaseId);

	s->rows_counted = true;
	s->most_rows = most;
	unlock();
}

/* Rows appended up to that number, and all that are due, are to be written now. */
void
ssw_work_flush(int64 up_to)
{
	SswWorkState *s = lock_state(MyDatabaseId);

	s->flush_up_to = Max(s->flush_up_to, up_to);
	unlock();
	ssw_work_signal(SSW_WORK_APPENDED);
}

/* Until when such a look, which began then and has ended now, is not made again. */
TimestampTz
ssw_work_rest(TimestampTz began)
{
	TimestampTz now = GetCurrentTimestamp();

	return now + Min(9 * Max(now - began, 0), SSW_MOST_REST_US);
}
