/*
 * lostmove.h
 *		Appended rows at which the process was ended that wrote them, and tables
 *		whose rows are left for another time.
 */
#ifndef SSW_LOSTMOVE_H
#define SSW_LOSTMOVE_H

#include "base/shmem.h"

extern void ssw_lostmove_note(SswDatabase *d, SswProc *proc);
extern bool ssw_lostmove_find(Oid relid, SswLostMove *lost);
extern void ssw_lostmove_forget(const SswLostMove *lost);
extern bool ssw_lostmove_left(Oid relid, int sqlerrcode, bool pause);
extern bool ssw_lostmove_pauses(Oid relid);
extern void ssw_lostmove_none_left(Oid relid);

#endif							/* SSW_LOSTMOVE_H */
