/*
 * target_cache.h
 *		Policies that this session sends heartbeats to.
 */
#ifndef SSW_TARGET_CACHE_H
#define SSW_TARGET_CACHE_H

#include "policy/policy.h"
#include "policy/row_key.h"
#include "heartbeat/shard_route.h"
#include "heartbeat/store.h"

/* A policy that this session sends heartbeats to. */
typedef struct SswHeartbeatTarget
{
	struct SswHeartbeatTarget *next;
	MemoryContext cxt;			/* of it and all it points to */
	SswPolicy  *policy;
	uint64		generation;		/* of the database's policies */
	bool		valid;			/* the relation is as it was */
	Oid			types[SSW_KEY_MAX]; /* base types of the key's columns */
	Oid			ioparam[SSW_KEY_MAX];
	Oid			input[SSW_KEY_MAX];
	SswShardMap *shards;		/* null: the relation has none */
} SswHeartbeatTarget;

extern SswHeartbeatTarget *ssw_target_cache_find(const char *name);

extern SswHeartbeatKey ssw_target_cache_key(const SswPolicy *p, Oid shard, const char *key);
extern SswHeartbeatKey ssw_target_cache_value_key(const SswHeartbeatTarget *t, Oid shard, const Datum *values);

#endif							/* SSW_TARGET_CACHE_H */
