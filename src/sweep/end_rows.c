/*
 * end_rows.c
 *		End rows of a policy in a caller's session, with their evidence.
 *
 * Runs in the caller's session and transaction, and in workers, with the same row action,
 * hooks, events and notifications as a pass.  The owner's code runs as the
 * owner.  Rows are found and locked first, so that a row which the application is
 * just writing ends too, and one which another session has just ended does not.
 *
 * Shares nothing; works without the background processes.  A crash, or the
 * caller's rollback, undoes all of it.
 *
 * Lock order: pool, extension object, policy, relation, rows; as in a batch.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/memutils.h"

#include "base/deferred.h"
#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "policy/partition.h"
#include "sweep/end_rows.h"
#include "sweep/alive_by_heartbeat.h"
#include "sweep/row_action.h"

/* Rows that one statement acts on. */
#define ROWS_AT_ONCE	10000

typedef struct FoundRow
{
	Oid			leaf;
	ItemPointerData tid;
} FoundRow;

struct SswFound
{
	int			n;
	int			size;
	FoundRow   *rows;
	MemoryContext cxt;
};

static int
compare_rows(const void *a, const void *b)
{
	const FoundRow *x = a;
	const FoundRow *y = b;

	if (x->leaf != y->leaf)
		return x->leaf < y->leaf ? -1 : 1;
	return ItemPointerCompare(unconstify(ItemPointerData *, &x->tid),
							  unconstify(ItemPointerData *, &y->tid));
}

/* No rows yet; kept in CurrentMemoryContext. */
SswFound   *
ssw_end_begin(void)
{
	SswFound   *f = palloc0(sizeof(SswFound));

	f->cxt = CurrentMemoryContext;
	return f;
}

/* Take in the rows that a statement has locked. */
static void
add_rows(SswFound *f, uint64 n)
{
	if (f->n + n > INT_MAX / 2)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many rows to expire in one call")));
	if (f->n + n > f->size)
	{
		f->size = Max(f->n + n, 2 * f->size);
		f->rows = f->rows ?
			repalloc_huge(f->rows, f->size * sizeof(FoundRow)) :
			MemoryContextAllocHuge(f->cxt, f->size * sizeof(FoundRow));
	}
	for (uint64 i = 0; i < n; i++)
	{
		FoundRow   *r = &f->rows[f->n++];
		HeapTuple	tup = SPI_tuptable->vals[i];
		bool		isnull;

		r->leaf = DatumGetObjectId(SPI_getbinval(tup, SPI_tuptable->tupdesc, 1, &isnull));
		r->tid = *(ItemPointer) DatumGetPointer(SPI_getbinval(tup, SPI_tuptable->tupdesc, 2, &isnull));
	}
	SPI_freetuptable(SPI_tuptable);
}

/*
 * Find and lock the rows of this node that match: a boolean over t and the
 * parameters.  As the relation's owner, in SPI.
 */
void
ssw_end_find(SswFound *f, const SswPolicy *p, const SswEnd *e, const char *matches,
			 int nargs, Oid *types, Datum *values)
{
	ListCell   *lc;

	foreach(lc, ssw_partition_places(p))
	{
		char	   *sql = psprintf("SELECT t.tableoid, t.ctid FROM %s AS t WHERE %s AND (%s) FOR UPDATE%s",
								   ssw_guard_table(lfirst_oid(lc)), matches, p->filter ? p->filter : "true",
								   e->skip_locked ? " SKIP LOCKED" : "");
		uint64		now = IsolationUsesXactSnapshot() ? ssw_plan_execute_fresh(sql, nargs, types, values) : 0;
		uint64		n = ssw_plan_execute(sql, nargs, types, values, NULL, false);

		/*
		 * rows that are younger than the transaction's snapshot cannot end in
		 * it
		 */
		if (now > n)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("could not serialize access due to concurrent insert into \"%s\"", p->relation)));
		add_rows(f, n);
	}
}

/* Act on up to ROWS_AT_ONCE rows of one leaf, from *next on. */
static int64
act(const SswFound *f, int *next, const SswPolicy *p, const SswEnd *e)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "rows to end",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SswTarget	target = {.policy = p,.phase = e->phase,.cutoff = e->cutoff,.full_cutoff = e->cutoff,.skip_locked = e->skip_locked,.locked = true,.gone = e->gone};
	SswSink    *sink = ssw_cleanup_event_begin(p, e->pass, e->type, e->reason, e->pass ? NULL : ssw_identity_actor());
	int			size = Min(f->n - *next, ROWS_AT_ONCE);
	ItemPointerData *tids = palloc(size * sizeof(ItemPointerData));
	SswIdentity save;
	int			n = 0;
	int64		acted;

	target.leaf = f->rows[*next].leaf;
	for (; *next < f->n && f->rows[*next].leaf == target.leaf && n < size; ++*next)
		if (n == 0 || !ItemPointerEquals(&tids[n - 1], &f->rows[*next].tid))
			tids[n++] = f->rows[*next].tid;
	ssw_action_lock_leaf(p, target.leaf, RowExclusiveLock);
	ssw_spi_begin_as_owner(p->owner, p->search_path, &save);
	acted = ssw_alive_act_on_dead(&target, tids, n, sink);

	/*
	 * the registry has no code of users, and its callers constraints of their
	 * own
	 */
	if (!p->registry)
		ssw_deferred_fire();
	ssw_spi_end_as(&save);
	MemoryContextSwitchTo(cxt);
	ssw_cleanup_event_end(sink);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
	return acted;
}

int
ssw_end_count(const SswFound *f)
{
	return f->n;
}

/* End the rows that were found; returns how many. */
int64
ssw_end_found(SswFound *f, const SswPolicy *p, const SswEnd *e)
{
	int64		total = 0;

	qsort(f->rows, f->n, sizeof(FoundRow), compare_rows);
	for (int next = 0; next < f->n;)
		total += act(f, &next, p, e);
	return total;
}
