/*
 * policy_row.h
 *		What the coordinator writes into a policy's row, and into table pass.
 */
#ifndef SSW_POLICY_ROW_H
#define SSW_POLICY_ROW_H

#include "process/watched_policy.h"

/* In a transaction. */
extern void ssw_policy_row_close_pass(SswWatch *w, const SswPass *pass);
extern void ssw_policy_row_abandon(void);
extern void ssw_policy_row_failed(SswWatch *w, const SswPass *pass);
extern void ssw_policy_row_succeeded(SswWatch *w);
extern void ssw_policy_row_rearm(SswWatch *w, TimestampTz before);
extern bool ssw_policy_row_hold(const SswPolicy *p);
extern void ssw_policy_row_restamp(const SswPolicy *p);
extern void ssw_policy_row_renamed(const SswPolicy *p);
extern void ssw_policy_row_columns(const SswPolicy *p);
extern void ssw_policy_row_horizons(const SswPolicy *p);
extern bool ssw_policy_row_was_in(uint64 system_identifier);
extern TimestampTz ssw_policy_row_mark(bool write);
extern void ssw_policy_row_long_gap(void);

#endif							/* SSW_POLICY_ROW_H */
