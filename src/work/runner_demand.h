/*
 * runner_demand.h
 *		For which role a runner is wanted.
 */
#ifndef SSW_RUNNER_DEMAND_H
#define SSW_RUNNER_DEMAND_H

#include "datatype/timestamp.h"

extern TimestampTz ssw_runner_demand(const Oid *roles, int n, TimestampTz now);
extern void ssw_runner_demand_none(bool in_vain);

#endif							/* SSW_RUNNER_DEMAND_H */
