/*
 * pool_count.h
 *		How many seats were acquired, refused, held and ended: table pool_day.
 */
#ifndef SSW_POOL_COUNT_H
#define SSW_POOL_COUNT_H

#include "datatype/timestamp.h"

extern void ssw_pool_count_init(void);
extern void ssw_pool_count_hooks(void);
extern void ssw_pool_count_acquired(const char *pool, int64 live);
extern void ssw_pool_count_refused(const char *pool);
extern void ssw_pool_count_changed(const char *pool);
extern TimestampTz ssw_pool_count_write(TimestampTz now);
extern void ssw_pool_count_forget(Oid database);

#endif							/* SSW_POOL_COUNT_H */
