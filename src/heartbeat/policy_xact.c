/*
 * policy_xact.c
 *		What a transaction does to policies, announced when it commits.
 *
 * Runs in callers' sessions.  The coordinator reads changed policies again, and memory
 * of their rows is forgotten, or checked, as the change asks.
 *
 * A prepared transaction leaves a lock that says what it did, which survives a restart.
 * COMMIT PREPARED, in whatever session, finds it and announces that all policies of the
 * database have changed.
 *
 * Shares the generation of the database's policies, under SswShared->lock.  After a
 * crash all policies are read anyway.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "base/locks.h"
#include "base/shmem.h"
#include "heartbeat/policy_xact.h"

/* What the current transaction has done to a policy. */
typedef struct PolicyChange
{
	int			level;			/* of its subtransaction */
	int			policy_id;		/* 0: all */
	SswHeartbeatScan entries;
} PolicyChange;

static bool changed_pending = false;
static bool created_pending = false;
static bool commits_prepared = false;
static List *policies_pending = NIL;	/* of PolicyChange; in
										 * TopTransactionContext */

static void
mark_changed(SswPolicyShared *s, void *generation)
{
	if (s && s->key.database == MyDatabaseId)
	{
		s->changed_at = *(uint64 *) generation;
		memset(s->low, 0, sizeof(s->low));
	}
}

static void
announce(void)
{
	uint64		generation;
	ListCell   *lc;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	generation = ssw_shmem_next_generation(created_pending);
	foreach(lc, policies_pending)
	{
		int			policy_id = ((PolicyChange *) lfirst(lc))->policy_id;

		if (generation && policy_id != 0)
			mark_changed(ssw_shmem_policy(MyDatabaseId, policy_id, true), &generation);
	}
	LWLockRelease(SswShared->lock);
	if (commits_prepared && generation)
		ssw_shmem_policies_seq(LW_EXCLUSIVE, mark_changed, &generation);

	/*
	 * a session that had read the policy before has published its heartbeat
	 * by the time it looks at the generation again
	 */
	if (created_pending)
		ssw_store_forget(MyDatabaseId);
	foreach(lc, policies_pending)
	{
		const PolicyChange *c = lfirst(lc);

		if (c->entries != SSW_SCAN_NOTHING)
			(void) ssw_store_scan(MyDatabaseId, c->policy_id, c->entries);
	}
}

static void
at_xact_end(XactEvent event, void *arg)
{
	bool		pending = changed_pending || created_pending;

	if (event == XACT_EVENT_PRE_PREPARE && pending)
		ssw_lock_prepared(created_pending);
	/* COMMIT PREPARED may have been interrupted after the other commit */
	if (pending && (event == XACT_EVENT_COMMIT || (event == XACT_EVENT_ABORT && commits_prepared)))
		announce();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
	{
		changed_pending = created_pending = commits_prepared = false;
		policies_pending = NIL;
	}
}

/* What a subtransaction that is rolled back did to policies has no meaning for their rows. */
static void
at_subxact_end(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	foreach(lc, policies_pending)
	{
		PolicyChange *c = lfirst(lc);

		if (c->level >= level && event == SUBXACT_EVENT_ABORT_SUB)
			policies_pending = foreach_delete_current(policies_pending, lc);
		else if (c->level >= level && event == SUBXACT_EVENT_COMMIT_SUB)
			c->level = level - 1;
	}
}

static void
remember(bool *what)
{
	static bool registered = false;

	if (!ssw_shmem_available())
		return;
	if (!registered)
	{
		RegisterXactCallback(at_xact_end, NULL);
		RegisterSubXactCallback(at_subxact_end, NULL);
		registered = true;
	}
	*what = true;
}

/* The coordinator reads all policies again. */
void
ssw_policy_xact_changed_all(void)
{
	remember(&changed_pending);
}

/*
 * This policy was changed: its pass ends after its present batches; passes of others
 * continue.  That becomes of its heartbeats.
 */
void
ssw_policy_xact_changed(int policy_id, SswHeartbeatScan entries)
{
	MemoryContext old;
	PolicyChange *c;

	ssw_policy_xact_changed_all();
	if (!changed_pending)
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	c = palloc0(sizeof(PolicyChange));
	c->level = GetCurrentTransactionNestLevel();
	c->policy_id = policy_id;
	c->entries = entries;
	policies_pending = lappend(policies_pending, c);
	MemoryContextSwitchTo(old);
}

/* Did this transaction change policies, or may it have? */
bool
ssw_policy_xact_any(void)
{
	return changed_pending;
}

/* Announce that this database has the extension, at commit. */
void
ssw_policy_xact_extension_created(void)
{
	remember(&created_pending);
}

/*
 * This transaction executes COMMIT PREPARED.  If a prepared transaction of this database
 * has changed policies, it may be that one.
 */
void
ssw_policy_xact_commit_prepared(void)
{
	bool		created = ssw_lock_prepared_exists(true);

	if (!created && !ssw_lock_prepared_exists(false))
		return;
	ssw_policy_xact_changed(0, SSW_SCAN_VOID);
	commits_prepared = changed_pending;
	if (created)
		ssw_policy_xact_extension_created();
}
