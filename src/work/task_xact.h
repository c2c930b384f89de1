/*
 * task_xact.h
 *		What this transaction does to tasks, posted at its commit.
 */
#ifndef SSW_TASK_XACT_H
#define SSW_TASK_XACT_H

#include "access/xact.h"
#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#include "work/task_shmem.h"

extern void ssw_task_xact_task_changed(const pg_uuid_t *task);
extern void ssw_task_xact_task_waits(int64 job, int32 priority, const pg_uuid_t *task);
extern void ssw_task_xact_look_by(TimestampTz at);
extern bool ssw_task_xact_any_waits(void);
extern bool ssw_task_xact_any_changes(void);
extern void ssw_task_xact_room_changed(SswEventKind kind, const char *room);
extern void ssw_task_xact_command_waits(Oid role);
extern void ssw_task_xact_left_over(void);
extern void ssw_task_xact_rows_add(int n);
extern int64 ssw_task_xact_rows_appended(void);

#endif							/* SSW_TASK_XACT_H */
