/*
 * policy_status.h
 *		A policy's state: decided here, for all that show it.
 */
#ifndef SSW_POLICY_STATUS_H
#define SSW_POLICY_STATUS_H

#include "policy/policy.h"

/* In this order: of several that hold, the first is the policy's state. */
typedef enum SswPolicyState
{
	SSW_POLICY_STANDBY,
	SSW_POLICY_NOT_RUNNING,
	SSW_POLICY_RESTART_NEEDED,
	SSW_POLICY_DISABLED,
	SSW_POLICY_PAUSED,
	SSW_POLICY_HELD,
	SSW_POLICY_FUSE,
	SSW_POLICY_BROKEN,
	SSW_POLICY_FAILING,
	/* what its coordinator found */
	SSW_POLICY_READ_ONLY,
	SSW_POLICY_LOCKED,
	SSW_POLICY_OUTSIDE_WINDOW,
	SSW_POLICY_THROTTLED,
	SSW_POLICY_RUNNING,
	SSW_POLICY_GRACE,
	SSW_POLICY_WAITING
} SswPolicyState;

extern const char *ssw_state_name(SswPolicyState state);
extern SswPolicyState ssw_state_of(const SswPolicy *p, TimestampTz now, char **reason);

#endif							/* SSW_POLICY_STATUS_H */
