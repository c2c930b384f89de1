/*
 * runner_demand.h
 *		For which role a runner is wanted.
 */
#ifndef SSW_RUNNER_DEMAND_H
#define SSW_RUNNER_DEMAND_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "utils/uuid.h"

extern TimestampTz ssw_runner_demand(const Oid *roles, int n, TimestampTz now);
extern void ssw_runner_demand_none(bool interrupt);
extern void ssw_runner_wake(const List *roles);
extern bool ssw_runner_cancel(const pg_uuid_t *task, TimestampTz since);

#endif							/* SSW_RUNNER_DEMAND_H */
