/*
 * task_retry.c
 *		An attempt of a task has failed: it is tried again, or fails for good.
 *
 * Runs where attempts end: in sessions that finish tasks or end workers, in workers, and in
 * the coordinator.  A task that is tried again waits for its time, which grows with its
 * attempts (sweeper._backoff()); the coordinator has it wait for workers then
 * (command_queue.c).  The comments of a task have the reasons of all its attempts.
 *
 * A task without progress for the timeout of its job is taken from its worker, though that
 * lives.  The coordinator looks when the earliest of them could be over; a claim says when
 * that is (claim.c).  A crash loses progress, so the time counts from the start of service.
 *
 * Shares nothing but the tables; a crash, or a rollback, undoes it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/cached_plan.h"
#include "base/spi.h"
#include "base/ssw.h"
#include "grace/service_log.h"
#include "work/task_retry.h"
#include "work/task_row.h"
#include "work/task_xact.h"
#include "work/work_state.h"

/* Run such a statement, at every isolation level on what is committed now; returns how many attempts it ended.  As the extension, in SPI. */
uint64
ssw_task_retry_end(const char *sql, int nargs, const Oid *types, Datum *values)
{
	Oid			all_types[8] = {TEXTOID, BOOLOID, TEXTOID};
	uint64		rows;
	SPITupleTable *ended;

	memcpy(&all_types[SSW_END_ATTEMPTS_PARAMETERS], types, (nargs - SSW_END_ATTEMPTS_PARAMETERS) * sizeof(Oid));
	rows = ssw_plan_execute_fresh(sql, nargs, all_types, values);
	ended = SPI_tuptable;
	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;
		Datum		task = SPI_getbinval(ended->vals[i], ended->tupdesc, 1, &isnull);
		Datum		not_before = SPI_getbinval(ended->vals[i], ended->tupdesc, 2, &isnull);

		if (!isnull)
			ssw_task_xact_look_by(DatumGetTimestampTz(not_before));
		ssw_task_row_progress(task);
		ssw_task_xact_task_changed(DatumGetUUIDP(task));
	}
	return rows;
}

/* When the worker of a task last spoke of it, or lost its word. */
#define HEARD_AT \
	"greatest(t.claimed_at, t.started_at, t.progress_at, (SELECT p.progress_at FROM sweeper._task_progress(t.task) AS p), "

/* In the coordinator: end the attempts that are over their time; returns when the next one is. */
static TimestampTz
look(TimestampTz now)
{
	static const char *const next =
	"SELECT min(" HEARD_AT "$1) + j.timeout), EXISTS (SELECT FROM sweeper.job WHERE timeout IS NOT NULL AND deleted_at IS NULL)"
	" FROM sweeper.task AS t JOIN sweeper.job AS j ON j.job = t.job"
	" WHERE t.status IN ('claimed', 'running') AND t.worker IS NOT NULL AND j.timeout IS NOT NULL";
	static const char *const end = SSW_END_ATTEMPTS("j.timeout < clock_timestamp() - " HEARD_AT "$4)");
	Oid			type = TIMESTAMPTZOID;
	Datum		values[] = {CStringGetTextDatum("No progress within the timeout of its job"), BoolGetDatum(false), CStringGetTextDatum(SSW_EXTENSION),
	TimestampTzGetDatum(ssw_service_resumed())};
	Datum		due;
	TimestampTz most;

	ssw_plan_execute(next, 1, &type, &values[SSW_END_ATTEMPTS_PARAMETERS], NULL, false);
	due = ssw_spi_column(0, 1);
	/* a claim that does not see that its job has a timeout says nothing */
	most = DatumGetBool(ssw_spi_column(0, 2)) ? now + SSW_MOST_REST_US : DT_NOEND;
	if (due == 0)
		return most;
	if (DatumGetTimestampTz(due) > now)
		return Min(most, DatumGetTimestampTz(due));
	if (ssw_task_retry_end(end, lengthof(values), &type, values) == SSW_MOST_ENDS)
		return now;
	/* others may be due, or are held by another session */
	return now + SSW_LOCKED_REST_US;
}

/* The same, in no more than a part of the time: it reads all tasks that workers have. */
TimestampTz
ssw_task_retry_look(TimestampTz now)
{
	static TimestampTz rests_until = 0;
	TimestampTz next;

	if (now < rests_until && rests_until - now <= SSW_MOST_REST_US)
		return rests_until;
	now = GetCurrentTimestamp();
	next = look(now);
	rests_until = ssw_work_rest(now);
	return ssw_max(next, rests_until);
}
