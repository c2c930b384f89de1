/*
 * partition.h
 *		The leaves of a policy.
 */
#ifndef SSW_PARTITION_H
#define SSW_PARTITION_H

#include "policy/policy.h"

/* Tables whose rows are elsewhere, in shards.  Filled in by citus/. */
typedef struct SswShards
{
	bool		(*has) (Oid relid); /* is it such a table? */
	bool		(*find) (Oid relid, List **shards); /* false: no such table */
	Oid			(*hold) (Oid leaf); /* its table, as long as the transaction
									 * lasts; or invalid */
	bool		(*is_moving) (Oid leaf);	/* hold() would wait */
	void		(*check) (const SswPolicy *p);	/* an error if it cannot be
												 * swept */
	char	   *(*misfit) (const SswPolicy *p, char **next_step);	/* the same later: why,
																	 * and what to do; or
																	 * null */
	TimestampTz (*share) (uint64 generation, TimestampTz now);	/* between rounds of a
																 * coordinator, to have
																 * one definition on all
																 * nodes; when it is due
																 * next */
	void		(*drop) (void); /* before DROP EXTENSION */
} SswShards;

extern const SswShards *ssw_shards;

extern List *ssw_partition_family(Oid relid);
extern bool ssw_partition_is_below(Oid leaf, Oid relid);
extern bool ssw_partition_is_subscribed(Oid relid);
extern void ssw_partition_check_rules(const SswPolicy *p, Relation leaf);
extern Oid	ssw_partition_subscribed(const SswPolicy *p);
extern bool ssw_partition_is_writable(Oid relid);
extern bool ssw_partition_is_alone(Relation rel);
extern Oid	ssw_partition_shard(const SswPolicy *p, Oid leaf);
extern List *ssw_partition_places(const SswPolicy *p);
extern List *ssw_partition_leaves(const SswPolicy *p, LOCKMODE mode, uint32 *others);
extern const char *ssw_partition_updated_by(const SswPolicy *p, const char *column);
extern void ssw_partition_check(const SswPolicy *p);

#endif							/* SSW_PARTITION_H */
