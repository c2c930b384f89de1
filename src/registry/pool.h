/*
 * pool.h
 *		Pools of seats: make, change and drop them.
 */
#ifndef SSW_POOL_H
#define SSW_POOL_H

#include "fmgr.h"

extern void ssw_pool_missing(const char *pool);
extern bool ssw_pool_exists(const char *pool);
extern Datum ssw_pool_metadata(FunctionCallInfo fcinfo, int arg);

#endif							/* SSW_POOL_H */
