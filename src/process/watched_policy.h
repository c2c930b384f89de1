/*
 * watched_policy.h
 *		The coordinator's picture of one policy.
 */
#ifndef SSW_WATCHED_POLICY_H
#define SSW_WATCHED_POLICY_H

#include "base/shmem.h"
#include "policy/policy.h"
#include "sweep/throttle.h"

typedef struct SswWatch
{
	int			policy_id;
	SswPolicy  *policy;			/* in the generation's memory context */
	bool		runs;			/* no brake is on */
	uint64		judged_generation;	/* it was judged then */
	SswPolicyState state;		/* why not, or SSW_POLICY_WAITING */
	char		reason[160];
	SswRest		rest;			/* why passes wait, though it runs; or no
								 * state */
	TimestampTz brake_until;	/* look at the brakes again then, or 0 */
	bool		locked;			/* the brake is a lock on its table */
	bool		unfit;			/* the policy does not fit its table any more */
	TimestampTz blocked_since;	/* see policy_outage.c */
	TimestampTz block_look_at;
	bool		plain;			/* no code of users: the coordinator may probe
								 * by itself */
	bool		unprobed;		/* it could not, or has not yet since a pass */

	TimestampTz next_look;		/* of a policy with a brake: to see how late
								 * its rows are */
	TimestampTz last_look;
	TimestampTz last_success;	/* in this process, or 0 */
	int			looks;			/* not counted yet */
	TimestampTz not_before;		/* no look, not even on request, until then */
	bool		unfinished;		/* the last pass is to be continued, also one
								 * of CALL sweep */
	int			idle;			/* looks in a row that found nothing */
	TimestampTz earliest;		/* earliest due time known, or 0 */
	bool		read_all;		/* the next probe, without a lower bound */
	int			excluded;		/* dead rows the last pass left alone */

	SswPass    *pass;			/* running, or null */
	bool		over;			/* it has ended, or must, and has no worker */
	TimestampTz refresh_at;		/* look for heartbeats again */
	TimestampTz served_at;		/* when the pass was opened, or last given a
								 * worker */
	bool		passed_over;	/* there was none for it in this round */
	bool		force;			/* it asked for an open fuse */
	bool		owed;			/* a look that was asked for and could not be */
	uint64		answered;		/* request dealt with in this round, or 0 */
	int64		answer;			/* its pass, or 0 */
	bool		found;			/* it, or a pass before it, had something to
								 * do */
	int			answer_code;	/* why it did not end well, or 0 */
	char		answer_error[SSW_MESSAGE_LEN];
	double		tokens;
	double		backlog_tokens;
	int64		fuse_left;		/* of the rows that the fuse has counted */
	TimestampTz held_above;		/* rows due until then are held by the fuse,
								 * covered by grace, or gone; or 0 */
	TimestampTz full_at;		/* from then on a pass looks at them again */
	TimestampTz tokens_at;
	bool		rate_waits;		/* the last pass ended at its rate */
	uint64		disconnects;	/* those that a pass was opened for */
	TimestampTz disconnects_at; /* the next for those that it left */
} SswWatch;

/* A policy in which nothing happens is looked at up to so many check_every apart. */
#define SSW_IDLE_MAX		10

#endif							/* SSW_WATCHED_POLICY_H */
