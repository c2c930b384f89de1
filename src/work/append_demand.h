/*
 * append_demand.h
 *		Which appended rows are due.
 */
#ifndef SSW_APPEND_DEMAND_H
#define SSW_APPEND_DEMAND_H

#include "datatype/timestamp.h"

#include "base/shmem.h"

/* in the coordinator */
extern TimestampTz ssw_appended_look(TimestampTz now);
extern void ssw_appended_look_again(void);

/* under SswShared->lock */
extern Oid	ssw_appended_next(int after);
extern int	ssw_appended_wanted(void);
extern void ssw_appended_give(SswProc *proc, Oid owner);

#endif							/* SSW_APPEND_DEMAND_H */
