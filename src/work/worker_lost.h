/*
 * worker_lost.h
 *		What ends with a worker.
 */
#ifndef SSW_WORKER_LOST_H
#define SSW_WORKER_LOST_H

#include "base/ssw.h"
#include "utils/uuid.h"

extern void ssw_worker_lost_orphans(Datum jobs);
extern void ssw_worker_lost_init(void);
extern bool ssw_worker_lost_rest(void);
extern void ssw_worker_lost_unheard(Datum worker, int64 ttl_us);

#endif							/* SSW_WORKER_LOST_H */
