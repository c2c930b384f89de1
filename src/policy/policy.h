/*
 * policy.h
 *		Read rows of sweeper.policy.
 */
#ifndef SSW_POLICY_H
#define SSW_POLICY_H

#include "policy/policy_struct.h"
#include "policy/register_arguments.h"

/* policy.c: read rows.  All results are allocated in CurrentMemoryContext. */
extern List *ssw_policy_load_all(void);
extern SswPolicy *ssw_policy_load(int policy_id);
extern SswPolicy *ssw_policy_again(const SswPolicy *p);
extern SswPolicy *ssw_policy_present(SswPolicy *p);
extern SswPolicy *ssw_policy_find(const char *name, bool missing_ok);

/* Are policies defined on another node, and copied to this one?  Filled in by citus/. */
extern bool (*ssw_policy_follows) (void);

/* policy.c: may the policy's relation and hooks be used in its name? */
extern bool ssw_policy_is_foreign(const SswPolicy *p);
extern Oid	ssw_policy_relation_now(const SswPolicy *p);
extern char *ssw_policy_unusable(const SswPolicy *p);
extern Oid	ssw_policy_new_owner(const SswPolicy *p);
extern bool ssw_policy_is_lost(const SswPolicy *p);
extern Oid	ssw_policy_hook_now(const char *name);
extern char *ssw_policy_hook_trouble(const SswPolicy *p);

#endif							/* SSW_POLICY_H */
