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
 * Shares nothing; a crash leaves nothing behind.
 *
 * A date used as deadline means its first instant in the policy's time zone, as
 * in a cast; a date of last activity or creation counts until its end, because
 * the session may have been used until then.  A row's own time to live of zero
 * or less counts as null, one of more than 200 years as 200 years; days in it
 * have 24 hours.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "policy/deadline.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/identity.h"
#include "policy/expr.h"
#include "policy/index.h"
#include "policy/partition.h"
#include "policy/policy.h"
#include "policy/row_key.h"

/* An expression of the policy, not computed for rows that are left out. */
/* Times from here on are as good as infinite: adding 200 years could raise. */
#define LAST_TIME		"294000-01-01"
#define FIRST_TIME		"4713-01-02"
/* the same in seconds after 1970, a little inside */
#define LAST_EPOCH		"9215000000000"
#define FIRST_EPOCH		"-200000000000"

#define MAX_TTL_SECONDS "6307200000"	/* 73,000 days */

#define LE				" OPERATOR(pg_catalog.<=) "
#define PLUS			" OPERATOR(pg_catalog.+) "

/* A column or expression that stands for a time. */
typedef struct TimeValue
{
	const char *field;			/* argument name, for messages */
	char	   *name;			/* column name, or NULL for an expression */
	char	   *sql;
	Oid			type;			/* base type */
	int32		typmod;
	int16		attnum;			/* 0 for an expression */
	bool		builtin;		/* a column of a built-in type, no domain */
	bool		settable;		/* a column that an UPDATE may set */
	bool		end_of_day;		/* a date counts until its end */
	int64		factor;			/* epoch units a second, or 0 */
	char	   *zone;			/* quoted literal, or NULL */
	bool		utc;			/* zone is UTC */
} TimeValue;

/* What asks, with an error, for what a number or a time without a zone means. */
SswDeadlineAsk ssw_deadline_ask_unit = NULL;
SswDeadlineAsk ssw_deadline_ask_zone = NULL;

/* An expression of the policy, not computed for rows that are left out. */
static char *
guarded(const SswPolicy *p, const char *otherwise, const char *sql)
{
	if (p->left_out == NULL)
		return psprintf("(%s)", sql);
	return psprintf("(CASE WHEN %s THEN %s ELSE %s END)", p->left_out, otherwise, sql);
}

static char *
column_sql(const char *name)
{
	return psprintf("t.%s", quote_identifier(name));
}

static char *
interval_sql(int64 us)
{
	return psprintf("'" INT64_FORMAT " microseconds'::interval", us);
}

static char *
add_us(const char *time, int64 us)
{
	return us == 0 ? pstrdup(time) : psprintf("(%s" PLUS "%s)", time, interval_sql(us));
}

static void
set_column(TimeValue *v, Relation rel, AttrNumber attnum)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), attnum - 1);

	v->name = pstrdup(NameStr(att->attname));
	v->sql = column_sql(v->name);
	v->attnum = attnum;
	v->typmod = att->atttypmod;
	v->type = getBaseTypeAndTypmod(att->atttypid, &v->typmod);
	v->builtin = v->type == att->atttypid;
	v->settable = att->attgenerated == '\0' && att->attidentity == '\0';
}

/*
 * Resolve a field: a column of exactly this name, else an expression.  One that
 * turns out to be a column is stored by that column's name from now on.
 */
static TimeValue
resolve(const SswPolicy *p, Relation rel, const char *field, char **text, bool expression_ok)
{
	TimeValue	v = {.field = field};
	AttrNumber	attnum = ssw_expr_find_column(rel, *text);
	Node	   *node;

	if (attnum == InvalidAttrNumber && !expression_ok)
		attnum = ssw_expr_column(rel, field, *text);
	if (attnum == InvalidAttrNumber)
	{
		node = ssw_expr_parse(rel, field, *text);
		if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0)
			attnum = ((Var *) node)->varattno;
		if (attnum <= 0)
		{
			if (!contain_var_clause(node))
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("%s must depend on the row", field),
						 errdetail("%s is the same for every row.", *text),
						 errhint("Use a column, or an expression over columns.")));
			v.sql = guarded(p, "NULL", ssw_expr_text(rel, node, true));
			v.type = getBaseType(exprType(node));
			return v;
		}
	}
	set_column(&v, rel, attnum);
	*text = v.name;
	return v;
}

static void
wrong_type(const TimeValue *v, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("%s must not have type %s", v->field, format_type_be(v->type)),
			 detail ? errdetail("%s", detail) : 0,
			 errhint("Use timestamp with or without time zone, date, or an integer, bigint, numeric or double precision number of seconds, milliseconds or microseconds since 1970.")));
}

/* Digits after the decimal point of a numeric that has a typmod. */
static int
digits_of_numeric(int32 typmod)
{
	return (((typmod - VARHDRSZ) & 0x7ff) ^ 1024) - 1024;
}

static int64
unit_factor(const char *unit)
{
	return strcmp(unit, "s") == 0 ? 1 : strcmp(unit, "ms") == 0 ? 1000 : 1000000;
}

/* Fill in unit or zone; the type says which of them is needed. */
static void
interpret(const SswPolicy *p, Relation rel, TimeValue *v)
{
	switch (v->type)
	{
		case TIMESTAMPTZOID:
			return;
		case TIMESTAMPOID:
		case DATEOID:
			if (p->timezone == NULL)
				ssw_deadline_ask_zone(p, rel, v->field, v->sql, v->type);
			v->zone = quote_literal_cstr(p->timezone);
			v->utc = pg_strcasecmp(p->timezone, "UTC") == 0;
			return;
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case FLOAT8OID:
			if (p->unit == NULL)
				ssw_deadline_ask_unit(p, rel, v->field, v->sql, v->type);
			v->factor = unit_factor(p->unit);
			if (v->type == INT4OID && v->factor > 1)
				wrong_type(v, "It cannot hold milliseconds or microseconds since 1970.");
			if (v->type == NUMERICOID && v->typmod >= VARHDRSZ && digits_of_numeric(v->typmod) < 0)
				wrong_type(v, "It is rounded to tens, or more.");
			return;
		case INT2OID:
			wrong_type(v, "It cannot hold a number of seconds since 1970.");
			return;
		case FLOAT4OID:
			wrong_type(v, "It holds seconds since 1970 only to two minutes.");
			return;
		default:
			wrong_type(v, NULL);
	}
}

/* A number in the type that the value is compared in. */
static char *
number_sql(const TimeValue *v, const char *number)
{
	const char *type = v->type == NUMERICOID ? "numeric" :
	v->type == FLOAT8OID ? "double precision" : "bigint";

	return psprintf("'%s%s'::%s", number,
					v->factor == 1 ? "" : v->factor == 1000 ? "000" : "000000", type);
}

/*
 * The value as timestamptz.  Absurd values become infinite: nothing computed
 * from the result, 200 years added, can raise an error.
 */
static char *
to_instant(const TimeValue *v)
{
	char	   *value = v->sql;

	if (v->factor)
	{
		if (v->factor == 1)
			value = psprintf("%s::double precision", v->sql);
		else
			value = psprintf("(%s::double precision OPERATOR(pg_catalog./) " INT64_FORMAT
							 "::double precision)", v->sql, v->factor);
		return psprintf("(CASE WHEN %s" LE "%s THEN '-infinity'"
						" WHEN %s" LE "%s THEN pg_catalog.to_timestamp(%s)"
						" WHEN %s IS NOT NULL THEN 'infinity'::timestamp with time zone END)",
						v->sql, number_sql(v, FIRST_EPOCH),
						v->sql, number_sql(v, LAST_EPOCH), value, v->sql);
	}
	if (v->type == DATEOID)
	{
		if (v->end_of_day)
			value = psprintf("(%s" PLUS "1)", v->sql);
		return psprintf("(CASE WHEN %s" LE "'" FIRST_TIME " BC'::pg_catalog.date THEN '-infinity'"
						" WHEN %s" LE "'" LAST_TIME "'::pg_catalog.date"
						" THEN (%s::timestamp without time zone AT TIME ZONE %s)"
						" WHEN %s IS NOT NULL THEN 'infinity'::timestamp with time zone END)",
						v->sql, v->sql, value, v->zone, v->sql);
	}
	if (v->type == TIMESTAMPOID)
		return psprintf("(CASE WHEN %s" LE "'" FIRST_TIME " BC'::timestamp without time zone THEN '-infinity'"
						" WHEN %s" LE "'" LAST_TIME "'::timestamp without time zone"
						" THEN (%s AT TIME ZONE %s)"
						" WHEN %s IS NOT NULL THEN 'infinity'::timestamp with time zone END)",
						v->sql, v->sql, v->sql, v->zone, v->sql);
	return psprintf("(CASE WHEN %s" LE "'" LAST_TIME " 00:00:00+00'::timestamp with time zone THEN %s"
					" WHEN %s IS NOT NULL THEN 'infinity'::timestamp with time zone END)",
					v->sql, v->sql, v->sql);
}

/* An instant in the value's own type, clamped to what the type can hold. */
static char *
from_instant(const TimeValue *v, const char *instant)
{
	char	   *epoch;

	if (v->factor)
	{
		epoch = psprintf("EXTRACT(epoch FROM %s)", instant);
		if (v->factor != 1)
			epoch = psprintf("(%s OPERATOR(pg_catalog.*) " INT64_FORMAT "::numeric)", epoch, v->factor);
		if (v->type == INT4OID)
			return psprintf("LEAST(GREATEST(pg_catalog.floor(%s), '-2147483648'::numeric),"
							" '2147483647'::numeric)::integer", epoch);
		if (v->type == INT8OID)
			return psprintf("LEAST(GREATEST(pg_catalog.floor(%s), '-9223372036854775808'::numeric),"
							" '9223372036854775807'::numeric)::bigint", epoch);
		return psprintf("%s::%s", epoch, v->type == NUMERICOID ? "numeric" : "double precision");
	}
	if (v->type == DATEOID)
		return psprintf("(%s AT TIME ZONE %s)::pg_catalog.date", instant, v->zone);
	if (v->type == TIMESTAMPOID)
		return psprintf("(%s AT TIME ZONE %s)", instant, v->zone);
	return pstrdup(instant);
}

/*
 * What to add to a time, so that a column that cannot hold it does not make it
 * earlier.  Integers are made with floor(); other columns round to the nearest.
 */
static int64
rounding_up(const TimeValue *v)
{
	int64		grain = USECS_PER_SEC;
	int			digits;

	switch (v->type)
	{
		case INT4OID:
		case INT8OID:
			return grain / v->factor - 1;
		case NUMERICOID:
			grain /= v->factor;
			digits = v->typmod < (int32) VARHDRSZ ? MAX_TIMESTAMP_PRECISION : digits_of_numeric(v->typmod);
			break;
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			digits = v->typmod < 0 ? MAX_TIMESTAMP_PRECISION : v->typmod;
			break;
		default:
			return 0;
	}
	while (digits-- > 0)
		grain /= 10;
	return Max(grain / 2 - 1, 0);
}

/* SET of the column to an instant, or the next that it can hold: late, never early. */
static char *
set_instant(const TimeValue *v, const char *instant)
{
	/* a date is over as it begins */
	bool		next_day = v->type == DATEOID && !v->end_of_day;

	return psprintf(next_day ? "%s = (%s" PLUS "1)" : "%s = %s", quote_identifier(v->name),
					from_instant(v, add_us(instant, rounding_up(v))));
}

/* A deadline with a constant time to live, or (ttl 0) without one, compared with a parameter. */
static void
build_constant(SswDeadline *c, const TimeValue *v, int64 ttl_us, const char *now)
{
	char	   *cutoff = ttl_us == 0 ? pstrdup(now) :
	psprintf("(%s OPERATOR(pg_catalog.-) %s)", now, interval_sql(ttl_us));

	c->sort = v->sql;
	c->sort_type = v->type;
	c->bound = from_instant(v, cutoff);
	c->by_due = true;
	c->plain = v->builtin;
	c->attnum = v->attnum;
	c->due = v->type == TIMESTAMPTZOID && ttl_us == 0 ? pstrdup(v->sql) :
		add_us(to_instant(v), ttl_us);
	c->predicate = psprintf("%s" LE "%s", c->sort, c->bound);

	/*
	 * In the hour that autumn repeats, the local bound goes back, and rows of
	 * that hour are read as its second turn: late, never early.
	 */
	if (v->type == DATEOID || (v->type == TIMESTAMPOID && !v->utc))
		c->predicate = psprintf("%s AND %s" LE "%s", c->predicate, c->due, now);
}

/* The row's own time to live. */
typedef struct RowTtl
{
	char	   *column;			/* t.column */
	Oid			type;
	int64		factor;			/* its units a second; 0 for an interval */
	int64		default_us;		/* where it is null; 0 for none */
} RowTtl;

static RowTtl
resolve_row_ttl(const SswPolicy *p, Relation rel, const TimeValue *v)
{
	AttrNumber	attnum = ssw_expr_column(rel, "ttl_column", p->ttl_column);
	RowTtl		r = {.column = column_sql(p->ttl_column),.default_us = p->ttl_us};

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
			r.factor = p->unit && v->factor == 0 ? unit_factor(p->unit) : 1;
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
		return psprintf("COALESCE(%s, %s)", sql, interval_sql(r->default_us));
	return psprintf("(%s)", sql);
}

/*
 * The expression to index by for rows with their own time to live: immutable,
 * and as plain as a user would write it.  An index on it has computed it for
 * every row, so it cannot raise in a sweep either.  NULL: there is none.
 */
static char *
row_ttl_sort(const TimeValue *v, const RowTtl *r, Oid *type, char **bound)
{
	char	   *ttl = r->column;
	char	   *base = v->sql;

	if (v->type == DATEOID)
		return NULL;
	if (v->factor)
	{
		TimeValue	number = {.type = NUMERICOID,.factor = v->factor};

		if (r->factor == 0)
			return NULL;
		ttl = psprintf("%s::numeric", ttl);
		if (r->default_us)
			ttl = psprintf("COALESCE(%s, %s)", ttl,
						   psprintf("'" INT64_FORMAT ".%06d'::numeric", r->default_us / USECS_PER_SEC,
									(int) (r->default_us % USECS_PER_SEC)));
		if (v->factor != 1)
			ttl = psprintf("(%s OPERATOR(pg_catalog.*) " INT64_FORMAT "::numeric)", ttl, v->factor);
		*type = NUMERICOID;
		*bound = from_instant(&number, "$1");
		return psprintf("(%s::numeric" PLUS "%s)", v->sql, ttl);
	}
	if (r->factor)
		ttl = psprintf("pg_catalog.make_interval(secs => %s)", row_ttl_seconds(r));
	if (r->default_us)
		ttl = psprintf("COALESCE(%s, %s)", ttl, interval_sql(r->default_us));
	if (v->type == TIMESTAMPTZOID)
		base = psprintf("(%s AT TIME ZONE 'UTC')", v->sql);
	else if (!v->utc)
		base = psprintf("((%s AT TIME ZONE %s) AT TIME ZONE 'UTC')", v->sql, v->zone);
	*type = TIMESTAMPOID;
	*bound = pstrdup("($1 AT TIME ZONE 'UTC')");
	return psprintf("(%s" PLUS "%s)", base, ttl);
}

/*
 * Fill the deadline of rows that have their own time to live.  With an index on the sum the
 * range is exact; without, it is all rows last seen before the cutoff.
 */
static void
build_row_ttl(SswPolicy *p, Relation rel, SswDeadline *c, const TimeValue *v)
{
	RowTtl		r = resolve_row_ttl(p, rel, v);
	Oid			type = InvalidOid;
	char	   *bound = NULL;
	char	   *sort = row_ttl_sort(v, &r, &type, &bound);

	build_constant(c, v, 0, "$1");
	c->by_due = false;
	c->row_ttl = row_ttl_interval(&r);
	c->due = psprintf("(((%s AT TIME ZONE 'UTC')" PLUS "%s) AT TIME ZONE 'UTC')",
					  to_instant(v), c->row_ttl);
	if (sort && !ssw_expr_immutable(ssw_expr_parse(rel, v->field, sort)))
		sort = NULL;
	p->index_sort = sort;
	if (sort && OidIsValid(ssw_index_find(rel, sort, p->filter)))
	{
		c->sort = sort;
		c->sort_type = type;
		c->bound = bound;
		c->by_due = true;
		c->plain = false;
		c->attnum = 0;
	}
	c->predicate = psprintf("%s" LE "%s AND %s" LE "$1", c->sort, c->bound, c->due);
}

/* A deadline that activity puts off by the row's own time to live. */
static void
build_row_prolonged(const SswPolicy *p, Relation rel, SswDeadline *c, const TimeValue *v)
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
	AttrNumber	attnum = InvalidAttrNumber;

	p->group_text = NULL;
	if (p->group_by == NULL)
		return;
	attnum = ssw_expr_find_column(rel, p->group_by);
	if (attnum == InvalidAttrNumber)
	{
		node = ssw_expr_parse(rel, "group_by", p->group_by);
		if (IsA(node, Var) && ((Var *) node)->varlevelsup == 0 && ((Var *) node)->varattno > 0)
			attnum = ((Var *) node)->varattno;
		else
			p->group_text = psprintf("%s::pg_catalog.text", guarded(p, "NULL", ssw_expr_text(rel, node, true)));
	}
	if (attnum > 0)
	{
		p->group_by = pstrdup(NameStr(TupleDescAttr(RelationGetDescr(rel), attnum - 1)->attname));
		p->group_text = psprintf("%s::pg_catalog.text", column_sql(p->group_by));
	}
}

/* What to do with rows without a deadline, and how to prolong the others. */
static void
build_repair(SswPolicy *p, const TimeValue *v)
{
	SswDeadline *c = &p->deadlines[0];
	char	   *until = NULL;

	p->null_predicate = NULL;
	p->repair_set = p->prolong_set = NULL;
	if (p->last_seen)
		until = "$5";
	else if (c->row_ttl)
		until = psprintf("($5" PLUS "%s)", c->row_ttl);
	else if (p->ttl_us)
		until = add_us("$5", p->ttl_us);
	if (p->heartbeats && v->settable)
		p->prolong_set = psprintf("%s%s", set_instant(v, p->last_seen ? "ssw_b.ssw_seen" : "ssw_b.ssw_until"),
								  p->registry ? ", last_seen_at = ssw_b.ssw_seen" : "");
	if (until && v->settable)
		p->repair_set = set_instant(v, until);
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
				 v->settable ? errdetail("Nothing says how long a row lives.") :
				 errdetail("%s is no column that an UPDATE can set.", v->field),
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
	TimeValue	v;

	memset(p->deadlines, 0, sizeof(p->deadlines));
	p->ndeadlines = 1;
	p->index_sort = p->too_old = NULL;
	if (p->filter)
		p->filter = ssw_expr_text(rel, ssw_expr_parse_boolean(rel, "filter", p->filter), true);
	if (p->left_out)
		p->filter = guarded(p, "false", p->filter ? p->filter : "true");
	v = activity ? resolve(p, rel, "last_seen", &p->last_seen, true) :
		resolve(p, rel, "deadline", &p->deadline, true);
	v.end_of_day = activity;
	interpret(p, rel, &v);
	if (activity && p->ttl_column)
		build_row_ttl(p, rel, c, &v);
	else
		build_constant(c, &v, activity ? p->ttl_us : 0, "$1");
	c->activity = activity || p->heartbeats;
	c->ttl_us = p->ttl_us;
	if (activity)
		c->seen = to_instant(&v);
	else if (p->ttl_column)
		build_row_prolonged(p, rel, c, &v);
	if (p->created)
	{
		TimeValue	created = resolve(p, rel, "created", &p->created, false);

		created.end_of_day = true;
		interpret(p, rel, &created);
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
	/* a comment at its end must not reach what follows */
	if (p->set_clause)
		p->set_clause = psprintf("%s\n", p->set_clause);
	ssw_partition_build(p, rel);
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

	/*
	 * errors show values in the caller's own zone; what is parsed is pinned
	 * there
	 */
	ssw_gate_unpinned(p->owner, p->search_path, build, &b);
}
