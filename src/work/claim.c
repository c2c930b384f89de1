/*
 * claim.c
 *		claim(): the next tasks for a worker.
 *
 * Runs in the worker's session and transaction.  Of the first waiting tasks of each priority
 * of each of its jobs it takes the one of the highest priority, and of these the oldest, and
 * again, until it has enough.  Rows that another session is
 * just claiming are skipped, so that no claim waits and a task has one winner.  Shares
 * where the waiting tasks of a job begin (task_head.c), otherwise nothing but the tables; a
 * crash, or the caller's rollback, undoes it.
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "access/xact.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/own_row.h"
#include "work/caller.h"
#include "work/task_head.h"
#include "work/task_row.h"
#include "work/task_xact.h"
#include "work/worker_lost.h"

PG_FUNCTION_INFO_V1(ssw_claim);

#define MAX_CLAIM	1000

/* Columns that are returned: the task, room, category and name of its job, payload, attempt. */
#define N_COLUMNS	6
#define N_NAMES		3
#define JOB_TIMEOUT	13			/* column of sweeper.job */

/* Of a search for tasks; as many each time. */
#define N_KEYS		3

/* A job of the worker, one of its priorities, and the first waiting task of both that was not looked at yet. */
typedef struct Job
{
	SswTaskHead head;
	bool		looked;			/* task was looked at: others come after it */
	bool		waits;			/* there is one */
	pg_uuid_t	task;
	ItemPointerData tid;
	bool		named;			/* the rest is known */
	Datum		names[N_NAMES];
	int64		timeout_us;		/* 0: none */
} Job;

typedef struct Claim
{
	ReturnSetInfo *result;
	Snapshot	snapshot;
	SswOwnTable tasks;
	Job		   *jobs;
	int			njobs;
	int			room;			/* for so many */
	bool		changed;		/* tasks, by this transaction before: a
								 * rollback may make them wait again */

	/* new values of the rows */
	Datum		values[SSW_TASK_COLUMNS];
	bool		nulls[SSW_TASK_COLUMNS];
	bool		replace[SSW_TASK_COLUMNS];
} Claim;

static void
add_job(Claim *cl, int64 id, int32 priority, bool use_head)
{
	SswTaskHead from_first = {.job = id,.priority = priority};

	if (cl->njobs == cl->room)
		cl->jobs = repalloc(cl->jobs, (cl->room *= 2) * sizeof(Job));
	cl->jobs[cl->njobs++] = (Job)
	{
		.head = use_head ? ssw_task_head_read(id, priority) : from_first
	};
}

/*
 * Add the job once for each priority between two that the index knows.  Tasks that do not
 * wait any more may be there, too: then nothing is found later.  Where there is none,
 * that costs little.
 */
static void
add_priorities(Claim *cl, int64 id, int32 above, int32 below, bool use_head)
{
	ScanKeyData keys[N_KEYS];
	Datum		priority = Int32GetDatum(below);

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	ScanKeyInit(&keys[1], 2, BTGreaterStrategyNumber, F_INT4GT, Int32GetDatum(above));
	for (;;)
	{
		ScanKeyInit(&keys[2], 2, BTLessStrategyNumber, F_INT4LT, priority);
		if (!ssw_own_peek(&cl->tasks, keys, N_KEYS, 2, &priority))
			break;
		add_job(cl, id, DatumGetInt32(priority), use_head);
	}
}

/*
 * The jobs that the worker offers, and where their tasks begin.  Only a snapshot that is
 * taken after this may begin there.  One that is older sees tasks that others have
 * claimed; and what this transaction has submitted is not known to others.
 */
static void
read_jobs(Claim *cl, Datum worker)
{
	Snapshot	snapshot = ssw_own_snapshot();
	bool		use_head = !IsolationUsesXactSnapshot() && !ssw_task_xact_any_waits();
	SswOwnTable links;
	ScanKeyData key;
	bool		isnull;

	cl->jobs = palloc((cl->room = 8) * sizeof(Job));
	ssw_own_open(&cl->tasks, "task", SSW_TASK_COLUMNS, "task_queue", RowExclusiveLock, snapshot);
	ssw_own_open(&links, "job_worker", 2, "job_worker_pkey", AccessShareLock, snapshot);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_UUID_EQ, worker);
	for (bool found = ssw_own_find(&links, &key, 1); found; found = ssw_own_next(&links))
	{
		int64		id = DatumGetInt64(ssw_own_column(&links, 2, &isnull));

		/* most tasks have the default */
		add_priorities(cl, id, 0, PG_INT32_MAX, use_head);
		add_job(cl, id, 0, use_head);
		add_priorities(cl, id, PG_INT32_MIN, 0, use_head);
	}
	ssw_own_close(&links);
	ssw_own_see(&cl->tasks, NULL);
	ssw_own_release(snapshot);
	for (int i = 0; i < cl->njobs; i++)
		cl->jobs[i].task = cl->jobs[i].head.from;
}

/* Find the first waiting task of the job and priority, or the next one. */
static void
look(Claim *cl, Job *j)
{
	static const pg_uuid_t none = {0};
	bool		first = !j->looked;
	ScanKeyData keys[N_KEYS];
	bool		isnull;

	ScanKeyInit(&keys[0], 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(j->head.job));
	ScanKeyInit(&keys[1], 2, BTEqualStrategyNumber, F_INT4EQ, Int32GetDatum(j->head.priority));
	ScanKeyInit(&keys[2], 3, first ? BTGreaterEqualStrategyNumber : BTGreaterStrategyNumber, first ? F_UUID_GE : F_UUID_GT,
				UUIDPGetDatum(&j->task));
	j->looked = true;
	j->waits = ssw_own_find(&cl->tasks, keys, N_KEYS);
	if (j->waits)
	{
		j->task = *DatumGetUUIDP(ssw_own_column(&cl->tasks, SSW_TASK_TASK, &isnull));
		j->tid = cl->tasks.slot->tts_tid;
	}
	if (first && !cl->changed && memcmp(&j->head.horizon, &none, UUID_LEN) != 0)
		ssw_task_head_seen(&j->head, j->waits ? &j->task : NULL);
}

/* Is the task of one to be taken before that of the other? */
static bool
is_before(const Job *a, const Job *b)
{
	if (a->head.priority != b->head.priority)
		return a->head.priority > b->head.priority;
	return memcmp(&a->task, &b->task, UUID_LEN) < 0;
}

static Job *
next_job(const Claim *cl)
{
	Job		   *found = NULL;

	for (int i = 0; i < cl->njobs; i++)
		if (cl->jobs[i].waits && (found == NULL || is_before(&cl->jobs[i], found)))
			found = &cl->jobs[i];
	return found;
}

/* Read the room, category, name and timeout of the job. */
static void
read_names(Claim *cl, Job *j)
{
	SswOwnTable jobs;
	ScanKeyData key;
	Datum		timeout;
	bool		isnull;

	ssw_own_open(&jobs, "job", JOB_TIMEOUT, "job_pkey", AccessShareLock, cl->snapshot);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(j->head.job));
	if (!ssw_own_find(&jobs, &key, 1))
		elog(ERROR, "job " INT64_FORMAT " of a task does not exist", j->head.job);
	for (int i = 0; i < N_NAMES; i++)
		j->names[i] = CStringGetTextDatum(ssw_own_text(&jobs, i + 2));
	timeout = ssw_own_column(&jobs, JOB_TIMEOUT, &isnull);
	if (!isnull)
		j->timeout_us = ssw_argument_interval("timeout", DatumGetIntervalP(timeout), 0);
	ssw_own_close(&jobs);
	j->named = true;
}

/* Write the task's row, and hand it out; false: another session has it. */
static bool
take(Claim *cl, Job *j)
{
	Datum		v[N_COLUMNS];
	bool		isnull[N_COLUMNS] = {0};

	ssw_own_fetch(&cl->tasks, j->tid);
	v[5] = Int32GetDatum(DatumGetInt32(ssw_own_column(&cl->tasks, SSW_TASK_ATTEMPT, &isnull[5])) + 1);
	ssw_task_row_set(SSW_TASK_ATTEMPT, v[5], cl->values, cl->replace);

	/*
	 * one that only a comment refers to, or that this transaction has locked,
	 * can be locked
	 */
	if (!ssw_own_update(&cl->tasks, false, cl->values, cl->nulls, cl->replace) &&
		!(ssw_own_lock(&cl->tasks, j->tid, LockTupleNoKeyExclusive, false) &&
		  ssw_own_update(&cl->tasks, true, cl->values, cl->nulls, cl->replace)))
		return false;
	if (!j->named)
		read_names(cl, j);
	v[0] = UUIDPGetDatum(&j->task);
	memcpy(&v[1], j->names, sizeof(j->names));
	v[4] = ssw_own_column(&cl->tasks, SSW_TASK_PAYLOAD, &isnull[4]);
	tuplestore_putvalues(cl->result->setResult, cl->result->setDesc, v, isnull);
	ssw_task_xact_task_changed(&j->task);
	if (j->timeout_us > 0)
		ssw_task_xact_look_by(GetCurrentTimestamp() + j->timeout_us);
	return true;
}

/* The values that a task gets when the worker takes it. */
static void
prepare_values(Claim *cl, Datum worker, const SswWorker *w, bool start)
{
	static const AttrNumber none[] = {SSW_TASK_PROGRESS_AT, SSW_TASK_DONE, SSW_TASK_TOTAL, SSW_TASK_MESSAGE, SSW_TASK_ERROR};
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());

	ssw_task_row_set(SSW_TASK_STATUS, CStringGetTextDatum(start ? "running" : "claimed"), cl->values, cl->replace);
	ssw_task_row_set(SSW_TASK_CLAIMED_AT, now, cl->values, cl->replace);
	ssw_task_row_set(SSW_TASK_STARTED_AT, now, cl->values, cl->replace);
	cl->nulls[SSW_TASK_STARTED_AT - 1] = !start;
	ssw_task_row_set(SSW_TASK_WORKER, worker, cl->values, cl->replace);
	ssw_task_row_set(SSW_TASK_WORKER_ID, Int64GetDatum(w->number), cl->values, cl->replace);
	ssw_task_row_set(SSW_TASK_WORKER_NAME, CStringGetTextDatum(w->name), cl->values, cl->replace);
	ssw_task_row_set(SSW_TASK_WORKER_ROLE, CStringGetTextDatum(w->role), cl->values, cl->replace);
	for (int i = 0; i < lengthof(none); i++)
	{
		ssw_task_row_set(none[i], 0, cl->values, cl->replace);
		cl->nulls[none[i] - 1] = true;
	}
}

/* claim(worker, max, start) → the tasks. */
Datum
ssw_claim(PG_FUNCTION_ARGS)
{
	Claim		cl = {0};
	int			left;
	SswCaller	c;
	SswWorker	w;
	Job		   *j;

	ssw_argument_not_null(fcinfo, 0, "worker");
	ssw_argument_not_null(fcinfo, 1, "max");
	ssw_argument_not_null(fcinfo, 2, "start");
	left = ssw_argument_number("max", PG_GETARG_INT32(1), 1, MAX_CLAIM);
	InitMaterializedSRF(fcinfo, 0);
	cl.result = (ReturnSetInfo *) fcinfo->resultinfo;
	c = ssw_caller_identify("sweeper.claim()");
	cl.changed = ssw_task_xact_any_changes();
	w = ssw_caller_hold_worker(&c, PG_GETARG_DATUM(0));
	ssw_worker_lost_unheard(PG_GETARG_DATUM(0), w.ttl_us);
	prepare_values(&cl, PG_GETARG_DATUM(0), &w, PG_GETARG_BOOL(2));
	read_jobs(&cl, PG_GETARG_DATUM(0));
	cl.snapshot = ssw_own_snapshot();
	ssw_own_see(&cl.tasks, cl.snapshot);
	for (int i = 0; i < cl.njobs; i++)
		look(&cl, &cl.jobs[i]);
	while ((j = next_job(&cl)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (take(&cl, j) && --left == 0)
			break;
		look(&cl, j);
	}
	ssw_own_close(&cl.tasks);
	ssw_own_release(cl.snapshot);
	return (Datum) 0;
}
