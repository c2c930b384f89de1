/*
 * mover.h
 *		Write appended rows to their tables.
 */
#ifndef SSW_MOVER_H
#define SSW_MOVER_H

extern void ssw_mover_run(Oid owner, bool (*must_stop) (void));

#endif							/* SSW_MOVER_H */
