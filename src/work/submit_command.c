/*
 * submit_command.c
 *		submit_sql(): a command that the server runs after the commit.
 *
 * Runs in the submitter's session and transaction: rolled back with it.  The commit wakes
 * a runner, or the coordinator (task_xact.c).  Shares nothing but the tables; a crash drops
 * commands that have not ended.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "base/argument_checks.h"
#include "base/compat.h"
#include "common/keywords.h"
#include "miscadmin.h"
#include "parser/scanner.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/cached_plan.h"
#include "base/spi.h"
#include "base/guc.h"
#include "work/caller.h"
#include "work/command_queue.h"
#include "work/task_id.h"
#include "work/task_xact.h"

PG_FUNCTION_INFO_V1(ssw_submit_sql);

#define MAX_RETRIES		100

/* More than space, comments and semicolons.  It is parsed where it runs, with the settings of that session. */
static void
require_statement(char *command)
{
	core_yy_extra_type extra;
	core_YYSTYPE value;
	YYLTYPE		at;
	core_yyscan_t scanner = scanner_init(command, &extra, &ScanKeywords, ScanKeywordTokens);
	int			token;

	while ((token = core_yylex(&value, &at, scanner)) == ';');
	scanner_finish(scanner);
	if (token == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("command must not be empty")));
}

/* Can a runner be connected as the caller? */
static void
check_submitter(void)
{
	if (!ssw_can_run_as(GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("role \"%s\" cannot run commands: it may not log in", GetUserNameFromId(GetUserId(), false)),
				 errdetail("A command runs in a process that is connected as the role that submits it."),
				 errhint("ALTER ROLE %s LOGIN; or submit it as a role that may.", quote_identifier(GetUserNameFromId(GetUserId(), false)))));
}

/* The last worker sweeps; those that were submitted before max_workers was lowered wait. */
static void
check_workers(void)
{
	if (ssw_max_workers == 1)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the server runs no commands while \"session_sweeper.max_workers\" is 1"),
				 errdetail("The only worker is for sweeps."),
				 errhint("ALTER SYSTEM SET session_sweeper.max_workers = 2; SELECT pg_reload_conf();")));
}

/*
 * The queue is bounded; commands of others' open transactions do not count.  A session
 * counts those that wait at most once a second, and always before one is refused.
 */
static void
check_room(void)
{
	static TimestampTz counted_at = 0;
	static int64 room = 0;		/* for so many more, then */
	TimestampTz now = GetCurrentTimestamp();
	int64		waiting;

	if (room-- > 0 && now >= counted_at && now - counted_at < USECS_PER_SEC)
		return;
	ssw_plan_execute(psprintf("SELECT count(*) FROM (SELECT FROM sweeper.task WHERE command IS NOT NULL AND finished_at IS NULL"
							  " AND status IN ('allocated', 'enqueued') LIMIT %d) AS t", ssw_max_queued_tasks),
					 0, NULL, NULL, NULL, false);
	waiting = DatumGetInt64(ssw_spi_column(0, 1));
	room = ssw_max_queued_tasks - waiting - 1;
	counted_at = now;
	if (room < 0)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("the queue of commands is full"),
				 errdetail("%d commands wait, as many as \"session_sweeper.max_queued_tasks\" allows.", ssw_max_queued_tasks),
				 errhint("Try again later; sweeper.list_tasks() shows yours, \"session_sweeper.max_task_workers\" limits how many run at a time.")));
}

/* submit_sql(command, summary, max_retries, timeout, group_role) → the task. */
Datum
ssw_submit_sql(PG_FUNCTION_ARGS)
{
	static const char *const sql =
	"INSERT INTO sweeper.task (task, command, summary, max_retries, time_limit, group_role, status, owner, machine_id, incarnation, created_at, enqueued_at, owner_oid)"
	" VALUES ($1, $2, $3, $4, $5, $6, 'enqueued', $7, $8, $9, $10, $10, $11)";
	Oid			types[] = {UUIDOID, TEXTOID, TEXTOID, INT4OID, INTERVALOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, OIDOID};
	Datum		values[11];
	pg_uuid_t  *id = ssw_task_identifier();
	SswCaller	c;

	ssw_argument_not_null(fcinfo, 0, "command");
	ssw_argument_not_null(fcinfo, 2, "max_retries");
	ssw_argument_bound(fcinfo, 0, "command", SSW_MAX_PAYLOAD);
	ssw_argument_bound(fcinfo, 1, "summary", SSW_MAX_TEXT);
	(void) ssw_argument_number("max_retries", PG_GETARG_INT32(2), 0, MAX_RETRIES);
	require_statement(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	values[0] = UUIDPGetDatum(id);
	values[1] = PG_GETARG_DATUM(0);
	values[2] = PG_ARGISNULL(1) ? (Datum) 0 : PG_GETARG_DATUM(1);
	values[3] = PG_GETARG_DATUM(2);
	values[4] = PG_ARGISNULL(3) ? (Datum) 0 : PG_GETARG_DATUM(3);
	if (values[4] && ssw_argument_interval("timeout", DatumGetIntervalP(values[4]), SSW_MIN_TIMEOUT) > USECS_PER_DAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must not be longer than 1 day")));
	values[5] = PG_ARGISNULL(4) ? (Datum) 0 : CStringGetTextDatum(GetUserNameFromId(PG_GETARG_OID(4), false));
	check_submitter();
	check_workers();
	c = ssw_caller_begin("sweeper.submit_sql()");
	check_room();
	values[6] = CStringGetTextDatum(c.name);
	values[7] = CStringGetTextDatum(ssw_queue_machine());
	values[8] = CStringGetTextDatum(ssw_queue_incarnation());
	values[9] = TimestampTzGetDatum(GetCurrentTimestamp());
	values[10] = ObjectIdGetDatum(c.userid);
	ssw_plan_execute(sql, 11, types, values, NULL, false);
	ssw_task_xact_task_changed(id);
	ssw_task_xact_command_waits(c.userid);
	ssw_caller_end(&c);
	PG_RETURN_UUID_P(id);
}
