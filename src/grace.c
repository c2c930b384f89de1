/*
 * grace.c
 *		Time credited after an outage, to policies whose rows live by activity.
 *
 * Cutoffs are computed by the coordinator, by workers for rows with a time to
 * live of their own, and where a row is explained.  After a clean stop the credit
 * is the down time; after a crash or promotion nothing dies before one time to
 * live has passed since the start of service.
 *
 * So that crashes in quick succession do not keep the dead for ever, each start
 * of service after a crash notes in the policy's row how far it has judged: pairs
 * of its time and the latest deadline that it saw pass.  A row whose deadline
 * passed under a start since which there was service for a time to live has had
 * its grace.  A clean stop does not end a service: the last pair goes on.  Outages
 * do not count as service: the next start adds the time since the last note to
 * the time of every start before.  Notes come ever more rarely, and a crash loses
 * at most a fifth of the service before it.  When a grace is over its pairs are
 * removed; where each row has its own time to live it never is, and the pairs are
 * thinned out, the older the more.
 *
 * The coordinator alone notes.  A crash leaves the last note.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "grace.h"
#include "shmem.h"

/* Does grace cover this clock at all? */
static bool
covers(const SswPolicy *p, const SswClock *c)
{
	return c->activity || (OidIsValid(p->is_alive) && !c->absolute);
}

/* How long a row of the clock lives; 0 where each row has its own. */
static int64
ttl_us(const SswPolicy *p, const SswClock *c)
{
	return c->row_ttl ? 0 : c->activity ? c->ttl_us : p->ttl_us;
}

/* How long the server was down before a clean start. */
static int64
down_us(void)
{
	return SswShared->clean_start ? Max(0, SswShared->service_start - SswShared->down_since) : 0;
}

/*
 * What is known of the starts of service before this one.  A crash whose start
 * left no note, because nobody swept then, is known from the launcher's file.
 */
typedef struct Past
{
	int			n;
	const SswHorizon *pair;
	TimestampTz noted_at;
	SswHorizon	unnoted;
	int64		outage;			/* what the pairs lack: the time before this
								 * start without service */
} Past;

/* Has this start of service written a note? */
static bool
has_noted(const SswPolicy *p)
{
	return p->nhorizons > 0 && p->noted_at >= SswShared->service_start;
}

static void
recall(const SswPolicy *p, Past *past)
{
	TimestampTz served;
	int64		ttl = ttl_us(p, &p->clock[0]);

	memset(past, 0, sizeof(Past));
	past->n = p->nhorizons;
	past->pair = p->horizon;
	past->noted_at = p->noted_at;
	if (past->n == 0 && SswShared->clean_start && SswShared->crash_start != 0 &&
		(ttl == 0 || SswShared->down_since - SswShared->crash_start < ttl + p->keep_for_us))
	{
		past->unnoted = (SswHorizon)
		{
			SswShared->crash_start, DT_NOBEGIN
		};
		past->pair = &past->unnoted;
		past->n = 1;
	}
	if (past->n == 0 || has_noted(p))
		return;
	served = SswShared->clean_start ? Max(past->noted_at, SswShared->down_since) : past->noted_at;
	past->outage = Max(0, SswShared->service_start - served);
}

/* When a start was, later by the outages since. */
static TimestampTz
start_of(const Past *past, int i)
{
	return past->pair[i].service + past->outage;
}

/* Rows with a deadline up to the result may die now; DT_NOBEGIN: none. */
static TimestampTz
grace_cutoff(const SswPolicy *p, const SswClock *c, TimestampTz now)
{
	TimestampTz cutoff = now - p->keep_for_us;
	TimestampTz judged = DT_NOBEGIN;
	int64		ttl = ttl_us(p, c);
	Past		past;

	if (cutoff - SswShared->service_start >= ttl)
		return cutoff;
	recall(p, &past);
	for (int i = 0; i < past.n; i++)
		if (cutoff - start_of(&past, i) >= ttl)
			judged = past.pair[i].deadline;
	if (SswShared->clean_start && (past.n == 0 || cutoff - start_of(&past, past.n - 1) >= ttl))
		judged = cutoff - down_us();
	return Min(cutoff, judged);
}

/*
 * The cutoff of each clock: rows with a deadline up to it are dead.  Of rows with
 * a time to live of their own only those that ssw_grace_rows() says.
 */
void
ssw_grace_cutoffs(const SswPolicy *p, TimestampTz now, TimestampTz *cutoffs)
{
	for (int i = 0; i < p->nclocks; i++)
	{
		const SswClock *c = &p->clock[i];

		cutoffs[i] = covers(p, c) && !c->row_ttl ? grace_cutoff(p, c, now) : now - p->keep_for_us;
	}
}

/* How long from now a row must wait that would be due, with that cutoff. */
int64
ssw_grace_credit(const SswPolicy *p, int clock, TimestampTz cutoff, TimestampTz now)
{
	if (TIMESTAMP_IS_NOBEGIN(cutoff))
		return Max(0, SswShared->service_start + ttl_us(p, &p->clock[clock]) - now);
	return Max(0, now - p->keep_for_us - cutoff);
}

static char *
instant(TimestampTz t)
{
	return psprintf("pg_catalog.to_timestamp(%.6f)",
					t / 1e6 + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (double) SECS_PER_DAY);
}

/* Boolean over t and $2: a time to live has passed since then. */
static char *
lived_since(const SswClock *c, TimestampTz start)
{
	return psprintf("%s " SSW_OP("+") " (%s) " SSW_OP("<=") " $2", instant(start), c->row_ttl);
}

/*
 * For rows with a time to live of their own: p->row_grace, a boolean over t and
 * $2, says that the row has had its grace.
 */
void
ssw_grace_rows(SswPolicy *p)
{
	const SswClock *c = &p->clock[0];
	char	   *down = psprintf("%s " SSW_OP("<=") " ($2 " SSW_OP("-") " pg_catalog.make_interval(secs => %.6f))",
								c->due, down_us() / 1e6);
	StringInfoData buf;
	Past		past;

	if (!covers(p, c) || c->row_ttl == NULL)
		return;
	recall(p, &past);
	initStringInfo(&buf);
	appendStringInfo(&buf, "(%s", lived_since(c, SswShared->service_start));
	for (int i = 0; i < past.n; i++)
		if (!TIMESTAMP_IS_NOBEGIN(past.pair[i].deadline))
			appendStringInfo(&buf, " OR (%s " SSW_OP("<=") " %s AND %s)", c->due,
							 instant(past.pair[i].deadline), lived_since(c, start_of(&past, i)));
	if (SswShared->clean_start && past.n > 0)
		appendStringInfo(&buf, " OR (%s AND %s)", down, lived_since(c, start_of(&past, past.n - 1)));
	else if (SswShared->clean_start)
		appendStringInfo(&buf, " OR %s", down);
	appendStringInfoChar(&buf, ')');
	p->row_grace = buf.data;
}

static void
forget(SswPolicy *p, int i)
{
	p->nhorizons--;
	memmove(&p->horizon[i], &p->horizon[i + 1], (p->nhorizons - i) * sizeof(SswHorizon));
}

/* Make room for a pair: forget the one whose successor is as good, or nearly. */
static void
thin(SswPolicy *p, TimestampTz now)
{
	int64		ttl = ttl_us(p, &p->clock[0]);
	int			least = 0;
	double		least_loss = 0;

	while (ttl > 0 && p->nhorizons > 1 && now - p->keep_for_us - p->horizon[1].service >= ttl)
		forget(p, 0);
	if (p->nhorizons < SSW_MAX_HORIZONS)
		return;
	for (int i = 0; i + 1 < p->nhorizons; i++)
	{
		TimestampTz next = p->horizon[i + 1].service;
		double		loss = (double) (next - p->horizon[i].service) / Max(1, now - next);

		if (i == 0 || loss < least_loss)
		{
			least = i;
			least_loss = loss;
		}
	}
	forget(p, least);
}

/* The first note of this start: all starts are later by the outage before it. */
static void
begin_notes(SswPolicy *p, const Past *past, TimestampTz now)
{
	for (int i = 0; i < past->n; i++)
		p->horizon[i] = (SswHorizon)
	{
		start_of(past, i), past->pair[i].deadline
	};
	p->nhorizons = past->n;
	if (SswShared->clean_start)
		return;
	thin(p, now);
	p->horizon[p->nhorizons++] = (SswHorizon)
	{
		SswShared->service_start, DT_NOBEGIN
	};
}

/*
 * During the grace after a crash, note how far service has judged; afterwards,
 * that it is over.  True when there is something to be written.
 */
bool
ssw_grace_note(SswPolicy *p, TimestampTz now)
{
	Past		past;
	int64		served;

	if (p->nclocks == 0 || !covers(p, &p->clock[0]))
		return false;
	recall(p, &past);
	if (SswShared->clean_start && past.n == 0)
		return false;
	served = now - (SswShared->clean_start ? start_of(&past, past.n - 1) : SswShared->service_start);
	if (p->clock[0].row_ttl == NULL && served >= ttl_us(p, &p->clock[0]) + p->keep_for_us)
	{
		if (p->nhorizons == 0)
			return false;
		p->nhorizons = 0;
		return true;
	}
	if (has_noted(p) && now - p->noted_at < served / 4)
		return false;
	if (!has_noted(p))
		begin_notes(p, &past, now);
	p->horizon[p->nhorizons - 1].deadline = Max(p->horizon[p->nhorizons - 1].deadline,
												now - p->keep_for_us - down_us());
	p->noted_at = now;
	return true;
}
