/*
 * deadline_index.h
 *		The index that the coordinator reads deadlines from, and values in its order.
 */
#ifndef SSW_DEADLINE_INDEX_H
#define SSW_DEADLINE_INDEX_H

#include "policy/policy.h"

/* Dead index entries must not hang the coordinator. */
#define SSW_DEADLINE_INDEX_TIMEOUT_MS	2000

extern Relation ssw_deadline_index_open(const SswPolicy *p, Relation leaf, const SswDeadline *c);
extern bool ssw_deadline_index_value(const SswDeadline *c, TimestampTz due, const Datum *other, int64 *result);

#endif							/* SSW_DEADLINE_INDEX_H */
