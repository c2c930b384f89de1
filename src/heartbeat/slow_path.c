/*
 * slow_path.c
 *		A heartbeat: the caller's side of the protocol.
 *
 * Runs in clients' sessions.  A session that memory knows costs one look-up and
 * one compare-and-set (H1, H2).  Any other makes us look at its row, locked, in
 * a subtransaction that is rolled back (S1 to S5); near its deadline the row is
 * written, in the caller's transaction.  See doc/heartbeats.md.
 *
 * Heartbeats are no part of the caller's transaction: what was answered true
 * holds when it is rolled back.  The row is read and written as the relation's
 * owner, because filters and triggers are the owner's code.
 *
 * Shares the heartbeats (store.c).  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/pquery.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/deferred.h"
#include "base/error_class.h"
#include "base/identity.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "grace/arrival.h"
#include "grace/grace.h"
#include "heartbeat/counters.h"
#include "heartbeat/slow_path.h"
#include "heartbeat/xact.h"
#include "policy/row_key.h"
#include "policy/sweep_sql.h"

/* A row that others keep changing is read so often at most. */
#define SERIALIZATION_TRIES	10

/* A row, as ssw_sweep_sql_touch() reads it. */
typedef struct TouchedRow
{
	Oid			leaf;
	bool		own;			/* this transaction wrote it */
	bool		seen_by_others; /* as it was before, if it did; and swept */
	TimestampTz due_to_others;	/* DT_NOBEGIN: none */
	int64		ttl_to_others;
	bool		has_due;
	TimestampTz due;			/* what it says, or will by our write */
	bool		beyond_limit;
	bool		swept;			/* the filter lets it through */
	int64		ttl_us;
	SswHeartbeatKey key;
	bool		no_room;		/* for it in memory */
	bool		defers;			/* see defers_updates() */
} TouchedRow;

/* A heartbeat for a key, and what looks at its row found. */
typedef struct TouchTry
{
	SswHeartbeatTarget *target;
	const SswPolicy *policy;	/* its */
	const SswHeartbeatKey *key;
	Oid			shard;			/* that has the row, or invalid */
	Datum	   *values;			/* of the key's columns */
	int			patience_ms;	/* for locks */
	bool		may_be_undone;	/* its caller can undo what it writes */
	bool		write;
	bool		settled;		/* constraints that the caller has deferred */
	SswTouch	result;
	TouchedRow	row;
} TouchTry;

static bool
get_time(int col, TimestampTz *t)
{
	bool		isnull;
	Datum		d = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, col, &isnull);

	*t = isnull ? 0 : DatumGetTimestampTz(d);
	return !isnull;
}

static bool
is_swept(void)
{
	bool		isnull;

	return DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, SSW_T_SWEPT, &isnull));
}

/* The row's own time to live, or the policy's. */
static int64
get_ttl(const SswPolicy *p)
{
	bool		isnull;
	Datum		ttl = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, SSW_T_TTL, &isnull);

	return isnull ? p->ttl_us : DatumGetInt64(ttl);
}

/* The table in which the row is. */
static Oid
table_of(const TouchTry *t)
{
	return OidIsValid(t->shard) ? t->shard : t->policy->relid;
}

/* How others see a row that this transaction wrote: so it will be if we are undone. */
static void
read_as_others(TouchTry *t)
{
	const SswPolicy *p = t->policy;
	TouchedRow *r = &t->row;

	r->seen_by_others = ssw_plan_execute_as_others(ssw_sweep_sql_touch(p, table_of(t), ""), p->nkeys, t->target->types, t->values) > 0 && is_swept();
	r->due_to_others = DT_NOBEGIN;
	if (!r->seen_by_others)
		return;
	if (!get_time(SSW_T_DUE, &r->due_to_others))
		r->due_to_others = DT_NOBEGIN;
	r->ttl_to_others = get_ttl(p);
}

/* S1: read and lock the row; false when there is none. */
static bool
read_row(TouchTry *t)
{
	const SswPolicy *p = t->policy;
	TouchedRow *r = &t->row;
	char	   *sql = ssw_sweep_sql_touch(p, table_of(t), t->write ? "FOR NO KEY UPDATE OF t" : "FOR SHARE OF t");
	bool		isnull;
	HeapTuple	tup;
	TupleDesc	desc;
	TimestampTz limit;
	uint64		n = ssw_plan_execute_fresh(sql, p->nkeys, t->target->types, t->values);

	if (n == 0)
	{
		/* what deleted the row that we waited for may have inserted it again */
		if (ssw_plan_execute_fresh(ssw_sweep_sql_touch(p, table_of(t), ""), p->nkeys, t->target->types, t->values) > 0)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("the session's row was replaced meanwhile")));
		return false;
	}
	if (n > 1)
		ereport(ERROR,
				(errcode(ERRCODE_CARDINALITY_VIOLATION),
				 errmsg("more than one row of policy \"%s\" has the key", p->name),
				 errdetail("A unique key of a table does not cover its child tables."),
				 errhint("The heartbeat did not count. The session is not gone: keep it, and give its row a unique key.")));
	tup = SPI_tuptable->vals[0];
	desc = SPI_tuptable->tupdesc;
	r->leaf = DatumGetObjectId(SPI_getbinval(tup, desc, SSW_T_LEAF, &isnull));
	r->own = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(SPI_getbinval(tup, desc, SSW_T_XMIN, &isnull)));
	r->has_due = get_time(SSW_T_DUE, &r->due);
	r->beyond_limit = get_time(SSW_T_LIMIT, &limit) && limit <= GetCurrentTimestamp();
	r->swept = is_swept();
	r->ttl_us = get_ttl(p);
	r->key = ssw_target_cache_key(p, t->shard, SPI_getvalue(tup, desc, SSW_T_KEY));
	if (ssw_relation_owner(r->leaf) != p->owner)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the row's partition does not belong to the owner of policy \"%s\"", p->name)));
	r->seen_by_others = true;
	r->due_to_others = r->has_due ? r->due : DT_NOBEGIN;
	r->ttl_to_others = r->ttl_us;
	if (r->own)
		read_as_others(t);
	return true;
}

/*
 * Is a session whose row is kept for a time after its death dead already?  Where
 * rows go at once, one that is still there may come back to life.
 */
static bool
in_retention(const SswPolicy *p, const TouchedRow *r)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz cutoff;

	if (p->keep_for_us == 0 || !r->has_due || r->due > now)
		return false;
	/* is it one that would be deleted when that time is over? */
	cutoff = ssw_grace_cutoff_of_row(p, r->ttl_us, now + p->keep_for_us);
	return r->due <= cutoff && !ssw_arrival_covers(p, r->leaf, r->ttl_us, now);
}

/* S2: has the session ended, though its row is there?  b is what memory has of it, or null. */
static bool
has_ended(const SswPolicy *p, const TouchedRow *r, SswHeartbeat *b, TimestampTz now)
{
	if (!r->swept || r->beyond_limit)
		return true;
	/* a row without a time to live of its own lives as long as it says */
	if (r->ttl_us <= 0)
		return r->has_due && r->due <= now;
	/* the row said once that it lives longer: somebody ended it */
	if (b && r->has_due && r->due < b->deadline && r->due <= now)
		return true;
	return in_retention(p, r) && (b == NULL || SSW_ENTRY_SEEN(pg_atomic_read_u64(&b->word)) + b->ttl_us <= now);
}

/* Does no heartbeat change when it ends? */
static bool
has_fixed_end(const SswPolicy *p, const TouchedRow *r)
{
	return r->ttl_us <= 0 || (r->has_due ? TIMESTAMP_IS_NOEND(r->due) : p->on_null == SSW_NULL_IGNORE && p->last_seen == NULL);
}

/*
 * S2 and S3: what a heartbeat now means for the row, which is locked.  It goes to memory,
 * and to the row only where memory alone would not hold the session.
 */
static SswTouch
judge(const SswPolicy *p, TouchedRow *r, TimestampTz now)
{
	SswHeartbeat b;

	r->no_room = false;
	if (has_ended(p, r, ssw_store_find(&r->key, &b) ? &b : NULL, now))
		return SSW_TOUCH_GONE;
	if (has_fixed_end(p, r))
		return SSW_TOUCH_ALIVE;
	if (r->seen_by_others)
		ssw_shmem_note_ttl(MyDatabaseId, p->id, r->ttl_to_others);

	/*
	 * what the caller's own transaction wrote may yet be undone: neither
	 * deadline overrules us
	 */
	r->no_room = !ssw_store_publish(&r->key, now, r->ttl_to_others, r->has_due ? Min(r->due, r->due_to_others) : r->due_to_others,
									r->seen_by_others);
	/* a later deadline than heartbeats give is kept */
	if (r->has_due && r->due >= now + r->ttl_us)
		return SSW_TOUCH_ALIVE;
	return r->no_room || !r->has_due || r->due <= now + ssw_store_margin(r->ttl_us) || ssw_store_stopping() ? SSW_TOUCH_WRITE : SSW_TOUCH_ALIVE;
}

/*
 * Would the row's update leave something to be done when the caller's transaction
 * ends?  It must not be done as the caller then; so it is done at once, and what
 * the caller has left before that.  The leaf is locked: nothing here waits for it.
 */
static bool
defers_updates(Oid leaf)
{
	Relation	rel = table_open(leaf, AccessShareLock);
	bool		defers = false;

	for (int i = 0; rel->trigdesc && i < rel->trigdesc->numtriggers; i++)
	{
		const		Trigger *t = &rel->trigdesc->triggers[i];

		/* what triggers of the table's owner do may be deferred, too */
		defers = defers || ((t->tgdeferrable || !t->tgisinternal) && TRIGGER_FOR_UPDATE(t->tgtype));
	}
	table_close(rel, AccessShareLock);
	return defers;
}

/* S4: the row lives one time to live from now; r->due becomes what it says then. */
static void
write_row(TouchTry *t, TimestampTz now)
{
	const SswPolicy *p = t->policy;
	TouchedRow *r = &t->row;
	Oid			types[SSW_KEY_MAX + 2] = {TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[SSW_KEY_MAX + 2];

	values[0] = TimestampTzGetDatum(now);
	values[1] = TimestampTzGetDatum(now + r->ttl_us);
	memcpy(types + 2, t->target->types, p->nkeys * sizeof(Oid));
	memcpy(values + 2, t->values, p->nkeys * sizeof(Datum));
	if (ssw_plan_execute_fresh(ssw_sweep_sql_write_heartbeat(p, table_of(t)), p->nkeys + 2, types, values) == 0 || !get_time(1, &r->due))
		ereport(ERROR,
				(errcode(ERRCODE_SSW_SUPPRESSED),
				 errmsg("the heartbeat could not be written to the row"),
				 errdetail("A trigger of the table suppressed the update.")));
	r->defers = defers_updates(r->leaf);
	if (r->defers)
	{
		if (!t->settled)
			ereport(ERROR,
					(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
					 errmsg("the session's row has moved, or its table got a trigger meanwhile")));
		ssw_deferred_fire();
	}
}

/* From now on nobody renames the relation's columns: have they the names that we know? */
static bool
knows_names(const TouchTry *t)
{
	int			level = NewGUCNestLevel();

	ssw_identity_lock_timeout(t->patience_ms);
	LockRelationOid(t->policy->relid, t->write ? RowExclusiveLock : RowShareLock);
	AtEOXact_GUC(false, level);
	return t->target->valid;
}

/* One look at the row, as the owner, inside a subtransaction of the caller. */
static void
look(void *arg)
{
	TouchTry   *t = arg;
	TouchedRow *r = &t->row;

	ssw_identity_lock_timeout(t->patience_ms);
	ssw_spi_begin();
	if (read_row(t))
	{
		TimestampTz now = GetCurrentTimestamp();

		t->result = judge(t->policy, r, now);
		if (t->result == SSW_TOUCH_GONE)
			ssw_store_refute(&r->key);
		/* a heartbeat that is written is looked at twice */
		if (r->no_room && !t->write)
			ssw_store_count_refused();
		if (t->result == SSW_TOUCH_WRITE && t->write)
			write_row(t, now);
		else if (t->result == SSW_TOUCH_WRITE)
			r->defers = defers_updates(r->leaf);
	}
	ssw_spi_end();
}

/* What an error of the look means for the caller: nothing is known. */
static ErrorData *
explain(const TouchTry *t, ErrorData *e)
{
	if (e->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
	{
		e->message = "could not read the session's row: another transaction holds a lock on it";
		e->detail = psprintf("Policy \"%s\" waits at most %d ms for it.", t->policy->name, t->policy->lock_timeout_ms);
		e->hint = "The heartbeat did not count. The session is not gone: keep it and try again.";
	}
	else if (e->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE)
	{
		e->message = "could not read the session's row: others keep changing it";
		e->detail = NULL;
		e->hint = "The session is not gone: keep it and try again.";
	}
	else
		return e;
	e->context = e->internalquery = NULL;
	return e;
}

/* Is there more around this statement that its caller can undo it with? */
bool
ssw_slow_path_within_block(void)
{
	return IsTransactionBlock() || IsSubTransaction() || SPI_inside_nonatomic_context() ||
		(ActivePortal && (ActivePortal->commandTag == CMDTAG_DO || ActivePortal->commandTag == CMDTAG_CALL)) ||
		(MyXactFlags & XACT_FLAGS_PIPELINING);
}

/*
 * The row must be written, because memory cannot keep the heartbeat.  What may be
 * rolled back would not keep it either.
 */
static void
check_can_write(const TouchTry *t)
{
	const SswPolicy *p = t->policy;
	const TouchedRow *r = &t->row;
	SswHeartbeat b;

	if (!t->may_be_undone)
	{
		/* nor may the statements that follow in a pipeline undo it */
		MyXactFlags |= XACT_FLAGS_NEEDIMMEDIATECOMMIT;
		return;
	}
	if (!r->has_due && p->on_null == SSW_NULL_EXPIRE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot record heartbeat: the row has no deadline and policy \"%s\" treats that as expired", p->name),
				 errdetail("Inside a transaction block, or where errors are caught, a rollback would undo the write to its row."),
				 errhint("Send the first heartbeat of such a row outside a transaction block.")));
	if (!ssw_store_find(&r->key, &b))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot record heartbeat: memory for heartbeats is full"),
				 errdetail("Inside a transaction block, or where errors are caught, a rollback would undo the write to its row."),
				 errhint("The session is not gone: send heartbeats outside a transaction block, or raise \"session_sweeper.heartbeat_memory\" and restart.")));
	if (ssw_store_stopping())
		ereport(ERROR,
				(errcode(ERRCODE_CANNOT_CONNECT_NOW),
				 errmsg("cannot record heartbeat: the server is stopping, or has just started"),
				 errdetail("Inside a transaction block the write to its row would come too late, or be rolled back."),
				 errhint("The session is not gone: keep it and try again.")));
}

static bool
try_look(void *arg)
{
	TouchTry   *t = arg;

	t->result = SSW_TOUCH_NOTHING;
	if (t->write)
		check_can_write(t);
	if (!knows_names(t))
		return false;
	t->result = SSW_TOUCH_GONE;
	ssw_gate(t->policy->owner, t->policy->search_path, look, t);
	return t->result == SSW_TOUCH_WRITE && t->write;
}

/*
 * Look at the row in a subtransaction, which is kept only when it wrote the row.
 * Returns its error: a serialization failure means that somebody changed the row
 * meanwhile.
 */
static ErrorData *
look_once(TouchTry *t)
{
	ErrorData  *error = ssw_spi_try(try_look, t);

	if (error && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		ssw_store_spare(t->key, GetCurrentTimestamp());
	return error;
}

/*
 * The slow path: look at the row of that key, whose columns have those values, in that
 * shard if its table has some.
 * SSW_TOUCH_NOTHING: policies were altered since the target was read (A4), or its table;
 * and with an error, which the caller raises or reports: then nothing is known.
 */
SswTouch
ssw_slow_path_row(SswHeartbeatTarget *target, const SswHeartbeatKey *key, Oid shard, Datum *values, int patience_ms,
				  ErrorData **error)
{
	TouchTry	t = {.target = target,.policy = target->policy,.key = key,.shard = shard,.values = values,
		.patience_ms = Min(patience_ms, target->policy->lock_timeout_ms),.may_be_undone = ssw_slow_path_within_block()
	};
	TouchedRow *r = &t.row;

	for (int tries = 0;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (t.write && r->defers)
		{
			ssw_deferred_settle_callers(t.policy->owner);
			t.settled = true;
		}
		*error = look_once(&t);
		if (*error && (*error)->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE && ++tries < SERIALIZATION_TRIES)
			continue;
		if (*error)
		{
			ssw_counters_count(SSW_STAT_ERROR);
			*error = explain(&t, *error);
			return SSW_TOUCH_NOTHING;
		}
		if (t.result == SSW_TOUCH_NOTHING)
			return SSW_TOUCH_NOTHING;
		if (t.result != SSW_TOUCH_WRITE || t.write)
			break;
		/* two that share a row's lock could not both write it */
		t.write = true;
	}
	ssw_counters_count(t.result == SSW_TOUCH_GONE ? SSW_STAT_GONE : t.write ? SSW_STAT_WRITTEN : SSW_STAT_SLOW);
	/* a row without a deadline says nothing that memory would compare with */
	if (t.result == SSW_TOUCH_WRITE || (t.result == SSW_TOUCH_ALIVE && r->own && r->has_due))
		ssw_heartbeat_xact_prolong(&r->key, r->due, r->ttl_us, &r->due_to_others, !r->seen_by_others);
	if (ssw_shmem_policy_generation() != target->generation)
	{
		ssw_store_look(key);
		return SSW_TOUCH_NOTHING;
	}
	return t.result == SSW_TOUCH_WRITE ? SSW_TOUCH_ALIVE : t.result;
}
