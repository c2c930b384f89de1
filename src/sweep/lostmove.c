/*
 * lostmove.c
 *		Appended rows at which the process was ended that wrote them, and tables
 *		whose rows are left for another time.
 *
 * Runs in workers.  As lost.c does for swept rows: code of a table's owner can end the
 * process that runs it, and nothing is caught then.  The process records as it exits
 * which row it had; the next takes the table's rows one by one, and sets aside the row
 * at which two were ended.
 *
 * Shares SswDatabase.lost_move, .left_move and its SswProc, under SswShared->lock.  A
 * crash of the server blames no row.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "heartbeat/attach.h"
#include "sweep/lostmove.h"

#define PAUSE_MS	500			/* less than it takes until the next look */

static SswLostMove *
find(SswDatabase *d, Oid relid)
{
	for (int i = 0; d && i < SSW_LOST_MOVES; i++)
		if (d->lost_move[i].relid == relid)
			return &d->lost_move[i];
	return NULL;
}

/* A process that wrote rows is about to exit.  The caller holds the lock exclusively. */
void
ssw_lostmove_note(SswDatabase *d, SswProc *proc)
{
	SswLostMove *m;

	if (d == NULL || proc->append_rows == 0 || ssw_attach_is_stopping())
		return;
	m = find(d, proc->append_relid);
	if (m == NULL)
		m = &d->lost_move[d->lost_moves++ % SSW_LOST_MOVES];
	if (m->relid != proc->append_relid || m->id != proc->append_id)
		m->deaths = 0;
	m->relid = proc->append_relid;
	m->id = proc->append_id;
	m->deaths += proc->append_rows == 1;
}

/* The row of this table at which processes were ended; false: there is none. */
bool
ssw_lostmove_find(Oid relid, SswLostMove *lost)
{
	SswLostMove *m;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	m = find(ssw_shmem_database(MyDatabaseId, false), relid);
	if (m)
		*lost = *m;
	LWLockRelease(SswShared->lock);
	return m != NULL;
}

/* It was not at fault, or is set aside. */
void
ssw_lostmove_forget(const SswLostMove *lost)
{
	SswLostMove *m;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	m = find(ssw_shmem_database(MyDatabaseId, false), lost->relid);
	if (m && m->id == lost->id)
		m->relid = InvalidOid;
	LWLockRelease(SswShared->lock);
}

/* A table whose rows were left.  The caller holds the lock. */
static SswLeftMove *
find_left(SswDatabase *d, Oid relid)
{
	for (int i = 0; d && i < SSW_LEFT_MOVES; i++)
		if (d->left_move[i].relid == relid)
			return &d->left_move[i];
	return NULL;
}

/* Rows of the table are left for another time.  True: the log was not told of such an error yet. */
bool
ssw_lostmove_left(Oid relid, int sqlerrcode, bool pause)
{
	SswDatabase *d;
	SswLeftMove *m;
	bool		is_new;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	m = find_left(d, relid);
	is_new = m == NULL || m->sqlerrcode != sqlerrcode;
	if (d && m == NULL)
		m = &d->left_move[d->left_moves++ % SSW_LEFT_MOVES];
	if (m)
		*m = (SswLeftMove)
	{
		relid, sqlerrcode, pause ? GetCurrentTimestamp() : 0
	};
	LWLockRelease(SswShared->lock);
	return is_new;
}

/* Could nothing be written to the table just now?  It is tried no sooner, whoever has other rows written. */
bool
ssw_lostmove_pauses(Oid relid)
{
	SswLeftMove *m;
	bool		pauses;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	m = find_left(ssw_shmem_database(MyDatabaseId, false), relid);
	pauses = m && !TimestampDifferenceExceeds(m->paused_at, GetCurrentTimestamp(), PAUSE_MS);
	LWLockRelease(SswShared->lock);
	return pauses;
}

/* No rows of the table were left. */
void
ssw_lostmove_none_left(Oid relid)
{
	SswLeftMove *m;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	m = find_left(ssw_shmem_database(MyDatabaseId, false), relid);
	if (m)
		m->relid = InvalidOid;
	LWLockRelease(SswShared->lock);
}
