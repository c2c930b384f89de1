/*
 * fence.h
 *		Fences: numbers of sessions that never repeat.
 */
#ifndef SSW_FENCE_H
#define SSW_FENCE_H

extern int64 ssw_fence_next(void);

#endif							/* SSW_FENCE_H */
