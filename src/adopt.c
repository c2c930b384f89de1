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
#include "utils/lsyscache.h"
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

/* In the body of a hook: the schema of the table. */
#define SCHEMA_HERE				"{schema}"

/* So many rows are looked at. */
#define SAMPLE_ROWS				1000

typedef struct Preset
{
	char	   *name;
	char	   *note;
	char	   *columns;		/* as text */
	char	   *names;			/* of them */
	char	   *test;			/* of its rows, or null */
	char	   *hook;			/* body of on_expire, or null */
	char	   *advice;			/* or null */
	bool		indexed;		/* the relation has the index it goes by */
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

/* Presets; which says where they come from, $1 being the relation. */
static List *
read_presets(Oid relid, const char *which)
{
	Oid			type = OIDOID;
	Datum		value = ObjectIdGetDatum(relid);
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;
	List	   *presets = NIL;
	Preset	   *last = NULL;
	uint64		n;

	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	n = ssw_sql_exec(psprintf("SELECT p.preset, p.note, pg_catalog.array_to_string(p.columns, ', '), p.test, p.hook, p.advice,"
							  " CASE WHEN sweeper._indexed($1, p.indexed) THEN '' END, s.key, s.value,"
							  " (SELECT pg_catalog.string_agg(pg_catalog.split_part(c, ' ', 1), ', ' ORDER BY n) FROM pg_catalog.unnest(p.columns) WITH ORDINALITY AS u (c, n))"
							  " FROM %s, LATERAL pg_catalog.jsonb_each_text(p.settings) AS s ORDER BY p.preset, s.key", which),
					 1, &type, &value, NULL, true, 0);
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
			last->names = SPI_getvalue(tup, desc, 10);
			last->test = SPI_getvalue(tup, desc, 4);
			last->hook = SPI_getvalue(tup, desc, 5);
			last->advice = SPI_getvalue(tup, desc, 6);
			last->indexed = SPI_getvalue(tup, desc, 7) != NULL;
			presets = lappend(presets, last);
		}
		last->settings = lappend(last->settings, SPI_getvalue(tup, desc, 8));
		last->settings = lappend(last->settings, SPI_getvalue(tup, desc, 9));
		MemoryContextSwitchTo(old);
	}
	ssw_sql_end();
	ssw_identity_restore(&save);
	return presets;
}

static Preset *
find_preset(List *presets, const char *name)
{
	ListCell   *lc;

	foreach(lc, presets)
		if (strcmp(((Preset *) lfirst(lc))->name, name) == 0)
		return lfirst(lc);
	return NULL;
}

/* The preset that was asked for; the relation must match it. */
static Preset *
named_preset(Relation rel, const char *name)
{
	Preset	   *wanted = find_preset(read_presets(RelationGetRelid(rel), "sweeper.preset AS p"), name);
	Preset	   *found;

	if (wanted == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown preset \"%s\"", name),
				 errhint("SELECT preset, note FROM sweeper.preset ORDER BY 1;")));
	found = find_preset(read_presets(RelationGetRelid(rel),
									 "(SELECT * FROM sweeper.preset AS q WHERE sweeper._matches($1, q.columns, q.key)) AS p"), name);
	if (found == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is no table of preset \"%s\"", RelationGetRelationName(rel), name),
				 errdetail("Such a table has the columns %s, and a unique key of them.", wanted->columns),
				 errhint("Use sweeper.register() and name its columns.")));
	return found;
}

/* Do nearly all rows of a sample look as the preset says?  So do those of an empty table. */
static bool
looks_right(Relation rel, const Preset *preset)
{
	SswIdentity save;
	bool		right;
	bool		isnull;
	char	   *sql;

	if (preset->test == NULL)
		return true;
	sql = psprintf("SELECT pg_catalog.count(*) FILTER (WHERE %s) >= 0.9 * pg_catalog.count(*) FROM (SELECT * FROM %s LIMIT %d) AS t",
				   preset->test, ssw_stmt_relation(RelationGetRelid(rel)), SAMPLE_ROWS);
	ssw_identity_become_owner(rel->rd_rel->relowner, "pg_catalog, pg_temp", &save);
	ssw_sql_begin();
	(void) ssw_sql_exec(sql, 0, NULL, NULL, NULL, true, 0);
	right = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	ssw_sql_end();
	ssw_identity_restore(&save);
	return right;
}

/* The one preset that the relation matches. */
static Preset *
recognise(Relation rel)
{
	List	   *found = read_presets(RelationGetRelid(rel), "sweeper._presets($1) AS p");
	List	   *right = NIL;
	List	   *indexed = NIL;
	char	   *name = quote_literal_cstr(ssw_stmt_relation(RelationGetRelid(rel)));
	ListCell   *lc;

	foreach(lc, found)
	{
		if (!looks_right(rel, lfirst(lc)))
			continue;
		right = lappend(right, lfirst(lc));
		if (((Preset *) lfirst(lc))->indexed)
			indexed = lappend(indexed, lfirst(lc));
	}
	if (right != NIL)
		found = list_length(indexed) == 1 ? indexed : right;
	if (found == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not recognised", RelationGetRelationName(rel)),
				 errdetail("Its columns, their types and its key are those of no preset; table sweeper.preset has them all."),
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

/*
 * The function that a preset has on_expire be, as the table's owner; one that is there
 * already is taken as it is.  Returns its signature.
 */
static char *
make_hook(const Preset *preset, Relation rel)
{
	char	   *schema = pstrdup(quote_identifier(get_namespace_name(RelationGetNamespace(rel))));
	char	   *name = psprintf("%s.%s", schema, quote_identifier(psprintf("sweeper_%s", preset->name)));
	char	   *signature = psprintf("%s(text[])", name);
	StringInfoData body;
	SswIdentity save;

	initStringInfo(&body);
	for (const char *from = preset->hook, *to; *from; from = to)
	{
		bool		here = strncmp(from, SCHEMA_HERE, strlen(SCHEMA_HERE)) == 0;

		to = here ? from + strlen(SCHEMA_HERE) : from + 1;
		if (here)
			appendStringInfoString(&body, schema);
		else
			appendStringInfoChar(&body, *from);
	}
	ssw_identity_become_owner(rel->rd_rel->relowner, "pg_catalog, pg_temp", &save);
	ssw_sql_begin();
	(void) ssw_sql_exec(psprintf("SELECT WHERE pg_catalog.to_regprocedure(%s) IS NULL", quote_literal_cstr(signature)), 0, NULL, NULL, NULL, true, 0);
	if (SPI_processed > 0)
	{
		SPI_execute(psprintf("CREATE FUNCTION %s RETURNS void LANGUAGE sql AS %s", signature, quote_literal_cstr(body.data)), false, 0);
		ereport(NOTICE,
				(errmsg("created function %s", signature),
				 errdetail("It removes what hangs on the rows before they go: %s", body.data)));
	}
	ssw_sql_end();
	ssw_identity_restore(&save);
	return signature;
}

/* Has the column a time zone of its own? */
static bool
has_zone(Relation rel, const Preset *preset)
{
	for (int i = 0; i < list_length(preset->settings); i += 2)
	{
		SswArg		arg = ssw_args_find(list_nth(preset->settings, i));
		AttrNumber	att = arg == SSW_ARG_DEADLINE || arg == SSW_ARG_LAST_SEEN ?
		get_attnum(RelationGetRelid(rel), list_nth(preset->settings, i + 1)) : InvalidAttrNumber;

		if (att != InvalidAttrNumber)
			return get_atttype(RelationGetRelid(rel), att) == TIMESTAMPTZOID;
	}
	return false;
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

		if (a->given[arg] || (activity && arg == SSW_ARG_DEADLINE) || (arg == SSW_ARG_TIMEZONE && has_zone(rel, preset)))
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
							 quote_literal_cstr(ssw_args_text(arg, a->value[arg])));
	}
	ereport(NOTICE,
			(errmsg("\"%s\" is a table of %s", RelationGetRelationName(rel), preset->note),
			 errdetail("It has the columns %s, and their key. It is registered with %s.",
					   preset->names, buf.data)));
	if (preset->advice)
		ereport(NOTICE, (errmsg_internal("%s", preset->advice)));
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
	if (preset->hook && !a->given[SSW_ARG_ON_EXPIRE] && !a->dry_run)
		preset->settings = lappend(lappend(preset->settings, pstrdup("on_expire")), make_hook(preset, rel));
	apply(a, preset, rel, &assumed_zone);
	notice_preset(a, preset, rel, assumed_zone);
	result = ssw_register_relation(fcinfo, a, rel);
	table_close(rel, NoLock);
	AtEOXact_GUC(true, level);
	return result;
}
