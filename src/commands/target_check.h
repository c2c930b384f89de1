/*
 * target_check.h
 *		May this relation be swept, with these functions, by this caller?
 */
#ifndef SSW_TARGET_CHECK_H
#define SSW_TARGET_CHECK_H

#include "policy/policy.h"

extern Relation ssw_target_open(Oid relid);
extern void ssw_target_check(SswPolicy *p, Relation rel);

#endif							/* SSW_TARGET_CHECK_H */
