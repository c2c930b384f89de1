/*
 * throttle.c
 *		Load care: sweeps rest while a replica is too far behind, when they have
 *		written enough WAL, and outside of their policy's windows.
 *
 * The launcher notes now and then how far the server's WAL was flushed.  Coordinators
 * compare replicas with where it was max_replica_lag ago; that also finds those that are
 * stuck or not connected.  Workers report how much WAL they wrote.
 *
 * Shares where the WAL was, which replica is late, and the rest of max_wal_rate: private
 * to this file, under a lock of its own.  A crash leaves nothing behind: replicas can be late again when the server has run for max_replica_lag.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/instrument.h"
#include "utils/float.h"
#include "utils/pg_lsn.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "policy/window.h"
#include "sweep/throttle.h"

#define MIN_SAMPLE_US	(100 * 1000)
/* Replicas are looked at so often. */
#define LOOK_US			(USECS_PER_SEC / 2)
/* What one statement wrote beyond that much is forgiven: others wait for it. */
#define MAX_DEBT_S		5
/* So many batches fit into a second of max_wal_rate. */
#define WAL_BATCHES		4

/* Half of them span max_replica_lag. */
#define SAMPLES			64

typedef struct Sample
{
	TimestampTz at;
	XLogRecPtr	lsn;			/* WAL was flushed so far */
} Sample;

typedef struct Throttle
{
	LWLock	   *lock;
	pg_atomic_uint64 lsn;		/* WAL was flushed so far max_replica_lag ago;
								 * 0: unknown */
	TimestampTz looked_at;		/* at replicas */
	char		behind[160];	/* which one is too late, or "" */
	double		tokens;			/* bytes of WAL that sweeps may write now */
	TimestampTz tokens_at;
} Throttle;

static Throttle *throttle = NULL;

/* In the launcher: samples that were taken.  The last ones are kept. */
static int64 nsamples = 0;
static Sample sample[SAMPLES];

static void
init_throttle(LWLock *lock)
{
	throttle->lock = lock;
	pg_atomic_init_u64(&throttle->lsn, 0);
}

void
ssw_throttle_init(void)
{
	ssw_shmem_add_struct("session_sweeper throttle", sizeof(Throttle), &throttle, init_throttle);
}

/* The launcher's part: note where the WAL is, and was; returns when next. */
TimestampTz
ssw_throttle_sample(TimestampTz now)
{
	int64		lag = ssw_max_replica_lag * INT64CONST(1000);
	int64		spacing = Max(MIN_SAMPLE_US, lag / (SAMPLES / 2));
	TimestampTz last = nsamples == 0 ? 0 : sample[(nsamples - 1) % SAMPLES].at;

	if (lag == 0)
		return DT_NOEND;
	if (now < last + spacing)
		return last + spacing;
	sample[nsamples++ % SAMPLES] = (Sample)
	{
		.at = now,.lsn = GetFlushRecPtr(NULL)
	};
	for (int64 i = nsamples - 1; i >= Max(0, nsamples - SAMPLES); i--)
		if (sample[i % SAMPLES].at <= now - lag)
		{
			pg_atomic_write_u64(&throttle->lsn, sample[i % SAMPLES].lsn);
			break;
		}
	return now + spacing;
}

/* The launcher has seen that the clock was set. */
void
ssw_throttle_forget(void)
{
	nsamples = 0;
	pg_atomic_write_u64(&throttle->lsn, 0);
	LWLockAcquire(throttle->lock, LW_EXCLUSIVE);
	throttle->looked_at = throttle->tokens_at = 0;
	throttle->behind[0] = '\0';
	LWLockRelease(throttle->lock);
}

/* The replica or slot that is farthest behind that position, and a text that says so; null: none is. */
static char *
find_behind(XLogRecPtr lsn)
{
	static const char *const sql =
	"SELECT who || ' is more than ' || pg_catalog.current_setting('session_sweeper.max_replica_lag') || ' behind' FROM ("
	"SELECT CASE WHEN r.replay_lsn IS NULL THEN pg_catalog.format('replication slot \"%s\"', s.slot_name)"
	" ELSE pg_catalog.format('replica \"%s\" (pid %s)', r.application_name, r.pid) END,"

	/*
	 * some consumers of logical slots tell rarely, and no replay position: do
	 * they take what is sent?
	 */
	" coalesce(r.replay_lsn, CASE WHEN s.slot_type = 'logical' THEN r.sent_lsn END)"
	" FROM pg_catalog.pg_stat_replication AS r LEFT JOIN pg_catalog.pg_replication_slots AS s ON s.active_pid = r.pid"
	" WHERE r.state IN ('catchup', 'streaming')"
	" UNION ALL SELECT pg_catalog.format('replication slot \"%s\"', slot_name), confirmed_flush_lsn FROM pg_catalog.pg_replication_slots"
	" WHERE slot_type = 'logical' AND NOT active AND NOT temporary AND wal_status <> 'lost'"
	/* not of a subscriber's first copy of a table */
	" AND slot_name !~ '^pg_[0-9]+_sync_[0-9]+_[0-9]+$') AS r (who, lsn) WHERE lsn < $1 ORDER BY lsn LIMIT 1";
	Oid			type = PG_LSNOID;
	Datum		value = LSNGetDatum(lsn);
	char	   *who = NULL;
	MemoryContext cxt = CurrentMemoryContext;

	ssw_spi_begin();
	if (ssw_spi_exec(sql, 1, &type, &value, NULL, false, 1) > 0)
		who = MemoryContextStrdup(cxt, ssw_spi_text(0, 1));
	ssw_spi_end();
	return who;
}

/* The coordinator's part, in a transaction: is a replica too late?  Two may look at the same time. */
void
ssw_throttle_look(TimestampTz now)
{
	Throttle   *l = throttle;
	XLogRecPtr	lsn = pg_atomic_read_u64(&l->lsn);
	char	   *behind;

	if (ssw_max_replica_lag == 0 || now - l->looked_at < LOOK_US)
		return;
	behind = lsn == 0 ? NULL : find_behind(lsn);
	LWLockAcquire(l->lock, LW_EXCLUSIVE);
	l->looked_at = now;
	ssw_shmem_text(l->behind, behind ? behind : "", sizeof(l->behind));
	LWLockRelease(l->lock);
}

/* Take bytes from max_wal_rate; what may be written now, in bytes.  behind, unless null: which replica is too late, or "". */
static double
take_tokens(TimestampTz now, int64 bytes, char *behind)
{
	Throttle   *l = throttle;
	double		rate = ssw_max_wal_rate * 1024.0;
	double		left;

	LWLockAcquire(l->lock, LW_EXCLUSIVE);
	l->tokens = l->tokens_at == 0 ? rate : Min(rate, l->tokens + rate * Max(0, now - l->tokens_at) / 1e6);
	l->tokens_at = now;
	left = l->tokens = Max(l->tokens - bytes, -MAX_DEBT_S * rate);
	if (behind)
		strlcpy(behind, l->behind, sizeof(l->behind));
	LWLockRelease(l->lock);
	return left;
}

/*
 * A worker's part: how much WAL it has written since it last said.  What somebody
 * has asked for holds up no other.
 */
int64
ssw_throttle_spend(bool forced)
{
	static uint64 told = 0;
	int64		bytes = pgWalUsage.wal_bytes - told;

	told = pgWalUsage.wal_bytes;
	if (ssw_max_wal_rate > 0 && !forced)
		(void) take_tokens(GetCurrentTimestamp(), bytes, NULL);
	return bytes;
}

/* How much WAL a batch is to write at most, about. */
double
ssw_throttle_batch_bytes(void)
{
	return ssw_max_wal_rate > 0 ? ssw_max_wal_rate * 1024.0 / WAL_BATCHES : get_float8_infinity();
}

/* Must passes that nobody asked for wait?  Rows that heartbeats keep alive are still refreshed. */
bool
ssw_throttle_rests(const SswPolicy *p, TimestampTz now, SswRest *rest)
{
	TimestampTz opens = p->maintenance_window ? ssw_window_opens(p->maintenance_window, now) : now;
	double		tokens;

	rest->state = SSW_POLICY_UNKNOWN;
	if (opens != now)
	{
		rest->state = SSW_POLICY_OUTSIDE_WINDOW;
		rest->until = ssw_window_next_minute(now);
		snprintf(rest->reason, sizeof(rest->reason), "until its maintenance window opens%s%s: %s", opens ? " at " : "",
				 opens ? timestamptz_to_str(opens) : "", p->maintenance_window);
		return true;
	}
	if (ssw_max_replica_lag == 0 && ssw_max_wal_rate == 0)
		return false;
	tokens = take_tokens(now, 0, rest->reason);
	if (ssw_max_replica_lag > 0 && rest->reason[0] != '\0')
		rest->until = now + LOOK_US;
	else if (ssw_max_wal_rate > 0 && tokens <= 0)
	{
		snprintf(rest->reason, sizeof(rest->reason), "max_wal_rate is reached: %d kB of WAL per second", ssw_max_wal_rate);
		rest->until = now + 1 + (TimestampTz) (-tokens / (ssw_max_wal_rate * 1024.0) * 1e6);
	}
	else
		return false;
	rest->state = SSW_POLICY_THROTTLED;
	return true;
}
