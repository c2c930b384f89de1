/*
 * refusal.h
 *		Heartbeats that are refused before the row is read.
 */
#ifndef SSW_REFUSAL_H
#define SSW_REFUSAL_H

#include "policy/policy.h"

extern void ssw_refusal_check_session(const char *function);
extern void ssw_refusal_check_policy(const SswPolicy *p);
extern void ssw_refusal_check_changes(void);
extern void ssw_refusal_lock_relation(const SswPolicy *p);
extern void ssw_refusal_check_registry(void);
extern void ssw_refusal_moving(const SswPolicy *p);

#endif							/* SSW_REFUSAL_H */
