/*
 * alive_check.h
 *		What is_alive says of candidates.
 */
#ifndef SSW_ALIVE_CHECK_H
#define SSW_ALIVE_CHECK_H

#include "sweep/batch.h"

/* The is_alive part */
extern void ssw_alive_check_work(SswWork *w);

#endif							/* SSW_ALIVE_CHECK_H */
