/*
 * start.h
 *		When service began, and what is known of the time before.
 */
#ifndef SSW_START_H
#define SSW_START_H

extern void ssw_start_read_control(void);
extern void ssw_start_service(void);

#endif							/* SSW_START_H */
