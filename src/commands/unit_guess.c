/*
 * unit_guess.c
 *		What the values of a column could mean, for errors that ask for a unit
 *		or a time zone.
 *
 * Runs in the backend that registers or alters a policy, as the relation's
 * owner; reads at most a sample of the relation, shares and changes nothing.
 * A crash leaves nothing behind.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/sample.h"
#include "commands/unit_guess.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "commands/args.h"
#include "commands/preview.h"
#include "policy/expr.h"
#include "policy/index.h"
#include "policy/sweep_sql.h"
#include "policy/time_value.h"
#include "grace/service_log.h"

#define NEWEST			3		/* values that an error shows */
#define ORDERED_ROWS	100000	/* read in full to find the newest */

/*
 * The newest values and what SQL makes of each: pairs of text, newest first, in the
 * session's own zone.  shown is an expression over v.
 */
static uint64
read_newest(Relation rel, const char *sql, const char *shown)
{
	double		part;
	char	   *list = psprintf("%s AS v", sql);
	char	   *where = psprintf("%s IS NOT NULL", sql);
	char	   *rows = ssw_sample_select(rel, list, where, ORDERED_ROWS / 10, &part);
	int			level = ssw_identity_pin("row_security", "on");
	uint64		n;

	(void) ssw_identity_pin("standard_conforming_strings", "on");
	if (part < 1 && OidIsValid(ssw_index_find(rel, sql, NULL)))
		rows = psprintf("SELECT %s FROM %s AS t WHERE %s", list, ssw_guard_table(RelationGetRelid(rel)), where);
	n = ssw_spi_exec(psprintf("SELECT v::pg_catalog.text, %s FROM (SELECT v FROM (%s) AS s"
							  " ORDER BY v DESC LIMIT %d) AS newest", shown, rows, NEWEST),
					 0, NULL, NULL, NULL, true, 0);
	AtEOXact_GUC(true, level);
	return n;
}

static const char *const units[] = {"s", "ms", "us"};
static const char *const factors[] = {"1", "1000", "1000000"};

/* A timestamptz to the second, or "no time". */
static char *
unit_meaning(int i)
{
	return psprintf("CASE WHEN v::numeric BETWEEN -200000000000::numeric * %s AND 9215000000000::numeric * %s"
					" THEN pg_catalog.date_trunc('second', pg_catalog.to_timestamp((v / %s::numeric)::double precision))::pg_catalog.text"
					" ELSE 'no time' END, "
					"COALESCE(CASE WHEN v::numeric BETWEEN -200000000000::numeric * %s AND 9215000000000::numeric * %s"
					" THEN pg_catalog.to_timestamp((v / %s::numeric)::double precision)"
					" BETWEEN pg_catalog.now() - '1827 days'::interval AND pg_catalog.now() + '36525 days'::interval END, false)",
					factors[i], factors[i], factors[i], factors[i], factors[i], factors[i]);
}

/*
 * Add to the detail what the newest values would mean by a candidate; is that of the
 * newest one plausible?
 */
static bool
describe(Relation rel, const char *sql, const char *candidate, const char *shown, StringInfo detail)
{
	MemoryContext cxt = CurrentMemoryContext;
	MemoryContext old;
	bool		plausible = false;
	uint64		n;

	ssw_spi_begin();
	n = read_newest(rel, sql, shown);
	old = MemoryContextSwitchTo(cxt);
	for (uint64 r = 0; r < n; r++)
	{
		HeapTuple	tup = SPI_tuptable->vals[r];
		TupleDesc	desc = SPI_tuptable->tupdesc;

		if (r == 0)
		{
			plausible = strcmp(SPI_getvalue(tup, desc, 3), "t") == 0;
			appendStringInfo(detail, "%s %s: ", detail->len == 0 ? "The newest rows, read in" : "; in", candidate);
		}
		appendStringInfo(detail, "%s%s (%s)", r ? ", " : "", SPI_getvalue(tup, desc, 2), SPI_getvalue(tup, desc, 1));
	}
	MemoryContextSwitchTo(old);
	ssw_spi_end();
	return plausible;
}

/* ereport that an argument must be given, with the call that has it. */
static void
need(const SswPolicy *p, const char *what, const char *arg, const char *value, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s: %s must be given", what, arg),
			 p->args ? errdetail("%s.", detail[0] ? detail : "There are no rows to judge by") : 0,
			 p->args ? errhint("%s", ssw_args_call(p->args, arg, value)) :
			 errhint("Give %s to sweeper.alter_policy().", arg)));
}

/*
 * A number of what?  Says what the newest rows would mean in each unit, and
 * gives the call with the unit that makes them plausible.
 */
static void
ask_unit(const SswPolicy *p, Relation rel, const char *field,
		 const char *sql, Oid type)
{
	StringInfoData detail;
	const char *best = NULL;

	initStringInfo(&detail);
	for (int i = 0; p->args && i < lengthof(units); i++)
		if (describe(rel, sql, units[i], unit_meaning(i), &detail) && best == NULL)
			best = units[i];
	need(p, psprintf("%s of \"%s\" is a number", field, RelationGetRelationName(rel)), "unit",
		 best ? best : type == INT4OID ? "s" : "s, ms or us", detail.data);
}

/*
 * The zone of an application's sessions, as far as the server knows: what is set for
 * the table's owner, else for this database, else for the server.
 */
char	   *
ssw_unit_guess_application_timezone(Oid owner)
{
	Oid			types[] = {OIDOID, OIDOID};
	Datum		values[] = {ObjectIdGetDatum(owner), ObjectIdGetDatum(MyDatabaseId)};
	MemoryContext cxt = CurrentMemoryContext;
	char	   *zone = pstrdup(pg_get_timezone_name(session_timezone));
	SswIdentity save;

	ssw_spi_begin_as_extension(&save);
	if (ssw_spi_exec("SELECT zone FROM (SELECT pg_catalog.substr(c, pg_catalog.strpos(c, '=') + 1), s.setrole = $1, s.setdatabase <> 0"
					 "  FROM pg_catalog.pg_db_role_setting AS s, LATERAL pg_catalog.unnest(s.setconfig) AS c"
					 "  WHERE pg_catalog.lower(c) LIKE 'timezone=%' AND s.setdatabase IN ($2, 0) AND s.setrole IN ($1, 0)"
					 " UNION ALL SELECT setting, false, false FROM pg_catalog.pg_file_settings WHERE pg_catalog.lower(name) = 'timezone' AND applied)"
					 " AS z (zone, of_role, of_database) ORDER BY of_role DESC, of_database DESC",
					 2, types, values, NULL, true, 1) > 0)
		zone = MemoryContextStrdup(cxt, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1));
	ssw_spi_end_as(&save);
	return zone;
}

static bool
is_utc(const char *name)
{
	pg_tz	   *tz = pg_tzset(name);
	long		offset;

	return tz && pg_get_timezone_offset(tz, &offset) && offset == 0;
}

/*
 * A local time where?  Says what the newest rows would mean in the zones at
 * hand.  Activity cannot be in the future: that decides which one is proposed.
 */
static void
ask_zone(const SswPolicy *p, Relation rel, const char *field,
		 const char *sql, Oid type)
{
	StringInfoData detail;
	const char *best = NULL;
	const char *zones[3];

	initStringInfo(&detail);
	zones[0] = "UTC";
	zones[1] = pg_get_timezone_name(session_timezone);
	zones[2] = ssw_unit_guess_application_timezone(rel->rd_rel->relowner);
	for (int i = 0; p->args && i < lengthof(zones); i++)
	{
		char	   *zone = quote_literal_cstr(zones[i]);
		char	   *shown = psprintf("CASE WHEN v BETWEEN '1000-01-01' AND '9000-01-01'"
									 " THEN pg_catalog.date_trunc('second', v::timestamp without time zone AT TIME ZONE %s)::pg_catalog.text"
									 " ELSE 'no time' END, CASE WHEN v BETWEEN '1000-01-01' AND '9000-01-01'"
									 " THEN %s OR (v::timestamp without time zone AT TIME ZONE %s) <= pg_catalog.now() + '1 min'::interval"
									 " ELSE %s END", zone, strcmp(field, "deadline") == 0 ? "true" : "false", zone,
									 strcmp(field, "deadline") == 0 ? "true" : "false");

		if ((i > 0 && is_utc(zones[i])) || (i == 2 && pg_strcasecmp(zones[1], zones[2]) == 0))
			continue;
		if (describe(rel, sql, zones[i], shown, &detail) && best == NULL)
			best = zones[i];
	}
	need(p, psprintf("%s of \"%s\" has no time zone", field, RelationGetRelationName(rel)), "timezone", best ? best : "...", detail.data);
}

/* Have the deadline's builder ask here. */
void
ssw_unit_guess_init(void)
{
	ssw_time_ask_unit = ask_unit;
	ssw_time_ask_zone = ask_zone;
}
