/*
 * policy_xact.c
 *		What a transaction does to policies, announced when it commits.
 *
 * Runs in callers' sessions.  The coordinator reads changed policies again, and memory
 * of their rows is forgotten, or checked, as the change asks.
 *
 * A prepared transaction leaves locks that say which policies it has changed.  They
 * survive a restart.  COMMIT PREPARED, in whatever session, announces the changes of all
 * prepared transactions: those policies rest until the locks are released.
 *
 * Shares the generation of the database's policies, under SswShared->lock.  After a
 * crash all policies are read anyway.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "base/locks.h"
#include "base/shmem.h"
#include "base/xact_list.h"
#include "heartbeat/policy_xact.h"

/* What the current transaction has done to a policy. */
typedef struct PolicyChange
{
	SswXactItem item;
	int			policy_id;
	SswHeartbeatScan entries;
} PolicyChange;

static bool changed_pending = false;
static bool created_pending = false;
static bool commits_prepared = false;

static void at_xact_event(XactEvent event);

/* What a subtransaction that is rolled back did to policies has no meaning for their rows. */
static SswXactList policies_pending = {.at_event = at_xact_event};	/* of PolicyChange */

static void
announce(void)
{
	uint64		generation;
	ListCell   *lc;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	generation = ssw_shmem_next_generation(created_pending);
	foreach(lc, policies_pending.items)
	{
		SswPolicyShared *s = generation ? ssw_shmem_policy(MyDatabaseId, ((PolicyChange *) lfirst(lc))->policy_id, true) : NULL;

		if (s)
		{
			s->changed_at = generation;
			memset(s->low, 0, sizeof(s->low));
		}
	}
	LWLockRelease(SswShared->lock);

	/*
	 * a session that had read the policy before has published its heartbeat
	 * by the time it looks at the generation again
	 */
	if (created_pending)
		ssw_store_forget(MyDatabaseId);
	foreach(lc, policies_pending.items)
	{
		const PolicyChange *c = lfirst(lc);

		if (c->entries != SSW_SCAN_NOTHING)
			(void) ssw_store_scan(MyDatabaseId, c->policy_id, c->entries);
	}
}

/* DROP and UPDATE of the extension need none: coordinators look for that by themselves. */
static void
lock_prepared(void)
{
	ListCell   *lc;

	if (created_pending)
		ssw_lock_prepared(0);
	foreach(lc, policies_pending.items)
		ssw_lock_prepared(((PolicyChange *) lfirst(lc))->policy_id);
}

static void
at_xact_event(XactEvent event)
{
	bool		pending = changed_pending || created_pending;

	if (event == XACT_EVENT_PRE_PREPARE && pending)
		lock_prepared();
	/* COMMIT PREPARED may have been interrupted after the other commit */
	if (pending && (event == XACT_EVENT_COMMIT || (event == XACT_EVENT_ABORT && commits_prepared)))
		announce();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		changed_pending = created_pending = commits_prepared = false;
}

static void
remember(bool *what)
{
	if (!ssw_shmem_available())
		return;
	ssw_xact_list_watch(&policies_pending);
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
	PolicyChange *c;
	ListCell   *lc;

	ssw_policy_xact_changed_all();
	if (!changed_pending)
		return;
	/* each costs a scan at the commit, which nothing interrupts */
	foreach(lc, policies_pending.items)
	{
		c = lfirst(lc);
		if (c->policy_id == policy_id && c->entries >= entries)
			return;
	}
	c = ssw_xact_list_add(&policies_pending, sizeof(PolicyChange));
	c->policy_id = policy_id;
	c->entries = entries;
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
 * This transaction executes COMMIT PREPARED.  The one that it commits may be any of those
 * that have changed policies.
 */
void
ssw_policy_xact_commit_prepared(void)
{
	ListCell   *lc;

	foreach(lc, ssw_lock_prepared_policies())
	{
		commits_prepared = true;
		if (lfirst_int(lc) != 0)
			ssw_policy_xact_changed(lfirst_int(lc), SSW_SCAN_VOID);
		else
			ssw_policy_xact_extension_created();
	}
}
