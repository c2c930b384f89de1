/*
 * launcher.h
 *		The launcher's registration.
 */
#ifndef SSW_LAUNCHER_H
#define SSW_LAUNCHER_H

extern void ssw_launcher_register(void);

#endif							/* SSW_LAUNCHER_H */
