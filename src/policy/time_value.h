/*
 * time_value.h
 *		A column or expression that stands for a time, as SQL.
 */
#ifndef SSW_TIME_VALUE_H
#define SSW_TIME_VALUE_H

#include "policy/policy.h"

#define SSW_LE			" OPERATOR(pg_catalog.<=) "
#define SSW_PLUS		" OPERATOR(pg_catalog.+) "

/* A column or expression that stands for a time. */
typedef struct SswTimeValue
{
	const char *field;			/* argument name, for messages */
	char	   *name;			/* column name, or NULL for an expression */
	char	   *sql;
	Oid			type;			/* base type */
	int32		typmod;
	int16		attnum;			/* 0 for an expression */
	bool		settable;		/* a column that an UPDATE may set */
	bool		end_of_day;		/* a date counts until its end */
	int64		factor;			/* epoch units a second, or 0 */
	char	   *zone;			/* quoted literal, or NULL */
	bool		utc;			/* zone is UTC */
} SswTimeValue;

/* Unit or zone of a value are not known: raise an error with the completed call.  Set when the library is loaded. */
typedef void (*SswTimeAsk) (const SswPolicy *p, Relation rel, const SswTimeValue *v);
extern SswTimeAsk ssw_time_ask;

extern char *ssw_time_guarded(const SswPolicy *p, const char *otherwise, const char *sql);
extern char *ssw_time_column(const char *name);
extern char *ssw_time_interval(int64 us);
extern char *ssw_time_add(const char *time, int64 us);
extern SswTimeValue ssw_time_resolve(const SswPolicy *p, Relation rel, const char *field, char **text, bool expression_ok);
extern int64 ssw_time_unit_factor(const char *unit);
extern void ssw_time_interpret(const SswPolicy *p, Relation rel, SswTimeValue *v);
extern char *ssw_time_to_instant(const SswTimeValue *v);
extern char *ssw_time_from_instant(const SswTimeValue *v, const char *instant);
extern char *ssw_time_set(const SswTimeValue *v, const char *instant);

#endif							/* SSW_TIME_VALUE_H */
