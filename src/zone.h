/*
 * zone.h
 *		Does an expression of a policy mean something else in another session?
 */
#ifndef SSW_ZONE_H
#define SSW_ZONE_H

#include "policy.h"

extern void ssw_zone_check(const SswPolicy *p, Relation rel);

#endif							/* SSW_ZONE_H */
