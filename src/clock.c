/*
 * clock.c
 *		Turn a policy's deadline fields into SQL fragments.
 *
 * Runs wherever a policy is validated or used, in a transaction, with a lock on
 * the relation; shares nothing and evaluates nothing of a user's.  Each form of
 * deadline becomes a comparison of the bare column with a bound computed from
 * the cutoff, so that a plain index on the column serves it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parse_collate.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "parser/parser.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/varlena.h"

#include "clock.h"
#include "identity.h"
#include "policy.h"

/* Seconds after 1970 beyond which an epoch is no timestamp any more. */
#define EPOCH_MIN	"-200000000000"
#define EPOCH_MAX	"9000000000000"

/* A value that stands for a time: its SQL, and how to convert. */
typedef struct TimeValue
{
	const char *field;			/* argument name, for messages */
	char	   *sql;
	Oid			type;			/* base type */
	int16		attnum;			/* 0 for an expression */
	const char *factor;			/* epoch units a second, or null */
	char	   *zone;			/* quoted literal, or null */
} TimeValue;

/*
 * Parse an expression over the row of rel and return its tree.  It must be one
 * expression: no subquery, aggregate or set-returning function, not volatile.
 */
Node *
ssw_clock_parse(Relation rel, const char *field, const char *text)
{
	char	   *sql = psprintf("SELECT (%s)", text);
	List	   *stmts = raw_parser(sql, RAW_PARSE_DEFAULT);
	SelectStmt *sel;
	ParseState *pstate;
	ParseNamespaceItem *nsitem;
	Node	   *node;

	sel = list_length(stmts) == 1 ? (SelectStmt *) linitial_node(RawStmt, stmts)->stmt : NULL;
	if (sel == NULL || !IsA(sel, SelectStmt) || list_length(sel->targetList) != 1 ||
		sel->fromClause || sel->whereClause || sel->op != SETOP_NONE || sel->sortClause ||
		sel->limitCount || sel->limitOffset || sel->groupClause || sel->havingClause ||
		sel->distinctClause || sel->intoClause || sel->withClause || sel->lockingClause ||
		sel->windowClause || linitial_node(ResTarget, sel->targetList)->name != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("%s of the policy is not one expression: %s", field, text)));
	pstate = make_parsestate(NULL);
	nsitem = addRangeTableEntryForRelation(pstate, rel, AccessShareLock, makeAlias("t", NIL), false, true);
	addNSItemToQuery(pstate, nsitem, false, true, true);
	node = transformExpr(pstate, linitial_node(ResTarget, sel->targetList)->val, EXPR_KIND_WHERE);
	assign_expr_collations(pstate, node);
	if (pstate->p_hasSubLinks)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s of the policy must not contain a subquery", field),
				 errhint("Put the subquery into a function of the row.")));
	if (contain_volatile_functions(node))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("%s of the policy must not be volatile: %s", field, text),
				 errdetail("A volatile expression has another value at each look, and no index can serve it."),
				 errhint("Use columns and immutable or stable functions only.")));
	free_parsestate(pstate);
	return node;
}

static char *
column_sql(const char *name)
{
	return psprintf("t.%s", quote_identifier(name));
}

/* An edit distance small enough for a hint. */
static const char *
similar_column(Relation rel, const char *name)
{
	const char *best = NULL;
	int			best_distance = 4;

	for (int i = 0; i < RelationGetDescr(rel)->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), i);
		int			d;

		if (att->attisdropped)
			continue;
		d = varstr_levenshtein_less_equal(name, Min(strlen(name), 255), NameStr(att->attname),
										  strlen(NameStr(att->attname)), 1, 1, 1, best_distance, true);
		if (pg_strcasecmp(name, NameStr(att->attname)) == 0)
			d = 0;
		if (d < best_distance)
		{
			best = NameStr(att->attname);
			best_distance = d;
		}
	}
	return best;
}

/* The number of a column that must exist; the error suggests a near name. */
AttrNumber
ssw_clock_column(Relation rel, const char *field, const char *name)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), name);
	const char *near_name;

	if (attnum > 0)
		return attnum;
	near_name = similar_column(rel, name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("%s: column \"%s\" of relation \"%s\" does not exist", field, name,
					RelationGetRelationName(rel)),
			 near_name ? errhint("Perhaps you meant the column \"%s\".", near_name) : 0));
	return InvalidAttrNumber;
}

static bool
looks_like_name(const char *s)
{
	for (; *s; s++)
		if (!(isalnum((unsigned char) *s) || *s == '_'))
			return false;
	return true;
}

/* Resolve a field to a column, or parse it as an expression. */
static TimeValue
resolve(const SswPolicy *p, Relation rel, const char *field, const char *text, bool expression_ok)
{
	TimeValue	v = {.field = field};
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), text);

	if (attnum > 0 || !expression_ok || looks_like_name(text))
	{
		attnum = ssw_clock_column(rel, field, text);
		v.sql = column_sql(text);
		v.attnum = attnum;
		v.type = getBaseType(get_atttype(RelationGetRelid(rel), attnum));
	}
	else
	{
		v.sql = psprintf("(%s)", text);
		v.type = getBaseType(exprType(ssw_clock_parse(rel, field, text)));
	}
	return v;
}

/* Fill in unit or zone; the type decides which of them is needed. */
static void
resolve_type(const SswPolicy *p, Relation rel, TimeValue *v)
{
	switch (v->type)
	{
		case TIMESTAMPTZOID:
			return;
		case TIMESTAMPOID:
		case DATEOID:
			if (p->timezone == NULL)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("%s of relation \"%s\" has no time zone: timezone must be given", v->field,
								RelationGetRelationName(rel)),
						 ssw_clock_candidates(rel, v->sql, v->type),
						 errhint("Add timezone => 'UTC', or the zone in which the application writes its local times.")));
			v->zone = quote_literal_cstr(p->timezone);
			return;
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case FLOAT8OID:
			if (p->unit == NULL)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("%s of relation \"%s\" is a number: unit must be given", v->field,
								RelationGetRelationName(rel)),
						 ssw_clock_candidates(rel, v->sql, v->type),
						 errhint("Add unit => 's', 'ms' or 'us', whichever makes the newest rows plausible.")));
			v->factor = strcmp(p->unit, "s") == 0 ? "1" : strcmp(p->unit, "ms") == 0 ? "1000" : "1000000";
			return;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("%s of the policy has type %s, which is no time", v->field, format_type_be(v->type)),
					 errhint("Use timestamp with time zone, timestamp, date, or a number of seconds, milliseconds or microseconds since 1970.")));
	}
}

/* The value as timestamptz; absurd numbers become infinite, never an error. */
static char *
as_timestamptz(const TimeValue *v)
{
	if (v->factor)
		return psprintf("(CASE WHEN %s IS NULL THEN NULL"
						" WHEN %s > " EPOCH_MAX "::pg_catalog.numeric * %s THEN 'infinity'"
						" WHEN %s < " EPOCH_MIN "::pg_catalog.numeric * %s THEN '-infinity'"
						" ELSE pg_catalog.to_timestamp(%s::pg_catalog.float8 / %s) END)",
						v->sql, v->sql, v->factor, v->sql, v->factor, v->sql, v->factor);
	if (v->zone)
		return psprintf("pg_catalog.timezone(%s, %s::pg_catalog.timestamp)", v->zone, v->sql);
	return psprintf("%s::pg_catalog.timestamptz", v->sql);
}

/* A timestamptz expression in the value's own type. */
static char *
from_timestamptz(const TimeValue *v, const char *tz, bool exact_type)
{
	if (v->factor)
	{
		char	   *epoch = psprintf("EXTRACT(epoch FROM %s) * %s", tz, v->factor);

		if (v->type == INT4OID)
			return psprintf("least(greatest(pg_catalog.floor(%s), -2147483648), 2147483647)::pg_catalog.int4", epoch);
		if (v->type == INT8OID)
			return psprintf("pg_catalog.floor(%s)::pg_catalog.int8", epoch);
		return psprintf("(%s)::%s", epoch, v->type == NUMERICOID ? "pg_catalog.numeric" : "pg_catalog.float8");
	}
	if (v->zone)
		return psprintf("pg_catalog.timezone(%s, %s)%s", v->zone, tz,
						exact_type && v->type == DATEOID ? "::pg_catalog.date" : "");
	return pstrdup(tz);
}

static char *
interval_sql(int64 us)
{
	return psprintf("'" INT64_FORMAT " microseconds'::pg_catalog.interval", us);
}

/* The row's own time to live, as interval. */
static char *
row_ttl_sql(const SswPolicy *p, Relation rel)
{
	AttrNumber	attnum = ssw_clock_column(rel, "ttl_column", p->ttl_column);
	Oid			type = getBaseType(get_atttype(RelationGetRelid(rel), attnum));
	char	   *sql = column_sql(p->ttl_column);

	switch (type)
	{
		case INTERVALOID:
			break;
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case FLOAT8OID:
			sql = psprintf("pg_catalog.make_interval(secs => %s::pg_catalog.float8)", sql);
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("ttl_column \"%s\" has type %s", p->ttl_column, format_type_be(type)),
					 errhint("It must be an interval, or a number of seconds.")));
	}
	return p->ttl_us > 0 ? psprintf("coalesce(%s, %s)", sql, interval_sql(p->ttl_us)) : sql;
}

/* Fill one clock: the deadline is the value plus ttl, or plus the row's ttl. */
static void
build_clock(SswClock *c, const TimeValue *v, int64 ttl_us, char *row_ttl)
{
	char	   *tz = as_timestamptz(v);
	char	   *cutoff = "$1";
	char	   *bound;
	StringInfoData buf;

	if (ttl_us > 0 && row_ttl == NULL)
	{
		cutoff = psprintf("($1 OPERATOR(pg_catalog.-) %s)", interval_sql(ttl_us));
		c->due = psprintf("(%s OPERATOR(pg_catalog.+) %s)", tz, interval_sql(ttl_us));
	}
	else if (row_ttl)
		c->due = psprintf("(%s OPERATOR(pg_catalog.+) %s)", tz, row_ttl);
	else
		c->due = tz;
	bound = from_timestamptz(v, cutoff, false);
	c->sort = v->sql;
	c->sort_type = v->type;
	c->bound = from_timestamptz(v, cutoff, true);
	c->ttl_us = row_ttl ? 0 : ttl_us;
	c->row_ttl = row_ttl;
	c->attnum = v->attnum;
	c->plain = v->attnum != 0;
	initStringInfo(&buf);
	appendStringInfo(&buf, "%s <= %s", c->sort, bound);
	/* in the repeated hour of autumn the later reading counts: never early */
	if (v->zone || row_ttl)
		appendStringInfo(&buf, " AND %s <= $1", c->due);
	c->predicate = buf.data;
}

static void
build_key(SswPolicy *p, Relation rel)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < p->nkeys; i++)
	{
		(void) ssw_clock_column(rel, "key", p->key[i]);
		appendStringInfo(&buf, "%s%s", i ? ", " : "", column_sql(p->key[i]));
	}
	if (p->nkeys == 0)
		p->key_text = "t.ctid::pg_catalog.text";
	else if (p->nkeys == 1)
		p->key_text = psprintf("%s::pg_catalog.text", buf.data);
	else
		p->key_text = psprintf("ROW(%s)::pg_catalog.text", buf.data);
}

static void
build_group(SswPolicy *p, Relation rel)
{
	p->group_text = NULL;
	if (p->group_by == NULL)
		return;
	if (get_attnum(RelationGetRelid(rel), p->group_by) > 0)
		p->group_text = psprintf("%s::pg_catalog.text", column_sql(p->group_by));
	else if (looks_like_name(p->group_by))
		(void) ssw_clock_column(rel, "group_by", p->group_by);
	else
	{
		(void) ssw_clock_parse(rel, "group_by", p->group_by);
		p->group_text = psprintf("(%s)::pg_catalog.text", p->group_by);
	}
}

static void
check_filter(SswPolicy *p, Relation rel)
{
	Oid			type;

	if (p->filter == NULL)
		return;
	type = exprType(ssw_clock_parse(rel, "filter", p->filter));
	if (getBaseType(type) != BOOLOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("filter of the policy must be one boolean expression, not of type %s",
						format_type_be(type))));
}

static void
build(SswPolicy *p, Relation rel)
{
	bool		activity = p->last_seen != NULL;
	TimeValue	v = resolve(p, rel, activity ? "last_seen" : "deadline",
							activity ? p->last_seen : p->deadline, true);
	char	   *row_ttl = NULL;
	char	   *set_to = NULL;

	resolve_type(p, rel, &v);
	if (activity && p->ttl_column)
		row_ttl = row_ttl_sql(p, rel);
	memset(p->clock, 0, sizeof(p->clock));
	p->nclocks = 1;
	p->clock[0].activity = activity;
	build_clock(&p->clock[0], &v, activity ? p->ttl_us : 0, row_ttl);
	if (activity)
		p->clock[0].seen = as_timestamptz(&v);
	if (p->created)
	{
		TimeValue	created = resolve(p, rel, "created", p->created, false);

		resolve_type(p, rel, &created);
		p->nclocks = 2;
		p->clock[1].absolute = true;
		p->clock[1].seen = p->clock[0].seen;
		build_clock(&p->clock[1], &created, p->max_age_us, NULL);
	}
	build_key(p, rel);
	build_group(p, rel);
	check_filter(p, rel);
	for (int i = 0; i < p->ncapture; i++)
		(void) ssw_clock_column(rel, "capture", p->capture[i]);
	p->null_predicate = p->on_null == SSW_NULL_IGNORE ? NULL : psprintf("%s IS NULL", v.sql);
	if (activity)
		set_to = "$1";
	else if (p->ttl_us > 0)
		set_to = psprintf("($1 OPERATOR(pg_catalog.+) %s)", interval_sql(p->ttl_us));
	p->repair_set = v.attnum && set_to ?
		psprintf("%s = %s", quote_identifier(activity ? p->last_seen : p->deadline),
				 from_timestamptz(&v, set_to, true)) : NULL;
}

/*
 * Fill the fragments of a policy.  Errors are those that a caller of register()
 * should see; the caller holds a lock on rel.  Names in expressions are those
 * of the policy's own search_path.
 */
void
ssw_clock_build(SswPolicy *p, Relation rel)
{
	SswIdentity save;

	ssw_identity_become_owner(p->owner, p->search_path, &save);
	build(p, rel);
	ssw_identity_restore(&save);
}
