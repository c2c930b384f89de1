/*
 * ssw.h
 *		Limits and small types shared by every layer.
 *
 * Includes nothing but postgres.h-level types; every other header may
 * include it.
 */
#ifndef SSW_H
#define SSW_H

#include "datatype/timestamp.h"

#define SSW_SCHEMA			"sweeper"
#define SSW_EXTENSION		"session_sweeper"

/* An operator in our own SQL that runs under a user's search_path. */
#define SSW_OP(op)			"OPERATOR(pg_catalog." op ")"

/* Rows of one batch at most: an event id has 20 bits for the position. */
#define SSW_MAX_BATCH		(1 << 20)

/* Bytes that a worker keeps of the rows of one batch at most; more go in several. */
#define SSW_BATCH_BYTES		(64 * 1024 * 1024)

typedef enum SswAction
{
	SSW_ACTION_DELETE,
	SSW_ACTION_UPDATE,
	SSW_ACTION_CALL
} SswAction;

typedef enum SswAudit
{
	SSW_AUDIT_ROW,
	SSW_AUDIT_HASH,
	SSW_AUDIT_COUNT,
	SSW_AUDIT_NONE
} SswAudit;

typedef enum SswOnNull
{
	SSW_NULL_IGNORE,
	SSW_NULL_REPAIR,
	SSW_NULL_EXPIRE
} SswOnNull;

/* Of a policy: of several that hold, the first.  process/brake.c has the list. */
typedef enum SswPolicyState
{
	SSW_POLICY_UNKNOWN,			/* no coordinator has judged it */
	SSW_POLICY_STANDBY,
	SSW_POLICY_NOT_RUNNING,
	SSW_POLICY_RESTART_NEEDED,
	SSW_POLICY_DISABLED,
	SSW_POLICY_PAUSED,
	SSW_POLICY_HELD,
	SSW_POLICY_FUSE,
	SSW_POLICY_BROKEN,
	SSW_POLICY_FAILING,
	SSW_POLICY_OFF,
	SSW_POLICY_READ_ONLY,
	SSW_POLICY_LOCKED,
	SSW_POLICY_OUTSIDE_WINDOW,
	SSW_POLICY_THROTTLED,
	SSW_POLICY_RUNNING,
	SSW_POLICY_GRACE,
	SSW_POLICY_WAITING
} SswPolicyState;

/* A key as 16 bytes: a uuid or an integer itself, of others a hash. */
typedef struct SswHeartbeatId
{
	uint64		part[2];
} SswHeartbeatId;

/* The pool whose sessions are workers: see schema/47_work.sql. */
#define SSW_WORKER_POOL		"sweeper.worker"

/* Min() and Max() evaluate an argument twice; with a call in it, use these. */
static inline int64
ssw_min(int64 a, int64 b)
{
	return a < b ? a : b;
}

static inline int64
ssw_max(int64 a, int64 b)
{
	return a > b ? a : b;
}

#endif							/* SSW_H */
