/*
 * schedule.c
 *		Calendars: jobs of pg_cron that ask for passes.
 *
 * Runs in the caller's session, in the database of pg_cron.  A job belongs to the
 * role that made it and runs with its rights; none belongs to a superuser, because
 * pg_cron connects by the name of a database, and the owner of a later database of
 * that name owns the code that the job calls.  Shares nothing; a job is a row of pg_cron's.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/argument_checks.h"
#include "base/spi.h"
#include "policy/policy_rights.h"

PG_FUNCTION_INFO_V1(ssw_schedule);
PG_FUNCTION_INFO_V1(ssw_unschedule);

/*
 * As people find it in cron.job; one for each of their owners.  pg_cron keeps 63 bytes
 * of a name, and would take two names of one beginning for one.
 */
static char *
job_name(const char *policy)
{
	char	   *name = psprintf("session_sweeper.%s.%s", quote_identifier(get_database_name(MyDatabaseId)), policy);
	int			size = strlen(name);

	if (size < NAMEDATALEN)
		return name;
	return psprintf("%.*s~%08x", pg_mbcliplen(name, size, NAMEDATALEN - 10), name,
					DatumGetUInt32(hash_any((unsigned char *) name, size)));
}

/* pg_cron is here; otherwise the statement is for the database where it is. */
static void
require_cron(const char *there)
{
	/* a line in the configuration does not make it known */
	bool		loaded = (GetConfigOptionFlags("cron.database_name", true) & GUC_CUSTOM_PLACEHOLDER) == 0;
	const char *name = loaded ? GetConfigOption("cron.database_name", true, false) : NULL;

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_cron is not loaded"),
				 errdetail("sweeper.schedule() makes jobs of pg_cron."),
				 errhint("Add pg_cron to \"shared_preload_libraries\", restart, and CREATE EXTENSION pg_cron in one database.")));
	if (strcmp(name, get_database_name(MyDatabaseId)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pg_cron is in database \"%s\"", name),
				 errdetail("A job can be made and removed there only."),
				 errhint("Run there, as a role that is not a superuser: %s", there)));
	if (!OidIsValid(get_extension_oid("pg_cron", true)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"pg_cron\" is not installed"),
				 errhint("CREATE EXTENSION pg_cron; as a superuser.")));
}

/* The number in the first column of a statement's row, as the caller. */
static int64
run(const char *sql, int nargs, char *const *args)
{
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID};
	Datum		values[3];
	int64		result;
	bool		isnull;

	for (int i = 0; i < nargs; i++)
		values[i] = CStringGetTextDatum(args[i]);
	ssw_spi_begin();
	(void) ssw_spi_exec(sql, nargs, types, values, NULL, false, 0);
	result = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	ssw_spi_end();
	return result;
}

/* schedule(policy, schedule): the number of the job. */
Datum
ssw_schedule(PG_FUNCTION_ARGS)
{
	char	   *args[3];
	SswPolicy  *p;

	ssw_spi_refuse_read_only("sweeper.schedule()");
	p = ssw_rights_policy(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), SSW_RIGHT_ADMIN);
	ssw_argument_not_null(fcinfo, 1, "schedule");
	args[0] = job_name(p->name);
	args[1] = text_to_cstring(PG_GETARG_TEXT_PP(1));
	args[2] = psprintf("CALL sweeper.sweep(%s, wait => false)", quote_literal_cstr(p->name));
	require_cron(psprintf("SELECT cron.schedule_in_database(%s, %s, %s, %s);", quote_literal_cstr(args[0]), quote_literal_cstr(args[1]),
						  quote_literal_cstr(args[2]), quote_literal_cstr(get_database_name(MyDatabaseId))));
	if (superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("a job must not belong to a superuser"),
				 errdetail("pg_cron connects to a database by its name. If a later database has that name, its owner could run code as the superuser."),
				 errhint("Have a role of level \"admin\" call it: SELECT sweeper.grant_access('...', 'admin'); GRANT USAGE ON SCHEMA cron TO ...;")));
	PG_RETURN_INT64(run("SELECT cron.schedule($1, $2, $3)", 3, args));
}

/* unschedule(policy): was there a job of the caller's?  The policy may be gone. */
Datum
ssw_unschedule(PG_FUNCTION_ARGS)
{
	char	   *name;

	ssw_spi_refuse_read_only("sweeper.unschedule()");
	ssw_argument_not_null(fcinfo, 0, "policy");
	name = job_name(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	require_cron(psprintf("SELECT cron.unschedule(%s);", quote_literal_cstr(name)));
	PG_RETURN_BOOL(run("SELECT pg_catalog.count(cron.unschedule(jobid)) FROM cron.job"
					   " WHERE jobname OPERATOR(pg_catalog.=) $1 AND username OPERATOR(pg_catalog.=) CURRENT_USER::pg_catalog.text", 1, &name) > 0);
}
