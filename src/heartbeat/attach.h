/*
 * attach.h
 *		Sessions that are attached to a connection.
 */
#ifndef SSW_ATTACH_H
#define SSW_ATTACH_H

#include "heartbeat/store.h"

extern void ssw_attach_reserve(void);
extern bool ssw_attach_begin(const SswBeatKey *key);
extern void ssw_attach_commit(const SswBeatKey *key);
extern void ssw_attach_abort(const SswBeatKey *key);
extern bool ssw_attach_leave(const SswBeatKey *key);
extern bool ssw_attach_is_posted(uint64 *posts);
extern bool ssw_attach_is_gone(const SswBeatKey *key);
extern bool ssw_attach_is_stopping(void);
extern void ssw_attach_not_gone(const SswBeatKey *key);

#endif							/* SSW_ATTACH_H */
