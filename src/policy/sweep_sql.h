/*
 * sweep_sql.h
 *		The SQL of a pass over one leaf, built from a policy's fragments.
 */
#ifndef SSW_SWEEP_SQL_H
#define SSW_SWEEP_SQL_H

#include "base/shmem.h"
#include "policy/policy.h"

/*
 * Parameters of every statement: $1 timestamptz cutoff, $2 timestamptz cutoff without
 * grace and backlog, $3 tid[] rows, $4 text[] identities of those that were judged,
 * $5 timestamptz now.  collect has $3 cursor
 * (sort type), $4 tid of the cursor, $5 bigint limit; probe has $3 lower bound;
 * those on blocks have $3 and $4 as collect, $5 tid from and $6 tid to.
 */

/* Result columns of the row action, in order. */
enum
{
	SSW_R_KEY = 1,				/* of ssw_key_value_sql(), for
								 * ssw_key_of_value() */
	SSW_R_DUE,					/* timestamptz */
	SSW_R_SEEN,					/* timestamptz */
	SSW_R_GROUP,				/* text */
	SSW_R_META,					/* jsonb */
	SSW_R_STILL_DEAD,			/* boolean; for update */
	SSW_R_CTID,					/* of lock only, with what follows */
	SSW_R_RAW_KEY,				/* text, not hashed */
	SSW_R_KEY_COLUMN			/* text, one for each key column */
};

/* Result columns of ssw_sweep_sql_touch(), in order. */
enum
{
	SSW_T_LEAF = 1,
	SSW_T_XMIN,
	SSW_T_DUE,					/* timestamptz */
	SSW_T_LIMIT,				/* timestamptz: the absolute one */
	SSW_T_KEY,					/* text */
	SSW_T_SWEPT,				/* boolean: the filter lets it through */
	SSW_T_TTL					/* bigint: the row's own, in microseconds */
};

/* Result columns of collect, in order. */
enum
{
	SSW_C_CTID = 1,
	SSW_C_SORT,
	SSW_C_DUE,					/* timestamptz */
	SSW_C_KEY,					/* text, as failures are noted with; only when
								 * asked for */
	SSW_C_NOT_HELD				/* boolean: the fuse does not hold it; where
								 * heartbeats keep rows alive */
};

/* Which of the rows $3 a statement takes. */
#define SSW_ROWS_SKIP_LOCKED	1	/* those that nobody holds */
#define SSW_ROWS_JUDGED			2	/* those with an identity among $4 */

extern const SswDeadline *ssw_sweep_sql_deadline(const SswPolicy *p, SswPhase phase);
extern bool ssw_sweep_sql_fused(const SswPolicy *p, SswPhase phase);
extern bool ssw_sweep_sql_asks(const SswPolicy *p, SswPhase phase);
extern char *ssw_sweep_sql_identity(const SswPolicy *p);
extern char *ssw_sweep_sql_failed_key(const SswPolicy *p);
extern char *ssw_sweep_sql_dead(const SswPolicy *p, SswPhase phase);
extern char *ssw_sweep_sql_dead_above(const SswPolicy *p, SswPhase phase);
extern char *ssw_sweep_sql_graced(const SswPolicy *p, Oid leaf);
extern char *ssw_sweep_sql_collect(const SswPolicy *p, Oid leaf, SswPhase phase,
								   SswCursor cursor, bool with_key, bool by_tid, bool above);
extern char *ssw_sweep_sql_behind(const SswPolicy *p, Oid leaf, SswPhase phase, SswCursor cursor, bool above);
extern char *ssw_sweep_sql_blocks(const SswPolicy *p, Oid leaf, SswPhase phase, SswCursor cursor);
extern char *ssw_sweep_sql_delete_blocks(const SswPolicy *p, Oid leaf, SswPhase phase, SswCursor cursor);
extern char *ssw_sweep_sql_bound(const SswPolicy *p, SswPhase phase);
extern char *ssw_sweep_sql_action(const SswPolicy *p, Oid leaf, SswPhase phase, int rows);
extern char *ssw_sweep_sql_lock(const SswPolicy *p, Oid leaf, SswPhase phase, int rows);
extern char *ssw_sweep_sql_hook(const SswPolicy *p, Oid leaf, bool *by_keys);
extern char *ssw_sweep_sql_find(const SswPolicy *p, Oid leaf);
extern char *ssw_sweep_sql_heartbeats(const SswPolicy *p, Oid leaf, bool all);
extern char *ssw_sweep_sql_prolong(const SswPolicy *p, Oid leaf, bool skip_locked);
extern char *ssw_sweep_sql_touch(const SswPolicy *p, Oid table, const char *lock);
extern char *ssw_sweep_sql_write_heartbeat(const SswPolicy *p, Oid table);
extern char *ssw_sweep_sql_refresh(const SswPolicy *p, Oid leaf, SswPhase phase, int rows);
extern char *ssw_sweep_sql_moved(const SswPolicy *p, Oid leaf, SswPhase phase);
extern char *ssw_sweep_sql_left_dead(const SswPolicy *p, Oid leaf, SswPhase phase);
extern char *ssw_sweep_sql_missing(const SswPolicy *p, Oid leaf, SswPhase phase, int rows);
extern char *ssw_sweep_sql_witnesses(const SswPolicy *p, Oid leaf, SswPhase phase, int pages);
extern char *ssw_sweep_sql_check(const SswPolicy *p, Oid leaf, SswPhase phase);

#endif							/* SSW_SWEEP_SQL_H */
