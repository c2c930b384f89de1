/*
 * probe.h
 *		Is anything due, and when?
 */
#ifndef SSW_PROBE_H
#define SSW_PROBE_H

#include "process/watched_policy.h"

extern bool ssw_probe_is_plain(const SswPolicy *p, Relation rel);
extern bool ssw_probe_can_read(const SswPolicy *p);
extern void ssw_probe_outline(SswPolicy *p);
extern void ssw_probe_requested(SswWatch *w);
extern void ssw_probe(SswWatch *w, TimestampTz now);

#endif							/* SSW_PROBE_H */
