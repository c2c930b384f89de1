/*
 * args.h
 *		The arguments that register, alter_policy and adopt share.
 */
#ifndef SSW_ARGS_H
#define SSW_ARGS_H

#include "fmgr.h"

#include "policy/policy.h"

typedef struct SswArgs
{
	const char *function;		/* register or adopt, for hints */
	const char *first;			/* its first argument as SQL */
	bool		alter;			/* of a stored policy: what is not given stays */
	char	   *policy;			/* name asked for, or NULL */
	char	   *start;			/* auto, now or paused */
	bool		or_alter;		/* if_exists is alter */
	List	   *advice;			/* adopt: what the preset has to say, char * */
	List	   *assumed;		/* adopt: arguments that it guessed, SswArg */
	char	   *doubt;			/* adopt: what else may be wrong, or NULL */
	bool		dry_run;
	bool		given[SSW_NARGS];	/* differs from what it would be anyway */
	bool		isnull[SSW_NARGS];
	Datum		value[SSW_NARGS];
} SswArgs;

extern SswArg ssw_args_find(const char *name);
extern char *ssw_args_text(SswArg arg, Datum value);

extern void ssw_args_default(SswArgs *a, SswArg arg);
extern void ssw_args_set_text(SswArgs *a, SswArg arg, const char *value);
extern void ssw_args_read_start(SswArgs *a, FunctionCallInfo fcinfo, int first);
extern void ssw_args_read(SswArgs *a, FunctionCallInfo fcinfo, int first, bool null_is_unchanged);
extern char *ssw_args_call(const SswArgs *a, const char *name, const char *value);
extern void ssw_args_fill_limits(const SswArgs *a, SswPolicy *p);
extern void ssw_args_fill(const SswArgs *a, SswPolicy *p);


#endif							/* SSW_ARGS_H */
