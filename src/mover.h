/*
 * mover.h
 *		Write appended rows to their tables.
 */
#ifndef SSW_MOVER_H
#define SSW_MOVER_H

extern bool ssw_mover_run(int64 up_to, bool (*must_stop) (void), int turn_ms);

#endif							/* SSW_MOVER_H */
