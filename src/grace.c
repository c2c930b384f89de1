/*
 * grace.c
 *		Time credited after an outage, to policies whose rows live by activity.
 *
 * Runs in the coordinator.  After a clean stop the credit is the down time;
 * after a crash or promotion nothing dies before one time to live has passed
 * since the start of service.
 *
 * So that crashes in quick succession do not keep the dead for ever, each start
 * of service notes how far it judged: its horizons are pairs (start, deadline) in
 * the policy's row.  A row whose deadline was reached under a start that is now a
 * time to live ago has had its grace, whatever happened since.  A crash loses at
 * most what was judged since the last note, a quarter of a time to live.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "watch.h"

/* Starts of service closer than this part of a time to live share a pair. */
#define PAIRS_IN_TTL	8

static int64
grace_us(const SswPolicy *p)
{
	return p->clock[0].row_ttl ? 0 : p->clock[0].ttl_us;
}

/* The latest deadline that was judged under a start one time to live ago, or 0. */
static TimestampTz
past_grace(const SswPolicy *p, TimestampTz now)
{
	TimestampTz result = 0;

	for (int i = 0; i < p->nhorizons; i++)
		if (now - p->horizon[i].service >= grace_us(p) + p->keep_for_us)
			result = p->horizon[i].deadline;
	return result;
}

/* Rows with a deadline up to the result may die now; DT_NOBEGIN: none. */
static TimestampTz
grace_cutoff(const SswPolicy *p, const SswClock *c, TimestampTz now)
{
	TimestampTz service = SswShared->service_start;
	int64		ttl = c->row_ttl ? 0 : c->ttl_us;
	TimestampTz cutoff = now - p->keep_for_us;
	TimestampTz past;

	if (now - service >= ttl + p->keep_for_us)
		return cutoff;
	if (SswShared->clean_start)
		return cutoff - Max(0, service - SswShared->down_since);
	past = past_grace(p, now);
	return past != 0 ? Min(cutoff, past) : DT_NOBEGIN;
}

/* The cutoff of each clock: rows with a deadline up to it are dead. */
void
ssw_grace_cutoffs(const SswPolicy *p, TimestampTz now, TimestampTz *cutoffs)
{
	for (int i = 0; i < p->nclocks; i++)
	{
		const SswClock *c = &p->clock[i];

		if (c->activity || OidIsValid(p->is_alive))
			cutoffs[i] = grace_cutoff(p, c, now);
		else
			cutoffs[i] = now - p->keep_for_us;
	}
}

/* Forget pairs that a later one, past its grace too, makes useless. */
static void
prune(SswPolicy *p, TimestampTz now)
{
	int			useless = 0;

	while (useless + 1 < p->nhorizons &&
		   now - p->horizon[useless + 1].service >= grace_us(p) + p->keep_for_us)
		useless++;
	p->nhorizons -= useless;
	memmove(p->horizon, p->horizon + useless, p->nhorizons * sizeof(SswHorizon));
}

/*
 * During the grace after a crash, note how far this start of service has judged.
 * In a transaction.
 */
void
ssw_grace_note(SswPolicy *p, TimestampTz now)
{
	SswHorizon	h = {SswShared->service_start, now - p->keep_for_us};
	SswHorizon *last;

	if (!p->clock[0].activity || grace_us(p) == 0 || SswShared->clean_start ||
		now - h.service >= grace_us(p) + p->keep_for_us)
		return;
	last = p->nhorizons > 0 ? &p->horizon[p->nhorizons - 1] : NULL;
	if (last && last->service == h.service)
	{
		if (h.deadline - last->deadline <= grace_us(p) / 4)
			return;
		*last = h;
	}
	else
	{
		prune(p, now);
		if (p->nhorizons == SSW_MAX_HORIZONS ||
			(p->nhorizons > 1 && h.service - p->horizon[p->nhorizons - 2].service < grace_us(p) / PAIRS_IN_TTL))
			p->nhorizons--;
		p->horizon[p->nhorizons++] = h;
	}
	ssw_ledger_horizons(p);
}
