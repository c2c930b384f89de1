/*
 * caller.h
 *		What the functions of workers, jobs and tasks have in common.
 */
#ifndef SSW_CALLER_H
#define SSW_CALLER_H

#include "executor/spi.h"
#include "fmgr.h"

#include "base/identity.h"

/* A worker that lives, and does until the transaction ends. */
typedef struct SswWorker
{
	char	   *name;
	char	   *role;			/* that registered it */
	int64		number;
	int64		ttl_us;
} SswWorker;

/* Who called, while we are the extension. */
typedef struct SswCaller
{
	Oid			userid;
	char	   *name;
	SswIdentity save;
} SswCaller;

extern SswCaller ssw_caller_identify(const char *function);
extern SswCaller ssw_caller_begin(const char *function);
extern void ssw_caller_end(const SswCaller *c);
extern bool ssw_caller_acts_as(const SswCaller *c, const char *role);
extern void ssw_caller_require_role(const SswCaller *c, const char *role, const char *what);
extern SswWorker ssw_caller_hold_worker(const SswCaller *c, Datum worker);
extern Datum ssw_caller_key(FunctionCallInfo fcinfo, int arg, const char *what);
extern Datum ssw_caller_name(FunctionCallInfo fcinfo, int arg, const char *what);
extern char *ssw_caller_label(FunctionCallInfo fcinfo, int first);

#endif							/* SSW_CALLER_H */
