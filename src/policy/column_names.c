/*
 * column_names.c
 *		The columns that a policy names, by the names that they have now.
 *
 * Runs in every session and process that reads a policy.  The policy's row has
 * the number of each column, by the name that it had when the row was written.  Fields
 * that are columns follow them.  An expression does not: when a column that it names
 * has another name, or is gone, the policy is broken.  Which expressions name a column
 * stands beside its number (ssw_columns_record()).  A number below 0 says that they
 * still do, although the name is another column's now: a restored dump must know that,
 * too.  Reads catalogs only; shares nothing, and a crash leaves nothing behind.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/pg_attribute.h"
#include "lib/stringinfo.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/syscache.h"

#include "policy/column_names.h"

/* A recorded number is the column's, plus this times the bits of the expressions that name it. */
#define FIELD_UNIT	2048

const char *const ssw_columns_fields[SSW_STALE_FIELDS] = {
	"filter", "set_clause", "deadline", "last_seen", "ttl_column", "created", "group_by", "key", "capture"
};

static int
number_of(const JsonbValue *v)
{
	return v && v->type == jbvNumeric ? DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(v->val.numeric))) : 0;
}

/* The recorded number of the name, or 0; below 0: see above. */
static int
recorded_number(const SswColumns *c, const char *name)
{
	JsonbValue	key;
	int			number;

	if (c->numbers == NULL)
		return 0;
	key.type = jbvString;
	key.val.string.val = unconstify(char *, name);
	key.val.string.len = strlen(name);
	number = number_of(findJsonbValueFromContainer(&c->numbers->root, JB_FOBJECT, &key));
	return number < 0 ? -(-number % FIELD_UNIT) : number % FIELD_UNIT;
}

/* The name that the column of that number has now, or null when it is gone. */
static char *
present_name(Oid relid, int number)
{
	HeapTuple	tup = SearchSysCacheAttNum(relid, abs(number));
	char	   *name;

	if (!HeapTupleIsValid(tup))
		return NULL;
	name = pstrdup(NameStr(((Form_pg_attribute) GETSTRUCT(tup))->attname));
	ReleaseSysCache(tup);
	return name;
}

/* What fields of the policy name is another column's name now, or nothing's. */
static void
note_stale(SswColumns *c, int field, const char *name, const char *now)
{
	c->stale |= field;
	if (now == NULL)
		c->gone |= field;
	c->renamed = psprintf("column \"%s\", which %s names, was %s", name, ssw_columns_fields[pg_rightmost_one_pos32(field)],
						  now ? psprintf("renamed to \"%s\"", now) : "dropped");
}

/* Today's name of the column that the field, one bit of SSW_STALE_, names; what is no column, as it is. */
char	   *
ssw_columns_follow(SswColumns *c, char *name, int field)
{
	int			number = name ? recorded_number(c, name) : 0;
	char	   *now;

	if (number == 0)
		return name;
	/* a restored policy's: which column it was is not known */
	if (abs(number) > MaxHeapAttributeNumber)
		note_stale(c, field, name, NULL);
	now = present_name(c->relid, number);
	if (now && strcmp(now, name) == 0)
		return name;
	if (now == NULL && get_attnum(c->relid, name) == InvalidAttrNumber)
	{
		note_stale(c, field, name, NULL);
		return name;
	}
	/* a column that took the place and the name of the old one is followed */
	if (now == NULL)
		now = name;
	c->followed = true;
	c->untold = c->untold || number > 0;
	return now;
}

/* Does an expression name the column?  Rather once too often than not. */
static bool
mentions(const char *text, const char *name)
{
	int			len = strlen(name);

	for (const char *s = text; s && *s; s++)
		if (pg_strncasecmp(s, name, len) == 0 &&
			(s == text ||!(isalnum((unsigned char) s[-1]) || s[-1] == '_' || s[-1] == '$')) &&
			!(isalnum((unsigned char) s[len]) || s[len] == '_' || s[len] == '$'))
			return true;
	return false;
}

/*
 * What is recorded of a relation's columns, as JSON.  The fields are those that may be
 * expressions, in the order of their bits; one that is the name of a column is none.
 */
char	   *
ssw_columns_record(TupleDesc desc, Oid relid, const char *const *fields, int n)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute a = TupleDescAttr(desc, i);
		int			bits = 0;

		if (a->attisdropped)
			continue;
		for (int f = 0; f < n; f++)
			if (mentions(fields[f], NameStr(a->attname)) &&
				!(1 << f >= SSW_STALE_DEADLINE && get_attnum(relid, fields[f]) != InvalidAttrNumber))
				bits |= 1 << f;
		appendStringInfoString(&buf, buf.len ? ", " : "{");
		escape_json(&buf, NameStr(a->attname));
		appendStringInfo(&buf, ": %d", a->attnum + FIELD_UNIT * bits);
	}
	appendStringInfoString(&buf, buf.len ? "}" : "{}");
	return buf.data;
}

/* Expressions are text: a name in one may be another column's now. */
void
ssw_columns_check(SswColumns *c)
{
	JsonbIterator *it = JsonbIteratorInit(&c->numbers->root);
	JsonbIteratorToken token;
	JsonbValue	v;
	char	   *name = NULL;

	while ((token = JsonbIteratorNext(&it, &v, false)) != WJB_DONE)
	{
		int			number = token == WJB_VALUE ? number_of(&v) : 0;
		int			bits = abs(number) / FIELD_UNIT;
		char	   *now;

		if (token == WJB_KEY)
			name = pnstrdup(v.val.string.val, v.val.string.len);
		if (number == 0)
			continue;
		now = present_name(c->relid, abs(number) % FIELD_UNIT);
		if (now && strcmp(now, name) == 0)
		{
			/* it has the name again */
			if (number < 0)
				c->followed = c->untold = true;
			continue;
		}
		if (bits == 0)
			continue;
		note_stale(c, bits, name, now);
		c->untold = c->untold || number > 0;
	}
}
