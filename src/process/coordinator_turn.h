/*
 * coordinator_turn.h
 *		A coordinator's turn, and how it leaves.
 */
#ifndef SSW_COORDINATOR_TURN_H
#define SSW_COORDINATOR_TURN_H

#include "process/policy_watch.h"

/* How often it is asked whether ALTER DATABASE has set something. */
#define SSW_SETTINGS_EVERY_US	(5 * USECS_PER_SEC)

extern void ssw_turn_check_settings(TimestampTz now);
extern void ssw_turn_begin(void);
extern bool ssw_turn_is_told(void);
extern bool ssw_turn_is_over(List *watches, TimestampTz now);
extern void ssw_turn_stop(List *watches);
extern void ssw_turn_close(List *watches);	/* in a transaction */
extern bool ssw_turn_must_leave(List *watches, TimestampTz now, TimestampTz needed);
extern TimestampTz ssw_turn_inherit(void);
extern void ssw_turn_bequeath(bool judged, uint64 generation, TimestampTz marked_at);

#endif							/* SSW_COORDINATOR_TURN_H */
