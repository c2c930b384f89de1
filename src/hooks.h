/*
 * hooks.h
 *		Utility-command hook: stay out of the way of database commands.
 */
#ifndef SSW_HOOKS_H
#define SSW_HOOKS_H

extern void ssw_hooks_init(void);

#endif							/* SSW_HOOKS_H */
