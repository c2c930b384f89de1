/*
 * args.c
 *		The arguments of register, alter_policy and adopt: one table of names,
 *		types and defaults; reading, checking and printing them.
 *
 * Runs in the backend that called the function; shares nothing.  A crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include <ctype.h>
#include <math.h>

#include "access/detoast.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "base/arguments.h"
#include "base/guc.h"
#include "commands/args.h"
#include "policy/expr.h"
#include "policy/tzname.h"
#include "policy/window.h"

/* Expressions, lists of columns and other texts are not longer: every process that sweeps reads them. */
#define MAX_TEXT_BYTES		16384


/* What a change of the argument touches. */
#define DEADLINE	1			/* which rows are dead */
#define LIMIT		2			/* only how often and how much */

typedef struct ArgDef
{
	const char *name;
	Oid			type;
	const char *dflt;			/* input text, or NULL */
	int			flags;
} ArgDef;

/* The defaults of schema/20_register.sql; a test compares them. */
static const ArgDef defs[SSW_NARGS] = {
	[SSW_ARG_KEY] = {"key", TEXTARRAYOID, NULL, 0},
	[SSW_ARG_DEADLINE] = {"deadline", TEXTOID, NULL, DEADLINE},
	[SSW_ARG_LAST_SEEN] = {"last_seen", TEXTOID, NULL, DEADLINE},
	[SSW_ARG_TTL] = {"ttl", INTERVALOID, NULL, DEADLINE},
	[SSW_ARG_TTL_COLUMN] = {"ttl_column", TEXTOID, NULL, DEADLINE},
	[SSW_ARG_CREATED] = {"created", TEXTOID, NULL, DEADLINE},
	[SSW_ARG_MAX_AGE] = {"max_age", INTERVALOID, NULL, DEADLINE},
	[SSW_ARG_UNIT] = {"unit", TEXTOID, NULL, DEADLINE},
	[SSW_ARG_TIMEZONE] = {"timezone", TEXTOID, NULL, DEADLINE},
	[SSW_ARG_KEEP_FOR] = {"keep_for", INTERVALOID, "0", DEADLINE},
	[SSW_ARG_FILTER] = {"filter", TEXTOID, NULL, DEADLINE},
	[SSW_ARG_ON_NULL] = {"on_null", TEXTOID, "ignore", DEADLINE},
	[SSW_ARG_ACTION] = {"action", TEXTOID, "delete", 0},
	[SSW_ARG_SET_CLAUSE] = {"set_clause", TEXTOID, NULL, 0},
	[SSW_ARG_ON_EXPIRE] = {"on_expire", REGPROCEDUREOID, NULL, 0},
	[SSW_ARG_IS_ALIVE] = {"is_alive", REGPROCEDUREOID, NULL, 0},
	[SSW_ARG_GROUP_BY] = {"group_by", TEXTOID, NULL, 0},
	[SSW_ARG_CAPTURE] = {"capture", TEXTARRAYOID, NULL, 0},
	[SSW_ARG_AUDIT] = {"audit", TEXTOID, "row", 0},
	[SSW_ARG_NOTIFY_CHANNEL] = {"notify_channel", TEXTOID, NULL, 0},
	[SSW_ARG_NOTIFY_KEYS] = {"notify_keys", BOOLOID, "false", 0},
	[SSW_ARG_CHECK_EVERY] = {"check_every", INTERVALOID, "1 s", LIMIT},
	[SSW_ARG_MAX_LAG] = {"max_lag", INTERVALOID, "1 min", LIMIT},
	[SSW_ARG_BATCH_SIZE] = {"batch_size", INT4OID, "0", LIMIT},
	[SSW_ARG_MAX_WORKERS] = {"max_workers", INT4OID, "1", LIMIT},
	[SSW_ARG_RATE_LIMIT] = {"rate_limit", INT4OID, "0", LIMIT},
	[SSW_ARG_BACKLOG_RATE] = {"backlog_rate", INT4OID, "5000", LIMIT},
	[SSW_ARG_SOFT_TIME_LIMIT] = {"soft_time_limit", INTERVALOID, "50 s", LIMIT},
	[SSW_ARG_HARD_TIME_LIMIT] = {"hard_time_limit", INTERVALOID, "55 s", LIMIT},
	[SSW_ARG_LOCK_TIMEOUT] = {"lock_timeout", INTERVALOID, "100 ms", LIMIT},
	[SSW_ARG_MAX_RETRIES] = {"max_retries", INT4OID, "3", LIMIT},
	[SSW_ARG_FUSE_FRACTION] = {"fuse_fraction", FLOAT4OID, "0.5", LIMIT},
	[SSW_ARG_FUSE_MIN] = {"fuse_min", INT4OID, "100", LIMIT},
	[SSW_ARG_HEARTBEATS] = {"heartbeats", BOOLOID, "false", 0},
	[SSW_ARG_SEARCH_PATH] = {"search_path", TEXTOID, NULL, 0},
	[SSW_ARG_ALLOW_REPLICATED] = {"allow_replicated", BOOLOID, "false", 0},
	[SSW_ARG_MAINTENANCE_WINDOW] = {"maintenance_window", TEXTOID, NULL, LIMIT},
};

const char *
ssw_args_name(SswArg arg)
{
	return defs[arg].name;
}

Oid
ssw_args_type(SswArg arg)
{
	return defs[arg].type;
}

bool
ssw_args_defines_deadline(SswArg arg)
{
	return (defs[arg].flags & DEADLINE) != 0;
}

bool
ssw_args_is_limit(SswArg arg)
{
	return (defs[arg].flags & LIMIT) != 0;
}

/* The argument of that name; a missing one is an error. */
SswArg
ssw_args_find(const char *name)
{
	const char *names[SSW_NARGS];
	const char *similar;

	for (int i = 0; i < SSW_NARGS; i++)
	{
		names[i] = defs[i].name;
		if (strcmp(name, defs[i].name) == 0)
			return i;
	}
	similar = ssw_expr_similar(name, names, SSW_NARGS);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("a policy has no argument \"%s\"", name),
			 similar ? errhint("Perhaps you meant \"%s\".", similar) :
			 errhint("Name an argument of sweeper.register().")));
	return 0;
}

/* Text of a value, as a literal would have it. */
char	   *
ssw_args_text(SswArg arg, Datum value)
{
	Oid			output;
	bool		varlena;

	getTypeOutputInfo(defs[arg].type, &output, &varlena);
	return OidOutputFunctionCall(output, value);
}

static Datum
text_value(SswArg arg, const char *text)
{
	Oid			input;
	Oid			ioparam;

	getTypeInputInfo(defs[arg].type, &input, &ioparam);
	return OidInputFunctionCall(input, pstrdup(text), ioparam, -1);
}

void
ssw_args_default(SswArgs *a, SswArg arg)
{
	a->given[arg] = false;
	a->isnull[arg] = defs[arg].dflt == NULL;
	a->value[arg] = defs[arg].dflt ? text_value(arg, defs[arg].dflt) : (Datum) 0;
}

/* Set an argument from text; given stays as it is. */
void
ssw_args_set_text(SswArgs *a, SswArg arg, const char *value)
{
	a->isnull[arg] = value == NULL;
	a->value[arg] = value ? text_value(arg, value) : (Datum) 0;
}

static bool
is_default(const SswArgs *a, SswArg arg)
{
	if (a->isnull[arg] || defs[arg].dflt == NULL)
		return a->isnull[arg] && defs[arg].dflt == NULL;
	return strcmp(ssw_args_text(arg, a->value[arg]),
				  ssw_args_text(arg, text_value(arg, defs[arg].dflt))) == 0;
}

/*
 * Read the arguments from the call, "key" being number first.  Either a null
 * leaves what is there, or a null is only right where it is the default.
 */
void
ssw_args_read(SswArgs *a, FunctionCallInfo fcinfo, int first, bool null_is_unchanged)
{
	for (int i = 0; i < SSW_NARGS; i++)
	{
		if (PG_ARGISNULL(first + i))
		{
			if (null_is_unchanged)
				continue;
			if (defs[i].dflt)
				ssw_argument_not_null(fcinfo, first + i, defs[i].name);
		}
		if (!PG_ARGISNULL(first + i) && (defs[i].type == TEXTOID || defs[i].type == TEXTARRAYOID) &&
			toast_raw_datum_size(PG_GETARG_DATUM(first + i)) - VARHDRSZ > MAX_TEXT_BYTES)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("%s must not be longer than %d bytes", defs[i].name, MAX_TEXT_BYTES),
					 errhint("Put a longer expression into a function of the row.")));
		a->isnull[i] = PG_ARGISNULL(first + i);
		a->value[i] = PG_GETARG_DATUM(first + i);
		a->given[i] = null_is_unchanged || !is_default(a, i);
	}
}

/* The call as it was, with one more argument. */
char	   *
ssw_args_call(const SswArgs *a, const char *name, const char *value)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT * FROM sweeper.%s(%s", a->function, a->first);
	if (a->policy && strcmp(a->function, "alter_policy") != 0)
		appendStringInfo(&buf, ", policy => %s", quote_literal_cstr(a->policy));
	for (int i = 0; i < SSW_NARGS; i++)
	{
		if (!a->given[i] || a->isnull[i] || strcmp(defs[i].name, name) == 0)
			continue;
		appendStringInfo(&buf, ", %s => %s", defs[i].name,
						 quote_literal_cstr(ssw_args_text(i, a->value[i])));
	}
	if (a->start && strcmp(a->start, "auto") != 0 && strcmp(name, "start") != 0)
		appendStringInfo(&buf, ", start => %s", quote_literal_cstr(a->start));
	if (a->dry_run && strcmp(name, "start") != 0)
		appendStringInfoString(&buf, ", dry_run => true");
	appendStringInfo(&buf, ", %s => %s);", name, quote_literal_cstr(value));
	return buf.data;
}

static char *
get_text(const SswArgs *a, SswArg arg)
{
	char	   *s;

	if (a->isnull[arg])
		return NULL;
	s = TextDatumGetCString(a->value[arg]);
	if (s[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", defs[arg].name),
				 errhint("Leave it out, or give a value.")));
	return s;
}

static char **
get_names(const SswArgs *a, SswArg arg, int *n)
{
	Datum	   *elems;
	bool	   *nulls;
	char	  **names;

	*n = 0;
	if (a->isnull[arg])
		return NULL;
	deconstruct_array(DatumGetArrayTypeP(a->value[arg]), TEXTOID, -1, false, TYPALIGN_INT,
					  &elems, &nulls, n);
	names = palloc0(sizeof(char *) * (*n + 1));
	for (int i = 0; i < *n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain nulls", defs[arg].name)));
		names[i] = TextDatumGetCString(elems[i]);
		for (int j = 0; j < i; j++)
			if (strcmp(names[i], names[j]) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("%s names column \"%s\" more than once", defs[arg].name, names[i])));
	}
	return names;
}

/* The same of an argument; null is 0. */
static int64
get_interval(const SswArgs *a, SswArg arg, int64 min)
{
	return a->isnull[arg] ? 0 : ssw_argument_interval(defs[arg].name, DatumGetIntervalP(a->value[arg]), min);
}

static int
get_int(const SswArgs *a, SswArg arg, int min, int max)
{
	int			v = DatumGetInt32(a->value[arg]);

	if (v < min || v > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be between %d and %d", defs[arg].name, min, max)));
	return v;
}

/* Index of a word in a list that ends with null. */
static int
get_word(const SswArgs *a, SswArg arg, const char *const *words)
{
	char	   *v = get_text(a, arg);
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; words[i]; i++)
	{
		if (strcmp(v, words[i]) == 0)
			return i;
		appendStringInfo(&buf, "%s\"%s\"", i == 0 ? "" : words[i + 1] ? ", " : " or ", words[i]);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown %s \"%s\"", defs[arg].name, v),
			 errhint("Use %s.", buf.data)));
	return 0;
}

/*
 * The path that code of the policy sees: what was given, or the caller's as it
 * is in effect now.  Temporary schemas are left out; pg_temp stands last, or
 * PostgreSQL would search it first.
 */
static char *
stored_search_path(const char *given)
{
	List	   *names = NIL;
	ListCell   *lc;
	StringInfoData buf;

	if (given == NULL)
	{
		foreach(lc, fetch_search_path(false))
		{
			char	   *name = get_namespace_name(lfirst_oid(lc));

			if (name && !isAnyTempNamespace(lfirst_oid(lc)))
				names = lappend(names, name);
		}
	}
	else if (!SplitIdentifierString(pstrdup(given), ',', &names))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("search_path must be a list of schema names: %s", given)));
	initStringInfo(&buf);
	foreach(lc, names)
	{
		char	   *name = lfirst(lc);

		if (strncmp(name, "pg_temp", 7) == 0 || strncmp(name, "pg_toast_temp", 13) == 0)
			continue;
		appendStringInfo(&buf, "%s, ", quote_identifier(name));
	}
	appendStringInfoString(&buf, "pg_temp");
	return buf.data;
}

/* Fields that say which row is dead. */
static void
fill_deadline(const SswArgs *a, SswPolicy *p)
{
	static const char *const on_nulls[] = {"ignore", "repair", "expire", NULL};
	static const char *const units[] = {"s", "ms", "us", NULL};

	p->deadline = get_text(a, SSW_ARG_DEADLINE);
	p->last_seen = get_text(a, SSW_ARG_LAST_SEEN);
	p->ttl_us = get_interval(a, SSW_ARG_TTL, 1);
	p->ttl_column = get_text(a, SSW_ARG_TTL_COLUMN);
	p->created = get_text(a, SSW_ARG_CREATED);
	p->max_age_us = get_interval(a, SSW_ARG_MAX_AGE, 1);
	p->unit = a->isnull[SSW_ARG_UNIT] ? NULL :
		pstrdup(units[get_word(a, SSW_ARG_UNIT, units)]);
	p->timezone = a->isnull[SSW_ARG_TIMEZONE] ? NULL : ssw_tzname(get_text(a, SSW_ARG_TIMEZONE));
	p->keep_for_us = get_interval(a, SSW_ARG_KEEP_FOR, 0);
	p->filter = get_text(a, SSW_ARG_FILTER);
	p->on_null = get_word(a, SSW_ARG_ON_NULL, on_nulls);
	if (p->deadline && p->last_seen)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("deadline and last_seen must not both be given"),
				 errdetail("A row is dead either at its deadline or one time to live after its last activity."),
				 errhint("A second, absolute limit is created with max_age.")));
	if (!p->deadline && !p->last_seen)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("deadline or last_seen must be given"),
				 errhint("Name the column that holds the deadline, or the one that holds the last activity, with ttl.")));
	if (p->last_seen && p->ttl_us == 0 && !p->ttl_column)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("last_seen needs ttl or ttl_column"),
				 errhint("%s", ssw_args_call(a, "ttl", "30 minutes"))));
	p->heartbeats = DatumGetBool(a->value[SSW_ARG_HEARTBEATS]);
	if (p->heartbeats && p->ttl_us == 0 && !p->ttl_column)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("heartbeats need ttl or ttl_column"),
				 errdetail("Nothing says for how long a heartbeat keeps a row alive."),
				 errhint("%s", ssw_args_call(a, "ttl", "30 minutes"))));
	if (p->deadline && p->ttl_column && !p->heartbeats)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("ttl_column is only for last_seen and heartbeats"),
				 errdetail("A deadline is already the end of a row's time to live."),
				 errhint("Name the column of last activity in last_seen instead of deadline.")));
	if ((p->created != NULL) != (p->max_age_us != 0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("created and max_age must be given together"),
				 p->created ? errhint("%s", ssw_args_call(a, "max_age", "30 days")) :
				 errhint("%s", ssw_args_call(a, "created", "created_at"))));
}

/* Fields that say what happens to it. */
static void
fill_action(const SswArgs *a, SswPolicy *p)
{
	static const char *const actions[] = {"delete", "update", "call", NULL};
	static const char *const audits[] = {"row", "hash", "count", "none", NULL};

	p->action = get_word(a, SSW_ARG_ACTION, actions);
	p->set_clause = get_text(a, SSW_ARG_SET_CLAUSE);
	p->on_expire = a->isnull[SSW_ARG_ON_EXPIRE] ? InvalidOid :
		DatumGetObjectId(a->value[SSW_ARG_ON_EXPIRE]);
	p->is_alive = a->isnull[SSW_ARG_IS_ALIVE] ? InvalidOid :
		DatumGetObjectId(a->value[SSW_ARG_IS_ALIVE]);
	p->group_by = get_text(a, SSW_ARG_GROUP_BY);
	p->capture = get_names(a, SSW_ARG_CAPTURE, &p->ncapture);
	p->audit = get_word(a, SSW_ARG_AUDIT, audits);
	p->notify_channel = get_text(a, SSW_ARG_NOTIFY_CHANNEL);
	p->notify_keys = DatumGetBool(a->value[SSW_ARG_NOTIFY_KEYS]);
	if (p->action == SSW_ACTION_UPDATE && !p->set_clause)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("action \"update\" needs set_clause"),
				 errhint("%s", ssw_args_call(a, "set_clause", "revoked = true"))));
	if (p->action != SSW_ACTION_UPDATE && p->set_clause)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("set_clause is only for action \"update\""),
				 errhint("%s", ssw_args_call(a, "action", "update"))));
	if (p->action == SSW_ACTION_CALL && !OidIsValid(p->on_expire))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("action \"call\" needs on_expire"),
				 errhint("Give a function of the table's owner that takes text[] (the keys) or an array of the table's rows.")));
	if (p->notify_channel && strlen(p->notify_channel) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("notify_channel must be shorter than %d bytes", NAMEDATALEN)));
	if (p->notify_keys && !p->notify_channel)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("notify_keys needs notify_channel")));
}

/* Fields that say how often and how much. */
void
ssw_args_fill_limits(const SswArgs *a, SswPolicy *p)
{
	int64		lock_us;

	p->check_every_us = get_interval(a, SSW_ARG_CHECK_EVERY, 0);
	p->max_lag_us = get_interval(a, SSW_ARG_MAX_LAG, 1);
	p->batch_size = get_int(a, SSW_ARG_BATCH_SIZE, 0, SSW_MAX_BATCH);
	p->max_workers = get_int(a, SSW_ARG_MAX_WORKERS, 1, 1024);
	p->rate_limit = get_int(a, SSW_ARG_RATE_LIMIT, 0, PG_INT32_MAX);
	p->backlog_rate = get_int(a, SSW_ARG_BACKLOG_RATE, 0, PG_INT32_MAX);
	p->soft_limit_us = get_interval(a, SSW_ARG_SOFT_TIME_LIMIT, 1);
	p->hard_limit_us = get_interval(a, SSW_ARG_HARD_TIME_LIMIT, 1);
	p->max_retries = get_int(a, SSW_ARG_MAX_RETRIES, 0, 1000);
	p->maintenance_window = a->isnull[SSW_ARG_MAINTENANCE_WINDOW] ? NULL :
		ssw_window_check(TextDatumGetCString(a->value[SSW_ARG_MAINTENANCE_WINDOW]));
	p->fuse_fraction = DatumGetFloat4(a->value[SSW_ARG_FUSE_FRACTION]);
	p->fuse_min = get_int(a, SSW_ARG_FUSE_MIN, 0, PG_INT32_MAX);
	if (isnan(p->fuse_fraction) || p->fuse_fraction < 0 || p->fuse_fraction > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("fuse_fraction must be between 0 and 1")));
	if (p->hard_limit_us < p->soft_limit_us)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("hard_time_limit must not be shorter than soft_time_limit")));
	/* the default is cut to it when the policy runs */
	if (a->given[SSW_ARG_HARD_TIME_LIMIT] && p->hard_limit_us > ssw_max_hard_time_limit * INT64CONST(1000))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("hard_time_limit must not be longer than \"session_sweeper.max_hard_time_limit\", which is %s",
						GetConfigOptionByName("session_sweeper.max_hard_time_limit", NULL, false)),
				 errdetail("One statement may keep a worker for so long while others wait for it."),
				 errhint("Let on_expire hand longer work over to another process, or have a superuser raise the setting.")));
	lock_us = get_interval(a, SSW_ARG_LOCK_TIMEOUT, 1);
	if (lock_us < 1000 || lock_us / 1000 >= DeadlockTimeout)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock_timeout must be at least 1 ms and below \"deadlock_timeout\", which is %d ms",
						DeadlockTimeout),
				 errdetail("Beyond it a deadlock could cancel the application instead of the sweep.")));
	p->lock_timeout_ms = lock_us / 1000;
}

/*
 * Check every argument by itself and fill the policy's fields; those that need
 * the relation are checked with it.
 */
void
ssw_args_fill(const SswArgs *a, SswPolicy *p)
{
	p->key = get_names(a, SSW_ARG_KEY, &p->nkeys);
	fill_deadline(a, p);
	fill_action(a, p);
	ssw_args_fill_limits(a, p);
	p->search_path = stored_search_path(a->isnull[SSW_ARG_SEARCH_PATH] ? NULL :
										TextDatumGetCString(a->value[SSW_ARG_SEARCH_PATH]));
	p->allow_replicated = DatumGetBool(a->value[SSW_ARG_ALLOW_REPLICATED]);
	if (p->heartbeats && OidIsValid(p->is_alive))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("heartbeats and is_alive must not both be given"),
				 errdetail("Either clients say that they are alive, or a function does.")));
}
