/*
 * register_arguments.c
 *		The table of arguments of register(): their kinds and types, and how a value
 *		becomes a member of SswPolicy.
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

#include "policy/policy_struct.h"
#include "policy/register_arguments.h"

static const char *const units[] = {"s", "ms", "us", NULL};
static const char *const on_nulls[] = {"ignore", "repair", "expire", NULL};
static const char *const actions[] = {"delete", "update", "call", NULL};
static const char *const audits[] = {"row", "hash", "count", "none", NULL};

#define DEADLINE	SSW_FIELD_DEADLINE
#define LIMIT		SSW_FIELD_LIMIT
#define RESOLVED	SSW_FIELD_RESOLVED
#define COLUMNS		SSW_FIELD_COLUMNS
#define AT(member)	offsetof(SswPolicy, member)

/*
 * The arguments of register().  One more is a row here, its name in the enum of
 * register_arguments.h, a column of sweeper.policy, and an argument of register, alter_policy and
 * adopt in schema/, whose defaults a test compares.  Checks of several arguments
 * together are in commands/args.c.
 */
const SswField ssw_fields[SSW_NARGS] = {
	[SSW_ARG_KEY] = {"key", SSW_FIELD_NAMES, NULL, COLUMNS, AT(key), AT(nkeys)},
	[SSW_ARG_DEADLINE] = {"deadline", SSW_FIELD_TEXT, NULL, DEADLINE | RESOLVED | COLUMNS, AT(deadline)},
	[SSW_ARG_LAST_SEEN] = {"last_seen", SSW_FIELD_TEXT, NULL, DEADLINE | RESOLVED | COLUMNS, AT(last_seen)},
	[SSW_ARG_TTL] = {"ttl", SSW_FIELD_INTERVAL, NULL, DEADLINE, AT(ttl_us),.min = USECS_PER_SEC},
	[SSW_ARG_TTL_COLUMN] = {"ttl_column", SSW_FIELD_TEXT, NULL, DEADLINE | RESOLVED | COLUMNS, AT(ttl_column)},
	[SSW_ARG_CREATED] = {"created", SSW_FIELD_TEXT, NULL, DEADLINE | RESOLVED | COLUMNS, AT(created)},
	[SSW_ARG_MAX_AGE] = {"max_age", SSW_FIELD_INTERVAL, NULL, DEADLINE, AT(max_age_us),.min = USECS_PER_SEC},
	[SSW_ARG_UNIT] = {"unit", SSW_FIELD_TEXT, NULL, DEADLINE, AT(unit),.words = units},
	[SSW_ARG_TIMEZONE] = {"timezone", SSW_FIELD_TEXT, NULL, DEADLINE | RESOLVED, AT(timezone)},
	[SSW_ARG_KEEP_FOR] = {"keep_for", SSW_FIELD_INTERVAL, "0", DEADLINE, AT(keep_for_us)},
	[SSW_ARG_FILTER] = {"filter", SSW_FIELD_TEXT, NULL, DEADLINE | COLUMNS, AT(filter)},
	[SSW_ARG_ON_NULL] = {"on_null", SSW_FIELD_WORD, "ignore", DEADLINE, AT(on_null),.words = on_nulls},
	[SSW_ARG_ACTION] = {"action", SSW_FIELD_WORD, "delete", 0, AT(action),.words = actions},
	[SSW_ARG_SET_CLAUSE] = {"set_clause", SSW_FIELD_TEXT, NULL, COLUMNS, AT(set_clause)},
	[SSW_ARG_ON_EXPIRE] = {"on_expire", SSW_FIELD_FUNCTION, NULL, 0, AT(on_expire)},
	[SSW_ARG_IS_ALIVE] = {"is_alive", SSW_FIELD_FUNCTION, NULL, 0, AT(is_alive)},
	[SSW_ARG_GROUP_BY] = {"group_by", SSW_FIELD_TEXT, NULL, RESOLVED | COLUMNS, AT(group_by)},
	[SSW_ARG_CAPTURE] = {"capture", SSW_FIELD_NAMES, NULL, COLUMNS, AT(capture), AT(ncapture)},
	[SSW_ARG_AUDIT] = {"audit", SSW_FIELD_WORD, "row", 0, AT(audit),.words = audits},
	[SSW_ARG_NOTIFY_CHANNEL] = {"notify_channel", SSW_FIELD_TEXT, NULL, 0, AT(notify_channel)},
	[SSW_ARG_NOTIFY_KEYS] = {"notify_keys", SSW_FIELD_BOOL, "false", 0, AT(notify_keys)},
	[SSW_ARG_CHECK_EVERY] = {"check_every", SSW_FIELD_INTERVAL, "1 s", LIMIT, AT(check_every_us)},
	[SSW_ARG_MAX_LAG] = {"max_lag", SSW_FIELD_INTERVAL, "1 min", LIMIT, AT(max_lag_us),.min = USECS_PER_SEC},
	[SSW_ARG_BATCH_SIZE] = {"batch_size", SSW_FIELD_INT, "0", LIMIT, AT(batch_size),.max = SSW_MAX_BATCH},
	[SSW_ARG_MAX_WORKERS] = {"max_workers", SSW_FIELD_INT, "0", LIMIT, AT(max_workers),.max = 1024},
	[SSW_ARG_RATE_LIMIT] = {"rate_limit", SSW_FIELD_INT, "0", LIMIT, AT(rate_limit),.max = INT_MAX},
	[SSW_ARG_BACKLOG_RATE] = {"backlog_rate", SSW_FIELD_INT, "5000", LIMIT, AT(backlog_rate),.max = INT_MAX},
	[SSW_ARG_SOFT_TIME_LIMIT] = {"soft_time_limit", SSW_FIELD_INTERVAL, "50 s", LIMIT, AT(soft_limit_us),.min = 100 * 1000},
	[SSW_ARG_HARD_TIME_LIMIT] = {"hard_time_limit", SSW_FIELD_INTERVAL, "55 s", LIMIT, AT(hard_limit_us),.min = 100 * 1000},
	[SSW_ARG_LOCK_TIMEOUT] = {"lock_timeout", SSW_FIELD_MILLISECONDS, "100 ms", LIMIT, AT(lock_timeout_ms),.min = 1000},
	[SSW_ARG_MAX_RETRIES] = {"max_retries", SSW_FIELD_INT, "3", LIMIT, AT(max_retries),.max = 1000},
	[SSW_ARG_FUSE_FRACTION] = {"fuse_fraction", SSW_FIELD_REAL, "0.5", LIMIT, AT(fuse_fraction),.max = 1},
	[SSW_ARG_FUSE_MIN] = {"fuse_min", SSW_FIELD_INT, "100", LIMIT, AT(fuse_min),.max = INT_MAX},
	[SSW_ARG_HEARTBEATS] = {"heartbeats", SSW_FIELD_BOOL, "false", 0, AT(heartbeats)},
	[SSW_ARG_SEARCH_PATH] = {"search_path", SSW_FIELD_TEXT, NULL, RESOLVED, AT(search_path)},
	[SSW_ARG_ALLOW_REPLICATED] = {"allow_replicated", SSW_FIELD_BOOL, "false", 0, AT(allow_replicated)},
	[SSW_ARG_MAINTENANCE_WINDOW] = {"maintenance_window", SSW_FIELD_TEXT, NULL, LIMIT | RESOLVED, AT(maintenance_window)},
};

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

/* Set the member to a value that has been checked; a null makes it 0.  Texts are in CurrentMemoryContext. */
void
ssw_field_set(void *policy, const SswField *f, Datum value, bool isnull)
{
	void	   *member = (char *) policy + f->offset;
	int64		us;

	/* the other kinds have a default, and are never null */
	if (isnull && f->dflt)
		return;
	switch (f->kind)
	{
		case SSW_FIELD_TEXT:
			*(char **) member = isnull ? NULL : TextDatumGetCString(value);
			break;
		case SSW_FIELD_WORD:
			*(int *) member = word_index(f->words, TextDatumGetCString(value));
			break;
		case SSW_FIELD_NAMES:
			*(int *) ((char *) policy + f->count) = 0;
			*(char ***) member = isnull ? NULL : names_of(value, (int *) ((char *) policy + f->count));
			break;
		case SSW_FIELD_INTERVAL:
		case SSW_FIELD_MILLISECONDS:
			us = isnull ? 0 : DatumGetIntervalP(value)->time + (int64) DatumGetIntervalP(value)->day * USECS_PER_DAY;
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
			*(Oid *) member = isnull ? InvalidOid : DatumGetObjectId(value);
			break;
	}
}

static bool
same_text(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* Is the member the same in both policies?  No names are as good as null. */
bool
ssw_field_equal(const void *policy1, const void *policy2, const SswField *f)
{
	const char *a = (const char *) policy1 + f->offset;
	const char *b = (const char *) policy2 + f->offset;
	int			n;

	switch (f->kind)
	{
		case SSW_FIELD_TEXT:
			return same_text(*(char *const *) a, *(char *const *) b);
		case SSW_FIELD_NAMES:
			n = *(const int *) ((const char *) policy1 + f->count);
			if (n != *(const int *) ((const char *) policy2 + f->count))
				return false;
			for (int i = 0; i < n; i++)
				if (strcmp((*(char **const *) a)[i], (*(char **const *) b)[i]) != 0)
					return false;
			return true;
		case SSW_FIELD_INTERVAL:
			return *(const int64 *) a == *(const int64 *) b;
		case SSW_FIELD_WORD:
		case SSW_FIELD_MILLISECONDS:
		case SSW_FIELD_INT:
			return *(const int *) a == *(const int *) b;
		case SSW_FIELD_REAL:
			return *(const float4 *) a == *(const float4 *) b;
		case SSW_FIELD_BOOL:
			return *(const bool *) a == *(const bool *) b;
		case SSW_FIELD_FUNCTION:
			return *(const Oid *) a == *(const Oid *) b;
	}
	return false;
}
