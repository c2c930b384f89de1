/*
 * explainsweep.c
 *		explain_sweep(): how the dead are found, and what a pass would run.
 *
 * Runs in the session of a caller who may see the policy.  The statements of a
 * pass are planned as the relation's owner and not run; nothing is changed.
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "action.h"
#include "grace.h"
#include "identity.h"
#include "mend.h"
#include "pass.h"
#include "rights.h"
#include "shmem.h"
#include "sql.h"
#include "stmt.h"

PG_FUNCTION_INFO_V1(ssw_explain_sweep);

/* Leaves whose plans are shown; the others are only counted. */
#define MAX_LEAVES	8

/* Where the lines of explain_sweep() go, and the parameters of statements. */
typedef struct Output
{
	ReturnSetInfo *rsinfo;
	const SswPolicy *policy;
	TimestampTz now;
	TimestampTz cutoffs[2];
} Output;

static void
put_line(Output *out, const char *line)
{
	Datum		value = CStringGetTextDatum(line);
	bool		isnull = false;

	tuplestore_putvalues(out->rsinfo->setResult, out->rsinfo->setDesc, &value, &isnull);
}

/* A statement and its plan. */
static void
put_statement(Output *out, const char *what, Oid leaf, const char *sql, int nargs, Oid *types,
			  Datum *values, const char *nulls)
{
	put_line(out, psprintf("-- %s, %s", what, ssw_stmt_relation(leaf)));
	put_line(out, psprintf("%s;", sql));
	ssw_sql_exec(psprintf("EXPLAIN %s", sql), nargs, types, values, nulls, false, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		put_line(out, psprintf("    %s", SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1)));
}

/* The statements of one phase, on one row where they take rows. */
static void
put_phase(Output *out, Oid leaf, SswPhase phase)
{
	static const char *const names[] = {"deadline", "maximum age", "no deadline"};
	const SswPolicy *p = out->policy;
	const SswClock *c = ssw_stmt_clock(p, phase);
	const char *name = names[phase];
	ItemPointerData tid;
	Oid			collect[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, c ? c->sort_type : INT4OID, TIDOID, INT8OID};
	Oid			act[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID};
	Datum		values[5] = {0};
	int			how = ssw_stmt_asks(p, phase) ? SSW_ROWS_JUDGED : 0;
	bool		by_keys;

	ItemPointerSet(&tid, 0, 1);
	values[0] = TimestampTzGetDatum(c ? out->cutoffs[phase] : out->now);
	values[1] = TimestampTzGetDatum(out->now - out->policy->keep_for_us);
	values[4] = Int64GetDatum(1000);
	put_statement(out, psprintf("%s: find", name), leaf,
				  ssw_stmt_collect(p, leaf, phase, SSW_CURSOR_NONE, false, SSW_ORDER_TIES, false), 5, collect, values, "  nn ");
	values[2] = ssw_action_tid_array(&tid, 1);
	values[3] = PointerGetDatum(construct_empty_array(TEXTOID));
	values[4] = TimestampTzGetDatum(out->now);
	if (ssw_stmt_asks(p, phase))
		put_statement(out, psprintf("%s: ask is_alive", name), leaf,
					  ssw_stmt_check(p, leaf, phase), 3, act, values, "   ");
	if (p->repair_set && (ssw_stmt_asks(p, phase) || (!c && p->on_null == SSW_NULL_REPAIR)))
		put_statement(out, psprintf("%s: give a new deadline", name), leaf,
					  ssw_stmt_refresh(p, leaf, phase, how), SSW_ROW_PARAMS, act, values, NULL);
	if (!c && p->on_null == SSW_NULL_REPAIR)
		return;
	if (OidIsValid(p->on_expire))
	{
		char	   *hook = ssw_stmt_hook(p, leaf, &by_keys);

		put_statement(out, psprintf("%s: lock for on_expire", name), leaf,
					  ssw_stmt_lock(p, leaf, phase, how), SSW_ROW_PARAMS, act, values, NULL);
		put_statement(out, psprintf("%s: call on_expire", name), leaf, hook,
					  by_keys ? 4 : 3, act, values, "    ");
		how = 0;
	}
	if (p->action != SSW_ACTION_CALL)
		put_statement(out, psprintf("%s: %s", name, p->action == SSW_ACTION_DELETE ? "delete" : "update"),
					  leaf, ssw_stmt_action(p, leaf, phase, how), SSW_ROW_PARAMS, act, values, NULL);
}

static void
put_leaf(Output *out, Oid leaf)
{
	const SswPolicy *p = out->policy;

	if (get_rel_relkind(leaf) != RELKIND_RELATION || get_rel_persistence(leaf) == RELPERSISTENCE_TEMP)
		return;
	if (ssw_relation_owner(leaf) != p->owner)
	{
		put_line(out, psprintf("-- %s is left alone: it does not belong to \"%s\"",
							   ssw_stmt_relation(leaf), p->owner_name));
		return;
	}
	for (int i = 0; i < p->nclocks; i++)
		put_phase(out, leaf, SSW_PHASE_CLOCK_1 + i);
	if (p->null_predicate)
		put_phase(out, leaf, SSW_PHASE_NULLS);
}

/* explain_sweep(policy): the statements of a pass and their plans. */
Datum
ssw_explain_sweep(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = ssw_rights_policy(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), SSW_RIGHT_SEE);
	Output		out = {.policy = p,.now = GetCurrentTimestamp()};
	char	   *unusable = ssw_policy_unusable(p);
	SswIdentity save;
	Relation	rel;
	List	   *leaves;
	int			shown = 0;
	ListCell   *lc;

	if (unusable)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot explain policy \"%s\": %s", p->name, unusable),
				 errhint("%s", ssw_mend_or_resume(p))));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	out.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	/* the plans of a pass outside of grace, which has no cutoff */
	out.cutoffs[0] = out.cutoffs[1] = out.now - p->keep_for_us;
	ssw_identity_become_owner(p->owner, p->search_path, &save);
	ssw_identity_pin_text();
	rel = relation_open(p->relid, AccessShareLock);
	ssw_clock_build(p, rel);
	if (ssw_shmem_available())
		ssw_grace_rows(p);
	leaves = find_all_inheritors(p->relid, AccessShareLock, NULL);
	ssw_sql_begin();
	foreach(lc, leaves)
		if (shown++ < MAX_LEAVES)
		put_leaf(&out, lfirst_oid(lc));
	if (shown > MAX_LEAVES)
		put_line(&out, psprintf("-- and %d more leaves", shown - MAX_LEAVES));
	ssw_sql_end();
	relation_close(rel, NoLock);
	ssw_identity_restore(&save);
	return (Datum) 0;
}
