/*
 * append_queue.c
 *		Appended rows, where append() has put them: find those that are due, and
 *		take them.
 *
 * Runs in the worker that writes them (append_writer.c).  A look reads the table once, from
 * end to end: it has no index, because each row is read once or twice and then deleted.
 * Like own_row.c it needs no statements for that, and so costs little also where many rows
 * wait.
 *
 * Shares nothing; a crash, or a rollback, leaves the rows where they are.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/multi_insert.h"
#include "base/spi.h"
#include "work/append_queue.h"

#define FIRST_PLACES	64

/* Columns of sweeper.append_row. */
enum
{
	ROW_ID = 1, ROW_STREAM, ROW_OWNER, ROW_APPENDED_AT, ROW_DATA
};

typedef struct SswAppendStream
{
	int			stream;
	int			flush_rows;
	int64		flush_every_us;
	SswAppendTarget *target;
	int64		rows;			/* that wait */
	int64		first;			/* number of the oldest */
	TimestampTz since;
} Stream;

static int
compare_places(const void *a, const void *b)
{
	int64		x = ((const SswAppendPlace *) a)->id;
	int64		y = ((const SswAppendPlace *) b)->id;

	return x < y ? -1 : x > y;
}

static Stream *
find_stream(Stream *streams, int n, int stream)
{
	int			low = 0;

	while (low < n)
	{
		int			middle = (low + n) / 2;

		if (streams[middle].stream < stream)
			low = middle + 1;
		else if (streams[middle].stream > stream)
			n = middle;
		else
			return &streams[middle];
	}
	return NULL;
}

/* Roles are served separately, so that rows of one which wait for locks keep no other's waiting. */
static SswAppendTarget *
target_of(List **targets, int stream, Oid relid, Oid role, const char *relation)
{
	SswAppendTarget *t;
	ListCell   *lc;

	foreach(lc, *targets)
	{
		t = lfirst(lc);
		if (t->relid == relid && t->role == role)
			return t;
	}
	t = palloc0(sizeof(SswAppendTarget));
	t->stream = stream;
	t->relid = relid;
	t->role = role;
	t->relation = pstrdup(relation);
	t->batch = INT_MAX;
	t->room = FIRST_PLACES;
	t->places = palloc(t->room * sizeof(SswAppendPlace));
	*targets = lappend(*targets, t);
	return t;
}

/* The streams of the owner's tables, by their numbers, in this context; in SPI. */
static Stream *
read_streams(Oid owner, List **targets, MemoryContext cxt, int *n)
{
	static const char *const sql =
	"SELECT s.stream, s.relid, s.relation, s.role_oid, s.flush_rows, (extract(epoch FROM s.flush_every) * 1000000)::bigint, s.waiting, s.resume_after"
	" FROM sweeper._append_stream AS s JOIN pg_catalog.pg_class AS c ON c.oid = s.relid AND c.relowner = $1 WHERE s.here ORDER BY s.stream";
	Oid			type = OIDOID;
	Datum		value = ObjectIdGetDatum(owner);
	MemoryContext old;
	Stream	   *streams;

	*n = ssw_plan_execute(sql, 1, &type, &value, NULL, false);
	old = MemoryContextSwitchTo(cxt);
	streams = palloc0((*n + 1) * sizeof(Stream));
	for (int i = 0; i < *n; i++)
	{
		streams[i].stream = DatumGetInt32(ssw_spi_column(i, 1));
		streams[i].target = target_of(targets, streams[i].stream, DatumGetObjectId(ssw_spi_column(i, 2)),
									  DatumGetObjectId(ssw_spi_column(i, 4)), ssw_spi_text(i, 3));
		streams[i].target->waiting |= DatumGetBool(ssw_spi_column(i, 7));
		if (DatumGetInt64(ssw_spi_column(i, 8)) != 0)
			streams[i].target->resume_after = DatumGetInt64(ssw_spi_column(i, 8));
		streams[i].flush_rows = DatumGetInt32(ssw_spi_column(i, 5));
		streams[i].flush_every_us = DatumGetInt64(ssw_spi_column(i, 6));
	}
	MemoryContextSwitchTo(old);
	return streams;
}

/* Keep the oldest places, in their order. */
static void
sort_places(SswAppendTarget *t, int most)
{
	qsort(t->places, t->n, sizeof(SswAppendPlace), compare_places);
	t->n = Min(t->n, most);
}

/* Room for twice as many as are wanted: when that is full, the younger half is cut off. */
static void
add_place(SswAppendTarget *t, const SswAppendPlace *place, int most)
{
	if (t->n == 2 * most)
		sort_places(t, most);
	if (t->n == t->room)
		t->places = repalloc(t->places, (t->room *= 2) * sizeof(SswAppendPlace));
	t->places[t->n++] = *place;
}

/* Read all rows that wait: how many each stream has, and the places of each target's oldest. */
static void
read_rows(Stream *streams, int nstreams, int most)
{
	Relation	rel = table_open(ssw_multi_insert_relation("append_row"), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, GetActiveSnapshot(), 0, NULL);
	bool		isnull;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		int64		id = DatumGetInt64(slot_getattr(slot, ROW_ID, &isnull));
		TimestampTz at = DatumGetTimestampTz(slot_getattr(slot, ROW_APPENDED_AT, &isnull));
		Stream	   *s = find_stream(streams, nstreams, DatumGetInt32(slot_getattr(slot, ROW_STREAM, &isnull)));
		SswAppendPlace place;

		CHECK_FOR_INTERRUPTS();
		if (s == NULL)
			continue;
		s->first = s->rows == 0 ? id : Min(s->first, id);
		s->since = s->rows == 0 ? at : Min(s->since, at);
		s->rows++;
		place.id = id;
		place.tid = slot->tts_tid;
		place.bytes = toast_raw_datum_size(slot_getattr(slot, ROW_DATA, &isnull));
		add_place(s->target, &place, most);
	}
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
}

static int
compare_targets(const ListCell *a, const ListCell *b)
{
	const SswAppendTarget *x = lfirst(a);
	const SswAppendTarget *y = lfirst(b);

	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return compare_places(x->places, y->places);
}

/* The rows at which the last turn ended, and those before, come last. */
static void
begin_behind(SswAppendTarget *t)
{
	SswAppendPlace *first;
	int			n = 0;

	while (n < t->n && t->places[n].id <= t->resume_after)
		n++;
	first = palloc((n + 1) * sizeof(SswAppendPlace));
	memcpy(first, t->places, n * sizeof(SswAppendPlace));
	memmove(t->places, t->places + n, (t->n - n) * sizeof(SswAppendPlace));
	memcpy(t->places + t->n - n, first, n * sizeof(SswAppendPlace));
	pfree(first);
}

/*
 * The owner's tables that have rows that are due, for each role that appended them, and
 * its oldest rows, at most so many.  Those with the oldest are first.  Where some rows
 * waited for locks or other rows, they are last, in a random order.  flush() makes rows
 * due by number.  In SPI, as the extension; the result is in the context.
 */
List	   *
ssw_append_queue_read(Oid owner, int64 up_to, int most, MemoryContext cxt)
{
	TimestampTz now = GetCurrentTimestamp();
	List	   *targets = NIL;
	List	   *due = NIL;
	ListCell   *lc;
	int			n;
	MemoryContext old;
	Stream	   *streams = read_streams(owner, &targets, cxt, &n);

	read_rows(streams, n, most);
	for (int i = 0; i < n; i++)
	{
		Stream	   *s = &streams[i];

		if (s->rows == 0)
			continue;
		s->target->batch = Min(s->target->batch, s->flush_rows);
		s->target->due = s->target->due || s->rows >= s->flush_rows || s->since + s->flush_every_us <= now || s->first <= up_to;
	}
	old = MemoryContextSwitchTo(cxt);
	foreach(lc, targets)
	{
		SswAppendTarget *t = lfirst(lc);

		t->streams = streams;
		t->nstreams = n;
		if (!t->due)
			continue;
		sort_places(t, most);
		t->rank = t->waiting ? (pg_prng_uint32(&pg_global_prng_state) | 1) : 0;
		due = lappend(due, t);
	}
	list_sort(due, compare_targets);
	foreach(lc, due)
		begin_behind(lfirst(lc));
	MemoryContextSwitchTo(old);
	return due;
}

/* Delete rows of a target from their places.  Returns how many there were, and what they held. */
int
ssw_append_queue_take(const SswAppendTarget *t, const SswAppendPlace *places, int n, SswAppendedRow *rows)
{
	Relation	rel = table_open(ssw_multi_insert_relation("append_row"), RowExclusiveLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	int			taken = 0;

	for (int i = 0; i < n; i++)
	{
		ItemPointerData tid = places[i].tid;
		TM_FailureData failure;
		Stream	   *s;
		bool		isnull;

		CHECK_FOR_INTERRUPTS();
		if (!table_tuple_fetch_row_version(rel, &tid, GetActiveSnapshot(), slot) ||
			DatumGetInt64(slot_getattr(slot, ROW_ID, &isnull)) != places[i].id)
			continue;
		s = find_stream(t->streams, t->nstreams, DatumGetInt32(slot_getattr(slot, ROW_STREAM, &isnull)));
		rows[taken].id = places[i].id;
		rows[taken].owner = DatumGetObjectId(slot_getattr(slot, ROW_OWNER, &isnull));
		rows[taken].data = DatumGetJsonbPCopy(slot_getattr(slot, ROW_DATA, &isnull));
		ExecClearTuple(slot);
		if (s && s->target == t && table_tuple_delete(rel, &tid, GetCurrentCommandId(true), GetActiveSnapshot(), InvalidSnapshot, true, &failure, false) == TM_Ok)
			taken++;
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, NoLock);
	CommandCounterIncrement();
	return taken;
}
