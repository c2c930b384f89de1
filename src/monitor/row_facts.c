/*
 * row_facts.c
 *		What is known of one row of a policy, found by its key.
 *
 * Runs in the session of a caller who may see the policy.  The row is looked
 * up as the relation's owner, by key, inside a subtransaction that is rolled
 * back whatever happened in it: no lock and no effect of the owner's code stay
 * behind.  Who holds the row's lock is read from the tuple itself, so that
 * nothing is written and read-only transactions may ask too.
 *
 * Shares nothing, works without shared memory; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "grace/grace.h"
#include "monitor/row_facts.h"
#include "policy/deadline.h"
#include "policy/row_key.h"
#include "policy/sweep_sql.h"
#include "sweep/fuse_hold.h"
#include "sweep/row_holders.h"

/* The statement that finds the row in that table: $1 and $2 are the cutoff. */
static char *
row_statement(const SswPolicy *p, Oid table)
{
	const SswDeadline *c = &p->deadlines[0];
	const char *nothing = "NULL::pg_catalog.timestamptz";
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT t.tableoid, t.ctid, %s, %s, %s, ",
					 c->due, p->ndeadlines > 1 ? p->deadlines[1].due : nothing, c->seen ? c->seen : nothing);
	appendStringInfo(&buf, "%s IS NOT TRUE, (%s) IS NOT TRUE, %s, %s, (%s) IS FALSE FROM %s AS t WHERE ",
					 p->row_grace ? p->row_grace : "true", p->filter ? p->filter : "true", p->key_text,
					 p->group_text ? p->group_text : "NULL::pg_catalog.text", p->not_held ? p->not_held : "true",
					 ssw_guard_table(table));
	appendStringInfo(&buf, "%s LIMIT 1", ssw_key_matches(p, 3));
	return buf.data;
}

static TimestampTz
get_time(int col)
{
	return DatumGetTimestampTz(ssw_spi_column(0, col));
}

static char *
get_string(int col, MemoryContext cxt)
{
	char	   *s = ssw_spi_text(0, col);

	return s ? MemoryContextStrdup(cxt, s) : NULL;
}

/* What distinguishes a row without a key from another that takes its place; as the owner, in SPI. */
static char *
read_identity(const SswPolicy *p, const SswRowFacts *r, MemoryContext cxt)
{
	Oid			type = TIDOID;
	Datum		value = PointerGetDatum(&r->tid);

	ssw_spi_exec(psprintf("SELECT %s FROM ONLY %s AS t WHERE t.ctid " SSW_OP("=") " $1", ssw_sweep_sql_identity(p),
						  ssw_guard_table(r->leaf)), 1, &type, &value, NULL, true, 1);
	return SPI_processed > 0 ? get_string(1, cxt) : NULL;
}

typedef struct Lookup
{
	SswPolicy  *policy;
	const char *key;
	TimestampTz cutoff;
	SswRowFacts *facts;
	MemoryContext cxt;			/* of what is found */
} Lookup;

/* Look the row up. */
static void
look_up(void *arg)
{
	Lookup	   *l = arg;
	SswPolicy  *p = l->policy;
	SswRowFacts *r = l->facts;
	MemoryContext cxt = l->cxt;
	Oid			types[INDEX_MAX_KEYS + 2] = {TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[INDEX_MAX_KEYS + 2];
	Relation	rel;
	SswShardMap *shards;
	int			n;
	bool		isnull;
	char	   *unusable;

	ssw_identity_lock_timeout(p->lock_timeout_ms);
	rel = relation_open(p->relid, AccessShareLock);
	*p = *ssw_policy_present(p);
	unusable = ssw_policy_unusable(p);
	if (unusable)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE), errmsg_internal("%s", unusable)));
	ssw_deadline_build(p, rel);
	r->fits = true;
	if (ssw_shmem_available())
		ssw_grace_rows(p);
	ssw_fuse_load(p);
	values[0] = values[1] = TimestampTzGetDatum(l->cutoff);
	n = ssw_key_params(p, l->key, types + 2, values + 2);
	ssw_spi_begin();
	r->key = MemoryContextStrdup(cxt, ssw_key_text(n, types + 2, values + 2));
	shards = ssw_shard_route ? ssw_shard_route->load(p) : NULL;
	if (shards)
		r->shard = *ssw_shard_route->find(shards, values + 2);
	r->elsewhere = shards && !OidIsValid(r->shard.table);
	r->found = !r->elsewhere && ssw_spi_exec(row_statement(p, shards ? r->shard.table : p->relid), 2 + n, types, values, NULL, true, 1) > 0;
	if (r->found)
	{
		r->leaf = DatumGetObjectId(ssw_spi_column(0, 1));
		r->tid = *(ItemPointer) DatumGetPointer(ssw_spi_column(0, 2));
		for (int i = 0; i < 2; i++)
		{
			r->due[i] = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 3 + i, &isnull));
			r->has_due[i] = !isnull;
		}
		r->seen = get_time(5);
		r->in_grace = DatumGetBool(ssw_spi_column(0, 6));
		r->excluded = DatumGetBool(ssw_spi_column(0, 7));

		/* equal values can have other texts: the row's own is recorded */
		r->key = get_string(8, cxt);
		r->group = get_string(9, cxt);
		r->fused = DatumGetBool(ssw_spi_column(0, 10));
		r->holders = ssw_holders_of_row(r->leaf, &r->tid, cxt, NULL);
		r->locked = r->holders != (Datum) 0;
		if (p->nkeys == 0)
			r->identity = read_identity(p, r, cxt);
	}
	ssw_spi_end();
	relation_close(rel, NoLock);
	r->done = true;
}

/* What an error of the look-up means; false: it is the caller's to see. */
static bool
explain_error(const ErrorData *e, SswRowFacts *r)
{
	switch (ERRCODE_TO_CATEGORY(e->sqlerrcode))
	{
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'):	/* resources */
		case MAKE_SQLSTATE('5', '8', '0', '0', '0'):	/* system */
		case MAKE_SQLSTATE('X', 'X', '0', '0', '0'):	/* internal */
			return false;
	}
	if (e->sqlerrcode == ERRCODE_QUERY_CANCELED || ssw_trust_is_refusal(e))
		return false;
	if (e->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
		r->locked = true;
	/* a text that is no value of the key's type is no row's key */
	r->done = r->fits && r->key == NULL &&
		ERRCODE_TO_CATEGORY(e->sqlerrcode) == MAKE_SQLSTATE('2', '2', '0', '0', '0');
	r->found = false;
	return true;
}

static bool
try_look_up(void *arg)
{
	Lookup	   *l = arg;

	/* what is, not what was when the transaction or the statement began */
	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	ssw_gate(l->policy->owner, l->policy->search_path, look_up, l);
	PopActiveSnapshot();
	return false;
}

/*
 * Look the row up and undo everything that this did.  The caller made sure
 * that the relation is still the policy's.  The cutoff is that of a row in grace.
 */
void
ssw_row_facts_find(SswPolicy *p, const char *key, TimestampTz cutoff, SswRowFacts *r)
{
	Lookup		l = {.policy = p,.key = key,.cutoff = cutoff,.facts = r,.cxt = CurrentMemoryContext};
	ErrorData  *error = ssw_spi_try(try_look_up, &l);

	if (error && !explain_error(error, r))
		ReThrowError(error);
	if (error)
		r->trouble = error->message;
	if (r->key == NULL)
		r->key = pstrdup(key);
}

/* What is recorded of the row's failures, if it still is about this deadline. */
void
ssw_row_facts_failure(const SswPolicy *p, SswRowFacts *r)
{
	Oid			types[] = {INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, TEXTOID};
	Datum		values[6];
	char		nulls[7] = "      ";
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;

	values[0] = Int32GetDatum(p->id);
	values[1] = CStringGetTextDatum(r->key);
	for (int i = 0; i < 2; i++)
	{
		values[2 + i] = TimestampTzGetDatum(r->due[i]);
		nulls[2 + i] = r->has_due[i] ? ' ' : 'n';
	}
	nulls[4] = r->leaf == p->relid ? 'n' : ' ';
	values[4] = r->leaf == p->relid ? (Datum) 0 : CStringGetTextDatum(ssw_guard_relation(r->leaf));
	nulls[5] = r->identity ? ' ' : 'n';
	values[5] = r->identity ? CStringGetTextDatum(r->identity) : (Datum) 0;
	ssw_spi_begin_as_extension(&save);
	if (ssw_spi_exec("SELECT class, state = 'quarantined', attempts, next_attempt, message FROM sweeper.failed_row"
					 " WHERE policy_id = $1 AND key IN ($2, " SSW_KEY_HASH("$2") ")"
					 " AND (deadline IS NOT DISTINCT FROM $3 OR deadline = $4) AND partition IS NOT DISTINCT FROM $5"
					 " AND identity IS NOT DISTINCT FROM $6",
					 6, types, values, nulls, true, 1) > 0)
	{
		r->fail_class = get_string(1, cxt);
		r->quarantined = DatumGetBool(ssw_spi_column(0, 2));
		r->attempts = DatumGetInt32(ssw_spi_column(0, 3));
		r->next_attempt = get_time(4);
		r->message = get_string(5, cxt);
	}
	ssw_spi_end_as(&save);
}

/* The key's newest event in a span of time, plain or hashed; in SPI. */
static bool
find_end(const SswPolicy *p, SswRowFacts *r, TimestampTz from, TimestampTz until, MemoryContext cxt)
{
	Oid			types[] = {INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID};
	Datum		values[] = {Int32GetDatum(p->id), CStringGetTextDatum(r->key), TimestampTzGetDatum(from), TimestampTzGetDatum(until)};

	if (ssw_spi_exec("SELECT cleaned_at, deadline, last_seen, cleanup_type, reason FROM sweeper.cleanup_event"
					 " WHERE cleaned_at >= $3 AND cleaned_at < $4 AND policy_id = $1"
					 " AND key IN ($2, " SSW_KEY_HASH("$2") ")"
					 " ORDER BY cleaned_at DESC LIMIT 1",
					 4, types, values, NULL, true, 1) == 0)
		return false;
	r->ended_at = get_time(1);
	r->end_deadline = get_time(2);
	r->end_seen = get_time(3);
	r->cleanup_type = get_string(4, cxt);
	r->end_reason = get_string(5, cxt);
	return true;
}

/*
 * The newest event of the key's end.  The evidence is indexed by time only, so
 * what ended lately is found at once, and an unknown key reads all of it once.
 */
void
ssw_row_facts_end(const SswPolicy *p, SswRowFacts *r)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz edges[] = {DT_NOEND, now - USECS_PER_HOUR, now - USECS_PER_DAY, DT_NOBEGIN};
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;

	ssw_spi_begin_as_extension(&save);
	for (int i = 1; i < lengthof(edges); i++)
		if (find_end(p, r, edges[i], edges[i - 1], cxt))
			break;
	ssw_spi_end_as(&save);
}
