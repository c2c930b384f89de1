/*
 * acquire.c
 *		acquire(): take a seat of a pool.
 *
 * Runs in the caller's session and transaction.  The pool is locked first, until the
 * transaction ends: sessions are counted when all that were given out before are
 * committed.  They are counted as of then, whatever the transaction's snapshot sees.  So a
 * pool is never oversold, at any isolation level; ends of sessions need no such lock.
 * Where nothing is counted, acquires do not wait for each other.
 *
 * Rows are read and written without statements, whose plans would cost more.
 *
 * Shares nothing but the tables.  A crash, or the caller's rollback, undoes it.
 *
 * Lock order: pool, then what an end locks (end_rows.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/compat.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/multi_insert.h"
#include "base/own_row.h"
#include "base/spi.h"
#include "base/ssw.h"
#include "policy/policy_rights.h"
#include "registry/acquire.h"
#include "registry/fence.h"
#include "registry/pool.h"
#include "registry/pool_count.h"
#include "registry/seat_queue.h"
#include "registry/session.h"

PG_FUNCTION_INFO_V1(ssw_acquire);

/* A session that is released meanwhile makes room by itself: count again. */
#define MAX_ROUNDS		4

typedef struct Acquire
{
	char	   *pool;
	Datum		pool_text;
	Datum		owner;			/* text, or 0 */
	int64		ttl_us;
	int64		max_ttl_us;		/* 0: none */
	Datum		metadata;
	bool		takeover;

	/* of the pool, under its lock; -1 for no limit */
	int			seats;
	int			max_per_owner;

	/* its sessions */
	int64		live;
	int64		mine;			/* of the owner */
	int64		overdue;		/* past a deadline */

	int64		taken_over;
	TimestampTz now;
	pg_uuid_t	session;
	int64		fence;
} Acquire;

/* What the last call of this session that was refused has found. */
static bool found_full;

static Datum
column(SswOwnTable *t, int which, bool *isnull)
{
	return ssw_own_column(t, which + 1, isnull);
}

/* The pool's settings, as the last transaction that changed them left them. */
static void
read_pool(Acquire *a)
{
	SswOwnTable r;
	bool		isnull;
	Datum		d;

	ssw_own_open(&r, "pool", SSW_P_NCOLS, "pool_pkey", AccessShareLock, ssw_own_latest());
	if (!ssw_own_find_texts(&r, &a->pool_text, 1))
		ssw_pool_missing(a->pool);
	d = column(&r, SSW_P_TTL, &isnull);
	if (a->ttl_us == 0)
		a->ttl_us = ssw_argument_interval("ttl", DatumGetIntervalP(d), SSW_MIN_LIFETIME);
	d = column(&r, SSW_P_MAX_TTL, &isnull);
	a->max_ttl_us = isnull ? 0 : ssw_argument_interval("max_ttl", DatumGetIntervalP(d), SSW_MIN_LIFETIME);
	d = column(&r, SSW_P_SEATS, &isnull);
	a->seats = isnull ? -1 : DatumGetInt32(d);
	d = column(&r, SSW_P_MAX_PER_OWNER, &isnull);
	a->max_per_owner = isnull || !a->owner ? -1 : DatumGetInt32(d);
	ssw_own_close(&r);
	ssw_own_release(r.snapshot);
}

static bool
is_limited(const Acquire *a)
{
	return a->seats >= 0 || a->max_per_owner >= 0;
}

static bool
is_past(SswOwnTable *r, int which, TimestampTz now)
{
	bool		isnull;
	Datum		d = column(r, which, &isnull);

	return !isnull && DatumGetTimestampTz(d) <= now;
}

/* Does the session belong to the owner? */
static bool
is_mine(const Acquire *a, SswOwnTable *r)
{
	bool		isnull;
	Datum		d = column(r, SSW_S_OWNER, &isnull);

	return a->owner && !isnull && DatumGetBool(DirectFunctionCall2Coll(texteq, DEFAULT_COLLATION_OID, d, a->owner));
}

/*
 * Count the pool's sessions as far as its limits need it: a pool of any number
 * may hold millions.  The index has active ones only.
 */
static void
count(Acquire *a)
{
	Datum		texts[] = {a->pool_text, a->owner};
	SswOwnTable r;

	a->live = a->mine = a->overdue = 0;
	if (!is_limited(a))
		return;
	ssw_own_open(&r, "session", SSW_SESSION_COLUMNS, "session_seat", AccessShareLock, ssw_own_latest());
	for (bool found = ssw_own_find_texts(&r, texts, a->seats >= 0 ? 1 : 2); found; found = ssw_own_next(&r))
	{
		a->live++;
		a->mine += is_mine(a, &r);
		a->overdue += is_past(&r, SSW_S_EXPIRES_AT, a->now) || is_past(&r, SSW_S_ENDS_AT, a->now);
	}
	ssw_own_close(&r);
	ssw_own_release(r.snapshot);
}

/* How many sessions stand in the way of a new one? */
static int64
excess(const Acquire *a)
{
	int64		seats = a->seats >= 0 ? a->live + 1 - a->seats : 0;
	int64		own = a->max_per_owner >= 0 ? a->mine + 1 - a->max_per_owner : 0;

	return Max(0, Max(seats, own));
}

/* End the owner's n oldest sessions of the pool. */
static void
take_over(Acquire *a, int64 n)
{
	SswEnd		e = {.type = SSW_RELEASED,.reason = "taken over",.phase = SSW_PHASE_MANUAL,.cutoff = a->now};
	Oid			types[] = {TEXTOID, TEXTOID, INT8OID};
	Datum		values[] = {a->pool_text, a->owner, Int64GetDatum(n)};

	a->taken_over += ssw_session_end(&e, "t.session " SSW_OP("=") " ANY (ARRAY(SELECT o.session FROM sweeper.session AS o"
									 " WHERE o.pool " SSW_OP("=") " $1 AND o.owner " SSW_OP("=") " $2 AND o.status " SSW_OP("=") " 'active'"
									 " ORDER BY o.fence LIMIT $3))", 3, types, values);
}

/* Are the seats that are left those of sessions that wait: in the pool, or of what its owner may have? */
static bool
is_behind(const Acquire *a)
{
	int			ahead = a->seats >= 0 ? ssw_seat_queue_ahead(a->pool, NULL) : 0;
	int			of_owner = a->max_per_owner >= 0 ? ssw_seat_queue_ahead(a->pool, TextDatumGetCString(a->owner)) : 0;

	return (ahead > 0 && a->live + ahead >= a->seats) || (of_owner > 0 && a->mine + of_owner >= a->max_per_owner);
}

/*
 * Sessions that wait for a seat have theirs before this one; but one for which another of
 * its owner has ended takes none from them.
 */
static bool
is_turn(Acquire *a)
{
	if (a->taken_over == 0 && a->takeover && a->mine > 0 && is_behind(a))
	{
		take_over(a, 1);
		count(a);
	}
	return a->taken_over > 0 || !is_behind(a);
}

/*
 * Is there a seat?  Dead holders go first: those that nobody else is just ending,
 * and, if that was not enough, the others, which are waited for.
 */
static bool
make_room(Acquire *a)
{
	Datum		whose = a->seats >= 0 ? (Datum) 0 : a->owner;

	count(a);
	if (a->overdue > 0 && ssw_session_end_dead(a->pool_text, whose, true) > 0)
		count(a);
	if (excess(a) > 0 && a->overdue > 0)
	{
		(void) ssw_session_end_dead(a->pool_text, whose, false);
		count(a);
	}
	for (int round = 0; round < MAX_ROUNDS && excess(a) > 0; round++)
	{
		if (!a->takeover || a->mine < excess(a))
			return false;
		take_over(a, excess(a));
		count(a);
	}
	return excess(a) == 0 && is_turn(a);
}

/* Write the session. */
static void
give(Acquire *a)
{
	SswMultiInsert *table = ssw_multi_insert_open("session", SSW_SESSION_COLUMNS, 0);
	TupleTableSlot *slot = ssw_multi_insert_slot(table);
	Datum	   *v = slot->tts_values;

	/* after the count: no earlier than the end of the previous holder */
	a->now = GetCurrentTimestamp();
	a->session = *DatumGetUUIDP(DirectFunctionCall1(gen_random_uuid, (Datum) 0));
	a->fence = ssw_fence_next();
	v[SSW_S_SESSION] = UUIDPGetDatum(&a->session);
	v[SSW_S_POOL] = a->pool_text;
	v[SSW_S_OWNER] = a->owner;
	slot->tts_isnull[SSW_S_OWNER] = !a->owner;
	v[SSW_S_ACQUIRED_BY] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	v[SSW_S_TTL] = ssw_interval_of(a->ttl_us);
	v[SSW_S_STATUS] = CStringGetTextDatum("active");
	v[SSW_S_ACQUIRED_AT] = v[SSW_S_LAST_SEEN_AT] = TimestampTzGetDatum(a->now);
	v[SSW_S_EXPIRES_AT] = TimestampTzGetDatum(a->now + a->ttl_us);
	v[SSW_S_ENDS_AT] = TimestampTzGetDatum(a->max_ttl_us ? a->now + a->max_ttl_us : DT_NOEND);
	slot->tts_isnull[SSW_S_RELEASED_AT] = slot->tts_isnull[SSW_S_ENDED_AT] = true;
	v[SSW_S_FENCE] = Int64GetDatum(a->fence);
	v[SSW_S_METADATA] = a->metadata;
	v[SSW_S_SEATS_USED] = Int32GetDatum((int32) a->live + 1);
	slot->tts_isnull[SSW_S_SEATS_USED] = a->seats < 0;
	ssw_multi_insert_row(table);
	ssw_multi_insert_close(table);

	/*
	 * looks that are rare while nobody acquires learn of it at the commit;
	 * see written_tables.c
	 */
	pgstat_force_next_flush();
	/* the next acquire of this statement counts it */
	CommandCounterIncrement();
	ssw_pool_count_acquired(a->pool, a->seats < 0 ? 0 : a->live + 1);
}

/*
 * There is no seat.  It counts if every one is taken, or is to be another's: more seats
 * would help nobody whose owner has enough.  One that waits lets others pass then.
 */
static void
refuse(const Acquire *a)
{
	found_full = a->seats >= 0 && a->live + ssw_seat_queue_ahead(a->pool, NULL) >= a->seats;
	if (ssw_seat_queue_joined())
	{
		if (a->max_per_owner >= 0 && a->mine >= a->max_per_owner)
			ssw_seat_queue_let_pass();
	}
	else if (found_full)
		ssw_pool_count_refused(a->pool);
}

/* Was every seat taken when this session was refused last? */
bool
ssw_acquire_found_full(void)
{
	return found_full;
}

/* Read and check the arguments. */
static Acquire
read_arguments(FunctionCallInfo fcinfo)
{
	Acquire		a = {0};
	bool		worker;

	ssw_argument_not_null(fcinfo, 0, "pool");
	ssw_argument_not_null(fcinfo, 3, "metadata");
	ssw_argument_not_null(fcinfo, 4, "takeover");
	a.pool_text = PG_GETARG_DATUM(0);
	a.pool = TextDatumGetCString(a.pool_text);
	worker = strcmp(a.pool, SSW_WORKER_POOL) == 0;
	if (!PG_ARGISNULL(1))
	{
		char	   *owner = ssw_session_owner(fcinfo, 1, worker ? "name of a worker" : "owner");

		if (worker)
			ssw_argument_printable(owner, strlen(owner), "name of a worker", "name");
		a.owner = CStringGetTextDatum(owner);
	}
	a.ttl_us = PG_ARGISNULL(2) ? 0 : ssw_argument_interval("ttl", PG_GETARG_INTERVAL_P(2), SSW_MIN_LIFETIME);
	a.metadata = ssw_pool_metadata(fcinfo, 3);
	a.takeover = PG_GETARG_BOOL(4);
	if (worker && !a.owner)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("owner must not be null in pool \"%s\"", a.pool),
				 errhint("SELECT sweeper.register_worker('...'); registers a worker of that name.")));
	if (a.takeover && !a.owner)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("takeover needs an owner"),
				 errdetail("It ends a session of the same owner.")));
	return a;
}

static void
return_row(FunctionCallInfo fcinfo, const Acquire *a)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz expires_at = a->now + (a->max_ttl_us ? Min(a->ttl_us, a->max_ttl_us) : a->ttl_us);
	Datum		v[8];
	bool		n[8] = {0};

	v[0] = UUIDPGetDatum(&a->session);
	v[1] = Int64GetDatum(a->fence);
	v[2] = TimestampTzGetDatum(expires_at);
	v[3] = ssw_interval_of(a->ttl_us);
	v[4] = ssw_interval_of(Max(1, a->ttl_us / 3));
	v[5] = BoolGetDatum(a->taken_over > 0);
	v[6] = Int32GetDatum(a->seats);
	v[7] = Int32GetDatum((int32) a->live + 1);
	n[6] = n[7] = a->seats < 0;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
}

/* acquire(pool, owner, ttl, metadata, takeover) → the session, or no row. */
Datum
ssw_acquire(PG_FUNCTION_ARGS)
{
	Acquire		a = read_arguments(fcinfo);

	ssw_shmem_require();
	ssw_spi_refuse_read_only("sweeper.acquire()");
	ssw_rights_check_pool(a.pool);
	InitMaterializedSRF(fcinfo, 0);
	ssw_session_lock_pool(a.pool, ShareUpdateExclusiveLock);
	a.now = GetCurrentTimestamp();
	read_pool(&a);
	if (!is_limited(&a))
	{
		/* we hold what others wait for, so we need not wait */
		(void) ssw_lock_pool(a.pool, RowExclusiveLock, true);
		ssw_lock_pool_release(a.pool, ShareUpdateExclusiveLock);
	}
	if (make_room(&a))
	{
		give(&a);
		return_row(fcinfo, &a);
	}
	else
		refuse(&a);
	return (Datum) 0;
}
