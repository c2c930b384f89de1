/*
 * argument_checks.c
 *		Checks that arguments of functions share.
 *
 * Runs in the session that calls one.  Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "mb/pg_wchar.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"

/* Longer intervals could leave the range of timestamps. */
#define MAX_INTERVAL_DAYS	73000

/* ereport when an argument that is kept is longer than so many bytes. */
void
ssw_argument_bound(FunctionCallInfo fcinfo, int arg, const char *name, int most)
{
	if (!PG_ARGISNULL(arg) && toast_raw_datum_size(PG_GETARG_DATUM(arg)) - VARHDRSZ > most)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("%s must not be longer than %d bytes", name, most)));
}

/*
 * ereport when a name has control characters.  Others read it in a terminal and paste it
 * there, with the next step of a view: to a terminal such a character is a key or a command.
 */
void
ssw_argument_printable(const char *name, int len, const char *what, const char *argument)
{
	int			encoding = GetDatabaseEncoding();

	for (const char *c = name; c < name + len; c += pg_encoding_mblen(encoding, c))
		if (pg_encoding_dsplen(encoding, c) < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must not contain control characters", what),
					 errhint("Give a name without line breaks, tabs and the like: %s => '...'.", argument)));
}

/* ereport when an argument is null. */
void
ssw_argument_not_null(FunctionCallInfo fcinfo, int arg, const char *name)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", name)));
}

/* The elements of an array, and how many; ereport when it, or one of them, is null. */
int
ssw_argument_elements(FunctionCallInfo fcinfo, int arg, const char *name, Oid type, Datum **elems)
{
	ArrayType  *array;
	int16		len;
	bool		byval;
	char		align;
	int			n;

	ssw_argument_not_null(fcinfo, arg, name);
	array = PG_GETARG_ARRAYTYPE_P(arg);
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not contain nulls", name)));
	get_typlenbyvalalign(type, &len, &byval, &align);
	deconstruct_array(array, type, len, byval, align, elems, NULL, &n);
	return n;
}

/* if_exists: false for "error", true for "alter". */
bool
ssw_argument_or_alter(FunctionCallInfo fcinfo, int arg)
{
	char	   *word;

	ssw_argument_not_null(fcinfo, arg, "if_exists");
	word = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	if (strcmp(word, "error") != 0 && strcmp(word, "alter") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown if_exists \"%s\"", word),
				 errhint("Use \"error\" or \"alter\".")));
	return strcmp(word, "alter") == 0;
}

/* So many microseconds; a day is 24 hours. */
Datum
ssw_interval_of(int64 us)
{
	Interval   *i = palloc0(sizeof(Interval));

	i->time = us;
	return IntervalPGetDatum(i);
}

/* An interval in microseconds, from min to some 200 years. */
int64
ssw_argument_interval(const char *name, const Interval *v, int64 min)
{
	int64		us = v->time;

	if (v->month != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not contain months or years", name),
				 errdetail("Their length varies."),
				 errhint("Give days, hours or less; a day is 24 hours.")));
	if (v->day > MAX_INTERVAL_DAYS || v->day < -MAX_INTERVAL_DAYS ||
		us / USECS_PER_DAY > MAX_INTERVAL_DAYS || us / USECS_PER_DAY < -MAX_INTERVAL_DAYS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be longer than %d days", name, MAX_INTERVAL_DAYS)));
	us += (int64) v->day * USECS_PER_DAY;
	if (us < min)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 min > 0 ? errmsg("%s must be at least " INT64_FORMAT " ms", name, min / 1000) :
				 errmsg("%s must not be negative", name)));
	return us;
}

/* A number within its limits. */
int64
ssw_argument_number(const char *name, int64 v, int64 min, int64 max)
{
	if (v < min || v > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 max == PG_INT64_MAX ? errmsg("%s must not be negative", name) :
				 errmsg("%s must be between " INT64_FORMAT " and " INT64_FORMAT, name, min, max)));
	return v;
}
