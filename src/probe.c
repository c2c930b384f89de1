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
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "action.h"
#include "grace.h"
#include "partition.h"
#include "pass.h"
#include "sql.h"
#include "watch.h"

/*
 * Two probes in a row slower than this, and the next ones begin at a lower bound, for
 * so many times what the second took: who writes a deadline that has passed waits
 * for it, or asks.  The first one alone may have met entries that nobody will meet again.
 */
#define SLOW_PROBE_US		1000
#define SLOW_PROBE_PART		100
#define FULL_PROBE_US		(60 * USECS_PER_SEC)
/* Dead index entries must not hang the coordinator. */
#define PROBE_TIMEOUT_MS	2000

/* Is this a btree in the order of that column, of all rows or of those of the filter? */
static bool
index_serves(const SswPolicy *p, Relation index, AttrNumber attnum, Oid type)
{
	Form_pg_index form = index->rd_index;

	return form->indisvalid && form->indisready && form->indislive && index->rd_rel->relam == BTREE_AM_OID &&
		form->indkey.values[0] == attnum &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) == !p->filter_indexed &&
		index->rd_opfamily[0] == lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY)->btree_opf;
}

/* Such an index, opened, or null. */
static Relation
find_index(const SswPolicy *p, Relation leaf, AttrNumber attnum, Oid type)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(leaf))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (index_serves(p, index, attnum, type))
			return index;
		index_close(index, AccessShareLock);
	}
	return NULL;
}

/* Keys of the scan: not null, and perhaps not below a bound. */
static int
scan_keys(ScanKey keys, Relation index, AttrNumber attnum, Oid type, const char *low)
{
	Oid			op = get_opfamily_member(index->rd_opfamily[0], type, type, BTGreaterEqualStrategyNumber);
	Oid			input,
				ioparam;

	ScanKeyEntryInitialize(&keys[0], SK_ISNULL | SK_SEARCHNOTNULL, attnum, InvalidStrategy, InvalidOid,
						   InvalidOid, InvalidOid, (Datum) 0);
	if (low == NULL)
		return 1;
	getTypeInputInfo(type, &input, &ioparam);
	ScanKeyEntryInitialize(&keys[1], 0, attnum, BTGreaterEqualStrategyNumber, type, InvalidOid, get_opcode(op),
						   OidInputFunctionCall(input, unconstify(char *, low), ioparam, -1));
	return 2;
}

/* The deadline of a row with this value in the clock's column, and the value as text. */
static TimestampTz
due_of(const SswPolicy *p, const SswClock *c, Datum value, char *first)
{
	Oid			type = c->sort_type;
	char	   *sql = psprintf("SELECT %s, (%s)::pg_catalog.text FROM (SELECT $1) AS t (%s)", c->due, c->sort,
							   quote_identifier(get_attname(p->relid, c->attnum, false)));
	bool		isnull;
	Datum		due;
	char	   *text;

	ssw_plan_execute(sql, 1, &type, &value, NULL, true);
	due = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	text = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2);

	if (text &&strlen(text) < SSW_CURSOR_LEN)
		strlcpy(first, text, SSW_CURSOR_LEN);
	return isnull ? 0 : DatumGetTimestampTz(due);
}

/*
 * The earliest deadline of one leaf and clock, or 0; with a snapshot of its own,
 * because the round's may be older than a request.  False: no index says.
 */
static bool
probe_leaf(SswWatch *w, Oid relid, int i, bool low, char *first, TimestampTz *due)
{
	const SswPolicy *p = w->policy;
	const SswClock *c = &p->clock[i];
	Relation	leaf = table_open(relid, AccessShareLock);
	AttrNumber	attnum = get_attnum(relid, get_attname(p->relid, c->attnum, false));
	Relation	index = find_index(p, leaf, attnum, c->sort_type);
	ScanKeyData keys[2];
	Snapshot	snapshot;
	SysScanDesc scan;
	HeapTuple	tup;
	bool		isnull;

	*due = 0;
	if (index == NULL)
	{
		table_close(leaf, NoLock);
		return false;
	}
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan_ordered(leaf, index, snapshot,
									  scan_keys(keys, index, attnum, c->sort_type, low ? w->low[i] : NULL), keys);
	tup = systable_getnext_ordered(scan, (index->rd_indoption[0] & INDOPTION_DESC) ?
								   BackwardScanDirection : ForwardScanDirection);
	if (HeapTupleIsValid(tup))
	{
		Datum		value = heap_getattr(tup, attnum, RelationGetDescr(leaf), &isnull);

		*due = due_of(p, c, value, first);
	}
	systable_endscan_ordered(scan);
	UnregisterSnapshot(snapshot);
	index_close(index, AccessShareLock);
	table_close(leaf, NoLock);
	return true;
}

/* Is there a row of the first clock without a deadline? */
static bool
has_null(SswWatch *w, Oid relid)
{
	const SswPolicy *p = w->policy;
	AttrNumber	attnum = p->clock[0].attnum;
	Relation	leaf = table_open(relid, AccessShareLock);
	Relation	index = find_index(p, leaf, attnum, p->clock[0].sort_type);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	ScanKeyEntryInitialize(&key, SK_ISNULL | SK_SEARCHNULL, attnum, InvalidStrategy, InvalidOid,
						   InvalidOid, InvalidOid, (Datum) 0);
	scan = systable_beginscan_ordered(leaf, index, snapshot, 1, &key);
	found = HeapTupleIsValid(systable_getnext_ordered(scan, ForwardScanDirection));
	systable_endscan_ordered(scan);
	UnregisterSnapshot(snapshot);
	index_close(index, AccessShareLock);
	table_close(leaf, NoLock);
	return found;
}

/* A row with that deadline: when may it go? */
static void
note(SswWatch *w, TimestampTz *earliest, TimestampTz due, TimestampTz cutoff, int64 credit, TimestampTz now)
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
 * Where the next probes may begin: no row is before the first, and who writes one gives
 * it a deadline that has not passed.
 */
static void
keep_low(SswWatch *w, int i, const char *first, TimestampTz now)
{
	const SswClock *c = &w->policy->clock[i];
	Oid			types[] = {TIMESTAMPTZOID, c->sort_type};
	Datum		values[] = {TimestampTzGetDatum(now), (Datum) 0};
	char		nulls[] = {' ', first[0] ? ' ' : 'n', '\0'};
	Oid			input,
				ioparam;
	char	   *text;

	getTypeInputInfo(c->sort_type, &input, &ioparam);
	if (first[0])
		values[1] = OidInputFunctionCall(input, unconstify(char *, first), ioparam, -1);
	ssw_sql_exec(psprintf("SELECT LEAST($2, %s)::pg_catalog.text", c->bound), 2, types, values, nulls, true, 1);
	text = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);

	strlcpy(w->low[i], text &&strlen(text) < SSW_CURSOR_LEN ? text : "", SSW_CURSOR_LEN);
}

/*
 * Find the earliest time at which a row of a plain policy is due; w->earliest is 0
 * when it has no rows.  One index probe a leaf and clock; without an index a worker
 * must look (w->unprobed).  Of what cannot be looked at, what was known stays known.
 */
void
ssw_probe(SswWatch *w, TimestampTz now)
{
	SswPolicy  *p = w->policy;
	bool		low = w->slow_probes > 1 && GetCurrentTimestamp() < w->low_until;
	List	   *leaves;
	ListCell   *lc;
	TimestampTz start = GetCurrentTimestamp();
	TimestampTz cutoffs[2];
	char		first[2][SSW_CURSOR_LEN] = {"", ""};
	uint32		others;
	TimestampTz earliest = 0;
	bool		known;

	ssw_grace_cutoffs(p, now, cutoffs);
	leaves = ssw_partition_free_leaves(p, AccessShareLock, &others);
	w->unprobed = false;
	enable_timeout_after(STATEMENT_TIMEOUT, PROBE_TIMEOUT_MS);
	ssw_sql_begin();
	if (w->held_above != 0 && !low)
		keep_low(w, 0, "", w->held_above);
	foreach(lc, leaves)
		for (int i = 0; i < p->nclocks && !w->unprobed; i++)
	{
		TimestampTz due;

		if (probe_leaf(w, lfirst_oid(lc), i, (low || (w->held_above != 0 && i == 0)) && w->low[i][0], first[i], &due))
			note(w, &earliest, due, cutoffs[i], ssw_grace_credit(p, i, cutoffs[i], now), now);
		else
			w->unprobed = true;
	}
	known = !w->unprobed;
	w->unprobed = w->unprobed || others != 0;
	/* of plain policies the registry's alone minds such rows; it is one table */
	if (p->null_predicate && !w->unprobed && has_null(w, p->relid))
		earliest = now;
	if (!low)
	{
		TimestampTz end = GetCurrentTimestamp();

		w->slow_probes = list_length(leaves) == 1 && end - start > SLOW_PROBE_US ? w->slow_probes + 1 : 0;
		w->low_until = end + Min(FULL_PROBE_US, (end - start) * SLOW_PROBE_PART);
		for (int i = 0; i < p->nclocks && w->slow_probes > 0; i++)
			keep_low(w, i, first[i], start);
	}
	ssw_sql_end();
	disable_timeout(STATEMENT_TIMEOUT, false);
	if (known)
		w->earliest = earliest;
}
