/*
 * partition.h
 *		Which updates of a policy move rows to other partitions.
 */
#ifndef SSW_PARTITION_H
#define SSW_PARTITION_H

#include "policy.h"

extern void ssw_partition_build(SswPolicy *p, Relation rel);
extern void ssw_partition_check(const SswPolicy *p);

#endif							/* SSW_PARTITION_H */
