/*
 * store_scan.c
 *		All heartbeats of a policy, or of a database.
 *
 * Runs in sessions that change policies, in coordinators, and in the session that drops a
 * database.  Visits every entry, a partition at a time under its lock (store.c).  A
 * crash empties memory.
 */
#include "postgres.h"

#include "heartbeat/store_scan.h"

static bool
is_of_policy(const SswHeartbeat *b, void *arg)
{
	const SswHeartbeatKey *key = arg;

	return b->key.database == key->database && b->key.policy_id == key->policy_id;
}

/* The heartbeats of a policy, and whether there are any. */
typedef struct OfPolicy
{
	SswHeartbeatKey key;		/* without its id */
	bool		any;
} OfPolicy;

static bool
look_at_row(const SswHeartbeat *b, void *arg)
{
	OfPolicy   *of = arg;

	if (is_of_policy(b, &of->key))
	{
		(void) pg_atomic_fetch_or_u64(&unconstify(SswHeartbeat *, b)->word, SSW_ENTRY_LOOK);
		of->any = true;
	}
	return false;
}

/*
 * A2, or the policy was altered: heartbeats hold, but the next ones look at their
 * rows.  False: there are none.
 */
bool
ssw_store_look_all(Oid database, int policy_id)
{
	OfPolicy	of = {.key = {.database = database,.policy_id = policy_id}};

	for (int i = 0; i < SSW_ENTRY_PARTITIONS; i++)
		ssw_store_visit(i, look_at_row, &of, false);
	return of.any;
}

static bool
make_void(const SswHeartbeat *b, void *arg)
{
	if (is_of_policy(b, arg))
		unconstify(SswHeartbeat *, b)->deadline = DT_NOBEGIN;
	return false;
}

/* And what rows said of their deadlines before has another meaning now. */
void
ssw_store_void(Oid database, int policy_id)
{
	SswHeartbeatKey key = {.database = database,.policy_id = policy_id};

	for (int i = 0; i < SSW_ENTRY_PARTITIONS; i++)
		ssw_store_visit(i, make_void, &key, true);
	(void) ssw_store_look_all(database, policy_id);
}

/* The policy was unregistered. */
void
ssw_store_forget_policy(Oid database, int policy_id)
{
	SswHeartbeatKey key = {.database = database,.policy_id = policy_id};

	for (int i = 0; i < SSW_ENTRY_PARTITIONS; i++)
		ssw_store_visit(i, is_of_policy, &key, true);
}

static bool
is_of_database(const SswHeartbeat *b, void *arg)
{
	return b->key.database == *(Oid *) arg;
}

/* The database, or its extension, is gone or another: so are its policies. */
void
ssw_store_forget(Oid database)
{
	for (int i = 0; i < SSW_ENTRY_PARTITIONS; i++)
		ssw_store_visit(i, is_of_database, &database, true);
}
