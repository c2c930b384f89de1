/*
 * task_query.h
 *		Read tasks, and wait for them, without a transaction.
 */
#ifndef SSW_TASK_QUERY_H
#define SSW_TASK_QUERY_H

#include "fmgr.h"

extern void ssw_task_query_until_written(Oid *types, Datum *values);

#endif							/* SSW_TASK_QUERY_H */
