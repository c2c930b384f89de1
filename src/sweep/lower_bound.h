/*
 * lower_bound.h
 *		Below which deadline a policy's index has only dead entries.
 */
#ifndef SSW_LOWER_BOUND_H
#define SSW_LOWER_BOUND_H

#include "base/shmem.h"
#include "policy/policy.h"

extern bool ssw_lower_bound_fits(const SswDeadline *c);
extern bool ssw_lower_bound_set(SswLowerBound *low, Oid leaf, const SswDeadline *c, int64 value);
extern bool ssw_lower_bound_find(int policy_id, int which, Oid leaf, const SswDeadline *c, TimestampTz now, SswLowerBound *low);
extern void ssw_lower_bound_keep(int policy_id, int which, const SswLowerBound *low);
extern void ssw_lower_bound_forget(int policy_id);
extern TimestampTz ssw_lower_bound_until(int policy_id, TimestampTz now);
extern void ssw_lower_bound_apply(SswPolicy *p, const SswPass *pass);

#endif							/* SSW_LOWER_BOUND_H */
