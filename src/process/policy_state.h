/*
 * policy_state.h
 *		What the coordinator writes about a policy.
 */
#ifndef SSW_POLICY_STATE_H
#define SSW_POLICY_STATE_H

#include "process/watched_policy.h"

/* What the coordinator writes to our tables; in a transaction */
extern void ssw_policy_state_close_pass(SswWatch *w, const SswPass *pass, const char *status);
extern void ssw_policy_state_abandon(void);
extern void ssw_policy_state_failed(SswWatch *w, const SswPass *pass);
extern void ssw_policy_state_succeeded(SswWatch *w);
extern void ssw_policy_state_rearm(SswWatch *w, TimestampTz before);
extern void ssw_policy_state_forget_future(SswPolicy *p, TimestampTz now);
extern bool ssw_policy_state_hold(const SswPolicy *p);
extern void ssw_policy_state_restamp(const SswPolicy *p);
extern void ssw_policy_state_renamed(const SswPolicy *p);
extern void ssw_policy_state_columns(const SswPolicy *p);
extern void ssw_policy_state_horizons(const SswPolicy *p);
extern bool ssw_policy_state_was_in(uint64 system_identifier);
extern TimestampTz ssw_policy_state_mark(bool write);
extern bool ssw_policy_state_cut_deadlines(void);
extern void ssw_policy_state_long_gap(void);

#endif							/* SSW_POLICY_STATE_H */
