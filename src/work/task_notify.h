/*
 * task_notify.h
 *		Notify listeners of what happened to tasks, jobs and providers.
 */
#ifndef SSW_TASK_NOTIFY_H
#define SSW_TASK_NOTIFY_H

#include "datatype/timestamp.h"

extern TimestampTz ssw_task_notify(TimestampTz now);

#endif							/* SSW_TASK_NOTIFY_H */
