/*
 * probe.c
 *		When does the next row of a policy fall due?
 *
 * Runs in the coordinator, in a transaction, for policies that are columns of
 * built-in types.  The first entry of an index is read directly: to plan a
 * statement on the table would evaluate constants in its indexes and statistics,
 * and functions in them are its owner's.  Where an expression or a predicate of an
 * index decides whether it serves, a worker says so.  Takes no transaction id.  Shares
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
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/procarray.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/compat.h"
#include "base/spi.h"
#include "policy/deadline.h"
#include "policy/expr.h"
#include "policy/partition.h"
#include "grace/arrival.h"
#include "grace/grace.h"
#include "sweep/lower_bound.h"
#include "process/deadline_index.h"
#include "process/due_count.h"
#include "process/probe.h"
#include "process/written_tables.h"

static bool
is_builtin_column(Relation rel, const char *name)
{
	AttrNumber	attnum = name ? ssw_expr_find_column(rel, name) : InvalidAttrNumber;

	return name == NULL ||
		(attnum != InvalidAttrNumber && TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid < FirstGenbkiObjectId);
}

/* Is the policy all columns of built-in types, or all ours?  Then its fragments can be built without any code of a user's. */
static bool
is_plain(const SswPolicy *p, Relation rel)
{
	if (p->filter_indexed)
		return true;
	return p->on_null == SSW_NULL_IGNORE && is_builtin_column(rel, p->ttl_column) && is_builtin_column(rel, p->group_by) &&
		is_builtin_column(rel, p->deadline) && is_builtin_column(rel, p->last_seen) &&
		is_builtin_column(rel, p->created);
}

/* What can be said of the deadlines without a look at expressions: grace needs no more. */
static void
outline(SswPolicy *p)
{
	memset(p->deadlines, 0, sizeof(p->deadlines));
	p->ndeadlines = p->created ? 2 : 1;
	p->deadlines[0].activity = p->last_seen != NULL || p->heartbeats;
	p->deadlines[0].ttl_us = p->ttl_us;
	p->deadlines[0].row_ttl = p->ttl_column;
	p->deadlines[1].absolute = true;
}

/*
 * Build what a probe needs.  False: the coordinator cannot probe.  It can where deadlines are
 * columns, or an index may have computed them from two columns; the filter is left out.
 */
bool
ssw_probe_build(SswWatch *w, Relation rel)
{
	SswPolicy  *p = w->policy;
	const SswDeadline *c = &p->deadlines[0];

	if (!is_plain(p, rel))
	{
		outline(p);
		return false;
	}
	p->in_coordinator = true;
	p->reported_index = w->reported_index;
	if (p->filter && !p->filter_indexed)
	{
		p->filter = NULL;
		p->filter_unread = true;
	}
	ssw_deadline_build(p, rel);
	return p->last_seen == NULL || c->row_ttl == NULL || c->row_columns[0] != c->row_columns[1];
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

/* A probe of a table for the first value in an index. */
typedef struct First
{
	bool		found;
	Datum		value;
	Datum		row[2];			/* the deadline's row_columns, where it has
								 * such */
	bool		isnull[2];
	int64		entries;		/* of the index, that were read, and that the
								 * next scan reads again */
} First;

/* Evaluate the deadline over columns of the table; DT_NOEND: it is null. */
static TimestampTz
evaluate(const SswPolicy *p, const char *due, int n, const int16 *columns, Datum *values, const bool *nulls)
{
	Oid			types[2];
	StringInfoData names;
	StringInfoData params;
	bool		isnull;
	TimestampTz result;

	initStringInfo(&names);
	initStringInfo(&params);
	for (int i = 0; i < n; i++)
	{
		const char *comma = i > 0 ? ", " : "";

		types[i] = get_atttype(p->relid, columns[i]);
		appendStringInfo(&names, "%s%s", comma, quote_identifier(get_attname(p->relid, columns[i], false)));
		if (nulls[i])
			appendStringInfo(&params, "%sNULL::%s", comma, format_type_be_qualified(types[i]));
		else
			appendStringInfo(&params, "%s$%d", comma, i + 1);
	}
	ssw_spi_begin();
	ssw_plan_execute(psprintf("SELECT %s FROM (SELECT %s) AS t (%s)", due, params.data, names.data), n, types, values, NULL, true);
	result = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	ssw_spi_end();
	return isnull ? DT_NOEND : result;
}

/*
 * When the row is due that was found; false: that is for a worker to say.  Its place in the
 * index is too early for a time to live of zero; others may be due before then.  Or grace
 * may cover it.
 */
static bool
due_of(const SswPolicy *p, const SswDeadline *c, First *f, TimestampTz *due)
{
	bool		notnull = false;

	/* most often it is the deadline */
	if (strcmp(c->due, c->sort) == 0)
		*due = DatumGetTimestampTz(f->value);
	else if (c->attnum != 0)
		*due = evaluate(p, c->due, 1, &c->attnum, &f->value, &notnull);
	else
	{
		*due = evaluate(p, ssw_grace_row_due(p), 2, c->row_columns, f->row, f->isnull);
		/* it is a time in UTC */
		return *due == DatumGetTimestamp(f->value);
	}
	return true;
}

static Datum
keep_value(Datum value, TupleDesc desc, AttrNumber attnum)
{
	Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);

	return datumCopy(value, att->attbyval, att->attlen);
}

/* The first row that the snapshot sees.  Entries of rows that nobody sees any more are marked, and not read again. */
static void
read_first(Relation leaf, Relation index, const SswDeadline *c, ScanKey keys, int nkeys, Snapshot snapshot, First *f)
{
	IndexScanDesc scan = ssw_index_beginscan(leaf, index, snapshot, nkeys);
	TupleTableSlot *slot = table_slot_create(leaf, NULL);
	ScanDirection direction = (index->rd_indoption[0] & INDOPTION_DESC) ? BackwardScanDirection : ForwardScanDirection;
	bool		isnull;

	memset(f, 0, sizeof(First));
	scan->xs_want_itup = true;
	index_rescan(scan, keys, nkeys, NULL, 0);
	while (!f->found && index_getnext_tid(scan, direction) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		f->found = index_fetch_heap(scan, slot);
		f->entries += !scan->kill_prior_tuple;
	}
	if (f->found)
	{
		f->value = index_getattr(scan->xs_itup, 1, scan->xs_itupdesc, &isnull);
		if (!isnull)
			f->value = keep_value(f->value, scan->xs_itupdesc, 1);
	}
	for (int i = 0; f->found && c->attnum == 0 && i < lengthof(f->row); i++)
	{
		f->row[i] = slot_getattr(slot, c->row_columns[i], &f->isnull[i]);
		if (!f->isnull[i])
			f->row[i] = keep_value(f->row[i], RelationGetDescr(leaf), c->row_columns[i]);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
}

/* With a snapshot of its own, because the round's may be older than a request. */
static void
read_first_now(Relation leaf, Relation index, const SswDeadline *c, ScanKey keys, int nkeys, First *f)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	read_first(leaf, index, c, keys, nkeys, snapshot, f);
	UnregisterSnapshot(snapshot);
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

	if (!ssw_deadline_index_value(c, now, f->found ? &f->value : NULL, &value) || !ssw_lower_bound_set(low, leaf, c, value))
		return false;
	low->horizon = ReadNextTransactionId();
	ssw_lower_bound_keep(w->policy_id, i, low);
	return true;
}

/*
 * The earliest time in one leaf by a deadline, or DT_NOEND.  False: no index says.  Rows that the
 * fuse holds are skipped, and so are index entries below the known lower bound.
 */
static bool
probe_leaf(SswWatch *w, Oid relid, int i, bool alone, TimestampTz now, TimestampTz *due)
{
	const SswPolicy *p = w->policy;
	const SswDeadline *c = &p->deadlines[i];
	Relation	leaf = table_open(relid, AccessShareLock);
	Relation	index = ssw_deadline_index_open(p, leaf, c);
	SnapshotData uncommitted;
	ScanKeyData keys[2];
	SswLowerBound low;
	bool		bounded;
	bool		held;
	bool		known = true;
	int64		above;
	int			nkeys;
	First		f;

	*due = DT_NOEND;
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
	held = i == 0 && w->held_above != 0 && ssw_deadline_index_value(c, w->held_above, NULL, &above);
	if (held)
		low.value = bounded ? Max(low.value, above) : above;
	nkeys = scan_keys(keys, index, c->sort_type, bounded || held ? &low : NULL);

	/* the next bound: rows that are not committed yet must be above it, too */
	InitDirtySnapshot(uncommitted);
	read_first(leaf, index, c, keys, nkeys, &uncommitted, &f);

	/*
	 * a pass with a filter does without: where nothing was analysed, the
	 * planner would think that few rows are between two bounds, and read all
	 */
	if (alone && !held && f.found && !p->filter_unread && ssw_lower_bound_fits(c) && ssw_lower_bound_set(&w->low[i], relid, c, DatumGetInt64(f.value)))
		w->low[i].full_at = now;
	if (alone && !held && f.entries > SSW_LOW_ENTRIES)
	{
		if (!bounded)
			low.full_at = now;
		if (keep_low(w, i, relid, &f, now, &low))
			nkeys = scan_keys(keys, index, c->sort_type, &low);
	}
	if (f.found && TransactionIdIsValid(uncommitted.xmin))
		read_first_now(leaf, index, c, keys, nkeys, &f);
	if (f.found)
		known = due_of(p, c, &f, due);
	index_close(index, AccessShareLock);
	table_close(leaf, NoLock);
	return known;
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
	Relation	index = ssw_deadline_index_open(p, leaf, c);
	ScanKeyData key;
	First		f = {.found = true};

	if (index)
	{
		ScanKeyEntryInitialize(&key, SK_ISNULL | SK_SEARCHNULL, 1, InvalidStrategy, InvalidOid,
							   InvalidOid, InvalidOid, (Datum) 0);
		read_first_now(leaf, index, c, &key, 1, &f);
		index_close(index, AccessShareLock);
	}
	table_close(leaf, NoLock);
	return f.found;
}

/* A row with that deadline: when may it go? */
static void
note_earliest(SswWatch *w, TimestampTz *earliest, TimestampTz due, TimestampTz cutoff, int64 credit, TimestampTz now)
{
	if (due >= DT_NOEND - w->policy->keep_for_us)
		return;
	if (TIMESTAMP_IS_NOBEGIN(due))
		due = now - USECS_PER_DAY;
	due += w->policy->keep_for_us;
	if (due <= now + credit)
		due = Max(due, TIMESTAMP_IS_NOBEGIN(cutoff) ? now + credit : due + credit);

	/* 0 is a time, in the year 2000, but here it means that no row is known */
	if (due == 0)
		due = 1;
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
	bool		alone;

	ssw_grace_cutoffs(p, now, cutoffs);
	leaves = ssw_partition_leaves(p, AccessShareLock, &others);
	alone = list_length(leaves) == 1 && linitial_oid(leaves) == p->relid;
	/* before it is read; nothing is known of parts, or without statistics */
	w->probed_written = SswShared->counts_writes && alone ? ssw_written_count(p->relid) : PG_UINT64_MAX;
	w->unprobed = false;
	enable_timeout_after(STATEMENT_TIMEOUT, SSW_DEADLINE_INDEX_TIMEOUT_MS);
	foreach(lc, leaves)
		for (int i = 0; i < p->ndeadlines && !w->unprobed; i++)
	{
		TimestampTz due;

		TimestampTz arrived = i == 0 ? ssw_arrival_until(p, lfirst_oid(lc)) : 0;
		int64		credit = ssw_grace_credit(p, i, cutoffs[i], now);

		if (!probe_leaf(w, lfirst_oid(lc), i, alone, now, &due))
			w->unprobed = true;
		else if (arrived > now - p->keep_for_us)
			note_earliest(w, &earliest, due, DT_NOBEGIN,
						  Max(credit, TIMESTAMP_IS_NOEND(arrived) ? USECS_PER_SEC : arrived + p->keep_for_us - now), now);
		else
			note_earliest(w, &earliest, due, cutoffs[i], credit, now);
	}
	/* whether the filter lets that row through, a worker must say */
	if (p->filter_unread && earliest != 0 && earliest <= now)
	{
		w->unprobed = true;
		w->earliest = 0;
	}
	known = !w->unprobed;
	w->unprobed = w->unprobed || others != 0;

	/*
	 * of plain policies only the registry's handles such rows; it is one
	 * table
	 */
	if (p->null_predicate && !w->unprobed && has_null(w, p->relid))
		earliest = now;
	if (known && !w->runs && !p->filter_unread)
		ssw_due_count(w, leaves, now);
	disable_timeout(STATEMENT_TIMEOUT, false);
	if (known)
		w->earliest = earliest;
}
