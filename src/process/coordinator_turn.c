/*
 * coordinator_turn.c
 *		A coordinator's turn, and how it leaves.
 *
 * Runs in the coordinator.  Databases take turns where there are more than may
 * have coordinators.  A coordinator that leaves, because another waits or because it
 * was asked to, opens no pass, ends those that have no worker, lets the others end after their
 * batch, and closes their rows.  A worker that is long in its batch is left to the
 * successor, which adopts its pass.
 *
 * Shares passes, the database's entry and our slot, under SswShared->lock.  A
 * crash empties them.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_db_role_setting.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "work/append_demand.h"
#include "process/coordinator_turn.h"
#include "process/worker_quota.h"

/* While others wait: with work at hand so long, without it no longer than until what is due at once. */
#define TURN_US				(1 * USECS_PER_SEC)
#define AT_ONCE_US			(50 * 1000)
/* The same while no pass has had a worker: the launcher makes room for one. */
#define UNSERVED_TURN_US	(10 * USECS_PER_SEC)
/* So long the workers may take to leave their passes. */
#define LEAVE_US			(2 * USECS_PER_SEC)

static TimestampTz begun_at = 0;	/* policies were first looked at */
static TimestampTz leaving_since = 0;

/* What ALTER DATABASE ... SET says of processes that are started now, as a number that is not 0. */
static uint32
present_settings(void)
{
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tup;
	uint32		hash = 1;

	ScanKeyInit(&keys[0], Anum_pg_db_role_setting_setdatabase, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(MyDatabaseId));
	ScanKeyInit(&keys[1], Anum_pg_db_role_setting_setrole, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(InvalidOid));
	scan = systable_beginscan(rel, DbRoleSettingDatidRolidIndexId, true, NULL, 2, keys);
	while (HeapTupleIsValid(tup = systable_getnext(scan)))
		hash = hash_bytes((unsigned char *) tup->t_data + tup->t_data->t_hoff, tup->t_len - tup->t_data->t_hoff);
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return Max(hash, 1);
}

/*
 * What ALTER DATABASE ... SET says holds for processes that are started afterwards: when
 * it has changed, ours in this database give way to others.  A coordinator that has not
 * looked yet was started afterwards.
 */
void
ssw_turn_check_settings(TimestampTz now)
{
	static TimestampTz checked_at = 0;
	bool		first = checked_at == 0;
	SswDatabase *d;
	uint32		present;

	if (!first && now - checked_at < SSW_SETTINGS_EVERY_US && now >= checked_at)
		return;
	checked_at = now;
	present = present_settings();
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	for (int i = 0; d && d->settings != 0 && d->settings != present && i < SswShared->nprocs; i++)
	{
		SswProc    *p = &SswProcs[i];

		if (p->state != SSW_STATE_FREE && p->database == MyDatabaseId && !(first && p == MySswProc))
			ssw_quota_ask_to_leave(p, now);
	}
	if (d)
		d->settings = present;
	LWLockRelease(SswShared->lock);
}

/* A turn begins with the next look: also when the clock was set. */
void
ssw_turn_begin(void)
{
	begun_at = leaving_since = 0;
}

/* What the database's entry says at the beginning of a round; what it asks for is taken. */
void
ssw_turn_begin_round(SswTurn *t)
{
	SswDatabase *d;

	memset(t, 0, sizeof(SswTurn));
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	t->closed = d == NULL || d->closed > 0 || d->idle;
	t->others_wait = SswShared->coordinators_waiting;
	if (d)
	{
		t->wakeups = d->wakeups;
		t->generation = d->policy_generation;
		t->marked_at = d->marked_at;
		t->may_be_due = d->may_be_due;
		d->may_be_due = false;
	}
	for (int i = 0; i < SswShared->nprocs; i++)
		t->passes = t->passes || (SswPasses[i].in_use && SswPasses[i].database == MyDatabaseId);
	LWLockRelease(SswShared->lock);
}

/* Are passes open, and none of them has ever had a worker? */
static bool
unserved(List *watches)
{
	bool		open = false;
	ListCell   *lc;

	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		if (w->pass && w->pass->max_workers_seen > 0)
			return false;
		open = open || w->pass;
	}
	return open;
}

/* Must this process leave, whatever it has not looked at yet? */
static bool
is_asked_to_leave(void)
{
	return MySswProc->terminating || MySswProc->stop;
}

/* Is it time to leave?  Asked before each look at the policies, and a turn has at least one of those. */
bool
ssw_turn_is_over(const SswTurn *t, List *watches, TimestampTz now)
{
	bool		over = is_asked_to_leave() || !ssw_enabled || t->closed;

	if (!over && t->others_wait && begun_at != 0)
		over = now - begun_at > (unserved(watches) ? UNSERVED_TURN_US : TURN_US);
	if (!over)
		leaving_since = 0;
	else if (leaving_since == 0)
		leaving_since = now;
	/* what was to be done before the first look is not taken off the turn */
	if (begun_at == 0)
		begun_at = GetCurrentTimestamp();
	return over;
}

/*
 * Leave now?  When the turn is over, no worker is in a pass and no appended rows wait
 * for one, or that takes too long; also when another database waits and here is nothing
 * to do at once.  Then a coordinator is started when it is needed again, or when
 * somebody wakes it.
 */
SswTurnEnd
ssw_turn_end_round(const SswTurn *t, List *watches, TimestampTz now, TimestampTz needed, TimestampTz marked_at)
{
	SswDatabase *d;
	ListCell   *lc;
	bool		idle = true;
	bool		leave;
	bool		woken;

	foreach(lc, watches)
		idle = idle && ((SswWatch *) lfirst(lc))->pass == NULL;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	idle = idle && !OidIsValid(ssw_append_demand_next(0, ssw_quota_has_its_share));
	d = ssw_shmem_database(MyDatabaseId, false);
	woken = d && d->wakeups != t->wakeups;
	if (woken)
		needed = now;
	if (leaving_since != 0)
		leave = idle || now - leaving_since > LEAVE_US;
	else
		leave = idle && SswShared->coordinators_waiting && needed > now + AT_ONCE_US;
	if (d)
	{
		/* after those that wait, although it did not look at what was due */
		d->next_due = is_asked_to_leave() || d->may_be_due ? now : Max(needed, now);
		d->looked_at = now;
	}
	if (d && leave)
	{
		d->coordinator = -1;
		d->marked_at = marked_at;
	}
	LWLockRelease(SswShared->lock);
	return leave ? SSW_TURN_LEAVES : woken ? SSW_TURN_GOES_ON : SSW_TURN_WAITS;
}
