/*
 * stats.c
 *		Set-returning functions behind the views.
 *
 * Run in the reader's session; copy what they need out of shared memory under
 * SswShared->lock and build rows afterwards.  They never read a user's table,
 * show nothing of a policy that the reader may not see, and return no rows when
 * the library was not preloaded.  A crash resets every counter.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/guc.h"
#include "base/notify.h"
#include "base/shmem.h"
#include "grace/service_log.h"
#include "heartbeat/counters.h"
#include "heartbeat/store.h"
#include "policy/policy_rights.h"
#include "process/brake.h"
#include "sweep/drain.h"
#include "work/work_state.h"

/* Slots that have been short for so long are worth telling. */
#define SLOTS_SHORT_US		(5 * USECS_PER_SEC)

PG_FUNCTION_INFO_V1(ssw_stat_process);
PG_FUNCTION_INFO_V1(ssw_stat_progress);
PG_FUNCTION_INFO_V1(ssw_stat_policy);
PG_FUNCTION_INFO_V1(ssw_stat_cluster);
PG_FUNCTION_INFO_V1(ssw_stat_database);
PG_FUNCTION_INFO_V1(ssw_stat_state);
PG_FUNCTION_INFO_V1(ssw_stat_reset);
PG_FUNCTION_INFO_V1(ssw_version);

static Datum
time_or_null(TimestampTz t, bool *isnull)
{
	*isnull = t == 0 || t == DT_NOEND;
	return TimestampTzGetDatum(t);
}

static Datum
text_or_null(const char *s, bool *isnull)
{
	*isnull = s == NULL || s[0] == '\0';
	return *isnull ? (Datum) 0 : CStringGetTextDatum(s);
}

static Datum
counts(const int64 *values, int n)
{
	Datum	   *d = palloc(n * sizeof(Datum));

	for (int i = 0; i < n; i++)
		d[i] = Int64GetDatum(values[i]);
	return PointerGetDatum(construct_array(d, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

static void *
copy_under_lock(const void *source, Size size)
{
	void	   *copy = palloc(size);

	LWLockAcquire(SswShared->lock, LW_SHARED);
	memcpy(copy, source, size);
	LWLockRelease(SswShared->lock);
	return copy;
}

/* The last bucket has no bound. */
static Datum
bounds(const double *values, int n)
{
	Datum	   *d = palloc((n + 1) * sizeof(Datum));

	for (int i = 0; i < n; i++)
		d[i] = Float8GetDatum(values[i]);
	d[n] = Float8GetDatum(get_float8_infinity());
	return PointerGetDatum(construct_array(d, n + 1, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/* Ids of this database's policies to which the caller has the right. */
static Bitmapset *
policies_with(SswRight right)
{
	List	   *all = ssw_policy_load_all();
	Bitmapset  *ids = NULL;
	ListCell   *lc;

	foreach(lc, all)
	{
		SswPolicy  *p = lfirst(lc);

		if (ssw_rights_have(p, right))
			ids = bms_add_member(ids, p->id);
	}
	return ids;
}

/*
 * _process(): one row for each of our processes in the server; what it works on only
 * where the reader may see the policy.
 */
Datum
ssw_stat_process(PG_FUNCTION_ARGS)
{
	static const char *const kinds[] = {"launcher", "coordinator", "worker", "worker"};
	static const char *const states[] = {"free", "starting", "idle", "busy"};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SswProc    *procs;
	Bitmapset  *visible;

	InitMaterializedSRF(fcinfo, 0);
	if (!ssw_shmem_available())
		return (Datum) 0;
	visible = policies_with(SSW_RIGHT_SEE);
	procs = copy_under_lock(SswProcs, SswShared->nprocs * sizeof(SswProc));
	for (int i = 0; i < SswShared->nprocs; i++)
	{
		SswProc    *p = &procs[i];
		Datum		v[8];
		bool		n[8] = {0};

		if (p->state == SSW_STATE_FREE)
			continue;
		v[0] = CStringGetTextDatum(kinds[p->kind]);
		v[1] = Int32GetDatum(p->pid);
		n[1] = p->pid == 0;
		v[2] = ObjectIdGetDatum(p->database);
		n[2] = !OidIsValid(p->database);
		v[3] = CStringGetTextDatum(states[p->state]);
		v[4] = Int32GetDatum(p->policy_id);
		n[4] = p->pass < 0 || p->database != MyDatabaseId || !bms_is_member(p->policy_id, visible);
		v[5] = Int64GetDatum(p->rows);
		v[6] = time_or_null(p->started_at, &n[6]);
		v[7] = time_or_null(p->state_since, &n[7]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
	}
	return (Datum) 0;
}

typedef struct Collected
{
	SswPolicyShared *entries;
	int			n;
	int			most;
} Collected;

static void
copy_entry(SswPolicyShared *s, void *arg)
{
	Collected  *c = arg;

	if (s->key.database == MyDatabaseId && c->n < c->most)
		c->entries[c->n++] = *s;
}

/* Entries of the policies of this database. */
static Collected
collect(void)
{
	Collected	c = {.most = ssw_max_policies + SSW_BUILTIN_POLICIES};

	c.entries = palloc_extended(c.most * sizeof(SswPolicyShared), MCXT_ALLOC_HUGE);
	ssw_shmem_policies_seq(LW_SHARED, copy_entry, &c);
	return c;
}

/* The running pass of a policy of this database, among all; or null. */
static const SswPass *
running(const SswPass *passes, int policy_id)
{
	for (int i = 0; i < SswShared->nprocs; i++)
		if (passes[i].in_use && passes[i].database == MyDatabaseId && passes[i].policy_id == policy_id)
			return &passes[i];
	return NULL;
}

/* _progress(): one row a policy of this database with a running pass, or with rows that are being worked off. */
Datum
ssw_stat_progress(PG_FUNCTION_ARGS)
{
	static const char *const phases[] = {"deadline", "maximum age", "nulls", "end"};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz now = GetCurrentTimestamp();
	SswPass    *passes;
	Collected	c;
	Bitmapset  *visible;

	InitMaterializedSRF(fcinfo, 0);
	if (!ssw_shmem_available())
		return (Datum) 0;
	visible = policies_with(SSW_RIGHT_SEE);
	passes = copy_under_lock(SswPasses, SswShared->nprocs * sizeof(SswPass));
	c = collect();
	for (int i = 0; i < c.n; i++)
	{
		SswPolicyShared *s = &c.entries[i];
		const SswPass *p = running(passes, s->key.policy_id);
		SswDrain	d = s->drain;
		Datum		v[18];
		bool		n[18] = {0};

		if ((p == NULL && d.since == 0) || !bms_is_member(s->key.policy_id, visible))
			continue;
		/* the last one's counts are not this pass's */
		if (d.since == 0)
			memset(&d, 0, sizeof(d));
		v[0] = Int32GetDatum(s->key.policy_id);
		v[1] = Int64GetDatum(p && p->pass_id != 0 ? p->pass_id : d.since != 0 ? s->last_pass_id : 0);
		n[1] = DatumGetInt64(v[1]) == 0;
		v[2] = CStringGetTextDatum(p ? phases[p->phase] : "waiting");
		v[3] = TimestampTzGetDatum(d.since != 0 ? d.since : p->started_at);
		v[4] = Int64GetDatum(d.expired + d.refreshed + d.repaired);
		v[5] = Int64GetDatum(d.left);
		n[5] = d.since == 0;
		v[6] = Float8GetDatum(d.since != 0 ? ssw_drain_rate(&d, now) : 0);
		v[7] = Float8GetDatum(d.pace);
		v[8] = BoolGetDatum(p && p->forced);
		v[9] = Int64GetDatum(d.expired);
		v[10] = Int64GetDatum(d.refreshed);
		v[11] = Int64GetDatum(d.repaired);
		v[12] = Int64GetDatum(d.failed);
		v[13] = Int64GetDatum(d.skipped);
		v[14] = Int64GetDatum(d.batches);
		v[15] = Int32GetDatum(p ? p->workers : 0);
		v[16] = ssw_interval_of(d.max_lag_us);
		v[17] = time_or_null(p && p->workers == 0 ? p->waits_since : 0, &n[17]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
	}
	return (Datum) 0;
}

/* The next column: a time, or null. */
static void
put_time(Datum *values, bool *nulls, int *k, TimestampTz t)
{
	values[*k] = time_or_null(t, &nulls[*k]);
	(*k)++;
}

/* _policy(): the coordinator's view and the counters of each policy. */
Datum
ssw_stat_policy(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Collected	c;
	Datum		duration_bounds;
	Datum		lag_bounds;
	Bitmapset  *visible;

	InitMaterializedSRF(fcinfo, 0);
	if (!ssw_shmem_available())
		return (Datum) 0;
	visible = policies_with(SSW_RIGHT_SEE);
	duration_bounds = bounds(ssw_duration_bounds, lengthof(ssw_duration_bounds));
	lag_bounds = bounds(ssw_lag_bounds, lengthof(ssw_lag_bounds));
	c = collect();
	for (int i = 0; i < c.n; i++)
	{
		SswPolicyShared *s = &c.entries[i];
		Datum		v[29];
		bool		n[29] = {0};
		int			k = 0;

		if (!bms_is_member(s->key.policy_id, visible))
			continue;
		v[k++] = Int32GetDatum(s->key.policy_id);
		n[k] = s->state == SSW_POLICY_UNKNOWN;
		v[k++] = s->state == SSW_POLICY_UNKNOWN ? (Datum) 0 : CStringGetTextDatum(ssw_brake_name(s->state));
		put_time(v, n, &k, s->last_look);
		put_time(v, n, &k, s->next_look);
		put_time(v, n, &k, s->oldest_due);
		put_time(v, n, &k, s->stats_since);
		v[k++] = Int64GetDatum(s->looks);
		v[k++] = Int64GetDatum(s->passes);
		v[k++] = Int64GetDatum(s->batches);
		v[k++] = Int64GetDatum(s->expired);
		v[k++] = Int64GetDatum(s->refreshed);
		v[k++] = Int64GetDatum(s->repaired);
		v[k++] = Int64GetDatum(s->failed);
		v[k++] = Int64GetDatum(s->skipped);
		v[k++] = Int64GetDatum(s->failed_passes);
		v[k++] = Int64GetDatum(s->fuse_trips);
		v[k++] = ssw_interval_of(s->max_lag_us);
		v[k++] = Float8GetDatum(s->busy_seconds);
		v[k++] = counts(s->duration_hist, SSW_DURATION_BUCKETS);
		v[k++] = Float8GetDatum(s->duration_sum);
		v[k++] = counts(s->lag_hist, SSW_LAG_BUCKETS);
		v[k++] = Float8GetDatum(s->lag_sum);
		v[k++] = counts(s->ended, SSW_END_TYPES);
		n[k] = s->last_pass_id == 0;
		v[k++] = Int64GetDatum(s->last_pass_id);
		put_time(v, n, &k, s->last_success);
		put_time(v, n, &k, s->locked ? s->blocked_since : 0);
		v[k++] = duration_bounds;
		v[k++] = lag_bounds;
		n[k] = s->state == SSW_POLICY_UNKNOWN || s->due_rows < 0;
		v[k++] = Int64GetDatum(s->due_rows);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
	}
	return (Datum) 0;
}

/* _state(): one row a policy that the reader may see. */
Datum
ssw_stat_state(PG_FUNCTION_ARGS)
{
	static const SswPolicyState brakes[] = {SSW_POLICY_PAUSED, SSW_POLICY_HELD, SSW_POLICY_FUSE, SSW_POLICY_BROKEN, SSW_POLICY_FAILING};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz now = GetCurrentTimestamp();
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, ssw_policy_load_all())
	{
		SswPolicy  *p = lfirst(lc);
		Datum		v[6];
		bool		n[6] = {0};
		Datum		on[lengthof(brakes)];
		int			non = 0;
		const char *reason;
		SswPolicyState state;
		SswPolicyShared found = {0};

		if (!ssw_rights_have(p, SSW_RIGHT_SEE))
			continue;
		for (int i = 0; i < lengthof(brakes); i++)
		{
			/* what is broken is not called failing as well */
			if (brakes[i] == SSW_POLICY_FAILING && ssw_brake_is_on(p, now, SSW_POLICY_BROKEN))
				continue;
			if (ssw_brake_is_on(p, now, brakes[i]))
				on[non++] = CStringGetTextDatum(ssw_brake_name(brakes[i]));
		}
		v[0] = Int32GetDatum(p->id);
		state = ssw_brake_state(p, now, &reason);
		v[1] = CStringGetTextDatum(ssw_brake_name(state));
		v[2] = text_or_null(reason, &n[2]);
		v[3] = PointerGetDatum(construct_array(on, non, TEXTOID, -1, false, TYPALIGN_INT));
		v[4] = text_or_null(ssw_brake_misfit(p), &n[4]);
		if (ssw_shmem_available())
			(void) ssw_shmem_read_policy(p->id, &found);
		v[5] = time_or_null(found.state == state ? found.state_since : 0, &n[5]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
	}
	return (Datum) 0;
}

/* _cluster(): one row about the whole. */
Datum
ssw_stat_cluster(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum		v[14] = {0};
	bool		n[14] = {0};

	InitMaterializedSRF(fcinfo, 0);
	v[0] = BoolGetDatum(ssw_shmem_available());
	v[1] = BoolGetDatum(ssw_enabled);
	v[2] = BoolGetDatum(RecoveryInProgress());
	v[6] = BoolGetDatum(ssw_guc_database_wanted(get_database_name(MyDatabaseId)));
	n[3] = n[4] = true;
	if (ssw_shmem_available())
	{
		int			launcher;
		bool		lasts;
		SswHeartbeatCounts store;
		int64		results[SSW_HEARTBEAT_STATS];

		ssw_counters_read(results);
		v[12] = counts(results, SSW_HEARTBEAT_STATS);
		ssw_store_counts(&store);
		v[7] = Int64GetDatum(store.used);
		v[8] = Int64GetDatum(store.most);
		v[9] = Int64GetDatum(store.refused);
		v[10] = time_or_null(store.full_since, &n[10]);
		/* each is read whole */
		launcher = SswShared->launcher;
		launcher = launcher >= 0 ? SswProcs[launcher].pid : 0;
		/* a parallel query may take the last slot for a moment */
		lasts = SswShared->no_slot_at - SswShared->no_slot_since >= SLOTS_SHORT_US;
		v[5] = time_or_null(lasts ? SswShared->no_slot_since : 0, &n[5]);
		v[11] = BoolGetDatum(ssw_shmem_policies_full());
		v[4] = time_or_null(ssw_service_began(), &n[4]);
		v[13] = Int64GetDatum(ssw_notify_skipped());
		v[3] = Int32GetDatum(launcher);
		n[3] = launcher == 0;
	}
	else
		n[5] = n[7] = n[8] = n[9] = n[10] = n[12] = n[13] = true;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
	return (Datum) 0;
}

/* _database(): one row a database that the launcher knows. */
Datum
ssw_stat_database(PG_FUNCTION_ARGS)
{
	static const char *const states[] = {"unknown", "absent", "present"};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	SswDatabase *databases;

	InitMaterializedSRF(fcinfo, 0);
	if (!ssw_shmem_available())
		return (Datum) 0;
	databases = copy_under_lock(SswShared->databases, sizeof(SswShared->databases));
	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &databases[i];
		SswWorkState work;
		Datum		v[5];
		bool		n[5] = {0};

		if (!OidIsValid(d->oid))
			continue;
		v[0] = ObjectIdGetDatum(d->oid);
		v[1] = CStringGetTextDatum(states[d->state]);
		v[2] = time_or_null(d->next_due, &n[2]);
		work = ssw_work_read(d->oid);
		v[3] = time_or_null(work.failing_since, &n[3]);
		/* errors of other databases are not shown here */
		v[4] = text_or_null(d->oid == MyDatabaseId ? work.error : "", &n[4]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
	}
	return (Datum) 0;
}

static void
reset_entry(SswPolicyShared *s, void *arg)
{
	if (s->key.database != MyDatabaseId || !bms_is_member(s->key.policy_id, arg))
		return;
	s->stats_since = GetCurrentTimestamp();
	s->looks = s->passes = s->batches = s->expired = s->refreshed = s->repaired = 0;
	s->failed = s->skipped = s->failed_passes = s->fuse_trips = s->max_lag_us = 0;
	s->busy_seconds = s->duration_sum = s->lag_sum = 0;
	memset(s->ended, 0, sizeof(s->ended));
	memset(s->duration_hist, 0, sizeof(s->duration_hist));
	memset(s->lag_hist, 0, sizeof(s->lag_hist));
}

/*
 * stat_reset(policy): counters of one policy; null means every policy that the
 * caller owns or administers.
 */
Datum
ssw_stat_reset(PG_FUNCTION_ARGS)
{
	Bitmapset  *ids;

	ssw_shmem_require();
	if (PG_ARGISNULL(0))
		ids = policies_with(SSW_RIGHT_ADMIN);
	else
		ids = bms_make_singleton(ssw_rights_policy(PG_GETARG_TEXT_PP(0), SSW_RIGHT_ADMIN)->id);
	ssw_shmem_policies_seq(LW_EXCLUSIVE, reset_entry, ids);
	PG_RETURN_VOID();
}

/* version() → library, sql, restart_needed. */
Datum
ssw_version(PG_FUNCTION_ARGS)
{
	TupleDesc	desc;
	Datum		v[2];
	bool		n[2] = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	v[0] = CStringGetTextDatum(SSW_VERSION);
	v[1] = BoolGetDatum(!ssw_shmem_available());
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), v, n)));
}
