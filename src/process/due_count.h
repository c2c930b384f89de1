/*
 * due_count.h
 *		About how many rows of a policy are due, while a brake is on.
 */
#ifndef SSW_DUE_COUNT_H
#define SSW_DUE_COUNT_H

#include "process/watched_policy.h"

extern void ssw_due_count(SswWatch *w, List *leaves, TimestampTz now);

#endif							/* SSW_DUE_COUNT_H */
