/*
 * xact.h
 *		What the end of this transaction means for heartbeats in memory.
 */
#ifndef SSW_XACT_H
#define SSW_XACT_H

#include "heartbeat/store.h"

extern void ssw_heartbeat_xact_init(void);

extern int	ssw_heartbeat_xact_count(void);
extern void ssw_heartbeat_xact_mark(const SswHeartbeatKey *key, uint64 word);
extern bool ssw_heartbeat_xact_marks_hold(int from);
extern void ssw_heartbeat_xact_ended(int from, bool all);
extern void ssw_heartbeat_xact_prolong(const SswHeartbeatKey *key, TimestampTz deadline, int64 ttl_us, const TimestampTz *undone, bool is_new);
extern void ssw_heartbeat_xact_attach(const SswHeartbeatKey *key);

#endif							/* SSW_XACT_H */
