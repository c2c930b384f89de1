/*
 * cached_plan.h
 *		Kept plans of our statements on swept tables.
 */
#ifndef SSW_CACHED_PLAN_H
#define SSW_CACHED_PLAN_H

#include "executor/spi.h"

extern uint64 ssw_plan_execute(const char *sql, int nargs, Oid *types, Datum *values, DestReceiver *dest, bool read_only);
extern uint64 ssw_plan_execute_fresh(const char *sql, int nargs, Oid *types, Datum *values);
extern uint64 ssw_plan_execute_as_others(const char *sql, int nargs, Oid *types, Datum *values);
extern int	ssw_plan_prefer_places(void);
extern void ssw_plan_by_place(const char *sql, int nargs, Oid *types);

#endif							/* SSW_CACHED_PLAN_H */
