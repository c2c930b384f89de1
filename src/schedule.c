/*
 * schedule.c
 *		Calendars: jobs of pg_cron that ask for passes.
 *
 * Runs in the caller's session, and through errand.c in the database of pg_cron.  A
 * job belongs to who made it, and runs with his rights.  Shares nothing; a job is a
 * row of pg_cron's.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "common/hashfn.h"
#include "common/string.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/syscache.h"

#include "errand.h"
#include "identity.h"
#include "rights.h"
#include "shmem.h"
#include "sql.h"
#include "store.h"

/* The policy that stands for all of maintenance in the name of its job. */
#define MAINTENANCE	"sweeper.maintenance"

PG_FUNCTION_INFO_V1(ssw_schedule);
PG_FUNCTION_INFO_V1(ssw_unschedule);
PG_FUNCTION_INFO_V1(ssw_schedule_maintenance);
PG_FUNCTION_INFO_V1(ssw_unschedule_maintenance);

/* Where pg_cron keeps its jobs. */
static Oid
cron_database(void)
{
	/* a line in the configuration does not make it known */
	bool		loaded = (GetConfigOptionFlags("cron.database_name", true) & GUC_CUSTOM_PLACEHOLDER) == 0;
	const char *name = loaded ? GetConfigOption("cron.database_name", true, false) : NULL;
	Oid			oid = name ? get_database_oid(name, true) : InvalidOid;

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_cron is not loaded"),
				 errdetail("Calendars are jobs of pg_cron."),
				 errhint("Add pg_cron to \"shared_preload_libraries\", restart, and CREATE EXTENSION pg_cron in one database.")));
	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_DATABASE),
				 errmsg("database \"%s\" of pg_cron does not exist", name),
				 errhint("Correct \"cron.database_name\" and restart.")));
	return oid;
}

static int
encoding_of(Oid database)
{
	HeapTuple	tup = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(database));
	int			encoding;

	if (!HeapTupleIsValid(tup))
		elog(ERROR, "cache lookup failed for database %u", database);
	encoding = ((Form_pg_database) GETSTRUCT(tup))->encoding;
	ReleaseSysCache(tup);
	return encoding;
}

/*
 * As people find it in cron.job; one for each of their owners.  pg_cron takes no longer
 * names than others are, and would take two of one beginning for one; it is shortest in
 * the encoding of most databases.
 */
static char *
job_name(const char *policy)
{
	char	   *name = psprintf("session_sweeper.%s.%s", quote_identifier(get_database_name(MyDatabaseId)), policy);
	char	   *utf8 = pg_server_to_any(name, strlen(name), PG_UTF8);
	int			size = strlen(utf8);
	uint32		hash;

	if (size < NAMEDATALEN)
		return name;
	hash = DatumGetUInt32(hash_any((unsigned char *) utf8, size));
	size = pg_encoding_mbcliplen(PG_UTF8, utf8, size, NAMEDATALEN - 10);
	return psprintf("%s~%08x", pg_any_to_server(pnstrdup(utf8, size), size, PG_UTF8), hash);
}

/*
 * A name as a literal that means the same in all encodings: pg_cron keeps the command in
 * its database's, and a process of its own runs the bytes.
 */
static char *
literal(const char *name, int encoding)
{
	StringInfoData buf;

	if (encoding == GetDatabaseEncoding() || GetDatabaseEncoding() == PG_SQL_ASCII || pg_is_ascii(name))
		return quote_literal_cstr(name);
	initStringInfo(&buf);
	appendStringInfoString(&buf, "E'");
	for (const unsigned char *c = (unsigned char *) pg_server_to_any(name, strlen(name), PG_UTF8); *c; c += pg_utf_mblen(c))
		if (IS_HIGHBIT_SET(*c))
			appendStringInfo(&buf, "\\U%08X", utf8_to_unicode(c));
		else
			appendStringInfo(&buf, SQL_STR_DOUBLE(*c, true) ? "%c%c" : "%c", *c, *c);
	appendStringInfoChar(&buf, '\'');
	return buf.data;
}

/* Make or change the job, which calls something with the policy, if that is given; its number. */
static int64
schedule(const char *policy, const char *when, const char *command, const char *argument)
{
	Oid			database = cron_database();
	int			encoding = encoding_of(database);
	const char *args[] = {job_name(policy), when, NULL, get_database_name(MyDatabaseId)};

	args[2] = argument ? psprintf(command, literal(argument, encoding)) : command;
	/* the other one is not granted to everybody */
	if (database == MyDatabaseId)
		return ssw_errand_run(database, "pg_cron", "SELECT cron.schedule($1, $2, $3)", 3, args);
	if (encoding != GetDatabaseEncoding() && !pg_is_ascii(args[3]))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pg_cron cannot be told the name of database \"%s\"", args[3]),
				 errdetail("Its database \"%s\" has another encoding.", get_database_name(database)),
				 errhint("Give the database a name of ASCII characters, or schedule the call in a calendar of your own.")));
	return ssw_errand_run(database, "pg_cron", "SELECT cron.schedule_in_database($1, $2, $3, $4)", 4, args);
}

static bool
unschedule(const char *policy)
{
	const char *args[] = {job_name(policy)};

	return ssw_errand_run(cron_database(), "pg_cron",
						  "SELECT pg_catalog.count(cron.unschedule(jobid)) FROM cron.job WHERE jobname = $1 AND username = CURRENT_USER", 1, args) > 0;
}

static char *
get_schedule(FunctionCallInfo fcinfo, int arg)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("schedule must not be null")));
	return text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

/* schedule(policy, schedule): the number of the job. */
Datum
ssw_schedule(PG_FUNCTION_ARGS)
{
	SswPolicy  *p;

	ssw_shmem_require();
	PreventCommandIfReadOnly("schedule()");
	p = ssw_rights_policy(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), SSW_RIGHT_ADMIN);
	PG_RETURN_INT64(schedule(p->name, get_schedule(fcinfo, 1), "CALL sweeper.sweep(%s, wait => false)", p->name));
}

/* unschedule(policy): was there a job of the caller's?  The policy may be gone. */
Datum
ssw_unschedule(PG_FUNCTION_ARGS)
{
	ssw_shmem_require();
	PreventCommandIfReadOnly("unschedule()");
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("policy must not be null")));
	PG_RETURN_BOOL(unschedule(text_to_cstring(PG_GETARG_TEXT_PP(0))));
}

/* Whether history goes when maintenance asks for it, or a little all the time. */
static void
let_history_wait(bool wait)
{
	Oid			type = BOOLOID;
	Datum		value = BoolGetDatum(wait);

	if (!ssw_rights_is_admin(GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for maintenance"),
				 errhint("Have SELECT sweeper.grant_access(%s, 'admin'); run by a superuser.",
						 quote_literal_cstr(GetUserNameFromId(GetUserId(), false)))));
	(void) ssw_store_exec("UPDATE sweeper.policy SET check_every = CASE WHEN $1 THEN interval '0' ELSE interval '1 min' END"
						  " WHERE policy LIKE 'sweeper.%' AND action = 'delete'", 1, &type, &value, NULL);
	ssw_shmem_policies_changed();
}

/* schedule_maintenance(schedule): the number of the job. */
Datum
ssw_schedule_maintenance(PG_FUNCTION_ARGS)
{
	char	   *when = get_schedule(fcinfo, 0);

	ssw_shmem_require();
	PreventCommandIfReadOnly("schedule_maintenance()");
	let_history_wait(true);
	PG_RETURN_INT64(schedule(MAINTENANCE, when, "SELECT sweeper.maintain()", NULL));
}

static bool
try_unschedule(void *arg)
{
	*(bool *) arg = unschedule(MAINTENANCE);
	return true;
}

/*
 * unschedule_maintenance(): was there a job of the caller's?  History goes on without,
 * also where there is no pg_cron any more.
 */
Datum
ssw_unschedule_maintenance(PG_FUNCTION_ARGS)
{
	bool		found = false;
	ErrorData  *error;

	ssw_shmem_require();
	PreventCommandIfReadOnly("unschedule_maintenance()");
	let_history_wait(false);
	error = ssw_sql_try(try_unschedule, &found);
	if (error && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	if (error)
		ereport(NOTICE,
				(errmsg("no job of pg_cron was looked for: %s", error->message),
				 errdetail("History is trimmed a little all the time from now on.")));
	PG_RETURN_BOOL(found);
}
