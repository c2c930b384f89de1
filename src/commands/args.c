/*
 * args.c
 *		The arguments of register, alter_policy and adopt: reading, checking and
 *		printing them.  What they are is one table in policy/register_arguments.c.
 *
 * Runs in the backend that called the function; shares nothing.  A crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "base/argument_checks.h"
#include "base/guc.h"
#include "commands/args.h"
#include "policy/expr.h"
#include "policy/window.h"

/* Expressions, lists of columns and other texts are not longer: every process that sweeps reads them. */
#define MAX_TEXT_BYTES		16384


/* The argument of that name; a missing one is an error. */
SswArg
ssw_args_find(const char *name)
{
	const char *names[SSW_NARGS];
	const char *similar;

	for (int i = 0; i < SSW_NARGS; i++)
	{
		names[i] = ssw_fields[i].name;
		if (strcmp(name, ssw_fields[i].name) == 0)
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

	getTypeOutputInfo(ssw_field_type(&ssw_fields[arg]), &output, &varlena);
	return OidOutputFunctionCall(output, value);
}

static Datum
text_value(SswArg arg, const char *text)
{
	Oid			input;
	Oid			ioparam;

	getTypeInputInfo(ssw_field_type(&ssw_fields[arg]), &input, &ioparam);
	return OidInputFunctionCall(input, pstrdup(text), ioparam, -1);
}

void
ssw_args_default(SswArgs *a, SswArg arg)
{
	a->given[arg] = false;
	a->isnull[arg] = ssw_fields[arg].dflt == NULL;
	a->value[arg] = ssw_fields[arg].dflt ? text_value(arg, ssw_fields[arg].dflt) : (Datum) 0;
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
	if (a->isnull[arg] || ssw_fields[arg].dflt == NULL)
		return a->isnull[arg] && ssw_fields[arg].dflt == NULL;
	return strcmp(ssw_args_text(arg, a->value[arg]),
				  ssw_args_text(arg, text_value(arg, ssw_fields[arg].dflt))) == 0;
}

/* The function of that name; without a list of arguments it must be the only one. */
static Oid
find_function(const char *field, text *name)
{
	char	   *given = text_to_cstring(name);
	FuncCandidateList found;
	StringInfoData all;

	if (strchr(given, '('))
		return DatumGetObjectId(DirectFunctionCall1(regprocedurein, CStringGetDatum(given)));
	found = FuncnameGetCandidates(textToQualifiedNameList(name), -1, NIL, false, false, false, true);
	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("%s: function %s does not exist", field, given),
				 errhint("Create it, or name it with its schema.")));
	if (found->next == NULL)
		return found->oid;
	initStringInfo(&all);
	for (; found; found = found->next)
		appendStringInfo(&all, "%s%s => %s", all.len ? " or " : "", field, quote_literal_cstr(format_procedure(found->oid)));
	ereport(ERROR,
			(errcode(ERRCODE_AMBIGUOUS_FUNCTION),
			 errmsg("%s: more than one function is named %s", field, given),
			 errhint("Give %s.", all.data)));
	return InvalidOid;
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
			if (ssw_fields[i].dflt)
				ssw_argument_not_null(fcinfo, first + i, ssw_fields[i].name);
		}
		if (ssw_field_type(&ssw_fields[i]) == TEXTOID || ssw_field_type(&ssw_fields[i]) == TEXTARRAYOID)
			ssw_argument_bound(fcinfo, first + i, ssw_fields[i].name, MAX_TEXT_BYTES);
		a->isnull[i] = PG_ARGISNULL(first + i);
		a->value[i] = PG_GETARG_DATUM(first + i);
		if (ssw_fields[i].kind == SSW_FIELD_FUNCTION && !a->isnull[i])
			a->value[i] = ObjectIdGetDatum(find_function(ssw_fields[i].name, PG_GETARG_TEXT_PP(first + i)));
		a->given[i] = null_is_unchanged || !is_default(a, i);
	}
}

static void
check_text(const SswField *f, const char *value)
{
	StringInfoData words;

	if (value[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", f->name),
				 errhint("Leave it out, or give a value.")));
	if (f->words == NULL)
		return;
	initStringInfo(&words);
	for (int i = 0; f->words[i]; i++)
	{
		if (strcmp(value, f->words[i]) == 0)
			return;
		appendStringInfo(&words, "%s\"%s\"", i == 0 ? "" : f->words[i + 1] ? ", " : " or ", f->words[i]);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unknown %s \"%s\"", f->name, value),
			 errhint("Use %s.", words.data)));
}

/* Read start, if_exists and dry_run, start being number first. */
void
ssw_args_read_start(SswArgs *a, FunctionCallInfo fcinfo, int first)
{
	static const char *const starts[] = {"auto", "now", "paused", NULL};
	const SswField start = {"start", SSW_FIELD_WORD,.words = starts};

	ssw_argument_not_null(fcinfo, first, start.name);
	ssw_argument_not_null(fcinfo, first + 2, "dry_run");
	a->start = text_to_cstring(PG_GETARG_TEXT_PP(first));
	check_text(&start, a->start);
	a->or_alter = ssw_argument_or_alter(fcinfo, first + 1);
	a->dry_run = PG_GETARG_BOOL(first + 2);
}

/* The call of register() or adopt() as it was, with one more argument. */
char	   *
ssw_args_call(const SswArgs *a, const char *name, const char *value)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT * FROM sweeper.%s(%s", a->function, a->first);
	if (a->policy)
		appendStringInfo(&buf, ", policy => %s", quote_literal_cstr(a->policy));
	for (int i = 0; i < SSW_NARGS; i++)
		if (a->given[i] && !a->isnull[i] && strcmp(ssw_fields[i].name, name) != 0)
			appendStringInfo(&buf, ", %s => %s", ssw_fields[i].name, quote_literal_cstr(ssw_args_text(i, a->value[i])));
	if (strcmp(a->start, "auto") != 0 && strcmp(name, "start") != 0)
		appendStringInfo(&buf, ", start => %s", quote_literal_cstr(a->start));
	if (a->or_alter)
		appendStringInfoString(&buf, ", if_exists => 'alter'");
	if (a->dry_run && strcmp(name, "start") != 0)
		appendStringInfoString(&buf, ", dry_run => true");
	appendStringInfo(&buf, ", %s => %s);", name, quote_literal_cstr(value));
	return buf.data;
}

static void
check_names(const char *name, Datum value)
{
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(value), TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls, &n);
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not contain nulls", name)));
		for (int j = 0; j < i; j++)
			if (strcmp(TextDatumGetCString(elems[i]), TextDatumGetCString(elems[j])) == 0)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("%s names column \"%s\" more than once", name, TextDatumGetCString(elems[i]))));
	}
}

/* An argument by itself. */
static void
check_value(const SswField *f, Datum value)
{
	switch (f->kind)
	{
		case SSW_FIELD_TEXT:
		case SSW_FIELD_WORD:
			check_text(f, TextDatumGetCString(value));
			break;
		case SSW_FIELD_NAMES:
			check_names(f->name, value);
			break;
		case SSW_FIELD_INTERVAL:
		case SSW_FIELD_MILLISECONDS:
			(void) ssw_argument_interval(f->name, DatumGetIntervalP(value), f->min);
			break;
		case SSW_FIELD_INT:
			(void) ssw_argument_number(f->name, DatumGetInt32(value), f->min, f->max);
			break;
		case SSW_FIELD_REAL:
			if (isnan(DatumGetFloat4(value)) || DatumGetFloat4(value) < f->min || DatumGetFloat4(value) > f->max)
				ereport(ERROR,
						(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						 errmsg("%s must be between %d and %d", f->name, (int) f->min, (int) f->max)));
			break;
		case SSW_FIELD_BOOL:
		case SSW_FIELD_FUNCTION:
			break;
	}
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

/* ereport unless arguments fit each other. */
static void
require(bool fits, const char *message, const char *hint)
{
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg_internal("%s", message),
				 errhint("%s", hint)));
}

/* Do the arguments that say which row is dead fit each other, and those that say what happens to it? */
static void
check_together(const SswPolicy *p)
{
	bool		has_ttl = p->ttl_us != 0 || p->ttl_column != NULL;

	require(!(p->deadline && p->last_seen), "deadline and last_seen must not both be given",
			"A row is dead either at its deadline or one time to live after its last activity. For a second, absolute limit give created and max_age.");
	require(p->deadline || p->last_seen, "deadline or last_seen must be given",
			"Name the column that holds the deadline, or the one that holds the last activity, with ttl.");
	require(!p->last_seen || has_ttl, "last_seen needs ttl or ttl_column",
			"Say how long a row lives after its last activity, for example ttl => '30 minutes'.");
	require(!p->heartbeats || has_ttl, "heartbeats need ttl or ttl_column",
			"Say for how long a heartbeat keeps a row alive, for example ttl => '30 minutes'.");
	require(!(p->deadline && p->ttl_column) || p->heartbeats, "ttl_column is only for last_seen and heartbeats",
			"A deadline is already the end of a row's time to live. Name the column of last activity in last_seen instead of deadline.");
	require((p->created != NULL) == (p->max_age_us != 0), "created and max_age must be given together",
			"Give both, or neither.");
	require(!(p->heartbeats && OidIsValid(p->is_alive)), "heartbeats and is_alive must not both be given",
			"Either clients send heartbeats, or a function says whether a row is alive.");
	require(p->action != SSW_ACTION_UPDATE || p->set_clause, "action \"update\" needs set_clause",
			"Give what follows SET, for example set_clause => 'revoked = true'.");
	require(p->action == SSW_ACTION_UPDATE || !p->set_clause, "set_clause is only for action \"update\"",
			"Give action => 'update', or no set_clause.");
	require(p->action != SSW_ACTION_CALL || OidIsValid(p->on_expire), "action \"call\" needs on_expire",
			"Give a function of the table's owner that takes text[] (the keys) or an array of the table's rows.");
	require(!p->notify_keys || p->notify_channel, "notify_keys needs notify_channel",
			"Name the channel.");
	if (p->notify_channel && strlen(p->notify_channel) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("notify_channel must be shorter than %d bytes", NAMEDATALEN)));
}

/* Check arguments by themselves and set the policy's fields; of a stored policy, only what is given. */
static void
fill_fields(const SswArgs *a, SswPolicy *p, bool limits)
{
	for (int i = 0; i < SSW_NARGS; i++)
	{
		if (((ssw_fields[i].flags & SSW_FIELD_LIMIT) != 0) != limits || (a->alter && !a->given[i]))
			continue;
		if (!a->isnull[i])
			check_value(&ssw_fields[i], a->value[i]);
		ssw_field_set(p, &ssw_fields[i], a->value[i], a->isnull[i]);
	}
}

/* Fill the fields that say how often and how much, and check them. */
void
ssw_args_fill_limits(const SswArgs *a, SswPolicy *p)
{
	fill_fields(a, p, true);
	if (p->maintenance_window)
		p->maintenance_window = ssw_window_check(p->maintenance_window);
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
				 errdetail("A single statement may occupy a worker for that long, while other policies wait."),
				 errhint("Let on_expire leave longer work to another process, or have a superuser raise the setting.")));
	if (p->lock_timeout_ms >= DeadlockTimeout)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock_timeout must be below \"deadlock_timeout\", which is %d ms",
						DeadlockTimeout),
				 errdetail("With a longer one, a deadlock could cancel the application instead of the sweep.")));
}

/* AT TIME ZONE, by which passes read the column, takes a name that is also an abbreviation for that. */
static void
check_no_abbreviation(const char *zone)
{
	pg_tz	   *tz = pg_tzset(zone);

	for (int month = 1; month <= 7; month += 6)
	{
		struct pg_tm tm = {.tm_year = 2020,.tm_mon = month,.tm_mday = 1};
		int			offset = DetermineTimeZoneOffset(&tm, tz);
		Timestamp	local;

		(void) tm2timestamp(&tm, 0, NULL, &local);
		if (DatumGetTimestampTz(DirectFunctionCall2(timestamp_zone, CStringGetTextDatum(zone), TimestampGetDatum(local))) !=
			local + offset * USECS_PER_SEC)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("time zone \"%s\" is also an abbreviation", zone),
					 errdetail("AT TIME ZONE '%s' has no summer time, but the setting timezone = '%s' has.", zone, zone),
					 errhint("Use a name like 'Europe/Berlin' from pg_timezone_names.")));
	}
}

/* Fill all other fields; those that need the relation are checked with it. */
void
ssw_args_fill(const SswArgs *a, SswPolicy *p)
{
	fill_fields(a, p, false);
	if (p->timezone)
	{
		p->timezone = ssw_window_zone(p->timezone);
		check_no_abbreviation(p->timezone);
	}
	p->search_path = stored_search_path(p->search_path);
	check_together(p);
}
