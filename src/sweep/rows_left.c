/*
 * rows_left.c
 *		How many rows a pass has still to handle, about.
 *
 * Runs in the worker that holds a pass's dispenser.  It counts what is behind the cursor,
 * for a small part of the time that the drain lasts.  Where that is too short, the planner's
 * estimate counts, unless more rows were seen.  Of a leaf that goes block by block the blocks
 * are known that are left.  Between two counts each batch takes off what it has handled; see
 * drain.c.
 *
 * Shares what drain.c shares; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/spi.h"
#include "sweep/dispenser.h"
#include "sweep/drain.h"
#include "sweep/rows_left.h"

/* Such a part of the time is for a count; a larger one where rates make the workers wait. */
#define COUNT_PART		40
#define COUNT_PART_RATED	10
#define MIN_COUNT_US	(20 * 1000)
#define MAX_COUNT_US	(1 * USECS_PER_SEC)
/* A statement that has no first rows for so long beyond that time is cancelled. */
#define PATIENCE_US		(500 * 1000)
/* Rows that are counted between two looks at the clock. */
#define COUNT_STEP		1000

typedef struct Count
{
	SswWork    *w;				/* with a cursor of its own */
	List	   *leaves;
	TimestampTz until;
	int64		rows;
} Count;

/* Rows that were handled so far. */
static int64
rows_handled(const SswPass *pass)
{
	return pass->expired + pass->refreshed + pass->repaired + pass->failed + pass->skipped;
}

/* Rows in the blocks that are left: as many as was thought, as far as that was right so far. */
static int64
rows_of_blocks(const SswPass *pass)
{
	int64		handled = rows_handled(pass);

	return (pass->nblocks - pass->next_block) * pass->block_rows * (handled > 0 ? (double) handled / Max(1, pass->handed_out) : 1);
}

/* Count what is behind the cursor in its leaf and phase. */
static void
count_part(Count *c, TimestampTz cutoff)
{
	const SswPolicy *p = c->w->policy;
	SswIdentity save;
	Portal		portal;
	int64		planned;
	int64		rows = 0;
	bool		more = true;

	if (c->w->pass->nblocks > 0)
	{
		c->rows += rows_of_blocks(c->w->pass);
		return;
	}
	ssw_action_lock_leaf(p, c->w->pass->leaf, AccessShareLock);
	ssw_spi_begin_as_owner(p->owner, p->search_path, &save);
	portal = ssw_candidates_behind(c->w, cutoff);
	/* if the count fails, too */
	planned = ssw_candidates_planned(portal);
	c->rows += planned;
	while (more && GetCurrentTimestamp() < c->until)
	{
		SPI_cursor_move(portal, true, COUNT_STEP);
		rows += SPI_processed;
		more = SPI_processed == COUNT_STEP;
	}
	SPI_cursor_close(portal);
	ssw_spi_end_as(&save);
	if (!more || rows > planned)
		c->rows += rows - planned;
}

/* Count in all leaves and phases that are to come. */
static bool
count_behind(void *arg)
{
	Count	   *c = arg;
	SswPass    *pass = c->w->pass;

	do
	{
		TimestampTz cutoff = ssw_dispenser_cutoff(c->w);

		/* not those ahead, which are only refreshed */
		if (pass->phase == SSW_PHASE_DEADLINE)
			cutoff = Min(cutoff, pass->deadline_cutoff[0]);
		if (!TIMESTAMP_IS_NOBEGIN(cutoff))
			count_part(c, cutoff);
	} while (ssw_dispenser_advance(c->w, c->leaves));
	return true;
}

/*
 * Rows behind the cursor, as far as they can be counted in such a time.  An error ends the
 * count, and does not concern the pass: it may be of a row that is not read yet, or the
 * statement takes far too long.
 */
static int64
rows_behind(SswWork *w, List *leaves, int64 us)
{
	SswWork		look = *w;
	Count		c = {.w = &look,.leaves = leaves,.until = GetCurrentTimestamp() + us};
	ErrorData  *error;

	look.pass = palloc(sizeof(SswPass));
	*look.pass = *w->pass;
	ssw_batch_set_limit(us + PATIENCE_US);
	error = ssw_spi_try(count_behind, &c);
	ssw_batch_disarm();
	if (error)
		FreeErrorData(error);
	pfree(look.pass);
	return ssw_max(0, c.rows - ssw_failed_row_count(w->failures));
}

/* Rows that workers were given and that have not been counted yet as handled. */
static int64
rows_at_hand(const SswPass *pass)
{
	int64		rows;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	rows = pass->handed_out - rows_handled(pass);
	LWLockRelease(SswShared->lock);
	return Max(0, rows);
}

/*
 * The collector has read a chunk; an empty one means that rates let no row go.  Note how
 * much is left, when it is time to.  Of blocks only a guess was handed out.
 */
void
ssw_rows_left(SswWork *w, List *leaves, const SswChunk *chunk)
{
	SswPass    *pass = w->pass;
	bool		rated = pass->tokens >= 0 || (pass->backlog_before != 0 && pass->backlog_tokens >= 0);
	int64		lasts_us;
	int64		left;

	if (pass->refresh_only || !ssw_drain_found(w->policy->id, chunk->n, chunk->more || chunk->n == 0, &lasts_us))
		return;
	left = rows_behind(w, leaves, Min(MAX_COUNT_US, Max(MIN_COUNT_US, lasts_us / (rated ? COUNT_PART_RATED : COUNT_PART))));
	ssw_drain_counted(w->policy->id, left + chunk->n + (chunk->by_blocks ? 0 : rows_at_hand(pass)));
}
