/*
 * task_notify.h
 *		Tell listeners what happened to tasks, jobs and providers.
 */
#ifndef SSW_TASK_NOTIFY_H
#define SSW_TASK_NOTIFY_H

#include "datatype/timestamp.h"

extern TimestampTz ssw_events_tell(TimestampTz now);

#endif							/* SSW_TASK_NOTIFY_H */
