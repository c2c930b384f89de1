/*
 * disconnect.c
 *		End the sessions whose connections have gone.
 *
 * What attach.c posted, a pass of policy sweeper.session takes, in the worker that
 * is its collector, before it looks for other rows.  A post is only a key: whether
 * its session still is to end is in the session's entry, and asked under the row's
 * lock.  Posts stay until that is settled, so that none is lost when the policy
 * rests, the row is locked or the worker ends; when some found no room, all entries
 * are looked through.  The coordinator opens a pass for a new post at once, for
 * those that a pass has left ever more rarely.
 *
 * Shares the lists of databases, under SswShared->lock: connections append, the
 * collector alone takes away.  A crash empties them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/identity.h"
#include "base/spi.h"
#include "heartbeat/attach.h"
#include "policy/sweep_sql.h"
#include "registry/disconnect.h"
#include "registry/session.h"
#include "sweep/end_rows.h"

#define MAX_ROWS		1000

/* As the policy's own, but that the connection was there until memory's last word ($5: now). */
#define DISCONNECTED_SET \
	"status = 'expired', released_at = $5, ended_at = GREATEST(t.acquired_at, LEAST(t.ends_at," \
	" GREATEST(t.last_seen_at, sweeper._last_heartbeat(t.session))))\n"

/* Sessions that this worker is to end. */
typedef struct Disconnects
{
	int			n;
	int			size;
	SswHeartbeatId *ids;
	int			nposts;			/* the first are those of the list */
	bool		sought;			/* and then all that memory knows of */
	uint64		upto;
} Disconnects;

static SswHeartbeatKey
key_of(const SswHeartbeatId *id)
{
	SswHeartbeatKey k = {.id = *id,.database = MyDatabaseId,.policy_id = SSW_SESSION_POLICY_ID};

	return k;
}

static bool
collect_gone(const SswHeartbeat *b, void *arg)
{
	Disconnects *d = arg;

	if (b->key.database != MyDatabaseId || b->key.policy_id != SSW_SESSION_POLICY_ID ||
		(pg_atomic_read_u64(&unconstify(SswHeartbeat *, b)->word) & SSW_BEAT_GONE) == 0)
		return false;
	if (d->n < d->size)
		d->ids[d->n] = b->key.id;
	d->n++;
	return false;
}

/* Look through memory; where there is no room, once more with more. */
static void
seek(Disconnects *d)
{
	for (int i = 0; i < SSW_BEAT_PARTITIONS; i++)
	{
		int			before = d->n;

		for (;;)
		{
			ssw_store_visit(i, collect_gone, d, false);
			if (d->n <= d->size)
				break;
			d->size = d->n + d->n / 2;
			d->n = before;
			d->ids = repalloc_huge(d->ids, d->size * sizeof(SswHeartbeatId));
		}
	}
}

/* What is to be settled, in CurrentMemoryContext. */
static Disconnects *
take(void)
{
	Disconnects *d = palloc0(sizeof(Disconnects));
	SswDatabase *db;

	d->size = SSW_MAX_DISCONNECTED;
	d->ids = palloc(d->size * sizeof(SswHeartbeatId));
	LWLockAcquire(SswShared->lock, LW_SHARED);
	db = ssw_shmem_database(MyDatabaseId, false);
	if (db)
	{
		d->nposts = d->n = db->ndisconnected;
		memcpy(d->ids, db->disconnected, d->n * sizeof(SswHeartbeatId));
		d->upto = db->disconnects_lost;
		d->sought = d->upto > db->disconnects_sought;
	}
	LWLockRelease(SswShared->lock);
	if (d->sought)
		seek(d);
	return d;
}

/* Take away what is settled; new posts are behind those that were taken. */
static void
give_back(Disconnects *d)
{
	bool		open[SSW_MAX_DISCONNECTED];
	bool		any = false;
	SswDatabase *db;

	for (int i = 0; i < d->n; i++)
	{
		SswHeartbeatKey k = key_of(&d->ids[i]);
		bool		is_open = ssw_attach_is_gone(&k);

		if (i < d->nposts)
			open[i] = is_open;
		any = any || is_open;
	}
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	db = ssw_shmem_database(MyDatabaseId, false);
	if (db && db->ndisconnected >= d->nposts)
	{
		int			kept = 0;

		for (int i = 0; i < db->ndisconnected; i++)
			if (i >= d->nposts || open[i])
				db->disconnected[kept++] = db->disconnected[i];
		db->ndisconnected = kept;
		if (d->sought && !any)
			db->disconnects_sought = d->upto;
	}
	LWLockRelease(SswShared->lock);
}

static Datum
uuid_array(const SswHeartbeatId *ids, int n)
{
	Datum	   *d = palloc(n * sizeof(Datum));

	for (int i = 0; i < n; i++)
		d[i] = PointerGetDatum(&ids[i]);
	return PointerGetDatum(construct_array(d, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
}

/* Of sessions whose rows were not found, those that have ended need no more thought. */
static void
settle_ended(Datum sessions)
{
	Oid			type = UUIDARRAYOID;

	ssw_spi_exec("SELECT g.session FROM pg_catalog.unnest($1) AS g (session) WHERE NOT EXISTS (SELECT FROM sweeper.session AS s"
				 " WHERE s.session OPERATOR(pg_catalog.=) g.session AND s.status OPERATOR(pg_catalog.=) 'active')",
				 1, &type, &sessions, NULL, false, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		bool		isnull;
		SswHeartbeatId *id = (SswHeartbeatId *) DatumGetUUIDP(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
		SswHeartbeatKey k = key_of(id);

		ssw_attach_not_gone(&k);
	}
}

/*
 * In a batch: find and lock the rows, and end those that are to; not before the
 * pass is on record, which takes a transaction of its own: then 0, and *again.
 */
static int64
end_sessions(SswWork *w, const SswHeartbeatId *ids, int n, bool *again)
{
	SswPolicy	p = *w->policy;
	SswEnd		e = {.type = SSW_DISCONNECTED,.phase = SSW_PHASE_MANUAL,.cutoff = GetCurrentTimestamp(),
		.skip_locked = true,.gone = true,.pass = w->pass->pass_id
	};
	SswFound   *found = ssw_end_begin();
	Oid			type = UUIDARRAYOID;
	Datum		sessions = uuid_array(ids, n);
	SswIdentity save;

	p.set_clause = DISCONNECTED_SET;
	ssw_action_lock_leaf(&p, p.relid, RowExclusiveLock);
	ssw_identity_become_owner(p.owner, p.search_path, &save);
	ssw_spi_begin();
	ssw_end_find(found, &p, &e, "t.session " SSW_OP("=") " ANY ($1)", 1, &type, &sessions);
	if (ssw_end_count(found) < n)
		settle_ended(sessions);
	ssw_spi_end();
	ssw_identity_restore(&save);
	*again = e.pass == 0 && ssw_end_count(found) > 0;
	return *again ? 0 : ssw_end_found(found, &p, &e);
}

static void
count(SswWork *w, int64 rows)
{
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	w->pass->expired += rows;
	w->pass->batches++;
	w->pass->progress_at = GetCurrentTimestamp();
	s = ssw_shmem_policy(MyDatabaseId, w->policy->id, true);
	if (s)
	{
		s->expired += rows;
		s->batches++;
	}
	LWLockRelease(SswShared->lock);
	MySswProc->rows += rows;
	w->succeeded += rows;
}

/* Put the pass on record; false: it must end. */
static bool
open_pass(SswWork *w)
{
	bool		may = ssw_batch_begin(w);

	if (may)
		ssw_batch_open_pass(w);
	ssw_batch_end(w, NULL, 0, 0, 0, 0);
	return may;
}

/* One transaction, or one before for the pass; false leaves its error in w->error. */
static bool
run_together(SswWork *w, const SswHeartbeatId *ids, int n)
{
	volatile bool ok = false;

	MemoryContextReset(w->batch_cxt);
	MemoryContextSwitchTo(w->batch_cxt);
	PG_TRY();
	{
		int64		rows = 0;
		bool		again;

		for (again = true; again;)
		{
			again = false;
			if (ssw_batch_begin(w))
			{
				MemoryContextSwitchTo(w->batch_cxt);
				rows = end_sessions(w, ids, n, &again);
			}
			ssw_batch_end(w, NULL, 0, 0, 0, 0);
			if (again)
				again = open_pass(w);
		}
		if (rows > 0)
			count(w, rows);
		ok = true;
	}
	PG_CATCH();
	{
		ssw_batch_save_error(w);
	}
	PG_END_TRY();
	return ok;
}

/*
 * Sessions together, or in halves.  What fails alone stays posted; when its time to
 * live is over a pass finds it dead, and records why it cannot be ended.  False:
 * none will go now.
 */
static bool
run(SswWork *w, const SswHeartbeatId *ids, int n)
{
	if (n == 0 || ssw_batch_must_stop(w))
		return true;
	if (run_together(w, ids, n))
		return true;
	if (ssw_error_classify(w->error->sqlerrcode) != SSW_FAIL_ROW || n == 1)
	{
		ereport(LOG,
				(errcode(w->error->sqlerrcode),
				 errmsg("could not end a session whose connection has gone: %s", w->error->message),
				 errdetail("It is tried again.")));
		return n == 1 && ssw_error_classify(w->error->sqlerrcode) == SSW_FAIL_ROW;
	}
	return run(w, ids, n / 2) && run(w, ids + n / 2, n - n / 2);
}

/*
 * Sessions of the registry that end with their connections end now, whatever else
 * is due.  The caller is the pass's collector; what is needed beyond a transaction
 * goes to cxt.
 */
void
ssw_disconnect_work(SswWork *w, MemoryContext cxt)
{
	uint64		posts;
	Disconnects *d;
	int			rows = Min(MAX_ROWS, ssw_batch_rows(w));

	if (w->policy->id != SSW_SESSION_POLICY_ID || !ssw_attach_is_posted(&posts))
		return;
	MemoryContextSwitchTo(cxt);
	d = take();
	for (int i = 0; i < d->n && run(w, d->ids + i, Min(rows, d->n - i)); i += rows)
		CHECK_FOR_INTERRUPTS();
	w->error = NULL;
	give_back(d);
	MemoryContextSwitchTo(cxt);
}
