/*
 * lock.h
 *		Heavyweight locks that keep a policy's batches and its changes apart, and
 *		the acquires of a pool.
 */
#ifndef SSW_LOCK_H
#define SSW_LOCK_H

extern void ssw_lock_policy_batch(int policy_id);
extern bool ssw_lock_policy_batch_conditional(int policy_id);
extern void ssw_lock_policy_exclusive(int policy_id);
extern bool ssw_lock_pool(const char *pool, bool wait);

#endif							/* SSW_LOCK_H */
