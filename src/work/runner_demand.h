/*
 * runner_demand.h
 *		For which role a runner is wanted.
 */
#ifndef SSW_RUNNER_DEMAND_H
#define SSW_RUNNER_DEMAND_H

#include "datatype/timestamp.h"

extern TimestampTz ssw_want_runner(const Oid *roles, int n, TimestampTz now);
extern void ssw_want_none(bool in_vain);
extern void ssw_want_note_starts(TimestampTz now);
extern bool ssw_want_cannot_start(Oid role);

#endif							/* SSW_RUNNER_DEMAND_H */
