/*
 * row_facts.h
 *		What is known of one row of a policy, found by its key.
 */
#ifndef SSW_ROW_FACTS_H
#define SSW_ROW_FACTS_H

#include "heartbeat/shard_route.h"
#include "policy/policy.h"
#include "storage/itemptr.h"

/* A time is 0 when there is none. */
typedef struct SswRowFacts
{
	bool		done;			/* the look-up went through */
	char	   *trouble;		/* why it did not, or why no row can have the
								 * key; or null */
	bool		fits;			/* the policy its relation */
	bool		found;
	SswShard	shard;			/* whose row it is; id 0: of none */
	bool		elsewhere;		/* that is on another node */
	char	   *key;			/* canonical; as given when that is unknown */
	Oid			leaf;
	ItemPointerData tid;
	char	   *identity;		/* of a row without a key, or null */
	bool		has_due[2];
	TimestampTz due[2];			/* one for each SswDeadline */
	TimestampTz seen;
	bool		in_grace;		/* the row has a time to live of its own, and
								 * is covered still */
	bool		excluded;		/* by the filter */
	bool		fused;			/* the fuse holds it */
	char	   *group;			/* or null */
	bool		locked;			/* somebody holds or changes it, or locks its
								 * table */
	Datum		holders;		/* int4[] of pids; 0 is a prepared transaction */

	/* from sweeper.failed_row; class is null when it has no such row */
	char	   *fail_class;
	bool		quarantined;
	int			attempts;
	TimestampTz next_attempt;
	char	   *message;

	/* from sweeper.cleanup_event */
	TimestampTz ended_at;
	TimestampTz end_deadline;
	TimestampTz end_seen;
	char	   *cleanup_type;
	char	   *end_reason;
} SswRowFacts;

extern void ssw_row_facts_find(SswPolicy *p, const char *key, TimestampTz cutoff, SswRowFacts *r);
extern void ssw_row_facts_failure(const SswPolicy *p, SswRowFacts *r);
extern void ssw_row_facts_end(const SswPolicy *p, SswRowFacts *r);

#endif							/* SSW_ROW_FACTS_H */
