/*
 * target_cache.c
 *		Policies that this session sends heartbeats to.
 *
 * Runs in clients' sessions.  Each keeps what it has read of a policy and of its
 * relation's key until policies or the relation change.
 *
 * Shares the generation of the database's policies, under SswShared->lock.  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "policy/deadline.h"
#include "storage/sinval.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#include "base/shmem.h"
#include "heartbeat/refusal.h"
#include "heartbeat/target_cache.h"
#include "policy/row_key.h"

const SswShardRoute *ssw_shard_route = NULL;

static SswHeartbeatTarget *targets = NULL;

static void
on_relcache(Datum arg, Oid relid)
{
	for (SswHeartbeatTarget *t = targets; t; t = t->next)
		if (!OidIsValid(relid) || t->policy->relid == relid)
			t->valid = false;
}

/* The types of the key, which can have been altered since the policy was registered. */
static void
read_key(SswHeartbeatTarget *t)
{
	const SswPolicy *p = t->policy;

	for (int i = 0; i < p->nkeys; i++)
	{
		t->types[i] = getBaseType(get_atttype(p->relid, get_attnum(p->relid, p->key[i])));
		if (!ssw_key_is_canonical(t->types[i]))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("cannot send a heartbeat to policy \"%s\": column \"%s\" of its key has type %s now",
							p->name, p->key[i], format_type_be(t->types[i])),
					 errhint("The session is not gone: keep it. Give the policy a key of uuid, integer, bigint or text columns.")));
		getTypeInputInfo(t->types[i], &t->input[i], &t->ioparam[i]);
	}
}

/* How rows are read, and the types of the key. */
static void
read_relation(SswHeartbeatTarget *t)
{
	SswPolicy  *p = t->policy;
	Relation	rel = table_open(p->relid, NoLock);

	ssw_deadline_build(p, rel);
	read_key(t);
	t->shards = ssw_shard_route ? ssw_shard_route->load(p) : NULL;
	table_close(rel, NoLock);
}

/*
 * The policy of that name, if heartbeats may be sent to it, with the names that its
 * columns have under the lock of its relation, which the transaction keeps.
 */
static SswPolicy *
find_locked(const char *name)
{
	Oid			locked = InvalidOid;

	for (;;)
	{
		SswPolicy  *p = ssw_policy_find(name, false);

		ssw_refusal_check_policy(p);
		if (p->relid == locked)
			return p;
		ssw_refusal_lock_relation(p);
		if (p->as_of == SharedInvalidMessageCounter)
			return p;
		locked = p->relid;
	}
}

static SswHeartbeatTarget *
load(const char *name, uint64 generation)
{
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext, "heartbeat target", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SswHeartbeatTarget *t = palloc0(sizeof(SswHeartbeatTarget));

	/* what fails below leaves a context that the next try's error leaves too */
	MemoryContextSetParent(cxt, CurTransactionContext);
	t->cxt = cxt;
	t->generation = generation;
	t->policy = find_locked(name);
	read_relation(t);
	t->valid = true;
	MemoryContextSetParent(cxt, TopMemoryContext);
	MemoryContextSwitchTo(old);
	return t;
}

/*
 * Forget a target.  The look at a row runs triggers and filters, which may send heartbeats,
 * too: what the heartbeat around them still uses is freed with the transaction.
 */
static void
drop(SswHeartbeatTarget **link)
{
	SswHeartbeatTarget *t = *link;

	*link = t->next;
	MemoryContextSetParent(t->cxt, TopTransactionContext);
}

/* The policy of that name, as it is now. */
SswHeartbeatTarget *
ssw_target_cache_find(const char *name)
{
	static bool registered = false;
	uint64		generation = ssw_shmem_policy_generation();
	SswHeartbeatTarget **link = &targets;
	SswHeartbeatTarget *t;

	ssw_refusal_check_changes();
	while (*link && strcmp((*link)->policy->name, name) != 0)
		link = &(*link)->next;
	if (*link && (*link)->valid && (*link)->generation == generation)
		return *link;
	if (*link)
		drop(link);
	if (!registered)
		CacheRegisterRelcacheCallback(on_relcache, (Datum) 0);
	registered = true;
	t = load(name, generation);
	t->next = targets;
	targets = t;
	return t;
}

static SswHeartbeatKey
entry_key(const SswPolicy *p, Oid shard, SswHeartbeatId id)
{
	id.part[1] ^= shard;
	return (SswHeartbeatKey)
	{
		.id = id,.database = MyDatabaseId,.policy_id = p->id
	};
}

/* The key of a row's entry.  shard: the table that is its shard here, or invalid. */
SswHeartbeatKey
ssw_target_cache_key(const SswPolicy *p, Oid shard, const char *key)
{
	return entry_key(p, shard, ssw_key_heartbeat_id(p, key));
}

/* The same from the values of its columns. */
SswHeartbeatKey
ssw_target_cache_value_key(const SswHeartbeatTarget *t, Oid shard, const Datum *values)
{
	return entry_key(t->policy, shard, ssw_key_value_id(t->policy->nkeys, t->types, values));
}
