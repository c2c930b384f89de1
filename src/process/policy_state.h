/*
 * policy_state.h
 *		What the coordinator writes about a policy.
 */
#ifndef SSW_POLICY_STATE_H
#define SSW_POLICY_STATE_H

#include "process/watched_policy.h"

/* What the coordinator writes to our tables; in a transaction */
extern void ssw_ledger_close_pass(SswWatch *w, const SswPass *pass, const char *status);
extern void ssw_ledger_abandon(void);
extern void ssw_ledger_failed(SswWatch *w, const SswPass *pass);
extern void ssw_ledger_succeeded(SswWatch *w);
extern void ssw_ledger_rearm(SswWatch *w, TimestampTz before);
extern void ssw_ledger_forget_future(SswPolicy *p, TimestampTz now);
extern bool ssw_ledger_hold(const SswPolicy *p);
extern void ssw_ledger_restamp(const SswPolicy *p);
extern void ssw_ledger_renamed(const SswPolicy *p);
extern void ssw_ledger_columns(const SswPolicy *p);
extern void ssw_ledger_horizons(const SswPolicy *p);
extern bool ssw_ledger_was_in(uint64 system_identifier);
extern TimestampTz ssw_ledger_mark(bool write);
extern bool ssw_ledger_cut_deadlines(void);
extern void ssw_ledger_long_gap(void);

#endif							/* SSW_POLICY_STATE_H */
