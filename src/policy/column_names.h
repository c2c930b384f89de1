/*
 * column_names.h
 *		The columns that a policy names, by the names that they have now.
 */
#ifndef SSW_COLUMN_NAMES_H
#define SSW_COLUMN_NAMES_H

#include "access/tupdesc.h"
#include "utils/jsonb.h"

/* Fields that name columns; those that may be expressions first. */
#define SSW_STALE_FILTER		(1 << 0)
#define SSW_STALE_SET_CLAUSE	(1 << 1)
#define SSW_STALE_DEADLINE		(1 << 2)
#define SSW_STALE_LAST_SEEN		(1 << 3)
#define SSW_STALE_TTL_COLUMN	(1 << 4)
#define SSW_STALE_CREATED		(1 << 5)
#define SSW_STALE_GROUP_BY		(1 << 6)
#define SSW_STALE_KEY			(1 << 7)
#define SSW_STALE_CAPTURE		(1 << 8)
#define SSW_STALE_FIELDS		9

extern const char *const ssw_columns_fields[SSW_STALE_FIELDS];	/* in the order of these
																 * bits */

typedef struct SswColumns
{
	Oid			relid;
	Jsonb	   *numbers;		/* of each, by its name at registration; or
								 * null */
	int			stale;			/* fields that name a column which has another
								 * name now, or is gone: bits of SSW_STALE_ */
	int			gone;			/* of these, those whose column is gone */
	bool		untold;			/* the row does not say so of one of them */
	bool		followed;		/* some have other names now than in the row */
	char	   *renamed;		/* why expressions mean other columns now, or
								 * null */
} SswColumns;

extern char *ssw_columns_record(TupleDesc desc, Oid relid, const char *const *fields, int n);
extern void ssw_columns_check(SswColumns *c);
extern char *ssw_columns_follow(SswColumns *c, char *name, int field);

#endif							/* SSW_COLUMN_NAMES_H */
