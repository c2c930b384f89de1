/*
 * worker_quota.h
 *		Who gets the places of processes: sweeps and commands of all databases.
 */
#ifndef SSW_WORKER_QUOTA_H
#define SSW_WORKER_QUOTA_H

#include "base/shmem.h"
#include "policy/policy.h"

extern int	ssw_quota_most_coordinators(TimestampTz now);
extern void ssw_quota_forget_short(void);
extern int	ssw_quota_count(SswProcKind kind, Oid database);
extern void ssw_quota_note_no_slot(TimestampTz now);
extern void ssw_quota_ask_to_leave(SswProc *p, TimestampTz now);
extern void ssw_quota_no_slot(SswProcKind kind, Oid database, Oid role, TimestampTz now);
extern bool ssw_quota_has_its_share(Oid role);
extern SswPass *ssw_quota_free_pass(const SswPolicy *p);
extern void ssw_quota_take_back(TimestampTz now);
extern void ssw_quota_enforce(TimestampTz now);
extern Oid	ssw_quota_next_worker(TimestampTz now);
extern Oid	ssw_quota_next_runner(TimestampTz now, Oid *role);

#endif							/* SSW_WORKER_QUOTA_H */
