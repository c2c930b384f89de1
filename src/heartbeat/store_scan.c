/*
 * store_scan.c
 *		All heartbeats of a policy, or of a database.
 *
 * Runs in sessions that change policies, in coordinators, and in the session that drops a
 * database.  Visits every entry, a partition at a time under its lock (store.c).  A
 * crash empties memory.
 */
#include "postgres.h"

#include "heartbeat/attach.h"
#include "heartbeat/store_scan.h"

typedef struct Scan
{
	Oid			database;
	int			policy_id;		/* 0: all */
	SswHeartbeatScan what;
	bool		any;
} Scan;

static bool
visit(const SswHeartbeat *entry, void *arg)
{
	SswHeartbeat *b = unconstify(SswHeartbeat *, entry);
	Scan	   *s = arg;

	if (b->key.database != s->database || (s->policy_id != 0 && b->key.policy_id != s->policy_id))
		return false;
	s->any = true;
	if (s->what == SSW_SCAN_VOID)
		b->deadline = DT_NOBEGIN;
	(void) pg_atomic_fetch_or_u64(&b->word, SSW_ENTRY_LOOK);
	return s->what == SSW_SCAN_REMOVE;
}

/* Do that to the entries of a policy, by 0 of all policies.  False: there are none. */
bool
ssw_store_scan(Oid database, int policy_id, SswHeartbeatScan what)
{
	Scan		s = {.database = database,.policy_id = policy_id,.what = what};

	for (int i = 0; i < SSW_ENTRY_PARTITIONS; i++)
		ssw_store_visit(i, visit, &s, what != SSW_SCAN_LOOK);
	return s.any;
}

/* The database, or its extension, is gone or another: so are its policies. */
void
ssw_store_forget(Oid database)
{
	(void) ssw_store_scan(database, 0, SSW_SCAN_REMOVE);
	ssw_attach_forget(database);
}
