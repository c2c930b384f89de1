/*
 * time_value.c
 *		A column or expression that stands for a time, as SQL: its instant, and an
 *		instant in its own type.
 *
 * Runs in any process that validates or uses a policy, in a transaction, with a lock on
 * the relation, inside of the gate.  Shares nothing; a crash leaves nothing behind.
 *
 * A date used as deadline means its first instant in the policy's time zone, as in a
 * cast; a date of last activity or creation counts until its end, because the session
 * may have been used until then.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/nodeFuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "policy/expr.h"
#include "policy/time_value.h"

/* Times from here on are as good as infinite: adding 200 years could raise. */
#define LAST_TIME		"294000-01-01"
#define FIRST_TIME		"4713-01-02"
/* the same in seconds after 1970, a little inside */
#define LAST_EPOCH		"9215000000000"
#define FIRST_EPOCH		"-200000000000"


/* What asks, with an error, for what a number or a time without a zone means. */
SswTimeAsk	ssw_time_ask = NULL;

/* An expression of the policy, not computed for rows that are left out. */
char	   *
ssw_time_guarded(const SswPolicy *p, const char *otherwise, const char *sql)
{
	if (p->left_out == NULL)
		return psprintf("(%s)", sql);
	return psprintf("(CASE WHEN %s THEN %s ELSE %s END)", p->left_out, otherwise, sql);
}

char	   *
ssw_time_column(const char *name)
{
	return psprintf("t.%s", quote_identifier(name));
}

char	   *
ssw_time_interval(int64 us)
{
	return psprintf("'" INT64_FORMAT " microseconds'::interval", us);
}

char	   *
ssw_time_add(const char *time, int64 us)
{
	return us == 0 ? pstrdup(time) : psprintf("(%s" SSW_PLUS "%s)", time, ssw_time_interval(us));
}

static void
set_column(SswTimeValue *v, Relation rel, AttrNumber attnum)
{
	Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), attnum - 1);

	v->name = pstrdup(NameStr(att->attname));
	v->sql = ssw_time_column(v->name);
	v->attnum = attnum;
	v->typmod = att->atttypmod;
	v->type = getBaseTypeAndTypmod(att->atttypid, &v->typmod);
	v->settable = att->attgenerated == '\0' && att->attidentity == '\0';
}

/*
 * Resolve a field: a column of exactly this name, else an expression.  One that
 * turns out to be a column is stored by that column's name from now on.
 */
SswTimeValue
ssw_time_resolve(const SswPolicy *p, Relation rel, const char *field, char **text, bool expression_ok)
{
	SswTimeValue v = {.field = field,.typmod = -1};
	Node	   *node = expression_ok ? ssw_expr_parse(rel, field, *text) : NULL;
	AttrNumber	attnum = node ? ssw_expr_as_column(node) : ssw_expr_column(rel, field, *text);

	if (attnum == InvalidAttrNumber)
	{
		v.sql = ssw_time_guarded(p, "NULL", ssw_expr_text(rel, node, true));
		v.type = getBaseType(exprType(node));
		return v;
	}
	set_column(&v, rel, attnum);
	*text = v.name;
	return v;
}

static void
wrong_type(const SswTimeValue *v)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATATYPE_MISMATCH),
			 errmsg("%s must not have type %s", v->field, format_type_with_typemod(v->type, v->typmod)),
			 errhint("Use timestamp with or without time zone, date, or the time since 1970 as bigint, numeric or double precision in seconds, milliseconds or microseconds, or as integer in seconds.")));
}

/* Digits after the decimal point of a numeric that has a typmod. */
static int
digits_of_numeric(int32 typmod)
{
	return (((typmod - VARHDRSZ) & 0x7ff) ^ 1024) - 1024;
}

int64
ssw_time_unit_factor(const char *unit)
{
	return strcmp(unit, "s") == 0 ? 1 : strcmp(unit, "ms") == 0 ? 1000 : 1000000;
}

/* Fill in unit or zone; the type says which of them is needed. */
void
ssw_time_interpret(const SswPolicy *p, Relation rel, SswTimeValue *v)
{
	switch (v->type)
	{
		case TIMESTAMPTZOID:
			return;
		case TIMESTAMPOID:
		case DATEOID:
			if (p->timezone == NULL)
				ssw_time_ask(p, rel, v);
			v->zone = quote_literal_cstr(p->timezone);
			v->utc = pg_strcasecmp(p->timezone, "UTC") == 0;
			return;
		case INT4OID:
		case INT8OID:
		case NUMERICOID:
		case FLOAT8OID:
			if (p->unit == NULL)
				ssw_time_ask(p, rel, v);
			v->factor = ssw_time_unit_factor(p->unit);
			if ((v->type == INT4OID && v->factor > 1) ||
				(v->type == NUMERICOID && v->typmod >= (int32) VARHDRSZ && digits_of_numeric(v->typmod) < 0))
				wrong_type(v);
			return;
		default:
			wrong_type(v);
	}
}

/* A number in the type that the value is compared in. */
static char *
number_sql(const SswTimeValue *v, const char *number)
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
char	   *
ssw_time_to_instant(const SswTimeValue *v)
{
	char	   *first = NULL;	/* at or before it: -infinity; null: the type
								 * has that itself */
	char	   *last;			/* after it: infinity */
	char	   *instant = v->sql;

	if (v->factor)
	{
		first = number_sql(v, FIRST_EPOCH);
		last = number_sql(v, LAST_EPOCH);
		instant = psprintf("pg_catalog.to_timestamp(%s::double precision OPERATOR(pg_catalog./) " INT64_FORMAT "::double precision)",
						   v->sql, v->factor);
	}
	else if (v->type == TIMESTAMPTZOID)
		last = pstrdup("'" LAST_TIME " 00:00:00+00'::timestamp with time zone");
	else
	{
		const char *type = v->type == DATEOID ? "pg_catalog.date" : "timestamp without time zone";

		first = psprintf("'" FIRST_TIME " BC'::%s", type);
		last = psprintf("'" LAST_TIME "'::%s", type);
		instant = psprintf(v->type == TIMESTAMPOID ? "(%s AT TIME ZONE %s)" :
						   v->end_of_day ? "((%s" SSW_PLUS "1)::timestamp without time zone AT TIME ZONE %s)" :
						   "(%s::timestamp without time zone AT TIME ZONE %s)", v->sql, v->zone);
	}
	return psprintf("(CASE%s WHEN %s" SSW_LE "%s THEN %s WHEN %s IS NOT NULL THEN 'infinity'::timestamp with time zone END)",
					first ? psprintf(" WHEN %s" SSW_LE "%s THEN '-infinity'", v->sql, first) : "",
					v->sql, last, instant, v->sql);
}

/* An instant in the value's own type, clamped to what the type can hold. */
char	   *
ssw_time_from_instant(const SswTimeValue *v, const char *instant)
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
rounding_up(const SswTimeValue *v)
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
char	   *
ssw_time_set(const SswTimeValue *v, const char *instant)
{
	/* a date is over as it begins */
	bool		next_day = v->type == DATEOID && !v->end_of_day;

	return psprintf(next_day ? "%s = (%s" SSW_PLUS "1)" : "%s = %s", quote_identifier(v->name),
					ssw_time_from_instant(v, ssw_time_add(instant, rounding_up(v))));
}
