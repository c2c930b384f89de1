/*
 * usage_event.h
 *		What an ended session of the registry is billed.
 */
#ifndef SSW_USAGE_EVENT_H
#define SSW_USAGE_EVENT_H

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* The life of a session that has ended: SswEndedRow.extra of the registry's policy. */
typedef struct SswLife
{
	pg_uuid_t	session;
	TimestampTz acquired_at;
	TimestampTz ended_at;
} SswLife;

extern void ssw_usage_init(void);

#endif							/* SSW_USAGE_EVENT_H */
