/*
 * explain_sweep.c
 *		explain_sweep(): how the dead are found, and what a pass would run.
 *
 * Runs in the session of a caller who may see the policy.  The statements of a
 * pass are planned as the relation's owner and not run; nothing is changed.
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "policy/deadline.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "policy/index.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"
#include "policy/sweep_sql.h"
#include "sweep/row_action.h"

PG_FUNCTION_INFO_V1(ssw_explain_sweep);

/* Leaves whose plans are shown; the others are only counted. */
#define MAX_LEAVES	8

/* What the statements of one phase share, and where the lines of explain_sweep() go. */
typedef struct Output
{
	ReturnSetInfo *rsinfo;
	SswPolicy  *policy;
	TimestampTz now;
	TimestampTz cutoffs[2];
	Oid			leaf;
	SswPhase	phase;
	const SswDeadline *deadline;	/* null: the nulls */
	const char *name;			/* of the phase */
	Oid		   *types;			/* of statements on rows, SSW_ROW_PARAMS */
	Datum	   *values;			/* their values: one row */
	Datum		keys;			/* text[] */
} Output;

static void
put_line(const Output *out, const char *line)
{
	Datum		value = CStringGetTextDatum(line);
	bool		isnull = false;

	tuplestore_putvalues(out->rsinfo->setResult, out->rsinfo->setDesc, &value, &isnull);
}

/* A statement and its plan. */
static void
put_statement(const Output *out, const char *what, const char *sql, int nargs, Oid *types, Datum *values, const char *nulls)
{
	put_line(out, psprintf("-- %s: %s, %s", out->name, what, ssw_stmt_relation(out->leaf)));
	put_line(out, psprintf("%s;", ssw_guard_plain(sql)));
	ssw_spi_exec(psprintf("EXPLAIN %s", sql), nargs, types, values, nulls, false, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		put_line(out, psprintf("    %s", SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1)));
}

/* One that a pass plans so that it reads the places it is given. */
static void
put_by_place(const Output *out, const char *what, const char *sql, int nargs, Oid *types, Datum *values)
{
	int			level = ssw_plan_prefer_places();

	put_statement(out, what, sql, nargs, types, values, NULL);
	AtEOXact_GUC(true, level);
}

/* One on rows given by their places. */
static void
put_on_rows(const Output *out, const char *what, const char *sql)
{
	put_statement(out, what, sql, SSW_ROW_PARAMS, out->types, out->values, NULL);
}

/* Can all dead rows between two deadlines go at once?  As ssw_collect() decides. */
static bool
has_ranges(const Output *out)
{
	const SswPolicy *p = out->policy;
	Relation	rel;
	bool		has;

	if (out->deadline == NULL || p->action != SSW_ACTION_DELETE || OidIsValid(p->on_expire) || p->heartbeats ||
		ssw_stmt_asks(p, out->phase))
		return false;
	rel = table_open(out->leaf, AccessShareLock);
	has = (rel->trigdesc == NULL || !rel->trigdesc->trig_delete_before_row) &&
		OidIsValid(ssw_index_find_own(rel, out->deadline->sort, p->filter));
	table_close(rel, NoLock);
	return has;
}

/* The statements on ranges; the one shown is empty, and ends at the cutoff. */
static void
put_ranges(const Output *out, Oid *collect, Datum *limits)
{
	const SswPolicy *p = out->policy;
	SswTarget	t = {.policy = p,.leaf = out->leaf,.phase = out->phase,.cutoff = DatumGetTimestampTz(out->values[0]),
	.full_cutoff = DatumGetTimestampTz(out->values[1])};
	SswRange	r = {.type = out->deadline->sort_type,.has_low = true,.has_blocks = true};
	Oid			types[6];
	Datum		values[6];
	bool		isnull;

	ssw_spi_exec(psprintf("SELECT %s", out->deadline->bound), 1, out->types, out->values, NULL, true, 1);
	r.low = r.high = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	ItemPointerSet(&r.from, 0, 0);
	ItemPointerSet(&r.to, 1, 0);
	(void) ssw_action_range_params(&t, &r, types, values);
	put_statement(out, "find where a range ends", ssw_stmt_edge(p, out->leaf, out->phase, SSW_CURSOR_NONE), 5, collect, limits, "  nn ");
	put_statement(out, "delete a range", ssw_stmt_delete_range(p, out->leaf, out->phase, true, false), 4, types, values, NULL);
	put_by_place(out, "delete a range block by block",
				 ssw_stmt_delete_range(p, out->leaf, out->phase, true, true), 6, types, values);
	put_statement(out, "after a failure, read a range",
				  ssw_stmt_range(p, out->leaf, out->phase, true, false), 4, types, values, NULL);
}

/* How the dead are found. */
static void
put_find(const Output *out)
{
	const SswPolicy *p = out->policy;
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, out->deadline ? out->deadline->sort_type : INT4OID, TIDOID, INT8OID};
	Datum		values[] = {out->values[0], out->values[1], (Datum) 0, (Datum) 0, Int64GetDatum(1000)};
	bool		heartbeats = p->heartbeats && out->phase == SSW_PHASE_DEADLINE;

	put_statement(out, "find", ssw_stmt_collect(p, out->leaf, out->phase, SSW_CURSOR_NONE, heartbeats, SSW_ORDER_TIES, false),
				  5, types, values, "  nn ");
	if (has_ranges(out))
		put_ranges(out, types, values);
}

/* What keeps rows alive: heartbeats, is_alive, and the repair of null deadlines. */
static void
put_life(const Output *out, bool repair, int how)
{
	const SswPolicy *p = out->policy;
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID, TIDARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID,
	TIMESTAMPTZARRAYOID};
	Datum		times = PointerGetDatum(construct_array(out->values, 1, TIMESTAMPTZOID, sizeof(TimestampTz), true, TYPALIGN_DOUBLE));
	Datum		values[] = {out->values[0], out->values[1], out->values[2], out->values[2], times, times, times};

	if (ssw_stmt_asks(p, out->phase))
		put_on_rows(out, "ask is_alive", ssw_stmt_check(p, out->leaf, out->phase));
	if (repair || ssw_stmt_asks(p, out->phase))
		put_on_rows(out, "give a new deadline", ssw_stmt_refresh(p, out->leaf, out->phase, how));
	if (!p->heartbeats || repair)
		return;
	put_by_place(out, "read for their heartbeats", ssw_stmt_heartbeats(p, out->leaf, false), 3, types, values);
	put_by_place(out, "refresh those with heartbeats", ssw_stmt_prolong(p, out->leaf, false), 7, types, values);
}

/* The hook, and what surrounds it. */
static void
put_hook(const Output *out, int how)
{
	const SswPolicy *p = out->policy;
	bool		by_keys;
	char	   *sql = ssw_stmt_hook(p, out->leaf, &by_keys);
	Oid		   *types = palloc((p->nkeys + SSW_ROW_PARAMS) * sizeof(Oid));
	Datum	   *values = palloc((p->nkeys + SSW_ROW_PARAMS) * sizeof(Datum));

	memcpy(types, out->types, 3 * sizeof(Oid));
	memcpy(values, out->values, 3 * sizeof(Datum));
	for (int i = 3; i < p->nkeys + SSW_ROW_PARAMS; i++)
	{
		types[i] = TEXTARRAYOID;
		values[i] = out->keys;
	}
	put_on_rows(out, "lock for on_expire", ssw_stmt_lock(p, out->leaf, out->phase, how));
	put_statement(out, "call on_expire", sql, by_keys ? 4 : 3, types, values, NULL);
	put_statement(out, "find the rows again", ssw_stmt_find(p, out->leaf), 3 + p->nkeys, types, values, NULL);
	if (p->action == SSW_ACTION_CALL)
		put_on_rows(out, "look for rows left dead", ssw_stmt_left_dead(p, out->leaf, out->phase));
}

/* The statements of one phase, on one row where they take rows. */
static void
put_phase(Output *out, SswPhase phase)
{
	static const char *const names[] = {"deadline", "maximum age", "no deadline"};
	const SswPolicy *p = out->policy;
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID};
	Datum		values[SSW_ROW_PARAMS];
	ItemPointerData tid;
	int			how = ssw_stmt_asks(p, phase) ? SSW_ROWS_JUDGED : 0;
	bool		repair;

	ItemPointerSet(&tid, 0, 1);
	out->phase = phase;
	out->name = names[phase];
	out->deadline = ssw_stmt_deadline(p, phase);
	out->keys = PointerGetDatum(construct_empty_array(TEXTOID));
	values[0] = TimestampTzGetDatum(out->deadline ? out->cutoffs[phase] : out->now);
	values[1] = TimestampTzGetDatum(out->now - p->keep_for_us);
	values[2] = ssw_action_tid_array(&tid, 1);
	values[3] = out->keys;
	values[4] = TimestampTzGetDatum(out->now);
	out->types = types;
	out->values = values;
	repair = out->deadline == NULL && p->on_null == SSW_NULL_REPAIR;
	put_find(out);
	put_life(out, repair, how);
	if (!repair && OidIsValid(p->on_expire))
		put_hook(out, how);
	if (!repair && p->action != SSW_ACTION_CALL)
		put_on_rows(out, p->action == SSW_ACTION_DELETE ? "delete" : "update",
					ssw_stmt_action(p, out->leaf, phase, OidIsValid(p->on_expire) ? 0 : how));
	put_on_rows(out, "after a failure, read rows that stayed", ssw_stmt_missing(p, out->leaf, phase, how));
	put_on_rows(out, "after a failure, read rows that moved", ssw_stmt_moved(p, out->leaf, phase));
	put_on_rows(out, "after a failure, read other rows", ssw_stmt_witnesses(p, out->leaf, phase, 0));
}

static void
put_leaf(Output *out, Oid leaf)
{
	const SswPolicy *p = out->policy;

	if (get_rel_relkind(leaf) != RELKIND_RELATION || get_rel_persistence(leaf) == RELPERSISTENCE_TEMP)
		return;
	if (ssw_relation_owner(leaf) != p->owner)
	{
		put_line(out, psprintf("-- %s is not swept: it does not belong to \"%s\"",
							   ssw_stmt_relation(leaf), p->owner_name));
		return;
	}
	out->leaf = leaf;
	for (int i = 0; i < p->ndeadlines; i++)
		put_phase(out, SSW_PHASE_DEADLINE + i);
	if (p->null_predicate)
		put_phase(out, SSW_PHASE_NULLS);
}

static void
put_leaves(void *arg)
{
	Output	   *out = arg;
	SswPolicy  *p = out->policy;
	Relation	rel = relation_open(p->relid, NoLock);
	int			shown = 0;
	ListCell   *lc;

	ssw_deadline_build(p, rel);
	if (ssw_shmem_available())
		ssw_grace_rows(p);
	ssw_spi_begin();
	foreach(lc, find_all_inheritors(p->relid, AccessShareLock, NULL))
		if (shown++ < MAX_LEAVES)
		put_leaf(out, lfirst_oid(lc));
	if (shown > MAX_LEAVES)
		put_line(out, psprintf("-- and %d more leaves", shown - MAX_LEAVES));
	ssw_spi_end();
	relation_close(rel, NoLock);
}

/* explain_sweep(policy): the statements of a pass and their plans. */
Datum
ssw_explain_sweep(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = ssw_rights_policy(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), SSW_RIGHT_SEE);
	Output		out = {.now = GetCurrentTimestamp()};
	char	   *unusable;

	/* from here on the table does not change hands */
	if (!ssw_policy_is_foreign(p))
		LockRelationOid(p->relid, AccessShareLock);
	out.policy = p = ssw_policy_present(p);
	unusable = ssw_policy_unusable(p);
	if (unusable)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot explain policy \"%s\": %s", p->name, unusable),
				 errhint("%s", ssw_repair_hint_or_resume(p))));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	out.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	/* the plans of a pass outside of grace, which has no cutoff */
	out.cutoffs[0] = out.cutoffs[1] = out.now - p->keep_for_us;
	ssw_gate(p->owner, p->search_path, put_leaves, &out);
	return (Datum) 0;
}
