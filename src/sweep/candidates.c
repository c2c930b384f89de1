/*
 * candidates.c
 *		Read the next dead rows of a pass, in due order.
 *
 * Runs in the worker that holds a pass's dispenser, as the relation's owner;
 * reads and moves the pass's cursor, which is the dispenser's.  Nothing is kept
 * of a row but its place.  A crash leaves nothing behind.
 *
 * The cursor is a deadline and a tid: rows that are due together follow each other in the
 * order of their tids.
 *
 * Where a great many rows are just deleted, they need no list of tids: they are handed
 * out block by block, in the order of the heap, so that each block is visited once.
 * Measured with 1 M rows, half of them dead, deadlines at random: 0.45 s of CPU in the
 * order of the heap, 1.9 s in due order.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "optimizer/plancat.h"
#include "tcop/dest.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/spi.h"
#include "grace/arrival.h"
#include "policy/partition.h"
#include "policy/sweep_sql.h"
#include "sweep/alive_by_heartbeat.h"
#include "sweep/candidates.h"
#include "sweep/pace.h"

/* Rows of one chunk: a few batches, so that collecting is not the bottleneck. */
#define MIN_CHUNK	1000
#define MAX_CHUNK	20000
#define QUICK_READ_US	(200 * 1000)

/* After so many rows by their tids the order of the heap is considered. */
#define HEAP_AFTER	MIN_CHUNK

/* What a dead row costs that its index finds, in rows that are just read. */
#define INDEX_COST	16

typedef struct Receiver
{
	DestReceiver dest;			/* must be first */
	SswWork    *w;
	SswChunk   *chunk;
	int64		size;			/* of chunk->tids */
	int64		rows;			/* read, those left alone included */
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

/*
 * A value that rows are sorted by, as text; or, where a number is too long for the cursor, the
 * next whole one, or 0.  The pass leaves out rows between the two, and the next one begins with them.
 */
static char *
sort_text(const SswPolicy *p, const SswDeadline *c, Datum value)
{
	Oid			output;
	bool		varlena;
	char	   *text;

	getTypeOutputInfo(c->sort_type, &output, &varlena);
	text = OidOutputFunctionCall(output, value);

	if (strlen(text) >= SSW_CURSOR_LEN && c->sort_type == NUMERICOID)
		text = OidOutputFunctionCall(output, DirectFunctionCall1(numeric_ceil, value));
	return strlen(text) < SSW_CURSOR_LEN ? text : pstrdup("0");
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

/* Where the row is in due order.  A phase without deadline has null. */
static void
note_place(Receiver *r, TupleTableSlot *slot)
{
	r->rows++;
	r->tid = *(ItemPointer) DatumGetPointer(slot->tts_values[SSW_C_CTID - 1]);
	if (slot->tts_isnull[SSW_C_SORT - 1])
		return;
	if (!r->sort_byval && r->rows > 1)
		pfree(DatumGetPointer(r->sort));
	r->sort = datumCopy(slot->tts_values[SSW_C_SORT - 1], r->sort_byval, r->sort_len);
}

static bool
receive(TupleTableSlot *slot, DestReceiver *self)
{
	Receiver   *r = (Receiver *) self;
	SswChunk   *chunk = r->chunk;
	MemoryContext old = MemoryContextSwitchTo(chunk->cxt);
	bool		slow = false;

	slot_getallattrs(slot);
	note_place(r, slot);
	if (!(r->heartbeats && !is_wanted(r, slot)) &&
		!(has_failures(r->w) && slot->tts_nvalid >= SSW_C_KEY && is_excluded(r->w, slot, &slow)))
	{
		if (slow)
		{
			ItemPointer tid = palloc(sizeof(ItemPointerData));

			*tid = r->tid;
			r->slow = lappend(r->slow, tid);
		}
		else
			add_tid(r, &r->tid);
	}
	MemoryContextSwitchTo(old);
	return true;
}

static void
init_receiver(Receiver *r, SswWork *w, SswChunk *chunk, const SswDeadline *c, int64 size)
{
	memset(r, 0, sizeof(Receiver));
	r->dest = *None_Receiver;
	r->dest.receiveSlot = receive;
	r->w = w;
	r->chunk = chunk;
	r->size = size;
	get_typlenbyval(c ? c->sort_type : INT4OID, &r->sort_len, &r->sort_byval);
	chunk->n = 0;
	chunk->tids = MemoryContextAllocHuge(chunk->cxt, size * sizeof(ItemPointerData));
}

/* Remember where the next chunk begins. */
static void
move_cursor(SswWork *w, const SswDeadline *c, Receiver *r)
{
	w->pass->cursor_kind = SSW_CURSOR_WITHIN;
	w->pass->cursor_tid = r->tid;
	if (c)
		strlcpy(w->pass->cursor, sort_text(w->policy, c, r->sort), SSW_CURSOR_LEN);
}

/* A statement on the candidates behind the cursor, planned for its values. */
static Portal
open_rows(SswWork *w, const char *sql, TimestampTz cutoff, int64 limit, int options)
{
	SswPass    *pass = w->pass;
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, pass->phase);
	Oid			types[6] = {TIMESTAMPTZOID, TIMESTAMPTZOID, c ? c->sort_type : INT4OID, TIDOID, INT8OID,
	TIMESTAMPTZOID};
	Datum		values[6] = {0};
	char		nulls[] = "  nn  ";

	values[0] = TimestampTzGetDatum(cutoff);
	values[1] = TimestampTzGetDatum(pass->full_cutoff);
	if (c && pass->cursor_kind != SSW_CURSOR_NONE)
	{
		values[2] = cursor_datum(c, pass->cursor);
		nulls[2] = ' ';
	}
	if (pass->cursor_kind == SSW_CURSOR_WITHIN)
	{
		values[3] = PointerGetDatum(&pass->cursor_tid);
		nulls[3] = ' ';
	}
	values[4] = Int64GetDatum(limit);
	values[5] = TimestampTzGetDatum(pass->backlog_before);
	return SPI_cursor_open(NULL, ssw_spi_prepare(sql, 6, types, CURSOR_OPT_CUSTOM_PLAN | CURSOR_OPT_NO_SCROLL | options), values, nulls, true);
}

/* A btree index over the deadline alone returns equal ones in the order of their tids. */
static bool
comes_by_tid(Portal portal)
{
	Plan	   *plan = linitial_node(PlannedStmt, portal->stmts)->planTree;
	HeapTuple	tup;
	bool		alone;

	if (IsA(plan, Limit))
		plan = outerPlan(plan);
	if (!IsA(plan, IndexScan) || ((IndexScan *) plan)->indexorderdir != ForwardScanDirection)
		return false;
	tup = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(((IndexScan *) plan)->indexid));
	alone = HeapTupleIsValid(tup) && ((Form_pg_index) GETSTRUCT(tup))->indnkeyatts == 1;
	if (HeapTupleIsValid(tup))
		ReleaseSysCache(tup);
	return alone;
}

/* Take rows until there are so many for the chunk; false: these were the last. */
static bool
take_rows(Portal portal, int64 limit, Receiver *r)
{
	TupleTableSlot *slot = NULL;
	int64		wanted;

	while ((wanted = limit - r->chunk->n - list_length(r->slow)) > 0)
	{
		SPI_cursor_fetch(portal, true, wanted);
		if (slot == NULL)
			slot = MakeSingleTupleTableSlot(SPI_tuptable->tupdesc, &TTSOpsHeapTuple);
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			ExecStoreHeapTuple(SPI_tuptable->vals[i], slot, false);
			(void) receive(slot, &r->dest);
		}
		if (SPI_processed < wanted)
			break;
	}
	ExecDropSingleTupleTableSlot(slot);
	return wanted <= 0;
}

/*
 * Run it; sorted by tid only where the plan does not do so by itself, because a sort reads
 * all that are due together.  Rows that are left alone, such as those that the fuse holds,
 * may be many.  So the statement may read more rows than are wanted, unless reading is slow.
 */
static bool
read_rows(SswWork *w, SswChunk *chunk, int64 limit, Receiver *r)
{
	SswPass    *pass = w->pass;
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, pass->phase);
	int64		most = ssw_pace_get(w->policy->id).chunk_rows > 0 ? limit : Max(limit, MAX_CHUNK);
	Portal		portal = NULL;
	bool		more;

	for (int by_tid = 0; portal == NULL; by_tid++)
	{
		portal = open_rows(w, ssw_sweep_sql_collect(w->policy, chunk->leaf, pass->phase, pass->cursor_kind, r->heartbeats || has_failures(w),
													by_tid > 0, is_fresh(w, c) && !c->by_due), chunk->cutoff, most, 0);
		if (c == NULL || by_tid > 0 || comes_by_tid(portal))
			break;
		SPI_cursor_close(portal);
		portal = NULL;
	}
	more = take_rows(portal, limit, r);
	SPI_cursor_close(portal);
	return more || r->rows >= most;
}

/* Does grace cover a row of the leaf that is due? */
bool
ssw_candidates_graced(SswWork *w, const SswChunk *chunk)
{
	Portal		portal = open_rows(w, ssw_sweep_sql_graced(w->policy, chunk->leaf), chunk->cutoff, 1, 0);
	bool		graced;

	SPI_cursor_fetch(portal, true, 1);
	graced = SPI_processed > 0;
	SPI_cursor_close(portal);
	return graced;
}

/* The tids of the next rows, at most so many; false: these were the last. */
static bool
collect_tids(SswWork *w, SswChunk *chunk, int64 limit)
{
	SswPass    *pass = w->pass;
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, pass->phase);
	bool		more;
	ListCell   *lc;
	Receiver	r;

	init_receiver(&r, w, chunk, c, limit);
	r.heartbeats = w->policy->heartbeats && pass->phase == SSW_PHASE_DEADLINE;
	r.shard = r.heartbeats ? ssw_partition_shard(w->policy, chunk->leaf) : InvalidOid;
	r.arrives = r.heartbeats && ssw_arrival_until(w->policy, chunk->leaf) > pass->full_cutoff;
	more = read_rows(w, chunk, limit, &r);
	/* after the others */
	chunk->nslow = list_length(r.slow);
	foreach(lc, r.slow)
		add_tid(&r, lfirst(lc));
	if (r.rows > 0)
		move_cursor(w, c, &r);
	pass->collected += r.rows;
	return more;
}

/* Are there rows whose locks, failures or answers concern each of them? */
static bool
goes_row_by_row(SswWork *w)
{
	const SswPolicy *p = w->policy;

	return p->action != SSW_ACTION_DELETE || OidIsValid(p->on_expire) || p->heartbeats || ssw_sweep_sql_asks(p, w->pass->phase) ||
		w->pass->skip_locked || has_failures(w);
}

/* Can the next rows, if there are many, be deleted block by block? */
static bool
suits_blocks(SswWork *w, Oid leaf, const SswDeadline *c)
{
	SswPass    *pass = w->pass;
	bool		rated = pass->tokens >= 0 || (pass->backlog_segment && pass->backlog_tokens >= 0);
	Relation	rel;
	bool		suits;

	if (c == NULL || rated || pass->collected < HEAP_AFTER || (is_fresh(w, c) && !c->by_due) || goes_row_by_row(w))
		return false;
	rel = table_open(leaf, AccessShareLock);
	/* a trigger could keep a row that a DELETE met */
	suits = rel->trigdesc == NULL || !rel->trigdesc->trig_delete_before_row;
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

/* All dead rows behind the cursor of a leaf, and in its phase; the first ones come soon.  In SPI, as the owner. */
Portal
ssw_candidates_behind(SswWork *w, TimestampTz cutoff)
{
	SswPass    *pass = w->pass;
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, pass->phase);

	begin_cursor(w, c);
	return open_rows(w, ssw_sweep_sql_behind(w->policy, pass->leaf, pass->phase, pass->cursor_kind, is_fresh(w, c) && !c->by_due), cutoff, 0, CURSOR_OPT_FAST_PLAN);
}

/* About how many these are, by the planner. */
double
ssw_candidates_planned(Portal portal)
{
	return linitial_node(PlannedStmt, portal->stmts)->planTree->plan_rows;
}

/*
 * In how many blocks are so many dead rows?  False when the order of the heap is no gain:
 * reading all rows must cost less than the index.
 */
static bool
gains_by_heap_order(Oid leaf, double rows, BlockNumber *blocks)
{
	Relation	rel = table_open(leaf, AccessShareLock);
	double		tuples,
				allvisible;

	estimate_rel_size(rel, NULL, blocks, &tuples, &allvisible);
	table_close(rel, NoLock);
	return *blocks > 0 && tuples <= rows * INDEX_COST;
}

/* Do the next rows go block by block? */
static bool
has_blocks(SswWork *w, SswChunk *chunk, const SswDeadline *c)
{
	SswPass    *pass = w->pass;

	if (!suits_blocks(w, chunk->leaf, c))
		pass->nblocks = 0;
	else if (pass->nblocks == 0)
	{
		Portal		portal = ssw_candidates_behind(w, chunk->cutoff);
		double		rows = ssw_candidates_planned(portal);

		SPI_cursor_close(portal);
		pass->next_block = 0;
		/* asked again after as many rows */
		if (!gains_by_heap_order(chunk->leaf, rows, &pass->nblocks))
			pass->nblocks = pass->collected = 0;
		pass->block_rows = Max(1, rows / Max(1, pass->nblocks));
	}
	/* a block may be too much for a batch */
	if (ssw_batch_rows(w) < pass->block_rows)
		pass->nblocks = 0;
	return pass->nblocks > 0;
}

/* The dead rows of the next blocks; false: they were the last. */
static bool
next_blocks(SswWork *w, SswChunk *chunk, const SswDeadline *c)
{
	SswPass    *pass = w->pass;
	MemoryContext old = MemoryContextSwitchTo(chunk->cxt);

	/* a full batch, so that its size can grow */
	BlockNumber step = (ssw_batch_rows(w) + pass->block_rows - 1) / pass->block_rows;
	SswBlocks  *b = &chunk->blocks;

	chunk->n = step * pass->block_rows;
	chunk->by_blocks = true;
	b->cursor = pass->cursor_kind;
	b->type = c->sort_type;
	if (b->cursor != SSW_CURSOR_NONE)
		b->deadline = cursor_datum(c, pass->cursor);
	b->tid = pass->cursor_tid;
	ItemPointerSet(&b->from, pass->next_block, 0);
	pass->next_block = Min(pass->nblocks, pass->next_block + step);
	ItemPointerSet(&b->to, pass->next_block, 0);
	MemoryContextSwitchTo(old);
	return pass->next_block < pass->nblocks;
}

/*
 * Read the next rows behind the cursor, at most so many, and move the cursor; returns
 * whether there may be more.  The chunk gets those that may be tried now.  In SPI, as the
 * owner.
 */
bool
ssw_candidates_collect(SswWork *w, SswChunk *chunk, int64 limit)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(w->policy, w->pass->phase);

	chunk->by_blocks = false;
	begin_cursor(w, c);
	if (has_blocks(w, chunk, c))
		return next_blocks(w, chunk, c);
	return collect_tids(w, chunk, limit);
}

/* The tids of rows in blocks, for a chunk that could not be handled as a whole. */
void
ssw_candidates_of_blocks(SswWork *w, SswChunk *chunk)
{
	Oid			types[SSW_BLOCK_PARAMS];
	Datum		values[SSW_BLOCK_PARAMS];
	Receiver	r;

	ssw_action_block_params(&w->target, &chunk->blocks, types, values);
	init_receiver(&r, w, chunk, ssw_sweep_sql_deadline(w->policy, chunk->phase), chunk->n);
	ssw_spi_send(ssw_sweep_sql_blocks(w->policy, chunk->leaf, chunk->phase, chunk->blocks.cursor),
				 SSW_BLOCK_PARAMS, types, values, NULL, &r.dest);
	chunk->by_blocks = false;
}
