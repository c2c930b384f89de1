/*
 * lock.c
 *		Heavyweight locks that keep a policy's batches and its changes apart.
 *
 * Every batch transaction holds its policy's lock in share mode; pause,
 * alter_policy and unregister take it exclusively, and so wait for at most the
 * batches in flight and keep new ones out until their transaction ends.  The
 * lock manager frees it at the end of the transaction and at a crash.
 *
 * Order: this lock before any row of sweeper.policy, and before the relation.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"

#include "lock.h"

/* An object tag of pg_class with a sub-id of a kind that no relation has. */
static void
set_tag(LOCKTAG *tag, int policy_id)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, RelationRelationId, (Oid) policy_id, 0xffff);
}

/* Hold the policy for a batch; waits, within lock_timeout, for a change. */
void
ssw_lock_policy_batch(int policy_id)
{
	LOCKTAG		tag;

	set_tag(&tag, policy_id);
	(void) LockAcquire(&tag, ShareLock, false, false);
}

/* The same without waiting; false when somebody changes the policy now. */
bool
ssw_lock_policy_batch_conditional(int policy_id)
{
	LOCKTAG		tag;

	set_tag(&tag, policy_id);
	return LockAcquire(&tag, ShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

/* Wait for the batches in flight and keep new ones out until commit. */
void
ssw_lock_policy_exclusive(int policy_id)
{
	LOCKTAG		tag;

	set_tag(&tag, policy_id);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
}
