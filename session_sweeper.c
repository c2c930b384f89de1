/*
 * session_sweeper.c
 *		Module entry: settings, shared memory, hooks, launcher.
 *
 * Runs in the postmaster at preload, or in a session that loads the library
 * without it; then only the settings and the check of statements exist, and functions say what is missing.
 * _PG_init never raises.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "base/compat.h"
#include "base/guc.h"
#include "base/notify.h"
#include "base/process_slot.h"
#include "base/relation_guard.h"
#include "base/session_trust.h"
#include "base/shmem.h"
#include "citus/citus.h"
#include "citus/route.h"
#include "commands/unit_guess.h"
#include "grace/service_log.h"
#include "heartbeat/attach.h"
#include "heartbeat/counters.h"
#include "heartbeat/store.h"
#include "heartbeat/xact.h"
#include "process/database_hook.h"
#include "process/launcher.h"
#include "registry/disconnect.h"
#include "registry/pool_count.h"
#include "registry/seat_queue.h"
#include "registry/usage_event.h"
#include "sweep/row_in_hand.h"
#include "sweep/throttle.h"
#include "work/task_head.h"
#include "work/task_shmem.h"
#include "work/work_state.h"
#include "work/worker_lost.h"

PG_MODULE_MAGIC_EXT(.name = "session_sweeper",.version = SSW_VERSION);

void		_PG_init(void);

void
_PG_init(void)
{
	ssw_guc_init();
	ssw_trust_init();
	ssw_guard_init();
	ssw_unit_guess_init();
	ssw_usage_init();
	ssw_pool_count_hooks();
	ssw_disconnect_init();
	ssw_worker_lost_init();
	ssw_citus_init();
	ssw_citus_route_init();
	if (!process_shared_preload_libraries_in_progress || IsBinaryUpgrade)
		return;
	ssw_store_init();
	ssw_task_shmem_init();
	ssw_task_head_init();
	ssw_process_on_leaving(ssw_work_runner_leaves);
	ssw_in_hand_init();
	ssw_throttle_init();
	ssw_service_init();
	ssw_notify_init();
	ssw_attach_init();
	ssw_work_init();
	ssw_pool_count_init();
	ssw_seat_queue_init();
	ssw_counters_init();
	ssw_shmem_init();
	ssw_heartbeat_xact_init();
	ssw_database_hook_init();
	ssw_launcher_register();
}
