/*
 * args.h
 *		The arguments that register, alter_policy and adopt share.
 */
#ifndef SSW_ARGS_H
#define SSW_ARGS_H

#include "fmgr.h"

#include "policy/policy.h"

/* In the order of register's arguments, from "key" on. */
typedef enum SswArg
{
	SSW_ARG_KEY, SSW_ARG_DEADLINE, SSW_ARG_LAST_SEEN, SSW_ARG_TTL, SSW_ARG_TTL_COLUMN,
	SSW_ARG_CREATED, SSW_ARG_MAX_AGE, SSW_ARG_UNIT, SSW_ARG_TIMEZONE, SSW_ARG_KEEP_FOR,
	SSW_ARG_FILTER, SSW_ARG_ON_NULL, SSW_ARG_ACTION, SSW_ARG_SET_CLAUSE,
	SSW_ARG_ON_EXPIRE, SSW_ARG_IS_ALIVE, SSW_ARG_GROUP_BY, SSW_ARG_CAPTURE,
	SSW_ARG_AUDIT, SSW_ARG_NOTIFY_CHANNEL, SSW_ARG_NOTIFY_KEYS, SSW_ARG_CHECK_EVERY,
	SSW_ARG_MAX_LAG, SSW_ARG_BATCH_SIZE, SSW_ARG_MAX_WORKERS, SSW_ARG_RATE_LIMIT,
	SSW_ARG_BACKLOG_RATE, SSW_ARG_SOFT_TIME_LIMIT, SSW_ARG_HARD_TIME_LIMIT,
	SSW_ARG_LOCK_TIMEOUT, SSW_ARG_MAX_RETRIES, SSW_ARG_FUSE_FRACTION, SSW_ARG_FUSE_MIN,
	SSW_ARG_HEARTBEATS, SSW_ARG_SEARCH_PATH, SSW_ARG_ALLOW_REPLICATED,
	SSW_ARG_MAINTENANCE_WINDOW
} SswArg;

#define SSW_NARGS	(SSW_ARG_MAINTENANCE_WINDOW + 1)

typedef struct SswArgs
{
	const char *function;		/* which function was called, for hints */
	const char *first;			/* its first argument as SQL */
	char	   *policy;			/* name asked for, or NULL */
	char	   *start;			/* auto, now or paused */
	List	   *advice;			/* adopt: what the preset has to say, char * */
	List	   *assumed;		/* adopt: arguments that it guessed, SswArg */
	char	   *doubt;			/* adopt: what else may be wrong, or NULL */
	bool		dry_run;
	bool		given[SSW_NARGS];	/* differs from what it would be anyway */
	bool		isnull[SSW_NARGS];
	Datum		value[SSW_NARGS];
} SswArgs;

extern const char *ssw_args_name(SswArg arg);
extern Oid	ssw_args_type(SswArg arg);
extern bool ssw_args_defines_deadline(SswArg arg);
extern bool ssw_args_is_limit(SswArg arg);
extern SswArg ssw_args_find(const char *name);
extern char *ssw_args_text(SswArg arg, Datum value);

extern void ssw_args_default(SswArgs *a, SswArg arg);
extern void ssw_args_set_text(SswArgs *a, SswArg arg, const char *value);
extern void ssw_args_read(SswArgs *a, FunctionCallInfo fcinfo, int first, bool null_is_unchanged);
extern char *ssw_args_call(const SswArgs *a, const char *name, const char *value);
extern void ssw_args_fill_limits(const SswArgs *a, SswPolicy *p);
extern void ssw_args_fill(const SswArgs *a, SswPolicy *p);


#endif							/* SSW_ARGS_H */
