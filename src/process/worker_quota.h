/*
 * worker_quota.h
 *		Who gets the places of processes: sweeps and commands of all databases.
 */
#ifndef SSW_WORKER_QUOTA_H
#define SSW_WORKER_QUOTA_H

#include "base/shmem.h"

extern int	ssw_quota_most_coordinators(TimestampTz now);
extern void ssw_quota_short(TimestampTz now);
extern void ssw_quota_forget_short(void);
extern int	ssw_quota_count(SswProcKind kind, Oid database);
extern bool ssw_quota_start(SswProcKind kind, Oid database, Oid role);
extern bool ssw_quota_make_room(Oid for_database, TimestampTz now);
extern bool ssw_quota_has_its_share(Oid role);
extern void ssw_quota_take_back(TimestampTz now);
extern void ssw_quota_enforce(TimestampTz now);
extern void ssw_quota_start_workers(TimestampTz now);
extern void ssw_quota_start_runners(TimestampTz now);

#endif							/* SSW_WORKER_QUOTA_H */
