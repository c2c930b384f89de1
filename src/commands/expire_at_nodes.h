/*
 * expire_at_nodes.h
 *		Rows of a distributed table, ended on the nodes that have them.
 */
#ifndef SSW_EXPIRE_AT_NODES_H
#define SSW_EXPIRE_AT_NODES_H

#include "utils/array.h"

#include "policy/policy.h"

extern int64 ssw_expire_at_nodes(const SswPolicy *p, ArrayType *keys, const char *group, const char *reason);

#endif							/* SSW_EXPIRE_AT_NODES_H */
