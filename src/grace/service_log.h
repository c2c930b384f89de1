/*
 * service_log.h
 *		When service began, and how long there was none before.
 */
#ifndef SSW_SERVICE_LOG_H
#define SSW_SERVICE_LOG_H

#include "base/shmem.h"

/* The starts known, oldest first; copied under SswShared->lock. */
typedef struct SswStarts
{
	int			n;
	SswStart	start[SSW_MAX_STARTS];
} SswStarts;

extern void ssw_service_read_control(void);
extern void ssw_service_note_promotion(void);
extern void ssw_service_start(bool kept);
extern void ssw_service_alive(bool last);
extern bool ssw_service_watch_clock(void);
extern void ssw_service_watch_read_only(bool last);
extern void ssw_service_list(SswStarts *s);
extern int64 ssw_service_outages_since(const SswStarts *s, TimestampTz t);
extern int64 ssw_service_credit(const SswStarts *s, TimestampTz now, int64 ttl_us);

#endif							/* SSW_SERVICE_LOG_H */
