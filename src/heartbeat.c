/*
 * heartbeat.c
 *		SQL functions heartbeat, touch, their _many forms, attach, and is_live.
 *
 * Run in clients' sessions.  Each session keeps the policies that it sends
 * heartbeats to, until policies or the relation change; a key's canonical text
 * is made from the caller's, so that every spelling reaches the same session.
 *
 * Shares the heartbeats (beats.c).  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rls.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/uuid.h"

#include "action.h"
#include "alive.h"
#include "failure.h"
#include "grace.h"
#include "heartbeat.h"
#include "identity.h"
#include "key.h"
#include "pending.h"
#include "rights.h"
#include "rowfacts.h"
#include "shmem.h"
#include "sql.h"
#include "stmt.h"
#include "touch.h"

PG_FUNCTION_INFO_V1(ssw_attach);
PG_FUNCTION_INFO_V1(ssw_heartbeat);
PG_FUNCTION_INFO_V1(ssw_heartbeat_many);
PG_FUNCTION_INFO_V1(ssw_last_heartbeat);
PG_FUNCTION_INFO_V1(ssw_session_is_live);
PG_FUNCTION_INFO_V1(ssw_touch);
PG_FUNCTION_INFO_V1(ssw_touch_many);
PG_FUNCTION_INFO_V1(ssw_is_live);

/* So often is an entry looked for that a heartbeat has just made. */
#define ATTACH_TRIES	3

/* A policy that this session sends heartbeats to. */
typedef struct Target
{
	struct Target *next;
	MemoryContext cxt;			/* of it and all it points to */
	SswPolicy  *policy;
	uint64		generation;		/* of the database's policies */
	bool		valid;			/* the relation is as it was */
	int			users;			/* looks at rows that have begun */
	bool		provisional;	/* this transaction may have altered it, and
								 * may yet be undone */
	Oid			types[SSW_KEY_MAX]; /* base types of the key's columns */
	Oid			ioparam[SSW_KEY_MAX];
	int32		typmod[SSW_KEY_MAX];	/* where a value's text depends on it */
	Oid			input[SSW_KEY_MAX];
} Target;

static Target *targets = NULL;

static void
on_relcache(Datum arg, Oid relid)
{
	for (Target *t = targets; t; t = t->next)
		if (!OidIsValid(relid) || t->policy->relid == relid)
			t->valid = false;
}

static uint64
generation_now(void)
{
	SswDatabase *d;
	uint64		generation;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MyDatabaseId, false);
	generation = d ? d->policy_generation : 0;
	LWLockRelease(SswShared->lock);
	return generation;
}

/* A heartbeat is refused, of one who might send it. */
static void
note_refused(const SswPolicy *p)
{
	if (get_rel_name(p->relid) != NULL && pg_class_aclcheck(p->relid, GetUserId(), ACL_UPDATE) == ACLCHECK_OK)
		ssw_shmem_note_refused(MyDatabaseId, p->id, GetCurrentTimestamp());
}

/* May heartbeats be sent to the policy at all? */
static void
check_policy(const SswPolicy *p)
{
	char	   *trouble;

	if (!p->heartbeats)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" takes no heartbeats", p->name),
				 errhint("SELECT sweeper.alter_policy(%s, heartbeats => true);", quote_literal_cstr(p->name))));
	trouble = ssw_policy_unusable(p);
	if (trouble)
		note_refused(p);
	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot send a heartbeat to policy \"%s\": %s", p->name, trouble),
				 errhint("The session is not gone: keep it. When that is right: SELECT sweeper.resume(%s);",
						 quote_literal_cstr(p->name))));
}

/*
 * Has this transaction altered the policy?  What it says then may yet be undone, and
 * the heartbeat would count by settings that never were.
 */
static void
refuse_altered(const SswPolicy *p)
{
	static const char *const sql = "SELECT xmin FROM sweeper.policy WHERE policy_id = $1";
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(p->id);
	SswIdentity save;
	bool		isnull;
	bool		altered;

	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	altered = ssw_plan_execute(sql, 1, &type, &value, NULL, false) > 0 &&
		TransactionIdIsCurrentTransactionId(DatumGetTransactionId(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull))) &&
		ssw_plan_execute_before(sql, FirstCommandId, 1, &type, &value) > 0;
	ssw_sql_end();
	ssw_identity_restore(&save);
	if (altered)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot send a heartbeat to policy \"%s\": this transaction has altered it", p->name),
				 errhint("The session is not gone: send the heartbeat after the commit.")));
}

/* How rows are read, and the types of the key. */
static void
read_relation(Target *t)
{
	SswPolicy  *p = t->policy;
	Relation	rel = table_open(p->relid, AccessShareLock);

	PG_TRY();
	{
		ssw_clock_build(p, rel);
	}
	PG_CATCH();
	{
		if (ssw_failure_is_misfit(geterrcode()))
			note_refused(p);
		PG_RE_THROW();
	}
	PG_END_TRY();
	for (int i = 0; i < p->nkeys; i++)
	{
		Oid			collation;

		get_atttypetypmodcoll(p->relid, get_attnum(p->relid, p->key[i]), &t->types[i], &t->typmod[i], &collation);
		t->types[i] = getBaseTypeAndTypmod(t->types[i], &t->typmod[i]);
		if (t->types[i] != BPCHAROID || p->nkeys == 1)
			t->typmod[i] = -1;
		getTypeInputInfo(t->types[i], &t->input[i], &t->ioparam[i]);
	}
	table_close(rel, NoLock);
}

static Target *
load(const char *name, uint64 generation)
{
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext, "heartbeat target", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Target	   *t = palloc0(sizeof(Target));

	/* what fails below leaves a context that the next try's error leaves too */
	MemoryContextSetParent(cxt, CurTransactionContext);
	t->cxt = cxt;
	t->generation = generation;
	t->provisional = ssw_shmem_changed_here();
	t->policy = ssw_policy_find(name, false);
	check_policy(t->policy);
	if (t->provisional)
		refuse_altered(t->policy);
	read_relation(t);
	t->valid = true;
	MemoryContextSetParent(cxt, TopMemoryContext);
	MemoryContextSwitchTo(old);
	return t;
}

/*
 * Forget a target.  The look at a row runs triggers, filters and row security, which
 * may send heartbeats, too: what a caller of ours still uses goes with the transaction.
 */
static void
drop(Target *t)
{
	for (Target **link = &targets; *link; link = &(*link)->next)
		if (*link == t)
		{
			*link = t->next;
			break;
		}
	if (t->users > 0)
		MemoryContextSetParent(t->cxt, TopTransactionContext);
	else
		MemoryContextDelete(t->cxt);
}

/*
 * The policy of that name.  One that this transaction may yet undo is not kept:
 * its changes are not announced.
 */
static Target *
find_target(const char *name)
{
	static bool registered = false;
	uint64		generation = generation_now();
	Target	   *t = targets;

	while (t && strcmp(t->policy->name, name) != 0)
		t = t->next;
	if (t && (!t->valid || t->generation != generation || t->provisional || ssw_shmem_changed_here()))
	{
		drop(t);
		t = NULL;
	}
	if (t == NULL)
	{
		if (!registered)
			CacheRegisterRelcacheCallback(on_relcache, (Datum) 0);
		registered = true;
		t = load(name, generation);
		t->next = targets;
		targets = t;
	}
	return t;
}

/* Who may write the rows may keep them alive. */
static void
check_rights(const SswPolicy *p, AclMode mode)
{
	AclResult	result = pg_class_aclcheck(p->relid, GetUserId(), mode);

	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_TABLE, get_rel_name(p->relid));
}

/* The key's text as the engine writes it; its columns' values go to values. */
static char *
canonical(const Target *t, const char *key, Datum *values)
{
	const SswPolicy *p = t->policy;
	StringInfoData sql;
	SswIdentity save;
	char	   *result;
	char	  **fields;
	MemoryContext cxt = CurrentMemoryContext;

	fields = ssw_key_fields(p, key);
	for (int i = 0; i < p->nkeys; i++)
		values[i] = OidInputFunctionCall(t->input[i], fields[i], t->ioparam[i], t->typmod[i]);
	if (p->nkeys == 1)
		switch (t->types[0])
		{
			case TEXTOID:
			case VARCHAROID:
				return fields[0];
			case UUIDOID:
				return DatumGetCString(DirectFunctionCall1(uuid_out, values[0]));
			case INT8OID:
				return psprintf(INT64_FORMAT, DatumGetInt64(values[0]));
			case INT4OID:
				return psprintf("%d", DatumGetInt32(values[0]));
		}
	initStringInfo(&sql);
	appendStringInfoString(&sql, p->nkeys > 1 ? "SELECT ROW(" : "SELECT (");
	for (int i = 0; i < p->nkeys; i++)
		appendStringInfo(&sql, "%s$%d", i ? ", " : "", i + 1);
	appendStringInfoString(&sql, ")::pg_catalog.text");
	/* only built-in output functions run here */
	ssw_identity_become_owner(GetUserId(), "pg_catalog, pg_temp", &save);
	ssw_identity_pin_text();
	ssw_sql_begin();
	ssw_plan_execute(sql.data, p->nkeys, (Oid *) t->types, values, NULL, true);
	result = MemoryContextStrdup(cxt, SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1));
	ssw_sql_end();
	ssw_identity_restore(&save);
	return result;
}

/* That policy, if the caller may send heartbeats to it. */
static Target *
find_allowed(const char *name)
{
	Target	   *t = find_target(name);

	check_rights(t->policy, ACL_UPDATE);
	return t;
}

/*
 * The slow path.  A4: false when the answer is worth nothing: policies were altered
 * meanwhile, perhaps this one, and perhaps it was that which we waited for.  A row
 * that row security hides is not there: that is no error, whatever the session wants
 * of statements of its own.
 */
static bool
look_at_row(Target *t, const SswBeatKey *k, Datum *values, bool secured, bool *alive)
{
	int			level = ssw_identity_pin("row_security", "on");

	/*
	 * after an error it stays in use, and goes with its transaction when it
	 * is dropped
	 */
	t->users++;
	*alive = ssw_touch_row(t->policy, t->policy->nkeys, t->types, values, secured);
	t->users--;
	AtEOXact_GUC(true, level);
	if (generation_now() == t->generation)
		return true;
	ssw_beats_look(k);
	return false;
}

/* One heartbeat; false: the session is gone.  *t may be another afterwards. */
static bool
touch(Target **t, const char *key)
{
	for (;;)
	{
		const SswPolicy *p = (*t)->policy;
		Datum		values[SSW_KEY_MAX];
		SswBeatKey	k = ssw_alive_key(p, canonical(*t, key, values));
		bool		secured = check_enable_rls(p->relid, InvalidOid, true) == RLS_ENABLED;
		bool		alive = true;

		if ((!secured && ssw_beats_touch(&k, GetCurrentTimestamp()) && !ssw_beats_stopping()) ||
			look_at_row(*t, &k, values, secured, &alive))
			return alive;
		*t = find_allowed(pstrdup(p->name));
	}
}

static Target *
target_of_call(FunctionCallInfo fcinfo, const char *function)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("policy must not be null")));
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", strcmp(function, "touch_many()") == 0 ? "keys" : "key")));
	ssw_touch_check(function);
	return find_allowed(text_to_cstring(PG_GETARG_TEXT_PP(0)));
}

/* touch(policy, key): the key as text, bigint or uuid. */
Datum
ssw_touch(PG_FUNCTION_ARGS)
{
	Target	   *t = target_of_call(fcinfo, "touch()");
	Oid			output;
	bool		varlena;

	getTypeOutputInfo(get_fn_expr_argtype(fcinfo->flinfo, 1), &output, &varlena);
	PG_RETURN_BOOL(touch(&t, OidOutputFunctionCall(output, PG_GETARG_DATUM(1))));
}

/* touch_many(policy, keys): those that are gone. */
Datum
ssw_touch_many(PG_FUNCTION_ARGS)
{
	Target	   *t = target_of_call(fcinfo, "touch_many()");
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "one heartbeat", ALLOCSET_DEFAULT_SIZES);
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Datum	   *keys;
	bool	   *nulls;
	int			n;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, -1, false, TYPALIGN_INT, &keys, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("keys must not contain nulls")));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < n; i++)
	{
		bool		isnull = false;
		MemoryContext old = MemoryContextSwitchTo(cxt);
		bool		alive;

		CHECK_FOR_INTERRUPTS();
		alive = touch(&t, TextDatumGetCString(keys[i]));
		MemoryContextSwitchTo(old);
		MemoryContextReset(cxt);
		if (!alive)
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &keys[i], &isnull);
	}
	MemoryContextDelete(cxt);
	return (Datum) 0;
}

/* A session of the registry, as memory knows it: nothing need be read for that. */
static SswBeatKey
session_key(const pg_uuid_t *session)
{
	SswBeatKey	k = {.database = MyDatabaseId,.policy_id = SSW_SESSION_POLICY_ID};

	memcpy(&k.id, session, sizeof(k.id));
	return k;
}

/* A heartbeat of a session that memory does not know, or not well enough. */
static bool
look_at_session(Datum session)
{
	SswBeatKey	k = session_key(DatumGetUUIDP(session));
	bool		alive;

	while (!look_at_row(find_target(SSW_SESSION_POLICY), &k, &session, false, &alive))
		;
	return alive;
}

/* A heartbeat of a session; false: it is gone. */
bool
ssw_heartbeat_of(const pg_uuid_t *session)
{
	SswBeatKey	k = session_key(session);

	return (ssw_beats_touch(&k, GetCurrentTimestamp()) && !ssw_beats_stopping()) || look_at_session(UUIDPGetDatum(session));
}

/* heartbeat(session). */
Datum
ssw_heartbeat(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("session must not be null")));
	ssw_touch_check("heartbeat()");
	PG_RETURN_BOOL(ssw_heartbeat_of(PG_GETARG_UUID_P(0)));
}

/* heartbeat_many(sessions): those that are gone. */
Datum
ssw_heartbeat_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz now = GetCurrentTimestamp();
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "one heartbeat", ALLOCSET_DEFAULT_SIZES);
	Datum	   *sessions;
	bool	   *nulls;
	int			n;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("sessions must not be null")));
	ssw_touch_check("heartbeat_many()");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), UUIDOID, UUID_LEN, false, TYPALIGN_CHAR, &sessions, &nulls, &n);
	for (int i = 0; i < n; i++)
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("sessions must not contain nulls")));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	for (int i = 0; i < n; i++)
	{
		SswBeatKey	k = session_key(DatumGetUUIDP(sessions[i]));
		bool		isnull = false;
		MemoryContext old;
		bool		alive;

		if (ssw_beats_touch(&k, now) && !ssw_beats_stopping())
			continue;
		CHECK_FOR_INTERRUPTS();
		old = MemoryContextSwitchTo(cxt);
		alive = look_at_session(sessions[i]);
		MemoryContextSwitchTo(old);
		MemoryContextReset(cxt);
		if (!alive)
			tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &sessions[i], &isnull);
		now = GetCurrentTimestamp();
	}
	MemoryContextDelete(cxt);
	return (Datum) 0;
}

/* There are entries, but none for the session. */
static void
memory_full(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not attach the session: the memory for heartbeats is full"),
			 errdetail("What is attached to a connection is kept in memory."),
			 errhint("Raise \"session_sweeper.heartbeat_memory\" and restart the server. The session is not gone: heartbeats keep it alive.")));
}

/* attach(session): a heartbeat, and from the commit on the session ends with this connection. */
Datum
ssw_attach(PG_FUNCTION_ARGS)
{
	SswBeatKey	k;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("session must not be null")));
	ssw_touch_check("attach()");
	k = session_key(PG_GETARG_UUID_P(0));

	/*
	 * between the heartbeat and the pin the entry may be given away, or the
	 * session end
	 */
	for (int tries = 0; tries < ATTACH_TRIES; tries++)
	{
		if ((!ssw_beats_touch(&k, GetCurrentTimestamp()) || ssw_beats_stopping()) &&
			!look_at_session(PG_GETARG_DATUM(0)))
			PG_RETURN_BOOL(false);
		if (ssw_pending_attach(&k))
			PG_RETURN_BOOL(true);
	}
	memory_full();
	PG_RETURN_BOOL(false);
}

/* _last_heartbeat(session): as memory knows it, or null. */
Datum
ssw_last_heartbeat(PG_FUNCTION_ARGS)
{
	SswBeatKey	k = session_key(PG_GETARG_UUID_P(0));
	SswBeat		b;

	if (!ssw_shmem_available() || !ssw_beats_find(&k, &b))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(SSW_BEAT_SEEN(pg_atomic_read_u64(&b.word)));
}

/* Does the row live at that time, by what it says and what memory knows? */
static bool
lives(SswPolicy *p, const SswRowFacts *r, TimestampTz now)
{
	TimestampTz cutoffs[2];
	SswBeatKey	k;
	SswBeat		b;

	if (!r->found || r->excluded)
		return false;
	ssw_grace_cutoffs(p, now, cutoffs);
	if (p->nclocks > 1 && r->has_due[1] && r->due[1] <= cutoffs[1] + p->keep_for_us)
		return false;
	if (!r->has_due[0] && p->on_null == SSW_NULL_EXPIRE)
		return false;
	if (!r->has_due[0] || r->in_grace || r->due[0] > cutoffs[0] + p->keep_for_us)
		return true;
	k = ssw_alive_key(p, r->key);
	return ssw_beats_find(&k, &b) && r->due[0] >= b.deadline &&
		SSW_BEAT_SEEN(pg_atomic_read_u64(&b.word)) + b.ttl_us > ssw_alive_cutoff(p, cutoffs[0] + p->keep_for_us, b.ttl_us);
}

/* May the caller see the row that the owner does?  Asked where row security may hide it. */
static bool
is_shown(const SswPolicy *p, SswRowFacts *r)
{
	Oid			types[] = {OIDOID, TIDOID};
	Datum		values[] = {ObjectIdGetDatum(r->leaf), PointerGetDatum(&r->tid)};
	char	   *sql = psprintf("SELECT FROM %s AS t WHERE t.tableoid " SSW_OP("=") " $1 AND t.ctid " SSW_OP("=") " $2",
							   ssw_stmt_relation(p->relid));
	int			level = ssw_identity_pin("row_security", "on");
	bool		shown;

	ssw_sql_begin();
	if (SPI_execute_with_args(sql, 2, types, values, NULL, true, 1) < 0)
		elog(ERROR, "statement failed: %s", sql);
	shown = SPI_processed > 0;
	ssw_sql_end();
	AtEOXact_GUC(true, level);
	return shown;
}

/* Does it live?  secured: what row security hides from the caller does not. */
static bool
is_live(SswPolicy *p, const char *key, bool secured)
{
	SswRowFacts r = {0};
	char	   *trouble = ssw_policy_unusable(p);

	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot look at a row of policy \"%s\": %s", p->name, trouble),
				 errhint("When that is right: SELECT sweeper.resume(%s);", quote_literal_cstr(p->name))));
	ssw_rowfacts_find(p, key, &r);
	if (r.trouble)
		ereport(ERROR,
				(errcode(r.locked ? ERRCODE_LOCK_NOT_AVAILABLE : r.done ? ERRCODE_INVALID_TEXT_REPRESENTATION :
						 ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot look at a row of policy \"%s\": %s", p->name, r.trouble)));
	return lives(p, &r, GetCurrentTimestamp()) && (!secured || is_shown(p, &r));
}

/* is_live(policy, key): is no heartbeat. */
Datum
ssw_is_live(PG_FUNCTION_ARGS)
{
	SswPolicy  *p;

	for (int i = 0; i < 2; i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("%s must not be null", i == 0 ? "policy" : "key")));
	ssw_shmem_require();
	p = ssw_policy_find(text_to_cstring(PG_GETARG_TEXT_PP(0)), false);
	check_rights(p, ACL_SELECT);
	PG_RETURN_BOOL(is_live(p, text_to_cstring(PG_GETARG_TEXT_PP(1)),
						   check_enable_rls(p->relid, InvalidOid, true) == RLS_ENABLED));
}

/* is_live(session): who knows the session may ask. */
Datum
ssw_session_is_live(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("session must not be null")));
	ssw_shmem_require();
	PG_RETURN_BOOL(is_live(ssw_policy_find(SSW_SESSION_POLICY, false),
						   DatumGetCString(DirectFunctionCall1(uuid_out, PG_GETARG_DATUM(0))), false));
}
