/*
 * task.h
 *		Tasks: submit them, start, finish and cancel them.
 */
#ifndef SSW_TASK_H
#define SSW_TASK_H

#include "utils/uuid.h"

extern pg_uuid_t *ssw_task_identifier(void);
extern void ssw_task_missing(Datum task);

#endif							/* SSW_TASK_H */
