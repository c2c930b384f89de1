/*
 * task_id.h
 *		Identifiers of tasks, whose order is that of their submission.
 */
#ifndef SSW_TASK_ID_H
#define SSW_TASK_ID_H

#include "datatype/timestamp.h"
#include "utils/uuid.h"

extern pg_uuid_t *ssw_task_identifier(void);
extern pg_uuid_t ssw_task_first_identifier(TimestampTz at);

#endif							/* SSW_TASK_ID_H */
