/*
 * task_xact.c
 *		What this transaction does to tasks, posted at its commit.
 *
 * Runs in every session and process that changes tasks.  The commit posts events to
 * task_shmem.c and wakes sessions that wait for tasks, runners and the coordinator.  All
 * of it is a hint: events of a subtransaction that is rolled back are posted, too, and
 * when memory is full listeners learn that they must read the tables.  Such a transaction
 * cannot be prepared, because COMMIT PREPARED calls no callback here.
 *
 * Shares the runners' slots, under SswShared->lock, and work_state.c.  A crash loses
 * what was not posted; the tables have it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "work/runner_demand.h"
#include "work/task_head.h"
#include "work/task_shmem.h"
#include "work/task_xact.h"
#include "work/work_state.h"

/* Items of a list that are compared with a new one. */
#define LOOK_AT		16

/* Tasks that wait for a job. */
typedef struct Waits
{
	int64		job;
	int32		priority;
	pg_uuid_t	first;
} Waits;

/* What the current transaction has done; in TopTransactionContext. */
static List *pending_events = NIL;	/* of SswTaskEvent */
static List *pending_waits = NIL;	/* of Waits */
static int64 pending_rows = 0;	/* appended */
static bool pending_left = false;	/* see worker_lost.c */
static TimestampTz pending_look = DT_NOEND; /* the coordinator is to look then */
static List *pending_roles = NIL;	/* of Oid: whose commands wait */

static void
at_xact_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_PREPARE && (pending_events || pending_left || pending_rows > 0))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has changed tasks, jobs or providers, or appended rows"),
				 errhint("Commit it without PREPARE TRANSACTION.")));
	if (event == XACT_EVENT_COMMIT && pending_events)
	{
		bool		fits;
		ListCell   *lc;

		/* before sessions that wait are woken */
		foreach(lc, pending_waits)
		{
			Waits	   *w = lfirst(lc);

			ssw_task_head_waits(w->job, w->priority, &w->first);
		}
		fits = ssw_task_shmem_post(pending_events);

		ssw_work_signal(fits ? SSW_WORK_EVENTS : SSW_WORK_EVENTS | SSW_WORK_EVENTS_LOST);
		ssw_task_shmem_tell();
		if (pending_roles)
			ssw_runner_wake(pending_roles);
	}
	if (event == XACT_EVENT_COMMIT && pending_look != DT_NOEND)
		ssw_work_look_by(pending_look);
	if (event == XACT_EVENT_COMMIT && pending_left)
		ssw_work_signal(SSW_WORK_LEFT_OVER);
	if (event == XACT_EVENT_COMMIT && pending_rows > 0)
		ssw_work_rows_appended(pending_rows);
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
	{
		pending_events = pending_roles = pending_waits = NIL;
		pending_rows = 0;
		pending_look = DT_NOEND;
		pending_left = false;
	}
}

static void
watch_transaction(void)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(at_xact_end, NULL);
	registered = true;
}

/* A copy of it in the list, until the transaction ends; if it is not there yet. */
static void
remember(List **list, const void *what, Size size)
{
	MemoryContext old;
	ListCell   *lc;
	void	   *copy;
	int			n = 0;

	watch_transaction();
	/* of a few it is worth a look; twice on the list does no harm */
	foreach(lc, *list)
	{
		if (memcmp(lfirst(lc), what, size) == 0)
			return;
		if (++n == LOOK_AT)
			break;
	}
	old = MemoryContextSwitchTo(TopTransactionContext);
	copy = palloc(size);
	memcpy(copy, what, size);
	*list = lappend(*list, copy);
	MemoryContextSwitchTo(old);
}

static void
remember_event(SswTaskEvent *e)
{
	e->database = MyDatabaseId;
	remember(&pending_events, e, sizeof(SswTaskEvent));
}

/* The task's row has changed; what its worker reported counts no more from the commit on. */
void
ssw_task_xact_task_changed(const pg_uuid_t *task)
{
	SswTaskEvent e = {.kind = SSW_TASK_CHANGED,.of.room = {0}};

	e.of.task = *task;
	remember_event(&e);
}

/* A worker's end had to leave something that others hold. */
void
ssw_task_xact_left_over(void)
{
	watch_transaction();
	pending_left = true;
}

/* Rows were appended. */
void
ssw_task_xact_rows_add(int n)
{
	watch_transaction();
	pending_rows += n;
}

/* How many this transaction has appended. */
int64
ssw_task_xact_rows_appended(void)
{
	return pending_rows;
}

/* A command of the role waits; invalid: the coordinator is to look at commands. */
void
ssw_task_xact_command_waits(Oid role)
{
	remember(&pending_roles, &role, sizeof(role));
}

/* Something about a task is due then: the coordinator is to look. */
void
ssw_task_xact_look_by(TimestampTz at)
{
	watch_transaction();
	pending_look = Min(pending_look, at);
}

/* A task waits for the job. */
void
ssw_task_xact_task_waits(int64 job, int32 priority, const pg_uuid_t *task)
{
	SswTaskEvent e = {.kind = SSW_TASK_WAITS,.of.room = {0}};
	Waits	   *w = NULL;

	e.of.job = job;
	remember_event(&e);
	/* twice on the list does no harm */
	for (int i = 1; i <= LOOK_AT && i <= list_length(pending_waits) && w == NULL; i++)
	{
		w = list_nth(pending_waits, list_length(pending_waits) - i);
		if (w->job != job || w->priority != priority)
			w = NULL;
	}
	if (w == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		w = palloc(sizeof(Waits));
		w->job = job;
		w->priority = priority;
		w->first = *task;
		pending_waits = lappend(pending_waits, w);
		MemoryContextSwitchTo(old);
	}
	if (memcmp(task, &w->first, UUID_LEN) < 0)
		w->first = *task;
}

/* Has this transaction made tasks wait?  Others may have looked past them. */
bool
ssw_task_xact_any_waits(void)
{
	return pending_waits != NIL;
}

/* Has this transaction changed tasks, jobs or providers? */
bool
ssw_task_xact_any_changes(void)
{
	return pending_events != NIL;
}

/* The room has other jobs or providers. */
void
ssw_task_xact_room_changed(SswEventKind kind, const char *room)
{
	SswTaskEvent e = {.kind = kind,.of.room = {0}};

	strlcpy(e.of.room, room, sizeof(e.of.room));
	remember_event(&e);
}
