/*
 * alive_by_function.h
 *		What is_alive says of candidates.
 */
#ifndef SSW_ALIVE_BY_FUNCTION_H
#define SSW_ALIVE_BY_FUNCTION_H

#include "sweep/batch.h"

extern void ssw_alive_by_function(SswWork *w);

#endif							/* SSW_ALIVE_BY_FUNCTION_H */
