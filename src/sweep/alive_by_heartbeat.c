/*
 * alive_by_heartbeat.c
 *		Which rows of a batch are alive by their heartbeats.
 *
 * Runs in workers and in sessions that end rows by name, as the relation's owner
 * and in SPI, inside the batch's transaction.  Rows that may end are marked in
 * memory before the row action, and looked at again after it; rows that are
 * alive get their new deadline.  The steps are those of doc/heartbeats.md.
 *
 * Shares the heartbeats (store.c).  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/timestamp.h"

#include "base/error_class.h"
#include "grace/service_log.h"
#include "heartbeat/target_cache.h"
#include "heartbeat/xact.h"
#include "policy/partition.h"
#include "policy/sweep_sql.h"
#include "sweep/alive_by_heartbeat.h"

/* The rows of a batch, sorted. */
typedef struct SswAlive
{
	int			ndead;
	ItemPointerData *dead;		/* may end */
	int			nalive;
	ItemPointerData *alive;		/* their rows are to say so, */
	Datum	   *seen;			/* timestamptz: at the last heartbeat, */
	Datum	   *until;			/* one time to live later, */
	Datum	   *due;			/* instead of then */
	int			pending;		/* where their marks begin; see xact.h */
	Oid			shard;			/* that they are in, or invalid */
} SswAlive;

/*
 * A heartbeat holds a session whose time to live after it ends after the result.
 * Where each row has a time to live of its own, the cutoff of its deadline says
 * nothing of outages.
 */
static TimestampTz
own_cutoff(const SswPolicy *p, TimestampTz cutoff, int64 ttl_us)
{
	SswStarts	starts;

	if (p->deadlines[0].row_ttl == NULL || TIMESTAMP_IS_NOBEGIN(cutoff))
		return cutoff;
	ssw_service_list(&starts);
	return cutoff - ssw_service_credit(&starts, cutoff + p->keep_for_us, ttl_us + p->keep_for_us);
}

static TimestampTz
last_seen(const SswHeartbeat *b)
{
	return SSW_ENTRY_SEEN(pg_atomic_read_u64(&unconstify(SswHeartbeat *, b)->word));
}

/* Would a new deadline be later than the one the row has? */
static bool
gains(const SswHeartbeat *b, TimestampTz due)
{
	return last_seen(b) + b->ttl_us > due;
}

/* Is the session alive by memory, and not overruled by its row? */
static bool
is_alive(const SswPolicy *p, const SswHeartbeat *b, TimestampTz due, TimestampTz cutoff)
{
	return due >= b->deadline && last_seen(b) + b->ttl_us > own_cutoff(p, cutoff, b->ttl_us);
}

/* Does memory hold a row, of that shard if it is in one, whose deadline is at or before the cutoff? */
bool
ssw_alive_holds(const SswPolicy *p, Oid shard, const char *key, TimestampTz due, TimestampTz cutoff)
{
	SswHeartbeatKey k = ssw_target_cache_key(p, shard, key);
	SswHeartbeat b;

	return ssw_store_find(&k, &b) && is_alive(p, &b, due, cutoff);
}

/*
 * Is there anything to do about a row with that deadline?  cutoff is that of its
 * end, rows beyond are looked at because of their heartbeats only.
 */
bool
ssw_alive_wanted(const SswPolicy *p, Oid shard, const char *key, TimestampTz due, TimestampTz cutoff)
{
	SswHeartbeatKey k = ssw_target_cache_key(p, shard, key);
	SswHeartbeat b;

	if (!ssw_store_find(&k, &b))
		return due <= cutoff;
	if (due > cutoff && due < b.deadline)
		ssw_store_look(&k);
	return is_alive(p, &b, due, cutoff) ? gains(&b, due) : due <= cutoff;
}

static void
add_alive(SswAlive *a, const SswRow *row, const SswHeartbeat *b)
{
	TimestampTz seen = last_seen(b);

	a->alive[a->nalive] = row->tid;
	a->seen[a->nalive] = TimestampTzGetDatum(seen);
	a->until[a->nalive] = TimestampTzGetDatum(seen + b->ttl_us);
	a->due[a->nalive++] = TimestampTzGetDatum(row->due);
}

/* E1 for one row. */
static void
sort_row(const SswTarget *t, SswAlive *a, const SswRow *row)
{
	const SswPolicy *p = t->policy;
	SswHeartbeatKey k = ssw_target_cache_key(p, a->shard, row->key);
	SswHeartbeatEnd end = t->gone ? SSW_END_IF_GONE :
	t->phase == SSW_PHASE_MANUAL ? SSW_END_BY_NAME :
	t->phase == SSW_PHASE_DEADLINE && row->has_due ? SSW_END_IF_DEAD : SSW_END_ANYWAY;
	SswHeartbeat b;
	bool		known = ssw_store_find(&k, &b);
	uint64		word = 0;

	if (end == SSW_END_IF_DEAD && row->due > t->cutoff)
	{
		if (known && is_alive(p, &b, row->due, t->cutoff) && gains(&b, row->due))
			add_alive(a, row, &b);
		return;
	}
	switch (ssw_store_mark(&k, row->due, own_cutoff(p, t->cutoff, known ? b.ttl_us : 0), end, t->locked, &word))
	{
		case SSW_VERDICT_ALIVE:
			if (!t->gone && ssw_store_find(&k, &b) && gains(&b, row->due))
				add_alive(a, row, &b);
			return;
		case SSW_VERDICT_BUSY:
			if (!t->skip_locked)
				ereport(ERROR,
						(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						 errmsg("another session is ending a row of policy \"%s\"", p->name)));
			return;
		case SSW_VERDICT_NONE:
		case SSW_VERDICT_MARKED:
			break;
	}
	ssw_heartbeat_xact_mark(&k, word);
	a->dead[a->ndead++] = row->tid;
}

/* No rows yet, and room for so many. */
static void
begin(SswAlive *a, const SswTarget *t, uint64 n)
{
	memset(a, 0, sizeof(SswAlive));
	a->shard = ssw_partition_shard(t->policy, t->leaf);
	a->pending = ssw_heartbeat_xact_count();
	a->dead = palloc(Max(n, 1) * sizeof(ItemPointerData));
	a->alive = palloc(Max(n, 1) * sizeof(ItemPointerData));
	a->seen = palloc(Max(n, 1) * sizeof(Datum));
	a->until = palloc(Max(n, 1) * sizeof(Datum));
	a->due = palloc(Max(n, 1) * sizeof(Datum));
}

/* E1: sort the rows. */
static void
sort_rows(const SswTarget *t, const ItemPointerData *tids, int n, SswAlive *a)
{
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID};
	Datum		values[] = {TimestampTzGetDatum(t->cutoff), TimestampTzGetDatum(t->full_cutoff), ssw_action_tid_array(tids, n)};
	char	   *sql = ssw_sweep_sql_heartbeats(t->policy, t->leaf, false);
	SPITupleTable *rows;
	uint64		nrows;

	ssw_plan_by_place(sql, 3, types);
	nrows = ssw_plan_execute(sql, 3, types, values, NULL, false);
	rows = SPI_tuptable;
	begin(a, t, nrows);
	for (uint64 i = 0; i < nrows; i++)
	{
		SswRow		row = ssw_action_read_row(rows, i);

		sort_row(t, a, &row);
	}
}

static Datum
times(Datum *values, int n)
{
	return PointerGetDatum(construct_array(values, n, TIMESTAMPTZOID, sizeof(TimestampTz), true, TYPALIGN_DOUBLE));
}

/*
 * R1: the rows of those alive get their new deadlines; memory learns them at commit.
 * Returns how many do.
 */
static uint64
prolong(const SswTarget *t, SswAlive *a)
{
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID, TIDARRAYOID, TIMESTAMPTZARRAYOID,
	TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID};
	Datum		values[7];
	char	   *sql;
	uint64		n;

	if (a->nalive == 0)
		return 0;
	values[0] = TimestampTzGetDatum(t->cutoff);
	values[1] = TimestampTzGetDatum(t->full_cutoff);
	values[2] = values[3] = ssw_action_tid_array(a->alive, a->nalive);
	values[4] = times(a->seen, a->nalive);
	values[5] = times(a->until, a->nalive);
	values[6] = times(a->due, a->nalive);
	sql = ssw_sweep_sql_prolong(t->policy, t->leaf, t->skip_locked);
	ssw_plan_by_place(sql, 7, types);
	n = ssw_plan_execute_fresh(sql, 7, types, values);
	for (uint64 i = 0; i < n; i++)
	{
		SswHeartbeatKey k = ssw_target_cache_key(t->policy, a->shard, SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));
		bool		isnull;
		Datum		due = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull);

		if (!isnull)
			ssw_heartbeat_xact_prolong(&k, DatumGetTimestampTz(due), 0, NULL, false);
	}
	SPI_freetuptable(SPI_tuptable);
	if (t->prolonged)
		*t->prolonged += n;
	return n;
}

/* E3: did nobody come meanwhile?  all: every row that was marked has ended. */
static void
settle(const SswAlive *a, bool all)
{
	if (!ssw_heartbeat_xact_marks_hold(a->pending))
		ereport(ERROR,
				(ssw_error_ours(ERRCODE_SSW_HEARTBEAT),
				 errmsg("a heartbeat came while its session was being ended")));
	ssw_heartbeat_xact_ended(a->pending, all);
}

/*
 * The row action on those of the rows that no heartbeat keeps alive; those that one
 * does get a new deadline.  As ssw_action_run(), and for callers in its place.
 */
uint64
ssw_alive_act_on_dead(const SswTarget *t, const ItemPointerData *tids, int n, SswSink *sink)
{
	SswAlive	alive;
	uint64		acted;

	if (!t->policy->heartbeats || t->refresh)
		return ssw_action_run(t, tids, n, sink);
	sort_rows(t, tids, n, &alive);
	(void) prolong(t, &alive);
	if (alive.ndead == 0)
		return 0;
	ssw_cleanup_event_of_shard(sink, alive.shard);
	acted = ssw_action_run(t, alive.dead, alive.ndead, sink);
	settle(&alive, acted == alive.ndead);
	return acted;
}

/*
 * The rows, as ssw_sweep_sql_heartbeats() reads them, get new deadlines where memory has
 * later heartbeats, whether these hold the session still or not; nobody ends, and
 * none is marked.  Returns how many rows could not be written.
 */
uint64
ssw_alive_prolong(const SswTarget *t, const SPITupleTable *rows, uint64 n)
{
	SswAlive	alive;

	begin(&alive, t, n);
	for (uint64 i = 0; i < n; i++)
	{
		SswRow		row = ssw_action_read_row(rows, i);

		/*
		 * beyond the cutoff, which is none, a row is only given a new
		 * deadline
		 */
		if (row.has_due)
			sort_row(t, &alive, &row);
	}
	return alive.nalive - prolong(t, &alive);
}
