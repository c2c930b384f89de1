/*
 * disconnect.h
 *		End the sessions whose connections have gone.
 */
#ifndef SSW_DISCONNECT_H
#define SSW_DISCONNECT_H

#include "batch.h"

/* Sessions that a worker has taken to end. */
typedef struct SswDisconnects SswDisconnects;

extern SswDisconnects *ssw_disconnect_take(const SswPolicy *p, MemoryContext cxt);
extern void ssw_disconnect_work(SswWork *w, SswDisconnects *d);

#endif							/* SSW_DISCONNECT_H */
