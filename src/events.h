/*
 * events.h
 *		Tell listeners what happened to tasks, jobs and providers.
 */
#ifndef SSW_EVENTS_H
#define SSW_EVENTS_H

#include "datatype/timestamp.h"

extern TimestampTz ssw_events_tell(TimestampTz now);

#endif							/* SSW_EVENTS_H */
