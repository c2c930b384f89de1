/*
 * policy_store.h
 *		Write rows of sweeper.policy, and what changed in them.
 */
#ifndef SSW_POLICY_STORE_H
#define SSW_POLICY_STORE_H

#include "lib/stringinfo.h"

#include "commands/args.h"

/* Columns of one statement: the arguments, and some of our own. */
#define SSW_STORE_MAX	(SSW_NARGS + 24)

/* A statement's columns and parameters, as they are collected. */
typedef struct SswParams
{
	int			n;
	Oid			types[SSW_STORE_MAX];
	Datum		values[SSW_STORE_MAX];
	char		nulls[SSW_STORE_MAX + 1];
	StringInfoData columns;		/* "a, b" */
	StringInfoData params;		/* "$1, $2" */
} SswParams;

extern void ssw_policy_store_add(SswParams *q, const char *column, Oid type, Datum value, bool isnull);
extern void ssw_policy_store_add_text(SswParams *q, const char *column, const char *value);
extern void ssw_policy_store_add_fields(SswParams *q, const SswArgs *a, const SswPolicy *p,
										Relation rel);
extern int	ssw_policy_store_exec(const char *sql, int nargs, Oid *types, Datum *values,
								  const char *nulls);
extern void ssw_policy_store_log(int policy_id, const char *name, const char *change, const char *old);
extern char *ssw_policy_store_json(int policy_id);
extern void ssw_policy_store_name_failed_rows(int policy_id);
extern void ssw_policy_store_remove(int policy_id, const char *name);

#endif							/* SSW_POLICY_STORE_H */
