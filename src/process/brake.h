/*
 * brake.h
 *		The state of a policy, and the brakes that keep it from running.
 */
#ifndef SSW_BRAKE_H
#define SSW_BRAKE_H

#include "base/ssw.h"
#include "policy/policy.h"

extern const char *ssw_brake_name(SswPolicyState state);
extern SswPolicyState ssw_brake_state(const SswPolicy *p, TimestampTz now, const char **reason);
extern SswPolicyState ssw_brake_of_policy(const SswPolicy *p, TimestampTz now, SswPolicyState from, const char **reason);
extern bool ssw_brake_is_on(const SswPolicy *p, TimestampTz now, SswPolicyState brake);
extern char *ssw_brake_misfit(const SswPolicy *p);

#endif							/* SSW_BRAKE_H */
