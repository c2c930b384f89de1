/*
 * database_hook.h
 *		Utility-command hook: stay out of the way of database commands.
 */
#ifndef SSW_DATABASE_HOOK_H
#define SSW_DATABASE_HOOK_H

extern void ssw_database_hook_init(void);

#endif							/* SSW_DATABASE_HOOK_H */
