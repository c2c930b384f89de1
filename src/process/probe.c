/*
 * probe.c
 *		When does the next row of a policy fall due?
 *
 * Runs in the coordinator, in a transaction, for policies that are columns of
 * built-in types.  The first entry of an index is read directly: to plan a
 * statement on the table would evaluate constants in its indexes and statistics,
 * and functions in them are its owner's.  Takes no transaction id.  Shares
 * nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "optimizer/plancat.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "base/spi.h"
#include "policy/expr.h"
#include "policy/partition.h"
#include "grace/arrival.h"
#include "grace/grace.h"
#include "sweep/lower_bound.h"
#include "sweep/worker_pass.h"
#include "process/probe.h"
#include "process/written_tables.h"

/* Dead index entries must not hang the coordinator. */
#define PROBE_TIMEOUT_MS	2000
/* Entries are counted for so long; then statistics say how many there are. */
#define COUNT_US		(20 * 1000)
#define COUNT_STEP		1000	/* between two looks at the clock */
/* Counts take such a part of the coordinator's time, those of one policy another part. */
#define COUNT_PART		20
#define COUNT_POLICY_PART	1000
#define COUNT_REST_US	(5 * USECS_PER_SEC)

static bool
is_builtin_column(Relation rel, const char *name)
{
	AttrNumber	attnum = name ? ssw_expr_find_column(rel, name) : InvalidAttrNumber;

	return name == NULL ||
		(attnum != InvalidAttrNumber && TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid < FirstGenbkiObjectId);
}

/*
 * Is the policy all columns of built-in types, or all ours?  Then its fragments can
 * be built and its deadlines read without any code of a user's.
 */
bool
ssw_probe_is_plain(const SswPolicy *p, Relation rel)
{
	if (p->filter_indexed)
		return true;
	return p->filter == NULL && p->on_null == SSW_NULL_IGNORE && p->ttl_column == NULL && is_builtin_column(rel, p->group_by) &&
		is_builtin_column(rel, p->deadline) && is_builtin_column(rel, p->last_seen) &&
		is_builtin_column(rel, p->created);
}

/* What can be said of the deadlines without a look at expressions: grace needs no more. */
void
ssw_probe_outline(SswPolicy *p)
{
	memset(p->deadlines, 0, sizeof(p->deadlines));
	p->ndeadlines = p->created ? 2 : 1;
	p->deadlines[0].activity = p->last_seen != NULL || p->heartbeats;
	p->deadlines[0].ttl_us = p->ttl_us;
	p->deadlines[0].row_ttl = p->ttl_column;
	p->deadlines[1].absolute = true;
}

/* Is its first column that one?  The others need not be opened. */
static bool
begins_with(Oid index, AttrNumber attnum)
{
	HeapTuple	tup = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	bool		does = HeapTupleIsValid(tup) && ((Form_pg_index) GETSTRUCT(tup))->indkey.values[0] == attnum;

	if (HeapTupleIsValid(tup))
		ReleaseSysCache(tup);
	return does;
}

/* Is this a btree in the order of that column, of all rows or of those of the filter? */
static bool
index_serves(const SswPolicy *p, Relation index, Oid type)
{
	Form_pg_index form = index->rd_index;

	return form->indisvalid && form->indisready && form->indislive && index->rd_rel->relam == BTREE_AM_OID &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) == !p->filter_indexed &&
		index->rd_opfamily[0] == lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY)->btree_opf;
}

/* Such an index, opened, or null.  It does not wait for a lock, because all policies would wait. */
static Relation
find_index(const SswPolicy *p, Relation leaf, AttrNumber attnum, Oid type)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(leaf))
	{
		Relation	index;

		if (!begins_with(lfirst_oid(lc), attnum))
			continue;
		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock))
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not obtain lock on an index of relation %s", p->relation)));
		index = index_open(lfirst_oid(lc), NoLock);
		if (index_serves(p, index, type))
			return index;
		index_close(index, AccessShareLock);
	}
	return NULL;
}

/* Keys of the scan: not null, and perhaps above a bound. */
static int
scan_keys(ScanKey keys, Relation index, Oid type, const SswLowerBound *low)
{
	Oid			op = get_opfamily_member(index->rd_opfamily[0], type, type, BTGreaterStrategyNumber);

	ScanKeyEntryInitialize(&keys[0], SK_ISNULL | SK_SEARCHNOTNULL, 1, InvalidStrategy, InvalidOid,
						   InvalidOid, InvalidOid, (Datum) 0);
	if (low == NULL)
		return 1;
	ScanKeyEntryInitialize(&keys[1], 0, 1, BTGreaterStrategyNumber, type, InvalidOid, get_opcode(op),
						   Int64GetDatum(low->value));
	return 2;
}

/* When a row with this value in the deadline's column is due. */
static TimestampTz
due_of(const SswPolicy *p, const SswDeadline *c, Datum value)
{
	Oid			type = c->sort_type;
	char	   *sql;
	bool		isnull;
	TimestampTz due;

	/* most often it is the deadline */
	if (strcmp(c->due, c->sort) == 0)
		return DatumGetTimestampTz(value);
	sql = psprintf("SELECT %s FROM (SELECT $1) AS t (%s)", c->due, quote_identifier(get_attname(p->relid, c->attnum, false)));
	ssw_spi_begin();
	ssw_plan_execute(sql, 1, &type, &value, NULL, true);
	due = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	ssw_spi_end();
	return isnull ? 0 : due;
}

/* A probe of a table for the first value in an index. */
typedef struct First
{
	bool		found;
	Datum		value;
	int64		entries;		/* of the index, that were read, and that the
								 * next scan reads again */
} First;

/* The first row that the snapshot sees.  Entries of rows that nobody sees any more are marked, and not read again. */
static void
read_first(Relation leaf, Relation index, AttrNumber attnum, ScanKey keys, int nkeys, Snapshot snapshot, First *f)
{
	IndexScanDesc scan = ssw_index_beginscan(leaf, index, snapshot, nkeys);
	TupleTableSlot *slot = table_slot_create(leaf, NULL);
	ScanDirection direction = (index->rd_indoption[0] & INDOPTION_DESC) ? BackwardScanDirection : ForwardScanDirection;
	bool		isnull = true;

	memset(f, 0, sizeof(First));
	index_rescan(scan, keys, nkeys, NULL, 0);
	while (!f->found && index_getnext_tid(scan, direction) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		f->found = index_fetch_heap(scan, slot);
		f->entries += !scan->kill_prior_tuple;
		if (f->found)
			f->value = slot_getattr(slot, attnum, &isnull);
	}
	/* it is in the slot, unless it is passed by value */
	if (!isnull)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(leaf), attnum - 1);

		f->value = datumCopy(f->value, att->attbyval, att->attlen);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}

/* With a snapshot of its own, because the round's may be older than a request. */
static void
read_first_now(Relation leaf, Relation index, AttrNumber attnum, ScanKey keys, int nkeys, First *f)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	read_first(leaf, index, attnum, keys, nkeys, snapshot, f);
	UnregisterSnapshot(snapshot);
}

/* The value of the deadline's column that is due then, or the lower of that and another; false: none, or no bound fits. */
static bool
value_at(const SswDeadline *c, TimestampTz due, const Datum *other, int64 *result)
{
	Oid			types[] = {TIMESTAMPTZOID, c->sort_type};
	Datum		values[] = {TimestampTzGetDatum(due), other ? *other : (Datum) 0};
	char		nulls[] = {' ', other ? ' ' : 'n', '\0'};
	Datum		value;
	bool		isnull;

	if (!ssw_lower_bound_fits(c))
		return false;
	ssw_spi_begin();
	ssw_spi_exec(psprintf("SELECT LEAST($2, %s)", c->bound), 2, types, values, nulls, true, 1);
	value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	*result = isnull ? 0 : DatumGetInt64(value);
	ssw_spi_end();
	return !isnull;
}

/*
 * Where the next probes may begin: no row is before the first, be it committed or not,
 * and a row that is written later has a deadline that has not passed.
 */
static bool
keep_low(SswWatch *w, int i, Oid leaf, const First *f, TimestampTz now, SswLowerBound *low)
{
	const SswDeadline *c = &w->policy->deadlines[i];
	int64		value;

	if (!value_at(c, now, f->found ? &f->value : NULL, &value) || !ssw_lower_bound_set(low, leaf, c, value))
		return false;
	low->horizon = ReadNextTransactionId();
	ssw_lower_bound_keep(w->policy_id, i, low);
	return true;
}

/*
 * The earliest time in one leaf by a deadline, or 0.  False: no index says.  Rows that the
 * fuse holds are skipped, and so are index entries below the known lower bound.
 */
static bool
probe_leaf(SswWatch *w, Oid relid, int i, bool alone, TimestampTz now, TimestampTz *due)
{
	const SswPolicy *p = w->policy;
	const SswDeadline *c = &p->deadlines[i];
	Relation	leaf = table_open(relid, AccessShareLock);
	AttrNumber	attnum = relid == p->relid ? c->attnum : get_attnum(relid, get_attname(p->relid, c->attnum, false));
	Relation	index = find_index(p, leaf, attnum, c->sort_type);
	SnapshotData uncommitted;
	ScanKeyData keys[2];
	SswLowerBound low;
	bool		bounded;
	bool		held;
	int64		above;
	int			nkeys;
	First		f;

	*due = 0;
	if (index == NULL)
	{
		table_close(leaf, NoLock);
		return false;
	}
	bounded = alone && ssw_lower_bound_find(p->id, i, relid, c, now, &low);
	if (bounded && TransactionIdPrecedesOrEquals(low.horizon, GetOldestNonRemovableTransactionId(leaf)))
	{
		/* nobody sees the rows that were skipped */
		ssw_lower_bound_forget(p->id);
		bounded = false;
	}
	held = i == 0 && w->held_above != 0 && value_at(c, w->held_above, NULL, &above);
	if (held)
		low.value = bounded ? Max(low.value, above) : above;
	nkeys = scan_keys(keys, index, c->sort_type, bounded || held ? &low : NULL);

	/* the next bound: rows that are not committed yet must be above it, too */
	InitDirtySnapshot(uncommitted);
	read_first(leaf, index, attnum, keys, nkeys, &uncommitted, &f);
	if (alone && !held && f.found && ssw_lower_bound_fits(c) && ssw_lower_bound_set(&w->low[i], relid, c, DatumGetInt64(f.value)))
		w->low[i].full_at = now;
	if (alone && !held && f.entries > SSW_LOW_ENTRIES)
	{
		if (!bounded)
			low.full_at = now;
		if (keep_low(w, i, relid, &f, now, &low))
			nkeys = scan_keys(keys, index, c->sort_type, &low);
	}
	if (f.found && TransactionIdIsValid(uncommitted.xmin))
		read_first_now(leaf, index, attnum, keys, nkeys, &f);
	if (f.found)
		*due = due_of(p, c, f.value);
	index_close(index, AccessShareLock);
	table_close(leaf, NoLock);
	return true;
}

/*
 * Before a look that CALL sweep has asked for: where rows may have been written below the
 * bound since it was found, that is forgotten.  Statistics of the caller's own session
 * count too (w->exact); those of others come about a second later.
 */
void
ssw_probe_requested(SswWatch *w)
{
	uint64		written = ssw_written_count(w->policy->relid);

	if (w->exact || written != w->written)
		ssw_lower_bound_forget(w->policy_id);
	w->written = written;
	w->exact = false;
}

/* Is there a row without the first deadline?  Without an index: perhaps. */
static bool
has_null(SswWatch *w, Oid relid)
{
	const SswPolicy *p = w->policy;
	const SswDeadline *c = &p->deadlines[0];
	Relation	leaf = table_open(relid, AccessShareLock);
	Relation	index = find_index(p, leaf, c->attnum, c->sort_type);
	ScanKeyData key;
	First		f = {.found = true};

	if (index)
	{
		ScanKeyEntryInitialize(&key, SK_ISNULL | SK_SEARCHNULL, 1, InvalidStrategy, InvalidOid,
							   InvalidOid, InvalidOid, (Datum) 0);
		read_first_now(leaf, index, c->attnum, &key, 1, &f);
		index_close(index, AccessShareLock);
	}
	table_close(leaf, NoLock);
	return f.found;
}

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
count_entries(Relation leaf, Relation index, AttrNumber attnum, Oid type, int64 last, TimestampTz until)
{
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
	planned = more ? rows_of(leaf) * fraction_until(RelationGetRelid(leaf), attnum, last) : 0;
	return Max(n, planned);
}

/* So many rows of a leaf are due by a deadline, about; -1: no index says. */
static double
count_due(SswWatch *w, Oid relid, int i, TimestampTz now, TimestampTz until)
{
	const SswPolicy *p = w->policy;
	const SswDeadline *c = &p->deadlines[i];
	Relation	leaf = table_open(relid, AccessShareLock);
	AttrNumber	attnum = relid == p->relid ? c->attnum : get_attnum(relid, get_attname(p->relid, c->attnum, false));
	Relation	index = find_index(p, leaf, attnum, c->sort_type);
	int64		last;
	double		rows = -1;

	if (index && value_at(c, now - p->keep_for_us, NULL, &last))
		rows = count_entries(leaf, index, attnum, c->sort_type, last, until);
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
static void
count_at_leisure(SswWatch *w, List *leaves, TimestampTz now)
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
	rest = COUNT_PART * PROBE_TIMEOUT_MS * INT64CONST(1000);
	rest_until = began + rest;
	w->count_at = began + COUNT_POLICY_PART * COUNT_US;
	count_all_due(w, leaves, now);
	rest = COUNT_PART * Max(0, GetCurrentTimestamp() - began);
	rest_until = began + rest;
	w->count_at = began + Max(COUNT_REST_US, COUNT_POLICY_PART / COUNT_PART * rest);
}

/* A row with that deadline: when may it go? */
static void
note_earliest(SswWatch *w, TimestampTz *earliest, TimestampTz due, TimestampTz cutoff, int64 credit, TimestampTz now)
{
	if (due == 0 || TIMESTAMP_IS_NOEND(due))
		return;
	if (TIMESTAMP_IS_NOBEGIN(due))
		due = now - USECS_PER_DAY;
	due += w->policy->keep_for_us;
	if (due <= now + credit)
		due = Max(due, TIMESTAMP_IS_NOBEGIN(cutoff) ? now + credit : due + credit);
	if (*earliest == 0 || due < *earliest)
		*earliest = due;
}

/*
 * Find the earliest time at which a row of a plain policy is due; w->earliest is 0
 * when it has no rows.  One index probe a leaf and deadline; without an index a worker
 * must look (w->unprobed).  Of what cannot be looked at, what was known stays known.
 */
void
ssw_probe(SswWatch *w, TimestampTz now)
{
	SswPolicy  *p = w->policy;
	List	   *leaves;
	ListCell   *lc;
	TimestampTz cutoffs[2];
	uint32		others;
	TimestampTz earliest = 0;
	bool		known;

	ssw_grace_cutoffs(p, now, cutoffs);
	leaves = ssw_partition_leaves(p, AccessShareLock, &others);
	/* before it is read; nothing is known of parts, or without statistics */
	w->probed_written = SswShared->counts_writes && list_length(leaves) == 1 && linitial_oid(leaves) == p->relid ?
		ssw_written_count(p->relid) : PG_UINT64_MAX;
	w->unprobed = false;
	enable_timeout_after(STATEMENT_TIMEOUT, PROBE_TIMEOUT_MS);
	foreach(lc, leaves)
		for (int i = 0; i < p->ndeadlines && !w->unprobed; i++)
	{
		TimestampTz due;

		TimestampTz arrived = i == 0 ? ssw_arrival_until(p, lfirst_oid(lc)) : 0;
		int64		credit = ssw_grace_credit(p, i, cutoffs[i], now);

		if (!probe_leaf(w, lfirst_oid(lc), i, list_length(leaves) == 1, now, &due))
			w->unprobed = true;
		else if (arrived > now - p->keep_for_us)
			note_earliest(w, &earliest, due, DT_NOBEGIN,
						  Max(credit, TIMESTAMP_IS_NOEND(arrived) ? USECS_PER_SEC : arrived + p->keep_for_us - now), now);
		else
			note_earliest(w, &earliest, due, cutoffs[i], credit, now);
	}
	known = !w->unprobed;
	w->unprobed = w->unprobed || others != 0;

	/*
	 * of plain policies only the registry's handles such rows; it is one
	 * table
	 */
	if (p->null_predicate && !w->unprobed && has_null(w, p->relid))
		earliest = now;
	if (known && !w->runs)
		count_at_leisure(w, leaves, now);
	disable_timeout(STATEMENT_TIMEOUT, false);
	if (known)
		w->earliest = earliest;
}
