/*
 * counters.h
 *		How many heartbeats there were, and what became of them.
 */
#ifndef SSW_COUNTERS_H
#define SSW_COUNTERS_H

typedef enum SswHeartbeatStat
{
	SSW_STAT_FAST,				/* answered from memory */
	SSW_STAT_SLOW,				/* the row was looked at: alive */
	SSW_STAT_WRITTEN,			/* and written */
	SSW_STAT_GONE,				/* no such session any more */
	SSW_STAT_ERROR,				/* nothing is known */
	SSW_HEARTBEAT_STATS
} SswHeartbeatStat;

extern void ssw_counters_init(void);
extern void ssw_counters_count(SswHeartbeatStat stat);
extern void ssw_counters_read(int64 *counts);

#endif							/* SSW_COUNTERS_H */
