/*
 * due_count.c
 *		About how many rows of a policy are due, while a brake is on.
 *
 * Runs in the coordinator, as part of a probe.  Entries of the deadline's index are counted
 * for a short time; then statistics say how many there are.  Shares nothing; a crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_statistic.h"
#include "miscadmin.h"
#include "optimizer/plancat.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "process/deadline_index.h"
#include "process/due_count.h"

/* Entries are counted for so long; then statistics say how many there are. */
#define COUNT_US		(20 * 1000)
#define COUNT_STEP		1000	/* between two looks at the clock */
/* Counts take such a part of the coordinator's time, those of one policy another part. */
#define COUNT_PART		20
#define COUNT_POLICY_PART	1000
#define COUNT_REST_US	(5 * USECS_PER_SEC)

/* Rows of a leaf, by its size. */
static double
rows_of(Relation leaf)
{
	BlockNumber pages;
	double		rows;
	double		visible;

	estimate_rel_size(leaf, NULL, &pages, &rows, &visible);
	return rows;
}

/* Such a part of a column's values is not above the last, says ANALYZE; 0: nothing is known. */
static double
fraction_until(Oid relid, AttrNumber attnum, int64 last)
{
	HeapTuple	tup = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(relid), Int16GetDatum(attnum), BoolGetDatum(false));
	double		common = 0;
	double		fraction = 0;
	int			below = 0;
	AttStatsSlot slot;

	if (!HeapTupleIsValid(tup))
		return 0;
	if (get_attstatsslot(&slot, tup, STATISTIC_KIND_MCV, InvalidOid, ATTSTATSSLOT_VALUES | ATTSTATSSLOT_NUMBERS))
	{
		for (int i = 0; i < slot.nvalues; i++)
		{
			common += slot.numbers[i];
			fraction += DatumGetInt64(slot.values[i]) <= last ? slot.numbers[i] : 0;
		}
		free_attstatsslot(&slot);
	}
	if (get_attstatsslot(&slot, tup, STATISTIC_KIND_HISTOGRAM, InvalidOid, ATTSTATSSLOT_VALUES))
	{
		double		bins;

		while (below < slot.nvalues && DatumGetInt64(slot.values[below]) <= last)
			below++;
		bins = Max(0, below - 1);
		if (below > 0 && below < slot.nvalues)
		{
			double		low = DatumGetInt64(slot.values[below - 1]);

			bins += (last - low) / (DatumGetInt64(slot.values[below]) - low);
		}
		fraction += (1 - common - ((Form_pg_statistic) GETSTRUCT(tup))->stanullfrac) * bins / Max(1, slot.nvalues - 1);
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(tup);
	return fraction;
}

/* Count entries of the index up to the last value.  After that time what statistics say counts, unless more were seen. */
static double
count_entries(Relation leaf, Relation index, Oid type, int64 last, TimestampTz until)
{
	AttrNumber	attnum = index->rd_index->indkey.values[0];
	Oid			op = get_opfamily_member(index->rd_opfamily[0], type, type, BTLessEqualStrategyNumber);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	IndexScanDesc scan = ssw_index_beginscan(leaf, index, snapshot, 1);
	ScanDirection direction = (index->rd_indoption[0] & INDOPTION_DESC) ? BackwardScanDirection : ForwardScanDirection;
	ScanKeyData key;
	bool		more = true;
	int64		n = 0;
	double		planned;

	ScanKeyEntryInitialize(&key, 0, 1, BTLessEqualStrategyNumber, type, InvalidOid, get_opcode(op), Int64GetDatum(last));
	scan->xs_want_itup = true;
	index_rescan(scan, &key, 1, NULL, 0);
	while ((n % COUNT_STEP != 0 || GetCurrentTimestamp() < until) && (more = index_getnext_tid(scan, direction) != NULL))
	{
		CHECK_FOR_INTERRUPTS();
		n++;
	}
	index_endscan(scan);
	UnregisterSnapshot(snapshot);
	/* ANALYZE knows values of an expression by the index */
	planned = more ? rows_of(leaf) * fraction_until(RelationGetRelid(attnum != 0 ? leaf : index), Max(attnum, 1), last) : 0;
	return Max(n, planned);
}

/* So many rows of a leaf are due by a deadline, about; -1: no index says. */
static double
count_due(SswWatch *w, Oid relid, int i, TimestampTz now, TimestampTz until)
{
	const SswPolicy *p = w->policy;
	const SswDeadline *c = &p->deadlines[i];
	Relation	leaf = table_open(relid, AccessShareLock);
	Relation	index = ssw_deadline_index_open(p, leaf, c);
	int64		last;
	double		rows = -1;

	if (index && ssw_deadline_index_value(c, now - p->keep_for_us, NULL, &last))
		rows = count_entries(leaf, index, c->sort_type, last, until);
	if (index)
		index_close(index, AccessShareLock);
	table_close(leaf, NoLock);
	return rows;
}

/*
 * While a brake is on nobody handles what is due, and no pass counts it: w->due_rows.  What
 * is due by both deadlines counts once.
 */
static void
count_all_due(SswWatch *w, List *leaves, TimestampTz now)
{
	TimestampTz until = GetCurrentTimestamp() + COUNT_US;
	double		rows = 0;
	ListCell   *lc;

	w->due_rows = -1;
	foreach(lc, leaves)
	{
		double		due = 0;

		for (int i = 0; i < w->policy->ndeadlines && due >= 0; i++)
		{
			double		n = count_due(w, lfirst_oid(lc), i, now, until);

			due = n < 0 ? n : Max(due, n);
		}
		if (due < 0)
			return;
		rows += due;
	}
	w->due_rows = (int64) rows;
}

/*
 * Count, unless that was done a short while ago.  Also when all policies are judged again
 * and again, no other waits for it: after a count come those of other policies, one by one.
 */
void
ssw_due_count(SswWatch *w, List *leaves, TimestampTz now)
{
	static TimestampTz rest_until = 0;
	static TimestampTz taken_until = 0;
	static int64 rest = 0;
	TimestampTz began = GetCurrentTimestamp();

	if (began < w->count_at && w->count_at - began <= COUNT_POLICY_PART * rest + COUNT_REST_US)
		return;
	if (began < rest_until && rest_until - began <= rest)
	{
		taken_until = ssw_max(taken_until, rest_until);
		w->count_at = taken_until;
		taken_until += rest;
		return;
	}
	/* if it takes too long, the probe ends with an error */
	rest = COUNT_PART * SSW_DEADLINE_INDEX_TIMEOUT_MS * INT64CONST(1000);
	rest_until = began + rest;
	w->count_at = began + COUNT_POLICY_PART * COUNT_US;
	count_all_due(w, leaves, now);
	rest = COUNT_PART * Max(0, GetCurrentTimestamp() - began);
	rest_until = began + rest;
	w->count_at = began + Max(COUNT_REST_US, COUNT_POLICY_PART / COUNT_PART * rest);
}
