/*
 * sweep_sql.c
 *		Build the SQL of a pass over one leaf from a policy's fragments.
 *
 * Pure text building: runs anywhere, shares nothing.  Names are quoted and
 * schema-qualified; the owner's own fragments stand in parentheses; values are
 * parameters.  The statements run as the relation's owner.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/relation_guard.h"
#include "policy/policy_hooks.h"
#include "policy/row_key.h"
#include "policy/sweep_sql.h"

/* The deadline of a phase; null for the nulls. */
const SswDeadline *
ssw_sweep_sql_deadline(const SswPolicy *p, SswPhase phase)
{
	if (phase == SSW_PHASE_DEADLINE)
		return &p->deadlines[0];
	if (phase == SSW_PHASE_MAX_AGE && p->ndeadlines > 1)
		return &p->deadlines[1];
	return NULL;
}

/*
 * Is is_alive called for the rows of a phase?  No row outlives the maximum age,
 * and rows that are repaired stay anyway.
 */
bool
ssw_sweep_sql_asks(const SswPolicy *p, SswPhase phase)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(p, phase);

	return OidIsValid(p->is_alive) && (c ? !c->absolute : phase == SSW_PHASE_NULLS && p->on_null == SSW_NULL_EXPIRE);
}

/*
 * Does the fuse count, and hold, rows of a phase?  That sessions of the registry have
 * reached their greatest age says nothing of an accident.
 */
bool
ssw_sweep_sql_fused(const SswPolicy *p, SswPhase phase)
{
	return phase == SSW_PHASE_DEADLINE || (phase == SSW_PHASE_MAX_AGE && !p->registry) ||
		(phase == SSW_PHASE_NULLS && p->on_null == SSW_NULL_EXPIRE);
}

/*
 * The deadline that a failure is noted with: the same in every phase, or a row that
 * is dead by two deadlines would look changed to each.
 */
static char *
first_due(const SswPolicy *p)
{
	return p->ndeadlines > 1 ? psprintf("LEAST(%s, %s)", p->deadlines[0].due, p->deadlines[1].due) : p->deadlines[0].due;
}

/*
 * Boolean over t, $1 and $2: the row is to go in this phase.  Beyond the greatest
 * age nobody is asked, because no answer helps: such rows are the second deadline's.
 */
char	   *
ssw_sweep_sql_dead(const SswPolicy *p, SswPhase phase)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(p, phase);
	StringInfoData buf;

	initStringInfo(&buf);
	if (phase == SSW_PHASE_MANUAL)
		appendStringInfoString(&buf, "true");
	else
		appendStringInfo(&buf, "(%s)", c ? c->predicate : p->null_predicate);
	if (p->too_old && ssw_sweep_sql_asks(p, phase))
		appendStringInfo(&buf, " AND (%s) IS NOT TRUE", p->too_old);
	if (c && !c->absolute && p->row_grace)
		appendStringInfo(&buf, " AND %s", p->row_grace);
	if (p->filter)
		appendStringInfo(&buf, " AND (%s)", p->filter);
	if (p->not_held && ssw_sweep_sql_fused(p, phase))
		appendStringInfo(&buf, " AND %s", p->not_held);
	return buf.data;
}

/* The same, for a search by deadline: it begins where lower_bound.c says. */
char	   *
ssw_sweep_sql_dead_above(const SswPolicy *p, SswPhase phase)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(p, phase);
	char	   *dead = ssw_sweep_sql_dead(p, phase);

	return c && c->low ? psprintf("%s AND %s", dead, c->low) : dead;
}

/* Boolean over t, $1 and $2: an action left the row dead, by this phase's deadline or by its age. */
static char *
left_dead(const SswPolicy *p, SswPhase phase)
{
	if (phase == SSW_PHASE_MANUAL)
		return "false";
	if (p->too_old == NULL || phase == SSW_PHASE_MAX_AGE)
		return ssw_sweep_sql_dead(p, phase);
	return psprintf("%s OR (%s) AND (%s)", ssw_sweep_sql_dead(p, phase), p->too_old, p->filter ? p->filter : "true");
}

/*
 * Boolean over t and $1: the row's deadline is at or before $1, which may lie ahead:
 * heartbeats may have made it later than the row says.
 */
static char *
near(const SswPolicy *p)
{
	const char *low = p->deadlines[0].low;

	return psprintf("(%s)%s%s%s", p->deadlines[0].predicate, low ? " AND " : "", low ? low : "",
					p->filter ? psprintf(" AND (%s)", p->filter) : "");
}

/* A row that is due, and that grace covers by a rule of its own. */
char	   *
ssw_sweep_sql_graced(const SswPolicy *p, Oid leaf)
{
	return psprintf("SELECT FROM ONLY %s AS t WHERE %s AND (%s) IS NOT TRUE LIMIT 1", ssw_guard_table(leaf), near(p), p->row_grace);
}

/*
 * What distinguishes a row from another that has its place since: a table can be
 * rewritten, or a place used again.  Without a key, all that it holds.
 */
char	   *
ssw_sweep_sql_identity(const SswPolicy *p)
{
	if (p->nkeys == 0)
		return pstrdup("pg_catalog.hashtextextended(ROW(t.*)::pg_catalog.text, 0)::pg_catalog.text");
	return psprintf("%s COLLATE pg_catalog.\"C\"", p->key_text);
}

/*
 * The key that a failure is recorded with; where that is only a place, a blank
 * and the identity follow.
 */
char	   *
ssw_sweep_sql_failed_key(const SswPolicy *p)
{
	return p->nkeys > 0 ? p->key_text :
		psprintf("%s " SSW_OP("||") " ' ' " SSW_OP("||") " %s", p->key_text, ssw_sweep_sql_identity(p));
}

/* Condition over t, if any, that follows others: the row is behind the cursor, whose deadline and tid are $3 and $4. */
static const char *
behind(const SswDeadline *c, SswCursor cursor)
{
	if (cursor == SSW_CURSOR_NONE)
		return "";
	if (c == NULL)
		return " AND t.ctid " SSW_OP(">") " $4";
	if (cursor == SSW_CURSOR_AFTER)
		return psprintf(" AND %s " SSW_OP(">") " $3", c->sort);
	return psprintf(" AND %1$s " SSW_OP(">=") " $3 AND (%1$s " SSW_OP(">") " $3 OR t.ctid " SSW_OP(">") " $4)", c->sort);
}

/* Another: only rows due after $6. */
static const char *
after(const SswDeadline *c, bool above)
{
	return above ? psprintf(" AND %s " SSW_OP(">") " $6", c->due) : "";
}

/*
 * The next $5 candidates behind the cursor, in due order.  By tid: those that are due
 * together, too, for an index that does not return them so.  Above: only rows due after $6.
 */
char	   *
ssw_sweep_sql_collect(const SswPolicy *p, Oid leaf, SswPhase phase, SswCursor cursor, bool with_key, bool by_tid, bool above)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(p, phase);

	return psprintf("SELECT t.ctid, %s, %s, %s%s FROM ONLY %s AS t WHERE %s%s%s ORDER BY %s%s LIMIT $5",
					c ? c->sort : "NULL::pg_catalog.int4",
					with_key ? first_due(p) : "NULL::pg_catalog.timestamptz",
					with_key ? ssw_sweep_sql_failed_key(p) : "NULL::pg_catalog.text",
					!p->heartbeats ? "" : p->not_held ? psprintf(", %s", p->not_held) : ", true", ssw_guard_table(leaf),
					p->heartbeats && phase == SSW_PHASE_DEADLINE ? near(p) : ssw_sweep_sql_dead_above(p, phase),
					behind(c, cursor),
					after(c, above),
					c ? c->sort : "t.ctid", c && by_tid ? ", t.ctid" : "");
}

/* Boolean over t: a dead row behind the cursor ($3, $4) and in blocks from $5 to before $6. */
static char *
in_blocks(const SswPolicy *p, SswPhase phase, SswCursor cursor)
{
	return psprintf("%s%s AND t.ctid " SSW_OP(">=") " $5 AND t.ctid " SSW_OP("<") " $6",
					ssw_sweep_sql_dead(p, phase), behind(ssw_sweep_sql_deadline(p, phase), cursor));
}

/* All dead rows behind the cursor, to be counted, or for the planner's estimate. */
char	   *
ssw_sweep_sql_behind(const SswPolicy *p, Oid leaf, SswPhase phase, SswCursor cursor, bool above)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(p, phase);

	return psprintf("SELECT FROM ONLY %s AS t WHERE %s%s%s", ssw_guard_table(leaf), ssw_sweep_sql_dead_above(p, phase),
					behind(c, cursor), after(c, above));
}

/* The dead rows of some blocks, in due order: shaped as those of collect. */
char	   *
ssw_sweep_sql_blocks(const SswPolicy *p, Oid leaf, SswPhase phase, SswCursor cursor)
{
	const char *sort = ssw_sweep_sql_deadline(p, phase)->sort;

	return psprintf("SELECT t.ctid, %s FROM ONLY %s AS t WHERE %s ORDER BY %s",
					sort, ssw_guard_table(leaf), in_blocks(p, phase, cursor), sort);
}

/* $1 as text of the sort type, to begin a cursor with. */
char	   *
ssw_sweep_sql_bound(const SswPolicy *p, SswPhase phase)
{
	return psprintf("SELECT (%s)::pg_catalog.text", ssw_sweep_sql_deadline(p, phase)->bound);
}

/* Columns SSW_R_KEY to SSW_R_META. */
static char *
info_columns(const SswPolicy *p, Oid leaf, SswPhase phase)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(p, phase == SSW_PHASE_MANUAL ? SSW_PHASE_DEADLINE : phase);
	const SswDeadline *any = c ? c : &p->deadlines[0];
	StringInfoData buf;

	initStringInfo(&buf);
	if (p->audit == SSW_AUDIT_ROW || p->audit == SSW_AUDIT_HASH)
		appendStringInfoString(&buf, ssw_key_value_sql(p, leaf));
	else
		appendStringInfoString(&buf, "NULL::pg_catalog.text");
	appendStringInfo(&buf, ", %s, %s, %s, ",
					 c ? c->due : "NULL::pg_catalog.timestamptz",
					 any->seen && p->audit <= SSW_AUDIT_HASH ? any->seen : "NULL::pg_catalog.timestamptz",
					 p->group_text ? p->group_text : "NULL::pg_catalog.text");
	if (p->ncapture == 0 || p->audit > SSW_AUDIT_HASH)
		appendStringInfoString(&buf, "NULL::pg_catalog.jsonb");
	else
	{
		appendStringInfoString(&buf, "pg_catalog.jsonb_build_object(");
		for (int i = 0; i < p->ncapture; i++)
			appendStringInfo(&buf, "%s%s, t.%s", i ? ", " : "",
							 quote_literal_cstr(p->capture[i]), quote_identifier(p->capture[i]));
		appendStringInfoChar(&buf, ')');
	}
	return buf.data;
}

/* Boolean over t: the row is one of those to be taken. */
static char *
is_taken(const SswPolicy *p, SswPhase phase, int rows)
{
	char	   *taken = psprintf("t.ctid " SSW_OP("=") " ANY ($3) AND %s", ssw_sweep_sql_dead(p, phase));

	if (rows & SSW_ROWS_JUDGED)
		/* a subquery is hashed, an array would be searched for each row */
		taken = psprintf("%s AND %s " SSW_OP("=") " ANY (SELECT pg_catalog.unnest($4))", taken, ssw_sweep_sql_identity(p));
	return taken;
}

/* Rows $3 that are dead, locked in the same statement. */
static char *
locked_rows(const SswPolicy *p, Oid leaf, SswPhase phase, const char *columns, int rows)
{
	return psprintf("SELECT %s FROM ONLY %s AS t WHERE %s FOR UPDATE%s",
					columns, ssw_guard_table(leaf), is_taken(p, phase, rows),
					rows & SSW_ROWS_SKIP_LOCKED ? " SKIP LOCKED" : "");
}

/* What the evidence of a built-in policy needs besides. */
static char *
extra_columns(const SswPolicy *p)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (const SswPolicyHooks *h = p->hooks; h; h = h->next)
		if (h->extra_columns)
			appendStringInfo(&buf, ", %s", h->extra_columns);
	return buf.data;
}

/*
 * The row action on the rows $3, for delete and update.  The predicate stands
 * in the changing statement itself: a row refreshed since is not touched.
 */
char	   *
ssw_sweep_sql_action(const SswPolicy *p, Oid leaf, SswPhase phase, int rows)
{
	char	   *rel = ssw_guard_table(leaf);
	char	   *dead = ssw_sweep_sql_dead(p, phase);
	char	   *info = info_columns(p, leaf, phase);

	if (p->action == SSW_ACTION_UPDATE)
		/* a comment at the end of set_clause must not reach what follows */
		return psprintf("UPDATE ONLY %s AS t SET %s\n FROM (%s)"
						" AS ssw_old (ssw_ctid, ssw_key, ssw_due, ssw_seen, ssw_group, ssw_meta)"
						" WHERE t.ctid " SSW_OP("=") " ssw_old.ssw_ctid RETURNING ssw_key, ssw_due, ssw_seen,"
						" ssw_group, ssw_meta, (%s) IS TRUE%s",
						rel, p->set_clause, locked_rows(p, leaf, phase, psprintf("t.ctid, %s", info), rows),
						left_dead(p, phase), extra_columns(p));
	if (rows & SSW_ROWS_SKIP_LOCKED)

		/*
		 * no sublink: row security that is forced is lifted in the FROM
		 * clause
		 */
		return psprintf("DELETE FROM ONLY %s AS t USING (%s) AS ssw_l (ssw_ctid) WHERE t.ctid " SSW_OP("=") " ssw_l.ssw_ctid AND %s"
						" RETURNING %s, false",
						rel, locked_rows(p, leaf, phase, "t.ctid", rows), dead, info);
	return psprintf("DELETE FROM ONLY %s AS t WHERE %s RETURNING %s, false", rel, is_taken(p, phase, rows), info);
}

/* The same for all dead rows of some blocks. */
char	   *
ssw_sweep_sql_delete_blocks(const SswPolicy *p, Oid leaf, SswPhase phase, SswCursor cursor)
{
	return psprintf("DELETE FROM ONLY %s AS t WHERE %s RETURNING %s, false", ssw_guard_table(leaf),
					in_blocks(p, phase, cursor), info_columns(p, leaf, phase));
}

/* Lock the dead rows of $3 for a hook, and read all that is needed of them. */
char	   *
ssw_sweep_sql_lock(const SswPolicy *p, Oid leaf, SswPhase phase, int rows)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "%s, false, t.ctid, %s", info_columns(p, leaf, phase), p->key_text);
	for (int i = 0; i < p->nkeys; i++)
		appendStringInfo(&buf, ", %s", ssw_key_column_sql(p, i));
	return locked_rows(p, leaf, phase, buf.data, rows);
}

/*
 * The row as one of the registered relation.  A shard is no child of it, and any leaf may
 * have other columns, or the same in another order.
 */
static char *
whole_row(const SswPolicy *p, Oid leaf)
{
	Relation	rel;
	StringInfoData buf;

	if (leaf == p->relid)
		return pstrdup("(t.*)");
	initStringInfo(&buf);
	rel = table_open(p->relid, AccessShareLock);
	for (int i = 0; i < RelationGetNumberOfAttributes(rel); i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), i);

		if (!att->attisdropped)
			appendStringInfo(&buf, "%st.%s", buf.len ? ", " : "ROW(", quote_identifier(NameStr(att->attname)));
	}
	appendStringInfo(&buf, ")::%s", ssw_guard_type(rel->rd_rel->reltype, -1));
	table_close(rel, NoLock);
	return buf.data;
}

/*
 * Call the hook once for the rows: $3 are their tids, $4 their keys as text[].
 * Rows of a leaf are handed over as rows of the registered relation.
 */
char	   *
ssw_sweep_sql_hook(const SswPolicy *p, Oid leaf, bool *by_keys)
{
	Oid		   *argtypes;
	int			nargs;
	char	   *func = ssw_guard_function(p->on_expire);

	(void) get_func_signature(p->on_expire, &argtypes, &nargs);
	*by_keys = nargs == 1 && argtypes[0] == TEXTARRAYOID;
	if (*by_keys)
		return psprintf("SELECT %s($4)", func);
	/* no sublink: row security that is forced is lifted in the FROM clause */
	return psprintf("SELECT %s(ssw_r.ssw_rows) FROM (SELECT pg_catalog.array_agg(%s) AS ssw_rows FROM ONLY %s AS t"
					" WHERE t.ctid " SSW_OP("=") " ANY ($3)) AS ssw_r", func, whole_row(p, leaf), ssw_guard_table(leaf));
}

/*
 * The tids that rows have now, after a hook may have updated them: by key
 * columns ($4, $5, ... as text[]), or, without a key, from version to version.
 */
char	   *
ssw_sweep_sql_find(const SswPolicy *p, Oid leaf)
{
	StringInfoData buf;

	if (p->nkeys == 0)
		return psprintf("SELECT t.ctid FROM ONLY %s AS t WHERE t.ctid " SSW_OP("=") " ANY (ARRAY("
						"SELECT pg_catalog.currtid2(%s, k) FROM pg_catalog.unnest($3) AS k))",
						ssw_guard_table(leaf), quote_literal_cstr(ssw_guard_relation(leaf)));
	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT t.ctid FROM ONLY %s AS t, ROWS FROM (", ssw_guard_table(leaf));
	for (int i = 0; i < p->nkeys; i++)
		appendStringInfo(&buf, "%spg_catalog.unnest($%d)", i ? ", " : "", 4 + i);
	appendStringInfoString(&buf, ") AS k (");
	for (int i = 0; i < p->nkeys; i++)
		appendStringInfo(&buf, "%sk%d", i ? ", " : "", i);
	appendStringInfoString(&buf, ") WHERE ");
	for (int i = 0; i < p->nkeys; i++)
	{
		Oid			type,
					collation;
		int32		typmod;

		/*
		 * each by itself: a cast of the array would lose lengths, or flatten
		 * an array
		 */
		get_atttypetypmodcoll(p->relid, get_attnum(p->relid, p->key[i]), &type, &typmod, &collation);
		appendStringInfo(&buf, "%st.%s %s k.k%d::%s", i ? " AND " : "", quote_identifier(p->key[i]),
						 ssw_key_equals(type), i,
						 ssw_guard_type(type, typmod));
	}
	return buf.data;
}

/* Give the rows $3 one time to live from now; is one still dead? */
char	   *
ssw_sweep_sql_refresh(const SswPolicy *p, Oid leaf, SswPhase phase, int rows)
{
	return psprintf("UPDATE ONLY %s AS t SET %s WHERE %s RETURNING (%s) IS TRUE", ssw_guard_table(leaf),
					p->repair_set, is_taken(p, phase, rows), ssw_sweep_sql_dead(p, phase));
}

/* Rows of $3 that are dead in a place where they have come since, by an update. */
char	   *
ssw_sweep_sql_moved(const SswPolicy *p, Oid leaf, SswPhase phase)
{
	return psprintf("SELECT t.ctid, %s, %s, t.xmin FROM ONLY %s AS t WHERE t.ctid " SSW_OP("=") " ANY (ARRAY("
					"SELECT now FROM (SELECT k, pg_catalog.currtid2(%s, k) AS now FROM pg_catalog.unnest($3) AS k) AS m"
					" WHERE now " SSW_OP("<>") " k)) AND %s", ssw_sweep_sql_failed_key(p), first_due(p),
					ssw_guard_table(leaf), quote_literal_cstr(ssw_guard_relation(leaf)), ssw_sweep_sql_dead(p, phase));
}

/* Rows of $3 that an action left dead. */
char	   *
ssw_sweep_sql_left_dead(const SswPolicy *p, Oid leaf, SswPhase phase)
{
	return psprintf("SELECT FROM ONLY %s AS t WHERE t.ctid " SSW_OP("=") " ANY ($3) AND (%s)",
					ssw_guard_table(leaf), left_dead(p, phase));
}

/* Rows for a look at their heartbeats: ctid, key, deadline; the rows $3, or all that the filter lets through. */
char	   *
ssw_sweep_sql_heartbeats(const SswPolicy *p, Oid leaf, bool all)
{
	return psprintf("SELECT t.ctid, %s, %s FROM ONLY %s AS t WHERE %s", p->key_text, p->deadlines[0].due, ssw_guard_table(leaf),
					!all ? "t.ctid " SSW_OP("=") " ANY ($3)" : p->filter ? p->filter : "true");
}

/*
 * R1: make the rows $4 live until $6, their last heartbeats having come at $5, if
 * their deadlines are still $7.
 */
char	   *
ssw_sweep_sql_prolong(const SswPolicy *p, Oid leaf, bool skip_locked)
{
	char	   *rel = ssw_guard_table(leaf);
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "UPDATE ONLY %s AS t SET %s FROM ROWS FROM (pg_catalog.unnest($4), pg_catalog.unnest($5),"
					 " pg_catalog.unnest($6), pg_catalog.unnest($7)) AS ssw_b (ssw_tid, ssw_seen, ssw_until, ssw_due)",
					 rel, p->prolong_set);
	if (skip_locked)

		/*
		 * row by row: a list of those that are free would be joined with the
		 * places by a loop over both
		 */
		appendStringInfo(&buf, " CROSS JOIN LATERAL (SELECT FROM ONLY %s AS t WHERE t.ctid " SSW_OP("=") " ssw_b.ssw_tid"
						 " FOR NO KEY UPDATE SKIP LOCKED) AS ssw_free", rel);
	appendStringInfo(&buf, " WHERE t.ctid " SSW_OP("=") " ssw_b.ssw_tid AND %s " SSW_OP("=") " ssw_b.ssw_due", p->deadlines[0].due);
	if (p->filter)
		appendStringInfo(&buf, " AND (%s)", p->filter);
	appendStringInfo(&buf, " RETURNING %s, %s", p->key_text, p->deadlines[0].due);
	return buf.data;
}

/*
 * S1: the row with the key $1, ..., locked: what a heartbeat must know of it, as
 * columns SSW_T_...
 */
char	   *
ssw_sweep_sql_touch(const SswPolicy *p, Oid table, const char *lock)
{
	const char *row_ttl = p->deadlines[0].row_ttl;

	return psprintf("SELECT t.tableoid, t.xmin, %s, %s, %s, (%s) IS TRUE, %s FROM %s AS t WHERE %s %s", p->deadlines[0].due,
					p->ndeadlines > 1 ? p->deadlines[1].due : "NULL::pg_catalog.timestamptz", p->key_text, p->filter ? p->filter : "true",
					row_ttl ? psprintf("(EXTRACT(epoch FROM %s) " SSW_OP("*") " 1000000)::bigint", row_ttl) : "NULL::bigint",
					ssw_guard_table(table), ssw_key_matches(p, 1), lock);
}

/* S4: make that row live until $2, the heartbeat having come at $1; its key is $3, ... */
char	   *
ssw_sweep_sql_write_heartbeat(const SswPolicy *p, Oid table)
{
	return psprintf("UPDATE %s AS t SET %s FROM (SELECT $1 AS ssw_seen, $2 AS ssw_until) AS ssw_b WHERE %s RETURNING %s",
					ssw_guard_table(table), p->prolong_set, ssw_key_matches(p, 3), p->deadlines[0].due);
}

/* Rows of $3 that are still there and dead. */
char	   *
ssw_sweep_sql_missing(const SswPolicy *p, Oid leaf, SswPhase phase, int rows)
{
	char	   *columns = psprintf("t.ctid, %s, %s", ssw_sweep_sql_failed_key(p), first_due(p));

	if (rows & SSW_ROWS_SKIP_LOCKED)
		return locked_rows(p, leaf, phase, columns, rows);
	return psprintf("SELECT %s FROM ONLY %s AS t WHERE %s",
					columns, ssw_guard_table(leaf), is_taken(p, phase, rows));
}

/*
 * Dead rows that were not tried: those with the latest deadlines, or, with
 * pages > 0, those of so many pages at random.
 */
char	   *
ssw_sweep_sql_witnesses(const SswPolicy *p, Oid leaf, SswPhase phase, int pages)
{
	const SswDeadline *c = ssw_sweep_sql_deadline(p, phase);
	char	   *from = ssw_guard_table(leaf);
	char	   *order = psprintf(" ORDER BY %s DESC", c ? c->sort : "t.ctid");

	if (pages > 0)
	{
		Relation	rel = table_open(leaf, NoLock);

		from = psprintf("%s AS t TABLESAMPLE pg_catalog.system (%f)", from,
						Min(100.0, 100.0 * pages / Max(1, RelationGetNumberOfBlocks(rel))));
		table_close(rel, NoLock);
		order = " ORDER BY pg_catalog.random()";
	}
	else
		from = psprintf("%s AS t", from);
	return psprintf("SELECT t.ctid, %s, %s FROM ONLY %s WHERE %s%s LIMIT 100", ssw_sweep_sql_failed_key(p),
					first_due(p), from, ssw_sweep_sql_dead(p, phase), order);
}

/*
 * Ask is_alive for the rows $3: identity, answer, place; where it takes many keys, also
 * the numbers of keys and of answers.  It is called once, and not without keys: no part of the
 * statement is merged into another.
 */
char	   *
ssw_sweep_sql_check(const SswPolicy *p, Oid leaf, SswPhase phase)
{
	const char *function = ssw_guard_function(p->is_alive);
	const char *rows = psprintf("FROM ONLY %s AS t WHERE %s", ssw_guard_table(leaf), is_taken(p, phase, 0));

	if (!p->asks_together)
		return psprintf("SELECT %s, %s(%s), t.ctid %s", ssw_sweep_sql_identity(p), function, p->key_text, rows);
	return psprintf("SELECT u.identity, u.answer, u.place, pg_catalog.cardinality(r.identities), pg_catalog.cardinality(r.answers) FROM (SELECT k.identities, k.places, %s(k.keys) AS answers"
					" FROM (SELECT pg_catalog.array_agg(%s) AS identities, pg_catalog.array_agg(t.ctid) AS places, pg_catalog.array_agg(%s) AS keys %s) AS k"
					" WHERE k.keys IS NOT NULL OFFSET 0) AS r CROSS JOIN LATERAL ROWS FROM (pg_catalog.unnest(r.identities),"
					" pg_catalog.unnest(r.answers), pg_catalog.unnest(r.places)) AS u (identity, answer, place)",
					function, ssw_sweep_sql_identity(p), p->key_text, rows);
}
