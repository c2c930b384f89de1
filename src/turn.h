/*
 * turn.h
 *		A coordinator's turn, and how it leaves.
 */
#ifndef SSW_TURN_H
#define SSW_TURN_H

#include "watch.h"

extern void ssw_turn_begin(void);
extern bool ssw_turn_is_over(List *watches, TimestampTz now);
extern void ssw_turn_stop(List *watches);
extern void ssw_turn_close(List *watches);	/* in a transaction */
extern bool ssw_turn_must_leave(List *watches, TimestampTz now, TimestampTz next);

#endif							/* SSW_TURN_H */
