/*
 * worker_lost.h
 *		What ends with a worker.
 */
#ifndef SSW_WORKER_LOST_H
#define SSW_WORKER_LOST_H

#include "base/ssw.h"
#include "utils/uuid.h"

extern void ssw_cascade_orphans(Datum jobs);
extern void ssw_cascade(const pg_uuid_t *workers, int n);
extern void ssw_cascade_rest(void);
extern void ssw_cascade_unheard(Datum worker, int64 ttl_us);

#endif							/* SSW_WORKER_LOST_H */
