/*
 * lostmove.h
 *		Appended rows at which the process was ended that wrote them.
 */
#ifndef SSW_LOSTMOVE_H
#define SSW_LOSTMOVE_H

#include "shmem.h"

extern void ssw_lostmove_note(SswDatabase *d, const SswProc *proc);
extern bool ssw_lostmove_find(Oid relid, SswLostMove *lost);
extern void ssw_lostmove_forget(const SswLostMove *lost);

#endif							/* SSW_LOSTMOVE_H */
