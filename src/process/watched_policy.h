/*
 * watched_policy.h
 *		The coordinator's picture of one policy.
 */
#ifndef SSW_WATCHED_POLICY_H
#define SSW_WATCHED_POLICY_H

#include "base/shmem.h"
#include "policy/policy.h"
#include "sweep/throttle.h"

/* In the coordinator's own memory: no other process sees it. */
typedef struct SswWatch
{
	/* the policy, and what keeps its passes from running; see policy_watch.c */
	int			policy_id;
	SswPolicy  *policy;			/* in the generation's memory context */
	uint64		judged_generation;	/* it was judged then */
	bool		runs;			/* no brake is on */
	SswPolicyState state;		/* why not, or SSW_POLICY_WAITING */
	char		reason[160];
	TimestampTz brake_until;	/* look at the brakes again then, or 0 */
	SswRest		rest;			/* why passes wait, though it runs; or no
								 * state */
	bool		locked;			/* the brake is a lock on its table */
	bool		unfit;			/* the policy does not fit its table any more */
	TimestampTz blocked_since;	/* see policy_outage.c */
	TimestampTz block_look_at;
	TimestampTz arrivals_at;	/* shards that came were looked for then */

	/* what is due, as the last probe or pass has found; see probe.c */
	bool		plain;			/* no code of users: the coordinator may probe
								 * by itself */
	Oid			reported_index; /* as in SswPolicy, as the last pass said */
	TimestampTz reported_since; /* what passes say that were opened before
								 * does not hold any more */
	bool		changed;		/* its table may be another */
	bool		unprobed;		/* it could not, or has not yet since a pass */
	uint64		written;		/* rows of its table, as statistics said when
								 * CALL sweep asked last */
	TimestampTz earliest;		/* earliest due time known, or 0 */
	SswLowerBound low[2];		/* of each deadline, if this look has probed */
	uint64		probed_written; /* rows of its table, as statistics said at
								 * the last probe; or PG_UINT64_MAX */
	int64		due_rows;		/* so many are due, about, while a brake is
								 * on; -1: unknown */
	TimestampTz count_at;		/* not counted again until then */
	int			excluded;		/* dead rows the last pass left alone */
	bool		unfinished;		/* the last pass is to be continued, also one
								 * of CALL sweep */
	TimestampTz held_above;		/* rows due until then are held by the fuse,
								 * covered by grace, or gone; or 0 */
	TimestampTz full_at;		/* from then on a pass looks at them again */
	uint64		disconnects;	/* those that a pass was opened for */
	TimestampTz disconnects_at; /* the next for those that it left */

	/* looks: the last and the next; see pass_lifecycle.c */
	TimestampTz last_look;
	TimestampTz last_success;	/* in this process, or 0 */
	int			looks;			/* not counted yet */
	int			idle;			/* looks in a row that found nothing */
	int			trusted;		/* of these, the probes since the last pass */
	TimestampTz next_look;		/* of a policy with a brake: to see how late
								 * its rows are */
	TimestampTz not_before;		/* no look, not even on request, until then */
	TimestampTz refresh_at;		/* look for heartbeats again */

	/* the pass that runs, and its turn for a worker; see pass_assign.c */
	SswPass    *pass;			/* running, or null */
	bool		over;			/* it has ended, or must, and has no worker */
	TimestampTz served_at;		/* when the pass was opened, or last given a
								 * worker */
	bool		passed_over;	/* there was none for it in this round */

	/* what is left of its rates, from one pass to the next */
	double		tokens;
	double		backlog_tokens;
	TimestampTz tokens_at;
	bool		rate_waits;		/* the last pass ended at its rate */
	int64		fuse_left;		/* of the rows that the fuse has counted */

	/* CALL sweep; see sweep_request.c */
	bool		force;			/* it asked for an open fuse */
	bool		exact;			/* all is to be read, see lower_bound.c */
	bool		owed;			/* a look that was asked for and could not be */
	uint64		answered;		/* request dealt with in this round, or 0 */
	int64		answer;			/* its pass, or 0 */
	bool		found;			/* it, or a pass before it, had something to
								 * do */
	int			answer_code;	/* why it did not end well, or 0 */
	char		answer_error[SSW_MESSAGE_LEN];
} SswWatch;

/* Does the coordinator know an index to probe?  Else a worker looks, and may say which one serves. */
static inline bool
ssw_watch_probes(const SswWatch *w)
{
	return w->plain && (OidIsValid(w->reported_index) || (!w->policy->filter_unread && w->policy->deadlines[0].attnum != 0));
}

/* A policy in which nothing happens is looked at up to so many check_every apart. */
#define SSW_IDLE_MAX		10
/* While statistics would say if its table were written, up to so many. */
#define SSW_UNWRITTEN_MAX	60
/* But no longer than that, unless check_every is. */
#define SSW_IDLE_LOOK_US	USECS_PER_MINUTE

/* After so many probes in a row that an index answered with nothing due, a pass looks at the rows. */
#define SSW_TRUSTED_LOOKS	60

#endif							/* SSW_WATCHED_POLICY_H */
