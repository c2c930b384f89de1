/*
 * pass_lifecycle.h
 *		From the opening of a pass to its end.
 */
#ifndef SSW_PASS_LIFECYCLE_H
#define SSW_PASS_LIFECYCLE_H

#include "process/watched_policy.h"

extern void ssw_passes_publish(SswWatch *w, const SswPass *ended);
extern void ssw_passes_inherit(SswWatch *w);
extern TimestampTz ssw_passes_refresh_at(SswWatch *w);
extern TimestampTz ssw_passes_needed_at(SswWatch *w, TimestampTz now);
extern TimestampTz ssw_passes_gone_at(const SswWatch *w);
extern bool ssw_passes_rest(SswWatch *w, TimestampTz now, bool gone);
extern void ssw_passes_open(SswWatch *w, uint64 generation, TimestampTz now, bool requested);
extern void ssw_passes_nothing_due(SswWatch *w, TimestampTz now, uint64 request);
extern void ssw_passes_close(SswWatch *w, TimestampTz now);

#endif							/* SSW_PASS_LIFECYCLE_H */
