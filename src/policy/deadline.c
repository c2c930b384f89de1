/*
 * deadline.c
 *		Turn a policy's deadline fields into SQL fragments.
 *
 * Runs in any process that validates or uses a policy, in a transaction, with
 * a lock on the relation.  Each form of deadline becomes a comparison of the
 * bare column with a bound computed from the cutoff, so that a plain btree on
 * the column serves it, and an exact test where that comparison alone would be
 * early.  Names and expressions are resolved through the gate, under the policy's
 * search_path: constants of domains are checked, immutable functions folded.
 *
 * A row's own time to live of zero or less counts as null, one of more than 200 years
 * as 200 years; days in it have 24 hours.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/identity.h"
#include "policy/deadline.h"
#include "policy/expr.h"
#include "policy/index.h"
#include "policy/partition.h"
#include "policy/policy.h"
#include "policy/row_key.h"
#include "policy/time_value.h"

#define MAX_TTL_SECONDS "6307200000"	/* 73,000 days */

/* A deadline with a constant time to live, or (ttl 0) without one, compared with a parameter. */
static void
build_constant(SswDeadline *c, const SswTimeValue *v, int64 ttl_us, const char *now)
{
	char	   *cutoff = ttl_us == 0 ? pstrdup(now) :
	psprintf("(%s OPERATOR(pg_catalog.-) %s)", now, ssw_time_interval(ttl_us));

	c->sort = v->sql;
	c->sort_type = v->type;
	c->bound = ssw_time_from_instant(v, cutoff);
	c->by_due = true;
	c->attnum = v->attnum;
	c->due = v->type == TIMESTAMPTZOID && ttl_us == 0 ? pstrdup(v->sql) :
		ssw_time_add(ssw_time_to_instant(v), ttl_us);
	c->predicate = psprintf("%s" SSW_LE "%s", c->sort, c->bound);

	/*
	 * In the hour that autumn repeats, the local bound goes back, and rows of
	 * that hour are read as its second turn: late, never early.
	 */
	if (v->type == DATEOID || (v->type == TIMESTAMPOID && !v->utc))
		c->predicate = psprintf("%s AND %s" SSW_LE "%s", c->predicate, c->due, now);
}

/* The row's own time to live. */
typedef struct RowTtl
{
	char	   *column;			/* t.column */
	AttrNumber	attnum;
	Oid			type;
	int64		factor;			/* its units a second; 0 for an interval */
	int64		default_us;		/* where it is null; 0 for none */
} RowTtl;

static RowTtl
resolve_row_ttl(const SswPolicy *p, Relation rel, const SswTimeValue *v)
{
	AttrNumber	attnum = ssw_expr_column(rel, "ttl_column", p->ttl_column);
	RowTtl		r = {.column = ssw_time_column(p->ttl_column),.attnum = attnum,.default_us = p->ttl_us};

	r.type = getBaseType(TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid);
	switch (r.type)
	{
		case INTERVALOID:
			break;
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case FLOAT4OID:
		case FLOAT8OID:
			/* unit is of the time column, if that is a number */
			r.factor = p->unit && v->factor == 0 ? ssw_time_unit_factor(p->unit) : 1;
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("ttl_column must not have type %s", format_type_be(r.type)),
					 errhint("It must be an interval or a number of seconds.")));
	}
	return r;
}

static char *
row_ttl_seconds(const RowTtl *r)
{
	if (r->factor == 1)
		return psprintf("%s::double precision", r->column);
	return psprintf("(%s::double precision OPERATOR(pg_catalog./) " INT64_FORMAT "::double precision)",
					r->column, r->factor);
}

/* As interval; null where the row has none. */
static char *
row_ttl_interval(const RowTtl *r)
{
	char	   *sql;

	if (r->factor == 0)
		sql = psprintf("CASE WHEN %s OPERATOR(pg_catalog.>) '0'::interval"
					   " THEN LEAST(%s, '%s seconds'::interval) END",
					   r->column, r->column, MAX_TTL_SECONDS);
	else
		sql = psprintf("CASE WHEN %s OPERATOR(pg_catalog.>) 0::double precision"
					   " THEN pg_catalog.make_interval(secs => LEAST(%s, '%s'::double precision)) END",
					   row_ttl_seconds(r), row_ttl_seconds(r), MAX_TTL_SECONDS);
	if (r->default_us)
		return psprintf("COALESCE(%s, %s)", sql, ssw_time_interval(r->default_us));
	return psprintf("(%s)", sql);
}

/*
 * The expression to index by for rows with their own time to live: immutable,
 * and as plain as a user would write it.  It is a time in UTC.  An index on it has
 * computed it for every row, so it cannot raise in a sweep either.
 */
static char *
row_ttl_sort(const SswTimeValue *v, const RowTtl *r)
{
	char	   *ttl = r->factor ? psprintf("pg_catalog.make_interval(secs => %s)", row_ttl_seconds(r)) : r->column;
	char	   *base = v->sql;

	if (r->default_us)
		ttl = psprintf("COALESCE(%s, %s)", ttl, ssw_time_interval(r->default_us));
	if (v->factor)
		base = psprintf("pg_catalog.to_timestamp(%s::double precision OPERATOR(pg_catalog./) " INT64_FORMAT "::double precision)", v->sql, v->factor);
	else if (v->utc)
		return psprintf("(%s" SSW_PLUS "%s)", v->sql, ttl);
	else if (v->zone)
		base = psprintf("(%s AT TIME ZONE %s)", v->sql, v->zone);
	return psprintf("((%s AT TIME ZONE 'UTC')" SSW_PLUS "%s)", base, ttl);
}

/*
 * Fill the deadline of rows that have their own time to live.  With an index on the sum the
 * range is exact; without, it is all rows last seen before the cutoff.
 */
static void
build_row_ttl(SswPolicy *p, Relation rel, SswDeadline *c, const SswTimeValue *v)
{
	RowTtl		r = resolve_row_ttl(p, rel, v);
	char	   *sort = v->type == DATEOID ? NULL : row_ttl_sort(v, &r);

	build_constant(c, v, 0, "$1");
	c->by_due = false;
	c->row_ttl = row_ttl_interval(&r);
	c->due = psprintf("(((%s AT TIME ZONE 'UTC')" SSW_PLUS "%s) AT TIME ZONE 'UTC')",
					  ssw_time_to_instant(v), c->row_ttl);
	if (sort && contain_mutable_functions(ssw_expr_parse(rel, v->field, sort)))
		sort = NULL;
	p->index_sort = sort;

	/*
	 * beside rows at fault, a partial index may not be used, and then it is
	 * computed for all
	 */
	if (sort && p->left_out == NULL && (p->in_coordinator || OidIsValid(ssw_index_find(rel, sort, p->filter))))
	{
		c->row_columns[0] = c->attnum;
		c->row_columns[1] = r.attnum;
		c->sort = sort;
		c->sort_type = TIMESTAMPOID;
		c->bound = pstrdup("($1 AT TIME ZONE 'UTC')");
		c->by_due = true;
		c->attnum = 0;
	}
	c->predicate = psprintf("%s" SSW_LE "%s AND %s" SSW_LE "$1", c->sort, c->bound, c->due);
}

/* A deadline that activity puts off by the row's own time to live. */
static void
build_row_prolonged(const SswPolicy *p, Relation rel, SswDeadline *c, const SswTimeValue *v)
{
	RowTtl		r = resolve_row_ttl(p, rel, v);

	c->row_ttl = row_ttl_interval(&r);
	c->activity = true;
	if (p->registry)
		c->seen = pstrdup("GREATEST(t.last_seen_at, sweeper._last_heartbeat(t.session))");
}

static void
build_key(SswPolicy *p, Relation rel)
{
	for (int i = 0; i < p->nkeys; i++)
		(void) ssw_expr_column(rel, "key", p->key[i]);
	p->key_text = ssw_key_sql(p);
}

static void
build_group(SswPolicy *p, Relation rel)
{
	Node	   *node;
	AttrNumber	attnum;
	char	   *text;

	p->group_text = NULL;
	if (p->group_by == NULL)
		return;
	node = ssw_expr_parse(rel, "group_by", p->group_by);
	attnum = ssw_expr_as_column(node);
	if (attnum == InvalidAttrNumber)
		text = ssw_time_guarded(p, "NULL", ssw_expr_text(rel, node, true));

	else
	{
		p->group_by = pstrdup(NameStr(TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attname));
		text = ssw_time_column(p->group_by);
	}
	p->group_text = psprintf("%s::pg_catalog.text", text);
}

/* What to do with rows without a deadline, and how to prolong the others. */
static void
build_repair(SswPolicy *p, const SswTimeValue *v)
{
	SswDeadline *c = &p->deadlines[0];
	char	   *until = NULL;

	p->null_predicate = NULL;
	p->repair_set = p->prolong_set = NULL;
	if (p->last_seen)
		until = "$5";
	else if (c->row_ttl)
		until = psprintf("($5" SSW_PLUS "%s)", c->row_ttl);
	else if (p->ttl_us)
		until = ssw_time_add("$5", p->ttl_us);
	if (p->heartbeats && v->settable)
		p->prolong_set = psprintf("%s%s", ssw_time_set(v, p->last_seen ? "ssw_b.ssw_seen" : "ssw_b.ssw_until"),
								  p->registry ? ", last_seen_at = ssw_b.ssw_seen" : "");
	if (until && v->settable)
		p->repair_set = ssw_time_set(v, until);
	if (p->on_null == SSW_NULL_EXPIRE)
		p->null_predicate = psprintf("%s IS NULL", c->row_ttl ? c->due : v->sql);
	else if (p->on_null == SSW_NULL_REPAIR)
		p->null_predicate = c->row_ttl ?
			psprintf("%s IS NULL AND %s IS NOT NULL", v->sql, c->row_ttl) :
			psprintf("%s IS NULL", v->sql);
	if (p->repair_set == NULL && (p->on_null == SSW_NULL_REPAIR || OidIsValid(p->is_alive)))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s needs a way to give a row a new deadline",
						OidIsValid(p->is_alive) ? "is_alive" : "on_null \"repair\""),
				 v->settable ? errdetail("The policy does not define how long a row lives.") :
				 errdetail("%s is not a column that an UPDATE can set.", v->field),
				 v->settable ? errhint("Give ttl.") :
				 errhint("Name a column in %s.", v->field)));
}

/* A policy that is to be filled. */
typedef struct Built
{
	SswPolicy  *policy;
	Relation	rel;
} Built;

static void
build(void *arg)
{
	SswPolicy  *p = ((Built *) arg)->policy;
	Relation	rel = ((Built *) arg)->rel;
	bool		activity = p->last_seen != NULL;
	SswDeadline *c = p->deadlines;
	SswTimeValue v;

	memset(p->deadlines, 0, sizeof(p->deadlines));
	p->ndeadlines = 1;
	p->index_sort = p->too_old = NULL;
	if (p->filter)
		p->filter = ssw_expr_text(rel, ssw_expr_parse(rel, "filter", p->filter), true);
	if (p->left_out)
		p->filter = ssw_time_guarded(p, "false", p->filter ? p->filter : "true");
	v = activity ? ssw_time_resolve(p, rel, "last_seen", &p->last_seen, true) :
		ssw_time_resolve(p, rel, "deadline", &p->deadline, true);
	v.end_of_day = activity;
	ssw_time_interpret(p, rel, &v);
	if (activity && p->ttl_column)
		build_row_ttl(p, rel, c, &v);
	else
		build_constant(c, &v, activity ? p->ttl_us : 0, "$1");
	c->activity = activity || p->heartbeats;
	c->ttl_us = p->ttl_us;
	if (activity)
		c->seen = ssw_time_to_instant(&v);
	else if (p->ttl_column)
		build_row_prolonged(p, rel, c, &v);
	if (p->created)
	{
		SswTimeValue created = ssw_time_resolve(p, rel, "created", &p->created, false);

		created.end_of_day = true;
		ssw_time_interpret(p, rel, &created);
		p->ndeadlines = 2;
		build_constant(&c[1], &created, p->max_age_us, "$2");
		p->too_old = c[1].predicate;
		build_constant(&c[1], &created, p->max_age_us, "$1");
		c[1].absolute = true;
		c[1].seen = c->seen;
	}
	build_key(p, rel);
	build_group(p, rel);
	for (int i = 0; i < p->ncapture; i++)
		(void) ssw_expr_column(rel, "capture", p->capture[i]);
	build_repair(p, &v);
}

/*
 * Fill the fragments of a policy.  Errors are those that a caller of register()
 * should see; the caller holds a lock on rel.  Names of columns and the filter
 * are brought into the form that the fragments use.
 */
void
ssw_deadline_build(SswPolicy *p, Relation rel)
{
	Built		b = {p, rel};

	p->asks_together = OidIsValid(p->is_alive) && get_func_name(p->is_alive) && get_func_rettype(p->is_alive) == BOOLARRAYOID;

	/*
	 * errors show values in the caller's own zone; what is parsed is pinned
	 * there
	 */
	ssw_gate_unpinned(p->owner, p->search_path, build, &b);
}
