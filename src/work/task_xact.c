/*
 * task_xact.c
 *		What this transaction does to tasks, posted at its commit.
 *
 * Runs in every session and process that changes tasks.  The commit posts events to
 * task_shmem.c and wakes sessions that wait for tasks, runners and the coordinator.  All
 * of it is a hint: events of a subtransaction that is rolled back are posted, too, and
 * when memory is full listeners learn that they must read the tables.
 *
 * Shares the runners' slots, under SswShared->lock, and work_state.c.  A crash loses
 * what was not posted; the tables have it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "base/spi.h"
#include "work/runner_demand.h"
#include "work/task_shmem.h"
#include "work/task_xact.h"
#include "work/work_state.h"

/* Items of a list that are compared with a new one. */
#define LOOK_AT		16

/* A task that runs and is to stop, unless the (sub)transaction is rolled back. */
typedef struct Cancel
{
	SswXactItem level;			/* must be first */
	pg_uuid_t	task;
} Cancel;

/* What the current transaction has done; in TopTransactionContext. */
static List *pending_events = NIL;	/* of SswTaskEvent */
static List *pending_cancels = NIL; /* of Cancel */
static int64 pending_rows = 0;	/* appended */
static bool pending_left = false;	/* see worker_lost.c */
static List *pending_roles = NIL;	/* of Oid: whose commands wait */
static int64 pending_commands = 0;	/* submitted, also where that was rolled
									 * back */
static int64 counted_commands = 0;	/* subtracted from those that wait */

/*
 * What is prepared is posted at once, because COMMIT PREPARED calls no callback here.
 * The rows are locked until then, and progress reads them again.
 */
static void
at_xact_end(XactEvent event, void *arg)
{
	ListCell   *lc;
	bool		holds = event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE;

	if (holds && pending_events)
	{
		bool		fits = ssw_task_shmem_post(pending_events);

		ssw_work_signal(fits ? SSW_WORK_EVENTS : SSW_WORK_EVENTS | SSW_WORK_EVENTS_LOST);
		ssw_task_shmem_tell();
		/* the coordinator also looks for those that are prepared */
		if (pending_roles)
			ssw_runner_wake(pending_roles, event == XACT_EVENT_PREPARE);
	}
	/* a command is not interrupted for what may be rolled back */
	if (event == XACT_EVENT_COMMIT)
		foreach(lc, pending_cancels)
			ssw_runner_cancel(&((Cancel *) lfirst(lc))->task, GetCurrentTimestamp());
	if (holds && pending_left)
		ssw_work_signal(SSW_WORK_LEFT_OVER);
	if (holds && pending_rows > 0)
		ssw_work_rows_appended(pending_rows);
	if (holds || event == XACT_EVENT_ABORT)
	{
		if (pending_commands > 0)
			ssw_work_count_commands(-pending_commands, holds ? pending_commands : counted_commands);
		pending_events = pending_cancels = pending_roles = NIL;
		pending_rows = pending_commands = counted_commands = 0;
		pending_left = false;
	}
}

/* A cancel that is rolled back does not count. */
static void
at_subxact_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	pending_cancels = ssw_spi_settle(pending_cancels, event);
}

static void
watch_transaction(void)
{
	static bool registered = false;

	if (!registered)
	{
		RegisterXactCallback(at_xact_end, NULL);
		RegisterSubXactCallback(at_subxact_end, NULL);
	}
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

/* The task's row has changed; what its worker reported counts no more. */
void
ssw_task_xact_task_changed(const pg_uuid_t *task)
{
	SswTaskEvent e = {.kind = SSW_TASK_CHANGED,.of.room = {0}};

	e.of.task = *task;
	remember_event(&e);
	/* nor does it in the rest of this transaction */
	ssw_task_shmem_forget_progress(task);
}

/* It runs, and is to stop. */
void
ssw_task_xact_task_cancelled(const pg_uuid_t *task)
{
	Cancel		c = {.level.level = GetCurrentTransactionNestLevel(),.task = *task};

	remember(&pending_cancels, &c, sizeof(Cancel));
}

/* A worker's end had to leave something that others hold. */
void
ssw_task_xact_left_over(void)
{
	watch_transaction();
	pending_left = true;
}

/* A row was appended. */
void
ssw_task_xact_row_appended(void)
{
	watch_transaction();
	pending_rows++;
}

/* How many this transaction has appended. */
int64
ssw_task_xact_rows_appended(void)
{
	return pending_rows;
}

/* A command of the role waits. */
void
ssw_task_xact_command_waits(Oid role)
{
	remember(&pending_roles, &role, sizeof(role));
}

/* A command was submitted. */
void
ssw_task_xact_command_submitted(void)
{
	watch_transaction();
	ssw_work_count_commands(1, 0);
	pending_commands++;
}

/* So many commands wait, with those of this transaction; returns how many others have submitted and not committed. */
int64
ssw_task_xact_commands_counted(int64 waiting)
{
	counted_commands = pending_commands;
	ssw_work_commands_counted(waiting - pending_commands);
	return ssw_work_read(MyDatabaseId).commands_open - pending_commands;
}

/* A task waits for the job. */
void
ssw_task_xact_task_waits(int64 job)
{
	SswTaskEvent e = {.kind = SSW_TASK_WAITS,.of.room = {0}};

	e.of.job = job;
	remember_event(&e);
}

/* The room has other jobs or providers. */
void
ssw_task_xact_room_changed(SswEventKind kind, const char *room)
{
	SswTaskEvent e = {.kind = kind,.of.room = {0}};

	strlcpy(e.of.room, room, sizeof(e.of.room));
	remember_event(&e);
}
