/*
 * slow_path.h
 *		A heartbeat: the caller's side of the protocol.
 */
#ifndef SSW_SLOW_PATH_H
#define SSW_SLOW_PATH_H

#include "heartbeat/target_cache.h"

/* What a heartbeat is answered. */
typedef enum SswTouch
{
	SSW_TOUCH_NOTHING,			/* nothing is known: an error, or look again */
	SSW_TOUCH_GONE,
	SSW_TOUCH_ALIVE,
	SSW_TOUCH_WRITE				/* alive, and its row must be written; within
								 * slow_path.c only */
} SswTouch;

extern bool ssw_slow_path_within_block(void);
extern SswTouch ssw_slow_path_row(SswHeartbeatTarget *target, const SswHeartbeatKey *key, Oid shard, Datum *values, int patience_ms,
								  ErrorData **error);

#endif							/* SSW_SLOW_PATH_H */
