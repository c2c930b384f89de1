/*
 * alter_policy.h
 *		SQL functions alter_policy and unregister, and register of a policy that exists.
 */
#ifndef SSW_ALTER_POLICY_H
#define SSW_ALTER_POLICY_H

#include "fmgr.h"

#include "policy/policy.h"

extern Datum ssw_alter_as_registered(FunctionCallInfo fcinfo, const SswPolicy *given, SswPolicy *p,
									 SswPolicy *old, Relation rel);

#endif							/* SSW_ALTER_POLICY_H */
