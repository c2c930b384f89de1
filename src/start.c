/*
 * start.c
 *		When service began, and what is known of the time before.
 *
 * The postmaster reads pg_control before the startup process overwrites it: a
 * clean stop has a time.  The launcher says when service began, and keeps the
 * time of the last beginning after a crash or promotion in a file, because a
 * clean restart soon after, or one with sweeps switched off, would look as if
 * there had been no outage before it.  Both write to shared memory before any
 * reader is started.  A crash leaves the file, which the next one replaces.
 */
#include "postgres.h"

#include <unistd.h>

#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "shmem.h"
#include "start.h"

/* In the folder of permanent statistics, which belongs to one cluster. */
#define CRASH_FILE	"pg_stat/session_sweeper.crash"

/* What pg_control says of the time before this start. */
void
ssw_start_read_control(void)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);

	if (!crc_ok)
		return;
	SswShared->system_identifier = control->system_identifier;
	if (control->state == DB_SHUTDOWNED)
	{
		SswShared->clean_start = true;
		SswShared->down_since = time_t_to_timestamptz(control->time);
	}
	pfree(control);
}

/* When service last began without a clean stop before it; 0 when unknown. */
static TimestampTz
read_crash_file(void)
{
	FILE	   *file = AllocateFile(CRASH_FILE, PG_BINARY_R);
	long long	at = 0;

	if (file == NULL)
		return 0;
	if (fscanf(file, "%lld", &at) != 1)
		at = 0;
	FreeFile(file);
	return at;
}

static void
write_crash_file(TimestampTz at)
{
	FILE	   *file = AllocateFile(CRASH_FILE ".new", PG_BINARY_W);
	bool		ok = file != NULL && fprintf(file, "%lld\n", (long long) at) > 0;

	if (file && FreeFile(file) != 0)
		ok = false;
	if (!ok)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", CRASH_FILE ".new")));
	else
		(void) durable_rename(CRASH_FILE ".new", CRASH_FILE, LOG);
}

/* The launcher runs: service begins, unless another launcher began it. */
void
ssw_start_service(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (SswShared->service_start != 0)
		return;
	if (SswShared->clean_start)
		SswShared->crash_start = read_crash_file();
	else
	{
		SswShared->crash_start = now;
		write_crash_file(now);
	}
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	SswShared->service_start = now;
	LWLockRelease(SswShared->lock);
}
