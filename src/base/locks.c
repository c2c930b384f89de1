/*
 * locks.c
 *		Heavyweight locks that keep a policy's batches and its changes apart, the
 *		acquires of a pool, and what runs and a change of the extension.
 *
 * A policy's lock, freed by the lock manager at the end of the transaction and at
 * a crash, is held by
 *
 *		callers who end rows themselves		RowShareLock
 *		batches								ShareLock
 *		pause								ShareUpdateExclusiveLock
 *		alter_policy, resume, unregister	that, then ExclusiveLock
 *
 * So pause waits for at most the batches in flight, and no caller holds it up; and
 * a change, which has to wait for callers, too, does so for a short time only,
 * because other callers wait behind it meanwhile.
 *
 * A pool's lock is held by
 *
 *		acquire, claim						ShareUpdateExclusiveLock
 *		acquire, where nothing is counted	that, then RowExclusiveLock instead
 *		alter, drop							ExclusiveLock
 *
 * until the transaction ends.  So sessions are counted when all that were given out
 * before are committed.
 *
 * Order: a pool's lock before the policy's, and that before any row of
 * sweeper.policy and before the relation.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "base/ssw.h"

#define PATIENCE_MS	1000

/* As SSW_POLICY_LOCK, of the hash of a name. */
#define SSW_NAME_LOCK		0xfffe

/* Of a prepared transaction that has changed policies; see policy_xact.c.  No pool's tag has it. */
#define SSW_PREPARED_LOCK	0xfffc

/* An object tag of pg_class with a sub-id of a kind that no relation has. */
static void
set_tag(LOCKTAG *tag, int policy_id)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, RelationRelationId, (Oid) policy_id, SSW_POLICY_LOCK);
}

/* A statement that shows which sessions hold or wait for a lock, prepared transactions by their names. */
static char *
holders_query(const char *lock)
{
	return psprintf("SELECT l.pid, x.gid AS prepared, l.mode, l.granted, coalesce(a.xact_start, x.prepared) AS since, a.query"
					" FROM pg_catalog.pg_locks AS l LEFT JOIN pg_catalog.pg_stat_activity AS a USING (pid)"
					" LEFT JOIN (pg_catalog.pg_locks AS h JOIN pg_catalog.pg_prepared_xacts AS x ON x.transaction = h.transactionid)"
					" ON l.pid IS NULL AND h.pid IS NULL AND h.virtualtransaction = l.virtualtransaction"
					" WHERE %s AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database());", lock);
}

static char *
object_query(const LOCKTAG *tag)
{
	return holders_query(psprintf("l.locktype = 'object' AND l.classid = %u::oid AND l.objid = %u::oid AND l.objsubid = %d",
								  tag->locktag_field2, tag->locktag_field3, (int16) tag->locktag_field4));
}

char	   *
ssw_lock_policy_query(int policy_id)
{
	LOCKTAG		tag;

	set_tag(&tag, policy_id);
	return object_query(&tag);
}

/* Hold the policy for a batch; false when somebody changes it now. */
bool
ssw_lock_policy_batch_conditional(int policy_id)
{
	LOCKTAG		tag;

	set_tag(&tag, policy_id);
	return LockAcquire(&tag, ShareLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

typedef struct Acquisition
{
	LOCKTAG		tag;
	LOCKMODE	mode;
	int			patience_ms;
} Acquisition;

static bool
acquire(void *arg)
{
	Acquisition *a = arg;

	ssw_identity_lock_timeout(a->patience_ms);
	(void) LockAcquire(&a->tag, a->mode, false, false);
	return true;
}

/* False when another session holds it for that time, or for lock_timeout where there is one, or (0) at all. */
static bool
acquire_within(const LOCKTAG *tag, LOCKMODE mode, int patience_ms)
{
	Acquisition a = {.tag = *tag,.mode = mode,.patience_ms = LockTimeout ? LockTimeout : patience_ms};
	ErrorData  *error;

	if (LockAcquire(tag, mode, false, true) != LOCKACQUIRE_NOT_AVAIL)
		return true;
	if (patience_ms == 0)
		return false;
	error = ssw_spi_try(acquire, &a);
	if (error && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	return error == NULL;
}

/*
 * Lock the policy in one of the modes above until commit: false when others hold it for
 * that time, or for lock_timeout where there is one.
 */
bool
ssw_lock_policy(int policy_id, LOCKMODE mode, int patience_ms)
{
	LOCKTAG		tag;

	set_tag(&tag, policy_id);
	return acquire_within(&tag, mode, patience_ms);
}

/* A statement that shows who holds or waits for a lock of the relation itself. */
char	   *
ssw_lock_relation_query(Oid relid)
{
	return holders_query(psprintf("l.locktype = 'relation' AND l.relation = %u", relid));
}

/*
 * Lock what anybody may hold for any time: an error when others do for longer than
 * lock_timeout, or, if that is 0, than the server takes to make an autovacuum give way.
 */
static void
require(const LOCKTAG *tag, LOCKMODE mode, const char *what, const char *query)
{
	int			patience_ms = DeadlockTimeout + PATIENCE_MS;

	if (!acquire_within(tag, mode, patience_ms))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not lock %s within %d ms", what, LockTimeout ? LockTimeout : patience_ms),
				 errdetail("Another transaction holds the lock, or waits for it."),
				 errhint("Try again when it has ended, or SET lock_timeout to wait longer. To find it: %s", query)));
	AcceptInvalidationMessages();
}

void
ssw_lock_relation(Oid relid, LOCKMODE mode)
{
	char	   *name = get_rel_name(relid);
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	require(&tag, mode, psprintf("table \"%s\"", name ? name : ""), ssw_lock_relation_query(relid));
}

/*
 * Keep the name of a policy for this transaction, so that two sessions that want it do not
 * wait for each other in the unique index, which has no bound.
 */
void
ssw_lock_policy_name(const char *name)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, RelationRelationId, string_hash(name, strlen(name) + 1), SSW_NAME_LOCK);
	require(&tag, ExclusiveLock, psprintf("policy name \"%s\"", name), object_query(&tag));
}

/* As the server does where an object begins to depend on the extension. */
void
ssw_lock_extension_object(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, get_extension_oid(SSW_EXTENSION, false), 0);
	require(&tag, AccessShareLock, "extension \"" SSW_EXTENSION "\"", object_query(&tag));
}

/*
 * The tag is made of the pool's name, so that it can be locked before it is read:
 * 48 bits of a hash, as an object of the class of extensions with a sub-id that
 * no extension has.  Two pools with the same tag would wait for each other, no more.
 */
static void
set_pool_tag(LOCKTAG *tag, const char *pool)
{
	uint64		hash = hash_bytes_extended((const unsigned char *) pool, strlen(pool), 0);

	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, ExtensionRelationId, (Oid) hash, (uint16) ((hash >> 32) | 1));
}

char	   *
ssw_lock_pool_query(const char *pool)
{
	LOCKTAG		tag;

	set_pool_tag(&tag, pool);
	return object_query(&tag);
}

/* Hold a pool; false, unless that waits, when another session does. */
bool
ssw_lock_pool(const char *pool, LOCKMODE mode, bool wait)
{
	LOCKTAG		tag;

	set_pool_tag(&tag, pool);
	return LockAcquire(&tag, mode, false, !wait) != LOCKACQUIRE_NOT_AVAIL;
}

/* Before the transaction ends. */
void
ssw_lock_pool_release(const char *pool, LOCKMODE mode)
{
	LOCKTAG		tag;

	set_pool_tag(&tag, pool);
	(void) LockRelease(&tag, mode, false);
}

/* A sub-id that no pool's tag has: theirs are odd. */
static void
set_extension_tag(LOCKTAG *tag)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, ExtensionRelationId, InvalidOid, 0xfffe);
}

/*
 * Keep the extension as it is until the transaction ends; waits, within lock_timeout
 * where there is one, for its DROP or UPDATE, or is false without wait.  The server's
 * own lock of it is for anybody to take (ALTER FUNCTION ... DEPENDS ON EXTENSION), so
 * we do not wait for that; held where it is free, it keeps out who drops the extension
 * with its schema or owner.
 */
bool
ssw_lock_extension(bool wait)
{
	LOCKTAG		tag;
	Oid			extoid;

	set_extension_tag(&tag);
	if (LockAcquire(&tag, AccessShareLock, false, !wait) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	AcceptInvalidationMessages();
	extoid = get_extension_oid(SSW_EXTENSION, true);
	if (OidIsValid(extoid))
		(void) ConditionalLockDatabaseObject(ExtensionRelationId, extoid, 0, AccessShareLock);
	return true;
}

/* DROP or UPDATE of it: wait for all that runs, and keep others out until the end. */
void
ssw_lock_extension_exclusive(void)
{
	LOCKTAG		tag;

	set_extension_tag(&tag);
	(void) LockAcquire(&tag, AccessExclusiveLock, false, false);
}

/*
 * This transaction, which is about to be prepared, has changed that policy; 0: it has
 * created the extension.
 */
void
ssw_lock_prepared(int policy_id)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, MyDatabaseId, ExtensionRelationId, (Oid) policy_id, SSW_PREPARED_LOCK);
	(void) LockAcquire(&tag, AccessShareLock, false, false);
}

/* The policies that prepared transactions of this database have changed, as integers. */
List	   *
ssw_lock_prepared_policies(void)
{
	LockData   *data = GetLockStatusData();
	List	   *policies = NIL;

	for (int i = 0; i < data->nelements; i++)
	{
		const LOCKTAG *tag = &data->locks[i].locktag;

		if (tag->locktag_type == LOCKTAG_OBJECT && tag->locktag_field1 == MyDatabaseId &&
			tag->locktag_field2 == ExtensionRelationId && tag->locktag_field4 == SSW_PREPARED_LOCK)
			policies = list_append_unique_int(policies, (int) tag->locktag_field3);
	}
	return policies;
}
