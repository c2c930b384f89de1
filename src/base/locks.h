/*
 * locks.h
 *		Heavyweight locks that keep a policy's batches and its changes apart, the
 *		acquires of a pool, and what runs and a change of the extension.
 */
#ifndef SSW_LOCKS_H
#define SSW_LOCKS_H

#include "nodes/pg_list.h"

#include "storage/lockdefs.h"

/* Distinguishes a policy's lock in pg_locks from that of a relation's column. */
#define SSW_POLICY_LOCK		0xffff

extern bool ssw_lock_policy_batch_conditional(int policy_id);
extern bool ssw_lock_policy(int policy_id, LOCKMODE mode, int patience_ms);
extern char *ssw_lock_policy_query(int policy_id);
extern void ssw_lock_relation(Oid relid, LOCKMODE mode);
extern char *ssw_lock_relation_query(Oid relid);
extern bool ssw_lock_pool(const char *pool, LOCKMODE mode, bool wait);
extern void ssw_lock_pool_release(const char *pool, LOCKMODE mode);
extern char *ssw_lock_pool_query(const char *pool);
extern bool ssw_lock_extension(bool wait);
extern void ssw_lock_policy_name(const char *name);
extern void ssw_lock_extension_object(void);
extern void ssw_lock_extension_exclusive(void);
extern void ssw_lock_prepared(int policy_id);
extern List *ssw_lock_prepared_policies(void);

#endif							/* SSW_LOCKS_H */
