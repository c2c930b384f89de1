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

/* What the entry of the database says at the beginning of a round. */
typedef struct SswTurn
{
	uint64		wakeups;		/* of its coordinator, so far */
	uint64		generation;		/* of the policies */
	TimestampTz marked_at;		/* the coordinator before wrote the mark, or 0 */
	bool		may_be_due;		/* rows may be due earlier than is known */
	bool		closed;			/* nobody is wanted here */
	bool		others_wait;	/* for a coordinator to leave */
	bool		passes;			/* some are open */
} SswTurn;

typedef enum SswTurnEnd
{
	SSW_TURN_WAITS,
	SSW_TURN_GOES_ON,			/* somebody woke it meanwhile */
	SSW_TURN_LEAVES
} SswTurnEnd;

extern void ssw_turn_begin(void);
extern void ssw_turn_begin_round(SswTurn *t);
extern bool ssw_turn_is_over(const SswTurn *t, List *watches, TimestampTz now);
extern SswTurnEnd ssw_turn_end_round(const SswTurn *t, List *watches, TimestampTz now, TimestampTz needed, TimestampTz marked_at);

#endif							/* SSW_COORDINATOR_TURN_H */
