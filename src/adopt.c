/*
 * adopt.c
 *		SQL function adopt: recognise a well-known session table and register it.
 *
 * Runs in the caller's session and transaction, like register().  What is known
 * stands in table sweeper.preset: columns, key, and arguments of register().
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/rel.h"

#include "advice.h"
#include "args.h"
#include "identity.h"
#include "register.h"
#include "sql.h"
#include "stmt.h"
#include "target.h"

PG_FUNCTION_INFO_V1(ssw_adopt);

/* The value of a setting that stands for the application's time zone. */
#define APPLICATION_TIMEZONE	"application"

typedef struct Preset
{
	char	   *name;
	char	   *note;
	char	   *columns;		/* as text */
	List	   *settings;		/* names and values in turn, char * */
} Preset;

/* A list of names, for hints. */
static char *
preset_names(List *presets)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, presets)
		appendStringInfo(&buf, "%s\"%s\"", buf.len ? ", " : "", ((Preset *) lfirst(lc))->name);
	return buf.data;
}

/* The presets that a relation matches, or all of them. */
static List *
read_presets(Oid relid, bool matching)
{
	Oid			types[] = {OIDOID, BOOLOID};
	Datum		values[] = {ObjectIdGetDatum(relid), BoolGetDatum(matching)};
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;
	List	   *presets = NIL;
	Preset	   *last = NULL;
	uint64		n;

	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	n = ssw_sql_exec("SELECT p.preset, p.note, pg_catalog.array_to_string(p.columns, ', '), s.key, s.value"
					 " FROM sweeper.preset AS p, LATERAL pg_catalog.jsonb_each_text(p.settings) AS s"
					 " WHERE NOT $2 OR sweeper._matches($1, p.columns, p.key) ORDER BY p.preset, s.key",
					 2, types, values, NULL, true, 0);
	for (uint64 i = 0; i < n; i++)
	{
		HeapTuple	tup = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		MemoryContext old = MemoryContextSwitchTo(cxt);
		char	   *name = SPI_getvalue(tup, desc, 1);

		if (last == NULL || strcmp(last->name, name) != 0)
		{
			last = palloc0(sizeof(Preset));
			last->name = name;
			last->note = SPI_getvalue(tup, desc, 2);
			last->columns = SPI_getvalue(tup, desc, 3);
			presets = lappend(presets, last);
		}
		last->settings = lappend(last->settings, SPI_getvalue(tup, desc, 4));
		last->settings = lappend(last->settings, SPI_getvalue(tup, desc, 5));
		MemoryContextSwitchTo(old);
	}
	ssw_sql_end();
	ssw_identity_restore(&save);
	return presets;
}

/* The preset that was asked for; the relation must match it. */
static Preset *
named_preset(Relation rel, const char *name)
{
	List	   *all = read_presets(RelationGetRelid(rel), false);
	Preset	   *wanted = NULL;
	ListCell   *lc;

	foreach(lc, all)
	{
		if (strcmp(((Preset *) lfirst(lc))->name, name) == 0)
			wanted = lfirst(lc);
	}
	if (wanted == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown preset \"%s\"", name),
				 errhint("Known are %s.", preset_names(all))));
	foreach(lc, read_presets(RelationGetRelid(rel), true))
	{
		if (strcmp(((Preset *) lfirst(lc))->name, name) == 0)
			return lfirst(lc);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("\"%s\" is no table of preset \"%s\"", RelationGetRelationName(rel), name),
			 errdetail("Such a table has the columns %s, and their key as primary key.",
					   wanted->columns),
			 errhint("Use sweeper.register() and name its columns.")));
	return NULL;
}

/* The one preset that the relation matches. */
static Preset *
recognise(Relation rel)
{
	List	   *found = read_presets(RelationGetRelid(rel), true);
	char	   *name = quote_literal_cstr(ssw_stmt_relation(RelationGetRelid(rel)));

	if (found == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not recognised", RelationGetRelationName(rel)),
				 errdetail("Its columns, their types and its key are those of no preset; known are %s.",
						   preset_names(read_presets(RelationGetRelid(rel), false))),
				 errhint("Say what its columns mean: SELECT * FROM sweeper.register(%s, deadline => '...');", name)));
	if (list_length(found) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_AMBIGUOUS_PARAMETER),
				 errmsg("\"%s\" could be a table of more than one preset", RelationGetRelationName(rel)),
				 errdetail("It matches %s.", preset_names(found)),
				 errhint("Name one: SELECT * FROM sweeper.adopt(%s, preset => %s);", name,
						 quote_literal_cstr(((Preset *) linitial(found))->name))));
	return linitial(found);
}

/* A preset's settings as arguments; those that were given prevail. */
static void
apply(SswArgs *a, const Preset *preset, Relation rel, bool *assumed_zone)
{
	bool		activity = a->given[SSW_ARG_LAST_SEEN];

	*assumed_zone = false;
	for (int i = 0; i < list_length(preset->settings); i += 2)
	{
		SswArg		arg = ssw_args_find(list_nth(preset->settings, i));
		char	   *value = list_nth(preset->settings, i + 1);

		if (a->given[arg] || (activity && arg == SSW_ARG_DEADLINE))
			continue;
		if (arg == SSW_ARG_TIMEZONE && strcmp(value, APPLICATION_TIMEZONE) == 0)
		{
			value = ssw_advice_application_timezone(rel->rd_rel->relowner);
			*assumed_zone = true;
		}
		ssw_args_set_text(a, arg, value);
	}
}

/* What was recognised, why, and what is done about it. */
static void
notice_preset(const SswArgs *a, const Preset *preset, Relation rel, bool assumed_zone)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < list_length(preset->settings); i += 2)
	{
		SswArg		arg = ssw_args_find(list_nth(preset->settings, i));

		if (!a->isnull[arg])
			appendStringInfo(&buf, "%s%s => %s", buf.len ? ", " : "", ssw_args_name(arg),
							 quote_literal_cstr(TextDatumGetCString(a->value[arg])));
	}
	ereport(NOTICE,
			(errmsg("\"%s\" is a table of %s", RelationGetRelationName(rel), preset->note),
			 errdetail("It has the columns %s, and their key. It is registered with %s.",
					   preset->columns, buf.data)));
	if (assumed_zone)
		ereport(NOTICE,
				(errmsg("deadlines are read as local time of %s",
						TextDatumGetCString(a->value[SSW_ARG_TIMEZONE])),
				 errdetail("The application writes them in the time zone of its own database sessions, which the table does not tell."),
				 errhint("If it sets another one, give timezone => '...'.")));
}

/* adopt(relation, preset, policy, register's fields..., start, dry_run) */
Datum
ssw_adopt(PG_FUNCTION_ARGS)
{
	SswArgs    *a = palloc0(sizeof(SswArgs));
	Preset	   *preset;
	Relation	rel;
	Datum		result;
	bool		assumed_zone;
	int			level = ssw_identity_pin("quote_all_identifiers", "off");

	ssw_args_not_null(fcinfo, 0, "relation");
	ssw_args_not_null(fcinfo, 3 + SSW_NARGS, "start");
	ssw_args_not_null(fcinfo, 4 + SSW_NARGS, "dry_run");
	rel = ssw_target_open(PG_GETARG_OID(0));
	a->function = "adopt";
	a->first = quote_literal_cstr(ssw_stmt_relation(PG_GETARG_OID(0)));
	a->policy = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	a->start = text_to_cstring(PG_GETARG_TEXT_PP(3 + SSW_NARGS));
	a->dry_run = PG_GETARG_BOOL(4 + SSW_NARGS);
	for (int i = 0; i < SSW_NARGS; i++)
		ssw_args_default(a, i);
	ssw_args_read(a, fcinfo, 3, true);
	preset = PG_ARGISNULL(1) ? recognise(rel) :
		named_preset(rel, text_to_cstring(PG_GETARG_TEXT_PP(1)));
	apply(a, preset, rel, &assumed_zone);
	notice_preset(a, preset, rel, assumed_zone);
	result = ssw_register_relation(fcinfo, a, rel);
	table_close(rel, NoLock);
	AtEOXact_GUC(true, level);
	return result;
}
