/*
 * drain.c
 *		What is due is worked off: how much is done, how much is left, how fast.
 *
 * A drain begins with the first row that a pass finds, and ends with the pass that comes
 * to the end of what is due.  Between them there may be many passes, because of rates and
 * limits, so a single pass says little.  Workers add what they find and handle, and the
 * coordinator ends a drain.
 *
 * Shares SswPolicyShared.drain, under SswShared->lock; the views copy it.  A crash forgets
 * it, and the next pass counts again.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "sweep/drain.h"

/* Counts are so far apart: as long as the drain lasts already, within these bounds. */
#define MIN_APART_US	(1 * USECS_PER_SEC)
#define MAX_APART_US	(60 * USECS_PER_SEC)

static void
begin(SswDrain *d, TimestampTz now)
{
	memset(d, 0, sizeof(SswDrain));
	d->since = d->count_at = now;
}

/*
 * So many rows were found; more: there may be others behind them.  Is it time to count
 * these?  The drain lasts for *lasts_us.
 */
bool
ssw_drain_found(int policy_id, int64 rows, bool more, int64 *lasts_us)
{
	TimestampTz now = GetCurrentTimestamp();
	SswPolicyShared *s;
	bool		wants = false;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, true);
	if (s)
	{
		SswDrain   *d = &s->drain;

		if (d->since == 0)
		{
			begin(d, now);
			d->left = rows;
			/* a few rows are gone before they were counted */
			d->count_at += more ? 0 : MIN_APART_US;
		}
		/* the last count may have been too low */
		if (d->left < d->counted / 2)
			d->count_at = Min(d->count_at, d->counted_at + MIN_APART_US);
		*lasts_us = Max(0, now - d->since);
		wants = now >= d->count_at || now < d->counted_at;
		/* not again at once, if it ends this worker */
		if (wants)
		{
			d->count_at = now + Min(MAX_APART_US, Max(MIN_APART_US, *lasts_us));
			d->counted = d->left;
		}
	}
	LWLockRelease(SswShared->lock);
	return wants;
}

/* So many rows are left, about. */
void
ssw_drain_counted(int policy_id, int64 left)
{
	TimestampTz now = GetCurrentTimestamp();
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, false);
	if (s)
	{
		SswDrain   *d = &s->drain;

		d->left = d->counted = left;
		d->counted_at = now;
	}
	LWLockRelease(SswShared->lock);
}

/* The clock of a drain stands while it is idle. */
static TimestampTz
active_clock(const SswDrain *d, TimestampTz now)
{
	return (d->idle_since ? Min(now, d->idle_since) : now) - d->idle_us;
}

/*
 * A pass of the policy runs, or waits for its rate limit: or does it neither, because of a
 * brake?  The caller holds the lock.
 */
void
ssw_drain_runs(SswPolicyShared *s, bool runs)
{
	SswDrain   *d = &s->drain;
	TimestampTz now = GetCurrentTimestamp();

	if (d->since == 0 || runs == (d->idle_since == 0))
		return;
	if (runs)
		d->idle_us += Max(0, now - d->idle_since);
	d->idle_since = runs ? 0 : now;
}

/* Rows a second in the last five seconds that were not idle, or since the drain began. */
double
ssw_drain_rate(const SswDrain *d, TimestampTz at)
{
	TimestampTz now = active_clock(d, at);
	int64		present = now / SSW_RATE_SLOT_US;
	int64		us = (SSW_RATE_SLOTS - 1) * SSW_RATE_SLOT_US + now % SSW_RATE_SLOT_US;
	int64		rows = 0;

	for (int64 slot = Max(present, d->slot) - SSW_RATE_SLOTS + 1; slot <= d->slot; slot++)
		rows += d->handled[slot % SSW_RATE_SLOTS];
	return rows * 1e6 / Max(SSW_RATE_SLOT_US, Min(us, now - d->since));
}

/* Rows were handled, as the counts of the argument say; the caller holds the lock. */
void
ssw_drain_handled(SswPolicyShared *s, const SswDrain *rows)
{
	SswDrain   *d = &s->drain;
	TimestampTz now = GetCurrentTimestamp();
	int64		present;
	int64		done = rows->expired + rows->refreshed + rows->repaired;

	if (d->since == 0)
		begin(d, now);
	present = active_clock(d, now) / SSW_RATE_SLOT_US;
	d->expired += rows->expired;
	d->refreshed += rows->refreshed;
	d->repaired += rows->repaired;
	d->failed += rows->failed;
	d->skipped += rows->skipped;
	d->batches += rows->batches;
	d->max_lag_us = Max(d->max_lag_us, rows->max_lag_us);
	d->left = Max(0, d->left - done - rows->failed - rows->skipped);
	if (present < d->slot || present - d->slot >= SSW_RATE_SLOTS)
	{
		memset(d->handled, 0, sizeof(d->handled));
		d->slot = present;
	}
	while (d->slot < present)
		d->handled[++d->slot % SSW_RATE_SLOTS] = 0;
	d->handled[present % SSW_RATE_SLOTS] += done;
	if (done > 0)
		d->pace = ssw_drain_rate(d, now);
}

/*
 * A pass has ended.  So has the drain, unless rows are left.  What is due may have changed
 * where the pass has met no limit: then it is counted again.  The caller holds the lock.
 */
void
ssw_drain_ended(SswPolicyShared *s, SswPassEnd end)
{
	if (end == SSW_END_DONE || end == SSW_END_FUSE || (end == SSW_END_REFRESHED && s->drain.left == 0))
		s->drain.since = 0;
	else if (end != SSW_END_LIMIT)
		s->drain.count_at = 0;
}

/* A look has found that nothing is due. */
void
ssw_drain_nothing_due(int policy_id)
{
	TimestampTz none = 0;

	ssw_shmem_write_field(policy_id, drain.since, &none, false);
}
