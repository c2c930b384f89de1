/*
 * task_notify.c
 *		Notify listeners of what happened to tasks, jobs and providers.
 *
 * Runs in the coordinator, in the transaction of a round, as the extension's owner, at
 * most every event_interval.  A notification says what the tables say at that time; it is
 * a hint to read them.  While others hold the lock of NOTIFY it is tried again later.  The
 * events come from task_shmem.c; when the coordinator ends between taking them and its
 * commit, nobody is notified.
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
#include "base/spi.h"
#include "work/task_notify.h"
#include "work/task_shmem.h"
#include "work/work_state.h"

#define TASK_CHANNEL		"sweeper.task"
#define WAITS_CHANNEL		"sweeper.job"
#define JOBS_CHANNEL		"sweeper.jobs"
#define PROVIDERS_CHANNEL	"sweeper.providers"

#define HELD_BACK_US		(5 * USECS_PER_SEC)
#define LOCKED_US			(50 * 1000)

static const char *const tasks_of =
"SELECT jsonb_build_object('task', i.task, 'status', i.status, 'room', i.room, 'category', i.category, 'name', i.name, 'origin', i.origin)::text"
" FROM sweeper.task_info AS i WHERE i.task = ANY ($1) ORDER BY i.task";
static const char *const jobs_of =
"SELECT jsonb_build_object('room', j.room, 'category', j.category, 'name', j.name)::text FROM sweeper.job AS j WHERE j.job = ANY ($1)";

/* Notify what the query makes of the ids. */
static void
notify_rows(const char *channel, const char *sql, Oid type, ArrayType *ids)
{
	Datum		value = PointerGetDatum(ids);
	uint64		rows = ARR_NDIM(ids) == 0 ? 0 : ssw_plan_execute(sql, 1, &type, &value, NULL, false);

	for (uint64 i = 0; i < rows; i++)
		ssw_notify(channel, ssw_spi_text(i, 1));
}

static void
notify_room(const char *channel, const char *room)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "{\"room\": ");
	escape_json(&buf, room);
	appendStringInfoChar(&buf, '}');
	ssw_notify(channel, buf.data);
}

static void
notify_all(const SswTaskEvent *events, int n, bool lost)
{
	Datum	   *tasks = palloc((n + 1) * sizeof(Datum));
	Datum	   *jobs = palloc((n + 1) * sizeof(Datum));
	int			ntasks = 0;
	int			njobs = 0;

	for (int i = 0; i < n; i++)
		switch (events[i].kind)
		{
			case SSW_TASK_CHANGED:
				tasks[ntasks++] = UUIDPGetDatum(&events[i].of.task);
				break;
			case SSW_TASK_WAITS:
				jobs[njobs++] = Int64GetDatum(events[i].of.job);
				break;
			default:
				notify_room(events[i].kind == SSW_JOBS_CHANGED ? JOBS_CHANNEL : PROVIDERS_CHANNEL, events[i].of.room);
		}
	notify_rows(TASK_CHANNEL, tasks_of, UUIDARRAYOID, construct_array(tasks, ntasks, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	notify_rows(WAITS_CHANNEL, jobs_of, INT8ARRAYOID, construct_array(jobs, njobs, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
	if (lost)
	{
		static const char *const channels[] = {TASK_CHANNEL, WAITS_CHANNEL, JOBS_CHANNEL, PROVIDERS_CHANNEL};

		for (int i = 0; i < lengthof(channels); i++)
			ssw_notify(channels[i], "{\"lost\": true}");
	}
}

/* Notify listeners of the events, if it is time; returns when it will be. */
TimestampTz
ssw_task_notify(TimestampTz now)
{
	static TimestampTz notified_at = 0;
	static TimestampTz not_before = 0;
	TimestampTz due = notified_at + ssw_event_interval * INT64CONST(1000);
	SswIdentity save;
	SswTaskEvent *events;
	int			n;
	bool		lost;

	if ((ssw_work_read(MyDatabaseId).reasons & SSW_WORK_EVENTS) == 0)
		return DT_NOEND;
	if (now < due && now >= notified_at)
		return due;
	if (now < not_before && now >= notified_at)
		return not_before;
	notified_at = now;
	if (!ssw_notify_lock())
	{
		not_before = now + LOCKED_US;
		return not_before;
	}
	lost = ssw_work_take(MyDatabaseId, SSW_WORK_EVENTS | SSW_WORK_EVENTS_LOST).reasons & SSW_WORK_EVENTS_LOST;
	n = ssw_task_shmem_collect(&events);
	if (!ssw_notify_has_room())
	{
		/* when there is room again listeners learn that they missed some */
		(void) ssw_work_add(MyDatabaseId, SSW_WORK_EVENTS | SSW_WORK_EVENTS_LOST);
		not_before = now + HELD_BACK_US;
		return not_before;
	}
	ssw_spi_begin_as_extension(&save);
	notify_all(events, n, lost);
	ssw_spi_end_as(&save);
	return DT_NOEND;
}
