/*
 * window.h
 *		Maintenance windows: the times of the week in which a policy sweeps.
 */
#ifndef SSW_WINDOW_H
#define SSW_WINDOW_H

#include "datatype/timestamp.h"

extern char *ssw_window_zone(const char *name);
extern char *ssw_window_check(const char *text);
extern TimestampTz ssw_window_opens(const char *text, TimestampTz from);
extern TimestampTz ssw_window_next_minute(TimestampTz now);

#endif							/* SSW_WINDOW_H */
