/*
 * cleanup_event.c
 *		What a batch did: event rows and notifications of its transaction.
 *
 * Runs in a worker, or in a session that calls expire(), inside the batch's
 * transaction.  A sink is a destination for the rows that the
 * row action returns.  A crash leaves nothing: the event rows are part of the
 * transaction.
 *
 * Rows are kept until ssw_cleanup_event_end(); a batch bounds their number.
 *
 * Shares SswPolicyShared.ended, under SswShared->lock.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/sequence.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "base/multi_insert.h"
#include "base/notify.h"
#include "base/wal.h"
#include "heartbeat/store.h"
#include "heartbeat/target_cache.h"
#include "policy/policy_hooks.h"
#include "policy/row_key.h"
#include "policy/sweep_sql.h"
#include "sweep/cleanup_event.h"

#define NOTIFY_MAX			7900	/* bytes; the server's limit is 8000 */

/* Columns of sweeper.cleanup_event, in the order of schema/10_tables.sql. */
enum
{
	E_ID, E_CLEANED_AT, E_DEADLINE, E_LAST_SEEN, E_PASS, E_POLICY_ID, E_COUNT, E_POLICY,
	E_RELATION, E_KEY, E_GROUP, E_OWNER, E_TYPE, E_REASON, E_ACTOR, E_METADATA, E_NCOLS
};

struct SswSink
{
	DestReceiver dest;			/* must be first */
	const SswPolicy *policy;
	int64		pass_id;
	const char *cleanup_type;
	const char *reason;
	const char *actor;
	MemoryContext cxt;
	Oid			shard;			/* of the rows, or invalid */
	bool		still_dead;
	Size		bytes;			/* of texts and captured values */
	int			nrows;
	int			maxrows;
	SswEndedRow *rows;
};

/* What memory has of a session that ends is newer than its row. */
static void
look_at_memory(const SswSink *sink, SswEndedRow *r)
{
	const SswPolicy *p = sink->policy;
	SswHeartbeatKey k;
	SswHeartbeat b;

	if (!p->heartbeats || p->audit != SSW_AUDIT_ROW || r->key == NULL || !ssw_shmem_available())
		return;
	k = ssw_target_cache_key(p, sink->shard, text_to_cstring(r->key));
	if (!ssw_store_find(&k, &b))
		return;
	r->seen = ssw_max(r->has_seen ? r->seen : DT_NOBEGIN, SSW_ENTRY_SEEN(pg_atomic_read_u64(&b.word)));
	r->has_seen = true;
}

static bool
receive(TupleTableSlot *slot, DestReceiver *self)
{
	SswSink    *sink = (SswSink *) self;
	MemoryContext old = MemoryContextSwitchTo(sink->cxt);
	SswEndedRow *r;

	slot_getallattrs(slot);
	if (sink->nrows == sink->maxrows)
	{
		sink->maxrows *= 2;
		sink->rows = repalloc_huge(sink->rows, sink->maxrows * sizeof(SswEndedRow));
	}
	r = &sink->rows[sink->nrows++];
	if (sink->nrows % 1024 == 0)
		ssw_wal_start_writing();
#define COL(i) slot->tts_values[(i) - 1]
#define HAS(i) (!slot->tts_isnull[(i) - 1])
	r->key = HAS(SSW_R_KEY) ? ssw_key_of_value(TupleDescAttr(slot->tts_tupleDescriptor, SSW_R_KEY - 1)->atttypid, COL(SSW_R_KEY)) : NULL;
	r->has_due = HAS(SSW_R_DUE);
	r->due = r->has_due ? DatumGetTimestampTz(COL(SSW_R_DUE)) : 0;
	r->has_seen = HAS(SSW_R_SEEN);
	r->seen = r->has_seen ? DatumGetTimestampTz(COL(SSW_R_SEEN)) : 0;
	look_at_memory(sink, r);
	r->group = HAS(SSW_R_GROUP) ? DatumGetTextPCopy(COL(SSW_R_GROUP)) : NULL;
	r->meta = HAS(SSW_R_META) ? PG_DETOAST_DATUM_COPY(COL(SSW_R_META)) : NULL;
	sink->bytes += (r->key ? VARSIZE_ANY(r->key) : 0) + (r->group ? VARSIZE_ANY(r->group) : 0) + (r->meta ? VARSIZE(r->meta) : 0);
	if (sink->pass_id != 0 && sink->bytes > SSW_BATCH_BYTES && sink->nrows > 1)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("keys, groups and captured values of %d rows take too much memory", sink->nrows),
				 errhint("Capture less, or make batch_size smaller.")));
	if (HAS(SSW_R_STILL_DEAD) && DatumGetBool(COL(SSW_R_STILL_DEAD)))
		sink->still_dead = true;
	r->owner = NULL;
	r->channel = NULL;
	for (const SswPolicyHooks *h = sink->policy->hooks; h; h = h->next)
		if (h->read_row)
			h->read_row(slot, SSW_R_STILL_DEAD, r);
#undef COL
#undef HAS
	MemoryContextSwitchTo(old);
	return true;
}

/*
 * A sink for one transaction, in CurrentMemoryContext.  The strings must live
 * as long.
 */
SswSink    *
ssw_cleanup_event_begin(const SswPolicy *p, int64 pass_id, const char *cleanup_type,
						const char *reason, const char *actor)
{
	SswSink    *sink = palloc0(sizeof(SswSink));

	sink->dest = *None_Receiver;
	sink->dest.receiveSlot = receive;
	sink->policy = p;
	sink->pass_id = pass_id;
	sink->cleanup_type = cleanup_type;
	sink->reason = reason;
	sink->actor = actor;
	sink->cxt = CurrentMemoryContext;
	sink->maxrows = 1024;
	sink->rows = palloc(sink->maxrows * sizeof(SswEndedRow));
	return sink;
}

DestReceiver *
ssw_cleanup_event_receiver(SswSink *sink)
{
	return &sink->dest;
}

/* The rows that come are in that shard. */
void
ssw_cleanup_event_of_shard(SswSink *sink, Oid shard)
{
	sink->shard = shard;
}

/* Did the action leave a row dead that it returned? */
bool
ssw_cleanup_event_still_dead(SswSink *sink)
{
	return sink->still_dead;
}

static int
compare_groups(const void *a, const void *b)
{
	const SswEndedRow *x = a;
	const SswEndedRow *y = b;
	int			cmp;

	if (x->group == NULL || y->group == NULL)
		return (x->group == NULL) - (y->group == NULL);
	cmp = memcmp(VARDATA_ANY(x->group), VARDATA_ANY(y->group),
				 Min(VARSIZE_ANY_EXHDR(x->group), VARSIZE_ANY_EXHDR(y->group)));
	if (cmp != 0)
		return cmp;
	return (int) VARSIZE_ANY_EXHDR(x->group) - (int) VARSIZE_ANY_EXHDR(y->group);
}

/* How many of the rows have the group of the first; those of a group stand together. */
int
ssw_cleanup_event_group(const SswEndedRow *rows, int n)
{
	int			same = 1;

	while (same < n && compare_groups(&rows[0], &rows[same]) == 0)
		same++;
	return same;
}

/* What the event rows of a sink have in common. */
typedef struct Events
{
	SswMultiInsert *table;
	Datum		relation;
	Datum		policy;
	Datum		type;
	Datum		reason;
	Datum		actor;
} Events;

static void
open_events(SswSink *sink, Events *e)
{
	e->table = ssw_multi_insert_open("cleanup_event", E_NCOLS, E_CLEANED_AT + 1);
	e->relation = CStringGetTextDatum(sink->policy->relation);
	e->policy = CStringGetTextDatum(sink->policy->name);
	e->type = CStringGetTextDatum(sink->cleanup_type);
	e->reason = sink->reason ? CStringGetTextDatum(sink->reason) : (Datum) 0;
	e->actor = sink->actor ? CStringGetTextDatum(sink->actor) : (Datum) 0;
}

static void
add_event(Events *e, SswSink *sink, const SswEndedRow *r, int64 id, int count)
{
	TupleTableSlot *slot = ssw_multi_insert_slot(e->table);
	Datum	   *v = slot->tts_values;
	bool	   *n = slot->tts_isnull;

	v[E_ID] = Int64GetDatum(id);
	v[E_CLEANED_AT] = TimestampTzGetDatum(GetCurrentTransactionStartTimestamp());
	v[E_DEADLINE] = TimestampTzGetDatum(r->due);
	n[E_DEADLINE] = !r->has_due;
	v[E_LAST_SEEN] = TimestampTzGetDatum(r->seen);
	n[E_LAST_SEEN] = !r->has_seen;
	v[E_PASS] = Int64GetDatum(sink->pass_id);
	n[E_PASS] = sink->pass_id == 0;
	v[E_POLICY_ID] = Int32GetDatum(sink->policy->id);
	v[E_COUNT] = Int32GetDatum(count);
	v[E_POLICY] = e->policy;
	v[E_RELATION] = e->relation;
	v[E_KEY] = PointerGetDatum(r->key);
	n[E_KEY] = r->key == NULL;
	v[E_GROUP] = PointerGetDatum(r->group);
	n[E_GROUP] = r->group == NULL;
	v[E_OWNER] = PointerGetDatum(r->owner);
	n[E_OWNER] = r->owner == NULL;
	v[E_TYPE] = e->type;
	v[E_REASON] = e->reason;
	n[E_REASON] = sink->reason == NULL;
	v[E_ACTOR] = e->actor;
	n[E_ACTOR] = sink->actor == NULL;
	v[E_METADATA] = PointerGetDatum(r->meta);
	n[E_METADATA] = r->meta == NULL;
	ssw_multi_insert_row(e->table);
}

/* One notification for the rows [start, start + count). */
static void
notify(SswSink *sink, const char *channel, int start, int count, int64 first_id, int64 last_id)
{
	const SswPolicy *p = sink->policy;
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "{\"policy\": ");
	escape_json(&buf, p->name);
	if (sink->rows[start].group)
	{
		char	   *group = text_to_cstring(sink->rows[start].group);

		appendStringInfoString(&buf, ", \"group\": ");
		escape_json(&buf, strlen(group) > 1000 ? pnstrdup(group, pg_mbcliplen(group, strlen(group), 1000)) : group);
	}
	appendStringInfo(&buf, ", \"type\": \"%s\", \"count\": %d", sink->cleanup_type, count);
	if (first_id)
		appendStringInfo(&buf, ", \"first_id\": " INT64_FORMAT ", \"last_id\": " INT64_FORMAT,
						 first_id, last_id);
	if (p->notify_keys && sink->rows[start].key)
	{
		appendStringInfoString(&buf, ", \"keys\": [");
		for (int i = start; i < start + count; i++)
		{
			int			before = buf.len;

			if (i > start)
				appendStringInfoString(&buf, ", ");
			escape_json(&buf, text_to_cstring(sink->rows[i].key));
			if (buf.len > NOTIFY_MAX - 30)
			{
				buf.len = before;
				buf.data[before] = '\0';
				appendStringInfoString(&buf, "], \"more\": true");
				break;
			}
		}
		if (buf.data[buf.len - 1] != 'e')
			appendStringInfoChar(&buf, ']');
	}
	appendStringInfoChar(&buf, '}');
	ssw_notify(channel, buf.data);
	pfree(buf.data);
}

/* The place of a cleanup type in SswPolicyShared.ended. */
int
ssw_cleanup_event_type(const char *name)
{
	static const char *const types[SSW_END_TYPES] = {"zombie", "expired", "released", "disconnected", "manual"};
	int			type = 0;

	while (type < SSW_END_TYPES - 1 && strcmp(types[type], name) != 0)
		type++;
	return type;
}

/* As the server's own statistics, these count what is rolled back, too. */
static void
count(const SswSink *sink)
{
	SswPolicyShared *s;

	if (!ssw_shmem_available())
		return;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, sink->policy->id, true);
	if (s)
		s->ended[ssw_cleanup_event_type(sink->cleanup_type)] += sink->nrows;
	LWLockRelease(SswShared->lock);
}

/*
 * Write the event rows and queue the notifications of this transaction.  Called
 * as the extension's side of the batch, after the owner's code has run.
 */
void
ssw_cleanup_event_end(SswSink *sink)
{
	const SswPolicy *p = sink->policy;
	bool		by_group = p->group_text && (p->audit == SSW_AUDIT_COUNT || p->notify_channel || p->hooks);
	int64		id = 0;
	Events		e = {0};

	if (sink->nrows == 0)
		return;
	if (sink->nrows > SSW_MAX_BATCH)
		elog(ERROR, "batch of %d rows is too large", sink->nrows);
	if (by_group)
		qsort(sink->rows, sink->nrows, sizeof(SswEndedRow), compare_groups);
	if (p->audit != SSW_AUDIT_NONE)
	{
		open_events(sink, &e);
		id = nextval_internal(ssw_multi_insert_relation("event_batch_seq"), false) << 20;
	}
	for (const SswPolicyHooks *h = p->hooks; h; h = h->next)
		if (h->rows_ended)
			h->rows_ended(sink->rows, sink->nrows, sink->cleanup_type, id);
	for (int start = 0, len; start < sink->nrows; start += len)
	{
		int64		first = id;
		const char *channel;

		len = by_group ? ssw_cleanup_event_group(sink->rows + start, sink->nrows - start) : sink->nrows;
		if (p->audit == SSW_AUDIT_COUNT)
		{
			SswEndedRow r = {.group = sink->rows[start].group};

			add_event(&e, sink, &r, id++, len);
		}
		else if (e.table)
			for (int i = start; i < start + len; i++)
				add_event(&e, sink, &sink->rows[i], id++, 1);
		channel = sink->rows[start].channel ? sink->rows[start].channel : p->notify_channel;
		if (channel)
			notify(sink, channel, start, len, first, e.table ? id - 1 : 0);
	}
	if (e.table)
		ssw_multi_insert_close(e.table);
	count(sink);
}

/* Add the lags of the rows, as of the commit, to a histogram. */
void
ssw_cleanup_event_lags(SswSink *sink, TimestampTz commit, int64 *max_lag_us, double *sum, int64 *hist)
{
	for (int i = 0; i < sink->nrows; i++)
	{
		SswEndedRow *r = &sink->rows[i];
		int64		lag;
		int			b = 0;

		if (!r->has_due || TIMESTAMP_NOT_FINITE(r->due))
			continue;
		lag = Max(0, commit - (r->due + sink->policy->keep_for_us));
		while (b < SSW_LAG_BUCKETS - 1 && lag > ssw_lag_bounds[b] * USECS_PER_SEC)
			b++;
		hist[b]++;
		*sum += lag / (double) USECS_PER_SEC;
		*max_lag_us = Max(*max_lag_us, lag);
	}
}
