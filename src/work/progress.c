/*
 * progress.c
 *		task_progress(): the worker of a task reports, and learns whether it is to stop.
 *
 * A call that reports nothing only asks: it is no progress, so the timeout of the job
 * runs on.  Exception: the first word since the start of service, because a crash loses
 * progress, and a task that nobody speaks of then is lost (worker_lost.c).
 *
 * Runs in the worker's session.  Memory keeps the report (task_shmem.c), and it is written
 * to the row when the task changes.  The first report after a change reads and locks the
 * row, in a subtransaction that is rolled back; the commit of a later change of the task removes
 * the entry; a rollback leaves it.
 *
 * Shares the entries of task_shmem.c.  A crash loses reports that are not in the row.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/cached_plan.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "grace/service_log.h"
#include "heartbeat/heartbeat_sql.h"
#include "work/caller.h"
#include "work/command_runner.h"
#include "work/runner_demand.h"
#include "work/task_row.h"
#include "work/task_shmem.h"

PG_FUNCTION_INFO_V1(ssw_task_progress);

typedef enum Answer
{
	ANSWER_GO_ON,
	ANSWER_STOP,
	ANSWER_NOT_YOURS,			/* another role's, or another attempt */
	ANSWER_UNKNOWN				/* memory has no room */
} Answer;

/* What the caller reports. */
typedef struct Report
{
	SswProgressKey key;
	Oid			role;			/* as which the caller acts */
	int			attempt;		/* 0: whichever */
	SswProgress said;			/* done, total, message, where given */
	bool		is_progress;	/* it says any of them, or is the first word
								 * since the start */
	Answer		answer;
	Oid			role_of_task;
	pg_uuid_t	worker;			/* zeros: none */
} Report;

static const pg_uuid_t nobody = {0};

/* Add the report to the entry, which is locked. */
static void
add_report(SswProgress *p, void *arg)
{
	Report	   *w = arg;

	w->role_of_task = p->role;
	w->answer = ANSWER_NOT_YOURS;
	if (p->role != w->role || (w->attempt != 0 && w->attempt != p->attempt))
		return;
	if (w->is_progress)
		p->at = GetCurrentTimestamp();
	if (w->said.has_done)
		p->done = w->said.done;
	p->has_done |= w->said.has_done;
	if (w->said.has_total)
		p->total = w->said.total;
	p->has_total |= w->said.has_total;
	if (w->said.message[0])
		strlcpy(p->message, w->said.message, sizeof(p->message));
	w->worker = p->worker;
	w->answer = p->stop ? ANSWER_STOP : ANSWER_GO_ON;
}

/*
 * The task as its row says, which is locked; false: it does not run, or this
 * transaction has changed it, and may yet undo that (*ours).  *unheard: nobody has spoken
 * of it since service began.
 */
static bool
read_task(Datum task, SswProgress *p, bool *ours, bool *unheard)
{
	static const char *const sql =
	"SELECT CASE WHEN command IS NULL THEN worker_role END, attempt, worker, cancel_requested_at IS NOT NULL, progress_at, done, total, message, xmin, owner_oid,"
	" greatest(claimed_at, started_at, progress_at)"
	" FROM sweeper.task WHERE task = $1 AND status IN ('claimed', 'running') FOR SHARE";
	Oid			type = UUIDOID;
	HeapTuple	tup;
	TupleDesc	desc;
	char	   *role;
	char	   *message;
	Datum		d;
	bool		isnull;

	if (ssw_plan_execute_fresh(sql, 1, &type, &task) == 0)
		return false;
	tup = SPI_tuptable->vals[0];
	desc = SPI_tuptable->tupdesc;
	role = SPI_getvalue(tup, desc, 1);
	/* a command runs as its owner, whatever that role is called now */
	p->role = role ? get_role_oid(role, true) : DatumGetObjectId(SPI_getbinval(tup, desc, 10, &isnull));
	p->attempt = DatumGetInt32(SPI_getbinval(tup, desc, 2, &isnull));
	d = SPI_getbinval(tup, desc, 3, &isnull);
	if (!isnull)
		p->worker = *DatumGetUUIDP(d);
	p->stop = DatumGetBool(SPI_getbinval(tup, desc, 4, &isnull));
	p->at = DatumGetTimestampTz(SPI_getbinval(tup, desc, 5, &isnull));
	p->done = DatumGetInt64(SPI_getbinval(tup, desc, 6, &isnull));
	p->has_done = !isnull;
	p->total = DatumGetInt64(SPI_getbinval(tup, desc, 7, &isnull));
	p->has_total = !isnull;
	message = SPI_getvalue(tup, desc, 8);
	if (message)
		strlcpy(p->message, message, sizeof(p->message));
	*ours = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(SPI_getbinval(tup, desc, 9, &isnull)));
	*unheard = DatumGetTimestampTz(SPI_getbinval(tup, desc, 11, &isnull)) < ssw_service_began();
	return true;
}

/* Is it the command that this process runs? */
static bool
is_own(Datum task)
{
	const pg_uuid_t *own = ssw_runner_task();

	return own && memcmp(own, DatumGetUUIDP(task), UUID_LEN) == 0;
}

/* Read the row, and publish an entry with the report. */
static bool
look(void *arg)
{
	Report	   *w = arg;
	Datum		task = UUIDPGetDatum(&w->key.task);
	SswProgress p = {.key = w->key};
	SswCaller	c = ssw_caller_begin("sweeper.task_progress()");
	bool		ours = false;
	bool		unheard = false;

	w->answer = ANSWER_NOT_YOURS;
	if (read_task(task, &p, &ours, &unheard))
	{
		w->is_progress |= unheard;
		w->role_of_task = p.role;
		add_report(&p, w);
		if (w->answer != ANSWER_NOT_YOURS && (ours || !ssw_task_shmem_publish(&p, is_own(task))))
			w->answer = w->answer == ANSWER_STOP ? ANSWER_STOP : ANSWER_UNKNOWN;
	}
	ssw_caller_end(&c);
	return false;
}

/* Report, as the caller or as the role of the task if the caller may act as that.  A look leaves no lock. */
static void
report(Report *w)
{
	ErrorData  *error;

	if (!ssw_task_shmem_change(&w->key, add_report, w) && (error = ssw_spi_try(look, w)) != NULL)
		ReThrowError(error);
	if (w->answer == ANSWER_NOT_YOURS && OidIsValid(w->role_of_task) && w->role_of_task != w->role &&
		has_privs_of_role(w->role, w->role_of_task))
	{
		w->role = w->role_of_task;
		report(w);
	}
}

/* task_progress(task, done, total, message, attempt): false: stop, it is not yours any more or was cancelled. */
Datum
ssw_task_progress(PG_FUNCTION_ARGS)
{
	Report		w = {.role = GetUserId()};
	const pg_uuid_t *own;
	Datum		task;

	ssw_shmem_require();
	own = ssw_runner_task();
	if (PG_ARGISNULL(0) && own == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("task must not be null"),
				 errdetail("Only a command of sweeper.submit_sql() may omit it.")));
	ssw_spi_refuse_read_only("sweeper.task_progress()");
	task = PG_ARGISNULL(0) ? UUIDPGetDatum(own) : PG_GETARG_DATUM(0);
	w.said.has_done = !PG_ARGISNULL(1);
	w.said.done = w.said.has_done ? ssw_argument_number("done", PG_GETARG_INT64(1), 0, PG_INT64_MAX) : 0;
	w.said.has_total = !PG_ARGISNULL(2);
	w.said.total = w.said.has_total ? ssw_argument_number("total", PG_GETARG_INT64(2), 0, PG_INT64_MAX) : 0;
	if (!PG_ARGISNULL(3))
		ssw_shmem_text(w.said.message, text_to_cstring(PG_GETARG_TEXT_PP(3)), SSW_PROGRESS_LEN);
	w.is_progress = w.said.has_done || w.said.has_total || !PG_ARGISNULL(3);
	w.attempt = PG_ARGISNULL(4) ? 0 : PG_GETARG_INT32(4);
	w.key = (SswProgressKey)
	{
		.database = MyDatabaseId,.task = *DatumGetUUIDP(task)
	};
	report(&w);
	if (w.answer == ANSWER_UNKNOWN && w.is_progress)
	{
		SswCaller	c = ssw_caller_begin("sweeper.task_progress()");

		ssw_task_row_said(task, &w.said);
		ssw_caller_end(&c);
	}
	if (!is_own(task))
		own = NULL;
	if (own && w.answer == ANSWER_STOP)
		ssw_runner_cancel(own, GetCurrentTimestamp());
	if (w.answer == ANSWER_STOP || w.answer == ANSWER_NOT_YOURS || (own && ssw_runner_must_stop()))
		PG_RETURN_BOOL(false);
	/* a worker that reports is alive */
	PG_RETURN_BOOL(memcmp(&w.worker, &nobody, UUID_LEN) == 0 || ssw_heartbeat_of(&w.worker));
}
