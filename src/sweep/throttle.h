/*
 * throttle.h
 *		What sweeps may put on the server and its replicas.
 */
#ifndef SSW_THROTTLE_H
#define SSW_THROTTLE_H

#include "policy/policy.h"

typedef struct SswRest
{
	const char *state;			/* what policy_status shows */
	char		reason[160];
	TimestampTz until;			/* look again then */
	TimestampTz shut_from;		/* the window is closed from then */
	TimestampTz shut_until;		/* to then, as reason tells; 0: not known */
} SswRest;

extern TimestampTz ssw_load_sample(TimestampTz now);
extern void ssw_load_forget(void);
extern void ssw_load_look(TimestampTz now);
extern int64 ssw_load_spend(bool forced);
extern double ssw_load_batch_bytes(void);
extern bool ssw_load_rests(const SswPolicy *p, TimestampTz now, SswRest *rest);

#endif							/* SSW_THROTTLE_H */
