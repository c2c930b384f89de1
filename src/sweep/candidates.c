/*
 * candidates.c
 *		Read the next dead rows of a pass, in due order.
 *
 * Runs in the worker that holds a pass's dispenser, as the relation's owner;
 * reads and moves the pass's cursor, which is the dispenser's.  Nothing is kept
 * of a row but its place.  A crash leaves nothing behind.
 *
 * The cursor is a deadline and, where it ends within one, a tid.  Usually a
 * chunk ends between two deadlines, because all rows with the last one belong to
 * it: then nothing needs sorting when an index gives the order.  Where the number
 * of rows must be exact, or too many share a deadline, ties are read in the order
 * of their tids.
 *
 * Rows that are just deleted need no list of tids: a range of deadlines is enough,
 * and its ends are read from the index alone.  Where a great many are dead, and
 * lie anywhere in the heap, each range would visit most of its blocks: then all that
 * are due are handed out block by block; see heap_order.c.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/spi.h"
#include "grace/arrival.h"
#include "policy/partition.h"
#include "policy/index.h"
#include "policy/sweep_sql.h"
#include "sweep/alive_by_heartbeat.h"
#include "sweep/candidates.h"
#include "sweep/heap_order.h"
#include "sweep/pace.h"

/* Rows of one chunk: a few batches, so that collecting is not the bottleneck. */
#define MIN_CHUNK	1000
#define MAX_CHUNK	20000
#define QUICK_READ_US	(200 * 1000)

/* Rows beyond the limit that may share its last deadline. */
#define MAX_TIES	20000

/* After so many rows in ranges of deadlines the order of the heap is considered. */
#define HEAP_AFTER	2000
/* Blocks in a batch, at least; with fewer, blocks are too coarse for it. */
#define HEAP_BLOCKS	4

typedef struct Receiver
{
	DestReceiver dest;			/* must be first */
	SswWork    *w;
	SswChunk   *chunk;
	int64		size;			/* of chunk->tids */
	int64		rows;			/* read, those left alone included */
	int64		max_rows;		/* stop there */
	bool		heartbeats;		/* rows have their keys, to find their
								 * heartbeats, */
	Oid			shard;			/* which are of that shard, or invalid */
	bool		arrives;		/* whose rows are in the grace of its arrival */
	int16		sort_len;
	bool		sort_byval;
	List	   *slow;			/* tids of known slow rows */
	Datum		sort;			/* of the last row */
	ItemPointerData tid;		/* of the last row */
} Receiver;

/* How many rows the rates and the batch size allow for one chunk. */
int64
ssw_candidates_limit(SswWork *w)
{
	SswPass    *pass = w->pass;
	SswPace		pace = ssw_pace_get(w->policy->id);
	int64		limit = Max(MIN_CHUNK, w->policy->batch_size > 0 ? w->policy->batch_size : INT64CONST(4) * pace.batch_rows);

	limit = Min(limit, Max(MAX_CHUNK, w->policy->batch_size));
	if (pace.chunk_rows > 0)
		limit = Min(limit, pace.chunk_rows);
	if (pass->tokens >= 0)
		limit = Min(limit, (int64) pass->tokens);
	if (pass->backlog_segment && pass->backlog_tokens >= 0)
		limit = Min(limit, (int64) pass->backlog_tokens);
	return ssw_sweep_sql_asks(w->policy, pass->phase) ? Min(limit, SSW_CHECK_LIST) : limit;
}

/* Reading took too long: read less from now on; false when that is no way out. */
bool
ssw_candidates_read_less(SswWork *w)
{
	SswPace		pace;
	int64		rows;

	if (w->policy == NULL)
		return false;
	rows = ssw_candidates_limit(w);
	if (rows <= 1)
		return false;
	pace = ssw_pace_get(w->policy->id);
	pace.chunk_rows = Max(1, rows / 10);
	ssw_pace_set(w->policy->id, &pace);
	return true;
}

/* The read that began then was quick: more may be read again. */
void
ssw_candidates_read_more(SswWork *w, TimestampTz start)
{
	SswPace		pace = ssw_pace_get(w->policy->id);

	if (pace.chunk_rows == 0 || GetCurrentTimestamp() - start > QUICK_READ_US)
		return;
	pace.chunk_rows = pace.chunk_rows < MAX_CHUNK ? pace.chunk_rows * 2 : 0;
	ssw_pace_set(w->policy->id, &pace);
}

/* An instant as the phase sorts deadlines, as text; null: it has none.  As the owner, in SPI. */
static char *
bound_text(SswWork *w, TimestampTz due)
{
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(due);
	char	   *bound;

	ssw_spi_exec(ssw_sweep_sql_bound(w->policy, w->pass->phase), 1, &type, &value, NULL, true, 1);
	bound = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	return bound && strlen(bound) < SSW_CURSOR_LEN ? bound : NULL;
}

/* A value that rows are sorted by, as text. */
static char *
sort_text(const SswPolicy *p, const SswDeadline *c, Datum value)
{
	Oid			output;
	bool		varlena;
	char	   *text;

	getTypeOutputInfo(c->sort_type, &output, &varlena);
	text = OidOutputFunctionCall(output, value);

	if (strlen(text) >= SSW_CURSOR_LEN)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("deadline of policy \"%s\" has more than %d characters", p->name, SSW_CURSOR_LEN - 1)));
	return text;
}

/* Does the cursor move among the rows that fell due after the backlog? */
static bool
is_fresh(SswWork *w, const SswDeadline *c)
{
	return c && w->pass->backlog_before != 0 && !w->pass->backlog_segment;
}

static Datum
cursor_datum(const SswDeadline *c, const char *text)
{
	Oid			input,
				ioparam;

	getTypeInputInfo(c->sort_type, &input, &ioparam);
	return OidInputFunctionCall(input, unconstify(char *, text), ioparam, -1);
}

/* Are there rows that may have to be left alone?  With a second deadline, those that just failed too. */
static bool
has_failures(SswWork *w)
{
	return ssw_failed_row_count(w->failures) > 0 ||
		(w->policy->ndeadlines > 1 && ssw_failed_row_pending(w->failures) > 0);
}

/* Is the row a known failure that must be left alone now? */
static bool
is_excluded(SswWork *w, TupleTableSlot *slot, bool *slow)
{
	SswRow		row = {.has_due = !slot->tts_isnull[SSW_C_DUE - 1]};

	if (slot->tts_isnull[SSW_C_KEY - 1])
		return false;
	row.key = TextDatumGetCString(slot->tts_values[SSW_C_KEY - 1]);
	if (row.has_due)
		row.due = DatumGetTimestampTz(slot->tts_values[SSW_C_DUE - 1]);
	if (!ssw_failed_row_excluded(w->failures, w->pass->leaf, &row, slow))
		return false;
	w->excluded++;
	return true;
}

/* Is there anything to do about the row, by its heartbeats?  One that the fuse holds, or grace covers, is only refreshed. */
static bool
is_wanted(const Receiver *r, TupleTableSlot *slot)
{
	SswWork    *w = r->w;
	bool		held = r->arrives || !DatumGetBool(slot->tts_values[SSW_C_NOT_HELD - 1]);

	return slot->tts_isnull[SSW_C_KEY - 1] || slot->tts_isnull[SSW_C_DUE - 1] ||
		ssw_alive_wanted(w->policy, r->shard, TextDatumGetCString(slot->tts_values[SSW_C_KEY - 1]),
						 DatumGetTimestampTz(slot->tts_values[SSW_C_DUE - 1]), held ? DT_NOBEGIN : w->pass->deadline_cutoff[0]);
}

static void
add_tid(Receiver *r, const ItemPointerData *tid)
{
	SswChunk   *chunk = r->chunk;

	if (chunk->n == r->size)
	{
		r->size *= 2;
		chunk->tids = repalloc_huge(chunk->tids, r->size * sizeof(ItemPointerData));
	}
	chunk->tids[chunk->n++] = *tid;
}

static bool
receive(TupleTableSlot *slot, DestReceiver *self)
{
	Receiver   *r = (Receiver *) self;
	SswChunk   *chunk = r->chunk;
	bool		slow = false;

	slot_getallattrs(slot);
	if (r->rows == r->max_rows)
		return false;
	r->rows++;
	if (!slot->tts_isnull[SSW_C_SORT - 1])
	{
		MemoryContext old = MemoryContextSwitchTo(chunk->cxt);

		if (!r->sort_byval && r->sort != (Datum) 0)
			pfree(DatumGetPointer(r->sort));
		r->sort = datumCopy(slot->tts_values[SSW_C_SORT - 1], r->sort_byval, r->sort_len);
		MemoryContextSwitchTo(old);
	}
	if (slot->tts_isnull[SSW_C_CTID - 1])
		return true;
	r->tid = *(ItemPointer) DatumGetPointer(slot->tts_values[SSW_C_CTID - 1]);
	if (r->heartbeats && !is_wanted(r, slot))
		return true;
	if (has_failures(r->w) && slot->tts_nvalid >= SSW_C_KEY && is_excluded(r->w, slot, &slow))
		return true;
	if (slow)
	{
		MemoryContext old = MemoryContextSwitchTo(chunk->cxt);
		ItemPointer tid = palloc(sizeof(ItemPointerData));

		*tid = r->tid;
		r->slow = lappend(r->slow, tid);
		MemoryContextSwitchTo(old);
	}
	else
		add_tid(r, &r->tid);
	return true;
}

static void
init_receiver(Receiver *r, SswWork *w, SswChunk *chunk, const SswDeadline *c, int64 size, int64 max_rows)
{
	memset(r, 0, sizeof(Receiver));
	r->dest = *None_Receiver;
	r->dest.receiveSlot = receive;
	r->w = w;
	r->chunk = chunk;
	r->max_rows = max_rows;
	r->size = size;
	get_typlenbyval(c ? c->sort_type : INT4OID, &r->sort_len, &r->sort_byval);
	chunk->n = 0;
	chunk->tids = MemoryContextAllocHuge(chunk->cxt, size * sizeof(ItemPointerData));
}

/* Remember where the next chunk begins. */
static void
move_cursor(SswWork *w, const SswDeadline *c, Receiver *r, SswCursor kind)
{
	w->pass->cursor_kind = kind;
	w->pass->cursor_tid = r->tid;
	if (c)
		strlcpy(w->pass->cursor, sort_text(w->policy, c, r->sort), SSW_CURSOR_LEN);
}

/* Run a statement on the candidates behind the cursor. */
static void
read_rows(SswWork *w, const char *sql, TimestampTz cutoff, int64 limit, Receiver *r)
{
	SswPass    *pass = w->pass;
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, pass->phase);
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, c ? c->sort_type : INT4OID, TIDOID, INT8OID,
	TIMESTAMPTZOID};
	Datum		values[6] = {0};
	bool		nulls[6] = {false, false, true, true, false, false};

	values[0] = TimestampTzGetDatum(cutoff);
	values[1] = TimestampTzGetDatum(pass->full_cutoff);
	if (c && pass->cursor_kind != SSW_CURSOR_NONE)
	{
		values[2] = cursor_datum(c, pass->cursor);
		nulls[2] = false;
	}
	if (pass->cursor_kind == SSW_CURSOR_WITHIN)
	{
		values[3] = PointerGetDatum(&pass->cursor_tid);
		nulls[3] = false;
	}
	values[4] = Int64GetDatum(limit);
	values[5] = TimestampTzGetDatum(pass->backlog_before);
	ssw_spi_send(sql, 6, types, values, nulls, &r->dest);
}

/* The tids of the next rows: limit of them, or more unless that is exact: all with the last deadline. */
static bool
collect_tids(SswWork *w, SswChunk *chunk, int64 limit, bool exact)
{
	SswPass    *pass = w->pass;
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, pass->phase);
	int			excluded = w->excluded;
	ListCell   *lc;
	Receiver	r;

	init_receiver(&r, w, chunk, c, limit, exact ? limit : limit + MAX_TIES);
	r.heartbeats = w->policy->heartbeats && pass->phase == SSW_PHASE_DEADLINE;
	r.shard = r.heartbeats ? ssw_partition_shard(w->policy, chunk->leaf) : InvalidOid;
	r.arrives = OidIsValid(r.shard) && ssw_arrival_until(w->policy, chunk->leaf) > pass->full_cutoff;
	read_rows(w, ssw_sweep_sql_collect(w->policy, chunk->leaf, pass->phase, pass->cursor_kind,
									   r.heartbeats || has_failures(w), exact, is_fresh(w, c) && !c->by_due),
			  chunk->cutoff, limit, &r);
	if (!exact && r.rows == r.max_rows)
	{
		/* more rows have the last deadline */
		pass->many_ties = true;
		w->excluded = excluded;
		return collect_tids(w, chunk, limit, true);
	}
	/* after the others */
	chunk->nslow = list_length(r.slow);
	foreach(lc, r.slow)
		add_tid(&r, lfirst(lc));
	if (r.rows > 0)
		move_cursor(w, c, &r, exact ? SSW_CURSOR_WITHIN : SSW_CURSOR_AFTER);
	return r.rows >= limit;
}

/* A range of the next rows; false when too many share its last deadline. */
static bool
find_range(SswWork *w, SswChunk *chunk, int64 limit, bool *more)
{
	SswPass    *pass = w->pass;
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, pass->phase);
	Receiver	r;

	init_receiver(&r, w, chunk, c, 1, limit + Min(limit, MAX_TIES));
	read_rows(w, ssw_sweep_sql_range_end(w->policy, chunk->leaf, pass->phase, pass->cursor_kind),
			  chunk->cutoff, limit, &r);
	*more = r.rows >= limit;
	if (r.rows == r.max_rows)
		return false;
	if (r.rows > 0)
	{
		MemoryContext old = MemoryContextSwitchTo(chunk->cxt);

		chunk->n = r.rows;
		pass->ranged += r.rows;
		chunk->ranged = true;
		chunk->range.has_blocks = false;
		chunk->range.type = c->sort_type;
		chunk->range.has_low = pass->cursor_kind == SSW_CURSOR_AFTER;
		if (chunk->range.has_low)
			chunk->range.low = cursor_datum(c, pass->cursor);
		chunk->range.high = r.sort;
		MemoryContextSwitchTo(old);
		move_cursor(w, c, &r, SSW_CURSOR_AFTER);
	}
	return true;
}

/* From here on in the order of the heap, when that is less work. */
static void
consider_heap_order(SswWork *w, SswChunk *chunk, const SswDeadline *c)
{
	SswPass    *pass = w->pass;
	BlockNumber blocks;
	double		rows = ssw_heap_order_rows(w, chunk->leaf, chunk->cutoff, c, cursor_datum(c, pass->cursor), &blocks);
	char	   *high = rows == 0 ? NULL : bound_text(w, chunk->cutoff);

	pass->ranged = 0;
	if (high == NULL)
		return;
	strlcpy(pass->high, high, SSW_CURSOR_LEN);
	pass->next_block = 0;
	pass->nblocks = blocks;
	pass->block_rows = Max(1, rows / blocks);
}

/* Do the next rows go block by block? */
static bool
has_blocks(SswWork *w, SswChunk *chunk, const SswDeadline *c)
{
	SswPass    *pass = w->pass;

	if (pass->nblocks == 0 && pass->ranged >= HEAP_AFTER)
		consider_heap_order(w, chunk, c);
	if (ssw_batch_rows(w) < HEAP_BLOCKS * pass->block_rows)
		pass->nblocks = 0;
	return pass->nblocks > 0;
}

/* The dead rows of the next blocks. */
static void
next_blocks(SswWork *w, SswChunk *chunk, const SswDeadline *c)
{
	SswPass    *pass = w->pass;
	MemoryContext old = MemoryContextSwitchTo(chunk->cxt);

	/* another worker may just have made batches smaller */
	BlockNumber step = ssw_max(1, ssw_batch_rows(w) / pass->block_rows);

	chunk->n = step * pass->block_rows;
	chunk->ranged = true;
	chunk->range.type = c->sort_type;
	chunk->range.has_low = true;
	chunk->range.low = cursor_datum(c, pass->cursor);
	chunk->range.high = cursor_datum(c, pass->high);
	chunk->range.has_blocks = true;
	ItemPointerSet(&chunk->range.from, pass->next_block, 0);
	pass->next_block = Min(pass->nblocks, pass->next_block + step);
	ItemPointerSet(&chunk->range.to, pass->next_block, 0);
	MemoryContextSwitchTo(old);
	if (pass->next_block < pass->nblocks)
		return;
	pass->nblocks = 0;
	strlcpy(pass->cursor, pass->high, SSW_CURSOR_LEN);
}

/* Can the dead rows of a leaf be deleted as ranges of their deadlines? */
static bool
has_ranges(const SswPolicy *p, Oid leaf, SswPhase phase)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(p, phase);
	Relation	rel;
	bool		suits;

	if (c == NULL || p->action != SSW_ACTION_DELETE || OidIsValid(p->on_expire) || p->heartbeats || ssw_sweep_sql_asks(p, phase))
		return false;
	rel = table_open(leaf, AccessShareLock);
	/* a trigger could keep a row that a DELETE met */
	suits = (rel->trigdesc == NULL || !rel->trigdesc->trig_delete_before_row) &&
		OidIsValid(ssw_index_find_own(rel, c->sort, p->filter));
	table_close(rel, NoLock);
	return suits;
}

/* A cursor that is at the start begins behind rows of the backlog, and those that the fuse holds. */
static void
begin_cursor(SswWork *w, const SswDeadline *c)
{
	SswPass    *pass = w->pass;
	TimestampTz above = ssw_max(is_fresh(w, c) ? pass->backlog_before : 0, pass->phase == SSW_PHASE_DEADLINE ? pass->above : 0);
	char	   *bound;

	if (c == NULL || !c->by_due || pass->cursor_kind != SSW_CURSOR_NONE || above == 0 || (bound = bound_text(w, above)) == NULL)
		return;
	strlcpy(pass->cursor, bound, SSW_CURSOR_LEN);
	pass->cursor_kind = SSW_CURSOR_AFTER;
}

/*
 * Read the next rows behind the cursor, limit of them or a few more, and move
 * the cursor; returns whether there may be more.  The chunk gets those that may be
 * tried now.  In SPI, as the owner.
 */
bool
ssw_candidates_collect(SswWork *w, SswChunk *chunk, int64 limit)
{
	SswPass    *pass = w->pass;
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, pass->phase);
	bool		rated = pass->tokens >= 0 || (pass->backlog_segment && pass->backlog_tokens >= 0);
	bool		exact = c == NULL || rated || pass->many_ties || ssw_sweep_sql_asks(w->policy, pass->phase) || (is_fresh(w, c) && !c->by_due);
	bool		more;

	chunk->ranged = false;
	begin_cursor(w, c);
	if (exact || pass->cursor_kind == SSW_CURSOR_WITHIN || pass->skip_locked || has_failures(w) ||
		!has_ranges(w->policy, chunk->leaf, pass->phase))
	{
		pass->nblocks = 0;
		return collect_tids(w, chunk, limit, exact);
	}
	if (has_blocks(w, chunk, c))
	{
		next_blocks(w, chunk, c);
		return true;
	}
	if (find_range(w, chunk, ssw_min(limit, ssw_batch_rows(w)), &more))
		return more;
	pass->many_ties = true;
	return collect_tids(w, chunk, limit, true);
}

/* The tids of a range's rows, for one that could not be handled as a whole. */
void
ssw_candidates_of_range(SswWork *w, SswChunk *chunk)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, chunk->phase);
	Oid			types[6];
	Datum		values[6];
	int			nargs = ssw_action_range_params(&w->target, &chunk->range, types, values);
	Receiver	r;

	init_receiver(&r, w, chunk, c, chunk->n, PG_INT64_MAX);
	ssw_spi_send(ssw_sweep_sql_range(w->policy, chunk->leaf, chunk->phase, chunk->range.has_low, chunk->range.has_blocks),
				 nargs, types, values, NULL, &r.dest);
	chunk->ranged = false;
}
