/*
 * unit_guess.c
 *		What the newest value of a column could mean, for errors that ask for a unit
 *		or a time zone.
 *
 * Runs in the backend that registers or alters a policy, as the relation's
 * owner; reads at most a sample of the relation, shares and changes nothing.
 * A crash leaves nothing behind.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/spi.h"
#include "commands/args.h"
#include "commands/sample.h"
#include "commands/unit_guess.h"
#include "policy/time_value.h"

#define MAX_CANDIDATES	3
#define SAMPLE_ROWS		10000

/* Units or time zones that a value could be in; returns how many. */
static int
candidates(const SswTimeValue *v, bool is_number, const char **names)
{
	long		offset;

	names[0] = is_number ? "s" : "UTC";
	names[1] = is_number ? "ms" : pg_get_timezone_name(session_timezone);
	names[2] = "us";
	if (is_number)
		return v->type == INT4OID ? 1 : 3;
	return pg_get_timezone_offset(session_timezone, &offset) && offset == 0 ? 1 : 2;
}

/* SELECT of the newest value as text, and for each candidate its instant and whether that is plausible. */
static char *
newest_sql(Relation rel, const SswTimeValue *v, bool is_number, const char **names, int n)
{
	StringInfoData sql;
	double		part;

	/* activity cannot be in the future */
	const char *latest = strcmp(v->field, "deadline") == 0 ? "36525 days" : "1 min";

	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT v::pg_catalog.text");
	for (int i = 0; i < n; i++)
	{
		SswTimeValue c = {.sql = "v",.type = v->type};
		char	   *instant;

		if (is_number)
			c.factor = ssw_time_unit_factor(names[i]);
		else
			c.zone = quote_literal_cstr(names[i]);
		instant = ssw_time_to_instant(&c);
		appendStringInfo(&sql, ", pg_catalog.date_trunc('second', %s), %s BETWEEN pg_catalog.now() - '1827 days'::interval"
						 " AND pg_catalog.now() + '%s'::interval", instant, instant, latest);
	}
	appendStringInfo(&sql, " FROM (SELECT pg_catalog.max(v) AS v FROM (%s) AS s) AS newest WHERE v IS NOT NULL",
					 ssw_sample_select(rel, psprintf("%s AS v", v->sql), SAMPLE_ROWS, &part));
	return sql.data;
}

/*
 * A number of what, or a local time where?  The error's detail says what the newest value
 * would mean by each candidate; its hint is the call with the first that makes it plausible.
 */
static void
ask(const SswPolicy *p, Relation rel, const SswTimeValue *v)
{
	bool		is_number = v->type != TIMESTAMPOID && v->type != DATEOID;
	const char *arg = is_number ? "unit" : "timezone";
	const char *names[MAX_CANDIDATES];
	int			n = candidates(v, is_number, names);
	const char *best = "...";
	StringInfoData detail;
	int			level = ssw_identity_pin("row_security", "on");

	(void) ssw_identity_pin("standard_conforming_strings", "on");
	initStringInfo(&detail);
	ssw_spi_begin();
	if (p->args && ssw_spi_exec(newest_sql(rel, v, is_number, names, n), 0, NULL, NULL, NULL, true, 0) > 0)
	{
		appendStringInfo(&detail, "The newest value, %s, would be", ssw_spi_text(0, 1));
		for (int i = n - 1; i >= 0; i--)
			if (strcmp(ssw_spi_text(0, 2 * i + 3), "t") == 0)
				best = names[i];
		for (int i = 0; i < n; i++)
			appendStringInfo(&detail, "%s %s in %s", i ? "," : "", ssw_spi_text(0, 2 * i + 2), names[i]);
	}
	ssw_spi_end();
	AtEOXact_GUC(true, level);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 is_number ? errmsg("%s of \"%s\" is a number: unit must be given", v->field, RelationGetRelationName(rel)) :
			 errmsg("%s of \"%s\" has no time zone: timezone must be given", v->field, RelationGetRelationName(rel)),
			 detail.len ? errdetail("%s.", detail.data) : 0,
			 p->args && !p->args->alter ? errhint("%s", ssw_args_call(p->args, arg, best)) :
			 errhint("Give %s to sweeper.alter_policy().", arg)));
}

/* Have the deadline's builder ask here. */
void
ssw_unit_guess_init(void)
{
	ssw_time_ask = ask;
}
