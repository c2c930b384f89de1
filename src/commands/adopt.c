/*
 * adopt.c
 *		SQL function adopt: recognise a well-known session table and register it.
 *
 * Runs in the caller's session and transaction, like register().  What is known
 * stands in table sweeper.preset: columns, key, and arguments of register().
 * Reads that table and the catalogs, no rows of the relation.  Shares nothing; a crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/argument_checks.h"
#include "base/identity.h"
#include "base/spi.h"
#include "commands/args.h"
#include "commands/preview.h"
#include "commands/register.h"
#include "commands/target_check.h"
#include "commands/unit_guess.h"
#include "policy/sweep_sql.h"

PG_FUNCTION_INFO_V1(ssw_adopt);

/* The value of a setting that stands for the time zone of the application's sessions. */
#define APPLICATION_TIMEZONE	"application"

typedef struct Preset
{
	char	   *name;
	char	   *note;
	char	   *hook;			/* body of on_expire, or null */
	char	   *advice;			/* or null */
	char	   *lifetime;		/* the same where a lifetime is assumed */
	char	   *names;			/* of columns */
	char	   *missing;		/* columns that the relation has not; or null */
	char	   *surplus;		/* columns that no known version has, or null */
	char	   *key;			/* {names} */
	List	   *settings;		/* names and values in turn, char * */
} Preset;

/* Presets; which says where they come from, $1 being the relation.  An array is a setting's value as {...}. */
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

	ssw_spi_begin_as_extension(&save);
	n = ssw_spi_exec(psprintf("SELECT p.preset, p.note,"
							  " (SELECT pg_catalog.replace(p.hook, '{schema}', pg_catalog.quote_ident(n.nspname)) FROM pg_catalog.pg_class AS c"
							  "  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = $1), p.advice, p.lifetime, x.names, x.missing,"
							  " sweeper._surplus($1, p.columns, p.others), p.key, s.key, s.value"
							  " FROM %s CROSS JOIN LATERAL (SELECT pg_catalog.string_agg(pg_catalog.split_part(c, ' ', 1), ', ' ORDER BY n),"
							  "   pg_catalog.string_agg(c, ', ' ORDER BY n) FILTER (WHERE NOT sweeper._matches($1, ARRAY[c], '{}'))"
							  "   FROM pg_catalog.unnest(p.columns) WITH ORDINALITY AS u (c, n)) AS x (names, missing)"
							  " LEFT JOIN LATERAL (SELECT e.key, CASE pg_catalog.jsonb_typeof(e.value) WHEN 'array'"
							  "   THEN (SELECT coalesce(pg_catalog.array_agg(a), '{}')::text FROM pg_catalog.jsonb_array_elements_text(e.value) AS a)"
							  "   ELSE e.value #>> '{}' END AS value FROM pg_catalog.jsonb_each(p.settings) AS e) AS s ON true"
							  " ORDER BY p.preset, s.key", which),
					 1, &type, &value, NULL, true, 0);
	for (uint64 i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(cxt);
		char	   *v[11];

		for (int col = 0; col < lengthof(v); col++)
			v[col] = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, col + 1);
		if (last == NULL || strcmp(last->name, v[0]) != 0)
		{
			last = palloc(sizeof(Preset));
			*last = (Preset)
			{
				.name = v[0],.note = v[1],.hook = v[2],.advice = v[3],.lifetime = v[4],.names = v[5],
					.missing = v[6],.surplus = v[7],.key = v[8]
			};
			presets = lappend(presets, last);
		}
		if (v[9])
			last->settings = lappend(lappend(last->settings, v[9]), v[10]);
		MemoryContextSwitchTo(old);
	}
	ssw_spi_end_as(&save);
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
				 errmsg("\"%s\" is not a table of preset \"%s\"", RelationGetRelationName(rel), name),
				 wanted->missing ? errdetail("Missing columns: %s.", wanted->missing) :
				 errdetail("It has no unique key %s without nulls.", wanted->key),
				 errhint("Use sweeper.register() and name its columns.")));
	return found;
}

/* The one preset that the relation matches. */
static Preset *
recognise(Relation rel)
{
	List	   *found = read_presets(RelationGetRelid(rel), "sweeper._presets($1) AS p");
	char	   *name = quote_literal_cstr(ssw_stmt_relation(RelationGetRelid(rel)));
	StringInfoData names;
	ListCell   *lc;

	if (found == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not recognised", RelationGetRelationName(rel)),
				 errdetail("Its columns, their types and its key match no preset of table sweeper.preset."),
				 errhint("Say what its columns mean: SELECT * FROM sweeper.register(%s, deadline => '...');", name)));
	initStringInfo(&names);
	foreach(lc, found)
		appendStringInfo(&names, "%s\"%s\"", names.len ? ", " : "", ((Preset *) lfirst(lc))->name);
	if (list_length(found) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_AMBIGUOUS_PARAMETER),
				 errmsg("\"%s\" could be a table of more than one preset", RelationGetRelationName(rel)),
				 errdetail("It matches %s.", names.data),
				 errhint("Name one: SELECT * FROM sweeper.adopt(%s, preset => %s);", name,
						 quote_literal_cstr(((Preset *) linitial(found))->name))));
	return linitial(found);
}

/*
 * The preset's rows need a function that first removes what refers to them.  The
 * caller creates it, because its code runs with the rights of the table's owner.
 */
static void
ask_for_hook(const SswArgs *a, const Preset *preset, Relation rel)
{
	char	   *schema = get_namespace_name(RelationGetNamespace(rel));
	char	   *name = psprintf("sweeper_%s", preset->name);
	char	   *signature = psprintf("%s.%s(text[])", quote_identifier(schema), quote_identifier(name));
	Oid			type = TEXTARRAYOID;
	bool		exists = OidIsValid(LookupFuncName(list_make2(makeString(schema), makeString(name)), 1, &type, true));

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FUNCTION),
			 errmsg("preset \"%s\" needs on_expire", preset->name),
			 errdetail("Before rows are deleted, a function must remove what refers to them: %s", preset->hook),
			 exists ? errhint("If function %s does that: %s", signature, ssw_args_call(a, "on_expire", signature)) :
			 errhint("As role \"%s\": CREATE FUNCTION %s RETURNS void LANGUAGE sql AS %s; %s", GetUserNameFromId(rel->rd_rel->relowner, false),
					 signature, quote_literal_cstr(preset->hook), ssw_args_call(a, "on_expire", signature))));
}

static void
set_setting(Preset *preset, SswArg arg, char *value)
{
	for (int i = 0; i < list_length(preset->settings); i += 2)
		if (ssw_args_find(list_nth(preset->settings, i)) == arg)
		{
			lfirst(list_nth_cell(preset->settings, i + 1)) = value;
			return;
		}
	preset->settings = lappend(lappend(preset->settings, pstrdup(ssw_fields[arg].name)), value);
}

/* Do the times by which rows die have no zone of their own? */
static bool
needs_zone(const SswArgs *a, Relation rel)
{
	SswArg		arg = a->isnull[SSW_ARG_LAST_SEEN] ? SSW_ARG_DEADLINE : SSW_ARG_LAST_SEEN;
	AttrNumber	att = a->isnull[arg] ? InvalidAttrNumber : get_attnum(RelationGetRelid(rel), ssw_args_text(arg, a->value[arg]));

	return att == InvalidAttrNumber || get_atttype(RelationGetRelid(rel), att) != TIMESTAMPTZOID;
}

/*
 * A preset's settings as arguments; those that were given prevail.  A filter that was
 * given is joined to the preset's, which says what its rows are.  A lifetime or a time
 * zone that was not given is assumed.
 */
static void
apply(SswArgs *a, Preset *preset, Relation rel)
{
	bool		activity = a->given[SSW_ARG_LAST_SEEN];

	/* a key that somebody prefers may be a credential */
	if (a->given[SSW_ARG_KEY] && !a->given[SSW_ARG_AUDIT])
		set_setting(preset, SSW_ARG_AUDIT, "hash");

	/* in the order of names: timezone comes after the columns */
	for (int i = 0; i < list_length(preset->settings); i += 2)
	{
		SswArg		arg = ssw_args_find(list_nth(preset->settings, i));
		char	   *value = list_nth(preset->settings, i + 1);

		if (arg == SSW_ARG_FILTER && value && a->given[arg] && !a->isnull[arg])
			value = psprintf("(%s) AND (%s)", value, ssw_args_text(arg, a->value[arg]));
		else if (a->given[arg] || (activity && arg == SSW_ARG_DEADLINE) || (arg == SSW_ARG_TIMEZONE && !needs_zone(a, rel)))
			continue;
		if (value && arg == SSW_ARG_TIMEZONE && strcmp(value, APPLICATION_TIMEZONE) == 0)
			value = ssw_unit_guess_application_timezone(rel->rd_rel->relowner);
		ssw_args_set_text(a, arg, value);
		if (value && (arg == SSW_ARG_TTL || arg == SSW_ARG_MAX_AGE || arg == SSW_ARG_TIMEZONE))
			a->assumed = lappend_int(a->assumed, arg);
	}
}

/* What was recognised, why, and what is done about it. */
static void
notice_preset(const SswArgs *a, const Preset *preset, Relation rel)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	for (int i = 0; i < list_length(preset->settings); i += 2)
	{
		SswArg		arg = ssw_args_find(list_nth(preset->settings, i));

		if (!a->isnull[arg])
			appendStringInfo(&buf, "%s%s => %s", buf.len ? ", " : "", ssw_fields[arg].name,
							 quote_literal_cstr(ssw_args_text(arg, a->value[arg])));
	}
	ereport(NOTICE,
			(errmsg("\"%s\" %s a table of %s", RelationGetRelationName(rel), a->doubt ? "may be" : "is", preset->note),
			 errdetail("It has the columns %s, and their key. It %s registered with %s.",
					   preset->names, a->dry_run ? "would be" : "is", buf.len ? buf.data : "what is given")));
	foreach(lc, a->advice)
		ereport(NOTICE, (errmsg_internal("%s", (char *) lfirst(lc))));
}

/* adopt(relation, preset, policy, register's fields..., start, dry_run) */
Datum
ssw_adopt(PG_FUNCTION_ARGS)
{
	SswArgs    *a = palloc0(sizeof(SswArgs));
	Preset	   *preset;
	Relation	rel;
	Datum		result;
	int			level = ssw_identity_pin("quote_all_identifiers", "off");

	ssw_argument_not_null(fcinfo, 0, "relation");
	ssw_argument_not_null(fcinfo, 3 + SSW_NARGS, "start");
	ssw_argument_not_null(fcinfo, 4 + SSW_NARGS, "dry_run");
	rel = ssw_target_open(PG_GETARG_OID(0));
	a->function = "adopt";
	a->first = quote_literal_cstr(ssw_stmt_relation(PG_GETARG_OID(0)));
	if (!PG_ARGISNULL(1))
		a->first = psprintf("%s, preset => %s", a->first, quote_literal_cstr(text_to_cstring(PG_GETARG_TEXT_PP(1))));
	a->policy = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	a->start = text_to_cstring(PG_GETARG_TEXT_PP(3 + SSW_NARGS));
	a->dry_run = PG_GETARG_BOOL(4 + SSW_NARGS);
	for (int i = 0; i < SSW_NARGS; i++)
		ssw_args_default(a, i);
	ssw_args_read(a, fcinfo, 3, true);
	preset = PG_ARGISNULL(1) ? recognise(rel) :
		named_preset(rel, text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (preset->hook && !a->given[SSW_ARG_ON_EXPIRE])
		ask_for_hook(a, preset, rel);
	apply(a, preset, rel);
	/* a caller who names the preset says what the table is */
	if (preset->surplus && PG_ARGISNULL(1))
		a->doubt = psprintf("No known version of %s has the columns %s.", preset->note, preset->surplus);
	if (preset->lifetime && (list_member_int(a->assumed, SSW_ARG_TTL) || list_member_int(a->assumed, SSW_ARG_MAX_AGE)))
		a->advice = lappend(a->advice, preset->lifetime);
	if (preset->advice)
		a->advice = lappend(a->advice, preset->advice);
	notice_preset(a, preset, rel);
	result = ssw_register_relation(fcinfo, a, rel);
	table_close(rel, NoLock);
	AtEOXact_GUC(true, level);
	return result;
}
