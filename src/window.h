/*
 * window.h
 *		Maintenance windows: the times of the week in which a policy sweeps.
 */
#ifndef SSW_WINDOW_H
#define SSW_WINDOW_H

#include "datatype/timestamp.h"

extern char *ssw_window_check(const char *text);
extern bool ssw_window_is_open(const char *text, TimestampTz now);
extern TimestampTz ssw_window_next_minute(TimestampTz now);

#endif							/* SSW_WINDOW_H */
