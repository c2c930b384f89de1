/*
 * throttle.h
 *		What sweeps may put on the server and its replicas.
 */
#ifndef SSW_THROTTLE_H
#define SSW_THROTTLE_H

#include "policy/policy.h"

typedef struct SswRest
{
	SswPolicyState state;		/* why, or SSW_POLICY_UNKNOWN */
	char		reason[160];
	TimestampTz until;			/* look again then */
} SswRest;

extern void ssw_throttle_init(void);
extern TimestampTz ssw_throttle_sample(TimestampTz now);
extern void ssw_throttle_forget(void);
extern void ssw_throttle_look(TimestampTz now);
extern int64 ssw_throttle_spend(bool forced);
extern double ssw_throttle_batch_bytes(void);
extern bool ssw_throttle_rests(const SswPolicy *p, TimestampTz now, SswRest *rest);

#endif							/* SSW_THROTTLE_H */
