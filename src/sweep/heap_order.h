/*
 * heap_order.h
 *		Is it less work to delete dead rows in the order of the heap?
 */
#ifndef SSW_HEAP_ORDER_H
#define SSW_HEAP_ORDER_H

#include "storage/block.h"
#include "sweep/batch.h"

extern double ssw_heap_order_rows(SswWork *w, Oid leaf, TimestampTz cutoff, const SswDeadline *c, Datum cursor, BlockNumber *blocks);

#endif							/* SSW_HEAP_ORDER_H */
