/*
 * append_demand.h
 *		Which appended rows are due.
 */
#ifndef SSW_APPEND_DEMAND_H
#define SSW_APPEND_DEMAND_H

#include "datatype/timestamp.h"

#include "base/shmem.h"

/* in the coordinator */
extern TimestampTz ssw_append_demand_look(TimestampTz now);

/* in a worker */
extern void ssw_append_demand_left(Oid owner);

/* in the coordinator, under SswShared->lock */
extern Oid	ssw_append_demand_next(int after, bool (*quota_used) (Oid owner));
extern int	ssw_append_demand_wanted(void);
extern void ssw_append_demand_give(SswProc *proc, Oid owner);

#endif							/* SSW_APPEND_DEMAND_H */
