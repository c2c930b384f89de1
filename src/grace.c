/*
 * grace.c
 *		Time credited after an outage, to policies whose rows live by activity.
 *
 * Notes are written by the coordinator; cutoffs are computed there and where a
 * row is explained.  After a clean stop the credit is the down time; after a
 * crash or promotion nothing dies before one time to live has passed since the
 * start of service.
 *
 * So that crashes in quick succession do not keep the dead for ever, each start
 * of service notes in the policy's row how far it has judged: pairs of its time
 * and the latest deadline that it saw pass.  A row whose deadline passed under a
 * start since which there was service for a time to live has had its grace.
 * Outages do not count as service: the next start adds the time since the last
 * note to the time of every start before.  Notes come ever more rarely, and a
 * crash loses at most a fifth of the service before it.  When a grace is over its
 * pairs are removed; as long as there are some, even a clean stop was no end of
 * it.
 *
 * Rows with a time to live of their own have the start of service only.
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

/* When this policy's last note was written; there is one. */
static TimestampTz
noted_at(const SswPolicy *p)
{
	return p->horizon[p->nhorizons - 1].deadline + p->keep_for_us;
}

/* Has this start of service written a note? */
static bool
has_noted(const SswPolicy *p)
{
	return p->nhorizons > 0 && p->horizon[p->nhorizons - 1].service == SswShared->service_start;
}

/* What the stored starts lack: the outage before this one. */
static int64
outage_us(const SswPolicy *p)
{
	return p->nhorizons == 0 || has_noted(p) ? 0 : Max(0, SswShared->service_start - noted_at(p));
}

/* The latest deadline that was judged under a start one time to live ago, or 0. */
static TimestampTz
past_grace(const SswPolicy *p, TimestampTz now)
{
	TimestampTz result = 0;

	for (int i = 0; i < p->nhorizons; i++)
		if (now - p->horizon[i].service - outage_us(p) >= grace_us(p) + p->keep_for_us)
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
	if (SswShared->clean_start && p->nhorizons == 0)
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

/* The first note of a start of service. */
static void
add_pair(SswPolicy *p, TimestampTz now)
{
	SswHorizon	h = {SswShared->service_start, now - p->keep_for_us};
	int64		outage = outage_us(p);

	for (int i = 0; i < p->nhorizons; i++)
		p->horizon[i].service += outage;
	prune(p, now);
	if (p->nhorizons == SSW_MAX_HORIZONS ||
		(p->nhorizons > 1 && h.service - p->horizon[p->nhorizons - 2].service < grace_us(p) / PAIRS_IN_TTL))
		p->nhorizons--;
	p->horizon[p->nhorizons++] = h;
}

/*
 * During the grace after a crash, note how far this start of service has judged;
 * afterwards, that it is over.  In a transaction.
 */
void
ssw_grace_note(SswPolicy *p, TimestampTz now)
{
	int64		served = now - SswShared->service_start;

	if (!p->clock[0].activity || grace_us(p) == 0 || (SswShared->clean_start && p->nhorizons == 0))
		return;
	if (served >= grace_us(p) + p->keep_for_us)
	{
		if (p->nhorizons == 0)
			return;
		p->nhorizons = 0;
	}
	else if (!has_noted(p))
		add_pair(p, now);
	else if (now - noted_at(p) >= served / 4)
		p->horizon[p->nhorizons - 1].deadline = now - p->keep_for_us;
	else
		return;
	ssw_ledger_horizons(p);
}
