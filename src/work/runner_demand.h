/*
 * runner_demand.h
 *		For which role a runner is wanted.
 */
#ifndef SSW_RUNNER_DEMAND_H
#define SSW_RUNNER_DEMAND_H

#include "datatype/timestamp.h"

extern TimestampTz ssw_runner_demand(const Oid *roles, int n, TimestampTz now);
extern void ssw_runner_demand_none(bool in_vain);
extern void ssw_runner_demand_note_starts(TimestampTz now);
extern bool ssw_runner_demand_cannot_start(Oid role);

#endif							/* SSW_RUNNER_DEMAND_H */
