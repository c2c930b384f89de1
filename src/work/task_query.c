/*
 * task_query.c
 *		get_task() and list_tasks().
 *
 * Runs in the session of who asks, as the extension's owner, by functions of
 * schema/47_work.sql that are told who that is.  Works in read-only transactions
 * and on standbys.  Shares nothing but the tables.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "base/compat.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "base/arguments.h"
#include "base/identity.h"
#include "base/spi.h"
#include "policy/policy_rights.h"
#include "work/task.h"

PG_FUNCTION_INFO_V1(ssw_get_task);
PG_FUNCTION_INFO_V1(ssw_list_tasks);

#define N_LIST_ARGS		22
#define MAX_FILTER_BYTES	(64 * 1024)

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
	ssw_identity_become_extension(&save);
	ssw_spi_begin();
	if (!XactReadOnly && !RecoveryInProgress())
		ssw_spi_exec(consume, 4, types, values, NULL, false, 0);
	if (return_rows(fcinfo, "SELECT * FROM sweeper._get_task($1, $2, $3, $4)", 4, types, values, NULL) == 0)
		ssw_task_missing(values[3]);
	ssw_spi_end();
	ssw_identity_restore(&save);
	return (Datum) 0;
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

	InitMaterializedSRF(fcinfo, 0);
	values[0] = ObjectIdGetDatum(userid);
	values[1] = BoolGetDatum(ssw_rights_is_monitor(userid));
	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT * FROM sweeper._list_tasks($1, $2");
	for (int i = 0; i < N_LIST_ARGS; i++)
	{
		appendStringInfo(&sql, ", $%d", i + 3);
		types[i + 2] = get_fn_expr_argtype(fcinfo->flinfo, i);
		values[i + 2] = PG_ARGISNULL(i) ? (Datum) 0 : PG_GETARG_DATUM(i);
		nulls[i + 2] = PG_ARGISNULL(i) ? 'n' : ' ';
		if (types[i + 2] == INT4OID && !PG_ARGISNULL(i) && PG_GETARG_INT32(i) < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("max and skip must not be negative")));
		/* each task is compared with each pattern */
		if (types[i + 2] == TEXTARRAYOID && !PG_ARGISNULL(i) && toast_raw_datum_size(PG_GETARG_DATUM(i)) > MAX_FILTER_BYTES)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a filter must not be larger than %d kB", MAX_FILTER_BYTES / 1024)));
	}
	appendStringInfoChar(&sql, ')');
	ssw_identity_become_extension(&save);
	ssw_spi_begin();
	return_rows(fcinfo, sql.data, N_LIST_ARGS + 2, types, values, nulls);
	ssw_spi_end();
	ssw_identity_restore(&save);
	return (Datum) 0;
}
