/*
 * acquire.h
 *		acquire(): take a seat of a pool.
 */
#ifndef SSW_ACQUIRE_H
#define SSW_ACQUIRE_H

extern bool ssw_acquire_found_full(void);

#endif							/* SSW_ACQUIRE_H */
