/*
 * disconnect.c
 *		End the sessions whose connections have gone.
 *
 * Runs in the worker that is the collector of a pass of policy sweeper.session, before
 * it looks for other rows.  attach.c posts the keys of such sessions.  A post is only a
 * hint: the session's entry in memory says whether it still is to end, and is read under
 * the row's lock.  A post stays until that is settled, also when the policy is paused,
 * the row is locked or the worker ends.  The coordinator opens a pass for a new post at
 * once, and ever more rarely for posts that a pass has left.
 *
 * Shares nothing itself.  A crash loses the posts: then such sessions end when their
 * time to live is over.
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
#include "policy/policy_hooks.h"
#include "registry/disconnect.h"
#include "registry/session.h"
#include "sweep/batch.h"
#include "sweep/drain.h"
#include "sweep/end_rows.h"

#define MAX_ROWS		1000

/* As the policy's own, but that the connection was there until memory's last word ($5: now). */
#define DISCONNECTED_SET \
	"status = 'expired', released_at = $5, ended_at = GREATEST(t.acquired_at, LEAST(t.ends_at," \
	" GREATEST(t.last_seen_at, sweeper._last_heartbeat(t.session))))\n"

static Datum
uuid_array(const SswHeartbeatKey *keys, int n)
{
	Datum	   *d = palloc(n * sizeof(Datum));

	for (int i = 0; i < n; i++)
		d[i] = PointerGetDatum(&keys[i].id);
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
		pg_uuid_t  *session = DatumGetUUIDP(ssw_spi_column(i, 1));
		SswHeartbeatKey k = {.database = MyDatabaseId,.policy_id = SSW_SESSION_POLICY_ID};

		memcpy(&k.id, session, UUID_LEN);
		ssw_attach_not_gone(&k);
	}
}

/* In a batch: find and lock the rows, and end those that are to. */
static int64
end_sessions(SswWork *w, const SswHeartbeatKey *keys, int n)
{
	SswPolicy	p = *w->policy;
	SswEnd		e = {.type = SSW_DISCONNECTED,.phase = SSW_PHASE_MANUAL,.cutoff = GetCurrentTimestamp(),
		.skip_locked = true,.gone = true,.pass = w->pass->pass_id
	};
	SswFound   *found = ssw_end_begin();
	Oid			type = UUIDARRAYOID;
	Datum		sessions = uuid_array(keys, n);
	SswIdentity save;

	p.set_clause = DISCONNECTED_SET;
	ssw_action_lock_leaf(&p, p.relid, RowExclusiveLock);
	ssw_spi_begin_as_owner(p.owner, p.search_path, &save);
	ssw_end_find(found, &p, &e, "t.session " SSW_OP("=") " ANY ($1)", 1, &type, &sessions);
	if (ssw_end_count(found) < n)
		settle_ended(sessions);
	ssw_spi_end_as(&save);
	return ssw_end_found(found, &p, &e);
}

static void
count(SswWork *w, int64 rows)
{
	SswDrain	handled = {.expired = rows,.batches = 1};
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	w->pass->expired += rows;
	w->pass->batches++;
	s = ssw_shmem_policy(MyDatabaseId, w->policy->id, true);
	if (s)
	{
		ssw_drain_handled(s, &handled);
		s->expired += rows;
		s->batches++;
	}
	LWLockRelease(SswShared->lock);
	MySswProc->rows += rows;
	w->succeeded += rows;
}

/* Run a batch; the rows that ended. */
static int64
run_batch(SswWork *w, const SswHeartbeatKey *keys, int n)
{
	int64		rows = 0;

	if (ssw_batch_begin(w))
	{
		MemoryContextSwitchTo(w->batch_cxt);
		rows = end_sessions(w, keys, n);
	}
	ssw_batch_end(w, NULL, 0, 0, 0, 0);
	return rows;
}

/* End the sessions in one transaction; false leaves its error in w->error. */
static bool
run_together(SswWork *w, const SswHeartbeatKey *keys, int n)
{
	volatile bool ok = false;

	MemoryContextReset(w->batch_cxt);
	MemoryContextSwitchTo(w->batch_cxt);
	PG_TRY();
	{
		int64		rows;

		if (w->pass->pass_id == 0)
			ssw_batch_open_pass(w);
		rows = run_batch(w, keys, n);
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
run(SswWork *w, const SswHeartbeatKey *keys, int n)
{
	if (n == 0 || ssw_batch_must_stop(w))
		return true;
	if (run_together(w, keys, n))
		return true;
	if (ssw_error_classify(w->error->sqlerrcode) != SSW_FAIL_ROW || n == 1)
	{
		ereport(LOG,
				(errcode(w->error->sqlerrcode),
				 errmsg("could not end a session whose connection has closed: %s", w->error->message),
				 errdetail("It is tried again.")));
		return n == 1 && ssw_error_classify(w->error->sqlerrcode) == SSW_FAIL_ROW;
	}
	return run(w, keys, n / 2) && run(w, keys + n / 2, n - n / 2);
}

/*
 * Sessions of the registry that end with their connections end now, whatever else
 * is due.
 */
static void
end_disconnected(SswWork *w, MemoryContext cxt)
{
	SswHeartbeatKey *keys;
	uint64		last;
	int			n;
	int			rows = ssw_min(MAX_ROWS, ssw_batch_rows(w));

	if (ssw_attach_posted(NULL, &last) == 0)
		return;
	MemoryContextSwitchTo(cxt);
	keys = palloc(SSW_MAX_DISCONNECTED * sizeof(SswHeartbeatKey));
	n = ssw_attach_posted(keys, &last);
	for (int i = 0; i < n && run(w, keys + i, Min(rows, n - i)); i += rows)
		CHECK_FOR_INTERRUPTS();
	w->error = NULL;
	ssw_attach_settle(keys, n);
	MemoryContextSwitchTo(cxt);
}

static SswPolicyHooks hooks = {.policy_id = SSW_SESSION_POLICY_ID,.before_collect = end_disconnected};

void
ssw_disconnect_init(void)
{
	ssw_policy_hooks_add(&hooks);
}
