/*
 * low.h
 *		Below which deadline a policy's index has only dead entries.
 */
#ifndef SSW_LOW_H
#define SSW_LOW_H

#include "policy.h"
#include "shmem.h"

extern bool ssw_low_fits(const SswClock *c);
extern bool ssw_low_narrow(Oid type);
extern bool ssw_low_find(int policy_id, int clock, Oid leaf, const SswClock *c, TimestampTz now, SswLow *low);
extern void ssw_low_keep(int policy_id, int clock, const SswLow *low);
extern void ssw_low_forget(int policy_id);
extern void ssw_low_apply(SswPolicy *p, TimestampTz now);

#endif							/* SSW_LOW_H */
