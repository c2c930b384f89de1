/*
 * notify.h
 *		Notifications, as far as the server takes them.
 */
#ifndef SSW_NOTIFY_H
#define SSW_NOTIFY_H

extern void ssw_notify_init(void);
extern uint64 ssw_notify_skipped(void);
extern bool ssw_notify_has_room(void);
extern bool ssw_notify_lock(void);
extern void ssw_notify(const char *channel, const char *payload);

#endif							/* SSW_NOTIFY_H */
