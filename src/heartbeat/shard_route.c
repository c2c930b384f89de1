/*
 * shard_route.c
 *		Where the row with a key is, if its table has shards.
 *
 * Runs in callers' sessions.  Memory knows a session of a shard by its
 * key and by the table that is the shard here.  That table is another one each time
 * that the shard comes to this node: so what memory knew of its sessions before the
 * shard left is never found again.
 *
 * Shares nothing.  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "heartbeat/shard_route.h"

const SswShardRoute *ssw_shard_route = NULL;

/* Nothing is known: what memory says here may be no longer true, or not for long. */
void
ssw_shard_route_moving(const SswPolicy *p)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not find the session's row of policy \"%s\": its shard is moving to another node", p->name),
			 errhint("The session is not gone: keep it and try again.")));
}
