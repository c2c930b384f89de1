/*
 * pass.h
 *		A worker's part of a pass: collect dead rows, act on them in batches.
 */
#ifndef SSW_PASS_H
#define SSW_PASS_H

#include "batch.h"

extern void ssw_pass_work(SswPass *pass);

/* check.c: the is_alive part */
extern void ssw_check_work(SswWork *w);

#endif							/* SSW_PASS_H */
