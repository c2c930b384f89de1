/*
 * refusal.c
 *		Heartbeats that are refused before the row is read.
 *
 * Runs in clients' sessions.  A refusal is an error: the session is not gone, and its
 * client keeps it.  Refusals that depend on the row are in slow_path.c.
 *
 * Shares the counters (counters.c).  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"

#include "base/shmem.h"
#include "base/spi.h"
#include "heartbeat/counters.h"
#include "heartbeat/policy_xact.h"
#include "heartbeat/refusal.h"

#define LOCK_LOOK_MS	10

/* Heartbeats need a transaction that can write. */
void
ssw_refusal_check_session(const char *function)
{
	ssw_shmem_require();
	ssw_spi_refuse_read_only(function);
}

/* May heartbeats be sent to the policy at all? */
void
ssw_refusal_check_policy(const SswPolicy *p)
{
	char	   *trouble;

	if (!p->heartbeats)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" takes no heartbeats", p->name),
				 errhint("SELECT sweeper.alter_policy(%s, heartbeats => true%s);", quote_literal_cstr(p->name),
						 p->ttl_us || p->ttl_column ? "" : ", ttl => '30 min'")));
	trouble = ssw_policy_unusable(p);
	if (trouble)
		ssw_counters_count(SSW_STAT_ERROR);
	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot send a heartbeat to policy \"%s\": %s", p->name, trouble),
				 errhint("The session is not gone: keep it. SELECT next_step FROM sweeper.policy_status WHERE policy = %s;", quote_literal_cstr(p->name))));
}

/*
 * Has this transaction changed policies?  That may yet be undone, and the heartbeat would
 * count by settings that never were.
 */
void
ssw_refusal_check_changes(void)
{
	if (ssw_policy_xact_any())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot send a heartbeat in a transaction that has changed policies"),
				 errhint("The session is not gone: send the heartbeat after the commit.")));
}

/* Lock the relation, within the policy's patience. */
void
ssw_refusal_lock_relation(const SswPolicy *p)
{
	int			waited_ms = 0;

	while (!ConditionalLockRelationOid(p->relid, AccessShareLock))
	{
		CHECK_FOR_INTERRUPTS();
		if (waited_ms >= p->lock_timeout_ms)
		{
			ssw_counters_count(SSW_STAT_ERROR);
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("could not read the session's row: another transaction holds a lock on its table"),
					 errdetail("Policy \"%s\" waits at most %d ms for it.", p->name, p->lock_timeout_ms),
					 errhint("The heartbeat did not count. The session is not gone: keep it and try again.")));
		}
		pg_usleep(LOCK_LOOK_MS * 1000L);
		waited_ms += LOCK_LOOK_MS;
	}
}

/* A session that is not here: if none ever was on this node of a cluster, it is another node's. */
void
ssw_refusal_check_registry(void)
{
	if (ssw_policy_follows() && ssw_spi_exec_as_extension("SELECT FROM sweeper.fence_seq WHERE is_called", 0, NULL, NULL, NULL, true) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this node of the cluster has never had a pool or a worker"),
				 errdetail("A session is on the node that has its pool."),
				 errhint("The session is not gone: keep it. Connect to the node with its pool, by default the coordinator of the cluster.")));
}

/* The row's shard leaves this node.  Nothing is known: what memory says here may be no longer true, or not for long. */
void
ssw_refusal_moving(const SswPolicy *p)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not find the session's row of policy \"%s\": its shard is moving to another node", p->name),
			 errhint("The session is not gone: keep it and try again.")));
}
