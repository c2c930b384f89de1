/*
 * adopt.c
 *		SQL function adopt: recognise a well-known session table and register it.
 *
 * Runs in the caller's session and transaction, like register().  What is known
 * stands in table sweeper.preset: columns, key, and arguments of register().
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "base/arguments.h"
#include "commands/sample.h"
#include "commands/unit_guess.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/parser.h"
#include "parser/scansup.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "commands/args.h"
#include "commands/preview.h"
#include "commands/register.h"
#include "commands/target_check.h"
#include "policy/sweep_sql.h"

PG_FUNCTION_INFO_V1(ssw_adopt);

/* The value of a setting that stands for the time zone of the application's sessions. */
#define APPLICATION_TIMEZONE	"application"

/* In the body of a hook: the schema of the table. */
#define SCHEMA_HERE				"{schema}"

/* So many rows are looked at. */
#define SAMPLE_ROWS				1000
/* So many rows prove a time zone. */
#define PROOF_ROWS				3

typedef struct Preset
{
	char	   *name;
	char	   *note;
	char	   *names;			/* of columns */
	char	   *missing;		/* columns that the relation has not, with
								 * types; or null */
	char	   *surplus;		/* columns that no known version has, or null */
	char	   *key;			/* {names} */
	char	   *instant;		/* what the deadline meant when the row was
								 * written, with its time zone; or null */
	char	   *test;			/* of its rows, or null */
	char	   *hook;			/* body of on_expire, or null */
	char	   *advice;			/* or null */
	char	   *lifetime;		/* the same where one is assumed */
	bool		indexed;		/* the relation has the index it goes by */
	List	   *settings;		/* names and values in turn, char * */
	char	   *promised;		/* on_expire, which a dry run does not make */
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

	ssw_identity_become_extension(&save);
	ssw_spi_begin();
	n = ssw_spi_exec(psprintf("SELECT p.preset, p.note, p.test, p.hook, p.advice,"
							  " CASE WHEN sweeper._indexed($1, p.indexed) THEN '' END, s.key, s.value,"
							  " (SELECT pg_catalog.string_agg(pg_catalog.split_part(c, ' ', 1), ', ' ORDER BY n) FROM pg_catalog.unnest(p.columns) WITH ORDINALITY AS u (c, n)), p.lifetime,"
							  " (SELECT pg_catalog.string_agg(c, ', ' ORDER BY n) FROM pg_catalog.unnest(p.columns) WITH ORDINALITY AS u (c, n) WHERE NOT sweeper._matches($1, ARRAY[c], '{}')), p.key,"
							  " sweeper._surplus($1, p.columns, p.others), p.instant"
							  " FROM %s LEFT JOIN LATERAL (SELECT e.key, CASE pg_catalog.jsonb_typeof(e.value) WHEN 'array'"
							  "   THEN (SELECT coalesce(pg_catalog.array_agg(x), '{}')::text FROM pg_catalog.jsonb_array_elements_text(e.value) AS x)"
							  "   ELSE e.value #>> '{}' END AS value FROM pg_catalog.jsonb_each(p.settings) AS e) AS s ON true"
							  " ORDER BY p.preset, s.key", which),
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
			last->test = SPI_getvalue(tup, desc, 3);
			last->hook = SPI_getvalue(tup, desc, 4);
			last->advice = SPI_getvalue(tup, desc, 5);
			last->indexed = SPI_getvalue(tup, desc, 6) != NULL;
			last->names = SPI_getvalue(tup, desc, 9);
			last->lifetime = SPI_getvalue(tup, desc, 10);
			last->missing = SPI_getvalue(tup, desc, 11);
			last->key = SPI_getvalue(tup, desc, 12);
			last->surplus = SPI_getvalue(tup, desc, 13);
			last->instant = SPI_getvalue(tup, desc, 14);
			presets = lappend(presets, last);
		}
		name = SPI_getvalue(tup, desc, 7);
		if (name)
			last->settings = lappend(lappend(last->settings, name), SPI_getvalue(tup, desc, 8));
		MemoryContextSwitchTo(old);
	}
	ssw_spi_end();
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
				 wanted->missing ? errdetail("Missing columns: %s.", wanted->missing) :
				 errdetail("It has no unique key %s without nulls.", wanted->key),
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
	sql = psprintf("SELECT pg_catalog.count(*) FILTER (WHERE %s) >= 0.9 * pg_catalog.count(*) FROM (SELECT * FROM %s AS t LIMIT %d) AS t",
				   preset->test, ssw_guard_table(RelationGetRelid(rel)), SAMPLE_ROWS);
	ssw_identity_become_owner(rel->rd_rel->relowner, "pg_catalog, pg_temp", &save);
	ssw_spi_begin();
	(void) ssw_spi_exec(sql, 0, NULL, NULL, NULL, true, 0);
	right = DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	ssw_spi_end();
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

/* A hook: what it would be, and in whose name. */
typedef struct Hook
{
	const Preset *preset;
	Relation	rel;
	char	   *name;			/* without its schema */
	char	   *signature;
	char	   *body;
	List	   *tables;			/* OIDs of those that the body names */
	Oid			others;			/* of them, one that somebody else owns */
} Hook;

static char *
hook_body(const char *from, const char *schema)
{
	StringInfoData body;

	initStringInfo(&body);
	for (const char *to; *from; from = to)
	{
		bool		here = strncmp(from, SCHEMA_HERE, strlen(SCHEMA_HERE)) == 0;

		to = here ? from + strlen(SCHEMA_HERE) : from + 1;
		if (here)
			appendStringInfoString(&body, schema);
		else
			appendStringInfoChar(&body, *from);
	}
	return body.data;
}

/*
 * Is the function there?  One that somebody else made, or that does something else,
 * must not run before rows go unless the caller names it.
 */
static bool
hook_exists(const Hook *h)
{
	Oid			type = TEXTARRAYOID;
	HeapTuple	tup = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum(h->name), PointerGetDatum(buildoidvector(&type, 1)),
									  ObjectIdGetDatum(RelationGetNamespace(h->rel)));
	Form_pg_proc proc;
	Oid			owner = h->rel->rd_rel->relowner;
	bool		isnull;
	char	   *body;

	if (!HeapTupleIsValid(tup))
		return false;
	proc = (Form_pg_proc) GETSTRUCT(tup);
	body = TextDatumGetCString(SysCacheGetAttr(PROCNAMEARGSNSP, tup, Anum_pg_proc_prosrc, &isnull));
	if (proc->proowner != owner || proc->prolang != SQLlanguageId || strcmp(body, h->body) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_FUNCTION),
				 errmsg("function %s exists and is not the one of preset \"%s\"", h->signature, h->preset->name),
				 proc->proowner != owner ?
				 errdetail("It belongs to role \"%s\", the table to role \"%s\".", GetUserNameFromId(proc->proowner, false),
						   GetUserNameFromId(owner, false)) :
				 errdetail("The preset's, in language sql, is: %s", h->body),
				 errhint("Drop it, or, if it is meant, give on_expire => %s.", quote_literal_cstr(h->signature))));
	ReleaseSysCache(tup);
	return true;
}

/*
 * Whose are the tables that the body names, and their partitions and children?  Even to
 * plan a statement on a view or on an index of expressions runs code of its owner's, as
 * who runs the statement.
 */
static bool
note_other_owner(Node *node, Hook *h)
{
	Oid			relid;
	ListCell   *lc;

	if (node == NULL)
		return false;
	if (!IsA(node, RangeVar))
		return raw_expression_tree_walker(node, note_other_owner, h);
	if (castNode(RangeVar, node)->schemaname == NULL)
		return false;
	relid = RangeVarGetRelid(castNode(RangeVar, node), AccessShareLock, true);
	foreach(lc, OidIsValid(relid) ? find_all_inheritors(relid, AccessShareLock, NULL) : NIL)
	{
		Oid			owner = ssw_relation_owner(lfirst_oid(lc));

		if (OidIsValid(owner) && owner != h->rel->rd_rel->relowner && !superuser_arg(owner))
			h->others = lfirst_oid(lc);
	}
	return OidIsValid(h->others);
}

/* Parse and plan the statements of the body as the table's owner: tables, columns and rights must be there. */
static bool
try_hook(void *arg)
{
	Hook	   *h = arg;
	MemoryContext cxt = CurrentMemoryContext;
	Oid			type = TEXTARRAYOID;
	Datum		null = (Datum) 0;
	SswIdentity save;
	ListCell   *lc;

	ssw_identity_become_owner(h->rel->rd_rel->relowner, "pg_catalog, pg_temp", &save);
	ssw_spi_begin();
	foreach(lc, raw_parser(h->body, RAW_PARSE_DEFAULT))
	{
		RawStmt    *raw = lfirst_node(RawStmt, lc);
		char	   *sql = raw->stmt_len ? pnstrdup(h->body + raw->stmt_location, raw->stmt_len) :
		pstrdup(h->body + raw->stmt_location);
		SPIPlanPtr	plan;
		ListCell   *source;

		if (note_other_owner(raw->stmt, h))
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("table %s belongs to role \"%s\"", ssw_stmt_relation(h->others),
							GetUserNameFromId(ssw_relation_owner(h->others), false))));
		plan = SPI_prepare(sql, 1, &type);
		foreach(source, SPI_plan_get_plan_sources(plan))
		{
			MemoryContext old = MemoryContextSwitchTo(cxt);

			h->tables = list_concat_unique_oid(h->tables, ((CachedPlanSource *) lfirst(source))->relationOids);
			MemoryContextSwitchTo(old);
		}
		if (IsA(raw->stmt, SelectStmt) || IsA(raw->stmt, InsertStmt) || IsA(raw->stmt, UpdateStmt) ||
			IsA(raw->stmt, DeleteStmt) || IsA(raw->stmt, MergeStmt))
			ssw_spi_exec(psprintf("EXPLAIN %s", sql), 1, &type, &null, "n", false, 0);
	}
	ssw_spi_end();
	ssw_identity_restore(&save);
	return false;
}

/* Of the tables that the hook names, those whose rows the owner may not change in every way. */
static char *
forbidden_tables(const Hook *h)
{
	StringInfoData buf;
	AclMode		all = ACL_SELECT | ACL_INSERT | ACL_UPDATE | ACL_DELETE;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, h->tables)
		if (pg_class_aclmask(lfirst_oid(lc), h->rel->rd_rel->relowner, all, ACLMASK_ALL) != all)
		appendStringInfo(&buf, "%s%s", buf.len ? ", " : "", ssw_stmt_relation(lfirst_oid(lc)));
	return buf.data;
}

/* Could the hook run? */
static void
check_hook(Hook *h)
{
	ErrorData  *error = ssw_spi_try(try_hook, h);
	char	   *owner = GetUserNameFromId(h->rel->rd_rel->relowner, false);
	char	   *tables;

	if (error == NULL)
		return;
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION)
		ReThrowError(error);
	tables = error->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE && !OidIsValid(h->others) ? forbidden_tables(h) : "";
	ereport(ERROR,
			(errcode(error->sqlerrcode),
			 errmsg("cannot adopt \"%s\" as a table of %s: %s", RelationGetRelationName(h->rel), h->preset->note, error->message),
			 errdetail("Before rows go, role \"%s\" would run: %s", owner, h->body),
			 OidIsValid(h->others) ?
			 errhint("Its triggers and rules would run as role \"%s\". If that may be: ALTER TABLE %s OWNER TO %s;", owner,
					 ssw_stmt_relation(h->others), quote_identifier(owner)) :
			 tables[0] ? errhint("GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s;", tables, quote_identifier(owner)) :
			 errhint("Mend that, or give on_expire => a function of your own.")));
}

/*
 * The function that a preset has on_expire be, as the table's owner; a dry run makes the
 * same checks.  Returns whether it is there now.
 */
static bool
make_hook(Hook *h, bool dry_run)
{
	Oid			owner = h->rel->rd_rel->relowner;
	char	   *schema = pstrdup(quote_identifier(get_namespace_name(RelationGetNamespace(h->rel))));
	SswIdentity save;
	bool		exists;

	h->name = psprintf("sweeper_%s", h->preset->name);
	truncate_identifier(h->name, strlen(h->name), false);
	h->signature = psprintf("%s.%s(text[])", schema, quote_identifier(h->name));
	h->body = hook_body(h->preset->hook, schema);
	exists = hook_exists(h);
	check_hook(h);
	if (exists)
		return true;
	if (!DatumGetBool(DirectFunctionCall3(has_schema_privilege_id_id, ObjectIdGetDatum(owner),
										  ObjectIdGetDatum(RelationGetNamespace(h->rel)), CStringGetTextDatum("CREATE"))))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("role \"%s\" cannot create function %s", GetUserNameFromId(owner, false), h->signature),
				 errdetail("Preset \"%s\" removes with it, as the table's owner, what hangs on the rows before they go.", h->preset->name),
				 errhint("GRANT CREATE ON SCHEMA %s TO %s;", schema, quote_identifier(GetUserNameFromId(owner, false)))));
	if (!dry_run)
	{
		ssw_identity_become_owner(owner, "pg_catalog, pg_temp", &save);
		ssw_spi_begin();
		SPI_execute(psprintf("CREATE FUNCTION %s RETURNS void LANGUAGE sql AS %s", h->signature, quote_literal_cstr(h->body)), false, 0);
		ssw_spi_end();
		ssw_identity_restore(&save);
	}
	ereport(NOTICE,
			(errmsg("%s function %s", dry_run ? "would create" : "created", h->signature),
			 errdetail("It removes what hangs on the rows before they go: %s", h->body)));
	return !dry_run;
}

/* Let the preset's hook be on_expire. */
static void
add_hook(Preset *preset, Relation rel, bool dry_run)
{
	Hook		h = {.preset = preset,.rel = rel};

	if (make_hook(&h, dry_run))
		preset->settings = lappend(lappend(preset->settings, pstrdup("on_expire")), h.signature);
	else
		preset->promised = h.signature;
}

/* The plain column that the preset goes by; invalid where that is an expression. */
static AttrNumber
time_column(Relation rel, const Preset *preset)
{
	AttrNumber	att = InvalidAttrNumber;

	for (int i = 0; i < list_length(preset->settings) && att == InvalidAttrNumber; i += 2)
	{
		SswArg		arg = ssw_args_find(list_nth(preset->settings, i));

		if (arg == SSW_ARG_DEADLINE || arg == SSW_ARG_LAST_SEEN)
			att = get_attnum(RelationGetRelid(rel), list_nth(preset->settings, i + 1));
	}
	return att;
}

/*
 * The time zone that the rows prove, or null: the only one of those in use here in
 * which the local times of some rows are the very instants that the same rows have in
 * another place, and those of no row come before them.  Rows that were touched since
 * live longer.
 */
static char *
proven_zone(Relation rel, const Preset *preset)
{
	AttrNumber	att = time_column(rel, preset);
	List	   *zones = ssw_unit_guess_zones(rel->rd_rel->relowner);
	char	   *proven = NULL;
	SswIdentity save;
	double		part;
	char	   *rows;
	ListCell   *lc;

	if (preset->instant == NULL || att == InvalidAttrNumber)
		return NULL;
	ssw_identity_become_owner(rel->rd_rel->relowner, "pg_catalog, pg_temp", &save);
	ssw_spi_begin();
	rows = ssw_sample_select(rel, psprintf("t.%s AS v, %s AS i", quote_identifier(get_attname(RelationGetRelid(rel), att, false)), preset->instant),
							 "true", SAMPLE_ROWS, &part);
	foreach(lc, zones)
	{
		bool		isnull;

		(void) ssw_spi_exec(psprintf("SELECT pg_catalog.count(*) FILTER (WHERE d < '-2 s') = 0 AND pg_catalog.count(*) FILTER (WHERE d BETWEEN '-2 s' AND '2 s') >= %d"
									 " FROM (SELECT v AT TIME ZONE %s - i AS d FROM (%s) AS s) AS x",
									 PROOF_ROWS, quote_literal_cstr(lfirst(lc)), rows), 0, NULL, NULL, NULL, true, 0);
		if (!DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull)))
			continue;
		if (proven)
		{
			proven = NULL;
			break;
		}
		proven = lfirst(lc);
	}
	ssw_spi_end();
	ssw_identity_restore(&save);
	return proven;
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
	preset->settings = lappend(lappend(preset->settings, pstrdup(ssw_args_name(arg))), value);
}

/*
 * A preset's settings as arguments; those that were given prevail, but for a filter, which
 * says what its rows are: one that was given chooses among them.  A lifetime that was not
 * given is assumed, and so is the zone of local times, unless rows prove it.  Returns
 * the zone that they prove, or null.
 */
static char *
apply(SswArgs *a, Preset *preset, Relation rel)
{
	bool		activity = a->given[SSW_ARG_LAST_SEEN];
	AttrNumber	att = time_column(rel, preset);
	bool		zoned = att != InvalidAttrNumber && get_atttype(RelationGetRelid(rel), att) == TIMESTAMPTZOID;
	char	   *proven = NULL;

	/* a key that somebody prefers may be a credential */
	if (a->given[SSW_ARG_KEY] && !a->given[SSW_ARG_AUDIT])
		set_setting(preset, SSW_ARG_AUDIT, "hash");

	for (int i = 0; i < list_length(preset->settings); i += 2)
	{
		SswArg		arg = ssw_args_find(list_nth(preset->settings, i));
		char	   *value = list_nth(preset->settings, i + 1);

		if (arg == SSW_ARG_FILTER && value && a->given[arg] && !a->isnull[arg])
			value = psprintf("(%s) AND (%s)", value, ssw_args_text(arg, a->value[arg]));
		else if (a->given[arg] || (activity && arg == SSW_ARG_DEADLINE) || (arg == SSW_ARG_TIMEZONE && zoned))
			continue;
		if (arg == SSW_ARG_TIMEZONE && value && !activity && !a->given[SSW_ARG_DEADLINE])
			proven = proven_zone(rel, preset);
		if (proven && arg == SSW_ARG_TIMEZONE)
			value = proven;
		else if (value && arg == SSW_ARG_TIMEZONE && strcmp(value, APPLICATION_TIMEZONE) == 0)
			value = ssw_unit_guess_application_timezone(rel->rd_rel->relowner);
		ssw_args_set_text(a, arg, value);
		if (value && (arg == SSW_ARG_TTL || arg == SSW_ARG_MAX_AGE || (arg == SSW_ARG_TIMEZONE && !proven)))
			a->assumed = lappend_int(a->assumed, arg);
	}
	return proven;
}

/* What was recognised, why, and what is done about it. */
static void
notice_preset(const SswArgs *a, const Preset *preset, Relation rel, const char *proven)
{
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	for (int i = 0; i < list_length(preset->settings); i += 2)
	{
		SswArg		arg = ssw_args_find(list_nth(preset->settings, i));

		if (!a->isnull[arg])
			appendStringInfo(&buf, "%s%s => %s", buf.len ? ", " : "", ssw_args_name(arg),
							 quote_literal_cstr(ssw_args_text(arg, a->value[arg])));
	}
	if (preset->promised)
		appendStringInfo(&buf, ", on_expire => %s", quote_literal_cstr(preset->promised));
	ereport(NOTICE,
			(errmsg("\"%s\" %s a table of %s", RelationGetRelationName(rel), a->doubt ? "may be" : "is", preset->note),
			 errdetail("It has the columns %s, and their key. It %s registered with %s.",
					   preset->names, a->dry_run ? "would be" : "is", buf.len ? buf.data : "what is given")));
	foreach(lc, a->advice)
		ereport(NOTICE, (errmsg_internal("%s", (char *) lfirst(lc))));
	if (proven)
		ereport(NOTICE,
				(errmsg("rows prove that deadlines are local times of %s", proven),
				 errdetail("In that zone they are the instants that the rows themselves have: %s", preset->instant)));
}

/* adopt(relation, preset, policy, register's fields..., start, dry_run) */
Datum
ssw_adopt(PG_FUNCTION_ARGS)
{
	SswArgs    *a = palloc0(sizeof(SswArgs));
	Preset	   *preset;
	Relation	rel;
	Datum		result;
	char	   *proven;
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
		add_hook(preset, rel, a->dry_run);
	proven = apply(a, preset, rel);
	/* who names the preset says what the table is */
	if (preset->surplus && PG_ARGISNULL(1))
		a->doubt = psprintf("No known version of %s has the columns %s.", preset->note, preset->surplus);
	if (preset->lifetime && (list_member_int(a->assumed, SSW_ARG_TTL) || list_member_int(a->assumed, SSW_ARG_MAX_AGE)))
		a->advice = lappend(a->advice, preset->lifetime);
	if (preset->advice)
		a->advice = lappend(a->advice, preset->advice);
	notice_preset(a, preset, rel, proven);
	result = ssw_register_relation(fcinfo, a, rel);
	table_close(rel, NoLock);
	AtEOXact_GUC(true, level);
	return result;
}
