/*
 * seat_queue.h
 *		Sessions that wait for a seat, in the order in which they came.
 */
#ifndef SSW_SEAT_QUEUE_H
#define SSW_SEAT_QUEUE_H

extern void ssw_seat_queue_init(void);
extern void ssw_seat_queue_join(const char *pool, const char *owner);
extern void ssw_seat_queue_leave(void);
extern bool ssw_seat_queue_joined(void);
extern bool ssw_seat_queue_my_turn(void);
extern void ssw_seat_queue_let_pass(void);
extern void ssw_seat_queue_sleep(long timeout_ms);
extern void ssw_seat_queue_wake(const char *pool);
extern int	ssw_seat_queue_ahead(const char *pool, const char *owner);

#endif							/* SSW_SEAT_QUEUE_H */
