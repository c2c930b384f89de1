/*
 * usage_event.h
 *		What an ended session of the registry is billed.
 */
#ifndef SSW_USAGE_EVENT_H
#define SSW_USAGE_EVENT_H

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* The life of a session that has ended. */
typedef struct SswLife
{
	pg_uuid_t	session;
	text	   *owner;			/* null when nobody claimed it */
	TimestampTz acquired_at;
	TimestampTz ended_at;
	char	   *channel;		/* of its pool, or null */
} SswLife;

typedef struct SswUsage SswUsage;

extern SswUsage *ssw_usage_open(const char *cleanup_type);
extern void ssw_usage_add(SswUsage *u, int64 event, text *pool, const SswLife *life);
extern void ssw_usage_close(SswUsage *u);

#endif							/* SSW_USAGE_EVENT_H */
