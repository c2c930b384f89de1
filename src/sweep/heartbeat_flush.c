/*
 * heartbeat_flush.c
 *		Write to the rows what only memory has of their sessions.
 *
 * Runs in the session that unregisters a policy, or takes its heartbeats or its key
 * away, in that transaction.  The heartbeats could not be found by their keys
 * afterwards, and a session that was answered true must not end.  The caller holds the
 * policy's lock.
 *
 * The table is locked against writers first: so no row is where nobody looks for
 * it, and none has to be waited for.  Heartbeats that look at rows wait for that
 * lock, too, and all are made to look at them: what is answered is either written
 * here, or answered by the policy as it is when this transaction has ended.  See
 * doc/heartbeats.md: A1 to A4.
 *
 * Shares the heartbeats (store.c); a crash, or the caller's rollback, undoes it.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "base/deferred.h"
#include "base/error_class.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "heartbeat/policy_xact.h"
#include "heartbeat/store_scan.h"
#include "policy/deadline.h"
#include "policy/partition.h"
#include "policy/sweep_sql.h"
#include "sweep/alive_by_heartbeat.h"
#include "sweep/heartbeat_flush.h"
#include "sweep/row_action.h"

#define ROWS_AT_ONCE	10000

/*
 * A1: nobody writes a row, or locks one, until this transaction has ended.  Waits as
 * long as the session says, else until the server has made an autovacuum give way.
 */
static void
lock_table(const SswPolicy *p)
{
	int			level = NewGUCNestLevel();

	if (LockTimeout == 0)
		ssw_identity_lock_timeout(DeadlockTimeout + p->lock_timeout_ms);
	ssw_lock_relation(p->relid, ExclusiveLock);
	(void) ssw_partition_leaves(p, ExclusiveLock, NULL);
	AtEOXact_GUC(false, level);
}

/* A3: prolong the rows of a leaf that memory knows to live longer; returns how many it could not. */
static uint64
prolong_leaf(const SswPolicy *p, Oid leaf)
{
	SswTarget	target = {.policy = p,.leaf = leaf,.phase = SSW_PHASE_DEADLINE,.cutoff = DT_NOBEGIN,.full_cutoff = DT_NOBEGIN};
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "rows to prolong", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	uint64		failed = 0;
	Portal		portal;

	/* what is committed now, whatever the caller's snapshot shows */
	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	portal = SPI_cursor_open(NULL, ssw_spi_prepare(ssw_sweep_sql_heartbeats(p, leaf, true), 0, NULL, CURSOR_OPT_NO_SCROLL), NULL, NULL, true);
	PopActiveSnapshot();
	/* triggers of the updates could close it */
	PinPortal(portal);
	for (SPI_cursor_fetch(portal, true, ROWS_AT_ONCE); SPI_processed > 0; SPI_cursor_fetch(portal, true, ROWS_AT_ONCE))
	{
		SPITupleTable *rows = SPI_tuptable;

		failed += ssw_alive_prolong(&target, rows, SPI_processed);
		SPI_freetuptable(rows);
		MemoryContextReset(cxt);
	}
	UnpinPortal(portal);
	SPI_cursor_close(portal);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
	return failed;
}

/* Does the leaf stay here until this transaction ends?  The grace of its arrival covers a shard that has left. */
static bool
stays(const SswPolicy *p, Oid leaf)
{
	return !OidIsValid(ssw_partition_shard(p, leaf)) || OidIsValid(ssw_shards->hold(leaf));
}

static bool
prolong_all(void *arg)
{
	SswPolicy  *p = arg;
	SswIdentity save;
	Relation	rel;
	uint64		failed = 0;
	List	   *leaves;
	ListCell   *lc;

	ssw_deferred_settle_callers(p->owner);
	ssw_action_lock_leaf(p, p->relid, RowExclusiveLock);
	leaves = ssw_partition_leaves(p, AccessShareLock, NULL);
	rel = table_open(p->relid, NoLock);
	ssw_identity_become_owner(p->owner, p->search_path, &save);
	ssw_identity_lock_timeout(p->lock_timeout_ms);
	ssw_deadline_build(p, rel);
	ssw_spi_begin();
	foreach(lc, leaves)
		if (stays(p, lfirst_oid(lc)))
		failed += prolong_leaf(p, lfirst_oid(lc));
	ssw_deferred_fire();
	ssw_spi_end_as(&save);
	table_close(rel, NoLock);
	if (failed > 0)
		ereport(WARNING,
				(errcode(ERRCODE_SSW_SUPPRESSED),
				 errmsg("could not write pending heartbeats of policy \"%s\" to its table", p->name),
				 errdetail("Triggers of the table suppressed " UINT64_FORMAT " updates.", failed)));
	return true;
}

/* Would the same succeed later? */
static bool
is_passing(int code)
{
	SswFailureClass class = ssw_error_classify(code);

	return class == SSW_FAIL_TRANSIENT || class == SSW_FAIL_LOCKED || code == ERRCODE_DISK_FULL;
}

/*
 * Before the heartbeats of a policy are forgotten.  What can never be written is
 * reported, and delays nobody; what could be written later is an error.
 */
void
ssw_heartbeat_flush(SswPolicy *p)
{
	SswPolicy	present = *p;
	ErrorData  *e = NULL;
	char	   *trouble = NULL;

	if (!p->heartbeats || !ssw_shmem_available() || !OidIsValid(ssw_relation_owner(p->relid)))
		return;
	if (ssw_policy_is_foreign(p) || ssw_relation_owner(p->relid) != p->owner)
		trouble = ssw_policy_unusable(p);
	else
	{
		lock_table(p);
		present = *ssw_policy_present(p);
		trouble = present.stale_detail;
	}

	/*
	 * A2: from now on every heartbeat looks at its row, and waits for the
	 * table
	 */
	if (!ssw_store_scan(MyDatabaseId, p->id, SSW_SCAN_LOOK))
		return;
	if (trouble == NULL)
		e = ssw_spi_try(prolong_all, &present);
	/* in another session it may be possible */
	if (e && (is_passing(e->sqlerrcode) || ssw_trust_is_refusal(e)))
		ReThrowError(e);
	if (e || trouble)
		ereport(WARNING,
				(errcode(e ? e->sqlerrcode : ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not write pending heartbeats of policy \"%s\" to its table", p->name),
				 errdetail_internal("%s", e ? e->message : trouble),
				 trouble && present.stale_detail ? errhint("To keep the heartbeats: ROLLBACK, correct the column names with sweeper.alter_policy(), and run the statement again.") : 0));
	else
		ssw_policy_xact_changed(p->id, SSW_SCAN_REMOVE);
}
