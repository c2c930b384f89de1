/*
 * failed_row.c
 *		Rows that could not be handled: what class of failure, when again.
 *
 * Runs in a worker.  Entries of sweeper.failed_row are loaded when the worker
 * joins a pass; new failures are collected in memory and written in a
 * transaction of their own, after it is known that not everything fails.
 * A row is known by its key and the leaf that holds it: keys of an inherited
 * table, and places, are not unique over leaves.  Where the key is only a place,
 * an entry also holds what distinguishes the row from another that comes there.
 *
 * Shares when locked rows are tried again (pace.h).
 * A crash loses at most the failures of one pass, and the rows are then tried again.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "policy/row_key.h"
#include "policy/sweep_sql.h"
#include "sweep/failed_row.h"
#include "sweep/pace.h"

#define RETRY_BASE_US	(1 * USECS_PER_SEC)
#define RETRY_MAX_US	(10 * USECS_PER_MINUTE)
/* Rows that somebody holds: all of a policy are tried again after so long, and then so often. */
#define LOCKED_FIRST_US	(1 * USECS_PER_SEC)
#define LOCKED_AGAIN_US	(5 * USECS_PER_SEC)

/* What the hash table of failed rows is sorted by. */
typedef struct FailedName
{
	Oid			leaf;			/* invalid when the partition is gone */
	const char *key;
} FailedName;

typedef struct FailedEntry
{
	FailedName	name;			/* must be first */
	char	   *partition;		/* as stored, or null */
	char	   *identity;		/* of a row without a key, else "" */
	TimestampTz due;
	bool		has_due;
	const char *class;
	int			sqlerrcode;		/* when it failed in this pass */
	char	   *message;
	Datum		blocked_by;		/* int4[], or 0 */
	int			attempts;
	bool		quarantined;
	TimestampTz last_at;		/* when it failed before this pass, or 0 */
	TimestampTz failed_at;		/* when it failed in this pass */
	TimestampTz next_attempt;	/* of a locked one: see retry_at() */
	bool		left_alone;		/* though a candidate of this pass */
	bool		failed_again;	/* in this pass */
	bool		same;			/* as it is recorded: still locked by the same */
} FailedEntry;

struct SswFailures
{
	const SswPolicy *policy;
	MemoryContext cxt;
	HTAB	   *table;
	int			count;
	int			retrying;		/* of them: not quarantined */
	List	   *pending;		/* of FailedEntry: to be written */
	TimestampTz locked_retry;	/* rows known to be locked are tried from then
								 * on */
	TimestampTz locked_next;	/* and those that were again, or 0 */
};

/* base * 2^(attempts - 1), at most max, with a quarter of jitter. */
int64
ssw_failed_row_backoff_us(int attempts, int64 base_us, int64 max_us)
{
	double		d = base_us * pow(2, Min(Max(attempts - 1, 0), 30));

	d = Min(d, (double) max_us);
	return (int64) (d * (0.75 + 0.5 * pg_prng_double(&pg_global_prng_state)));
}

/*
 * The key that a failure is shown with, and what else it is noted with; see
 * ssw_sweep_sql_failed_key().
 */
static char *
split_key(const SswPolicy *p, const char *key, char **identity)
{
	const char *blank = p->nkeys == 0 ? strchr(key, ' ') : NULL;

	*identity = pstrdup(blank ? blank + 1 : "");
	return ssw_key_shown(p, blank ? pnstrdup(key, blank - key) : key);
}

/* Is the entry about the row as it is now? */
static bool
is_about(const FailedEntry *e, const char *identity, const SswRow *row)
{
	return e->has_due == row->has_due && e->due == row->due && strcmp(e->identity, identity) == 0;
}

static uint32
hash_name(const void *key, Size size)
{
	const FailedName *n = key;

	return hash_combine(string_hash(n->key, strlen(n->key) + 1), n->leaf);
}

static int
match_names(const void *a, const void *b, Size size)
{
	const FailedName *x = a;
	const FailedName *y = b;

	return x->leaf != y->leaf || strcmp(x->key, y->key) != 0;
}

static FailedEntry *
lookup(SswFailures *f, Oid leaf, const char *key)
{
	FailedName	name = {.leaf = leaf,.key = key};

	return hash_search(f->table, &name, HASH_FIND, NULL);
}

/* An entry with nothing but its name, which lies in f->cxt. */
static FailedEntry *
enter(SswFailures *f, Oid leaf, const char *key)
{
	FailedName	name = {.leaf = leaf,.key = key};
	FailedEntry *e = hash_search(f->table, &name, HASH_ENTER, NULL);

	memset(e, 0, sizeof(FailedEntry));
	e->name = name;
	return e;
}

static bool
is_class(const FailedEntry *e, const char *class)
{
	return strcmp(e->class, class) == 0;
}

/* Is it tried with all locked rows?  retry_row() takes it out of these. */
static bool
waits_for_lock(const FailedEntry *e)
{
	return is_class(e, "locked") && e->attempts > 0;
}

static void
remember(SswFailures *f, HeapTuple tup, TupleDesc desc)
{
	MemoryContext old = MemoryContextSwitchTo(f->cxt);
	bool		isnull;
	FailedEntry *e = enter(f, DatumGetObjectId(SPI_getbinval(tup, desc, 7, &isnull)),
						   TextDatumGetCString(SPI_getbinval(tup, desc, 1, &isnull)));
	Datum		d = SPI_getbinval(tup, desc, 2, &isnull);

	e->has_due = !isnull;
	e->due = isnull ? 0 : DatumGetTimestampTz(d);
	e->quarantined = DatumGetBool(SPI_getbinval(tup, desc, 3, &isnull));
	f->retrying += !e->quarantined;
	e->attempts = DatumGetInt32(SPI_getbinval(tup, desc, 4, &isnull));
	d = SPI_getbinval(tup, desc, 5, &isnull);
	e->next_attempt = isnull ? 0 : DatumGetTimestampTz(d);
	e->partition = SPI_getvalue(tup, desc, 6);
	e->identity = SPI_getvalue(tup, desc, 8);
	e->class = SPI_getvalue(tup, desc, 9);
	e->message = SPI_getvalue(tup, desc, 10);
	d = SPI_getbinval(tup, desc, 11, &isnull);
	e->blocked_by = isnull ? (Datum) 0 : PointerGetDatum(DatumGetArrayTypePCopy(d));
	d = SPI_getbinval(tup, desc, 12, &isnull);
	e->last_at = isnull ? 0 : DatumGetTimestampTz(d);
	MemoryContextSwitchTo(old);
}

/* The known failures of a policy, in CurrentMemoryContext; in a transaction. */
SswFailures *
ssw_failed_row_load(const SswPolicy *p)
{
	SswFailures *f = palloc0(sizeof(SswFailures));
	HASHCTL		ctl = {.keysize = sizeof(FailedName),.entrysize = sizeof(FailedEntry),.hash = hash_name,.match = match_names};
	Oid			types[] = {INT4OID, OIDOID};
	Datum		values[] = {Int32GetDatum(p->id), ObjectIdGetDatum(p->relid)};
	SswIdentity save;
	uint64		n;

	f->policy = p;
	f->cxt = CurrentMemoryContext;
	f->locked_retry = ssw_pace_get(p->id).locked_retry_at;
	ctl.hcxt = f->cxt;
	f->table = hash_create("failed rows", 64, &ctl, HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	ssw_spi_begin_as_extension(&save);
	/* a failure that was later than now is of a clock that was set back */
	n = ssw_plan_execute("SELECT key, deadline, state = 'quarantined', attempts,"
						 " CASE WHEN last_at <= pg_catalog.clock_timestamp() THEN next_attempt END, partition,"
						 " CASE WHEN partition IS NULL THEN $2 ELSE coalesce(pg_catalog.to_regclass(partition)::oid, 0) END, coalesce(identity, ''),"
						 " class, CASE WHEN class = 'locked' THEN message ELSE '' END, blocked_by, CASE WHEN last_at <= pg_catalog.clock_timestamp() THEN last_at END"
						 " FROM sweeper.failed_row WHERE policy_id = $1", 2, types, values, NULL, false);
	for (uint64 i = 0; i < n; i++)
		remember(f, SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	f->count = n;
	ssw_spi_end_as(&save);
	return f;
}

int
ssw_failed_row_count(SswFailures *f)
{
	return f->count;
}

/* When a known failure is tried again.  A time that is too far away is of a clock that was set back. */
static TimestampTz
retry_at(const SswFailures *f, const FailedEntry *e, TimestampTz now)
{
	if (!waits_for_lock(e))
		return e->next_attempt;
	if (e->failed_again)
		return f->locked_next;
	return f->locked_retry > now + LOCKED_AGAIN_US ? 0 : f->locked_retry;
}

/*
 * Must a candidate be left alone now?  An entry for another deadline, or another
 * row in its place, has lapsed.  *slow: it may be tried, and was slow before.
 */
bool
ssw_failed_row_excluded(SswFailures *f, Oid leaf, const SswRow *row, bool *slow)
{
	FailedEntry *e = NULL;
	TimestampTz now = GetCurrentTimestamp();
	char	   *identity;

	*slow = false;
	if (hash_get_num_entries(f->table) > 0)
		e = lookup(f, leaf, split_key(f->policy, row->key, &identity));
	if (e == NULL || !is_about(e, identity, row))
		return false;
	if (!e->quarantined && !e->failed_again && retry_at(f, e, now) <= now)
	{
		*slow = is_class(e, "slow");
		return false;
	}
	e->left_alone = true;
	return true;
}

/* Keys of the known failures, as stored: text[]. */
Datum
ssw_failed_row_keys(SswFailures *f)
{
	ArrayBuildState *keys = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	HASH_SEQ_STATUS seq;
	FailedEntry *e;

	hash_seq_init(&seq, f->table);
	while ((e = hash_seq_search(&seq)) != NULL)
		keys = accumArrayResult(keys, CStringGetTextDatum(e->name.key), false, TEXTOID, CurrentMemoryContext);
	return makeArrayResult(keys, CurrentMemoryContext);
}

/* The earliest time at which a known failure that still is one may be tried again, or 0. */
TimestampTz
ssw_failed_row_next_attempt(SswFailures *f)
{
	HASH_SEQ_STATUS seq;
	FailedEntry *e;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = 0;

	hash_seq_init(&seq, f->table);
	while ((e = hash_seq_search(&seq)) != NULL)
	{
		TimestampTz at = retry_at(f, e, now);

		if (!e->quarantined && (e->left_alone || e->failed_again) && at && (next == 0 || at < next))
			next = at;
	}
	return next;
}

/*
 * What is kept and logged of an error of the owner's code.  Where keys are
 * credentials that is no text at all: nobody knows what it is made of.
 */
const char *
ssw_failed_row_text(const SswPolicy *p, const ErrorData *e)
{
	if (p->audit == SSW_AUDIT_HASH)
		return psprintf("error %s (its text is not kept with audit => 'hash')",
						unpack_sql_state(e->sqlerrcode));
	if (e->message && e->hint)
		return psprintf("%s (hint: %s)", e->message, e->hint);
	return e->message;
}

/* Is the row held by the recorded holders? */
static bool
same_holders(const FailedEntry *e, const char *message, Datum blocked_by)
{
	if (strcmp(e->message, message) != 0 || (e->blocked_by == (Datum) 0) != (blocked_by == (Datum) 0))
		return false;
	return blocked_by == (Datum) 0 || datumIsEqual(e->blocked_by, blocked_by, false, -1);
}

/* When the row, which has just failed, is tried again. */
static void
plan_retry(SswFailures *f, FailedEntry *e, bool known)
{
	/* a slow one has cost the whole of the hard limit */
	int64		base = is_class(e, "slow") && e->attempts > 0 ? f->policy->hard_limit_us : RETRY_BASE_US;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = now + (known ? LOCKED_AGAIN_US : LOCKED_FIRST_US);

	if (waits_for_lock(e))
		f->locked_next = f->locked_next == 0 ? next : Min(f->locked_next, next);
	else
		e->next_attempt = now + ssw_failed_row_backoff_us(e->attempts, base, RETRY_MAX_US);
}

/*
 * May it be no fault of the row, so that it is tried until it ends?  A right or an object
 * may be missing, or a disk full, for a while, for some rows only.
 */
static bool
may_pass(const FailedEntry *e)
{
	return is_class(e, "transient") || is_class(e, "locked") || ssw_error_classify(e->sqlerrcode) == SSW_FAIL_POLICY;
}

/* Has another row gone since this one failed before? */
static bool
others_went(const SswFailures *f, const FailedEntry *e)
{
	TimestampTz went_at;

	(void) ssw_shmem_read_field(MyDatabaseId, f->policy->id, went_at, &went_at);
	return went_at > e->last_at;
}

/*
 * Remember a failure, to be written by ssw_failed_row_flush(), and leave the row
 * alone for the rest of the pass.  blocked_by is an int4[] of pids, or 0.  True
 * when the row was known to fail.
 */
bool
ssw_failed_row_add(SswFailures *f, Oid leaf, const SswRow *row, const char *class, int sqlerrcode,
				   const char *message, Datum blocked_by)
{
	MemoryContext old = MemoryContextSwitchTo(f->cxt);
	char	   *identity;
	char	   *shown = split_key(f->policy, row->key, &identity);
	FailedEntry *e = lookup(f, leaf, shown);
	bool		known = e && is_about(e, identity, row);
	bool		aside = strcmp(class, SSW_FAIL_SET_ASIDE) == 0;
	bool		deadly = strcmp(class, SSW_FAIL_DEADLY) == 0;

	if (e == NULL)
		e = enter(f, leaf, shown);
	if (!known)
		e->attempts = 0;
	e->same = known && !e->failed_again && strcmp(class, "locked") == 0 && waits_for_lock(e) && same_holders(e, message, blocked_by);
	/* a batch that is run again finds the row again */
	if (!aside && !(known && e->failed_again))
		e->attempts++;
	if (!e->failed_again)
		f->pending = lappend(f->pending, e);
	e->failed_again = true;
	e->partition = leaf == f->policy->relid ? NULL : ssw_guard_relation(leaf);
	e->identity = identity;
	e->due = row->due;
	e->has_due = row->has_due;
	e->class = aside ? "slow" : deadly ? "error" : pstrdup(class);
	e->sqlerrcode = sqlerrcode;
	e->message = pstrdup(message);
	e->blocked_by = blocked_by == (Datum) 0 ? blocked_by : PointerGetDatum(DatumGetArrayTypePCopy(blocked_by));
	e->failed_at = GetCurrentTimestamp();
	/* while many fail and none goes, it may be the policy */
	e->quarantined = deadly || (e->attempts > f->policy->max_retries && !may_pass(e) &&
								(f->retrying < SSW_DOUBT || others_went(f, e)));
	plan_retry(f, e, known);
	MemoryContextSwitchTo(old);
	return known;
}

int
ssw_failed_row_pending(SswFailures *f)
{
	return list_length(f->pending);
}

/* The one SQLSTATE that all pending failures share, or 0. */
int
ssw_failed_row_same_code(SswFailures *f)
{
	int			code = 0;
	ListCell   *lc;

	foreach(lc, f->pending)
	{
		FailedEntry *e = lfirst(lc);

		if (code && e->sqlerrcode != code)
			return 0;
		code = e->sqlerrcode;
	}
	return code;
}

/* The last of the pending failures; there are some. */
void
ssw_failed_row_last(const SswFailures *f, ErrorData *error)
{
	const FailedEntry *e = llast(f->pending);

	error->sqlerrcode = e->sqlerrcode;
	error->message = pstrdup(e->message);
}

/* Forget pending failures: the policy failed, not the rows. */
void
ssw_failed_row_discard(SswFailures *f)
{
	f->pending = NIL;
}

static void
write_one(SswFailures *f, const FailedEntry *e)
{
	static const char *const sql =
	"INSERT INTO sweeper.failed_row AS r (policy_id, policy, key, deadline, state, class,"
	" attempts, sqlstate, message, blocked_by, next_attempt, partition, identity, first_at, last_at) VALUES ($1, $2, $3, $4, $5, $6,"
	" $7, $8, $9, $10, $11, $12, nullif($13, ''), $14, $14) ON CONFLICT (policy_id, (pg_catalog.hashtextextended(key, 0)), (coalesce(partition, '')))"
	" DO UPDATE SET deadline = excluded.deadline,"
	" state = excluded.state, class = excluded.class, attempts = excluded.attempts,"
	" sqlstate = excluded.sqlstate, message = excluded.message, blocked_by = excluded.blocked_by,"
	" last_at = excluded.last_at, next_attempt = excluded.next_attempt, identity = excluded.identity";
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, INT4OID,
	TEXTOID, TEXTOID, INT4ARRAYOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TIMESTAMPTZOID};
	Datum		values[14];
	char		nulls[15] = "              ";

	values[0] = Int32GetDatum(f->policy->id);
	values[1] = CStringGetTextDatum(f->policy->name);
	values[2] = CStringGetTextDatum(e->name.key);
	values[3] = TimestampTzGetDatum(e->due);
	nulls[3] = e->has_due ? ' ' : 'n';
	values[4] = CStringGetTextDatum(e->quarantined ? "quarantined" : "retrying");
	values[5] = CStringGetTextDatum(e->class);
	values[6] = Int32GetDatum(e->attempts);
	values[7] = CStringGetTextDatum(unpack_sql_state(e->sqlerrcode));
	values[8] = CStringGetTextDatum(e->message);
	values[9] = e->blocked_by;
	nulls[9] = e->blocked_by != (Datum) 0 ? ' ' : 'n';
	values[10] = TimestampTzGetDatum(waits_for_lock(e) ? f->locked_next : e->next_attempt);
	nulls[10] = e->quarantined ? 'n' : ' ';
	values[11] = e->partition ? CStringGetTextDatum(e->partition) : (Datum) 0;
	nulls[11] = e->partition ? ' ' : 'n';
	values[12] = CStringGetTextDatum(e->identity);
	values[13] = TimestampTzGetDatum(e->failed_at);
	ssw_spi_exec(sql, 14, types, values, nulls, false, 0);
}

/* The bit of an entry; another one in each pass, so that none stays hidden by others. */
static int
met_bit(const FailedEntry *e, uint64 salt)
{
	return hash_combine64(salt, hash_name(&e->name, sizeof(FailedName))) % (SSW_MET_WORDS * 64);
}

/* Set the bits of the failed rows that this worker met. */
void
ssw_failed_row_met(SswFailures *f, uint64 salt, uint64 *bits)
{
	HASH_SEQ_STATUS seq;
	FailedEntry *e;

	hash_seq_init(&seq, f->table);
	while ((e = hash_seq_search(&seq)) != NULL)
		if (e->failed_again || e->left_alone)
			bits[met_bit(e, salt) / 64] |= UINT64CONST(1) << (met_bit(e, salt) % 64);
}

/*
 * Remove entries whose row was handled, or is no longer dead: no worker met it, as
 * far as bits say.
 */
static void
purge_entries(SswFailures *f, uint64 salt, const uint64 *bits)
{
	HASH_SEQ_STATUS seq;
	FailedEntry *e;
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID};
	Datum		values[3];

	values[0] = Int32GetDatum(f->policy->id);
	hash_seq_init(&seq, f->table);
	while ((e = hash_seq_search(&seq)) != NULL)
	{
		if (e->failed_again || e->left_alone ||
			(bits && bits[met_bit(e, salt) / 64] & (UINT64CONST(1) << (met_bit(e, salt) % 64))))
			continue;
		values[1] = CStringGetTextDatum(e->name.key);
		values[2] = e->partition ? CStringGetTextDatum(e->partition) : (Datum) 0;
		ssw_spi_exec("DELETE FROM sweeper.failed_row WHERE policy_id = $1 AND key = $2"
					 " AND pg_catalog.hashtextextended(key, 0) = pg_catalog.hashtextextended($2, 0)"
					 " AND partition IS NOT DISTINCT FROM $3",
					 3, types, values, e->partition ? NULL : "  n", false, 0);
	}
}

/*
 * When rows that somebody holds are tried again, all together: a transaction may hold
 * many for hours, and none of that is written again and again.
 */
static void
note_locked(const SswFailures *f)
{
	SswPace		pace = ssw_pace_get(f->policy->id);

	/* not later for those that wait already */
	if (f->locked_next == 0 || pace.locked_retry_at > f->locked_retry)
		return;
	pace.locked_retry_at = f->locked_next;
	ssw_pace_set(f->policy->id, &pace);
}

/*
 * Write the pending failures, in the caller's transaction.  With purge, the
 * pass has seen every dead row, and entries that no longer apply are removed; bits
 * are of what all workers met.  In one that cannot write: they are forgotten.
 */
void
ssw_failed_row_flush(SswFailures *f, bool purge, uint64 salt, const uint64 *bits)
{
	SswIdentity save;
	ListCell   *lc;

	if (XactReadOnly)
		return;
	ssw_spi_begin_as_extension(&save);
	foreach(lc, f->pending)
		if (!((FailedEntry *) lfirst(lc))->same)
		write_one(f, lfirst(lc));
	f->pending = NIL;
	note_locked(f);
	if (purge)
		purge_entries(f, salt, bits);
	ssw_spi_end_as(&save);
}
