/*
 * probe.h
 *		Is anything due, and when?
 */
#ifndef SSW_PROBE_H
#define SSW_PROBE_H

#include "process/watched_policy.h"

extern bool ssw_probe_build(SswWatch *w, Relation rel);
extern void ssw_probe_requested(SswWatch *w);
extern void ssw_probe(SswWatch *w, TimestampTz now);

#endif							/* SSW_PROBE_H */
