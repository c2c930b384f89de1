/*
 * lock.h
 *		Heavyweight locks that keep a policy's batches and its changes apart, and
 *		the acquires of a pool, and what runs and a change of the extension.
 */
#ifndef SSW_LOCK_H
#define SSW_LOCK_H

extern void ssw_lock_policy_batch(int policy_id);
extern bool ssw_lock_policy_batch_conditional(int policy_id);
extern void ssw_lock_policy_exclusive(int policy_id);
extern bool ssw_lock_pool(const char *pool, bool wait);
extern void ssw_lock_extension(void);
extern void ssw_lock_extension_exclusive(void);

#endif							/* SSW_LOCK_H */
