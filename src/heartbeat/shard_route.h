/*
 * shard_route.h
 *		Where the row with a key is, if its table has shards.
 *
 * For callers' sessions.  Memory knows a session of a shard by its key and by the table
 * that is the shard here.  That table is another one each time that the shard comes to
 * this node: so what memory knew of its sessions before the shard left is never found
 * again.
 */
#ifndef SSW_SHARD_ROUTE_H
#define SSW_SHARD_ROUTE_H

#include "policy/policy.h"

/* A shard. */
typedef struct SswShard
{
	int64		id;
	int32		group;			/* number of the node with its rows */
	Oid			table;			/* invalid: its rows are on another node */
} SswShard;

typedef struct SswShardMap SswShardMap;

/* Filled in by citus/. */
typedef struct SswShardRoute
{
	SswShardMap *(*load) (const SswPolicy *p);	/* null: it has none */
	const SswShard *(*find) (const SswShardMap *map, const Datum *values);	/* of the key's columns */
	bool		(*is_here) (const SswShard *shard); /* now, and nobody is
													 * moving it away */
	void		(*check_rights) (const SswPolicy *p);	/* an error if the
														 * caller may not query
														 * the table for the
														 * rows of others */

	/*
	 * function(policy, arg, place) on the node that has the key's row, as the
	 * caller
	 */
	Datum		(*ask) (const SswPolicy *p, const char *function, const char *key, Oid type, Datum arg, bool *isnull);
} SswShardRoute;

extern const SswShardRoute *ssw_shard_route;	/* in target_cache.c */

#endif							/* SSW_SHARD_ROUTE_H */
