/*
 * claim.c
 *		claim(): the oldest tasks for a worker.
 *
 * Runs in the worker's session and transaction, as the extension's owner.  Rows
 * that another session is just claiming are skipped, so that no claim waits and a task
 * has one winner.  Shares nothing but the tables; a crash, or the caller's
 * rollback, undoes it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/cached_plan.h"
#include "base/spi.h"
#include "work/caller.h"
#include "work/task_xact.h"
#include "work/worker_lost.h"

PG_FUNCTION_INFO_V1(ssw_claim);

#define MAX_CLAIM	1000
/* Of several jobs, so many more tasks are read: other workers may claim some of them. */
#define LOOK_AHEAD	64

/* Columns that are returned. */
#define N_COLUMNS	6

/* In the order of the tasks: an UPDATE returns rows in any. */
#define TAKE(tasks) \
	"WITH next AS MATERIALIZED (" tasks " LIMIT %1$d FOR NO KEY UPDATE SKIP LOCKED), taken AS (" \
	"UPDATE sweeper.task AS t SET status = CASE WHEN $2 THEN 'running' ELSE 'claimed' END, claimed_at = $3," \
	" started_at = CASE WHEN $2 THEN $3 END, worker = $4, worker_id = $5, worker_name = $6, worker_role = $7, attempt = t.attempt + 1," \
	" progress_at = NULL, done = NULL, total = NULL, message = NULL, error = NULL" \
	" FROM next, sweeper.job AS j WHERE j.job = t.job AND t.task = next.task" \
	" RETURNING t.task, j.room, j.category, j.name, t.payload, t.attempt) SELECT * FROM taken ORDER BY task"

/*
 * Limits are part of the text: for a parameter the planner would expect a tenth of all
 * tasks, and sort them.  The job is given by BETWEEN, so that only the index of waiting
 * tasks gives the order, and not the index of all tasks with their history.
 */

/* Of one job: the index has them in order. */
static const char *const of_one =
TAKE("SELECT q.task FROM sweeper.task AS q WHERE q.job BETWEEN $1 AND $1 AND q.status = 'enqueued' AND q.job IS NOT NULL ORDER BY q.job, q.task");

/* Of those that were looked at. */
static const char *const of_many =
TAKE("SELECT q.task FROM sweeper.task AS q WHERE q.task = ANY ($1) AND q.status = 'enqueued' ORDER BY q.task");

/* The oldest tasks of several jobs, after a given one. */
static const char *const look =
"SELECT array_agg(c.task), count(*), max(c.task::text COLLATE \"C\")::uuid FROM (SELECT o.task FROM unnest($1) AS u (job) CROSS JOIN LATERAL"
" (SELECT q.task FROM sweeper.task AS q WHERE q.job BETWEEN u.job AND u.job AND q.status = 'enqueued' AND q.job IS NOT NULL AND q.task > $2"
" ORDER BY q.job, q.task LIMIT %1$d) AS o ORDER BY o.task LIMIT %1$d) AS c";

typedef struct Claim
{
	ReturnSetInfo *result;
	int			left;
	Oid			types[7];		/* the first is of the job or of tasks */
	Datum		values[7];
} Claim;

/* Claim by a statement and hand the rows out. */
static void
take(Claim *cl, const char *sql)
{
	uint64		n = ssw_plan_execute(psprintf(sql, cl->left), 7, cl->types, cl->values, NULL, false);

	for (uint64 i = 0; i < n; i++)
	{
		Datum		v[N_COLUMNS];
		bool		isnull[N_COLUMNS];

		for (int col = 0; col < N_COLUMNS; col++)
			v[col] = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, col + 1, &isnull[col]);
		tuplestore_putvalues(cl->result->setResult, cl->result->setDesc, v, isnull);
		ssw_task_xact_task_changed(DatumGetUUIDP(v[0]));
	}
	SPI_freetuptable(SPI_tuptable);
	cl->left -= n;
}

/* Of several jobs: read the oldest tasks, then claim those that no other session claims. */
static void
take_of_many(Claim *cl, Datum jobs)
{
	Oid			types[] = {INT8ARRAYOID, UUIDOID};
	pg_uuid_t	none = {0};
	int			size = cl->left + LOOK_AHEAD;
	Datum		values[] = {jobs, UUIDPGetDatum(&none)};
	int64		seen;

	cl->types[0] = UUIDARRAYOID;
	do
	{
		ssw_plan_execute(psprintf(look, size), 2, types, values, NULL, false);
		seen = DatumGetInt64(ssw_spi_column(0, 2));
		if (seen == 0)
			return;
		cl->values[0] = ssw_spi_column(0, 1);
		values[1] = ssw_spi_column(0, 3);
		take(cl, of_many);
	} while (cl->left > 0 && seen == size);
}

/* claim(worker, max, start) → the tasks. */
Datum
ssw_claim(PG_FUNCTION_ARGS)
{
	Claim		cl = {.types = {INT8OID, BOOLOID, TIMESTAMPTZOID, UUIDOID, INT8OID, TEXTOID, TEXTOID}};
	SswCaller	c;
	SswWorker	w;
	ArrayType  *jobs;

	ssw_argument_not_null(fcinfo, 0, "worker");
	ssw_argument_not_null(fcinfo, 1, "max");
	ssw_argument_not_null(fcinfo, 2, "start");
	cl.left = ssw_argument_number("max", PG_GETARG_INT32(1), 1, MAX_CLAIM);
	InitMaterializedSRF(fcinfo, 0);
	cl.result = (ReturnSetInfo *) fcinfo->resultinfo;
	c = ssw_caller_begin("sweeper.claim()");
	w = ssw_caller_hold_worker(&c, PG_GETARG_DATUM(0));
	ssw_worker_lost_unheard(PG_GETARG_DATUM(0), w.ttl_us);
	cl.values[1] = PG_GETARG_DATUM(2);
	cl.values[2] = TimestampTzGetDatum(GetCurrentTimestamp());
	cl.values[3] = PG_GETARG_DATUM(0);
	cl.values[4] = Int64GetDatum(w.number);
	cl.values[5] = CStringGetTextDatum(w.name);
	cl.values[6] = CStringGetTextDatum(w.role);
	jobs = DatumGetArrayTypeP(w.jobs);
	if (ArrayGetNItems(ARR_NDIM(jobs), ARR_DIMS(jobs)) == 1)
	{
		cl.values[0] = Int64GetDatum(*(int64 *) ARR_DATA_PTR(jobs));
		take(&cl, of_one);
	}
	else
		take_of_many(&cl, w.jobs);
	ssw_caller_end(&c);
	return (Datum) 0;
}
