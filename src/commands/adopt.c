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
#include "pgtime.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/argument_checks.h"
#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "commands/args.h"
#include "commands/register.h"
#include "commands/target_check.h"

PG_FUNCTION_INFO_V1(ssw_adopt);

/* The value of a setting that stands for the session's time zone. */
#define SESSION_TIMEZONE	"session"

typedef struct Preset
{
	char	   *name;
	char	   *note;
	char	   *hook;			/* body of on_expire, or null */
	char	   *advice;			/* or null */
	char	   *lifetime;		/* the same where a lifetime is assumed */
	char	   *columns;		/* their names */
	char	   *misfit;			/* why the relation is no such table, or null */
	char	   *surplus;		/* columns that no known version has, or null */
	ArrayType  *settings;		/* names and values in turn */
} Preset;

/* The presets that the relation matches; or that of a name. */
static List *
read_presets(Oid relid, const char *name)
{
	Oid			types[] = {OIDOID, TEXTOID};
	Datum		values[] = {ObjectIdGetDatum(relid), name ? CStringGetTextDatum(name) : (Datum) 0};
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;
	List	   *presets = NIL;
	uint64		n;

	ssw_spi_begin_as_extension(&save);
	n = ssw_spi_exec("SELECT * FROM sweeper._adopt($1, $2)", 2, types, values, name ? NULL : " n", true, 0);
	for (uint64 i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(cxt);
		Preset	   *p = palloc(sizeof(Preset));
		char	  **texts[] = {&p->name, &p->note, &p->hook, &p->advice, &p->lifetime, &p->columns, &p->misfit, &p->surplus};

		for (int col = 0; col < lengthof(texts); col++)
			*texts[col] = ssw_spi_text(i, col + 1);
		p->settings = DatumGetArrayTypePCopy(ssw_spi_column(i, lengthof(texts) + 1));
		presets = lappend(presets, p);
		MemoryContextSwitchTo(old);
	}
	ssw_spi_end_as(&save);
	return presets;
}

/* The preset that was asked for, or else the only one that the relation matches. */
static Preset *
choose(Relation rel, const char *wanted)
{
	List	   *found = read_presets(RelationGetRelid(rel), wanted);
	Preset	   *first = found ? linitial(found) : NULL;
	char	   *name = quote_literal_cstr(ssw_guard_relation(RelationGetRelid(rel)));
	StringInfoData names;
	ListCell   *lc;

	if (first == NULL && wanted)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unknown preset \"%s\"", wanted),
				 errhint("SELECT preset, note FROM sweeper.preset ORDER BY 1;")));
	if (first == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("\"%s\" is not recognised", RelationGetRelationName(rel)),
				 errdetail("Its columns, their types and its key match no preset of table sweeper.preset."),
				 errhint("Name its columns yourself: SELECT * FROM sweeper.register(%s, deadline => '...');", name)));
	if (first->misfit)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" is not a table of preset \"%s\"", RelationGetRelationName(rel), wanted),
				 errdetail_internal("%s", first->misfit),
				 errhint("Use sweeper.register() and name its columns.")));
	if (list_length(found) == 1)
		return first;
	initStringInfo(&names);
	foreach(lc, found)
		appendStringInfo(&names, "%s\"%s\"", names.len ? ", " : "", ((Preset *) lfirst(lc))->name);
	ereport(ERROR,
			(errcode(ERRCODE_AMBIGUOUS_PARAMETER),
			 errmsg("\"%s\" matches more than one preset", RelationGetRelationName(rel)),
			 errdetail("It matches %s.", names.data),
			 errhint("Name one: SELECT * FROM sweeper.adopt(%s, preset => %s);", name, quote_literal_cstr(first->name))));
}

/*
 * The preset's rows need a function that first removes what refers to them.  The
 * caller creates it, because its code runs with the rights of the table's owner.
 */
static void
ask_for_hook(const SswArgs *a, const Preset *preset, Relation rel)
{
	char	   *signature = psprintf("%s.%s(text[])", quote_identifier(get_namespace_name(RelationGetNamespace(rel))),
									 quote_identifier(psprintf("sweeper_%s", preset->name)));

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FUNCTION),
			 errmsg("preset \"%s\" needs on_expire", preset->name),
			 errdetail("Before rows are deleted, a function must remove what refers to them: %s", preset->hook),
			 errhint("As role \"%s\": CREATE FUNCTION %s RETURNS void LANGUAGE sql AS %s; %s", GetUserNameFromId(rel->rd_rel->relowner, false),
					 signature, quote_literal_cstr(preset->hook), ssw_args_call(a, "on_expire", signature))));
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
 * A preset's settings as arguments, in the order of their names; those that were given
 * prevail.  A filter that was given is joined to the preset's, which says what its rows
 * are.  A lifetime or a time zone that was not given is assumed.  Returns the arguments
 * that the preset sets.
 */
static List *
apply(SswArgs *a, const Preset *preset, Relation rel)
{
	bool		activity = a->given[SSW_ARG_LAST_SEEN];
	List	   *set = NIL;
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	deconstruct_array(preset->settings, TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls, &n);
	for (int i = 0; i < n; i += 2)
	{
		SswArg		arg = ssw_args_find(TextDatumGetCString(elems[i]));
		char	   *value = nulls[i + 1] ? NULL : TextDatumGetCString(elems[i + 1]);

		set = lappend_int(set, arg);
		if (arg == SSW_ARG_FILTER && value && a->given[arg] && !a->isnull[arg])
			value = psprintf("(%s) AND (%s)", value, ssw_args_text(arg, a->value[arg]));
		else if (a->given[arg] || (activity && arg == SSW_ARG_DEADLINE) || (arg == SSW_ARG_TIMEZONE && !needs_zone(a, rel)))
			continue;
		if (value && arg == SSW_ARG_TIMEZONE && strcmp(value, SESSION_TIMEZONE) == 0)
			value = pstrdup(pg_get_timezone_name(session_timezone));
		ssw_args_set_text(a, arg, value);
		if (value && (arg == SSW_ARG_TTL || arg == SSW_ARG_MAX_AGE || arg == SSW_ARG_TIMEZONE))
			a->assumed = lappend_int(a->assumed, arg);
	}
	/* a key that somebody prefers may be a credential */
	if (a->given[SSW_ARG_KEY] && !a->given[SSW_ARG_AUDIT])
	{
		ssw_args_set_text(a, SSW_ARG_AUDIT, "hash");
		set = list_append_unique_int(set, SSW_ARG_AUDIT);
	}
	return set;
}

/* What was recognised, why, and what is done about it. */
static void
notice_preset(const SswArgs *a, const Preset *preset, List *set, Relation rel)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, set)
	{
		SswArg		arg = lfirst_int(lc);

		if (!a->isnull[arg])
			appendStringInfo(&buf, "%s%s => %s", buf.len ? ", " : "", ssw_fields[arg].name,
							 quote_literal_cstr(ssw_args_text(arg, a->value[arg])));
	}
	ereport(NOTICE,
			(errmsg("\"%s\" %s a table of %s", RelationGetRelationName(rel), a->doubt ? "may be" : "is", preset->note),
			 errdetail("It has the columns %s, and their key. It %s registered with %s.",
					   preset->columns, a->dry_run ? "would be" : "is", buf.len ? buf.data : "what is given")));
	foreach(lc, a->advice)
		ereport(NOTICE, (errmsg_internal("%s", (char *) lfirst(lc))));
}

/* adopt(relation, preset, policy, register's fields..., start, if_exists, dry_run) */
Datum
ssw_adopt(PG_FUNCTION_ARGS)
{
	SswArgs    *a = palloc0(sizeof(SswArgs));
	Preset	   *preset;
	List	   *set;
	Relation	rel;
	Datum		result;
	int			level = ssw_identity_pin("quote_all_identifiers", "off");

	ssw_argument_not_null(fcinfo, 0, "relation");
	rel = ssw_target_open(PG_GETARG_OID(0));
	a->function = "adopt";
	a->first = quote_literal_cstr(ssw_guard_relation(PG_GETARG_OID(0)));
	if (!PG_ARGISNULL(1))
		a->first = psprintf("%s, preset => %s", a->first, quote_literal_cstr(text_to_cstring(PG_GETARG_TEXT_PP(1))));
	a->policy = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	ssw_args_read_start(a, fcinfo, 3 + SSW_NARGS);
	for (int i = 0; i < SSW_NARGS; i++)
		ssw_args_default(a, i);
	ssw_args_read(a, fcinfo, 3, true);
	preset = choose(rel, PG_ARGISNULL(1) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (preset->hook && !a->given[SSW_ARG_ON_EXPIRE])
		ask_for_hook(a, preset, rel);
	set = apply(a, preset, rel);
	/* a caller who names the preset says what the table is */
	if (preset->surplus && PG_ARGISNULL(1))
		a->doubt = psprintf("No known version of %s has the columns %s.", preset->note, preset->surplus);
	if (preset->lifetime && (list_member_int(a->assumed, SSW_ARG_TTL) || list_member_int(a->assumed, SSW_ARG_MAX_AGE)))
		a->advice = lappend(a->advice, preset->lifetime);
	if (preset->advice)
		a->advice = lappend(a->advice, preset->advice);
	notice_preset(a, preset, set, rel);
	result = ssw_register_relation(fcinfo, a, rel);
	table_close(rel, NoLock);
	AtEOXact_GUC(true, level);
	return result;
}
