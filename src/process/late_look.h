/*
 * late_look.h
 *		How late is what falls due while a brake keeps passes from running?
 */
#ifndef SSW_LATE_LOOK_H
#define SSW_LATE_LOOK_H

#include "process/watched_policy.h"

extern void ssw_late_look(SswWatch *w, TimestampTz now);

#endif							/* SSW_LATE_LOOK_H */
