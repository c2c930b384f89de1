/*
 * touch.h
 *		A heartbeat: the caller's side of the protocol.
 */
#ifndef SSW_TOUCH_H
#define SSW_TOUCH_H

#include "beats.h"
#include "policy.h"

extern void ssw_touch_check(const char *function);
extern bool ssw_touch_row(const SswPolicy *p, const SswBeatKey *key, int nkeys, Oid *types, Datum *values, bool secured,
						  const bool *valid, bool *alive);

#endif							/* SSW_TOUCH_H */
