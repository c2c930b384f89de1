/*
 * columns.c
 *		The columns that a policy names, by the names that they have now.
 *
 * Runs in every session and process that reads a policy.  The policy's row has
 * the number of each column, by the name that it had when that was written; a
 * number below 0 says that an expression still names the column so, although it
 * has another name, which must be known where a dump is restored, too.  Fields
 * that are columns follow them.  Reads catalogs only; shares nothing, and a
 * crash leaves nothing behind.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/pg_attribute.h"
#include "port/pg_bitutils.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/numeric.h"
#include "utils/syscache.h"

#include "columns.h"

static int
number_of(const JsonbValue *v)
{
	return v && v->type == jbvNumeric ? DatumGetInt32(DirectFunctionCall1(numeric_int4, NumericGetDatum(v->val.numeric))) : 0;
}

/* The number that is on record for the name, or 0. */
int
ssw_columns_number(const SswColumns *c, const char *name)
{
	JsonbValue	key;

	if (c->numbers == NULL)
		return 0;
	key.type = jbvString;
	key.val.string.val = unconstify(char *, name);
	key.val.string.len = strlen(name);
	return number_of(findJsonbValueFromContainer(&c->numbers->root, JB_FOBJECT, &key));
}

/* The name that the column of that number has now, or null when it is gone. */
char	   *
ssw_columns_name(Oid relid, int number)
{
	HeapTuple	tup = SearchSysCacheAttNum(relid, abs(number));
	char	   *name;

	if (!HeapTupleIsValid(tup))
		return NULL;
	name = pstrdup(NameStr(((Form_pg_attribute) GETSTRUCT(tup))->attname));
	ReleaseSysCache(tup);
	return name;
}

/* What the policy's field names is another column's name now, or nothing's. */
static void
note_stale(SswColumns *c, int field, const char *name, const char *now)
{
	/* in the order of the bits in stale */
	static const char *const fields[] = {"filter", "set_clause", "deadline", "last_seen", "ttl_column", "created", "group_by", "key", "capture"};

	c->stale |= field;
	c->renamed = psprintf("column \"%s\", which %s names, is %s", name, fields[pg_rightmost_one_pos32(field)],
						  now ? psprintf("\"%s\" now", now) : "gone");
}

/* Today's name of the column that the field, one bit of SSW_STALE_, names; what is no column, as it is. */
char	   *
ssw_columns_follow(SswColumns *c, char *name, int field)
{
	int			number = name ? ssw_columns_number(c, name) : 0;
	char	   *now;

	if (number == 0)
		return name;
	/* a restored policy's, of which nobody can tell which one it was */
	if (abs(number) > MaxHeapAttributeNumber)
		note_stale(c, field, name, NULL);
	now = ssw_columns_name(c->relid, number);
	/* the one that took its place and its name is followed from now on */
	if (now == NULL && get_attnum(c->relid, name) != InvalidAttrNumber)
		now = name;
	else if (now == NULL || strcmp(now, name) == 0)
		return name;
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
 * Expressions are text, in which a name may stand for another column by now.  One that
 * is the name of a column, and nothing else, is none.  The fields are those that may be
 * expressions, in the order of their bits.
 */
void
ssw_columns_check(SswColumns *c, const char *const *fields, int n)
{
	JsonbIterator *it = JsonbIteratorInit(&c->numbers->root);
	JsonbIteratorToken token;
	JsonbValue	v;
	char	   *name = NULL;

	while ((token = JsonbIteratorNext(&it, &v, false)) != WJB_DONE)
	{
		int			number = token == WJB_VALUE ? number_of(&v) : 0;
		char	   *now;

		if (token == WJB_KEY)
			name = pnstrdup(v.val.string.val, v.val.string.len);
		if (number == 0)
			continue;
		now = ssw_columns_name(c->relid, number);
		if (now && strcmp(now, name) == 0)
		{
			/* it has the name again */
			if (number < 0)
				c->followed = c->untold = true;
			continue;
		}
		for (int i = 0; i < n; i++)
			if (fields[i] && mentions(fields[i], name) && !(1 << i >= SSW_STALE_DEADLINE && ssw_columns_number(c, fields[i]) != 0))
			{
				note_stale(c, 1 << i, name, now);
				c->untold = c->untold || number > 0;
			}
	}
}
