/*
 * policy_struct.h
 *		A row of sweeper.policy as a C struct, and the SQL fragments that its
 *		deadline fields stand for.
 *
 * Fragments use alias t for the swept relation and $1 (timestamptz) for the
 * cutoff; every identifier in them is quoted, every operator that could be
 * shadowed is safe because the caller pins search_path to the policy's own.
 */
#ifndef SSW_POLICY_STRUCT_H
#define SSW_POLICY_STRUCT_H

#include "nodes/pg_list.h"
#include "utils/rel.h"

#include "base/ssw.h"

/* Names that begin so are those of the built-in policies. */
#define SSW_BUILTIN_PREFIX	"sweeper."

/* One deadline of a policy: the first is of activity or fixed, the second is created + max_age. */
typedef struct SswDeadline
{
	bool		activity;		/* last_seen + ttl, or a deadline that
								 * activity puts off: grace covers it, a death
								 * is a zombie; otherwise a fixed deadline */
	bool		absolute;		/* it is created + max_age */
	Oid			sort_type;		/* base type of sort, comparable in a btree */
	char	   *sort;			/* expression to order and index by */
	char	   *bound;			/* $1 in sort's type: the predicate contains
								 * sort <= bound */
	char	   *due;			/* the deadline as timestamptz (keep_for not
								 * added); null where there is none */
	char	   *seen;			/* last activity as timestamptz, or NULL when
								 * the policy has no activity column */
	char	   *predicate;		/* boolean over t and $1: the row's deadline
								 * is at or before $1; index usable on sort */
	char	   *low;			/* boolean over t: above what lower_bound.c
								 * remembers, or NULL */
	char	   *row_ttl;		/* interval expression of the row's own time
								 * to live, or NULL when ttl_us is it */
	int64		ttl_us;			/* constant time to live, or 0 */
	bool		by_due;			/* sort has the order of due */
	int16		attnum;			/* sort is that column, or 0 */
	int16		row_columns[2]; /* sort is last_seen and the row's own time to
								 * live: these two columns, or 0 */
} SswDeadline;

/* How far a start of service has judged; see grace.c. */
typedef struct SswHorizon
{
	TimestampTz service;		/* the start, later by the outages since */
	TimestampTz deadline;		/* latest that it saw pass */
} SswHorizon;

#define SSW_MAX_HORIZONS	30

/* When a shard was first seen here; see arrival.c. */
typedef struct SswArrival
{
	Oid			leaf;
	TimestampTz at;
} SswArrival;

/* The built-in policy of the registry's sessions, the same number everywhere: see schema/50_builtin.sql. */
#define SSW_SESSION_POLICY_ID	50
#define SSW_SESSION_POLICY	"sweeper.session"
#define SSW_LAST_TASK_POLICY_ID	53

typedef struct SswPolicy
{
	int			id;
	char	   *name;
	bool		registry;		/* it is SSW_SESSION_POLICY: its code is ours */
	const struct SswPolicyHooks *hooks; /* of a built-in policy, or null */
	bool		filter_indexed; /* ours: its indexes are of what its filter
								 * lets through */
	bool		in_coordinator; /* no code of users is read: built for probes
								 * only */
	bool		filter_unread;	/* so it has a filter, which is left out */
	Oid			relid;
	char	   *relation;		/* schema-qualified, quoted, as registered */
	Oid			owner;
	char	   *owner_name;
	uint64		system_identifier;
	Oid			database;

	int			nkeys;			/* 0: rows are found by ctid */
	char	  **key;			/* column names, raw */
	struct SswArgs *args;		/* the call that is checked now, for hints;
								 * NULL when the policy was read from its
								 * table */
	char	   *deadline;
	char	   *last_seen;
	int64		ttl_us;			/* 0: none */
	char	   *ttl_column;
	char	   *created;
	int64		max_age_us;		/* 0: none */
	char	   *unit;
	char	   *timezone;
	int64		keep_for_us;
	char	   *filter;
	SswOnNull	on_null;

	SswAction	action;
	char	   *set_clause;
	Oid			on_expire;
	char	   *on_expire_name; /* regprocedure text, schema-qualified */
	Oid			is_alive;
	char	   *is_alive_name;
	bool		asks_together;	/* it takes many keys at once */
	char	   *group_by;
	int			ncapture;
	char	  **capture;
	SswAudit	audit;
	char	   *notify_channel;
	bool		notify_keys;

	int64		check_every_us;
	int64		max_lag_us;
	int			batch_size;		/* 0: adaptive */
	int			max_workers;
	int			rate_limit;
	int			backlog_rate;
	int64		soft_limit_us;
	int64		hard_limit_us;
	int			lock_timeout_ms;
	int			max_retries;
	float4		fuse_fraction;
	int			fuse_min;
	bool		heartbeats;
	char	   *search_path;
	char	   *maintenance_window; /* or null: always; see window.c */
	uint64		as_of;			/* SharedInvalidMessageCounter before it was
								 * read */
	uint64		stale;			/* arguments, one bit each, that name a column
								 * which was renamed or dropped; nobody has
								 * said what they mean now */
	char	   *stale_detail;	/* one of these columns; or null */
	bool		columns_changed;	/* the row has an old name of a column */
	bool		allow_replicated;

	/* brakes and state, as stored; 0 where the column is null */
	TimestampTz paused_at;
	TimestampTz paused_until;
	char	   *paused_reason;
	char	   *fuse_detail;
	char	   *last_error;
	int			shared_as;		/* its id on the coordinator of the Citus
								 * cluster; else its own */
	bool		from_coordinator;	/* defined on the coordinator of the Citus
									 * cluster */
	bool		off;			/* a built-in one: its retention is 0 */
	char	   *held_reason;
	TimestampTz fuse_until;		/* it holds the whole policy until then, or 0 */
	TimestampTz fuse_next;		/* the first of its holds ends, or 0 */
	bool		fuse_spent;		/* one has ended, and may not trip again */
	int			failures;
	bool		broken;
	TimestampTz retry_at;
	TimestampTz backlog_before;
	int			nhorizons;		/* in order of time; see grace.c */
	SswHorizon	horizon[SSW_MAX_HORIZONS];
	TimestampTz noted_at;		/* when they were written; 0: never */

	Oid			reported_index; /* in the coordinator: what a worker has found
								 * by ssw_index_to_read() */

	/* filled by ssw_deadline_build */
	int			ndeadlines;
	SswDeadline deadlines[2];
	char	   *too_old;		/* boolean over t and $2: dead by the absolute
								 * deadline; NULL without one */
	char	   *left_out;		/* boolean over t: rows that cannot be read;
								 * set before ssw_deadline_build() */
	char	   *row_grace;		/* set by ssw_grace_rows() */
	bool		arrivals_read;
	bool		arrives;		/* its leaves have notes of their arrival: */
	List	   *arrivals;		/* of SswArrival; see arrival.c */
	char	   *not_held;		/* boolean over t: the fuse does not hold its
								 * group; set by ssw_fuse_load() */
	char	   *index_sort;		/* what to index for rows with their own time
								 * to live; NULL when there is no such
								 * expression */
	char	   *key_text;		/* text expression over t: the canonical key */
	char	   *group_text;		/* text expression over t, or NULL */
	char	   *null_predicate; /* boolean over t: deadline is null; NULL when
								 * on_null is ignore */
	char	   *prolong_set;	/* SET list over t, ssw_b.ssw_seen and
								 * ssw_b.ssw_until (timestamptz) that makes
								 * the row live until then; NULL when
								 * impossible */
	char	   *repair_set;		/* SET list over t and $5 (now) that gives one
								 * ttl from now; for on_null repair and for
								 * is_alive refresh; NULL when impossible */
} SswPolicy;

#endif							/* SSW_POLICY_STRUCT_H */
