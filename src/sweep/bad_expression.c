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
 * Runs in a worker after an error of a pass, or in the backend that registers, in a
 * transaction, as the relation's owner.  Shares nothing; a crash leaves nothing
 * behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "policy/deadline.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "policy/partition.h"
#include "policy/row_key.h"
#include "policy/sweep_sql.h"
#include "sweep/bad_expression.h"

/* A search ends with so many new ones. */
#define MAX_ROWS	1000

/* So many and no other are the policy's fault, if none of some rows elsewhere is any better. */
#define DOUBT		100
#define WITNESSES	200
#define WITNESS_BLOCKS	20

/* A search in one leaf. */
typedef struct Search
{
	const SswPolicy *policy;
	Oid			leaf;
	char	   *relation;
	List	   *leaves;
	SswFailures *failures;
	int			max;
	TimestampTz until;			/* or 0 */
	int			n;				/* found in all leaves, except those that were
								 * known */
	int64		good;			/* rows that were computed */
	bool		hopeless;		/* there seem to be none */
	MemoryContext cxt;			/* reset after each row or range of blocks */
	StringInfoData tids;		/* of this leaf, as an array's text */
	ErrorData  *error;			/* of the last that raised */
	char	   *key;			/* of the last row found, as failures are
								 * noted with */
} Search;

/* Is the error one that the value of a single row can raise? */
static bool
may_be_of_a_row(const ErrorData *e)
{
	return ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_DATA_EXCEPTION ||
		ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION;
}

/* Has the search found enough? */
static bool
is_over(const Search *s)
{
	return s->n >= s->max || s->hopeless || (s->until != 0 && GetCurrentTimestamp() > s->until);
}

/*
 * Run a statement on rows from one place to before another; false when a row's value
 * raises.  *n: how many there are, without those that are left out already.
 */
static bool
computes(Search *s, ItemPointerData from, ItemPointerData to, int64 *n)
{
	const SswPolicy *p = s->policy;
	const char *filter = p->filter ? p->filter : "true";
	MemoryContext old = MemoryContextSwitchTo(s->cxt);
	ResourceOwner owner = CurrentResourceOwner;
	Oid			types[] = {TIDOID, TIDOID};
	Datum		values[] = {PointerGetDatum(&from), PointerGetDatum(&to)};
	StringInfoData buf;
	ErrorData  *volatile error = NULL;

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT pg_catalog.count(%s), pg_catalog.count(%s)",
					 p->left_out ? psprintf("CASE WHEN %s THEN NULL ELSE 1 END", p->left_out) : "*", filter);
	for (int i = 0; i < p->ndeadlines; i++)
		appendStringInfo(&buf, ", pg_catalog.count(CASE WHEN %s THEN %s END)", filter, p->deadlines[i].due);
	if (p->group_text)
		appendStringInfo(&buf, ", pg_catalog.count(CASE WHEN %s THEN %s END)", filter, p->group_text);
	appendStringInfo(&buf, " FROM ONLY %s AS t WHERE t.ctid " SSW_OP(">=") " $1 AND t.ctid " SSW_OP("<") " $2", s->relation);
	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		bool		isnull;

		/* its memory is free again after each, also after an error */
		ssw_spi_begin();
		ssw_plan_by_place(buf.data, 2, types);
		ssw_plan_execute(buf.data, 2, types, values, NULL, true);
		*n = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		ssw_spi_end();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(s->cxt);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	CurrentResourceOwner = owner;
	if (error == NULL)
		return true;
	if (!may_be_of_a_row(error))
		ReThrowError(error);
	s->error = error;
	return false;
}

/* The same for one row. */
static bool
row_computes(Search *s, ItemPointerData tid, int64 *n)
{
	ItemPointerData next = tid;

	ItemPointerSetOffsetNumber(&next, ItemPointerGetOffsetNumber(&tid) + 1);
	return computes(s, tid, next, n);
}

/* The rows of blocks [from, to). */
static ItemPointerData *
rows_of(const char *relation, BlockNumber from, BlockNumber to, int *n)
{
	ItemPointerData range[2];
	ItemPointerData *tids;
	Oid			types[] = {TIDOID, TIDOID};
	Datum		values[] = {PointerGetDatum(&range[0]), PointerGetDatum(&range[1])};
	bool		isnull;

	ItemPointerSet(&range[0], from, 0);
	ItemPointerSet(&range[1], to, 0);
	*n = ssw_plan_execute(psprintf("SELECT t.ctid FROM ONLY %s AS t WHERE t.ctid " SSW_OP(">=") " $1 AND t.ctid " SSW_OP("<") " $2",
								   relation), 2, types, values, NULL, true);
	tids = palloc(Max(*n, 1) * sizeof(ItemPointerData));
	for (int i = 0; i < *n; i++)
		tids[i] = *(ItemPointer) DatumGetPointer(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
	SPI_freetuptable(SPI_tuptable);
	return tids;
}

static BlockNumber
blocks_of(Oid leaf)
{
	Relation	rel = table_open(leaf, AccessShareLock);
	BlockNumber n = RelationGetNumberOfBlocks(rel);

	table_close(rel, NoLock);
	return n;
}

/* Is there any row that can be computed?  Tried are rows of blocks all over the leaves, the last first. */
static bool
has_witness(Search *s)
{
	int			tries = 0;
	ListCell   *lc;

	foreach(lc, s->leaves)
	{
		BlockNumber blocks = blocks_of(lfirst_oid(lc));
		BlockNumber step = blocks / WITNESS_BLOCKS + 1;
		Search		other = {.policy = s->policy,.relation = ssw_guard_table(lfirst_oid(lc)),.cxt = s->cxt};

		for (int64 b = (int64) blocks - 1; b >= 0 && tries < WITNESSES; b -= step)
		{
			int			n;
			int64		counted = 0;
			ItemPointerData *tids = rows_of(other.relation, b, b + 1, &n);

			for (int i = 0; i < Min(n, WITNESSES / WITNESS_BLOCKS); i++, tries++)
				if (row_computes(&other, tids[i], &counted) && counted > 0)
					return true;
		}
	}
	return false;
}

/* Note a row at fault. */
static void
note(Search *s, ItemPointerData tid)
{
	Oid			type = TIDOID;
	Datum		value = PointerGetDatum(&tid);
	bool		slow;

	if (ssw_plan_execute(psprintf("SELECT %s FROM ONLY %s AS t WHERE t.ctid " SSW_OP("=") " $1",
								  ssw_stmt_failed_key(s->policy), s->relation),
						 1, &type, &value, NULL, true) == 0)
		return;
	s->key = MemoryContextStrdup(s->cxt, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1));
	SPI_freetuptable(SPI_tuptable);
	appendStringInfo(&s->tids, "%s\"(%u,%u)\"", s->tids.len ? "," : "",
					 ItemPointerGetBlockNumber(&tid), ItemPointerGetOffsetNumber(&tid));
	if (!ssw_failures_excluded(s->failures, s->leaf, s->key, 0, false, GetCurrentTimestamp(), &slow) &&
		!ssw_failures_add(s->failures, s->leaf, s->key, 0, false, "error", s->error->sqlerrcode,
						  ssw_failure_text(s->policy, s->error), 0))
		s->n++;
}

/* Look at rows; note those that are at fault. */
static void
look_at(Search *s, const ItemPointerData *tids, int n)
{
	MemoryContext old = CurrentMemoryContext;

	for (int i = 0; i < n && !is_over(s); i++)
	{
		int64		counted = 0;

		CHECK_FOR_INTERRUPTS();
		MemoryContextSwitchTo(s->cxt);
		if (!row_computes(s, tids[i], &counted))
			note(s, tids[i]);
		s->good += counted;
		if (s->n >= DOUBT && s->good == 0)
		{
			s->hopeless = !has_witness(s);
			s->good = 1;
		}
		MemoryContextSwitchTo(old);
		MemoryContextReset(s->cxt);
	}
}

/* Halve the blocks [from, to) down to the rows at fault. */
static void
search(Search *s, BlockNumber from, BlockNumber to)
{
	ItemPointerData range[2];
	int64		counted = 0;
	bool		fine;
	int			n;

	CHECK_FOR_INTERRUPTS();
	ItemPointerSet(&range[0], from, 0);
	ItemPointerSet(&range[1], to, 0);
	if (from >= to || is_over(s))
		return;
	fine = computes(s, range[0], range[1], &counted);
	s->good += counted;
	MemoryContextReset(s->cxt);
	if (fine)
		return;
	if (to - from > 1)
	{
		search(s, from, from + (to - from) / 2);
		search(s, from + (to - from) / 2, to);
	}
	else
	{
		ItemPointerData *tids = rows_of(s->relation, from, to, &n);

		look_at(s, tids, n);
		pfree(tids);
	}
}

/*
 * Boolean over t: the rows at fault, which are recorded; null when there are none,
 * or no others.
 */
static char *
find_rows(const SswPolicy *p, List *leaves, SswFailures *failures, TimestampTz until)
{
	Search		s = {.policy = p,.leaves = leaves,.failures = failures,.max = MAX_ROWS,.until = until};
	bool		found = false;
	StringInfoData condition;
	ListCell   *lc;

	s.cxt = AllocSetContextCreate(CurrentMemoryContext, "rows at fault", ALLOCSET_DEFAULT_SIZES);
	initStringInfo(&condition);
	if (p->left_out)
		appendStringInfoString(&condition, p->left_out);
	foreach(lc, leaves)
	{
		s.leaf = lfirst_oid(lc);
		s.relation = ssw_guard_table(s.leaf);
		initStringInfo(&s.tids);
		search(&s, 0, blocks_of(s.leaf));
		found = found || s.tids.len > 0;
		if (s.tids.len > 0)
			appendStringInfo(&condition, "%s(t.tableoid " SSW_OP("=") " %u::pg_catalog.oid AND t.ctid " SSW_OP("=") " ANY ('{%s}'::pg_catalog.tid[]))",
							 condition.len ? " OR " : "", s.leaf, s.tids.data);
	}
	MemoryContextDelete(s.cxt);
	return found && !s.hopeless ? condition.data : NULL;
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

	if (p == NULL || w->failures == NULL || w->failed || !may_be_of_a_row(w->error) || !ssw_batch_begin(w))
		return false;
	MemoryContextSwitchTo(cxt);
	leaves = ssw_partition_free_leaves(p, AccessShareLock, &others);
	ssw_spi_begin_as_owner(p->owner, p->search_path, &save);
	MemoryContextSwitchTo(cxt);
	left_out = find_rows(p, leaves, w->failures, w->pass->soft_deadline);
	ssw_spi_end_as(&save);
	if (left_out)
	{
		rel = table_open(p->relid, NoLock);
		MemoryContextSwitchTo(cxt);
		w->target.policy = w->policy = ssw_policy_load(p->id);
		w->policy->left_out = left_out;
		ssw_deadline_build(w->policy, rel);
		ssw_grace_rows(w->policy);
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
