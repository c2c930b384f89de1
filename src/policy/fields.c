/*
 * fields.c
 *		The kinds of fields that a policy has: their types, and how a value becomes
 *		a member of SswPolicy.
 *
 * Runs in every process that reads or writes policies.  Shares nothing; a crash leaves
 * nothing behind.
 */
#include "postgres.h"

#include <limits.h>

#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "policy/fields.h"

/* The type of the argument; its column has the same, but oid for a function. */
Oid
ssw_field_type(const SswField *f)
{
	static const Oid types[] = {
		[SSW_FIELD_TEXT] = TEXTOID,[SSW_FIELD_WORD] = TEXTOID,[SSW_FIELD_NAMES] = TEXTARRAYOID,
		[SSW_FIELD_INTERVAL] = INTERVALOID,[SSW_FIELD_MILLISECONDS] = INTERVALOID,[SSW_FIELD_INT] = INT4OID,
		[SSW_FIELD_REAL] = FLOAT4OID,[SSW_FIELD_BOOL] = BOOLOID,[SSW_FIELD_FUNCTION] = REGPROCEDUREOID
	};

	return types[f->kind];
}

static int
word_index(const char *const *words, const char *value)
{
	for (int i = 0; words[i]; i++)
		if (strcmp(value, words[i]) == 0)
			return i;
	elog(ERROR, "unexpected value \"%s\" in sweeper.policy", value);
	return 0;
}

static char **
names_of(Datum value, int *n)
{
	Datum	   *elems;
	char	  **names;

	deconstruct_array(DatumGetArrayTypeP(value), TEXTOID, -1, false, TYPALIGN_INT, &elems, NULL, n);
	names = palloc0((*n + 1) * sizeof(char *));
	for (int i = 0; i < *n; i++)
		names[i] = TextDatumGetCString(elems[i]);
	return names;
}

/* Set the member to a value that has been checked; a null leaves it 0.  Texts are in CurrentMemoryContext. */
void
ssw_field_set(void *policy, const SswField *f, Datum value, bool isnull)
{
	void	   *member = (char *) policy + f->offset;
	int64		us;

	if (isnull)
		return;
	switch (f->kind)
	{
		case SSW_FIELD_TEXT:
			*(char **) member = TextDatumGetCString(value);
			break;
		case SSW_FIELD_WORD:
			*(int *) member = word_index(f->words, TextDatumGetCString(value));
			break;
		case SSW_FIELD_NAMES:
			*(char ***) member = names_of(value, (int *) ((char *) policy + f->count));
			break;
		case SSW_FIELD_INTERVAL:
		case SSW_FIELD_MILLISECONDS:
			us = DatumGetIntervalP(value)->time + (int64) DatumGetIntervalP(value)->day * USECS_PER_DAY;
			if (f->kind == SSW_FIELD_INTERVAL)
				*(int64 *) member = us;
			else
				*(int *) member = Min(Max(1, us / 1000), INT_MAX);
			break;
		case SSW_FIELD_INT:
			*(int *) member = DatumGetInt32(value);
			break;
		case SSW_FIELD_REAL:
			*(float4 *) member = DatumGetFloat4(value);
			break;
		case SSW_FIELD_BOOL:
			*(bool *) member = DatumGetBool(value);
			break;
		case SSW_FIELD_FUNCTION:
			*(Oid *) member = DatumGetObjectId(value);
			break;
	}
}
