/*
 * deferred.c
 *		Deferred triggers, which must not fire as another role.
 *
 * Runs in workers and callers' sessions.  Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"

#include "base/deferred.h"
#include "base/session_trust.h"

/*
 * Deferred triggers cannot fire in a restricted operation, and must not fire at
 * commit as another role: fire what is pending now, and the rest at once.
 */
void
ssw_deferred_fire(void)
{
	ConstraintsSetStmt stmt = {.type = T_ConstraintsSetStmt,.constraints = NIL,.deferred = false};

	AfterTriggerSetState(&stmt);
}

/* Is there an event in the queue of a deferrable trigger? */
static bool
is_event_deferred(void)
{
	Relation	rel = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tup;
	bool		found = false;

	while (!found && HeapTupleIsValid(tup = systable_getnext(scan)))
	{
		Form_pg_trigger t = (Form_pg_trigger) GETSTRUCT(tup);

		CHECK_FOR_INTERRUPTS();
		found = t->tgdeferrable && AfterTriggerPendingOnRel(t->tgrelid);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/*
 * In a caller's session, before its table's owner: what the caller's transaction has
 * deferred fires now, as the caller.  A trigger can defer another event when it fires,
 * which would then fire as the owner.  Events of statements that still run cannot be
 * distinguished from those.
 */
void
ssw_deferred_settle_callers(Oid owner)
{
	ssw_deferred_fire();
	if (ssw_trust_refuses(owner) && is_event_deferred())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot act on rows of role \"%s\" while deferrable triggers of this transaction are pending", GetUserNameFromId(owner, false)),
				 errdetail("They could fire with the rights of that role."),
				 errhint("Call this function outside of triggers and of statements that change tables, in a transaction of its own.")));
}
