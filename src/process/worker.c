/*
 * worker.c
 *		The worker: waits for a pass or for appended rows, works on them, waits again.
 *
 * A dynamic background process connected to one database; the coordinator of
 * that database puts a pass, or an owner whose tables have appended rows, into its
 * slot and sets its latch.  It decides nothing.  Shares its slot and the pass, under SswShared->lock.  It exits
 * after worker_idle_timeout, when asked to, or when its database closes; a
 * crash leaves nothing behind.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/guc.h"
#include "base/process_slot.h"
#include "base/session_trust.h"
#include "base/spi.h"
#include "sweep/worker_pass.h"
#include "work/append_writer.h"
#include "process/worker.h"

PGDLLEXPORT void ssw_worker_main(Datum main_arg);

/*
 * Reload settings when asked; the flag is cleared before the file is read.
 * True when they may have changed.
 */
bool
ssw_worker_reload(void)
{
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return false;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	SetConfigOption("synchronous_commit", GetConfigOption("session_sweeper.synchronous_commit", false, false),
					PGC_SUSET, PGC_S_OVERRIDE);
	return true;
}

static bool
must_stop_writing(void)
{
	return !ssw_enabled || ssw_process_must_leave();
}

/*
 * Code of one role must not find what that of another left in the process.  pass_assign.c
 * sees to that; but a trigger may have run code of a third role.
 */
static bool
serve_owner(void)
{
	bool		append = MySswProc->pass < 0;
	Oid			owner = append ? MySswProc->append_owner : SswPasses[MySswProc->pass].owner;

	/* built-in policies have no code of users */
	if (!append && SswPasses[MySswProc->pass].policy_id <= SSW_LAST_BUILTIN)
		return true;
	if (!ssw_trust_is_clean(owner))
		return false;
	ssw_spi_start_transaction();
	ssw_trust_serve(owner);
	ssw_spi_commit();
	return true;
}

static void
wait_for_work(void)
{
	static uint32 wait_event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Max(1, Min(ssw_worker_idle_timeout, 10000)),
					 ssw_wait_event("SessionSweeperWorkerIdle", wait_event));
	ResetLatch(MyLatch);
}

void
ssw_worker_main(Datum main_arg)
{
	if (!ssw_process_attach(&main_arg))
		return;
	ssw_process_connect(MySswProc->database);
	pgstat_report_activity(STATE_IDLE, NULL);
	ssw_process_ready();
	ssw_process_set_state(SSW_STATE_IDLE);

	for (;;)
	{
		bool		leave;

		(void) ssw_worker_reload();
		leave = ssw_process_must_leave();
		if (!leave && (MySswProc->pass >= 0 || OidIsValid(MySswProc->append_owner)))
		{
			if (!serve_owner())
				break;
			ssw_process_set_state(SSW_STATE_BUSY);
			if (MySswProc->pass >= 0)
				ssw_pass_work(&SswPasses[MySswProc->pass]);
			else
				ssw_append_writer_run(MySswProc->append_owner, must_stop_writing);
			ssw_process_set_state(SSW_STATE_IDLE);
			continue;
		}
		if (leave ||
			TimestampDifferenceExceeds(MySswProc->state_since, GetCurrentTimestamp(),
									   ssw_worker_idle_timeout))
			break;
		wait_for_work();
	}
}
