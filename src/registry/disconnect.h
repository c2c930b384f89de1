/*
 * disconnect.h
 *		End the sessions whose connections have gone.
 */
#ifndef SSW_DISCONNECT_H
#define SSW_DISCONNECT_H

extern void ssw_disconnect_init(void);

#endif							/* SSW_DISCONNECT_H */
