/*
 * fuse.h
 *		The brake that stops a pass which would remove implausibly much.
 */
#ifndef SSW_FUSE_H
#define SSW_FUSE_H

#include "sweep/candidates.h"

extern bool ssw_fuse_trips(SswWork *w);
extern void ssw_fuse_expect(SswWork *w, List *leaves, const SswChunk *chunk);
extern bool ssw_fuse_answers(SswWork *w, int dead, int alive);

#endif							/* SSW_FUSE_H */
