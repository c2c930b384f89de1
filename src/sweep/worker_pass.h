/*
 * worker_pass.h
 *		A worker's part of a pass: collect dead rows, act on them in batches.
 */
#ifndef SSW_WORKER_PASS_H
#define SSW_WORKER_PASS_H

#include "sweep/batch.h"

extern void ssw_pass_work(SswPass *pass);

#endif							/* SSW_WORKER_PASS_H */
