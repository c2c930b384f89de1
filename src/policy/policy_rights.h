/*
 * policy_rights.h
 *		Who may do what to a policy.
 */
#ifndef SSW_POLICY_RIGHTS_H
#define SSW_POLICY_RIGHTS_H

#include "policy/policy.h"

typedef enum SswRight
{
	SSW_RIGHT_SEE,				/* owner, monitor, admin */
	SSW_RIGHT_SEE_ROW,			/* the same, and user of the policy */
	SSW_RIGHT_ADMIN,			/* owner, admin */
	SSW_RIGHT_END_ROW,			/* the same, and user of the policy */
	SSW_RIGHT_OWNER				/* owner of the relation only */
} SswRight;

extern bool ssw_rights_is_admin(Oid userid);
extern bool ssw_rights_is_monitor(Oid userid);
extern void ssw_rights_check_pool(const char *pool);
extern void ssw_rights_forget_policy(int policy_id);
extern void ssw_rights_forget_pool(const char *pool);
extern bool ssw_rights_have(const SswPolicy *p, SswRight right);
extern void ssw_rights_check_rows(const SswPolicy *p, AclMode mode);
extern SswPolicy *ssw_rights_policy(text *name, SswRight right);
extern SswPolicy *ssw_rights_locked(text *name, SswRight right, LOCKMODE mode);
extern SswPolicy *ssw_rights_change(text *name, SswRight right);
extern bool ssw_rights_lock(const SswPolicy *p, LOCKMODE mode, TimestampTz until);

#endif							/* SSW_POLICY_RIGHTS_H */
