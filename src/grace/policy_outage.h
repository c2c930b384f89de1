/*
 * policy_outage.h
 *		Times in which nobody could show that he lives.
 */
#ifndef SSW_POLICY_OUTAGE_H
#define SSW_POLICY_OUTAGE_H

#include "policy/policy.h"

extern int64 ssw_outage_patience(int policy_id, int64 ttl_us);
extern void ssw_outage_note(Oid dboid, int policy_id, TimestampTz since, TimestampTz until);
extern TimestampTz ssw_outage_looked(int policy_id, bool writable, int64 gap_us, TimestampTz now);
extern void ssw_outage_since(const SswPolicy *p, TimestampTz since, TimestampTz now);
extern void ssw_outage_unheard(int policy_id, int64 patience_us);
extern void ssw_outage_heard(int policy_id);

#endif							/* SSW_POLICY_OUTAGE_H */
