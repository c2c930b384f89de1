/*
 * lower_bound.h
 *		Below which deadline a policy's index has only dead entries.
 */
#ifndef SSW_LOWER_BOUND_H
#define SSW_LOWER_BOUND_H

#include "base/shmem.h"
#include "policy/policy.h"

extern bool ssw_low_fits(const SswClock *c);
extern bool ssw_low_narrow(Oid type);
extern bool ssw_low_find(int policy_id, int clock, Oid leaf, const SswClock *c, TimestampTz now, SswLow *low);
extern void ssw_low_keep(int policy_id, int clock, const SswLow *low);
extern void ssw_low_forget(int policy_id);
extern void ssw_low_apply(SswPolicy *p, TimestampTz now);

#endif							/* SSW_LOWER_BOUND_H */
