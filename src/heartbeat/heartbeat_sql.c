/*
 * heartbeat_sql.c
 *		SQL functions heartbeat, touch, their _many forms, and attach.
 *
 * Run in clients' sessions.  A key's canonical text is made from the caller's, so
 * that every spelling reaches the same session.
 *
 * Shares the heartbeats (store.c).  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/guc.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "heartbeat/attach.h"
#include "heartbeat/heartbeat_sql.h"
#include "heartbeat/refusal.h"
#include "heartbeat/slow_path.h"
#include "heartbeat/xact.h"
#include "policy/policy_rights.h"
#include "policy/row_key.h"

PG_FUNCTION_INFO_V1(ssw_attach);
PG_FUNCTION_INFO_V1(ssw_heartbeat);
PG_FUNCTION_INFO_V1(ssw_heartbeat_many);
PG_FUNCTION_INFO_V1(ssw_last_heartbeat);
PG_FUNCTION_INFO_V1(ssw_touch);
PG_FUNCTION_INFO_V1(ssw_touch_many);

/* A shard that moves on so often while its row is looked at is not found. */
#define PLACE_TRIES	3

/* That policy, if the caller may send heartbeats to it. */
static SswHeartbeatTarget *
find_allowed(const char *name)
{
	SswHeartbeatTarget *t = ssw_target_cache_find(name);

	ssw_rights_check_rows(t->policy, ACL_UPDATE);
	return t;
}

/* A heartbeat for one row. */
typedef struct Touch
{
	const char *policy;
	SswHeartbeatTarget *t;
	Oid			type;			/* text, bigint or uuid; invalid: a session of
								 * the registry */
	Datum		key;			/* as the caller gave it */
	SswHeartbeatKey k;
	Datum		values[SSW_KEY_MAX];
	const SswShard *shard;		/* that has the row; null: it is in none */
} Touch;

/* A session of the registry, as memory knows it: nothing need be read for that. */
static SswHeartbeatKey
session_key(const pg_uuid_t *session)
{
	SswHeartbeatKey k = {.database = MyDatabaseId,.policy_id = SSW_SESSION_POLICY_ID};

	memcpy(&k.id, session, sizeof(k.id));
	return k;
}

static Touch
touch_of_session(const pg_uuid_t *session)
{
	return (Touch)
	{
		.policy = SSW_SESSION_POLICY,.k = session_key(session),.values =
		{
			UUIDPGetDatum(session)
		}
	};
}

/*
 * Types of keys are base types of the server, or enums: their input and output run nothing
 * of a user's.
 */
static void
parse(Touch *b)
{
	const SswHeartbeatTarget *t = b->t;

	/*
	 * what the caller gave is the column's value: to write and read its text
	 * is most of the work
	 */
	if (t->policy->nkeys == 1 && (b->type == t->types[0] || (b->type == TEXTOID && t->types[0] == VARCHAROID)))
		b->values[0] = b->key;
	else
		ssw_key_read(t->policy, ssw_key_text(1, &b->type, &b->key), t->types, t->input, t->ioparam, b->values);
	b->shard = t->shards ? ssw_shard_route->find(t->shards, b->values) : NULL;
	b->k = ssw_target_cache_value_key(t, b->shard ? b->shard->table : InvalidOid, b->values);
}

/* In a subtransaction: the policy as it is now, and the key as that reads it. */
static bool
prepare(void *arg)
{
	Touch	   *b = arg;

	b->t = OidIsValid(b->type) ? find_allowed(b->policy) : ssw_target_cache_find(b->policy);
	if (OidIsValid(b->type))
		parse(b);
	else
		ssw_refusal_check_registry();
	if (b->shard && !OidIsValid(b->shard->table))
		ssw_refusal_moving(b->t->policy);
	return true;
}

/* H1 to H3, C5: does memory say enough? */
static inline bool
is_known(const SswHeartbeatKey *k, TimestampTz now)
{
	return (ssw_store_touch(k, now) || (ssw_attach_leave(k, true) && ssw_store_touch(k, now))) && !ssw_store_stopping();
}

/* What the row says, looked at until the answer counts; or an error. */
static SswTouch
look(Touch *b, int patience_ms, ErrorData **error)
{
	for (;;)
	{
		SswTouch	result = SSW_TOUCH_NOTHING;

		/* what is read again holds its lock until this transaction ends */
		*error = ssw_spi_try(prepare, b);
		if (*error == NULL)
			result = ssw_slow_path_row(b->t, &b->k, b->shard ? b->shard->table : InvalidOid, b->values, patience_ms, error);
		if (*error || result != SSW_TOUCH_NOTHING)
			return result;
	}
}

/* One heartbeat; false: the session is gone. */
static bool
look_or_raise(Touch *b)
{
	ErrorData  *error;
	SswTouch	result = look(b, INT_MAX, &error);

	if (error && error->context)
		ReThrowError(error);
	if (error)
		ThrowErrorData(error);
	return result == SSW_TOUCH_ALIVE;
}

/* What memory says, or the row. */
static inline bool
is_alive(Touch *b)
{
	return is_known(&b->k, GetCurrentTimestamp()) || look_or_raise(b);
}

/*
 * The same for a row in a shard.  What memory says counts only if the shard is still here
 * afterwards: see citus/route.c.  Also that it says nothing: the row may have been
 * inserted after the shard has left.  false: the shard is on another node.
 */
static bool
is_alive_here(Touch *b, bool *alive)
{
	for (int tries = 0; tries < PLACE_TRIES; tries++)
	{
		if (!OidIsValid(b->shard->table))
			return false;
		*alive = is_alive(b);
		if (ssw_shard_route->is_here(b->shard) && b->t->valid)
			return true;
		/* the shards that this session has read are out of date */
		b->t->valid = false;
		b->t = find_allowed(b->policy);
		parse(b);
		if (b->shard == NULL)
			break;
	}
	ssw_refusal_moving(b->t->policy);
	return false;
}

/* A heartbeat for a row that is in a shard, wherever that is; here: not on another node. */
static bool
touch_shard(Touch *b, bool here)
{
	const char *text;
	bool		alive;
	bool		isnull;

	if (is_alive_here(b, &alive))
		return alive;
	if (here)
		ssw_refusal_moving(b->t->policy);
	text = ssw_key_text(b->t->policy->nkeys, b->t->types, b->values);

	alive = DatumGetBool(ssw_shard_route->ask(b->t->policy, "_touch_here", text, TEXTOID, CStringGetTextDatum(text), &isnull));
	return alive && !isnull;
}

/*
 * Heartbeats for many.  First those that memory knows, so that they do not wait for the rows
 * of others; then the rows of the rest.  When one is locked, the next are not
 * waited for: a call takes one lock_timeout, not one for each.
 */
typedef struct Many
{
	Touch		touch;
	Datum	   *keys;			/* or sessions */
	int			n;
	int			next;
	int		   *slow;			/* those whose rows must be looked at */
	int			nslow;
	bool		here;			/* rows on other nodes are not looked for */
	const SswShard **shards;	/* of those, by key; or null */
	MemoryContext cxt;			/* of one heartbeat */
	ReturnSetInfo *result;
} Many;

static void
begin_many(Many *m, FunctionCallInfo fcinfo, int arg, const char *name, Oid type)
{
	m->n = ssw_argument_elements(fcinfo, arg, name, type, &m->keys);
	InitMaterializedSRF(fcinfo, 0);
	m->result = (ReturnSetInfo *) fcinfo->resultinfo;
	m->slow = palloc(m->n * sizeof(int));
	m->cxt = AllocSetContextCreate(CurrentMemoryContext, "one heartbeat", ALLOCSET_DEFAULT_SIZES);
}

/* A heartbeat that was not confirmed: its session is gone, or nothing is known. */
static void
put_unconfirmed(const Many *m, int i, ErrorData *error)
{
	Datum		v[3];
	bool		isnull[3] = {false, false, error == NULL};

	if (error && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION &&
		error->sqlerrcode != ERRCODE_CANNOT_CONNECT_NOW)
		ReThrowError(error);
	v[0] = m->keys[i];
	v[1] = CStringGetTextDatum(error ? "unknown" : "gone");
	v[2] = error ? CStringGetTextDatum(error->message) : (Datum) 0;
	tuplestore_putvalues(m->result->setResult, m->result->setDesc, v, isnull);
}

/* In a subtransaction. */
static bool
raise_moving(void *arg)
{
	ssw_refusal_moving(arg);
	return false;
}

static void
look_at_slow(Many *m)
{
	int			patience_ms = INT_MAX;
	Touch	   *b = &m->touch;

	for (int i = 0; i < m->nslow; i++)
	{
		Datum		key = m->keys[m->slow[i]];
		MemoryContext old = MemoryContextSwitchTo(m->cxt);
		ErrorData  *error;
		SswTouch	result;

		CHECK_FOR_INTERRUPTS();
		if (OidIsValid(b->type))
			b->key = key;
		else
			*b = touch_of_session(DatumGetUUIDP(key));
		result = look(b, patience_ms, &error);
		/* what is known here counts only if the shard is still here */
		if (error == NULL && b->shard && !ssw_shard_route->is_here(b->shard))
			error = ssw_spi_try(raise_moving, b->t->policy);
		if (error && error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
			patience_ms = 1;
		if (error || result != SSW_TOUCH_ALIVE)
			put_unconfirmed(m, m->slow[i], error);
		MemoryContextSwitchTo(old);
		MemoryContextReset(m->cxt);
	}
	MemoryContextDelete(m->cxt);
}

static SswHeartbeatTarget *
target_of_call(FunctionCallInfo fcinfo, const char *function)
{
	SswHeartbeatTarget *t;

	ssw_argument_not_null(fcinfo, 0, "policy");
	ssw_argument_not_null(fcinfo, 1, strcmp(function, "sweeper.touch_many()") == 0 ? "keys" : "key");
	ssw_refusal_check_session(function);
	t = find_allowed(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	if (PG_NARGS() > 2)
		ssw_key_check_place(t->policy, fcinfo);
	return t;
}

/*
 * touch(policy, key): the key as text, bigint or uuid.  _touch_here(policy, key, place): the
 * key's row is on this node, or it is an error.
 */
Datum
ssw_touch(PG_FUNCTION_ARGS)
{
	Touch		b = {.t = target_of_call(fcinfo, "sweeper.touch()")};

	b.policy = pstrdup(b.t->policy->name);
	b.type = get_fn_expr_argtype(fcinfo->flinfo, 1);
	b.key = b.type == TEXTOID ? PointerGetDatum(PG_GETARG_TEXT_PP(1)) : PG_GETARG_DATUM(1);
	parse(&b);
	PG_RETURN_BOOL(b.shard ? touch_shard(&b, PG_NARGS() > 2) : is_alive(&b));
}

/* In a subtransaction, which a key that cannot be one ends: touch those that memory knows. */
static bool
touch_known(void *arg)
{
	Many	   *m = arg;
	Touch	   *b = &m->touch;

	MemoryContextSwitchTo(m->cxt);
	for (; m->next < m->n; m->next++)
	{
		CHECK_FOR_INTERRUPTS();
		b->key = m->keys[m->next];
		parse(b);
		if (b->shard && !OidIsValid(b->shard->table) && !m->here)
			m->shards[m->next] = b->shard;
		else if (!is_known(&b->k, GetCurrentTimestamp()) || (b->shard && !ssw_shard_route->is_here(b->shard)))
			m->slow[m->nslow++] = m->next;
		MemoryContextReset(m->cxt);
	}
	return false;
}

/* Heartbeats for rows that another node has. */
typedef struct Remote
{
	const SswPolicy *policy;
	const char *key;			/* of one of the rows, by which the node is
								 * found */
	bool		many;
	Datum		keys;			/* text[]; or one */
	Datum		answer;			/* text[], unconfirmed: key, state, message */
	bool		isnull;
} Remote;

/* In a subtransaction: one message. */
static bool
ask_node(void *arg)
{
	Remote	   *r = arg;

	r->answer = ssw_shard_route->ask(r->policy, r->many ? "_touch_many_here" : "_touch_here", r->key,
									 r->many ? TEXTARRAYOID : TEXTOID, r->keys, &r->isnull);
	return true;
}

/*
 * A row that this transaction has written is seen only by the connection that it was
 * written through, which the message for many may not have used: ask for it alone.
 */
static void
put_gone(Many *m, int i)
{
	Remote		r = {.policy = m->touch.t->policy,.key = TextDatumGetCString(m->keys[i]),.keys = m->keys[i]};
	ErrorData  *error = NULL;

	if (ssw_slow_path_within_block())
		error = ssw_spi_try(ask_node, &r);
	if (error || !DatumGetBool(r.answer))
		put_unconfirmed(m, i, error);
}

/* What a node has answered: those of its keys that it has not confirmed, in their order. */
static void
put_answer(Many *m, const int *of, int n, Datum answer)
{
	Datum	   *said;
	bool	   *nulls;
	int			nsaid;
	int			next = 0;

	deconstruct_array(DatumGetArrayTypeP(answer), TEXTOID, -1, false, TYPALIGN_INT, &said, &nulls, &nsaid);
	for (int i = 0; i + 2 < nsaid; i += 3)
	{
		const char *key = TextDatumGetCString(said[i]);

		while (next < n && strcmp(TextDatumGetCString(m->keys[of[next]]), key) != 0)
			next++;
		if (next == n)
			elog(ERROR, "a node answered for a key that it was not asked for");
		if (nulls[i + 2])
			put_gone(m, of[next++]);
		else
		{
			Datum		v[3] = {m->keys[of[next++]], said[i + 1], said[i + 2]};
			bool		isnull[3] = {false, false, false};

			tuplestore_putvalues(m->result->setResult, m->result->setDesc, v, isnull);
		}
	}
}

/* All keys whose rows are on the same node as that of the first. */
static void
touch_node(Many *m, int first)
{
	int		   *of = palloc(m->n * sizeof(int));
	Datum	   *keys = palloc(m->n * sizeof(Datum));
	int32		group = m->shards[first]->group;
	Remote		r = {.policy = m->touch.t->policy,.key = TextDatumGetCString(m->keys[first]),.many = true};
	ErrorData  *error;
	int			n = 0;

	for (int i = first; i < m->n; i++)
		if (m->shards[i] && m->shards[i]->group == group)
		{
			of[n] = i;
			keys[n++] = m->keys[i];
			m->shards[i] = NULL;
		}
	r.keys = PointerGetDatum(construct_array(keys, n, TEXTOID, -1, false, TYPALIGN_INT));
	error = ssw_spi_try(ask_node, &r);
	if (error && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	/* also that the node is being stopped concerns its keys only */
	if (error && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		error->sqlerrcode = ERRCODE_CONNECTION_FAILURE;
	for (int i = 0; i < n && error; i++)
		put_unconfirmed(m, of[i], error);
	if (error == NULL)
		put_answer(m, of, n, r.answer);
}

/*
 * touch_many(policy, keys): those that were not confirmed.  _touch_many_rows(policy, keys,
 * place): rows that are not on this node are unknown.
 */
Datum
ssw_touch_many(PG_FUNCTION_ARGS)
{
	Many		m = {.touch = {.t = target_of_call(fcinfo, "sweeper.touch_many()"),.type = TEXTOID},.here = PG_NARGS() > 2};

	m.touch.policy = pstrdup(m.touch.t->policy->name);
	begin_many(&m, fcinfo, 1, "keys", TEXTOID);
	m.shards = m.touch.t->shards ? palloc0(m.n * sizeof(SswShard *)) : NULL;
	while (m.next < m.n)
	{
		ErrorData  *error = ssw_spi_try(touch_known, &m);

		if (error)
			put_unconfirmed(&m, m.next++, error);
	}

	/*
	 * each look is a subtransaction, which Citus would begin and undo on the
	 * nodes that were asked, too
	 */
	look_at_slow(&m);
	for (int i = 0; i < m.n && m.shards; i++)
		if (m.shards[i])
			touch_node(&m, i);
	return (Datum) 0;
}

/* A heartbeat of a session; false: it is gone. */
bool
ssw_heartbeat_of(const pg_uuid_t *session)
{
	Touch		b = touch_of_session(session);

	return is_known(&b.k, GetCurrentTimestamp()) || look_or_raise(&b);
}

/* heartbeat(session). */
Datum
ssw_heartbeat(PG_FUNCTION_ARGS)
{
	ssw_argument_not_null(fcinfo, 0, "session");
	ssw_refusal_check_session("sweeper.heartbeat()");
	PG_RETURN_BOOL(ssw_heartbeat_of(PG_GETARG_UUID_P(0)));
}

/* heartbeat_many(sessions): those that were not confirmed. */
Datum
ssw_heartbeat_many(PG_FUNCTION_ARGS)
{
	TimestampTz now = GetCurrentTimestamp();
	Many		m = {.touch = {.policy = SSW_SESSION_POLICY}};

	ssw_argument_not_null(fcinfo, 0, "sessions");
	ssw_refusal_check_session("sweeper.heartbeat_many()");
	begin_many(&m, fcinfo, 0, "sessions", UUIDOID);
	for (int i = 0; i < m.n; i++)
	{
		SswHeartbeatKey k = session_key(DatumGetUUIDP(m.keys[i]));

		if (!is_known(&k, now))
			m.slow[m.nslow++] = i;
	}
	look_at_slow(&m);
	return (Datum) 0;
}

/* attach(session): a heartbeat, and from the commit on the session ends with this connection. */
Datum
ssw_attach(PG_FUNCTION_ARGS)
{
	Touch		b;
	SswHeartbeat entry;

	ssw_argument_not_null(fcinfo, 0, "session");
	ssw_refusal_check_session("sweeper.attach()");
	if (!ssw_allow_attach)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"session_sweeper.allow_attach\" is off"),
				 errhint("Heartbeats keep the session alive. To attach it, connect without a pooler and SET session_sweeper.allow_attach = on.")));
	b = touch_of_session(PG_GETARG_UUID_P(0));
	(void) ssw_attach_leave(&b.k, false);
	if (!is_known(&b.k, GetCurrentTimestamp()) && !look_or_raise(&b))
		PG_RETURN_BOOL(false);
	if (!ssw_store_find(&b.k, &entry))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not attach the session: the memory for heartbeats is full"),
				 errdetail("Attached sessions are kept in memory."),
				 errhint("Raise \"session_sweeper.heartbeat_memory\" and restart the server. The session is not gone: heartbeats keep it alive.")));
	ssw_heartbeat_xact_attach(&b.k);
	PG_RETURN_BOOL(true);
}

/* _last_heartbeat(session): as memory knows it, or null. */
Datum
ssw_last_heartbeat(PG_FUNCTION_ARGS)
{
	SswHeartbeatKey k = session_key(PG_GETARG_UUID_P(0));
	SswHeartbeat b;

	if (!ssw_shmem_available() || !ssw_store_find(&k, &b))
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(SSW_ENTRY_SEEN(pg_atomic_read_u64(&b.word)));
}
