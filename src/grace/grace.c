/*
 * grace.c
 *		Time credited after an outage, to policies whose rows depend on activity.
 *
 * Cutoffs are computed by the coordinator, by workers for rows with a time to
 * live of their own, and where a row is explained.  Outages between clean starts,
 * and jumps of the clock, are credited until there has been service for a time to
 * live after them (service_log.c); after a crash or promotion nothing dies before one
 * time to live has passed since the start of service.
 *
 * So that crashes in quick succession do not keep dead rows forever, each start
 * of service after a crash notes in the policy's row how far it has judged: pairs
 * of its time and the latest deadline that it saw pass.  A row whose deadline
 * passed under a start since which there was service for a time to live has had
 * its grace.  A clean stop does not end a service: the last pair continues.  Outages
 * do not count as service: they are added to the time of every start before.
 * Notes come ever more rarely, and a crash loses at most a fifth of the service
 * before it.  When a grace is over its pairs are removed; where each row has its
 * own time to live it never is, and the pairs are thinned out, the older the more.
 *
 * An outage of a policy (policy_outage.c) is no service either, and its end is to the
 * policy such a start.
 *
 * The coordinator alone notes.  A crash leaves the last note.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "grace/arrival.h"
#include "grace/grace.h"
#include "grace/policy_outage.h"
#include "grace/service_log.h"

/* Does grace cover this deadline at all? */
static bool
covers(const SswPolicy *p, const SswDeadline *c)
{
	return c->activity || (OidIsValid(p->is_alive) && !c->absolute);
}

/* The time to live behind a deadline; 0 where each row has its own. */
static int64
ttl_us(const SswPolicy *p, const SswDeadline *c)
{
	return c->row_ttl ? 0 : c->activity ? c->ttl_us : p->ttl_us;
}

/*
 * What is known of the time before.  A crash whose start left no note, because
 * nobody swept then, is in the list of starts.
 */
typedef struct Past
{
	SswStarts	starts;
	int			n;
	SswHorizon	pair[SSW_MAX_HORIZONS + 1]; /* with all outages added */
	bool		moved;			/* they were later than in the policy */
} Past;

/* Has this start of service written a note?  One of the future is of an earlier start, whose clock was fast. */
static bool
has_noted(const SswPolicy *p, TimestampTz now)
{
	return p->nhorizons > 0 && p->noted_at >= ssw_service_began() && p->noted_at <= now;
}

/* While rows cannot be written, no session can show that it is alive: it is as before a start of service. */
static void
recall_outage(const SswPolicy *p, Past *past, TimestampTz now)
{
	SswHorizon *last = past->n > 0 ? &past->pair[past->n - 1] : NULL;
	TimestampTz since;
	TimestampTz until;
	int64		outage;

	if (!ssw_outage_last(p->id, now, &since, &until))
		return;
	outage = ssw_service_outages_since(&past->starts, until);
	since += outage;
	until += outage;
	if (last && until <= last->service)
		return;
	/* nor was that service under any start before */
	outage = last ? Max(0, until - Max(since, last->service)) : 0;
	for (int i = 0; i < past->n; i++)
		past->pair[i].service += outage;
	if (last == NULL || (!TIMESTAMP_IS_NOBEGIN(last->deadline) && past->n <= SSW_MAX_HORIZONS))
		last = &past->pair[past->n++];
	*last = (SswHorizon)
	{
		until, DT_NOBEGIN
	};
	past->moved = true;
}

/*
 * The pairs of the policy's row; after a clean start without any, the last crash in the
 * list of starts is one.  Returns since when outages are to be added to them.
 */
static TimestampTz
recall_pairs(const SswPolicy *p, Past *past)
{
	past->n = p->nhorizons;
	memcpy(past->pair, p->horizon, past->n * sizeof(SswHorizon));
	if (past->n > 0 || !ssw_service_is_clean())
		return p->noted_at;
	for (int i = past->starts.n - 1; i >= 0; i--)
		if (past->starts.start[i].crash)
		{
			past->pair[past->n++] = (SswHorizon)
			{
				past->starts.start[i].at, DT_NOBEGIN
			};
			return past->starts.start[i].at;
		}
	return p->noted_at;
}

/* Outages since then were no service under any start.  Times of the future are those of a clock that was fast. */
static void
add_outages(Past *past, TimestampTz since, TimestampTz now)
{
	int64		outage = ssw_service_outages_since(&past->starts, since);

	for (int i = 0; i < past->n; i++)
	{
		SswHorizon *pair = &past->pair[i];
		TimestampTz service = Min(pair->service + outage, now);

		/* rows that were written since have such deadlines as well */
		TimestampTz deadline = pair->deadline > now ? DT_NOBEGIN : pair->deadline;

		past->moved = past->moved || service != pair->service || deadline != pair->deadline;
		*pair = (SswHorizon)
		{
			service, deadline
		};
	}
}

/* All that is known of the time before now.  Until service begins nobody knows it: then it is as if that began now. */
static void
recall(const SswPolicy *p, Past *past)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz began = ssw_service_began();

	past->moved = false;
	ssw_service_check_clock();
	ssw_service_list(&past->starts);
	add_outages(past, recall_pairs(p, past), now);
	if ((began == 0 && !RecoveryInProgress()) || (!ssw_service_is_clean() && !has_noted(p, now)))
	{
		/* this start, after a crash; the clock may have been set since */
		past->pair[past->n++] = (SswHorizon)
		{
			began == 0 ? now : began + ssw_service_outages_since(&past->starts, began), DT_NOBEGIN
		};
		past->moved = true;
	}
	recall_outage(p, past, now);
}

/* Rows with that time to live and a deadline up to the result may die now; DT_NOBEGIN: none. */
static TimestampTz
grace_cutoff(const SswPolicy *p, int64 ttl, TimestampTz now)
{
	TimestampTz cutoff = now - p->keep_for_us;
	TimestampTz judged = DT_NOBEGIN;
	Past		past;

	recall(p, &past);

	/*
	 * what the latest start judged under which there was service for a time
	 * to live
	 */
	for (int i = 0; i < past.n; i++)
		if (cutoff - past.pair[i].service >= ttl)
			judged = past.pair[i].deadline;
	/* if that is the last start, all but what clean outages credit */
	if (past.n == 0 || cutoff - past.pair[past.n - 1].service >= ttl)
		judged = cutoff - ssw_service_credit(&past.starts, now, ttl + p->keep_for_us);
	return Min(cutoff, judged);
}

/*
 * The cutoff of each deadline: rows whose deadline is up to it are dead.  Of rows with
 * a time to live of their own only those that ssw_grace_rows() says.
 */
void
ssw_grace_cutoffs(const SswPolicy *p, TimestampTz now, TimestampTz *cutoffs)
{
	for (int i = 0; i < p->ndeadlines; i++)
	{
		const SswDeadline *c = &p->deadlines[i];

		cutoffs[i] = covers(p, c) && !c->row_ttl ? grace_cutoff(p, ttl_us(p, c), now) : now - p->keep_for_us;
	}
}

/* The cutoff for a row that depends on activity, and has that time to live. */
TimestampTz
ssw_grace_cutoff_of_row(const SswPolicy *p, int64 ttl, TimestampTz now)
{
	return covers(p, &p->deadlines[0]) ? grace_cutoff(p, ttl, now) : now - p->keep_for_us;
}

/* How long from now a row must wait that would be due, with that cutoff. */
int64
ssw_grace_credit(const SswPolicy *p, int which, TimestampTz cutoff, TimestampTz now)
{
	if (TIMESTAMP_IS_NOBEGIN(cutoff))
		return ssw_max(0, ssw_service_began() + ttl_us(p, &p->deadlines[which]) - now);
	return Max(0, now - p->keep_for_us - cutoff);
}

static char *
instant(TimestampTz t)
{
	return psprintf("pg_catalog.to_timestamp(%.6f)",
					t / 1e6 + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (double) SECS_PER_DAY);
}

/* Boolean over t: a time to live has passed from then to now. */
static char *
lived_since(const SswDeadline *c, TimestampTz start, const char *now)
{
	return psprintf("%s " SSW_OP("+") " (%s) " SSW_OP("<=") " %s", instant(start), c->row_ttl, now);
}

/*
 * For rows with a time to live of their own: when one is due, over t; null if it has passed
 * and grace may cover it.  For a process that need not know more.
 */
char	   *
ssw_grace_row_due(const SswPolicy *p)
{
	const SswDeadline *c = &p->deadlines[0];

	if (!covers(p, c))
		return c->due;
	return psprintf("CASE WHEN %s " SSW_OP(">") " pg_catalog.now() OR %s THEN %s END",
					c->due, lived_since(c, ssw_service_began(), "pg_catalog.now()"), c->due);
}

/* What outages since the last crash credit a row, in seconds. */
static char *
row_credit(const SswDeadline *c, const SswStarts *s)
{
	StringInfoData buf;
	int64		later = 0;

	initStringInfo(&buf);
	appendStringInfoChar(&buf, '0');
	for (int i = s->n - 1; i >= 0 && !s->start[i].crash; i--)
	{
		appendStringInfo(&buf, " " SSW_OP("+") " CASE WHEN %s THEN 0 ELSE %.6f END",
						 lived_since(c, s->start[i].at + later, "$2"), Max(0, s->start[i].outage_us) / 1e6);
		later += Max(0, s->start[i].outage_us);
	}
	return buf.data;
}

/*
 * For rows with a time to live of their own, and for those of shards: p->row_grace, a
 * boolean over t and $2, says that the row has had its grace.
 */
void
ssw_grace_rows(SswPolicy *p)
{
	const SswDeadline *c = &p->deadlines[0];
	StringInfoData buf;
	Past		past;
	char	   *arrival;

	if (!covers(p, c))
		return;
	arrival = ssw_arrival_load(p) ? ssw_arrival_rule(p, GetCurrentTimestamp()) : NULL;
	p->row_grace = arrival;
	if (c->row_ttl == NULL)
		return;
	recall(p, &past);
	initStringInfo(&buf);
	appendStringInfo(&buf, "(%s AND %s " SSW_OP("<=") " ($2 " SSW_OP("-") " pg_catalog.make_interval(secs => %s))",
					 past.n > 0 ? lived_since(c, past.pair[past.n - 1].service, "$2") : "true", c->due,
					 row_credit(c, &past.starts));
	for (int i = 0; i < past.n; i++)
		if (!TIMESTAMP_IS_NOBEGIN(past.pair[i].deadline))
			appendStringInfo(&buf, " OR (%s " SSW_OP("<=") " %s AND %s)", c->due,
							 instant(past.pair[i].deadline), lived_since(c, past.pair[i].service, "$2"));
	appendStringInfoChar(&buf, ')');
	p->row_grace = arrival ? psprintf("(%s AND %s)", buf.data, arrival) : buf.data;
}

static void
forget(Past *past, int i)
{
	past->n--;
	memmove(&past->pair[i], &past->pair[i + 1], (past->n - i) * sizeof(SswHorizon));
}

/* Make room: forget the pair whose successor is as good, or nearly. */
static void
thin(Past *past, int64 ttl, TimestampTz cutoff)
{
	int			least = 0;
	double		least_loss = 0;

	while (ttl > 0 && past->n > 1 && cutoff - past->pair[1].service >= ttl)
		forget(past, 0);
	if (past->n <= SSW_MAX_HORIZONS)
		return;
	for (int i = 0; i + 1 < past->n; i++)
	{
		TimestampTz next = past->pair[i + 1].service;
		double		loss = (double) (next - past->pair[i].service) / Max(1, cutoff - next);

		if (i == 0 || loss < least_loss)
		{
			least = i;
			least_loss = loss;
		}
	}
	forget(past, least);
}

/*
 * Rows due until then say all that is known of their sessions.  Of later ones memory
 * may know more, until a pass has written what it knows; or has nobody sent a
 * heartbeat since the start?
 */
static TimestampTz
compared_until(const SswPolicy *p, TimestampTz now)
{
	SswPolicyShared s;

	if (!p->heartbeats || !ssw_shmem_read_policy(p->id, &s) || s.heartbeat_ttl_us == 0)
		return now;
	/* not when the clock was fast then */
	return s.compared_at == 0 || s.compared_at > now ? DT_NOBEGIN : s.compared_at;
}

/*
 * During the grace after a crash, note how far service has judged; afterwards,
 * that it is over.  True when there is something to be written.
 */
bool
ssw_grace_note(SswPolicy *p, TimestampTz now)
{
	TimestampTz cutoff = now - p->keep_for_us;
	int64		ttl;
	Past		past;
	SswHorizon *last;

	if (p->ndeadlines == 0 || !covers(p, &p->deadlines[0]))
		return false;
	recall(p, &past);
	if (past.n == 0)
		return false;
	ttl = ttl_us(p, &p->deadlines[0]);
	last = &past.pair[past.n - 1];
	if (p->deadlines[0].row_ttl == NULL && cutoff - last->service >= ttl)
	{
		if (p->nhorizons == 0)
			return false;
		p->nhorizons = 0;
		return true;
	}
	if (!past.moved && now - p->noted_at < (now - last->service) / 4)
		return false;
	cutoff -= ssw_service_credit(&past.starts, now, p->deadlines[0].row_ttl ? PG_INT64_MAX : ttl + p->keep_for_us);
	last->deadline = ssw_max(last->deadline, ssw_min(cutoff, compared_until(p, now)));
	thin(&past, ttl, now - p->keep_for_us);
	p->nhorizons = past.n;
	memcpy(p->horizon, past.pair, past.n * sizeof(SswHorizon));
	p->noted_at = now;
	return true;
}
