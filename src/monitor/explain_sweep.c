/*
 * explain_sweep.c
 *		explain_sweep(): how a pass finds expired rows, refreshes and ends them.
 *
 * Runs in the session of a caller who may see the policy.  The statements of a
 * pass are planned as the relation's owner and not run; nothing is changed.  What runs
 * instead of them on ranges of rows, around hooks and after failures is not shown.
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "policy/deadline.h"
#include "policy/partition.h"
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
	Oid			leaf;
	const char *phase;
} Output;

static void
put_line(const Output *out, const char *line)
{
	Datum		value = CStringGetTextDatum(line);
	bool		isnull = false;

	tuplestore_putvalues(out->rsinfo->setResult, out->rsinfo->setDesc, &value, &isnull);
}

/* A name in it must not end the comment. */
static void
put_comment(const Output *out, char *text)
{
	for (char *c = text; (c = strpbrk(c, "\r\n")) != NULL;)
		*c = ' ';
	put_line(out, psprintf("-- %s", text));
}

/* A statement and its plan. */
static void
put_statement(const Output *out, const char *what, const char *sql, int nargs, Oid *types, Datum *values, const char *nulls)
{
	put_comment(out, psprintf("%s: %s, %s", out->phase, what, ssw_guard_relation(out->leaf)));
	put_line(out, psprintf("%s;", ssw_guard_plain(sql)));
	ssw_spi_exec(psprintf("EXPLAIN %s", sql), nargs, types, values, nulls, false, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		put_line(out, psprintf("    %s", SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1)));
}

/* A statement on rows given by their places, which a pass plans so that it reads those. */
static void
put_on_rows(const Output *out, const char *what, const char *sql, int nargs, Oid *types, Datum *values)
{
	int			level = ssw_plan_prefer_places();

	put_statement(out, what, sql, nargs, types, values, NULL);
	AtEOXact_GUC(true, level);
}

/* What gives rows with heartbeats a new deadline. */
static void
put_heartbeats(const Output *out, Datum *row)
{
	const SswPolicy *p = out->policy;
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID, TIDARRAYOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZARRAYOID,
	TIMESTAMPTZARRAYOID};
	Datum		times = PointerGetDatum(construct_array(row, 1, TIMESTAMPTZOID, sizeof(TimestampTz), true, TYPALIGN_DOUBLE));
	Datum		values[] = {row[0], row[1], row[2], row[2], times, times, times};

	put_on_rows(out, "read for their heartbeats", ssw_sweep_sql_heartbeats(p, out->leaf, false), 3, types, values);
	put_on_rows(out, "refresh those with heartbeats", ssw_sweep_sql_prolong(p, out->leaf, false), 7, types, values);
}

/* The statements of one phase, on one row where they take rows. */
static void
put_phase(Output *out, SswPhase phase)
{
	static const char *const names[] = {"deadline", "maximum age", "no deadline"};
	const SswPolicy *p = out->policy;
	const SswDeadline *deadline = ssw_sweep_sql_deadline(p, phase);
	bool		repair = deadline == NULL && p->on_null == SSW_NULL_REPAIR;
	bool		asks = ssw_sweep_sql_asks(p, phase);
	int			how = asks ? SSW_ROWS_JUDGED : 0;
	bool		hook_takes_keys;
	ItemPointerData tid;

	/* the plans of a pass outside of grace, which has no cutoff */
	TimestampTz cutoff = out->now - p->keep_for_us;
	Oid			find_types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, deadline ? deadline->sort_type : INT4OID, TIDOID, INT8OID};
	Datum		find_values[] = {TimestampTzGetDatum(cutoff), TimestampTzGetDatum(cutoff), (Datum) 0, (Datum) 0, Int64GetDatum(1000)};
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID};
	Datum		values[] = {find_values[0], find_values[1], (Datum) 0, PointerGetDatum(construct_empty_array(TEXTOID)),
	TimestampTzGetDatum(out->now)};

	ItemPointerSet(&tid, 0, 1);
	values[2] = ssw_action_tid_array(&tid, 1);
	out->phase = names[phase];
	put_statement(out, "find", ssw_sweep_sql_collect(p, out->leaf, phase, SSW_CURSOR_NONE, p->heartbeats && phase == SSW_PHASE_DEADLINE,
													 false, false), 5, find_types, find_values, "  nn ");
	if (asks)
		put_on_rows(out, "ask is_alive", ssw_sweep_sql_check(p, out->leaf, phase), SSW_ROW_PARAMS, types, values);
	if (asks || repair)
		put_on_rows(out, "give a new deadline", ssw_sweep_sql_refresh(p, out->leaf, phase, how), SSW_ROW_PARAMS, types, values);
	if (repair)
		return;
	if (p->heartbeats)
		put_heartbeats(out, values);
	if (OidIsValid(p->on_expire))
	{
		char	   *hook = ssw_sweep_sql_hook(p, out->leaf, &hook_takes_keys);

		put_on_rows(out, "call on_expire", hook, hook_takes_keys ? 4 : 3, types, values);
	}
	if (p->action != SSW_ACTION_CALL)
		put_on_rows(out, p->action == SSW_ACTION_DELETE ? "delete" : "update",
					ssw_sweep_sql_action(p, out->leaf, phase, OidIsValid(p->on_expire) ? 0 : how), SSW_ROW_PARAMS, types, values);
}

static void
put_leaf(Output *out, Oid leaf)
{
	const SswPolicy *p = out->policy;

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
	List	   *leaves;

	ssw_deadline_build(p, rel);
	if (ssw_shmem_available())
		ssw_grace_rows(p);
	leaves = ssw_partition_leaves(p, AccessShareLock, NULL);
	ssw_spi_begin();
	for (int i = 0; i < list_length(leaves) && i < MAX_LEAVES; i++)
		put_leaf(out, list_nth_oid(leaves, i));
	if (leaves == NIL)
		put_comment(out, psprintf("no table of this node has rows of policy \"%s\"", p->name));
	if (list_length(leaves) > MAX_LEAVES)
		put_comment(out, psprintf("and %d more leaves", list_length(leaves) - MAX_LEAVES));
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
				 errhint("%s", ssw_repair_hint_or_resume(p, NULL))));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	out.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ssw_gate(p->owner, p->search_path, put_leaves, &out);
	return (Datum) 0;
}
