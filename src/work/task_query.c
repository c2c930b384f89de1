/*
 * task_query.c
 *		Read tasks, and wait for them: get_task(), list_tasks(), claim_wait(), wait_for_task().
 *
 * Runs in the caller's session.  get_task() and list_tasks() run as the extension's owner,
 * by functions of schema/47_work.sql that are given the caller; they also work in read-only
 * transactions and on standbys.  Procedures that wait (wait.c) sleep on a condition variable of
 * task_shmem.c, and commits wake them.
 *
 * Shares nothing but the tables; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/compat.h"
#include "base/identity.h"
#include "base/spi.h"
#include "base/wait.h"
#include "policy/policy_rights.h"
#include "work/task.h"
#include "work/task_query.h"
#include "work/task_row.h"
#include "work/task_shmem.h"
#include "work/work_state.h"

PG_FUNCTION_INFO_V1(ssw_get_task);
PG_FUNCTION_INFO_V1(ssw_list_tasks);
PG_FUNCTION_INFO_V1(ssw_claim_wait);
PG_FUNCTION_INFO_V1(ssw_wait_for_task);

/* Arguments of list_tasks(): how many, and numbers of two. */
#define N_LIST_ARGS		23
#define LIST_KINDS		1
#define LIST_STATUSES	10

/* Run it and hand the rows out; returns how many. */
static uint64
return_rows(FunctionCallInfo fcinfo, const char *sql, int nargs, Oid *types, Datum *values, const char *nulls)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	uint64		n = ssw_spi_exec(sql, nargs, types, values, nulls, false, 0);

	for (uint64 i = 0; i < n; i++)
		tuplestore_puttuple(result->setResult, SPI_tuptable->vals[i]);
	return n;
}

/* get_task(task) → one row. */
Datum
ssw_get_task(PG_FUNCTION_ARGS)
{
	static const char *const consume =
	"UPDATE sweeper.task SET consumed_at = clock_timestamp() WHERE task = (SELECT task FROM sweeper.task"
	" WHERE task = $4 AND owner = $2 AND finished_at IS NOT NULL AND consumed_at IS NULL FOR NO KEY UPDATE SKIP LOCKED)"
	" AND $1 IS NOT NULL AND $3 IS NOT NULL";
	Oid			types[] = {OIDOID, TEXTOID, BOOLOID, UUIDOID};
	Datum		values[4];
	Oid			userid = GetUserId();
	SswIdentity save;

	ssw_argument_not_null(fcinfo, 0, "task");
	InitMaterializedSRF(fcinfo, 0);
	values[0] = ObjectIdGetDatum(userid);
	values[1] = CStringGetTextDatum(GetUserNameFromId(userid, false));
	values[2] = BoolGetDatum(ssw_rights_is_monitor(userid));
	values[3] = PG_GETARG_DATUM(0);
	ssw_spi_begin_as_extension(&save);
	if (!XactReadOnly && !RecoveryInProgress())
		ssw_spi_exec(consume, 4, types, values, NULL, false, 0);
	if (return_rows(fcinfo, "SELECT * FROM sweeper._get_task($1, $2, $3, $4)", 4, types, values, NULL) == 0)
		ssw_task_missing(values[3]);
	ssw_spi_end_as(&save);
	return (Datum) 0;
}

/* Each element of a list must be one of these words, if the list is given. */
static void
check_words(FunctionCallInfo fcinfo, int arg, const char *argument, const char *words)
{
	Oid			types[] = {TEXTARRAYOID, TEXTOID};
	Datum		values[] = {PG_GETARG_DATUM(arg), CStringGetTextDatum(words)};

	if (!PG_ARGISNULL(arg) &&
		ssw_spi_exec("SELECT v FROM pg_catalog.unnest($1) AS v WHERE v <> ALL (pg_catalog.string_to_array($2, ', '))", 2, types, values, NULL, true, 1) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not contain \"%s\"", argument, TextDatumGetCString(ssw_spi_column(0, 1))),
				 errhint("It may contain %s.", words)));
}

/* list_tasks(filters, max, skip) → rows. */
Datum
ssw_list_tasks(PG_FUNCTION_ARGS)
{
	Oid			types[N_LIST_ARGS + 2] = {OIDOID, BOOLOID};
	Datum		values[N_LIST_ARGS + 2];
	char		nulls[N_LIST_ARGS + 3] = "  ";
	Oid			userid = GetUserId();
	SswIdentity save;
	StringInfoData sql;

	for (int i = N_LIST_ARGS - 2; i < N_LIST_ARGS; i++)
		if (!PG_ARGISNULL(i))
			(void) ssw_argument_number(i == N_LIST_ARGS - 1 ? "skip" : "max", PG_GETARG_INT32(i), 0, PG_INT64_MAX);
	InitMaterializedSRF(fcinfo, 0);
	values[0] = ObjectIdGetDatum(userid);
	values[1] = BoolGetDatum(ssw_rights_is_monitor(userid));
	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT * FROM sweeper._list_tasks($1, $2");
	for (int i = 0; i < N_LIST_ARGS; i++)
	{
		appendStringInfo(&sql, ", $%d", i + 3);
		types[i + 2] = get_fn_expr_argtype(fcinfo->flinfo, i);
		/* each row is compared with all of a list */
		if (types[i + 2] == TEXTARRAYOID)
			ssw_argument_bound(fcinfo, i, "a list", SSW_MAX_TEXT);
		values[i + 2] = PG_ARGISNULL(i) ? (Datum) 0 : PG_GETARG_DATUM(i);
		nulls[i + 2] = PG_ARGISNULL(i) ? 'n' : ' ';
	}
	appendStringInfoChar(&sql, ')');
	ssw_spi_begin_as_extension(&save);
	check_words(fcinfo, LIST_KINDS, "kinds", "job, sql");
	check_words(fcinfo, LIST_STATUSES, "statuses", ssw_task_row_states());
	return_rows(fcinfo, sql.data, N_LIST_ARGS + 2, types, values, nulls);
	ssw_spi_end_as(&save);
	return (Datum) 0;
}

#define FOREVER_US		(INT64CONST(100) * 365 * USECS_PER_DAY)

/* Run a query for at most one row, as the caller or as the extension. */
static uint64
execute(bool as_extension, const char *sql, int nargs, Oid *types, Datum *values)
{
	SswIdentity save;
	uint64		n;

	if (as_extension)
		ssw_identity_become_extension(&save);
	n = ssw_spi_exec(sql, nargs, types, values, NULL, false, 1);
	if (as_extension)
		ssw_identity_restore(&save);
	return n;
}

/* A query that is run until the last column of its row is true. */
typedef struct Look
{
	bool		as_extension;
	const char *sql;
	int			nargs;
	Oid		   *types;
	Datum	   *values;
	uint64		changes;
	bool		found;			/* there is a row, in SPI_tuptable */
} Look;

static void
note_changes(void *arg)
{
	((Look *) arg)->changes = ssw_task_shmem_changes();
}

static bool
look(void *arg)
{
	Look	   *l = arg;

	l->found = execute(l->as_extension, l->sql, l->nargs, l->types, l->values) > 0;
	return l->found && DatumGetBool(ssw_spi_column(0, SPI_tuptable->tupdesc->natts));
}

static void
sleep_until_change(void *arg, long timeout_ms)
{
	static uint32 wait_event = 0;

	ssw_task_shmem_wait(((Look *) arg)->changes, timeout_ms, ssw_wait_event("SessionSweeperTask", wait_event));
}

static void
look_until(Look *l, int64 timeout_us)
{
	SswWait		w = {.look = look,.sleep = sleep_until_change,.note = note_changes,.arg = l};

	ssw_wait_until(&w, timeout_us);
}

/* Wait; the columns of the row are the procedure's result, nulls without one. */
static Datum
wait_for_row(FunctionCallInfo fcinfo, int timeout_arg, const char *timeout_name, const char *sql, int nargs, Oid *types, Datum *values)
{
	MemoryContext cxt = CurrentMemoryContext;
	int64		timeout_us = ssw_argument_interval(timeout_name, PG_GETARG_INTERVAL_P(timeout_arg), 0);
	Look		l = {.sql = sql,.nargs = nargs,.types = types,.values = values};
	TupleDesc	desc = ssw_wait_begin(fcinfo);

	look_until(&l, timeout_us);
	return ssw_wait_end(desc, cxt, l.found);
}

/* CALL claim_wait(worker, wait, start, INOUT the task): nulls when there was none. */
Datum
ssw_claim_wait(PG_FUNCTION_ARGS)
{
	Oid			types[] = {UUIDOID, BOOLOID};
	pg_uuid_t	worker;
	Datum		values[2];

	ssw_argument_not_null(fcinfo, 0, "worker");
	ssw_argument_not_null(fcinfo, 1, "wait");
	ssw_argument_not_null(fcinfo, 2, "start");
	ssw_wait_check_context(fcinfo, "claim_wait", "sweeper.claim() does not wait");
	worker = *PG_GETARG_UUID_P(0);
	values[0] = UUIDPGetDatum(&worker);
	values[1] = PG_GETARG_DATUM(2);
	PG_RETURN_DATUM(wait_for_row(fcinfo, 1, "wait", "SELECT c.*, true FROM sweeper.heartbeat($1) AS alive CROSS JOIN LATERAL sweeper.claim($1, 1, $2) AS c", 2, types, values));
}

/* CALL wait_for_task(task, timeout, INOUT status): the status, terminal or not. */
Datum
ssw_wait_for_task(PG_FUNCTION_ARGS)
{
	Oid			type = UUIDOID;
	pg_uuid_t	task;
	Datum		value;

	ssw_argument_not_null(fcinfo, 0, "task");
	ssw_argument_not_null(fcinfo, 1, "timeout");
	ssw_wait_check_context(fcinfo, "wait_for_task", "sweeper.get_task() does not wait");
	task = *PG_GETARG_UUID_P(0);
	value = UUIDPGetDatum(&task);
	PG_RETURN_DATUM(wait_for_row(fcinfo, 1, "timeout", "SELECT t.status, t.finished_at IS NOT NULL FROM sweeper.get_task($1) AS t",
								 1, &type, &value));
}

/* Until the rows of a role ($2) for a table ($1) that are accepted now are written or set aside: see flush(). */
void
ssw_task_query_until_written(Oid *types, Datum *values)
{
	static const char *const rows =
	"FROM sweeper.append_row AS r WHERE r.stream IN (SELECT s.stream FROM sweeper._append_stream AS s"
	" WHERE s.here AND s.relid = $1 AND s.role_oid = $2)";
	Look		l;

	ssw_spi_begin_nonatomic();
	/* what this transaction has accepted counts with its commit */
	SPI_commit();
	execute(true, psprintf("SELECT max(r.id) %s", rows), 2, types, values);
	values[2] = ssw_spi_column(0, 1);
	if (values[2] != 0)
	{
		ssw_work_flush(DatumGetInt64(values[2]));
		l = (Look)
		{
			.as_extension = true,.sql = psprintf("SELECT NOT EXISTS (SELECT %s AND r.id <= $3)", rows),.nargs = 3,.types = types,.values = values
		};
		look_until(&l, FOREVER_US);
	}
	SPI_finish();
}
