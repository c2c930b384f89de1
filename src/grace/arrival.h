/*
 * arrival.h
 *		Grace for rows whose heartbeats this node's memory does not have.
 */
#ifndef SSW_ARRIVAL_H
#define SSW_ARRIVAL_H

#include "policy/policy.h"

extern void ssw_arrival_replace(int policy_id);
extern void ssw_arrival_note(SswPolicy *p);
extern bool ssw_arrival_load(SswPolicy *p);
extern TimestampTz ssw_arrival_until(const SswPolicy *p, Oid leaf);
extern bool ssw_arrival_covers(const SswPolicy *p, Oid leaf, int64 ttl_us, TimestampTz now);
extern char *ssw_arrival_rule(const SswPolicy *p, TimestampTz now);

#endif							/* SSW_ARRIVAL_H */
