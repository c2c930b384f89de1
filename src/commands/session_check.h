/*
 * session_check.h
 *		Does an expression of a policy mean something else in another session?
 */
#ifndef SSW_SESSION_CHECK_H
#define SSW_SESSION_CHECK_H

#include "policy/policy.h"

extern void ssw_session_check(const SswPolicy *p, Relation rel);

#endif							/* SSW_SESSION_CHECK_H */
