/*
 * disconnect.h
 *		End the sessions whose connections have gone.
 */
#ifndef SSW_DISCONNECT_H
#define SSW_DISCONNECT_H

#include "sweep/batch.h"

extern void ssw_disconnect_work(SswWork *w, MemoryContext cxt);

#endif							/* SSW_DISCONNECT_H */
