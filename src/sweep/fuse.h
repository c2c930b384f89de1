/*
 * fuse.h
 *		The brake that stops a pass which would remove implausibly much.
 */
#ifndef SSW_FUSE_H
#define SSW_FUSE_H

#include "sweep/batch.h"

/* A group with many dead rows, or all rows that are not of such a group that trips. */
typedef struct SswSuspect
{
	text	   *name;			/* null: all */
	int64		dead;
	int64		ttl_us;			/* the longest time to live of these, or 0 */
	int64		alive;
	int64		enough;			/* alive rows that make it harmless */
	bool		let_go;			/* it was held, and its rows go now */
} SswSuspect;

/* fuse.c */
extern bool ssw_fuse_trips(SswWork *w, List *leaves, bool all);
extern void ssw_fuse_grace(SswWork *w, List *leaves);
extern bool ssw_fuse_answers(SswWork *w, int dead, int alive);

#endif							/* SSW_FUSE_H */
