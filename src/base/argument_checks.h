/*
 * argument_checks.h
 *		Checks that arguments of functions share.
 */
#ifndef SSW_ARGUMENT_CHECKS_H
#define SSW_ARGUMENT_CHECKS_H

#include "fmgr.h"
#include "utils/timestamp.h"

/* Bytes of what calls leave in our tables; see "Limits of arguments" in doc/reference.md. */
#define SSW_MAX_NAME	255		/* a notification has several of them */
#define SSW_MAX_TEXT	65536	/* what people read: reasons, metadata */
#define SSW_MAX_PAYLOAD	1048576 /* what programs read: payloads, commands,
								 * rows */

/* The shortest intervals, in microseconds: what lives, and the wait or the work of one call. */
#define SSW_MIN_LIFETIME	USECS_PER_SEC
#define SSW_MIN_TIMEOUT		INT64CONST(1000)

extern Datum ssw_interval_of(int64 us);
extern int64 ssw_argument_interval(const char *name, const Interval *v, int64 min);
extern int64 ssw_argument_number(const char *name, int64 v, int64 min, int64 max);
extern void ssw_argument_bound(FunctionCallInfo fcinfo, int arg, const char *name, int most);
extern void ssw_argument_printable(const char *name, int len, const char *what, const char *argument);
extern void ssw_argument_not_null(FunctionCallInfo fcinfo, int arg, const char *name);
extern int	ssw_argument_elements(FunctionCallInfo fcinfo, int arg, const char *name, Oid type, Datum **elems);
extern bool ssw_argument_or_alter(FunctionCallInfo fcinfo, int arg);

#endif							/* SSW_ARGUMENT_CHECKS_H */
