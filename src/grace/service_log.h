/*
 * service_log.h
 *		When service began, and how long there was none before.
 */
#ifndef SSW_SERVICE_LOG_H
#define SSW_SERVICE_LOG_H

#include "datatype/timestamp.h"

#define SSW_MAX_STARTS	16

/* Service began, or the clock was set forward. */
typedef struct SswStart
{
	TimestampTz at;
	int64		outage_us;		/* time without service before; -1: unknown */
	bool		crash;			/* not after a clean stop */
	bool		jump;			/* of the clock, no start */
} SswStart;

/* The known starts, oldest first. */
typedef struct SswStarts
{
	int			n;
	SswStart	start[SSW_MAX_STARTS];
} SswStarts;

extern void ssw_service_init(void);
extern TimestampTz ssw_service_began(void);
extern TimestampTz ssw_service_resumed(void);
extern bool ssw_service_is_clean(void);
extern TimestampTz ssw_service_incarnation(void);
extern uint64 ssw_service_system_identifier(void);
extern void ssw_service_note_promotion(void);
extern void ssw_service_start(bool kept);
extern void ssw_service_alive(bool last);
extern bool ssw_service_watch_clock(void);
extern void ssw_service_check_clock(void);
extern void ssw_service_watch_read_only(bool last);
extern void ssw_service_list(SswStarts *s);
extern int64 ssw_service_outages_since(const SswStarts *s, TimestampTz t);
extern int64 ssw_service_credit(const SswStarts *s, TimestampTz now, int64 ttl_us);

#endif							/* SSW_SERVICE_LOG_H */
