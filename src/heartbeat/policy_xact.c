/*
 * policy_xact.c
 *		What a transaction does to policies, announced when it commits.
 *
 * Runs in callers' sessions.  The coordinator reads changed policies again, and memory
 * of their rows is forgotten, or checked, as the change asks.
 *
 * Shares the generation of the database's policies, under SswShared->lock.  After a
 * crash all policies are read anyway.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/shmem.h"
#include "heartbeat/policy_xact.h"
#include "heartbeat/store_scan.h"

/* What the current transaction has done to a policy. */
typedef struct PolicyChange
{
	SubTransactionId subid;
	int			policy_id;
	bool		altered;
	bool		redefined;		/* its deadlines have another meaning */
	bool		gone;
} PolicyChange;

static bool changed_pending = false;
static bool created_pending = false;
static List *policies_pending = NIL;	/* of PolicyChange; in
										 * TopTransactionContext */
static bool xact_callback_registered = false;

static void
at_xact_end(XactEvent event, void *arg)
{
	/*
	 * COMMIT PREPARED may come in any session, which would not announce the
	 * change
	 */
	if (event == XACT_EVENT_PRE_PREPARE && (changed_pending || created_pending))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has changed policies of session_sweeper"),
				 errhint("Change policies in a transaction of their own.")));
	if (event == XACT_EVENT_COMMIT && (changed_pending || created_pending))
	{
		uint64		generation;
		ListCell   *lc;

		LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
		generation = ssw_shmem_next_generation(created_pending);
		foreach(lc, policies_pending)
		{
			SswPolicyShared *s = generation ? ssw_shmem_policy(MyDatabaseId, ((PolicyChange *) lfirst(lc))->policy_id, true) : NULL;

			if (s)
			{
				s->changed_at = generation;
				memset(s->low, 0, sizeof(s->low));
			}
		}
		LWLockRelease(SswShared->lock);
	}

	/*
	 * a session that had read the policy before has published its heartbeat
	 * by the time it looks at the generation again
	 */
	if (event == XACT_EVENT_COMMIT && created_pending)
		ssw_store_forget(MyDatabaseId);
	if (event == XACT_EVENT_COMMIT)
	{
		ListCell   *lc;

		foreach(lc, policies_pending)
		{
			PolicyChange *c = lfirst(lc);

			if (c->gone)
				ssw_store_forget_policy(MyDatabaseId, c->policy_id);
			else if (c->redefined)
				ssw_store_void(MyDatabaseId, c->policy_id);
			else if (c->altered)
				(void) ssw_store_look_all(MyDatabaseId, c->policy_id);
		}
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
	{
		changed_pending = created_pending = false;
		policies_pending = NIL;
	}
}

/* What a subtransaction that is rolled back did to policies has no meaning for their rows. */
static void
at_subxact_end(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	ListCell   *lc;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	foreach(lc, policies_pending)
	{
		PolicyChange *c = lfirst(lc);

		if (c->subid != subid)
			continue;
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			c->subid = parent;
		else
			policies_pending = foreach_delete_current(policies_pending, lc);
	}
}

static void
remember(bool *what)
{
	if (!ssw_shmem_available())
		return;
	if (!xact_callback_registered)
	{
		RegisterXactCallback(at_xact_end, NULL);
		RegisterSubXactCallback(at_subxact_end, NULL);
		xact_callback_registered = true;
	}
	*what = true;
}

/* The coordinator reads all policies again. */
void
ssw_policy_xact_changed_all(void)
{
	remember(&changed_pending);
}

/* What this transaction does to a policy; null where nothing is shared. */
static PolicyChange *
remember_policy(int policy_id)
{
	MemoryContext old;
	PolicyChange *c;

	ssw_policy_xact_changed_all();
	if (!changed_pending)
		return NULL;
	old = MemoryContextSwitchTo(TopTransactionContext);
	c = palloc0(sizeof(PolicyChange));
	c->subid = GetCurrentSubTransactionId();
	c->policy_id = policy_id;
	policies_pending = lappend(policies_pending, c);
	MemoryContextSwitchTo(old);
	return c;
}

/* This policy was changed: its pass ends after its present batches; passes of others continue. */
void
ssw_policy_xact_changed(int policy_id)
{
	(void) remember_policy(policy_id);
}

/* The same, and the next heartbeats look at the policy's rows; redefined: its deadlines have another meaning. */
void
ssw_policy_xact_altered(int policy_id, bool redefined)
{
	PolicyChange *c = remember_policy(policy_id);

	if (c)
	{
		c->altered = true;
		c->redefined = redefined;
	}
}

/* This policy was unregistered: its heartbeats are removed from memory. */
void
ssw_policy_xact_gone(int policy_id)
{
	PolicyChange *c = remember_policy(policy_id);

	if (c)
		c->gone = true;
}

/* Did this transaction change policies, or may it have? */
bool
ssw_policy_xact_any(void)
{
	return changed_pending;
}

void
ssw_policy_xact_extension_created(void)
{
	remember(&created_pending);
}
