/*
 * task_notify.c
 *		Tell listeners what happened to tasks, jobs and providers.
 *
 * Runs in the coordinator, in the transaction of a round, as the extension's owner:
 * at most every event_interval, and everything once.  What is told is what the
 * tables say by then; they are the evidence, and a notification the hint to read
 * them.  Takes from the lists of task_shmem.c; when the coordinator ends between that
 * and its commit, nobody is told.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/cached_plan.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/notify.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "work/task_notify.h"
#include "work/task_shmem.h"
#include "work/work_state.h"

#define TASK_CHANNEL		"sweeper.task"
#define WAITS_CHANNEL		"sweeper.job"
#define JOBS_CHANNEL		"sweeper.jobs"
#define PROVIDERS_CHANNEL	"sweeper.providers"

#define HELD_BACK_US		(5 * USECS_PER_SEC)

static const char *const tasks_of =
"SELECT jsonb_build_object('task', i.task, 'status', i.status, 'room', i.room, 'category', i.category, 'name', i.name)::text"
" FROM sweeper.task_info AS i WHERE i.task = ANY ($1) ORDER BY i.task";
static const char *const jobs_of =
"SELECT jsonb_build_object('room', j.room, 'category', j.category, 'name', j.name)::text FROM sweeper.job AS j WHERE j.job = ANY ($1)";

/* Notify what the query makes of the elements. */
static void
tell(const char *channel, const char *sql, Oid arraytype, Datum *elems, int n, Oid type, int len, bool byval, char align)
{
	Datum		array;
	uint64		rows;

	if (n == 0)
		return;
	array = PointerGetDatum(construct_array(elems, n, type, len, byval, align));
	rows = ssw_plan_execute(sql, 1, &arraytype, &array, NULL, false);
	for (uint64 i = 0; i < rows; i++)
		ssw_notify(channel, SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1));
}

static void
tell_rooms(const SswTold *told)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < told->nrooms; i++)
	{
		resetStringInfo(&buf);
		appendStringInfoString(&buf, "{\"room\": ");
		escape_json(&buf, told->rooms[i]);
		appendStringInfoChar(&buf, '}');
		ssw_notify(told->kinds[i] == SSW_JOBS_CHANGED ? JOBS_CHANNEL : PROVIDERS_CHANNEL, buf.data);
	}
}

static void
tell_all(const SswTold *told, bool lost)
{
	Datum	   *tasks = palloc((told->ntasks + 1) * sizeof(Datum));
	Datum	   *jobs = palloc((told->njobs + 1) * sizeof(Datum));

	for (int i = 0; i < told->ntasks; i++)
		tasks[i] = UUIDPGetDatum(&told->tasks[i]);
	for (int i = 0; i < told->njobs; i++)
		jobs[i] = Int64GetDatum(told->jobs[i]);
	tell(TASK_CHANNEL, tasks_of, UUIDARRAYOID, tasks, told->ntasks, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR);
	tell(WAITS_CHANNEL, jobs_of, INT8ARRAYOID, jobs, told->njobs, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);
	tell_rooms(told);
	if (lost)
	{
		static const char *const channels[] = {TASK_CHANNEL, WAITS_CHANNEL, JOBS_CHANNEL, PROVIDERS_CHANNEL};

		for (int i = 0; i < lengthof(channels); i++)
			ssw_notify(channels[i], "{\"lost\": true}");
	}
}

/* Tell what is to be told, if it is time; returns when it will be. */
TimestampTz
ssw_task_notify(TimestampTz now)
{
	static TimestampTz told_at = 0;
	static TimestampTz not_before = 0;
	TimestampTz due = told_at + ssw_event_interval * INT64CONST(1000);
	SswIdentity save;
	SswTold		told;
	bool		lost;

	if ((ssw_work_take(MyDatabaseId, 0).reasons & SSW_WORK_EVENTS) == 0)
		return DT_NOEND;
	if (now < due && now >= told_at)
		return due;
	if (now < not_before && now >= told_at)
		return not_before;
	told_at = now;
	lost = ssw_work_take(MyDatabaseId, SSW_WORK_EVENTS | SSW_WORK_EVENTS_LOST).reasons & SSW_WORK_EVENTS_LOST;
	ssw_task_shmem_collect(&told);
	if (!ssw_notify_has_room())
	{
		/* when there is room again listeners learn that they missed some */
		(void) ssw_work_add(MyDatabaseId, SSW_WORK_EVENTS | SSW_WORK_EVENTS_LOST);
		not_before = now + HELD_BACK_US;
		return not_before;
	}
	ssw_identity_become_extension(&save);
	ssw_spi_begin();
	tell_all(&told, lost);
	ssw_spi_end();
	ssw_identity_restore(&save);
	return DT_NOEND;
}
