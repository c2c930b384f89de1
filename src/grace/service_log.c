/*
 * service_log.c
 *		When service began, and how long there was none before.
 *
 * While there is no service no session can be refreshed, so policies whose rows
 * depend on activity are credited that time.  The launcher keeps a file with the
 * last starts and a sign of life; what ran without it (a single-user backend, a
 * server without this library) is no service.  The postmaster reads pg_control
 * before the startup process overwrites it, to tell a clean stop from a crash.
 * A wall clock that jumps forward is an outage of that length: coordinators look
 * for it before they judge.
 *
 * The list is in shared memory, private to this file, under a lock of its own; what
 * others read of it is set before they begin, or one word.  A crash leaves the file, at
 * most ALIVE_US old; a lost file leaves pg_control.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "portability/instr_time.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "grace/service_log.h"

/* In the folder of permanent statistics, which belongs to one cluster. */
#define FILE_NAME	"pg_stat/session_sweeper.starts"
#define ALIVE_US	(10 * USECS_PER_SEC)

/* A clock that was set, not one that is slewed. */
#define JUMP_US		(1 * USECS_PER_SEC)
/* Longer between two readings: another process ran in between; so often at most. */
#define READING_US	10000
#define READINGS	10

typedef struct Service
{
	LWLock	   *lock;
	TimestampTz began;			/* start of service; 0 until the launcher runs */
	TimestampTz read_only_since;	/* default_transaction_read_only is on, or
									 * 0 */
	bool		clean_start;	/* pg_control said "shut down" */
	TimestampTz down_since;		/* its time, when clean_start */
	uint32		control_timeline;	/* of pg_control then */
	int			nstarts;
	SswStart	starts[SSW_MAX_STARTS];
	TimestampTz incarnation;	/* when this memory was made */
	int64		clock_offset;	/* wall clock beyond the monotonic one */
	TimestampTz alive_at;		/* last sign of life written; the launcher's */
	uint64		system_identifier;
} Service;

static Service *service = NULL;

/* What pg_control says of the time before this start. */
static void
read_control(void)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);

	if (!crc_ok)
		return;
	service->system_identifier = control->system_identifier;
	service->control_timeline = control->checkPointCopy.ThisTimeLineID;
	if (control->state == DB_SHUTDOWNED)
	{
		service->clean_start = true;
		service->down_since = time_t_to_timestamptz(control->time);
	}
	pfree(control);
}

static void
init_service(LWLock *lock)
{
	service->lock = lock;
	service->incarnation = GetCurrentTimestamp();
	read_control();
}

void
ssw_service_init(void)
{
	ssw_shmem_add_struct("session_sweeper service log", sizeof(Service), &service, init_service);
}

/* When service began; 0 until the launcher runs. */
TimestampTz
ssw_service_began(void)
{
	return service->began;
}

/* Was the stop before this start a clean one? */
bool
ssw_service_is_clean(void)
{
	return service->clean_start;
}

/* When this shared memory was made. */
TimestampTz
ssw_service_incarnation(void)
{
	return service->incarnation;
}

uint64
ssw_service_system_identifier(void)
{
	return service->system_identifier;
}

/*
 * In the launcher, before the start is judged: a server that was promoted meanwhile
 * did not run as ours when pg_control was written; another was.
 */
void
ssw_service_note_promotion(void)
{
	if (GetWALInsertionTimeLine() != service->control_timeline)
		service->clean_start = false;
}

/* What the wall clock shows beyond the monotonic one. */
static int64
clock_offset(void)
{
	instr_time	before,
				after;
	int64		wall = 0;

	for (int i = 0; i < READINGS; i++)
	{
		INSTR_TIME_SET_CURRENT(before);
		wall = GetCurrentTimestamp();
		INSTR_TIME_SET_CURRENT(after);
		INSTR_TIME_SUBTRACT(after, before);
		if (INSTR_TIME_GET_MICROSEC(after) <= READING_US)
			break;
	}
	return wall - (int64) INSTR_TIME_GET_MICROSEC(before);
}

/* Add a start to the list in shared memory; the two oldest become one. */
static void
append(TimestampTz at, int64 outage_us, bool crash, bool jump)
{
	SswStart   *s = service->starts;

	if (service->nstarts == SSW_MAX_STARTS)
	{
		s[1].outage_us = s[0].outage_us < 0 || s[1].outage_us < 0 ? -1 : s[0].outage_us + s[1].outage_us;
		s[1].crash |= s[0].crash;
		s[1].jump = false;
		memmove(&s[0], &s[1], (SSW_MAX_STARTS - 1) * sizeof(SswStart));
		service->nstarts--;
	}
	s[service->nstarts].at = at;
	s[service->nstarts].outage_us = outage_us;
	s[service->nstarts].crash = crash;
	s[service->nstarts].jump = jump;
	service->nstarts++;
}

/* Read the file; returns the last sign of life, or 0. */
static TimestampTz
read_file(SswStarts *s)
{
	FILE	   *file = AllocateFile(FILE_NAME, PG_BINARY_R);
	long long	alive = 0;
	long long	at,
				outage;
	int			crash,
				jump;

	s->n = 0;
	if (file == NULL)
		return 0;
	if (fscanf(file, "alive %lld\n", &alive) == 1)
		while (s->n < SSW_MAX_STARTS &&
			   fscanf(file, "start %lld outage %lld crash %d jump %d\n", &at, &outage, &crash, &jump) == 4)
		{
			s->start[s->n].at = at;
			s->start[s->n].outage_us = outage;
			s->start[s->n].crash = crash != 0;
			s->start[s->n++].jump = jump != 0;
		}
	FreeFile(file);
	return alive;
}

/* Write the list, and that there is service now; durable: it survives the system too. */
static void
write_file(TimestampTz now, bool durable)
{
	SswStarts	s;
	FILE	   *file = AllocateFile(FILE_NAME ".new", PG_BINARY_W);
	bool		ok = file != NULL && fprintf(file, "alive %lld\n", (long long) now) > 0;

	ssw_service_list(&s);
	for (int i = 0; ok && i < s.n; i++)
		ok = fprintf(file, "start %lld outage %lld crash %d jump %d\n", (long long) s.start[i].at,
					 (long long) s.start[i].outage_us, s.start[i].crash, s.start[i].jump) > 0;
	if (file && FreeFile(file) != 0)
		ok = false;
	if (ok && durable)
		(void) durable_rename(FILE_NAME ".new", FILE_NAME, LOG);
	else if (!ok || rename(FILE_NAME ".new", FILE_NAME) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", FILE_NAME)));
}

/* The clock was set back: what jumps forward were credited was no time. */
static void
take_back(TimestampTz now, int64 jump)
{
	SswStart   *s = service->starts;

	service->began = Min(service->began, now);
	for (int i = service->nstarts - 1; i >= 0 && s[i].at > now; i--)
	{
		s[i].at = now;
		if (s[i].jump)
		{
			int64		back = Min(jump, s[i].outage_us);

			s[i].outage_us -= back;
			jump -= back;
		}
	}
}

/*
 * The launcher runs: service begins, unless another launcher began it.  Not kept:
 * heartbeats of the service before may have been lost.
 */
void
ssw_service_start(bool kept)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		offset = clock_offset();
	TimestampTz alive;
	SswStarts	known;

	if (service->began != 0)
		return;
	alive = read_file(&known);
	if (alive == 0 && service->clean_start)
		alive = service->down_since;
	LWLockAcquire(service->lock, LW_EXCLUSIVE);
	if (known.n > 0 && !kept)
		service->clean_start = false;
	service->nstarts = known.n;
	memcpy(service->starts, known.start, known.n * sizeof(SswStart));

	/*
	 * starts of the future are those of a clock that was fast; nobody knows
	 * by how much
	 */
	take_back(now, PG_INT64_MAX);
	append(now, alive != 0 ? Max(0, now - alive) : -1, !service->clean_start, false);
	service->clock_offset = offset;
	service->alive_at = service->began = now;
	LWLockRelease(service->lock);
	write_file(now, true);
}

/* The launcher still runs; last: it begins to stop. */
void
ssw_service_alive(bool last)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!last && now >= service->alive_at && now - service->alive_at < ALIVE_US)
		return;
	service->alive_at = now;
	write_file(now, last);
}

/*
 * The first process that sees the wall clock go forward notes an outage: callers take the
 * time by which they judge before they call.
 */
static void
note_jump(void)
{
	int64		offset;
	int64		jump;

	LWLockAcquire(service->lock, LW_EXCLUSIVE);
	offset = clock_offset();
	jump = offset - service->clock_offset;
	service->clock_offset = offset;
	if (jump > JUMP_US)
		append(GetCurrentTimestamp(), jump, false, true);
	else if (jump < -JUMP_US)
		take_back(GetCurrentTimestamp(), -jump);
	LWLockRelease(service->lock);
	if (jump > JUMP_US)
		ereport(WARNING,
				(errmsg("the system clock went forward by " INT64_FORMAT " s", jump / USECS_PER_SEC),
				 errdetail("This time does not count against rows that depend on activity.")));
}

/* Was the wall clock set since this process last called?  Then what it planned by that clock is void. */
bool
ssw_service_watch_clock(void)
{
	static bool called = false;
	static int64 last_offset;
	int64		offset = clock_offset();
	bool		set = called && (offset - last_offset > JUMP_US || last_offset - offset > JUMP_US);

	called = true;
	last_offset = offset;
	note_jump();
	return set;
}

/* A session judges by the wall clock, and nobody may have watched it for some seconds. */
void
ssw_service_check_clock(void)
{
	int64		offset = clock_offset();
	int64		known = service->clock_offset;

	if (service->began != 0 && (offset - known > JUMP_US || known - offset > JUMP_US))
		note_jump();
}

/*
 * While the default is read-only there is no service, and applications cannot write:
 * that is noted as an outage when it is over.  In the launcher; last: it begins to stop.
 */
void
ssw_service_watch_read_only(bool last)
{
	bool		read_only = DefaultXactReadOnly && !last;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz since;

	if (read_only == (service->read_only_since != 0))
		return;
	LWLockAcquire(service->lock, LW_EXCLUSIVE);
	since = service->read_only_since;
	service->read_only_since = read_only ? now : 0;
	if (since != 0 && since < now)
		append(now, now - since, false, false);
	LWLockRelease(service->lock);
}

/* A copy of the list. */
void
ssw_service_list(SswStarts *s)
{
	LWLockAcquire(service->lock, LW_SHARED);
	s->n = service->nstarts;
	memcpy(s->start, service->starts, sizeof(s->start));
	LWLockRelease(service->lock);
}

/* When time last began to count: at the start, or after the clock was set forward or a read-only time. */
TimestampTz
ssw_service_resumed(void)
{
	SswStarts	s;

	ssw_service_list(&s);
	return s.n > 0 ? s.start[s.n - 1].at : ssw_service_began();
}

/* How much time without service there was after t. */
int64
ssw_service_outages_since(const SswStarts *s, TimestampTz t)
{
	int64		sum = 0;

	for (int i = 0; i < s->n; i++)
		if (s->start[i].at > t)
		{
			int64		most = s->start[i].at - t;

			sum += s->start[i].outage_us < 0 ? most : Min(most, s->start[i].outage_us);
		}
	return sum;
}

/*
 * The outages since the last crash for which there has not yet been service for
 * a time to live.
 */
int64
ssw_service_credit(const SswStarts *s, TimestampTz now, int64 ttl_us)
{
	int64		sum = 0;

	for (int i = s->n - 1; i >= 0 && !s->start[i].crash && now - s->start[i].at - sum < ttl_us; i--)
		sum += Max(0, s->start[i].outage_us);
	return sum;
}
