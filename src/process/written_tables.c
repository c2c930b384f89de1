/*
 * written_tables.c
 *		Which tables may have rows that no look has seen.
 *
 * An idle policy is looked at rarely.  The coordinator sees in the cumulative
 * statistics that its table was written, and looks.
 *
 * With more databases than coordinators an idle database has none, and what falls
 * due there is known.  A row that is written meanwhile may be due earlier: the
 * launcher sees in the cumulative statistics, without a connection, that swept
 * tables or catalogs were written, and the database takes a turn.  The coordinator
 * says which tables these are.
 *
 * Sessions report their statistics when they are idle, at most once a second; what
 * they did within a second of a report, ten seconds later.  So what was written is
 * looked at for that long.  A procedure that commits and continues does
 * not report at all: its rows are found by the turn that each database takes in
 * SSW_IDLE_TURN_US anyway, or by the next look.
 *
 * Shares the lists of tables and what was seen, in SswDatabase, under
 * SswShared->lock.  A crash empties them.
 */
#include "postgres.h"

#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/pgstat_internal.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "base/shmem.h"
#include "policy/policy.h"
#include "process/written_tables.h"

#define LOOK_US		USECS_PER_SEC
/* A database is looked at for what was written no more often. */
#define MIN_TURN_US	(1500 * INT64CONST(1000))
/* Statistics of what was done may come so much later (PGSTAT_IDLE_INTERVAL). */
#define REPORT_US	(11 * USECS_PER_SEC)

/* Is the table of the policy one whose rows others write, and that is looked at by itself? */
static bool
is_written_by_others(const SswPolicy *p)
{
	return p->check_every_us > 0 && (p->id > SSW_LAST_BUILTIN || p->heartbeats || p->set_clause);
}

/* Rows that were written to a table; sweeps delete, so that counts for catalogs alone. */
static uint64
count_table(Oid database, Oid relid)
{
	PgStat_StatTabEntry *e = pgstat_fetch_entry(PGSTAT_KIND_RELATION, database, relid);
	uint64		n = 0;

	if (e)
	{
		n = e->tuples_inserted + e->tuples_updated + (relid < FirstUnpinnedObjectId ? e->tuples_deleted : 0);
		pfree(e);
	}
	return n;
}

/* The same of a table of this database. */
uint64
ssw_written_count(Oid relid)
{
	return count_table(MyDatabaseId, relid);
}

/*
 * Rows that were written to any table of the database: where the swept ones are too many,
 * or to see at once that none was written.
 */
static uint64
count_all(Oid database, bool deleted)
{
	PgStat_StatDBEntry *e = pgstat_fetch_stat_dbentry(database);
	uint64		n = 0;

	if (e)
	{
		n = ssw_dbstat(e, tuples_inserted) + ssw_dbstat(e, tuples_updated) + (deleted ? ssw_dbstat(e, tuples_deleted) : 0);
		pfree(e);
	}
	return n;
}

/* So many of the tables' rows, or of all, were written since statistics were reset. */
static uint64
count_written(Oid database, const Oid *swept, int nswept)
{
	uint64		n = nswept < 0 ? count_all(database, false) : 0;

	for (int i = 0; i < nswept; i++)
		n += count_table(database, swept[i]);
	return n;
}

/* Add a table that exists, and its children, until there are too many; without locks. */
static List *
add_tables(List *rels, Oid relid)
{
	ListCell   *lc;

	if (list_length(rels) > SSW_MAX_SWEPT || list_member_oid(rels, relid) || !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relid)))
		return rels;
	rels = lappend_oid(rels, relid);
	foreach(lc, find_inheritance_children(relid, NoLock))
		rels = add_tables(rels, lfirst_oid(lc));
	return rels;
}

/* The coordinator's part, in a transaction: the tables of these policies. */
void
ssw_written_watch(List *policies)
{
	List	   *rels = list_make3_oid(RelationRelationId, AttributeRelationId, ProcedureRelationId);
	Oid			swept[SSW_MAX_SWEPT] = {InvalidOid};
	int			nswept;
	uint64		written;
	SswDatabase *d;
	int64		every = SSW_IDLE_TURN_US;
	ListCell   *lc;

	foreach(lc, policies)
	{
		SswPolicy  *p = lfirst(lc);

		if (!is_written_by_others(p))
			continue;
		every = Min(every, p->check_every_us);
		rels = add_tables(rels, p->relid);
	}
	nswept = list_length(rels) <= SSW_MAX_SWEPT ? list_length(rels) : -1;
	for (int i = 0; i < nswept; i++)
		swept[i] = list_nth_oid(rels, i);
	/* before they are looked at */
	written = count_written(MyDatabaseId, swept, nswept);
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	if (d)
	{
		if (d->nswept != nswept || memcmp(d->swept, swept, Max(nswept, 0) * sizeof(Oid)) != 0)
		{
			/* what was written before is not reported again */
			d->written = written;
			d->may_be_due = true;
		}
		d->check_every_us = every;
		d->nswept = nswept;
		memcpy(d->swept, swept, sizeof(swept));
	}
	LWLockRelease(SswShared->lock);
}

/* Would statistics say if a row of the policy had been written since its last probe? */
bool
ssw_written_tells(const SswWatch *w)
{
	return w->plain && !w->unprobed && w->excluded == 0 && w->probed_written != PG_UINT64_MAX;
}

/* The policy's table was written: it is looked at as one that was just found idle. */
void
ssw_written_note(SswWatch *w, TimestampTz now)
{
	w->idle = 0;
	w->next_look = Min(w->next_look, Max(w->last_look + w->policy->check_every_us, now));
}

/*
 * An idle policy whose table was written is to look as if it had just been found idle.
 * Counters of the tables are read only if that of the database has changed.  True: there is one.
 */
static bool
wake_written(List *watches, TimestampTz now)
{
	static uint64 seen = 0;
	uint64		all = count_all(MyDatabaseId, false);
	bool		written = false;
	bool		passes = false;
	ListCell   *lc;

	if (all == seen)
		return false;
	foreach(lc, watches)
	{
		SswWatch   *w = lfirst(lc);

		passes = passes || w->pass;
		if (w->policy == NULL || !w->runs || w->pass || w->idle <= 1 || w->policy->check_every_us == 0 || !ssw_written_tells(w) ||
			ssw_written_count(w->policy->relid) == w->probed_written)
			continue;
		ssw_written_note(w, now);
		written = true;
	}
	/* what is written beside an open pass is seen when it has ended */
	if (!passes)
		seen = all;
	return written;
}

/*
 * The coordinator's part: sleep until then, or until somebody wakes us, or a policy's
 * table was written.  A round looks at every policy: it is not worth one each second to
 * find out that none was.  The clock may be set meanwhile.
 */
void
ssw_written_sleep(List *watches, TimestampTz next, TimestampTz now)
{
	static uint32 wait_event = 0;
	static TimestampTz look_at = 0;
	int64		left_us = Max(next, now) - now;
	int			events;

	do
	{
		long		ms;

		if (now >= look_at || look_at - now > LOOK_US)
		{
			look_at = now + LOOK_US;
			if (wake_written(watches, now))
				return;
		}
		ms = Max(1, (Min(left_us, look_at - now) + 999) / 1000);
		events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
						   ssw_wait_event("SessionSweeperCoordinatorMain", wait_event));
		left_us -= ms * 1000;
		now = GetCurrentTimestamp();
	} while (events == WL_TIMEOUT && left_us > 0);
	ResetLatch(MyLatch);
}

/*
 * The launcher's part: databases that were written are due, as soon as one of their
 * policies may be looked at again.  Returns when it looks next: never, while every
 * database has a coordinator, because these look by themselves.
 */
TimestampTz
ssw_written_look(TimestampTz now)
{
	static TimestampTz look_at = 0;
	static struct
	{
		Oid			database;
		uint64		all;
	}			seen[SSW_MAX_DATABASES];
	bool		alone = false;

	for (int i = 0; i < SswShared->ndatabases && !alone; i++)
		alone = OidIsValid(SswShared->databases[i].oid) && SswShared->databases[i].state == SSW_DB_PRESENT &&
			SswShared->databases[i].coordinator < 0;
	if (!alone)
		return DT_NOEND;
	if (now < look_at && look_at <= now + LOOK_US)
		return look_at;
	look_at = now + LOOK_US;
	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &SswShared->databases[i];
		Oid			swept[SSW_MAX_SWEPT];
		Oid			database;
		int			n;
		uint64		all;
		uint64		count;

		LWLockAcquire(SswShared->lock, LW_SHARED);
		database = d->state == SSW_DB_PRESENT && d->nswept != 0 ? d->oid : InvalidOid;
		n = d->nswept;
		memcpy(swept, d->swept, Max(n, 0) * sizeof(Oid));
		count = d->written;
		LWLockRelease(SswShared->lock);
		if (!OidIsValid(database))
			continue;
		all = count_all(database, true);
		if (database != seen[i].database || all != seen[i].all)
			count = count_written(database, swept, n);
		seen[i].database = database;
		seen[i].all = all;
		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		if (d->oid == database)
		{
			if (count != d->written)
				d->written_until = now + REPORT_US;
			d->written = count;
			if (now < d->written_until && d->written_until <= now + REPORT_US)
			{
				d->may_be_due = true;
				d->next_due = Min(d->next_due, Max(now, d->looked_at + Max(MIN_TURN_US, d->check_every_us)));
				if (d->coordinator >= 0 && SswProcs[d->coordinator].latch)
					SetLatch(SswProcs[d->coordinator].latch);
			}
		}
		LWLockRelease(SswShared->lock);
	}
	return look_at;
}
