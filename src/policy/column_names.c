/*
 * column_names.c
 *		The columns that a policy names, by the names that they have now.
 *
 * Runs in every session and process that reads a policy.  The policy's row has the names
 * that all columns of its relation had when it was written, in the order of their
 * numbers.  Fields that are columns follow their column.  An expression does not: when a
 * column that it names has another name now, or is gone, the policy is broken.
 * Reads catalogs only; shares nothing, and a crash leaves nothing behind.
 */
#include "postgres.h"

#include <ctype.h>

#include "access/htup_details.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "policy/column_names.h"
#include "policy/register_arguments.h"

/* A column that has another name now. */
typedef struct Renamed
{
	char	   *was;
	char	   *now;			/* null: it is gone */
} Renamed;

/* The name that the column of that number has now, or null when it is gone. */
static char *
present_name(Oid relid, int number)
{
	HeapTuple	tup = SearchSysCacheAttNum(relid, number);
	char	   *name;

	if (!HeapTupleIsValid(tup))
		return NULL;
	name = pstrdup(NameStr(((Form_pg_attribute) GETSTRUCT(tup))->attname));
	ReleaseSysCache(tup);
	return name;
}

/*
 * The columns whose names have changed since.  A column that was dropped, and made again
 * under its name, has not changed.
 */
static List *
find_renamed(SswPolicy *p, ArrayType *columns)
{
	List	   *renamed = NIL;
	Datum	   *elems;
	int			n;

	deconstruct_array(columns, TEXTOID, -1, false, TYPALIGN_INT, &elems, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *was = TextDatumGetCString(elems[i]);
		char	   *now = present_name(p->relid, i + 1);
		Renamed    *r;

		/* one that had been dropped before is empty */
		if (was[0] == '\0' || (now && strcmp(was, now) == 0))
		{
			/* there may be many, in memory that stays */
			pfree(was);
			if (now)
				pfree(now);
			continue;
		}
		p->columns_changed = true;
		if (now == NULL && get_attnum(p->relid, was) != InvalidAttrNumber)
			continue;
		r = palloc(sizeof(Renamed));
		r->was = was;
		r->now = now;
		renamed = lappend(renamed, r);
	}
	return renamed;
}

/* An argument of the policy names such a column, and nobody has said what it means now. */
static void
note_stale(SswPolicy *p, int arg, const Renamed *r)
{
	p->stale |= UINT64CONST(1) << arg;
	if (p->stale_detail)
		return;
	p->stale_detail = psprintf("column \"%s\", which %s names, was %s", r->was, ssw_fields[arg].name,
							   r->now ? psprintf("renamed to \"%s\"", r->now) : "dropped");
}

/*
 * Does an expression name the column?  Rather once too often than not, as in a string or
 * a comment.  It is not parsed: an error of one policy's text would stop the reader of all.
 */
static bool
mentions(const char *text, const char *name)
{
	int			len = strlen(name);

	/* it may be written in other ways */
	if (strchr(name, '"') || strstr(text, "U&\"") || strstr(text, "u&\""))
		return true;

	for (const char *s = text; *s; s++)
		if (pg_strncasecmp(s, name, len) == 0 &&
			(s == text ||!(isalnum((unsigned char) s[-1]) || s[-1] == '_' || s[-1] == '$')) &&
			!(isalnum((unsigned char) s[len]) || s[len] == '_' || s[len] == '$'))
			return true;
	return false;
}

/* Replace the text by today's name where it is a column; where it is an expression, note what it names. */
static void
follow(SswPolicy *p, int arg, char **text, List *renamed)
{
	ListCell   *lc;

	foreach(lc, renamed)
	{
		const Renamed *r = lfirst(lc);

		if (strcmp(*text, r->was) == 0)
		{
			if (r->now)
				*text = r->now;
			else
				note_stale(p, arg, r);
			return;
		}
	}
	/* a column that has kept its name is no expression */
	if (get_attnum(p->relid, *text) != InvalidAttrNumber)
		return;
	foreach(lc, renamed)
		if (mentions(*text, ((Renamed *) lfirst(lc))->was))
		note_stale(p, arg, lfirst(lc));
}

/* Bring a policy that was just read up to date with the columns that its row had. */
void
ssw_columns_follow(SswPolicy *p, ArrayType *columns)
{
	List	   *renamed = find_renamed(p, columns);

	for (int i = 0; i < SSW_NARGS && renamed != NIL; i++)
	{
		const SswField *f = &ssw_fields[i];
		char	  **text = (char **) ((char *) p + f->offset);

		if (!(f->flags & SSW_FIELD_COLUMNS))
			continue;
		if (f->kind == SSW_FIELD_NAMES)
			for (int j = 0; j < *(int *) ((char *) p + f->count); j++)
				follow(p, i, &((char **) *text)[j], renamed);
		else if (*text)
			follow(p, i, text, renamed);
	}
}
