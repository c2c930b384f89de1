/*
 * bad_expression.c
 *		Rows whose deadline, filter or group cannot be computed.
 *
 * An expression that raises for one row, a cast of a text that is no number, would
 * stop the whole policy.  After such an error the rows at fault are found by halving
 * the heap.  They are recorded as failed, and the policy's expressions are built again
 * so that they are not computed for these rows.  When there are more, that is repeated
 * until the pass's time is over.
 *
 * Runs in a worker after an error of a pass, in a transaction, as the relation's
 * owner.  Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "policy/deadline.h"
#include "policy/partition.h"
#include "policy/sweep_sql.h"
#include "sweep/bad_expression.h"
#include "sweep/fuse_hold.h"

/* A search in a leaf ends with so many new ones. */
#define MAX_ROWS	1000

/* So many, and no other row that can be computed, are the policy's fault. */
#define DOUBT		100

/* Rows are numbered by their places, so many in a block. */
#define PLACES		(MaxHeapTuplesPerPage + 1)

/* A search in one leaf. */
typedef struct Search
{
	const SswPolicy *policy;
	SswFailures *failures;
	TimestampTz until;
	Oid			leaf;
	char	   *relation;
	char	   *sql;			/* computes all rows of a range of places */
	StringInfoData tids;		/* of the rows found, as an array's text */
	int			n;				/* how many were found, except those that were
								 * known */
	int64		good;			/* rows that were computed */
	MemoryContext cxt;			/* reset before each range */
	ItemPointerData range[2];	/* [from, to) */
} Search;

/* Is the error one that the value of a single row can raise? */
static bool
may_be_of_a_row(const ErrorData *e)
{
	return ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_DATA_EXCEPTION ||
		ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION;
}

/* Are there so many rows at fault, and no other, that the policy is? */
static bool
is_hopeless(int n, int64 good)
{
	return n >= DOUBT && good == 0;
}

/* The statement: how many rows there are from $1 to before $2, without those that are left out already. */
static char *
compute_sql(const SswPolicy *p, const char *relation)
{
	const char *filter = p->filter ? p->filter : "true";
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT pg_catalog.count(%s), pg_catalog.count(%s)",
					 p->left_out ? psprintf("CASE WHEN %s THEN NULL ELSE 1 END", p->left_out) : "*", filter);
	for (int i = 0; i < p->ndeadlines; i++)
		appendStringInfo(&buf, ", pg_catalog.count(CASE WHEN %s THEN %s END)", filter, p->deadlines[i].due);
	if (p->group_text)
		appendStringInfo(&buf, ", pg_catalog.count(CASE WHEN %s THEN %s END)", filter, p->group_text);
	appendStringInfo(&buf, " FROM ONLY %s AS t WHERE t.ctid " SSW_OP(">=") " $1 AND t.ctid " SSW_OP("<") " $2", relation);
	return buf.data;
}

static bool
compute(void *arg)
{
	Search	   *s = arg;
	Oid			types[] = {TIDOID, TIDOID};
	Datum		values[] = {PointerGetDatum(&s->range[0]), PointerGetDatum(&s->range[1])};
	bool		isnull;

	/* its memory is free again after each, also after an error */
	ssw_spi_begin();
	ssw_plan_by_place(s->sql, 2, types);
	ssw_plan_execute(s->sql, 2, types, values, NULL, true);
	s->good += DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	ssw_spi_end();
	return true;
}

/* Note the row at the first place of the range, which raised the error. */
static void
note(Search *s, const ErrorData *e)
{
	Oid			type = TIDOID;
	Datum		value = PointerGetDatum(&s->range[0]);
	SswRow		row = {.has_due = false};
	bool		slow;

	if (ssw_plan_execute(psprintf("SELECT %s FROM ONLY %s AS t WHERE t.ctid " SSW_OP("=") " $1",
								  ssw_sweep_sql_failed_key(s->policy), s->relation),
						 1, &type, &value, NULL, true) == 0)
		return;
	row.key = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	appendStringInfo(&s->tids, "%s\"(%u,%u)\"", s->tids.len ? "," : "",
					 ItemPointerGetBlockNumber(&s->range[0]), ItemPointerGetOffsetNumber(&s->range[0]));
	if (!ssw_failed_row_excluded(s->failures, s->leaf, &row, &slow) &&
		!ssw_failed_row_add(s->failures, s->leaf, &row, "error", e->sqlerrcode, ssw_failed_row_text(s->policy, e), 0))
		s->n++;
}

/*
 * Can the rows of places [from, to) be computed?  A single row that cannot is noted,
 * and there is nothing more to do about it: true.
 */
static bool
settle(Search *s, int64 from, int64 to)
{
	MemoryContext old;
	ErrorData  *error;

	CHECK_FOR_INTERRUPTS();
	if (s->n >= MAX_ROWS || is_hopeless(s->n, s->good) || GetCurrentTimestamp() > s->until)
		return true;
	MemoryContextReset(s->cxt);
	old = MemoryContextSwitchTo(s->cxt);
	ItemPointerSet(&s->range[0], from / PLACES, from % PLACES);
	ItemPointerSet(&s->range[1], to / PLACES, to % PLACES);
	error = ssw_spi_try(compute, s);
	if (error && !may_be_of_a_row(error))
		ReThrowError(error);
	if (error && to - from == 1)
		note(s, error);
	MemoryContextSwitchTo(old);
	return error == NULL || to - from <= 1;
}

/*
 * Halve places that cannot be computed down to the rows at fault.  Both halves are tried
 * before one is searched, so that rows which can be computed are met early.
 */
static void
search(Search *s, int64 from, int64 to)
{
	int64		middle = from + (to - from) / 2;
	bool		left = settle(s, from, middle);
	bool		right = settle(s, middle, to);

	if (!left)
		search(s, from, middle);
	if (!right)
		search(s, middle, to);
}

static BlockNumber
blocks_of(Oid leaf)
{
	Relation	rel = table_open(leaf, AccessShareLock);
	BlockNumber n = RelationGetNumberOfBlocks(rel);

	table_close(rel, NoLock);
	return n;
}

/*
 * Boolean over t: the rows at fault, which are recorded; null when there are none,
 * or no others.
 */
static char *
find_rows(const SswPolicy *p, List *leaves, SswFailures *failures, TimestampTz until)
{
	Search		s = {.policy = p,.failures = failures,.until = until};
	int			n = 0;
	int64		good = 0;
	bool		found = false;
	StringInfoData condition;
	ListCell   *lc;

	s.cxt = AllocSetContextCreate(CurrentMemoryContext, "rows at fault", ALLOCSET_DEFAULT_SIZES);
	initStringInfo(&condition);
	if (p->left_out)
		appendStringInfoString(&condition, p->left_out);
	foreach(lc, leaves)
	{
		int64		places = (int64) blocks_of(lfirst_oid(lc)) * PLACES;

		s.n = s.good = 0;
		s.leaf = lfirst_oid(lc);
		s.relation = ssw_guard_table(s.leaf);
		s.sql = compute_sql(p, s.relation);
		initStringInfo(&s.tids);
		if (!settle(&s, 0, places))
			search(&s, 0, places);
		n += s.n;
		good += s.good;
		if (s.tids.len == 0)
			continue;
		found = true;
		appendStringInfo(&condition, "%s(t.tableoid " SSW_OP("=") " %u::pg_catalog.oid AND t.ctid " SSW_OP("=") " ANY ('{%s}'::pg_catalog.tid[]))",
						 condition.len ? " OR " : "", s.leaf, s.tids.data);
	}
	MemoryContextDelete(s.cxt);
	return found && !is_hopeless(n, good) ? condition.data : NULL;
}

/*
 * After an error that the value of a row can raise: leave the rows at fault out of
 * what is computed.  False when there are none, or no others.
 */
static bool
leave_out(SswWork *w, MemoryContext cxt)
{
	SswPolicy  *p = w->policy;
	char	   *left_out;
	List	   *leaves;
	uint32		others;
	SswIdentity save;
	Relation	rel;
	int			pending;

	if (p == NULL || w->failures == NULL || w->failed || !may_be_of_a_row(w->error) || !ssw_batch_begin(w))
		return false;
	MemoryContextSwitchTo(cxt);
	leaves = ssw_partition_leaves(p, AccessShareLock, &others);
	ssw_spi_begin_as_owner(p->owner, p->search_path, &save);
	MemoryContextSwitchTo(cxt);
	pending = ssw_failed_row_pending(w->failures);
	left_out = find_rows(p, leaves, w->failures, w->pass->soft_deadline);
	ssw_spi_end_as(&save);

	/*
	 * no row is at fault: a plan that reads the whole table may have computed
	 * the sum that is indexed for rows which the filter leaves out
	 */
	if (left_out == NULL && ssw_failed_row_pending(w->failures) == pending && p->deadlines[0].row_columns[0] != 0)
		left_out = pstrdup("false");
	if (left_out)
	{
		rel = table_open(p->relid, NoLock);
		MemoryContextSwitchTo(cxt);
		w->target.policy = w->policy = ssw_policy_again(p);
		w->policy->left_out = left_out;
		ssw_deadline_build(w->policy, rel);
		ssw_grace_rows(w->policy);
		ssw_fuse_load(w->policy);
		table_close(rel, NoLock);
	}
	ssw_batch_disarm();
	ssw_spi_commit();
	return left_out != NULL;
}

/* Leave the rows at fault out after an error, w->error; true when the pass can continue. */
bool
ssw_bad_expression_leave_out(SswWork *w, MemoryContext cxt)
{
	volatile bool result = false;

	PG_TRY();
	{
		result = leave_out(w, cxt);
		ssw_batch_disarm();
		if (!result && IsTransactionState())
			ssw_spi_abort();
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	return result;
}
