/*
 * task_row.c
 *		What is written to a task besides its state: progress and comments.
 *
 * Runs wherever tasks change, in that transaction, as the extension's owner and in
 * SPI.  Reads what memory knows (task_shmem.c); a crash, or a rollback, undoes it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/cached_plan.h"
#include "base/shmem.h"
#include "work/task_row.h"
#include "work/task_shmem.h"

PG_FUNCTION_INFO_V1(ssw_task_progress_seen);

/* What the worker says goes to the row; null: as before. */
void
ssw_task_row_said(Datum task, const int64 *done, const int64 *total, const char *message)
{
	static const char *const sql =
	"UPDATE sweeper.task SET progress_at = clock_timestamp(), done = CASE WHEN $2 THEN $3 ELSE done END,"
	" total = CASE WHEN $4 THEN $5 ELSE total END, message = coalesce($6, message) WHERE task = $1";
	Oid			types[] = {UUIDOID, BOOLOID, INT8OID, BOOLOID, INT8OID, TEXTOID};
	Datum		values[6];

	values[0] = task;
	values[1] = BoolGetDatum(done != NULL);
	values[2] = Int64GetDatum(done ? *done : 0);
	values[3] = BoolGetDatum(total != NULL);
	values[4] = Int64GetDatum(total ? *total : 0);
	values[5] = message && message[0] ? CStringGetTextDatum(message) : (Datum) 0;
	ssw_plan_execute(sql, 6, types, values, NULL, false);
}

/* The task changes: what its worker last said goes to the row. */
void
ssw_task_row_progress(Datum task)
{
	SswProgressKey key = {.database = MyDatabaseId,.task = *DatumGetUUIDP(task)};
	SswProgress p;

	if (ssw_task_shmem_find(&key, &p))
		ssw_task_row_said(task, p.has_done ? &p.done : NULL, p.has_total ? &p.total : NULL, p.message);
}

/* Who did what to it, and why. */
void
ssw_task_row_comment(Datum task, const char *actor, const char *comment)
{
	Oid			types[] = {UUIDOID, TEXTOID, TEXTOID};
	Datum		values[] = {task, CStringGetTextDatum(actor), CStringGetTextDatum(comment)};

	ssw_plan_execute("INSERT INTO sweeper.task_comment (task, actor, comment) VALUES ($1, $2, $3)", 3, types, values, NULL, false);
}

/* _task_progress(task) → progress_at, done, total, message, as memory knows them; else nulls. */
Datum
ssw_task_progress_seen(PG_FUNCTION_ARGS)
{
	SswProgressKey key = {.database = MyDatabaseId,.task = *PG_GETARG_UUID_P(0)};
	SswProgress p;
	TupleDesc	desc;
	Datum		v[4] = {0};
	bool		isnull[4] = {true, true, true, true};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (ssw_shmem_available() && ssw_task_shmem_find(&key, &p))
	{
		isnull[0] = p.at == 0;
		v[0] = TimestampTzGetDatum(p.at);
		isnull[1] = !p.has_done;
		v[1] = Int64GetDatum(p.done);
		isnull[2] = !p.has_total;
		v[2] = Int64GetDatum(p.total);
		isnull[3] = p.message[0] == '\0';
		v[3] = isnull[3] ? (Datum) 0 : CStringGetTextDatum(p.message);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), v, isnull)));
}
