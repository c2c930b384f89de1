/*
 * process_slot.h
 *		Common life of our background processes.
 */
#ifndef SSW_PROCESS_SLOT_H
#define SSW_PROCESS_SLOT_H

#include "postmaster/bgworker.h"
#include "base/shmem.h"

extern int	ssw_process_reserve(SswProcKind kind, Oid database, Oid role);
extern void ssw_process_release(int slot);
extern bool ssw_process_start(int slot);
extern bool ssw_process_attach(const Datum *main_arg);
extern uint32 ssw_process_settings(Oid role);
extern void ssw_process_note_settings(void);
extern void ssw_process_connect(Oid database);
extern void ssw_process_ready(void);
extern bool ssw_process_must_leave(void);
extern void ssw_process_set_state(SswProcState state);

/* A process that ignores a cancel for so long is ended. */
#define SSW_CANCEL_GRACE_US		(2 * USECS_PER_SEC)

extern bool ssw_process_ignores_cancel(const SswProc *p, TimestampTz now);
extern Oid	ssw_process_role(const SswProc *p);
extern bool ssw_process_role_is_full(Oid role);
extern void ssw_process_cancel(SswProc *p);
extern void ssw_process_cancel_policy(int policy_id);

/* The process of that slot leaves; its database, or null. */
typedef void (*SswLeaving) (SswDatabase *d, SswProc *proc);
extern void ssw_process_on_leaving(SswLeaving callback);

#endif							/* SSW_PROCESS_SLOT_H */
