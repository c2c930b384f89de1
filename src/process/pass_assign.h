/*
 * pass_assign.h
 *		Which pass gets which worker.
 */
#ifndef SSW_PASS_ASSIGN_H
#define SSW_PASS_ASSIGN_H

#include "process/watched_policy.h"

extern void ssw_assign(List *watches, TimestampTz now);

#endif							/* SSW_PASS_ASSIGN_H */
