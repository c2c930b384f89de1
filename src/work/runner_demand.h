/*
 * runner_demand.h
 *		For which role a runner is wanted.
 */
#ifndef SSW_RUNNER_DEMAND_H
#define SSW_RUNNER_DEMAND_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"
#include "utils/uuid.h"

/* Of ssw_runner_cancel(): the launcher interrupts it at once. */
#define SSW_LONG_AGO	1

extern TimestampTz ssw_runner_demand(const Oid *roles, int n, TimestampTz now);
extern void ssw_runner_demand_none(bool interrupt);
extern void ssw_runner_wake(const List *roles);
extern void ssw_runner_cancel(const pg_uuid_t *task, TimestampTz since);
extern int	ssw_runner_tasks(pg_uuid_t **tasks);

#endif							/* SSW_RUNNER_DEMAND_H */
