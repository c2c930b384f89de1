/*
 * target.h
 *		May this relation be swept, with these functions, by this caller?
 */
#ifndef SSW_TARGET_H
#define SSW_TARGET_H

#include "policy.h"

extern Relation ssw_target_open(Oid relid);
extern void ssw_target_check(SswPolicy *p, Relation rel);

#endif							/* SSW_TARGET_H */
