/*
 * fuse_hold.h
 *		Groups of rows that the fuse holds.
 */
#ifndef SSW_FUSE_HOLD_H
#define SSW_FUSE_HOLD_H

#include "sweep/batch.h"

/* A group with many dead rows, or all rows that are not of such a group that trips. */
typedef struct SswSuspect
{
	text	   *name;			/* null: all */
	int64		dead;
	int64		ttl_us;			/* the longest time to live of these, or 0 */
	int64		alive;
	bool		let_go;			/* it was held, and its rows go now */
} SswSuspect;

extern char *ssw_fuse_group(const SswPolicy *p);
extern void ssw_fuse_load(SswPolicy *p);
extern char *ssw_fuse_describe(const SswSuspect *s);
extern char *ssw_fuse_write(SswWork *w, const SswSuspect *s);

#endif							/* SSW_FUSE_HOLD_H */
