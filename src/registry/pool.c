/*
 * pool.c
 *		create_pool(), alter_pool(), drop_pool().
 *
 * Run in the caller's session and transaction; a role that may execute them may change
 * any pool.  Each takes the pool's lock first: it waits for transactions that acquire, and
 * keeps others out until it commits.  Changes are written to policy_change.  Share
 * nothing but the tables; a crash, or the caller's rollback, undoes it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/identity.h"
#include "base/own_row.h"
#include "base/spi.h"
#include "policy/policy_rights.h"
#include "registry/pool.h"
#include "registry/pool_count.h"
#include "registry/session.h"

PG_FUNCTION_INFO_V1(ssw_create_pool);
PG_FUNCTION_INFO_V1(ssw_alter_pool);
PG_FUNCTION_INFO_V1(ssw_drop_pool);


/* The settings, in the order of the arguments. */
enum
{
	A_POOL, A_SEATS, A_TTL, A_MAX_TTL, A_MAX_PER_OWNER, A_CHANNEL, A_METADATA, A_N
};

static const char *const names[A_N] = {"pool", "seats", "ttl", "max_ttl", "max_per_owner", "notify_channel", "metadata"};
static const Oid argtypes[A_N] = {TEXTOID, INT4OID, INTERVALOID, INTERVALOID, INT4OID, TEXTOID, JSONBOID};

/* The settings that a call changes, and their values. */
typedef struct Settings
{
	char	   *pool;
	Datum		values[A_N];
	bool		isnull[A_N];
} Settings;

void
ssw_pool_missing(const char *pool)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("pool \"%s\" does not exist", pool),
			 errhint("SELECT pool FROM sweeper.pool_status; lists the pools of this database, sweeper.create_pool() makes one.")));
}

/* Is there such a pool, as the last transaction that changed it left it? */
bool
ssw_pool_exists(const char *pool)
{
	Datum		value = CStringGetTextDatum(pool);
	SswOwnTable t;
	bool		found;

	ssw_own_open(&t, "pool", SSW_P_NCOLS, "pool_pkey", AccessShareLock, ssw_own_latest());
	found = ssw_own_find_texts(&t, &value, 1);
	ssw_own_close(&t);
	ssw_own_release(t.snapshot);
	return found;
}

/* An argument of metadata that is not null. */
Datum
ssw_pool_metadata(FunctionCallInfo fcinfo, int arg)
{
	Jsonb	   *metadata;

	ssw_argument_bound(fcinfo, arg, "metadata", SSW_MAX_TEXT);
	metadata = PG_GETARG_JSONB_P(arg);
	if (!JB_ROOT_IS_OBJECT(metadata))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("metadata must be a JSON object")));
	return JsonbPGetDatum(metadata);
}

static Datum
int_argument(FunctionCallInfo fcinfo, int arg, int min)
{
	if (PG_GETARG_INT32(arg) < min)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 min == 0 ? errmsg("%s must not be negative", names[arg]) :
				 errmsg("%s must be greater than zero", names[arg]),
				 arg == A_SEATS ? errhint("Null means any number, 0 means none.") : errhint("Null means any number.")));
	return PG_GETARG_DATUM(arg);
}

static Datum
channel_argument(FunctionCallInfo fcinfo, int arg)
{
	char	   *channel = text_to_cstring(PG_GETARG_TEXT_PP(arg));

	if (channel[0] == '\0' || strlen(channel) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("notify_channel must be shorter than %d bytes and not empty", NAMEDATALEN)));
	return PG_GETARG_DATUM(arg);
}

/* Read the arguments. */
static Settings
read_arguments(FunctionCallInfo fcinfo)
{
	Settings	s = {0};

	ssw_argument_not_null(fcinfo, A_POOL, names[A_POOL]);
	s.pool = text_to_cstring(PG_GETARG_TEXT_PP(A_POOL));
	for (int i = 0; i < A_N; i++)
	{
		s.isnull[i] = PG_ARGISNULL(i);
		if (s.isnull[i])
			continue;
		switch (i)
		{
			case A_POOL:
				s.values[i] = PG_GETARG_DATUM(i);
				break;
			case A_SEATS:
				s.values[i] = int_argument(fcinfo, i, 0);
				break;
			case A_MAX_PER_OWNER:
				s.values[i] = int_argument(fcinfo, i, 1);
				break;
			case A_CHANNEL:
				s.values[i] = channel_argument(fcinfo, i);
				break;
			case A_METADATA:
				s.values[i] = ssw_pool_metadata(fcinfo, i);
				break;
			default:
				s.values[i] = ssw_interval_of(ssw_argument_interval(names[i], PG_GETARG_INTERVAL_P(i), SSW_MIN_LIFETIME));
		}
	}
	return s;
}

/* The pool's row as JSON; null when there is none. */
static char *
row_json(const char *pool)
{
	Oid			type = TEXTOID;
	Datum		value = CStringGetTextDatum(pool);

	return ssw_spi_text_as_extension("SELECT to_jsonb(p)::text FROM sweeper.pool AS p WHERE pool = $1", 1, &type, &value, false);
}

/* Record the change. */
static void
log_change(const char *pool, const char *change, const char *before)
{
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID};
	Datum		values[] = {CStringGetTextDatum(change), CStringGetTextDatum(ssw_identity_actor()),
	before ? CStringGetTextDatum(before) : (Datum) 0, CStringGetTextDatum(pool)};
	char		nulls[] = "    ";

	nulls[2] = before ? ' ' : 'n';
	ssw_spi_exec_as_extension("INSERT INTO sweeper.policy_change (policy_id, policy, changed_by, change, old, new)"
							  " SELECT policy_id, policy, $2, $1, $3::jsonb, (SELECT to_jsonb(p) FROM sweeper.pool AS p WHERE p.pool = $4)"
							  " FROM sweeper.policy WHERE policy = '" SSW_SESSION_POLICY "'",
							  4, types, values, nulls, false);
}

/* Run a statement with the settings as $1 to $7, and one more value. */
static uint64
run_with_settings(const Settings *s, const char *sql, Oid type, Datum value, bool read_only)
{
	Oid			types[A_N + 1];
	Datum		values[A_N + 1];
	char		nulls[A_N + 2] = {0};

	for (int i = 0; i < A_N; i++)
	{
		types[i] = argtypes[i];
		values[i] = s->values[i];
		nulls[i] = s->isnull[i] ? 'n' : ' ';
	}
	types[A_N] = type;
	values[A_N] = value;
	nulls[A_N] = ' ';
	return ssw_spi_exec_as_extension(sql, A_N + 1, types, values, nulls, read_only);
}

/* Has the pool these settings, as the last transaction that changed it left it? */
static bool
is_same(const Settings *s)
{
	static const char *const sql =
	"SELECT FROM sweeper.pool WHERE pool = $1 AND $8 IS NOT NULL"
	" AND (seats, ttl, max_ttl, max_per_owner, notify_channel, metadata) IS NOT DISTINCT FROM ($2, $3, $4, $5, $6, $7)";
	bool		same;

	PushActiveSnapshot(GetLatestSnapshot());
	same = run_with_settings(s, sql, TEXTOID, CStringGetTextDatum(""), true) > 0;
	PopActiveSnapshot();
	return same;
}

/* Built-in pools are not created or dropped. */
static void
check_not_built_in(const char *pool)
{
	if (strncmp(pool, SSW_BUILTIN_PREFIX, strlen(SSW_BUILTIN_PREFIX)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("pool name \"%s\" is reserved", pool),
				 errdetail("Names that begin with \"%s\" are those of the built-in pools.", SSW_BUILTIN_PREFIX)));
}

static void
check_name(const char *pool)
{
	if (pool[0] == '\0' || strlen(pool) > SSW_MAX_NAME)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("the name of a pool must not be empty or longer than %d bytes", SSW_MAX_NAME)));
	ssw_argument_printable(pool, strlen(pool), "the name of a pool", "pool");
	check_not_built_in(pool);
}

/* The pool as it is after the change. */
static void
check_times(const char *pool)
{
	Oid			type = TEXTOID;
	Datum		value = CStringGetTextDatum(pool);

	if (ssw_spi_exec_as_extension("SELECT FROM sweeper.pool WHERE pool = $1 AND max_ttl < ttl", 1, &type, &value, NULL, false) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("max_ttl must not be shorter than ttl"),
				 errdetail("A session would end before it could miss a heartbeat.")));
}

/* Make an existing pool what the call says; what is not given has its default. */
static void
redefine(const Settings *s)
{
	char	   *before = row_json(s->pool);

	/* a pool that its snapshot does not see needs another transaction */
	if (before == NULL || run_with_settings(s, "UPDATE sweeper.pool SET seats = $2, ttl = $3, max_ttl = $4, max_per_owner = $5, notify_channel = $6, metadata = $7"
											" WHERE pool = $1 AND $8 IS NOT NULL", TEXTOID, CStringGetTextDatum(""), false) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("pool \"%s\" was created meanwhile", s->pool),
				 errhint("Try again.")));
	check_times(s->pool);
	log_change(s->pool, "alter_pool", before);
	ssw_pool_count_changed(s->pool);
}

/* create_pool(pool, seats, ttl, max_ttl, max_per_owner, notify_channel, metadata, if_exists). */
Datum
ssw_create_pool(PG_FUNCTION_ARGS)
{
	Settings	s = read_arguments(fcinfo);
	bool		or_alter = ssw_argument_or_alter(fcinfo, A_N);

	check_name(s.pool);
	ssw_argument_not_null(fcinfo, A_TTL, names[A_TTL]);
	ssw_argument_not_null(fcinfo, A_METADATA, names[A_METADATA]);
	ssw_spi_refuse_read_only("sweeper.create_pool()");
	if (or_alter && is_same(&s))
		PG_RETURN_VOID();
	ssw_session_lock_pool(s.pool, ExclusiveLock);
	if (row_json(s.pool) && !ssw_pool_exists(s.pool))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("pool \"%s\" was dropped meanwhile", s.pool),
				 errhint("Try again.")));
	if (run_with_settings(&s, "INSERT INTO sweeper.pool (pool, seats, ttl, max_ttl, max_per_owner, notify_channel, metadata, created_by)"
						  " VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (pool) DO NOTHING",
						  TEXTOID, CStringGetTextDatum(ssw_identity_actor()), false) == 0)
	{
		if (!or_alter)
			ereport(ERROR,
					(errcode(ERRCODE_DUPLICATE_OBJECT),
					 errmsg("pool \"%s\" already exists", s.pool),
					 errhint("Change it with sweeper.alter_pool(), or give if_exists => 'alter'.")));
		redefine(&s);
		PG_RETURN_VOID();
	}
	check_times(s.pool);

	/*
	 * a restore of the schema alone may have left who had access to a pool of
	 * this name
	 */
	ssw_rights_forget_pool(s.pool);
	log_change(s.pool, "create_pool", NULL);
	PG_RETURN_VOID();
}

/* Check the names of settings that go back to their defaults. */
static void
check_reset(const Settings *s, FunctionCallInfo fcinfo, int arg)
{
	Datum	   *elems;
	int			n = ssw_argument_elements(fcinfo, arg, "reset", TEXTOID, &elems);

	for (int i = 0; i < n; i++)
	{
		char	   *name = TextDatumGetCString(elems[i]);
		int			which = A_POOL + 1;

		while (which < A_N && strcmp(name, names[which]) != 0)
			which++;
		if (which == A_N)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a pool has no setting \"%s\"", name),
					 errhint("It has seats, ttl, max_ttl, max_per_owner, notify_channel and metadata.")));
		if (!s->isnull[which])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must not be both given and reset", name)));
	}
}

/* Living workers are not counted. */
static void
check_unlimited(const Settings *s, int which)
{
	if (!s->isnull[which] && strncmp(s->pool, SSW_BUILTIN_PREFIX, strlen(SSW_BUILTIN_PREFIX)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pool \"%s\" is built in", s->pool),
				 errdetail("It has no %s.", names[which])));
}

/* alter_pool(pool, the settings, reset). */
Datum
ssw_alter_pool(PG_FUNCTION_ARGS)
{
	static const char *const sql =
	"UPDATE sweeper.pool SET seats = CASE WHEN NOT 'seats' = ANY ($8) THEN coalesce($2, seats) END,"
	" ttl = CASE WHEN 'ttl' = ANY ($8) THEN '6 min' ELSE coalesce($3, ttl) END,"
	" max_ttl = CASE WHEN NOT 'max_ttl' = ANY ($8) THEN coalesce($4, max_ttl) END,"
	" max_per_owner = CASE WHEN NOT 'max_per_owner' = ANY ($8) THEN coalesce($5, max_per_owner) END,"
	" notify_channel = CASE WHEN NOT 'notify_channel' = ANY ($8) THEN coalesce($6, notify_channel) END,"
	" metadata = CASE WHEN 'metadata' = ANY ($8) THEN '{}' ELSE coalesce($7, metadata) END WHERE pool = $1";
	Settings	s = read_arguments(fcinfo);
	char	   *before;

	check_reset(&s, fcinfo, A_N);
	check_unlimited(&s, A_SEATS);
	check_unlimited(&s, A_MAX_PER_OWNER);
	ssw_spi_refuse_read_only("sweeper.alter_pool()");
	ssw_session_lock_pool(s.pool, ExclusiveLock);
	before = row_json(s.pool);
	if (before == NULL)
		ssw_pool_missing(s.pool);
	if (run_with_settings(&s, sql, TEXTARRAYOID, PG_GETARG_DATUM(A_N), false) == 0)
		ssw_pool_missing(s.pool);
	check_times(s.pool);
	log_change(s.pool, "alter_pool", before);
	ssw_pool_count_changed(s.pool);
	PG_RETURN_VOID();
}

/* Sessions that live in the pool, also those that are newer than the transaction's snapshot. */
static int
live_sessions(Datum pool)
{
	SswOwnTable sessions;
	int			n = 0;

	ssw_own_open(&sessions, "session", SSW_SESSION_COLUMNS, "session_seat", AccessShareLock, ssw_own_latest());
	for (bool found = ssw_own_find_texts(&sessions, &pool, 1); found; found = ssw_own_next(&sessions))
		n++;
	ssw_own_close(&sessions);
	ssw_own_release(sessions.snapshot);
	return n;
}

/* Fail unless no session lives in the pool. */
static void
check_empty(const char *pool, int live, bool force)
{
	/*
	 * an end of those that its snapshot does not see needs another
	 * transaction
	 */
	if (live > 0 && force)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent acquires in pool \"%s\"", pool),
				 errhint("Try again.")));
	if (live > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg_plural("cannot drop pool \"%s\": %d session lives in it",
							   "cannot drop pool \"%s\": %d sessions live in it", live, pool, live),
				 errhint("SELECT sweeper.drop_pool(%s, force => true); ends them.", quote_literal_cstr(pool))));
}

/* End the sessions, dead or not. */
static void
end_all(Datum pool)
{
	SswEnd		e = {.type = SSW_EXPIRED,.reason = "pool dropped",.phase = SSW_PHASE_MANUAL,.cutoff = GetCurrentTimestamp()};
	Oid			type = TEXTOID;

	(void) ssw_session_end(&e, "t.pool " SSW_OP("=") " $1", 1, &type, &pool);
}

/* drop_pool(pool, force). */
Datum
ssw_drop_pool(PG_FUNCTION_ARGS)
{
	char	   *pool;
	char	   *before;
	Oid			type = TEXTOID;
	Datum		value;

	ssw_argument_not_null(fcinfo, 0, "pool");
	ssw_argument_not_null(fcinfo, 1, "force");
	value = PG_GETARG_DATUM(0);
	pool = TextDatumGetCString(value);
	check_not_built_in(pool);
	ssw_spi_refuse_read_only("sweeper.drop_pool()");
	ssw_session_lock_pool(pool, ExclusiveLock);
	before = row_json(pool);
	if (before == NULL)
		ssw_pool_missing(pool);
	(void) ssw_session_end_dead(value, (Datum) 0, false);
	if (PG_GETARG_BOOL(1))
		end_all(value);
	check_empty(pool, live_sessions(value), PG_GETARG_BOOL(1));
	if (ssw_spi_exec_as_extension("DELETE FROM sweeper.pool WHERE pool = $1", 1, &type, &value, NULL, false) == 0)
		ssw_pool_missing(pool);
	log_change(pool, "drop_pool", before);
	ssw_pool_count_changed(pool);
	ssw_rights_forget_pool(pool);
	PG_RETURN_VOID();
}
