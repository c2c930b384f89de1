/*
 * fuse_hold.h
 *		Groups of rows that the fuse holds.
 */
#ifndef SSW_FUSE_HOLD_H
#define SSW_FUSE_HOLD_H

#include "sweep/fuse.h"

extern char *ssw_fuse_group(const SswPolicy *p);
extern void ssw_fuse_load(SswPolicy *p);
extern void ssw_fuse_recall(SswWork *w);
extern char *ssw_fuse_describe(const SswSuspect *s);
extern char *ssw_fuse_write(SswWork *w, const SswSuspect *s);

#endif							/* SSW_FUSE_HOLD_H */
