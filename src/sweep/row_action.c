/*
 * row_action.c
 *		The row action on a set of rows, inside a transaction.
 *
 * Runs in a worker or in a session that calls expire(), as the relation's
 * owner, within an SPI connection that the caller opened.  Shares nothing; a crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/error_class.h"
#include "base/spi.h"
#include "policy/partition.h"
#include "policy/sweep_sql.h"
#include "sweep/row_action.h"

/* tid[] of the rows, in CurrentMemoryContext. */
Datum
ssw_action_tid_array(const ItemPointerData *tids, int n)
{
	Datum	   *d = palloc(Max(n, 1) * sizeof(Datum));
	ArrayType  *a;

	for (int i = 0; i < n; i++)
		d[i] = PointerGetDatum(&tids[i]);
	a = construct_array(d, n, TIDOID, sizeof(ItemPointerData), false, TYPALIGN_SHORT);
	pfree(d);
	return PointerGetDatum(a);
}

/* A row that our own statement has read: ctid, key, deadline. */
SswRow
ssw_action_read_row(const SPITupleTable *rows, uint64 i)
{
	bool		isnull;
	SswRow		row;
	Datum		due = SPI_getbinval(rows->vals[i], rows->tupdesc, 3, &isnull);

	row.has_due = !isnull;
	row.due = isnull ? 0 : DatumGetTimestampTz(due);
	row.key = SPI_getvalue(rows->vals[i], rows->tupdesc, 2);
	row.tid = *(ItemPointer) DatumGetPointer(SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull));
	return row;
}

/* The owner's rules may have come after the registration, or with a hook. */
static void
check_rules(const SswPolicy *p, Oid leaf)
{
	Relation	rel = table_open(leaf, NoLock);

	ssw_partition_check_rules(p, rel);
	table_close(rel, NoLock);
}

/*
 * Lock a leaf for a batch and make sure that it is still the policy's: a part of
 * its relation, and an ordinary table of its owner, whose rows are its own.  Returns
 * its file: in another one rows have other places.
 */
Oid
ssw_action_lock_leaf(const SswPolicy *p, Oid leaf, LOCKMODE mode)
{
	HeapTuple	tup;
	Form_pg_class c;
	Oid			file;

	LockRelationOid(leaf, mode);
	tup = SearchSysCache1(RELOID, ObjectIdGetDatum(leaf));
	if (!HeapTupleIsValid(tup))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u of policy \"%s\" does not exist", leaf, p->name)));
	c = (Form_pg_class) GETSTRUCT(tup);
	if (c->relowner != p->owner)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("relation \"%s\" does not belong to the owner of policy \"%s\"",
						NameStr(c->relname), p->name),
				 errhint("Give it to role \"%s\", or confirm the new owner with sweeper.resume(%s).",
						 p->owner_name, quote_literal_cstr(p->name))));
	if (c->relkind != RELKIND_RELATION && c->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" of policy \"%s\" is not a table",
						NameStr(c->relname), p->name)));
	if (leaf != p->relid && !ssw_partition_is_below(leaf, p->relid))
		ereport(ERROR,
				(ssw_error_ours(ERRCODE_SSW_LEFT),
				 errmsg("relation \"%s\" is no longer a partition or child of the table of policy \"%s\"",
						NameStr(c->relname), p->name)));
	if (!p->allow_replicated && ssw_partition_is_subscribed(leaf))
		ereport(ERROR,
				(ssw_error_ours(ERRCODE_SSW_LEFT),
				 errmsg("relation \"%s\" of policy \"%s\" is the target of a subscription",
						NameStr(c->relname), p->name),
				 errhint("Sweep it on the publisher, or SELECT sweeper.alter_policy(%s, allow_replicated => true);",
						 quote_literal_cstr(p->name))));
	if (c->relhasrules)
		check_rules(p, leaf);
	file = c->relfilenode;
	ReleaseSysCache(tup);
	return file;
}

/* Which rows a statement takes; see sweep_sql.h. */
int
ssw_action_rows(const SswTarget *t)
{
	return (t->skip_locked ? SSW_ROWS_SKIP_LOCKED : 0) | (t->judged != (Datum) 0 ? SSW_ROWS_JUDGED : 0);
}

static void
row_params(const SswTarget *t, Datum tids, Oid *types, Datum *values)
{
	types[0] = types[1] = types[4] = TIMESTAMPTZOID;
	types[2] = TIDARRAYOID;
	types[3] = TEXTARRAYOID;
	values[0] = TimestampTzGetDatum(t->cutoff);
	values[1] = TimestampTzGetDatum(t->full_cutoff);
	values[2] = tids;
	values[3] = t->judged;
	values[4] = TimestampTzGetDatum(GetCurrentTimestamp());
}

/* Run a statement on rows given by their tids; with by_place, it reads these places only.  See SPI_tuptable, unless there is dest. */
uint64
ssw_action_execute(const SswTarget *t, const char *sql, Datum tids, bool by_place, DestReceiver *dest)
{
	Oid			types[SSW_ROW_PARAMS];
	Datum		values[SSW_ROW_PARAMS];

	row_params(t, tids, types, values);
	if (by_place)
		ssw_plan_by_place(sql, SSW_ROW_PARAMS, types);
	return ssw_plan_execute(sql, SSW_ROW_PARAMS, types, values, dest, false);
}

/* Rows that a hook works on: their tids and texts, one array a column. */
typedef struct LockedRows
{
	int			n;
	Datum		tids;			/* tid[] */
	Datum		keys;			/* text[] */
	Datum	   *columns;		/* text[] for each key column */
} LockedRows;

/* A column of the n rows of SPI_tuptable, as an array. */
Datum
ssw_action_column(Oid type, int n, int col)
{
	Datum	   *d = palloc(Max(n, 1) * sizeof(Datum));
	int16		len;
	bool		byval;
	char		align;

	get_typlenbyvalalign(type, &len, &byval, &align);
	for (int i = 0; i < n; i++)
		d[i] = ssw_spi_column(i, col);
	return PointerGetDatum(construct_array(d, n, type, len, byval, align));
}

/* Lock the dead rows; for call, hand what is known of them to the sink. */
static LockedRows *
lock_rows(const SswTarget *t, Datum tids, SswSink *sink)
{
	const SswPolicy *p = t->policy;
	LockedRows *l = palloc0(sizeof(LockedRows));

	l->n = ssw_action_execute(t, ssw_sweep_sql_lock(p, t->leaf, t->phase, ssw_action_rows(t)), tids, false, NULL);
	l->tids = ssw_action_column(TIDOID, l->n, SSW_R_CTID);
	l->keys = ssw_action_column(TEXTOID, l->n, SSW_R_RAW_KEY);
	l->columns = palloc0(Max(p->nkeys, 1) * sizeof(Datum));
	for (int k = 0; k < p->nkeys; k++)
		l->columns[k] = ssw_action_column(TEXTOID, l->n, SSW_R_KEY_COLUMN + k);
	if (p->action == SSW_ACTION_CALL)
	{
		DestReceiver *dest = ssw_cleanup_event_receiver(sink);
		TupleTableSlot *slot = MakeSingleTupleTableSlot(SPI_tuptable->tupdesc, &TTSOpsHeapTuple);

		for (int i = 0; i < l->n; i++)
		{
			ExecStoreHeapTuple(SPI_tuptable->vals[i], slot, false);
			dest->receiveSlot(slot, dest);
		}
		ExecDropSingleTupleTableSlot(slot);
	}
	return l;
}

/* An end that is neither taken by the action nor in the evidence would be no end. */
static void
took_rows(const SswPolicy *p)
{
	ereport(ERROR,
			(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
			 errmsg("on_expire of policy \"%s\" deleted a row, or changed its key or its partition", p->name),
			 errdetail("The row action runs after on_expire, and did not find it."),
			 errhint("Leave the row to the action, or make on_expire the whole action: SELECT sweeper.alter_policy(%s, action => 'call');",
					 quote_literal_cstr(p->name))));
}

/* Call the hook for the locked rows; the result is where those rows are now. */
static Datum
call_hook(const SswTarget *t, LockedRows *l)
{
	const SswPolicy *p = t->policy;
	Oid		   *types = palloc((p->nkeys + SSW_ROW_PARAMS) * sizeof(Oid));
	Datum	   *values = palloc((p->nkeys + SSW_ROW_PARAMS) * sizeof(Datum));
	bool		by_keys;
	char	   *sql = ssw_sweep_sql_hook(p, t->leaf, &by_keys);
	uint64		n;

	row_params(t, l->tids, types, values);
	values[3] = l->keys;
	ssw_plan_execute(sql, by_keys ? 4 : 3, types, values, NULL, false);
	for (int k = 0; k < p->nkeys; k++)
		if (get_attnum(t->leaf, p->key[k]) == InvalidAttrNumber)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("on_expire of policy \"%s\" dropped or renamed key column \"%s\"", p->name, p->key[k])));
	for (int k = 0; k < p->nkeys; k++)
	{
		types[3 + k] = TEXTARRAYOID;
		values[3 + k] = l->columns[k];
	}
	n = ssw_plan_execute(ssw_sweep_sql_find(p, t->leaf), 3 + p->nkeys, types, values, NULL, false);
	if (n < l->n && p->action != SSW_ACTION_CALL)
		took_rows(p);
	return ssw_action_column(TIDOID, n, 1);
}

static void
left_dead(const SswPolicy *p)
{
	ereport(ERROR,
			(errcode(ERRCODE_SSW_ACTION_LEFT_ROW_DEAD),
			 errmsg("action of policy \"%s\" left a row dead", p->name),
			 errdetail("The row still matches the policy's deadline and filter after the action."),
			 errhint("Make the action change the deadline, or give the policy a filter that excludes rows already handled.")));
}

/* Did any of the rows stay dead?  Then the action would be repeated forever. */
static void
check_not_dead(const SswTarget *t, Datum tids)
{
	if (ssw_action_execute(t, ssw_sweep_sql_left_dead(t->policy, t->leaf, t->phase), tids, false, NULL) > 0)
		left_dead(t->policy);
}

void
ssw_action_block_params(const SswTarget *t, const SswBlocks *b, Oid *types, Datum *values)
{
	types[0] = types[1] = TIMESTAMPTZOID;
	types[2] = b->type;
	types[3] = types[4] = types[5] = TIDOID;
	values[0] = TimestampTzGetDatum(t->cutoff);
	values[1] = TimestampTzGetDatum(t->full_cutoff);
	values[2] = b->deadline;
	values[3] = PointerGetDatum(&b->tid);
	values[4] = PointerGetDatum(&b->from);
	values[5] = PointerGetDatum(&b->to);
}

/* Delete all dead rows of the blocks. */
static uint64
delete_blocks(const SswTarget *t, SswSink *sink)
{
	Oid			types[SSW_BLOCK_PARAMS];
	Datum		values[SSW_BLOCK_PARAMS];
	char	   *sql = ssw_sweep_sql_delete_blocks(t->policy, t->leaf, t->phase, t->blocks->cursor);

	ssw_action_block_params(t, t->blocks, types, values);
	ssw_plan_by_place(sql, SSW_BLOCK_PARAMS, types);
	return ssw_plan_execute(sql, SSW_BLOCK_PARAMS, types, values, ssw_cleanup_event_receiver(sink), false);
}

/*
 * Give the dead rows a new deadline.  A row that is still dead, because of a
 * trigger or a time to live that is null, would be given another one in each pass.
 */
static uint64
refresh_rows(const SswTarget *t, Datum tids)
{
	const SswPolicy *p = t->policy;
	uint64		n = ssw_action_execute(t, ssw_sweep_sql_refresh(p, t->leaf, t->phase, ssw_action_rows(t)), tids, false, NULL);
	bool		isnull;

	for (uint64 i = 0; i < n; i++)
		if (DatumGetBool(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull)))
			ereport(ERROR,
					(errcode(ERRCODE_SSW_ACTION_LEFT_ROW_DEAD),
					 errmsg("policy \"%s\" could not give a row a new deadline", p->name),
					 errdetail("The row is still past its deadline after the update."),
					 errhint("Look for a trigger that changes the deadline, or for a null in ttl_column.")));
	return n;
}

/*
 * End, or refresh, those of the rows that are still dead; returns how many it
 * acted on and adds them to the sink.  Throws what the owner's code throws.
 */
uint64
ssw_action_run(const SswTarget *t, const ItemPointerData *tids, int n, SswSink *sink)
{
	const SswPolicy *p = t->policy;
	Datum		rows;
	int			how = ssw_action_rows(t);
	uint64		acted;

	if (t->blocks)
		return delete_blocks(t, sink);
	rows = ssw_action_tid_array(tids, n);
	if (t->refresh)
		return refresh_rows(t, rows);
	if (OidIsValid(p->on_expire))
	{
		LockedRows *l = lock_rows(t, rows, sink);

		if (l->n == 0)
			return 0;
		rows = call_hook(t, l);
		check_rules(p, t->leaf);
		how &= ~SSW_ROWS_JUDGED;	/* they are locked, and the hook may have
									 * changed them */
		if (p->action == SSW_ACTION_CALL)
		{
			if (t->phase != SSW_PHASE_MANUAL)
				check_not_dead(t, rows);
			return l->n;
		}
	}
	/* by place: many rows of the registry may be due that the fuse holds */
	acted = ssw_action_execute(t, ssw_sweep_sql_action(p, t->leaf, t->phase, how), rows, p->registry, ssw_cleanup_event_receiver(sink));
	if (ssw_cleanup_event_still_dead(sink))
		left_dead(p);
	return acted;
}
