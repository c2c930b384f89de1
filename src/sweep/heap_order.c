/*
 * heap_order.c
 *		Is it less work to delete dead rows in the order of the heap?
 *
 * Runs in the worker that holds a pass's dispenser, as the relation's owner, in SPI.
 * Where a great many rows are dead, and lie anywhere in the heap, each range of
 * deadlines would visit most of its blocks.  Measured with 1 M rows, half of them dead,
 * deadlines at random: 0.75 s of CPU in the order of the heap, 1.9 s by ranges.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "nodes/plannodes.h"
#include "optimizer/plancat.h"
#include "utils/lsyscache.h"
#include "utils/portal.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/spi.h"
#include "policy/sweep_sql.h"
#include "sweep/heap_order.h"

/* What a row that its index finds far from the last one costs, in rows just read. */
#define RANDOM_COST	16
/* With more rows the oldest would wait too long. */
#define MAX_ROWS	1000000

/* How well deadlines follow the order of the heap: 0 (or unknown) to 1. */
static double
heap_correlation(Oid relid, AttrNumber attnum)
{
	HeapTuple	tup = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(relid), Int16GetDatum(attnum), BoolGetDatum(false));
	AttStatsSlot slot;
	double		result = 0;

	if (!HeapTupleIsValid(tup))
		return 0;
	if (get_attstatsslot(&slot, tup, STATISTIC_KIND_CORRELATION, InvalidOid, ATTSTATSSLOT_NUMBERS))
	{
		result = fabs(slot.numbers[0]);
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(tup);
	return result;
}

/* About how many candidates are above the cursor, by the planner. */
static double
estimate_rows(SswWork *w, Oid leaf, TimestampTz cutoff, const SswDeadline *c, Datum cursor)
{
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, c->sort_type};
	Datum		values[3];
	Portal		portal;
	double		rows;

	values[0] = TimestampTzGetDatum(cutoff);
	values[1] = TimestampTzGetDatum(w->pass->full_cutoff);
	values[2] = cursor;
	portal = SPI_cursor_open(NULL, ssw_spi_prepare(ssw_sweep_sql_estimate(w->policy, leaf, w->pass->phase), 3, types, 0),
							 values, NULL, true);
	rows = linitial_node(PlannedStmt, portal->stmts)->planTree->plan_rows;
	SPI_cursor_close(portal);
	return rows;
}

/*
 * About how many dead rows there are behind the cursor, and in how many blocks; 0 when
 * the order of the heap is no gain, or too many wait.  Reading all blocks must cost less
 * than the index.
 */
double
ssw_heap_order_rows(SswWork *w, Oid leaf, TimestampTz cutoff, const SswDeadline *c, Datum cursor, BlockNumber *blocks)
{
	Relation	rel = table_open(leaf, AccessShareLock);
	double		rows = estimate_rows(w, leaf, cutoff, c, cursor);
	double		scattered = 1 - pow(heap_correlation(leaf, c->attnum), 2);
	double		tuples,
				allvisible;

	estimate_rel_size(rel, NULL, blocks, &tuples, &allvisible);
	table_close(rel, NoLock);
	if (c->attnum == 0 || *blocks == 0 || rows > MAX_ROWS ||
		tuples > rows * RANDOM_COST * scattered)
		return 0;
	return rows;
}
