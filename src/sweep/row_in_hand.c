/*
 * row_in_hand.c
 *		The row on which a worker runs code of users.
 *
 * Runs in workers.  Code of a table's owner can end its process: it outlives the
 * hard limit, terminates its own backend, makes an error FATAL.  Nothing is caught
 * then, so the process notes as it exits which row it had in hand.  Its successor
 * takes the rows of the policy, or those that a role appended to the table, one by one,
 * until all were handled.  A row that has ended SSW_MAX_DEATHS workers is set aside.
 *
 * Shares the list of these rows, private to this file, under a lock of its own.  A
 * crash of the server empties it: that blames no row.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"

#include "base/process_slot.h"
#include "base/shmem.h"
#include "sweep/row_in_hand.h"

/* So many ended workers, and no row handled: the policy is at fault. */
#define MANY_DEATHS		10

/* When there are more, the oldest is forgotten. */
#define MAX_ENTRIES		128

typedef struct Entry
{
	Oid			database;		/* invalid: no entry */
	int			policy_id;		/* 0: rows of append() */
	Oid			relid;			/* the leaf; or the number of their stream */
	int64		row;			/* 0: all rows of the policy, or stream */
	int			deaths;			/* of row 0: since a row was handled */
} Entry;

typedef struct InHand
{
	LWLock	   *lock;
	uint32		added;
	Entry		entry[MAX_ENTRIES];
} InHand;

static InHand *shared = NULL;

/* What this process has in hand. */
static bool armed = false;
static Entry mine;

static bool
is_of(const Entry *e, int policy_id, Oid relid)
{
	return e->database == MyDatabaseId && e->policy_id == policy_id && (policy_id != 0 || e->relid == relid);
}

/* The caller holds the lock. */
static Entry *
find(int policy_id, Oid relid, int64 row)
{
	for (int i = 0; i < MAX_ENTRIES; i++)
		if (is_of(&shared->entry[i], policy_id, relid) && shared->entry[i].row == row &&
			(row == 0 || shared->entry[i].relid == relid))
			return &shared->entry[i];
	return NULL;
}

static Entry *
find_or_add(int policy_id, Oid relid, int64 row)
{
	Entry	   *e = find(policy_id, relid, row);

	if (e == NULL)
	{
		e = &shared->entry[shared->added++ % MAX_ENTRIES];
		*e = (Entry)
		{
			.database = MyDatabaseId,.policy_id = policy_id,.relid = relid,.row = row
		};
	}
	return e;
}

/* This process exits; if users' code was running, note its row.  SswShared->lock is held. */
static void
note(SswDatabase *d, SswProc *proc)
{
	if (!armed || d == NULL || d->closed > 0)
		return;
	armed = false;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	find_or_add(mine.policy_id, mine.relid, 0)->deaths++;
	if (mine.row != 0)
		find_or_add(mine.policy_id, mine.relid, mine.row)->deaths++;
	LWLockRelease(shared->lock);
}

static void
init_shared(LWLock *lock)
{
	shared->lock = lock;
}

void
ssw_in_hand_init(void)
{
	ssw_shmem_add_struct("session_sweeper rows in hand", sizeof(InHand), &shared, init_shared);
	ssw_process_on_leaving(note);
}

/* From now on code of users runs: on this row; 0: on several, or on none. */
void
ssw_in_hand_set(int policy_id, Oid relid, int64 row)
{
	mine = (Entry)
	{
		.policy_id = policy_id,.relid = relid,.row = row
	};
	armed = true;
}

/* The end of this process that the code asked for comes while its row is known. */
void
ssw_in_hand_clear(void)
{
	if (armed && ProcDiePending)
		CHECK_FOR_INTERRUPTS();
	armed = false;
}

/* How many workers the row has ended; of row 0, of all rows together: -1 when no worker was ended. */
int
ssw_in_hand_deaths(int policy_id, Oid relid, int64 row)
{
	Entry	   *e;
	int			deaths;

	LWLockAcquire(shared->lock, LW_SHARED);
	e = find(policy_id, relid, row);
	deaths = e ? e->deaths : row == 0 ? -1 : 0;
	LWLockRelease(shared->lock);
	return deaths;
}

/* Must rows be handled one by one, because workers were ended? */
bool
ssw_in_hand_singly(int policy_id, Oid relid)
{
	return ssw_in_hand_deaths(policy_id, relid, 0) >= 0;
}

/* Have at least so many workers ended since a row was handled?  Then continue with that number. */
static bool
reset_deaths(int policy_id, int at_least, int to)
{
	Entry	   *e;
	bool		reset;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	e = find(policy_id, InvalidOid, 0);
	reset = e && e->deaths >= at_least;
	if (reset)
		e->deaths = to;
	LWLockRelease(shared->lock);
	return reset;
}

/* Are ended workers the fault of the policy?  Then the next one to end is, too. */
bool
ssw_in_hand_blame(int policy_id)
{
	return reset_deaths(policy_id, MANY_DEATHS, MANY_DEATHS - 1);
}

/* A row was handled. */
void
ssw_in_hand_went_well(int policy_id)
{
	(void) reset_deaths(policy_id, 0, 0);
}

/* All rows of the policy, or stream, were handled or set aside. */
void
ssw_in_hand_forget(int policy_id, Oid relid)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < MAX_ENTRIES; i++)
		if (is_of(&shared->entry[i], policy_id, relid))
			shared->entry[i].database = InvalidOid;
	LWLockRelease(shared->lock);
}
