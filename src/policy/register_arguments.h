/*
 * register_arguments.h
 *		The table of arguments of register().
 */
#ifndef SSW_REGISTER_ARGUMENTS_H
#define SSW_REGISTER_ARGUMENTS_H

/* What an argument of register() is, and the member of SswPolicy that it becomes. */
typedef enum SswFieldKind
{
	SSW_FIELD_TEXT,				/* char *; of words, if there are any */
	SSW_FIELD_WORD,				/* an enum, in the order of words */
	SSW_FIELD_NAMES,			/* char **, and how many */
	SSW_FIELD_INTERVAL,			/* int64, microseconds */
	SSW_FIELD_MILLISECONDS,		/* an interval; int */
	SSW_FIELD_INT,
	SSW_FIELD_REAL,				/* float4 */
	SSW_FIELD_BOOL,
	SSW_FIELD_FUNCTION			/* Oid */
} SswFieldKind;

/* What a change of the argument touches. */
#define SSW_FIELD_DEADLINE	1	/* which rows are dead */
#define SSW_FIELD_LIMIT		2	/* only how often and how much */
#define SSW_FIELD_RESOLVED	4	/* stored as SswPolicy has it, not as it was
								 * given */
#define SSW_FIELD_COLUMNS	8	/* it names columns, or is an expression over
								 * them */

typedef struct SswField
{
	const char *name;
	SswFieldKind kind;
	const char *dflt;			/* input text, or null */
	int			flags;
	size_t		offset;			/* of the member of SswPolicy */
	size_t		count;			/* of that which says how many names */
	int64		min;			/* of a number or an interval */
	int64		max;			/* of a number */
	const char *const *words;	/* ends with null */
} SswField;

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

extern const SswField ssw_fields[SSW_NARGS];

extern Oid	ssw_field_type(const SswField *f);
extern void ssw_field_set(void *policy, const SswField *f, Datum value, bool isnull);
extern bool ssw_field_equal(const void *policy1, const void *policy2, const SswField *f);

#endif							/* SSW_REGISTER_ARGUMENTS_H */
