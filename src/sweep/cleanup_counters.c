/*
 * cleanup_counters.c
 *		How many rows of a policy ended, by the type of their end.
 *
 * Runs wherever rows end (cleanup_event.c): in our processes, and in sessions that release
 * or expire.  What a transaction ended is counted when it commits, without what it
 * rolled back to a savepoint.
 *
 * Shares SswPolicyShared.ended, under SswShared->lock.  A crash forgets it, as all
 * statistics.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/shmem.h"
#include "base/spi.h"
#include "sweep/cleanup_counters.h"

/* In the order of SswPolicyShared.ended. */
static const char *const types[SSW_END_TYPES] = {"zombie", "expired", "released", "disconnected", "manual"};

typedef struct Ended
{
	SswXactItem level;			/* must be first */
	int			policy_id;
	int			type;
	int64		n;
} Ended;

/* Of this transaction; in TopTransactionContext. */
static List *pending = NIL;

static void
count(void)
{
	ListCell   *lc;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	foreach(lc, pending)
	{
		Ended	   *e = lfirst(lc);
		SswPolicyShared *s = ssw_shmem_policy(MyDatabaseId, e->policy_id, true);

		if (s)
			s->ended[e->type] += e->n;
	}
	LWLockRelease(SswShared->lock);
}

static void
at_xact_end(XactEvent event, void *arg)
{
	/* what is prepared most often commits, and that is not reported here */
	if (pending && (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE))
		count();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE || event == XACT_EVENT_ABORT)
		pending = NIL;
}

static void
at_subxact_end(SubXactEvent event, SubTransactionId mine, SubTransactionId parent, void *arg)
{
	pending = ssw_spi_settle(pending, event);
}

/* So many rows of the policy end in this transaction, of a type as in the events. */
void
ssw_cleanup_counters_add(int policy_id, const char *cleanup_type, int64 n)
{
	static bool registered = false;
	MemoryContext old;
	Ended	   *e;
	int			type = 0;

	if (!ssw_shmem_available())
		return;
	if (!registered)
	{
		RegisterXactCallback(at_xact_end, NULL);
		RegisterSubXactCallback(at_subxact_end, NULL);
	}
	registered = true;
	while (type < SSW_END_TYPES - 1 && strcmp(types[type], cleanup_type) != 0)
		type++;
	old = MemoryContextSwitchTo(TopTransactionContext);
	e = palloc(sizeof(Ended));
	e->policy_id = policy_id;
	e->type = type;
	e->level.level = GetCurrentTransactionNestLevel();
	e->n = n;
	pending = lappend(pending, e);
	MemoryContextSwitchTo(old);
}
