/*
 * acquire.c
 *		acquire(): take a seat of a pool.
 *
 * Runs in the caller's session and transaction, as the extension's owner.  The
 * pool is locked first, until the transaction ends: sessions are counted when
 * all that were given out before are committed.  A transaction whose snapshot is
 * older than one of them cannot count them; it fails where it writes the pool's
 * counter, because the other has written it too (40001).  So a pool is never
 * oversold, at any isolation level; ends of sessions need no such lock.
 *
 * Shares nothing but the tables.  A crash, or the caller's rollback, undoes it.
 *
 * Lock order: pool, then what an end locks (end_rows.c), then the pool's row.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/cached_plan.h"
#include "base/compat.h"
#include "base/identity.h"
#include "base/spi.h"
#include "base/ssw.h"
#include "policy/policy_rights.h"
#include "registry/pool.h"
#include "registry/session.h"

PG_FUNCTION_INFO_V1(ssw_acquire);

/* A session that is released meanwhile makes room by itself: count again. */
#define MAX_ROUNDS		4
/*
 * A fence is the timeline above, a count below; or more than that, where the pool
 * comes from a server of a higher timeline.
 */
#define COUNTER_BITS	40
#define LOWER_BITS		"1099511627775"

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

static int64
get_int(int col)
{
	return DatumGetInt64(ssw_spi_column(0, col));
}

/* The pool's settings, as the last transaction that locked it left them. */
static void
read_pool(Acquire *a)
{
	Oid			type = TEXTOID;
	Datum		max_ttl;

	if (ssw_plan_execute("SELECT ttl, max_ttl, coalesce(seats, -1), coalesce(max_per_owner, -1) FROM sweeper.pool WHERE pool = $1",
						 1, &type, &a->pool_text, NULL, false) == 0)
		ssw_pool_missing(a->pool);
	if (a->ttl_us == 0)
		a->ttl_us = ssw_argument_interval("ttl", DatumGetIntervalP(ssw_spi_column(0, 1)), SSW_MIN_LIFETIME);
	max_ttl = ssw_spi_column(0, 2);
	a->max_ttl_us = max_ttl ? ssw_argument_interval("max_ttl", DatumGetIntervalP(max_ttl), SSW_MIN_LIFETIME) : 0;
	a->seats = DatumGetInt32(ssw_spi_column(0, 3));
	a->max_per_owner = a->owner ? DatumGetInt32(ssw_spi_column(0, 4)) : -1;
}

/*
 * Count the pool's sessions as far as its limits need it: a pool of any number
 * may hold millions.
 */
static void
count(Acquire *a)
{
	static const char *const all =
	"SELECT count(*), count(*) FILTER (WHERE owner = $2), count(*) FILTER (WHERE expires_at <= $3 OR ends_at <= $3)"
	" FROM sweeper.session WHERE pool = $1 AND status = 'active'";
	static const char *const own =
	"SELECT count(*), count(*), count(*) FILTER (WHERE expires_at <= $3 OR ends_at <= $3)"
	" FROM sweeper.session WHERE pool = $1 AND status = 'active' AND owner = $2";
	Oid			types[] = {TEXTOID, TEXTOID, TIMESTAMPTZOID};
	Datum		values[] = {a->pool_text, a->owner, TimestampTzGetDatum(a->now)};

	a->live = a->mine = a->overdue = 0;
	if (a->seats < 0 && a->max_per_owner < 0)
		return;
	ssw_plan_execute(a->seats >= 0 ? all : own, 3, types, values, NULL, false);
	a->live = get_int(1);
	a->mine = get_int(2);
	a->overdue = get_int(3);
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
	return excess(a) == 0;
}

/* Write the session. */
static void
give(Acquire *a, const char *acquired_by)
{
	static const char *const sql =
	"WITH p AS (UPDATE sweeper.pool SET counter = greatest(counter, $8 + (counter & " LOWER_BITS ")) + 1 WHERE pool = $1 RETURNING counter)"
	" INSERT INTO sweeper.session (session, pool, owner, acquired_by, ttl, status, acquired_at, last_seen_at, expires_at, ends_at,"
	" fence, metadata) SELECT gen_random_uuid(), $1, $2, $3, $4, 'active', $5, $5, $6, $7, p.counter, $9 FROM p"
	" RETURNING session, fence";
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID, INTERVALOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID, JSONBOID};
	Datum		values[9];

	/* after the count: no earlier than the end of the previous holder */
	a->now = GetCurrentTimestamp();
	values[0] = a->pool_text;
	values[1] = a->owner;
	values[2] = CStringGetTextDatum(acquired_by);
	values[3] = ssw_interval_of(a->ttl_us);
	values[4] = TimestampTzGetDatum(a->now);
	values[5] = TimestampTzGetDatum(a->now + a->ttl_us);
	values[6] = TimestampTzGetDatum(a->max_ttl_us ? a->now + a->max_ttl_us : DT_NOEND);
	values[7] = Int64GetDatum((int64) GetWALInsertionTimeLine() << COUNTER_BITS);
	values[8] = a->metadata;
	if (ssw_plan_execute(sql, lengthof(types), types, values, NULL, false) != 1)
		ssw_pool_missing(a->pool);
	a->session = *DatumGetUUIDP(ssw_spi_column(0, 1));
	a->fence = get_int(2);
}

/* Read and check the arguments. */
static Acquire
read_arguments(FunctionCallInfo fcinfo)
{
	Acquire		a = {0};

	ssw_argument_not_null(fcinfo, 0, "pool");
	ssw_argument_not_null(fcinfo, 3, "metadata");
	ssw_argument_not_null(fcinfo, 4, "takeover");
	a.pool_text = PG_GETARG_DATUM(0);
	a.pool = TextDatumGetCString(a.pool_text);
	a.owner = PG_ARGISNULL(1) ? (Datum) 0 : CStringGetTextDatum(ssw_session_owner(fcinfo, 1, strcmp(a.pool, SSW_WORKER_POOL) == 0 ? "name of a worker" : "owner"));
	a.ttl_us = PG_ARGISNULL(2) ? 0 : ssw_argument_interval("ttl", PG_GETARG_INTERVAL_P(2), SSW_MIN_LIFETIME);
	a.metadata = ssw_pool_metadata(fcinfo, 3);
	a.takeover = PG_GETARG_BOOL(4);
	if (strcmp(a.pool, SSW_WORKER_POOL) == 0 && !a.owner)
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
	char	   *acquired_by = GetUserNameFromId(GetUserId(), false);
	SswIdentity save;
	bool		room;

	ssw_shmem_require();
	ssw_session_check_writable("sweeper.acquire()");
	ssw_rights_check_pool(a.pool);
	InitMaterializedSRF(fcinfo, 0);
	ssw_session_lock_pool(a.pool);
	a.now = GetCurrentTimestamp();
	ssw_spi_begin_as_extension(&save);
	read_pool(&a);
	room = make_room(&a);
	if (room)
		give(&a, acquired_by);
	ssw_spi_end_as(&save);
	if (room)
		return_row(fcinfo, &a);
	return (Datum) 0;
}
