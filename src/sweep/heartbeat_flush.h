/*
 * heartbeat_flush.h
 *		Write to the rows what only memory has of their sessions.
 */
#ifndef SSW_HEARTBEAT_FLUSH_H
#define SSW_HEARTBEAT_FLUSH_H

#include "policy/policy.h"

extern void ssw_heartbeat_flush(SswPolicy *p);

#endif							/* SSW_HEARTBEAT_FLUSH_H */
