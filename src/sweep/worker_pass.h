/*
 * worker_pass.h
 *		A worker's part of a pass: collect dead rows, act on them in batches.
 */
#ifndef SSW_WORKER_PASS_H
#define SSW_WORKER_PASS_H

#include "sweep/batch.h"

extern void ssw_pass_work(SswPass *pass);

/* alive_check.c: the is_alive part */
extern void ssw_check_work(SswWork *w);

#endif							/* SSW_WORKER_PASS_H */
