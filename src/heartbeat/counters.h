/*
 * counters.h
 *		How many heartbeats there were, and what became of them.
 */
#ifndef SSW_COUNTERS_H
#define SSW_COUNTERS_H

typedef enum SswBeatStat
{
	SSW_STAT_FAST,				/* answered from memory */
	SSW_STAT_SLOW,				/* the row was looked at: alive */
	SSW_STAT_WRITTEN,			/* and written */
	SSW_STAT_GONE,				/* no such session any more */
	SSW_STAT_ERROR,				/* nothing is known */
	SSW_BEAT_STATS
} SswBeatStat;

extern void ssw_beatstats_request(void);
extern void ssw_beatstats_startup(void);
extern void ssw_beatstats_count(SswBeatStat stat);
extern void ssw_beatstats_read(int64 *counts);

#endif							/* SSW_COUNTERS_H */
