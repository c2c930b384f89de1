/*
 * task_wait.h
 *		Wait for what others do, without a transaction.
 */
#ifndef SSW_TASK_WAIT_H
#define SSW_TASK_WAIT_H

#include "fmgr.h"

extern void ssw_task_wait_check_context(FunctionCallInfo fcinfo, const char *procedure, const char *instead);
extern void ssw_task_wait_until_written(Oid *types, Datum *values);

#endif							/* SSW_TASK_WAIT_H */
