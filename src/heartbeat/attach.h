/*
 * attach.h
 *		Sessions that are attached to a connection.
 */
#ifndef SSW_ATTACH_H
#define SSW_ATTACH_H

#include "heartbeat/store.h"

#define SSW_MAX_DISCONNECTED 1024	/* posts of a database */

extern void ssw_attach_init(void);
extern void ssw_attach_begin(void);
extern void ssw_attach_commit(const SswHeartbeatKey *key);
extern void ssw_attach_abort(void);
extern bool ssw_attach_leave(const SswHeartbeatKey *key, bool heartbeat);
extern int	ssw_attach_posted(SswHeartbeatKey *keys, uint64 *last);
extern void ssw_attach_settle(const SswHeartbeatKey *keys, int nkeys);
extern void ssw_attach_forget(Oid database);
extern bool ssw_attach_is_stopping(void);
extern void ssw_attach_not_gone(const SswHeartbeatKey *key);

#endif							/* SSW_ATTACH_H */
