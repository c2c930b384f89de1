/*
 * audit.c
 *		What a batch did: event rows and notifications of its transaction.
 *
 * Runs in a worker, or in a session that calls expire(), inside the batch's
 * transaction; shares nothing.  A sink is a destination for the rows that the
 * row action returns.  Event rows go to sweeper.cleanup_event by multi-insert
 * straight into the heap and its indexes: no statement of a user's rights is
 * involved, so nobody needs the right to write that table.  A crash leaves
 * nothing: the rows are part of the transaction.
 *
 * Rows are kept until ssw_audit_end(), so that a row whose subtransaction fails
 * can be taken back; a batch bounds their number.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "commands/async.h"
#include "commands/sequence.h"
#include "executor/executor.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "audit.h"
#include "compat.h"
#include "stmt.h"

#define MULTI_INSERT_ROWS	256
#define NOTIFY_MAX			7900	/* bytes; the server's limit is 8000 */

/* Columns of sweeper.cleanup_event, in the order of schema/10_tables.sql. */
enum
{
	E_ID, E_CLEANED_AT, E_DEADLINE, E_LAST_SEEN, E_PASS, E_POLICY_ID, E_COUNT, E_POLICY,
	E_RELATION, E_KEY, E_GROUP, E_OWNER, E_TYPE, E_REASON, E_ACTOR, E_METADATA, E_NCOLS
};

typedef struct SinkRow
{
	TimestampTz due;
	TimestampTz seen;
	text	   *key;
	text	   *group;
	struct varlena *meta;
	bool		has_due;
	bool		has_seen;
} SinkRow;

struct SswSink
{
	DestReceiver dest;			/* must be first */
	const SswPolicy *policy;
	int64		pass_id;
	const char *cleanup_type;
	const char *reason;
	const char *actor;
	MemoryContext cxt;
	bool		still_dead;
	int			nrows;
	int			maxrows;
	SinkRow    *rows;
};

static bool
receive(TupleTableSlot *slot, DestReceiver *self)
{
	SswSink    *sink = (SswSink *) self;
	MemoryContext old = MemoryContextSwitchTo(sink->cxt);
	SinkRow    *r;

	slot_getallattrs(slot);
	if (sink->nrows == sink->maxrows)
	{
		sink->maxrows *= 2;
		sink->rows = repalloc_huge(sink->rows, sink->maxrows * sizeof(SinkRow));
	}
	r = &sink->rows[sink->nrows++];
#define COL(i) slot->tts_values[(i) - 1]
#define HAS(i) (!slot->tts_isnull[(i) - 1])
	r->key = HAS(SSW_R_KEY) ? DatumGetTextPCopy(COL(SSW_R_KEY)) : NULL;
	r->has_due = HAS(SSW_R_DUE);
	r->due = r->has_due ? DatumGetTimestampTz(COL(SSW_R_DUE)) : 0;
	r->has_seen = HAS(SSW_R_SEEN);
	r->seen = r->has_seen ? DatumGetTimestampTz(COL(SSW_R_SEEN)) : 0;
	r->group = HAS(SSW_R_GROUP) ? DatumGetTextPCopy(COL(SSW_R_GROUP)) : NULL;
	r->meta = HAS(SSW_R_META) ? PG_DETOAST_DATUM_COPY(COL(SSW_R_META)) : NULL;
	if (HAS(SSW_R_STILL_DEAD) && DatumGetBool(COL(SSW_R_STILL_DEAD)))
		sink->still_dead = true;
#undef COL
#undef HAS
	MemoryContextSwitchTo(old);
	return true;
}

static void
startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
no_op(DestReceiver *self)
{
}

/*
 * A sink for one transaction, in CurrentMemoryContext.  The strings must live
 * as long.
 */
SswSink    *
ssw_audit_begin(const SswPolicy *p, int64 pass_id, const char *cleanup_type,
				const char *reason, const char *actor)
{
	SswSink    *sink = palloc0(sizeof(SswSink));

	sink->dest.receiveSlot = receive;
	sink->dest.rStartup = startup;
	sink->dest.rShutdown = no_op;
	sink->dest.rDestroy = no_op;
	sink->dest.mydest = DestNone;
	sink->policy = p;
	sink->pass_id = pass_id;
	sink->cleanup_type = cleanup_type;
	sink->reason = reason;
	sink->actor = actor;
	sink->cxt = CurrentMemoryContext;
	sink->maxrows = 1024;
	sink->rows = palloc(sink->maxrows * sizeof(SinkRow));
	return sink;
}

DestReceiver *
ssw_audit_receiver(SswSink *sink)
{
	return &sink->dest;
}

/* A point to truncate to when a subtransaction fails. */
int
ssw_audit_mark(SswSink *sink)
{
	return sink->nrows;
}

void
ssw_audit_truncate(SswSink *sink, int mark)
{
	sink->nrows = mark;
	sink->still_dead = false;
}

int
ssw_audit_rows(SswSink *sink)
{
	return sink->nrows;
}

/* Did the action leave a row dead that it returned? */
bool
ssw_audit_still_dead(SswSink *sink)
{
	return sink->still_dead;
}

static int
compare_groups(const void *a, const void *b)
{
	const SinkRow *x = a;
	const SinkRow *y = b;
	int			cmp;

	if (x->group == NULL || y->group == NULL)
		return (x->group == NULL) - (y->group == NULL);
	cmp = memcmp(VARDATA_ANY(x->group), VARDATA_ANY(y->group),
				 Min(VARSIZE_ANY_EXHDR(x->group), VARSIZE_ANY_EXHDR(y->group)));
	if (cmp != 0)
		return cmp;
	return (int) VARSIZE_ANY_EXHDR(x->group) - (int) VARSIZE_ANY_EXHDR(y->group);
}

/* Rows from start that share a group. */
static int
group_length(SswSink *sink, int start)
{
	int			end = start + 1;

	while (end < sink->nrows && compare_groups(&sink->rows[start], &sink->rows[end]) == 0)
		end++;
	return end - start;
}

typedef struct Writer
{
	Relation	rel;
	EState	   *estate;
	ResultRelInfo *rri;
	BulkInsertState bistate;
	bool		once_a_block;	/* index one row of each block */
	BlockNumber indexed;		/* the last block with such a row */
	TupleTableSlot *slots[MULTI_INSERT_ROWS];
	int			nslots;
	MemoryContext cxt;			/* reset after each flush */
	Datum		relation;
	Datum		policy;
	Datum		type;
	Datum		reason;
	Datum		actor;
} Writer;

/*
 * Is a BRIN index on the time all there is?  All rows of a writer have the same
 * time, so the second row of a block would tell it nothing.
 */
static bool
only_brin_on_time(ResultRelInfo *rri)
{
	Relation	index;

	if (rri->ri_NumIndices != 1)
		return false;
	index = rri->ri_IndexRelationDescs[0];
	return index->rd_rel->relam == BRIN_AM_OID && index->rd_index->indnatts == 1 &&
		index->rd_index->indkey.values[0] == E_CLEANED_AT + 1 &&
		RelationGetIndexPredicate(index) == NIL;
}

static void
index_row(Writer *w, TupleTableSlot *slot)
{
	BlockNumber block = ItemPointerGetBlockNumber(&slot->tts_tid);

	if (w->rri->ri_NumIndices == 0 || (w->once_a_block && block == w->indexed))
		return;
	list_free(ssw_insert_index_tuples(w->rri, slot, w->estate));
	w->indexed = block;
}

static void
writer_flush(Writer *w)
{
	if (w->nslots == 0)
		return;
	table_multi_insert(w->rel, w->slots, w->nslots, GetCurrentCommandId(true), 0, w->bistate);
	for (int i = 0; i < w->nslots; i++)
	{
		index_row(w, w->slots[i]);
		ExecClearTuple(w->slots[i]);
	}
	w->nslots = 0;
	MemoryContextReset(w->cxt);
}

static void
writer_add(Writer *w, SswSink *sink, const SinkRow *r, int64 id, int count)
{
	TupleTableSlot *slot = w->slots[w->nslots];
	Datum	   *v;
	bool	   *n;

	if (slot == NULL)
		slot = w->slots[w->nslots] = table_slot_create(w->rel, NULL);
	ExecClearTuple(slot);
	v = slot->tts_values;
	n = slot->tts_isnull;
	memset(n, 0, E_NCOLS * sizeof(bool));
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
	v[E_POLICY] = w->policy;
	v[E_RELATION] = w->relation;
	v[E_KEY] = PointerGetDatum(r->key);
	n[E_KEY] = r->key == NULL;
	v[E_GROUP] = PointerGetDatum(r->group);
	n[E_GROUP] = r->group == NULL;
	n[E_OWNER] = true;
	v[E_TYPE] = w->type;
	v[E_REASON] = w->reason;
	n[E_REASON] = sink->reason == NULL;
	v[E_ACTOR] = w->actor;
	n[E_ACTOR] = sink->actor == NULL;
	v[E_METADATA] = PointerGetDatum(r->meta);
	n[E_METADATA] = r->meta == NULL;
	ExecStoreVirtualTuple(slot);
	if (++w->nslots == MULTI_INSERT_ROWS)
		writer_flush(w);
}

static Oid
our_relation(const char *name)
{
	return get_relname_relid(name, get_namespace_oid(SSW_SCHEMA, false));
}

/* Open the event table the way COPY does. */
static Writer *
writer_open(SswSink *sink)
{
	Writer	   *w = palloc0(sizeof(Writer));

	w->rel = table_open(our_relation("cleanup_event"), RowExclusiveLock);
	if (RelationGetDescr(w->rel)->natts != E_NCOLS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"sweeper.cleanup_event\" does not have the expected columns"),
				 errhint("Run ALTER EXTENSION session_sweeper UPDATE.")));
	w->estate = CreateExecutorState();
	w->rri = makeNode(ResultRelInfo);
	InitResultRelInfo(w->rri, w->rel, 1, NULL, 0);
	ExecOpenIndices(w->rri, false);
	w->once_a_block = only_brin_on_time(w->rri);
	w->indexed = InvalidBlockNumber;
	w->bistate = GetBulkInsertState();
	w->cxt = AllocSetContextCreate(CurrentMemoryContext, "event rows", ALLOCSET_DEFAULT_SIZES);
	w->relation = CStringGetTextDatum(sink->policy->relation);
	w->policy = CStringGetTextDatum(sink->policy->name);
	w->type = CStringGetTextDatum(sink->cleanup_type);
	w->reason = sink->reason ? CStringGetTextDatum(sink->reason) : (Datum) 0;
	w->actor = sink->actor ? CStringGetTextDatum(sink->actor) : (Datum) 0;
	return w;
}

static void
writer_close(Writer *w)
{
	writer_flush(w);
	for (int i = 0; i < MULTI_INSERT_ROWS && w->slots[i]; i++)
		ExecDropSingleTupleTableSlot(w->slots[i]);
	FreeBulkInsertState(w->bistate);
	ExecCloseIndices(w->rri);
	FreeExecutorState(w->estate);
	table_close(w->rel, NoLock);
}

/* One notification for the rows [start, start + count). */
static void
notify(SswSink *sink, int start, int count, int64 first_id, int64 last_id)
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
	Async_Notify(p->notify_channel, buf.data);
	pfree(buf.data);
}

/*
 * Write the event rows and queue the notifications of this transaction.  Called
 * as the extension's side of the batch, after the owner's code has run.
 */
void
ssw_audit_end(SswSink *sink)
{
	const SswPolicy *p = sink->policy;
	bool		by_group = p->group_text && (p->audit == SSW_AUDIT_COUNT || p->notify_channel);
	int64		id = 0;
	Writer	   *w = NULL;

	if (sink->nrows == 0)
		return;
	if (sink->nrows > SSW_MAX_BATCH)
		elog(ERROR, "batch of %d rows is too large", sink->nrows);
	if (by_group)
		qsort(sink->rows, sink->nrows, sizeof(SinkRow), compare_groups);
	if (p->audit != SSW_AUDIT_NONE)
	{
		w = writer_open(sink);
		id = nextval_internal(our_relation("event_batch_seq"), false) << 20;
	}
	for (int start = 0, len; start < sink->nrows; start += len)
	{
		int64		first = id;

		len = by_group ? group_length(sink, start) : sink->nrows;
		if (p->audit == SSW_AUDIT_COUNT)
		{
			SinkRow		r = {.group = sink->rows[start].group};

			writer_add(w, sink, &r, id++, len);
		}
		else if (w)
			for (int i = start; i < start + len; i++)
				writer_add(w, sink, &sink->rows[i], id++, 1);
		if (p->notify_channel)
			notify(sink, start, len, first, w ? id - 1 : 0);
	}
	if (w)
		writer_close(w);
}

/* Add the lags of the rows, as of the commit, to a histogram. */
void
ssw_audit_lags(SswSink *sink, TimestampTz commit, int64 *max_lag_us, double *sum, int64 *hist)
{
	for (int i = 0; i < sink->nrows; i++)
	{
		SinkRow    *r = &sink->rows[i];
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
