/*
 * plain_probe.h
 *		What a coordinator can read without code of users.
 */
#ifndef SSW_PLAIN_PROBE_H
#define SSW_PLAIN_PROBE_H

#include "policy/policy.h"

/* What the coordinator may know of the deadlines */
extern bool ssw_plain_columns(const SswPolicy *p, Relation rel);
extern void ssw_plain_outline(SswPolicy *p);

#endif							/* SSW_PLAIN_PROBE_H */
