/*
 * pool_count.c
 *		How many seats were acquired, refused, held and ended: table pool_day.
 *
 * Runs in sessions that acquire, in all that end sessions, and in coordinators.  A commit
 * adds what its transaction did to the counts of the pool and the day in shared memory.
 * So acquires and ends of a pool do not wait for each other's rows.  The coordinator adds
 * the counts to table pool_day.  A commit also wakes the sessions that wait for seats.
 *
 * Acquires of a pool with seats know how many live.  In a pool of any number nobody counts:
 * it is known how the number has changed since the last time, and the coordinator, which
 * counts when it writes, infers the highest.
 *
 * Shares the counts of what is not written yet, under its own lock, held for a few
 * instructions; fixed memory of about 800 kB.  A stop or a crash loses them.  An abort of
 * the coordinator's transaction puts back what it has taken.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/date.h"
#include "utils/datetime.h"
#include "utils/fmgrprotos.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/own_row.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "base/xact_list.h"
#include "policy/policy_hooks.h"
#include "registry/pool_count.h"
#include "registry/seat_queue.h"
#include "registry/session.h"
#include "sweep/cleanup_event.h"

PG_FUNCTION_INFO_V1(ssw_pool_counts);

#define MOST_COUNTED	10000
#define MAX_COUNTS		2048
#define HURRY_ABOVE		(MAX_COUNTS / 2)
/* So many at most that nobody writes: those of others are not written in a hurry for them. */
#define UNSERVED_BELOW	(HURRY_ABOVE / 2)
/* Written so often, and in such a part of the time. */
#define WRITE_EVERY_US	(10 * USECS_PER_SEC)
#define WRITE_PART		100
#define WRITE_MAX_US	(5 * USECS_PER_MINUTE)
#define FAILED_REST_US	USECS_PER_MINUTE
#define LOCK_TIMEOUT_MS	500
/* Days of all time zones begin at a multiple of it. */
#define DAY_STEP_US		(15 * USECS_PER_MINUTE)

typedef struct CountKey
{
	Oid			database;
	DateADT		day;
	char		pool[SSW_MAX_NAME + 1];
} CountKey;

enum
{
	C_ACQUIRED, C_REFUSED, C_PEAK, C_CHANGE, C_HIGHEST, C_LAST_REFUSED, C_ENDED, C_N = C_ENDED + SSW_END_TYPES
};

typedef struct Count
{
	CountKey	key;			/* must be first; unused bytes are zeros */

	/*
	 * C_PEAK: the most that lived, as acquires counted; C_CHANGE: by how many
	 * there are more, C_HIGHEST: at most, since the counts were written;
	 * C_LAST_REFUSED: a time, or DT_NOBEGIN
	 */
	int64		n[C_N];
} Count;

typedef struct Written
{
	Oid			database;
	DateADT		day;			/* pools that nobody uses have their rows, too */
	bool		waits;			/* there is something to write */
	TimestampTz next;			/* no earlier than then */
} Written;

typedef struct Shared
{
	LWLock	   *lock;
	Written		written[SSW_MAX_DATABASES];
} Shared;

/* What the current transaction has done to a pool. */
typedef struct Done
{
	SswXactItem item;
	int			what;			/* C_ACQUIRED, C_ENDED + a type, or C_N: the
								 * pool was changed */
	int64		n;
	int64		live;			/* at most; 0: nobody has counted */
	char	   *pool;
} Done;

static void at_event(XactEvent event);

static Shared *shared = NULL;
static HTAB *counts;
static SswXactList pending = {.at_event = at_event};

/* In the coordinator: what is being written, until its transaction has committed. */
static Count *taken = NULL;
static int	ntaken = 0;

static void
init_shared(LWLock *lock)
{
	HASHCTL		ctl = {.keysize = sizeof(CountKey),.entrysize = sizeof(Count)};

	shared->lock = lock;
	counts = ShmemInitHash("session_sweeper seats of days", MAX_COUNTS, MAX_COUNTS, &ctl, HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* Called from _PG_init. */
void
ssw_pool_count_init(void)
{
	ssw_shmem_add("session_sweeper seats", sizeof(Shared), hash_estimate_size(MAX_COUNTS, sizeof(Count)), 1, &shared, init_shared);
}

/* The day in the server's time zone, which no session has another of. */
static DateADT
day_of(TimestampTz now)
{
	static TimestampTz from = 0;
	static pg_tz * zone = NULL;
	static DateADT day;
	struct pg_tm tm;
	fsec_t		fsec;
	int			tz;

	if (zone != log_timezone || now < from || now >= from + DAY_STEP_US)
	{
		if (timestamp2tm(now, &tz, &tm, &fsec, NULL, log_timezone) != 0)
			return 0;
		zone = log_timezone;
		from = now - now % DAY_STEP_US;
		day = date2j(tm.tm_year, tm.tm_mon, tm.tm_mday) - POSTGRES_EPOCH_JDATE;
	}
	return day;
}

/* Of a database; null: there are too many.  The lock is held. */
static Written *
written_of(Oid database)
{
	Written    *free = NULL;

	for (int i = 0; i < SSW_MAX_DATABASES; i++)
	{
		Written    *w = &shared->written[i];

		if (w->database == database)
			return w;
		if (!OidIsValid(w->database) && free == NULL)
			free = w;
	}
	if (free)
		free->database = database;
	return free;
}

/* The lock is held; null: so many are known already, and what would be counted is lost. */
static Count *
count_of(const CountKey *key, int most)
{
	bool		found;
	Count	   *c = hash_search(counts, key, hash_get_num_entries(counts) < most ? HASH_ENTER_NULL : HASH_FIND, &found);

	if (c && !found)
	{
		Written    *w = written_of(key->database);

		memset(c->n, 0, sizeof(c->n));
		c->n[C_LAST_REFUSED] = DT_NOBEGIN;
		if (w)
			w->waits = true;
	}
	return c;
}

/* Add to the counts of today. */
static void
add(const char *pool, int what, int64 n, int64 live)
{
	CountKey	key = {0};
	TimestampTz now = GetCurrentTimestamp();
	Count	   *c;
	long		before;
	bool		hurry;
	int			most;

	if (shared == NULL)
		return;
	most = hash_get_num_entries(counts) < UNSERVED_BELOW || ssw_shmem_is_served() ? MAX_COUNTS : UNSERVED_BELOW;
	key.database = MyDatabaseId;
	key.day = day_of(now);
	ssw_shmem_text(key.pool, pool, sizeof(key.pool));
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	before = hash_get_num_entries(counts);
	c = count_of(&key, most);
	hurry = before == HURRY_ABOVE && hash_get_num_entries(counts) > before;
	if (c)
	{
		c->n[what] += n;
		c->n[C_CHANGE] += what == C_ACQUIRED ? n : what >= C_ENDED ? -n : 0;
		c->n[C_HIGHEST] = Max(c->n[C_HIGHEST], c->n[C_CHANGE]);
		c->n[C_PEAK] = Max(c->n[C_PEAK], live);
		if (what == C_REFUSED)
			c->n[C_LAST_REFUSED] = now;
	}
	LWLockRelease(shared->lock);
	if (hurry)
		ssw_shmem_wake_own_coordinator();
}

/* What is prepared counts, too: COMMIT PREPARED calls nobody. */
static void
at_event(XactEvent event)
{
	ListCell   *lc;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_PREPARE)
		return;
	foreach(lc, pending.items)
	{
		const Done *d = lfirst(lc);

		if (d->what < C_N)
			add(d->pool, d->what, d->n, d->live);
		if (d->what != C_ACQUIRED)
			ssw_seat_queue_wake(d->pool);
	}
}

/* Remember for the commit; many of the same are one item. */
static void
remember(const char *pool, int what, int64 n, int64 live)
{
	Done	   *d = pending.items ? llast(pending.items) : NULL;

	if (d == NULL || d->what != what || d->item.level != GetCurrentTransactionNestLevel() || strcmp(d->pool, pool) != 0)
	{
		d = ssw_xact_list_add(&pending, sizeof(Done));
		d->what = what;
		d->pool = MemoryContextStrdup(TopTransactionContext, pool);
	}
	d->n += n;
	d->live = Max(d->live, live);
}

/* A seat was taken; live: so many have one now, 0: nobody has counted. */
void
ssw_pool_count_acquired(const char *pool, int64 live)
{
	remember(pool, C_ACQUIRED, 1, live);
}

/* The pool has other settings, or is gone. */
void
ssw_pool_count_changed(const char *pool)
{
	remember(pool, C_N, 0, 0);
}

/* The pool was full: that counts now, whatever the transaction comes to. */
void
ssw_pool_count_refused(const char *pool)
{
	add(pool, C_REFUSED, 1, 0);
}

/*
 * How many sessions of a pool live, this transaction's ends included.  -1: in a pool of any
 * number nobody counts, and in one with very many sessions each batch would take too long.
 */
static int64
live_sessions(Datum pool)
{
	SswOwnTable t;
	bool		unlimited = true;
	int64		n = 0;

	ssw_own_open(&t, "pool", SSW_P_NCOLS, "pool_pkey", AccessShareLock, ssw_own_latest());
	if (ssw_own_find_texts(&t, &pool, 1))
		(void) ssw_own_column(&t, SSW_P_SEATS + 1, &unlimited);
	ssw_own_close(&t);
	ssw_own_release(t.snapshot);
	if (unlimited)
		return -1;
	ssw_own_open(&t, "session", SSW_SESSION_COLUMNS, "session_seat", AccessShareLock, ssw_own_latest());
	for (bool found = ssw_own_find_texts(&t, &pool, 1); found && n <= MOST_COUNTED; found = ssw_own_next(&t))
		n++;
	ssw_own_close(&t);
	ssw_own_release(t.snapshot);
	return n <= MOST_COUNTED ? n : -1;
}

/* Sessions of a pool have ended: their events have the seats in use after each. */
static void
add_ended_of_pool(SswEndedRow *rows, int n, int type)
{
	int64		live = live_sessions(PointerGetDatum(rows[0].group));

	for (int i = 0; live >= 0 && i < n; i++)
		rows[i].meta = (struct varlena *) DatumGetPointer(DirectFunctionCall1(jsonb_in,
																			  CStringGetDatum(psprintf("{\"seats_used\": " INT64_FORMAT "}", live + n - 1 - i))));
	remember(text_to_cstring(rows[0].group), C_ENDED + type, n, 0);
}

/* Those of a pool stand together. */
static void
add_ended(SswEndedRow *rows, int n, const char *type, int64 event)
{
	for (int start = 0, len; start < n; start += len)
	{
		len = ssw_cleanup_event_group(rows + start, n - start);
		add_ended_of_pool(rows + start, len, ssw_cleanup_event_type(type));
	}
}

static SswPolicyHooks hooks = {.policy_id = SSW_SESSION_POLICY_ID,.rows_ended = add_ended};

/* Called from _PG_init, also where the library was not preloaded. */
void
ssw_pool_count_hooks(void)
{
	ssw_policy_hooks_add(&hooks);
}

/* Copy the counts of a database in CurrentMemoryContext, or take them away; returns how many. */
static int
collect(Oid database, bool take, Count **to)
{
	HASH_SEQ_STATUS seq;
	Count	   *c;
	int			n = 0;

	*to = palloc(MAX_COUNTS * sizeof(Count));
	LWLockAcquire(shared->lock, take ? LW_EXCLUSIVE : LW_SHARED);
	hash_seq_init(&seq, counts);
	while ((c = hash_seq_search(&seq)) != NULL)
	{
		if (c->key.database != database)
			continue;
		(*to)[n++] = *c;
		if (take)
			hash_search(counts, &c->key, HASH_REMOVE, NULL);
	}
	LWLockRelease(shared->lock);
	return n;
}

/* What was taken counts again. */
static void
put_back(void)
{
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < ntaken; i++)
	{
		Count	   *c = count_of(&taken[i].key, MAX_COUNTS);

		if (c == NULL)
			continue;
		c->n[C_PEAK] = Max(c->n[C_PEAK], taken[i].n[C_PEAK]);
		c->n[C_HIGHEST] = Max(taken[i].n[C_HIGHEST], taken[i].n[C_CHANGE] + c->n[C_HIGHEST]);
		c->n[C_LAST_REFUSED] = Max(c->n[C_LAST_REFUSED], taken[i].n[C_LAST_REFUSED]);
		for (int k = 0; k < C_N; k++)
			if (k != C_PEAK && k != C_HIGHEST && k != C_LAST_REFUSED)
				c->n[k] += taken[i].n[k];
	}
	LWLockRelease(shared->lock);
	ntaken = 0;
}

static void
at_end_of_writing(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT)
		put_back();
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT)
		ntaken = 0;
}

static Datum
array_of(int which, Oid type)
{
	Datum	   *d = palloc(Max(1, ntaken) * sizeof(Datum));

	for (int i = 0; i < ntaken; i++)
		d[i] = Int64GetDatum(taken[i].n[which]);
	return PointerGetDatum(construct_array(d, ntaken, type, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Add what was taken to the table; in a pool of any number, the highest of the day comes from how many live now. */
static void
write_counts(DateADT today)
{
	static const char *const sql =
	"INSERT INTO sweeper.pool_day AS d (day, pool, seats, acquired, refused, last_refused, peak, zombie, expired, released, disconnected, manual)"
	" SELECT c.day, c.pool, p.seats, c.acquired, c.refused, nullif(c.last_refused, '-infinity'), greatest(c.peak, CASE WHEN c.day = $3 THEN l.live END,"
	"  CASE WHEN p.seats IS NULL THEN l.live - sum(c.change) OVER (PARTITION BY c.pool ORDER BY c.day DESC) + c.highest END),"
	"  c.zombie, c.expired, c.released, c.disconnected, c.manual"
	" FROM unnest($1, $2, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"
	"  AS c (pool, day, acquired, refused, peak, change, highest, last_refused, zombie, expired, released, disconnected, manual)"
	" LEFT JOIN sweeper.pool AS p USING (pool)"
	" CROSS JOIN LATERAL (SELECT count(*) AS live FROM sweeper.session AS s WHERE s.pool = c.pool AND s.status = 'active') AS l"
	" ON CONFLICT (pool, day) DO UPDATE SET acquired = d.acquired + excluded.acquired, refused = d.refused + excluded.refused, last_refused = greatest(d.last_refused, excluded.last_refused),"
	"  peak = greatest(d.peak, excluded.peak), zombie = d.zombie + excluded.zombie, expired = d.expired + excluded.expired,"
	"  released = d.released + excluded.released, disconnected = d.disconnected + excluded.disconnected, manual = d.manual + excluded.manual,"
	/* a pool that was dropped has had seats */
	"  seats = CASE WHEN EXISTS (SELECT FROM sweeper.pool AS q WHERE q.pool = d.pool) THEN excluded.seats ELSE d.seats END";
	Oid			types[3 + C_N] = {TEXTARRAYOID, DATEARRAYOID, DATEOID};
	Datum		values[3 + C_N];
	Datum	   *pools = palloc(Max(1, ntaken) * sizeof(Datum));
	Datum	   *days = palloc(Max(1, ntaken) * sizeof(Datum));

	for (int i = 0; i < ntaken; i++)
	{
		pools[i] = CStringGetTextDatum(taken[i].key.pool);
		days[i] = DateADTGetDatum(taken[i].key.day);
	}
	values[0] = PointerGetDatum(construct_array(pools, ntaken, TEXTOID, -1, false, TYPALIGN_INT));
	values[1] = PointerGetDatum(construct_array(days, ntaken, DATEOID, sizeof(DateADT), true, TYPALIGN_INT));
	values[2] = DateADTGetDatum(today);
	for (int k = 0; k < C_N; k++)
	{
		types[3 + k] = k == C_LAST_REFUSED ? TIMESTAMPTZARRAYOID : INT8ARRAYOID;
		values[3 + k] = array_of(k, k == C_LAST_REFUSED ? TIMESTAMPTZOID : INT8OID);
	}
	ssw_spi_exec(sql, 3 + C_N, types, values, NULL, false, 0);
}

/* A day has begun: all sessions that live are part of it.  Old days go as usage events do. */
static void
begin_day(DateADT today)
{
	Oid			types[] = {DATEOID, INT4OID};
	Datum		values[] = {DateADTGetDatum(today), Int32GetDatum(ssw_usage_event_retention)};

	ssw_spi_exec("INSERT INTO sweeper.pool_day AS d (day, pool, seats, peak)"
				 " SELECT $1, p.pool, p.seats, s.live FROM sweeper.pool AS p JOIN"
				 " (SELECT s.pool, count(*) AS live FROM sweeper.session AS s WHERE s.status = 'active' GROUP BY s.pool) AS s USING (pool)"
				 " ON CONFLICT (pool, day) DO UPDATE SET peak = greatest(d.peak, excluded.peak)", 1, types, values, NULL, false, 0);
	if (ssw_usage_event_retention > 0)
		ssw_spi_exec("DELETE FROM sweeper.pool_day WHERE day < $1 - $2 / 1440", 2, types, values, NULL, false, 0);
}

static bool
try_write(void *arg)
{
	const Written *before = arg;
	DateADT		today = day_of(GetCurrentTimestamp());
	SswIdentity save;

	ssw_spi_begin_as_extension(&save);
	ssw_identity_lock_timeout(LOCK_TIMEOUT_MS);
	if (ntaken > 0)
		write_counts(today);
	if (before->day != today)
		begin_day(today);
	ssw_spi_end_as(&save);
	return true;
}

/* Take the counts of this database if it is time; its entry, or null and *next: when it will be. */
static Written *
begin_writing(TimestampTz now, TimestampTz *next)
{
	Written    *w;
	Count	   *c = NULL;
	bool		due;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	w = written_of(MyDatabaseId);
	due = w && (now >= w->next || w->next - now > WRITE_MAX_US || hash_get_num_entries(counts) > HURRY_ABOVE) &&
		(w->waits || w->day != day_of(now));
	*next = w && w->waits ? w->next : DT_NOEND;
	if (due)
		w->waits = false;
	LWLockRelease(shared->lock);
	if (!due)
		return NULL;
	ntaken = collect(MyDatabaseId, true, &c);
	if (taken)
		pfree(taken);
	taken = c;
	return w;
}

/* In the coordinator: write the counts if it is time; returns when it will be. */
TimestampTz
ssw_pool_count_write(TimestampTz now)
{
	static bool watched = false;
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	TimestampTz next = DT_NOEND;
	Written    *w;
	ErrorData  *e;

	if (!watched)
		RegisterXactCallback(at_end_of_writing, NULL);
	watched = true;
	w = XactReadOnly ? NULL : begin_writing(now, &next);
	MemoryContextSwitchTo(old);
	if (w == NULL)
		return next;
	e = ssw_spi_try(try_write, w);
	/* only the coordinator of a database uses these two */
	w->day = e ? w->day : day_of(now);
	w->next = e ? now + FAILED_REST_US : now + Max(WRITE_EVERY_US, Min(WRITE_MAX_US, WRITE_PART * (GetCurrentTimestamp() - now)));
	if (e == NULL)
		return DT_NOEND;
	put_back();
	ereport(WARNING,
			(errcode(e->sqlerrcode),
			 errmsg("could not write the counts of seats of database \"%s\": %s", get_database_name(MyDatabaseId), e->message),
			 errdetail("It is tried again in %d s.", (int) (FAILED_REST_US / USECS_PER_SEC)),
			 errhint("Look for locks on, and triggers of, table sweeper.pool_day.")));
	return w->next;
}

/* The database, or its extension, is gone. */
void
ssw_pool_count_forget(Oid database)
{
	Written    *w;
	Count	   *copy;

	(void) collect(database, true, &copy);
	pfree(copy);
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	w = written_of(database);
	if (w)
		memset(w, 0, sizeof(Written));
	LWLockRelease(shared->lock);
}

/* _pool_counts() → what is not written yet, of this database. */
Datum
ssw_pool_counts(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Count	   *copy;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	n = shared ? collect(MyDatabaseId, false, &copy) : 0;
	for (int i = 0; i < n; i++)
	{
		Datum		v[2 + C_ENDED];
		bool		nulls[2 + C_ENDED] = {0};

		v[0] = CStringGetTextDatum(copy[i].key.pool);
		v[1] = DateADTGetDatum(copy[i].key.day);
		for (int k = 0; k < C_ENDED; k++)
			v[2 + k] = Int64GetDatum(copy[i].n[k]);
		nulls[2 + C_LAST_REFUSED] = copy[i].n[C_LAST_REFUSED] == DT_NOBEGIN;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, nulls);
	}
	return (Datum) 0;
}
