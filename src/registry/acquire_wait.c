/*
 * acquire_wait.c
 *		acquire_wait(): take a seat of a pool, and wait for one.
 *
 * Runs in the caller's session.  It waits in the queue (seat_queue.c) without a
 * transaction.  When it has the turn, it calls acquire() in a transaction of its own, as
 * the caller.  A transaction that holds the pool for long does not end the wait: it tries
 * again.
 *
 * Shares the queue.  A session that ends, in whatever way, leaves it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "base/wait.h"
#include "policy/policy_rights.h"
#include "registry/acquire.h"
#include "registry/pool.h"
#include "registry/pool_count.h"
#include "registry/seat_queue.h"
#include "registry/session.h"

PG_FUNCTION_INFO_V1(ssw_acquire_wait);

/* Where the pool was locked; its lock is waited for, too. */
#define AGAIN_MS		10
/* The argument in which acquire() returns the ttl, too. */
#define TTL_ARG			6
#define N_ARGS			3

typedef struct Seat
{
	Datum		values[N_ARGS]; /* pool, owner, ttl */
	char		nulls[N_ARGS + 1];
	bool		found;
	bool		full;			/* so was the pool, unless a look has found
								 * else */
	ErrorData  *locked;			/* the last look found the pool locked */
} Seat;

static bool
acquire(void *arg)
{
	static Oid	types[N_ARGS] = {TEXTOID, TEXTOID, INTERVALOID};
	Seat	   *s = arg;

	s->found = ssw_spi_exec("SELECT a.* FROM sweeper.acquire($1, $2, $3) AS a", N_ARGS, types, s->values, s->nulls, false, 1) > 0;
	if (!s->found)
		s->full = ssw_acquire_found_full();
	return true;
}

static bool
look(void *arg)
{
	Seat	   *s = arg;
	ErrorData  *e;

	s->locked = NULL;
	if (!ssw_seat_queue_my_turn())
		return false;
	e = ssw_spi_try(acquire, s);
	if (e && e->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(e);
	s->locked = e;
	return s->found;
}

static void
sleep_until_woken(void *arg, long timeout_ms)
{
	ssw_seat_queue_sleep(((Seat *) arg)->locked ? Min(AGAIN_MS, timeout_ms) : timeout_ms);
}

/* CALL acquire_wait(pool, owner, wait, INOUT the columns of acquire()): nulls when there was no seat. */
Datum
ssw_acquire_wait(PG_FUNCTION_ARGS)
{
	MemoryContext cxt = CurrentMemoryContext;
	Seat		s = {.nulls = "   ",.full = true};
	SswWait		w = {.look = look,.sleep = sleep_until_woken,.arg = &s};
	int64		timeout_us;
	TupleDesc	desc;
	char	   *pool;

	ssw_argument_not_null(fcinfo, 0, "pool");
	ssw_argument_not_null(fcinfo, 1, "owner");
	ssw_argument_not_null(fcinfo, 2, "wait");
	ssw_wait_check_context(fcinfo, "acquire_wait", "sweeper.acquire() does not wait");
	ssw_spi_refuse_read_only("sweeper.acquire_wait()");
	timeout_us = ssw_argument_interval("wait", PG_GETARG_INTERVAL_P(2), 0);
	pool = text_to_cstring(PG_GETARG_TEXT_PP(0));
	ssw_rights_check_pool(pool);
	/* who only waits behind others counts as refused */
	if (!ssw_pool_exists(pool))
		ssw_pool_missing(pool);

	/*
	 * what is in a table, out of line, may be gone when this transaction has
	 * ended
	 */
	s.values[0] = PointerGetDatum(PG_GETARG_TEXT_P_COPY(0));
	s.values[1] = PointerGetDatum(PG_GETARG_TEXT_P_COPY(1));
	s.nulls[2] = PG_ARGISNULL(TTL_ARG) ? 'n' : ' ';
	if (!PG_ARGISNULL(TTL_ARG))
		s.values[2] = IntervalPGetDatum(PG_GETARG_INTERVAL_P(TTL_ARG));
	desc = ssw_wait_begin(fcinfo);
	ssw_seat_queue_join(pool, text_to_cstring(PG_GETARG_TEXT_PP(1)));
	PG_TRY();
	{
		ssw_wait_until(&w, timeout_us);
	}
	PG_FINALLY();
	{
		ssw_seat_queue_leave();
	}
	PG_END_TRY();
	if (s.locked)
		ReThrowError(s.locked); /* there may be a seat */
	if (!s.found && s.full)
		ssw_pool_count_refused(pool);
	return ssw_wait_end(desc, cxt, s.found);
}
