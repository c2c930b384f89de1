/*
 * arrival.c
 *		Grace for rows whose heartbeats this node's memory does not have.
 *
 * Heartbeats in memory do not move with a shard.  The node that it leaves answers true only
 * before this node can see it (citus/route.c).  So no row dies here before one time to
 * live has passed since this node has first seen the shard: its arrival is to its rows
 * what a start of service is to all.
 *
 * The coordinator notes arrivals, for policies with heartbeats.  A shard without a note
 * keeps all its rows.  Workers, and callers who ask for a row, read the notes.  A shard
 * is another table when it comes back, so it arrives again.
 *
 * The same holds when another table takes the place of a policy's: its rows may come from
 * shards that other nodes had.  What binds the policy to it notes it.  From then on
 * the leaves of the policy are noted as shards are.
 *
 * Facts are in sweeper.shard_arrival.  A crash leaves them, and ordinary grace follows.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "grace/arrival.h"
#include "grace/service_log.h"
#include "policy/partition.h"

static bool
has_shards(const SswPolicy *p)
{
	return ssw_shards && ssw_shards->has(p->relid);
}

static SswArrival *
find(const SswPolicy *p, Oid leaf)
{
	ListCell   *lc;

	foreach(lc, p->arrivals)
		if (((SswArrival *) lfirst(lc))->leaf == leaf)
		return lfirst(lc);
	return NULL;
}

static void
add(SswPolicy *p, MemoryContext cxt, Oid leaf, TimestampTz at)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SswArrival *a = palloc(sizeof(SswArrival));

	*a = (SswArrival)
	{
		leaf, at
	};
	p->arrivals = lappend(p->arrivals, a);
	MemoryContextSwitchTo(old);
}

/* Read the notes, into the current context; false: the policy needs none. */
bool
ssw_arrival_load(SswPolicy *p)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(p->id);
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;
	uint64		n;

	p->arrivals = NIL;
	p->arrives = false;
	/* the registry's rows never were elsewhere */
	if (!p->heartbeats || p->registry)
		return false;
	ssw_spi_begin_as_extension(&save);
	n = ssw_spi_exec("SELECT shard, arrived_at FROM sweeper.shard_arrival WHERE policy_id = $1", 1, &type, &value, NULL, true, 0);
	for (uint64 i = 0; i < n; i++)
		add(p, cxt, DatumGetObjectId(ssw_spi_column(i, 1)), DatumGetTimestampTz(ssw_spi_column(i, 2)));
	ssw_spi_end_as(&save);
	p->arrivals_read = true;
	p->arrives = n > 0 || has_shards(p);
	return p->arrives;
}

/* Write what has arrived, or has left, of these leaves. */
static void
write_notes(const SswPolicy *p, List *leaves, TimestampTz at, bool all)
{
	Oid			types[] = {INT4OID, OIDARRAYOID, TIMESTAMPTZOID};
	Datum		values[3];
	Datum	   *oids = palloc(list_length(leaves) * sizeof(Datum));
	SswIdentity save;
	ListCell   *lc;

	foreach(lc, leaves)
		oids[foreach_current_index(lc)] = ObjectIdGetDatum(lfirst_oid(lc));
	values[0] = Int32GetDatum(p->id);
	values[1] = PointerGetDatum(construct_array(oids, list_length(leaves), OIDOID, sizeof(Oid), true, TYPALIGN_INT));
	values[2] = TimestampTzGetDatum(at);
	ssw_spi_begin_as_extension(&save);
	if (all)
		ssw_spi_exec("DELETE FROM sweeper.shard_arrival WHERE policy_id = $1 AND shard <> ALL ($2)", 2, types, values, NULL, false, 0);
	ssw_spi_exec("INSERT INTO sweeper.shard_arrival SELECT $1, l, $3 FROM pg_catalog.unnest($2) AS l ON CONFLICT DO NOTHING",
				 3, types, values, NULL, false, 0);
	ssw_spi_end_as(&save);
}

/*
 * Another table is the policy's now.  Where there is Citus, its rows may come from other
 * nodes.  That it is noted makes its leaves arrive, whatever they are.
 */
void
ssw_arrival_replace(int policy_id)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(policy_id);

	(void) ssw_spi_exec_as_extension("INSERT INTO sweeper.shard_arrival SELECT policy_id, relid, pg_catalog.clock_timestamp() FROM sweeper.policy"
									 " WHERE policy_id = $1 AND heartbeats AND pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL"
									 " ON CONFLICT (policy_id, shard) DO UPDATE SET arrived_at = excluded.arrived_at", 1, &type, &value, NULL, false);
}

/* In the coordinator: note which leaves have come, and which have left. */
void
ssw_arrival_note(SswPolicy *p)
{
	MemoryContext round = CurrentMemoryContext;
	List	   *old = p->arrivals;
	List	   *leaves;
	uint32		others;
	int			known = 0;
	ListCell   *lc;

	/* without shards, nothing is noted but by a change of the policy */
	if (!p->heartbeats || (p->arrivals_read && !p->arrives && !has_shards(p)))
		return;
	if (!p->arrives)
	{
		MemoryContextSwitchTo(GetMemoryChunkContext(p));
		(void) ssw_arrival_load(p);
		MemoryContextSwitchTo(round);
		old = p->arrivals;
	}
	if (!p->arrives)
		return;
	leaves = ssw_partition_leaves(p, AccessShareLock, &others);
	foreach(lc, leaves)
		known += find(p, lfirst_oid(lc)) != NULL;
	if (known == list_length(leaves) && (others != 0 || known == list_length(p->arrivals)))
		return;
	/* a session that changes the policy, or drops it, goes first */
	if (!ssw_lock_policy_batch_conditional(p->id))
		return;

	/*
	 * later than the look: the node that it has left may have answered true
	 * until then
	 */
	write_notes(p, leaves, GetCurrentTimestamp(), others == 0);
	MemoryContextSwitchTo(GetMemoryChunkContext(p));
	(void) ssw_arrival_load(p);
	list_free_deep(old);
	MemoryContextSwitchTo(round);
}

/* What arrived then got its first service, outages since not counted. */
static TimestampTz
service_since(const SswArrival *a)
{
	SswStarts	starts;

	ssw_service_list(&starts);
	return a->at + ssw_service_outages_since(&starts, a->at);
}

/*
 * No row of the leaf dies before; 0: arrivals do not matter; DT_NOEND: it has not
 * been noted.  Where each row has a time to live of its own, the arrival.
 */
TimestampTz
ssw_arrival_until(const SswPolicy *p, Oid leaf)
{
	SswArrival *a;

	if (!p->arrives)
		return 0;
	a = find(p, leaf);
	return a ? service_since(a) + (p->deadlines[0].row_ttl ? 0 : p->deadlines[0].ttl_us) : DT_NOEND;
}

/* Has a session of that time to live not had its grace since its leaf arrived? */
bool
ssw_arrival_covers(const SswPolicy *p, Oid leaf, int64 ttl_us, TimestampTz now)
{
	SswPolicy	read = *p;
	SswArrival *a;

	if (!ssw_arrival_load(&read))
		return false;
	a = find(&read, leaf);
	return a == NULL || service_since(a) + ttl_us > now;
}

/* The same as a boolean over t and $2: the row has had the grace of its shard's arrival. */
char	   *
ssw_arrival_rule(const SswPolicy *p, TimestampTz now)
{
	const SswDeadline *c = &p->deadlines[0];
	StringInfoData buf;
	ListCell   *lc;

	if (p->arrivals == NIL)
		return pstrdup("false");
	initStringInfo(&buf);
	appendStringInfoString(&buf, c->row_ttl ? "CASE t.tableoid" : "t.tableoid " SSW_OP("=") " ANY ('{0");
	foreach(lc, p->arrivals)
	{
		const SswArrival *a = lfirst(lc);

		if (c->row_ttl)
			appendStringInfo(&buf, " WHEN %u THEN pg_catalog.to_timestamp(%.6f)", a->leaf,
							 service_since(a) / 1e6 + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * (double) SECS_PER_DAY);
		else if (ssw_arrival_until(p, a->leaf) <= now - p->keep_for_us)
			appendStringInfo(&buf, ",%u", a->leaf);
	}
	if (c->row_ttl)
		appendStringInfo(&buf, " END " SSW_OP("+") " (%s) " SSW_OP("<=") " $2", c->row_ttl);
	else
		appendStringInfoString(&buf, "}'::pg_catalog.oid[])");
	return buf.data;
}
