/*
 * settle.h
 *		Write to the rows what only memory knows of their sessions.
 */
#ifndef SSW_SETTLE_H
#define SSW_SETTLE_H

#include "policy.h"

extern void ssw_settle_heartbeats(SswPolicy *p);

#endif							/* SSW_SETTLE_H */
