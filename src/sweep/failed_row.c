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
 * Shares when locked rows are tried again (pace.c).
 * A crash loses at most the failures of one pass, and the rows are then tried again.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "common/pg_prng.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

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

typedef struct FailedEntry
{
	uint32		hash;			/* of the key: the hash table's key */
	struct FailedEntry *next;	/* others with that hash */
	char	   *key;
	char	   *partition;		/* as stored */
	Oid			leaf;			/* that is it; invalid when it is gone */
	char	   *identity;		/* of a row without a key, else "" */
	TimestampTz due;
	bool		has_due;
	bool		quarantined;
	bool		slow;			/* tried after others, with all its time */
	bool		locked;			/* by those: tried with all locked ones */
	Datum		blocked_by;		/* int4[], or 0 */
	char	   *message;
	int			attempts;
	TimestampTz next_attempt;
	bool		left_alone;		/* though a candidate of this pass */
	bool		failed_again;
} FailedEntry;

typedef struct FailedSlot
{
	uint32		hash;
	FailedEntry *first;
} FailedSlot;

typedef struct NewFailure
{
	char	   *key;
	char	   *partition;
	char	   *identity;		/* or "" */
	TimestampTz due;
	bool		has_due;
	char		class[32];
	int			sqlerrcode;
	char	   *message;
	Datum		blocked_by;		/* int4[], or 0 */
	int			attempts;
	bool		deadly;
	bool		same;			/* as it is recorded: still locked by the same */
} NewFailure;

struct SswFailures
{
	const SswPolicy *policy;
	MemoryContext cxt;
	HTAB	   *table;
	int			count;
	List	   *pending;		/* of NewFailure */
	TimestampTz locked_retry;	/* rows known to be locked are tried from then
								 * on */
	TimestampTz locked_next;	/* and those that were again, or 0 */
};

/* base * 2^(attempts - 1), at most max, with a quarter of jitter. */
int64
ssw_failure_backoff_us(int attempts, int64 base_us, int64 max_us)
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
is_about(const FailedEntry *e, const char *identity, TimestampTz due, bool has_due)
{
	return e->has_due == has_due && (!has_due || e->due == due) && strcmp(e->identity, identity) == 0;
}

static FailedEntry *
lookup(SswFailures *f, Oid leaf, const char *key)
{
	uint32		hash = string_hash(key, strlen(key) + 1);
	FailedSlot *s = hash_search(f->table, &hash, HASH_FIND, NULL);

	for (FailedEntry *e = s ? s->first : NULL; e; e = e->next)
		if (e->leaf == leaf && strcmp(e->key, key) == 0)
			return e;
	return NULL;
}

/* Add an entry, which lies in f->cxt, to the hash table. */
static void
enter(SswFailures *f, FailedEntry *e)
{
	FailedSlot *s;
	bool		found;

	e->hash = string_hash(e->key, strlen(e->key) + 1);
	s = hash_search(f->table, &e->hash, HASH_ENTER, &found);
	e->next = found ? s->first : NULL;
	s->first = e;
}

static void
remember(SswFailures *f, HeapTuple tup, TupleDesc desc)
{
	MemoryContext old = MemoryContextSwitchTo(f->cxt);
	FailedEntry *e = palloc0(sizeof(FailedEntry));
	bool		isnull;
	Datum		d;

	e->key = TextDatumGetCString(SPI_getbinval(tup, desc, 1, &isnull));
	d = SPI_getbinval(tup, desc, 2, &isnull);
	e->has_due = !isnull;
	e->due = isnull ? 0 : DatumGetTimestampTz(d);
	e->quarantined = DatumGetBool(SPI_getbinval(tup, desc, 3, &isnull));
	e->attempts = DatumGetInt32(SPI_getbinval(tup, desc, 4, &isnull));
	d = SPI_getbinval(tup, desc, 5, &isnull);
	e->next_attempt = isnull ? 0 : DatumGetTimestampTz(d);
	e->partition = SPI_getvalue(tup, desc, 6);
	e->leaf = DatumGetObjectId(SPI_getbinval(tup, desc, 7, &isnull));
	e->identity = SPI_getvalue(tup, desc, 8);
	e->locked = DatumGetBool(SPI_getbinval(tup, desc, 9, &isnull));
	e->message = SPI_getvalue(tup, desc, 10);
	e->slow = DatumGetBool(SPI_getbinval(tup, desc, 12, &isnull));
	d = SPI_getbinval(tup, desc, 11, &isnull);
	e->blocked_by = isnull ? (Datum) 0 : PointerGetDatum(DatumGetArrayTypePCopy(d));
	enter(f, e);
	f->count++;
	MemoryContextSwitchTo(old);
}

/* The known failures of a policy, in CurrentMemoryContext; in a transaction. */
SswFailures *
ssw_failures_load(const SswPolicy *p)
{
	SswFailures *f = palloc0(sizeof(SswFailures));
	HASHCTL		ctl = {.keysize = sizeof(uint32),.entrysize = sizeof(FailedSlot)};
	Oid			types[] = {INT4OID, OIDOID};
	Datum		values[] = {Int32GetDatum(p->id), ObjectIdGetDatum(p->relid)};
	SswIdentity save;
	uint64		n;

	f->policy = p;
	f->cxt = CurrentMemoryContext;
	f->locked_retry = ssw_pace_get(p->id).locked_retry_at;
	ctl.hcxt = f->cxt;
	f->table = hash_create("failed rows", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ssw_spi_begin_as_extension(&save);
	/* a back-off that begins later than now is of a clock that was set back */
	n = ssw_spi_exec("SELECT key, deadline, state = 'quarantined', attempts,"
					 " CASE WHEN last_at <= pg_catalog.clock_timestamp() THEN next_attempt END, partition,"
					 " CASE WHEN partition IS NULL THEN $2 ELSE coalesce(pg_catalog.to_regclass(partition)::oid, 0) END, coalesce(identity, ''),"
					 " class = 'locked' AND attempts > 0, coalesce(message, ''), blocked_by, class = 'slow'"
					 " FROM sweeper.failed_row WHERE policy_id = $1", 2, types, values, NULL, false, 0);
	for (uint64 i = 0; i < n; i++)
		remember(f, SPI_tuptable->vals[i], SPI_tuptable->tupdesc);
	ssw_spi_end_as(&save);
	return f;
}

int
ssw_failures_count(SswFailures *f)
{
	return f->count;
}

/* When a known failure is tried again.  A time that is too far away is of a clock that was set back. */
static TimestampTz
retry_at(const SswFailures *f, const FailedEntry *e, TimestampTz now)
{
	if (!e->locked)
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
ssw_failures_excluded(SswFailures *f, Oid leaf, const char *key, TimestampTz due, bool has_due,
					  TimestampTz now, bool *slow)
{
	FailedEntry *e = NULL;
	char	   *identity;

	*slow = false;

	if (hash_get_num_entries(f->table) > 0)
		e = lookup(f, leaf, split_key(f->policy, key, &identity));
	if (e == NULL || !is_about(e, identity, due, has_due))
		return false;
	if (!e->quarantined && !e->failed_again && retry_at(f, e, now) <= now)
	{
		*slow = e->slow;
		return false;
	}
	e->left_alone = true;
	return true;
}

/* Keys of the known failures, as stored: text[]. */
Datum
ssw_failures_keys(SswFailures *f)
{
	ArrayBuildState *keys = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	HASH_SEQ_STATUS seq;
	FailedSlot *s;

	hash_seq_init(&seq, f->table);
	while ((s = hash_seq_search(&seq)) != NULL)
		for (FailedEntry *e = s->first; e; e = e->next)
			keys = accumArrayResult(keys, CStringGetTextDatum(e->key), false, TEXTOID, CurrentMemoryContext);
	return makeArrayResult(keys, CurrentMemoryContext);
}

/* The earliest time at which a known failure that still is one may be tried again, or 0. */
TimestampTz
ssw_failures_next_attempt(SswFailures *f)
{
	HASH_SEQ_STATUS seq;
	FailedSlot *s;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = 0;

	hash_seq_init(&seq, f->table);
	while ((s = hash_seq_search(&seq)) != NULL)
		for (FailedEntry *e = s->first; e; e = e->next)
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
ssw_failure_text(const SswPolicy *p, const ErrorData *e)
{
	if (p->audit == SSW_AUDIT_HASH)
		return psprintf("error %s (its text is not kept with audit => 'hash')",
						unpack_sql_state(e->sqlerrcode));
	return e->message ? e->message : "unknown error";
}

/* Is the row held by the recorded holders? */
static bool
same_holders(const FailedEntry *e, const NewFailure *n)
{
	if (strcmp(e->message, n->message) != 0 || (e->blocked_by == (Datum) 0) != (n->blocked_by == (Datum) 0))
		return false;
	return n->blocked_by == (Datum) 0 ||
		datumIsEqual(e->blocked_by, n->blocked_by, false, -1);
}

/*
 * Remember a failure, to be written by ssw_failures_flush(), and leave the row
 * alone for the rest of the pass.  blocked_by is an int4[] of pids, or 0.  True
 * when the row was known to fail.
 */
bool
ssw_failures_add(SswFailures *f, Oid leaf, const char *key, TimestampTz due, bool has_due,
				 const char *class, int sqlerrcode, const char *message, Datum blocked_by)
{
	MemoryContext old = MemoryContextSwitchTo(f->cxt);
	NewFailure *n = palloc0(sizeof(NewFailure));
	bool		locked = strcmp(class, "locked") == 0;
	bool		known = false;
	bool		aside = strcmp(class, SSW_FAIL_SET_ASIDE) == 0;
	FailedEntry *e;

	n->key = split_key(f->policy, key, &n->identity);
	n->partition = leaf == f->policy->relid ? NULL : ssw_guard_relation(leaf);
	e = lookup(f, leaf, n->key);
	n->due = due;
	n->has_due = has_due;
	n->deadly = strcmp(class, SSW_FAIL_DEADLY) == 0;
	strlcpy(n->class, aside ? "slow" : n->deadly ? "error" : class, sizeof(n->class));
	n->sqlerrcode = sqlerrcode;
	n->message = pstrdup(message);
	if (blocked_by != (Datum) 0)
		n->blocked_by = PointerGetDatum(DatumGetArrayTypePCopy(blocked_by));
	n->attempts = aside ? 0 : 1;
	if (e == NULL)
	{
		e = palloc0(sizeof(FailedEntry));
		e->key = n->key;
		e->leaf = leaf;
		enter(f, e);
	}
	else if (is_about(e, n->identity, due, has_due))
	{
		n->attempts += e->attempts;
		known = true;
		n->same = locked && e->locked && same_holders(e, n);
	}
	if (locked)
	{
		TimestampTz next = GetCurrentTimestamp() + (known ? LOCKED_AGAIN_US : LOCKED_FIRST_US);

		f->locked_next = f->locked_next == 0 ? next : Min(f->locked_next, next);
	}
	e->locked = locked;
	e->blocked_by = n->blocked_by;
	e->message = n->message;
	e->identity = n->identity;
	e->due = due;
	e->has_due = has_due;
	e->failed_again = true;
	f->pending = lappend(f->pending, n);
	MemoryContextSwitchTo(old);
	return known;
}

int
ssw_failures_pending(SswFailures *f)
{
	return list_length(f->pending);
}

/* The one SQLSTATE that all pending failures share, or 0. */
int
ssw_failures_same_code(SswFailures *f)
{
	int			code = 0;
	ListCell   *lc;

	foreach(lc, f->pending)
	{
		NewFailure *n = lfirst(lc);

		if (code && n->sqlerrcode != code)
			return 0;
		code = n->sqlerrcode;
	}
	return code;
}

/* Forget pending failures: the policy failed, not the rows. */
void
ssw_failures_discard(SswFailures *f)
{
	f->pending = NIL;
}

static void
write_one(SswFailures *f, NewFailure *n)
{
	static const char *const sql =
	"INSERT INTO sweeper.failed_row AS r (policy_id, policy, key, deadline, state, class,"
	" attempts, sqlstate, message, blocked_by, next_attempt, partition, identity) VALUES ($1, $2, $3, $4, $5, $6,"
	" $7, $8, $9, $10, $11, $12, nullif($13, '')) ON CONFLICT (policy_id, (pg_catalog.hashtextextended(key, 0)), (coalesce(partition, '')))"
	" DO UPDATE SET deadline = excluded.deadline,"
	" state = excluded.state, class = excluded.class, attempts = excluded.attempts,"
	" sqlstate = excluded.sqlstate, message = excluded.message, blocked_by = excluded.blocked_by,"
	" last_at = pg_catalog.clock_timestamp(), next_attempt = excluded.next_attempt, identity = excluded.identity";
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, INT4OID,
	TEXTOID, TEXTOID, INT4ARRAYOID, TIMESTAMPTZOID, TEXTOID, TEXTOID};
	bool		final = n->deadly || (n->attempts > f->policy->max_retries &&
									  strcmp(n->class, "transient") != 0 && strcmp(n->class, "locked") != 0);

	/* a slow one has cost the whole of the hard limit */
	bool		dear = strcmp(n->class, "slow") == 0 && n->attempts > 0;
	Datum		values[13];
	char		nulls[14] = "             ";

	values[0] = Int32GetDatum(f->policy->id);
	values[1] = CStringGetTextDatum(f->policy->name);
	values[2] = CStringGetTextDatum(n->key);
	values[3] = TimestampTzGetDatum(n->due);
	nulls[3] = n->has_due ? ' ' : 'n';
	values[4] = CStringGetTextDatum(final ? "quarantined" : "retrying");
	values[5] = CStringGetTextDatum(n->class);
	values[6] = Int32GetDatum(n->attempts);
	values[7] = CStringGetTextDatum(unpack_sql_state(n->sqlerrcode));
	values[8] = CStringGetTextDatum(n->message);
	values[9] = n->blocked_by;
	nulls[9] = n->blocked_by != (Datum) 0 ? ' ' : 'n';
	values[10] = TimestampTzGetDatum(strcmp(n->class, "locked") == 0 ? f->locked_next : GetCurrentTimestamp() +
									 ssw_failure_backoff_us(n->attempts,
															dear ? f->policy->hard_limit_us : RETRY_BASE_US,
															RETRY_MAX_US));
	nulls[10] = final ? 'n' : ' ';
	values[11] = n->partition ? CStringGetTextDatum(n->partition) : (Datum) 0;
	nulls[11] = n->partition ? ' ' : 'n';
	values[12] = CStringGetTextDatum(n->identity);
	ssw_spi_exec(sql, 13, types, values, nulls, false, 0);
}

/* The bit of an entry; another one in each pass, so that none stays hidden by others. */
static int
met_bit(const FailedEntry *e, uint64 salt)
{
	return hash_combine64(hash_combine64(salt, e->hash), e->leaf) % (SSW_MET_WORDS * 64);
}

/* Set the bits of the failed rows that this worker met. */
void
ssw_failures_met(SswFailures *f, uint64 salt, uint64 *bits)
{
	HASH_SEQ_STATUS seq;
	FailedSlot *s;

	hash_seq_init(&seq, f->table);
	while ((s = hash_seq_search(&seq)) != NULL)
		for (FailedEntry *e = s->first; e; e = e->next)
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
	FailedSlot *s;
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID};
	Datum		values[3];

	values[0] = Int32GetDatum(f->policy->id);
	hash_seq_init(&seq, f->table);
	while ((s = hash_seq_search(&seq)) != NULL)
		for (FailedEntry *e = s->first; e; e = e->next)
		{
			if (bits[met_bit(e, salt) / 64] & (UINT64CONST(1) << (met_bit(e, salt) % 64)))
				continue;
			values[1] = CStringGetTextDatum(e->key);
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
 * are of what all workers met.
 */
void
ssw_failures_flush(SswFailures *f, bool purge, uint64 salt, const uint64 *bits)
{
	SswIdentity save;
	ListCell   *lc;

	ssw_spi_begin_as_extension(&save);
	foreach(lc, f->pending)
		if (!((NewFailure *) lfirst(lc))->same)
		write_one(f, lfirst(lc));
	f->pending = NIL;
	note_locked(f);
	if (purge)
		purge_entries(f, salt, bits);
	ssw_spi_end_as(&save);
}
