/*
 * drain.h
 *		What is due is worked off: how much is done, how much is left, how fast.
 */
#ifndef SSW_DRAIN_H
#define SSW_DRAIN_H

#include "base/shmem.h"

extern bool ssw_drain_found(int policy_id, int64 rows, bool more, int64 *lasts_us);
extern void ssw_drain_counted(int policy_id, int64 left);
extern void ssw_drain_handled(SswPolicyShared *s, const SswDrain *rows);
extern void ssw_drain_runs(SswPolicyShared *s, bool runs);
extern void ssw_drain_ended(SswPolicyShared *s, SswPassEnd end);
extern void ssw_drain_nothing_due(int policy_id);
extern double ssw_drain_rate(const SswDrain *d, TimestampTz now);

#endif							/* SSW_DRAIN_H */
