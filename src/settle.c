/*
 * settle.c
 *		Write to the rows what only memory knows of their sessions.
 *
 * Runs in the session of who unregisters a policy, or takes its heartbeats or its
 * key away, in that transaction: nobody could find the heartbeats by their keys
 * afterwards, and who was told that his session lives is not to lose it.  The
 * caller holds the policy's lock.  As the relation's owner.
 *
 * Shares the heartbeats (beats.c); a crash, or the caller's rollback, undoes it.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "action.h"
#include "alive.h"
#include "failure.h"
#include "identity.h"
#include "settle.h"
#include "shmem.h"
#include "sql.h"
#include "stmt.h"

#define ROWS_AT_ONCE	10000

/* Has any heartbeat come to the policy since the start? */
static bool
has_beats(const SswPolicy *p)
{
	SswPolicyShared *s;
	bool		any;

	if (!p->heartbeats || !ssw_shmem_available())
		return false;
	LWLockAcquire(SswShared->lock, LW_SHARED);
	s = ssw_shmem_policy(MyDatabaseId, p->id, false);
	any = s && s->beat_ttl_us != 0;
	LWLockRelease(SswShared->lock);
	return any;
}

/* Prolong those of the fetched rows that memory knows to live longer, leaf by leaf. */
static void
prolong_fetched(const SswPolicy *p, MemoryContext cxt)
{
	SswTarget	target = {.policy = p,.phase = SSW_PHASE_CLOCK_1,.cutoff = DT_NOBEGIN,.full_cutoff = DT_NOBEGIN};
	SPITupleTable *rows = SPI_tuptable;
	uint64		nrows = SPI_processed;
	ItemPointerData *tids = MemoryContextAlloc(cxt, nrows * sizeof(ItemPointerData));
	int			n = 0;

	for (uint64 i = 0; i < nrows; i++)
	{
		bool		isnull;
		Oid			leaf = DatumGetObjectId(SPI_getbinval(rows->vals[i], rows->tupdesc, 1, &isnull));

		if (n > 0 && leaf != target.leaf)
		{
			(void) ssw_alive_run(&target, tids, n, NULL);
			n = 0;
		}
		target.leaf = leaf;
		tids[n++] = *(ItemPointer) DatumGetPointer(SPI_getbinval(rows->vals[i], rows->tupdesc, 2, &isnull));
	}
	if (n > 0)
		(void) ssw_alive_run(&target, tids, n, NULL);
	SPI_freetuptable(rows);
}

static void
prolong_all(SswPolicy *p)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "rows to prolong", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old;
	SswIdentity save;
	Relation	rel;
	Portal		portal;

	ssw_action_constraints_immediate();
	ssw_action_lock_leaf(p, p->relid, RowExclusiveLock);
	rel = table_open(p->relid, NoLock);
	ssw_identity_become_owner(p->owner, p->search_path, &save);
	ssw_identity_pin_text();
	ssw_clock_build(p, rel);
	ssw_sql_begin();
	portal = SPI_cursor_open(NULL, ssw_sql_prepare(psprintf("SELECT t.tableoid, t.ctid FROM %s AS t", ssw_stmt_relation(p->relid)),
												   0, NULL, CURSOR_OPT_NO_SCROLL), NULL, NULL, true);
	old = MemoryContextSwitchTo(cxt);
	for (SPI_cursor_fetch(portal, true, ROWS_AT_ONCE); SPI_processed > 0; SPI_cursor_fetch(portal, true, ROWS_AT_ONCE))
	{
		prolong_fetched(p, cxt);
		MemoryContextReset(cxt);
	}
	MemoryContextSwitchTo(old);
	SPI_cursor_close(portal);
	ssw_action_constraints_immediate();
	ssw_sql_end();
	ssw_identity_restore(&save);
	table_close(rel, NoLock);
	MemoryContextDelete(cxt);
}

/*
 * Before the heartbeats of a policy are forgotten.  What cannot be written is told,
 * and holds nobody up.
 */
void
ssw_settle_heartbeats(SswPolicy *p)
{
	MemoryContext cxt = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	if (!has_beats(p) || ssw_policy_unusable(p) != NULL)
		return;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(cxt);
	PG_TRY();
	{
		prolong_all(p);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *e;

		MemoryContextSwitchTo(cxt);
		e = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		if (ssw_failure_classify(e->sqlerrcode) == SSW_FAIL_TRANSIENT)
			ReThrowError(e);
		ereport(WARNING,
				(errcode(e->sqlerrcode),
				 errmsg("the rows of policy \"%s\" do not say that sessions live that only heartbeats kept", p->name),
				 errdetail_internal("%s", e->message)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	CurrentResourceOwner = owner;
}
