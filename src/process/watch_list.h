/*
 * watch_list.h
 *		The coordinator's list of policies.
 */
#ifndef SSW_WATCH_LIST_H
#define SSW_WATCH_LIST_H

#include "process/coordinator_turn.h"

extern void ssw_watch_list_init(void);
extern List *ssw_watch_list_all(void);
extern uint64 ssw_watch_list_generation(void);
extern void ssw_watch_list_reload(void);
extern void ssw_watch_list_note(const SswTurn *t);
extern void ssw_watch_list_update(const SswTurn *t, TimestampTz now);
extern void ssw_watch_list_forget_times(void);

#endif							/* SSW_WATCH_LIST_H */
