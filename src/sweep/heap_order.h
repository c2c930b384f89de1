/*
 * heap_order.h
 *		Is it less work to delete dead rows in the order of the heap?
 */
#ifndef SSW_HEAP_ORDER_H
#define SSW_HEAP_ORDER_H

#include "storage/block.h"

extern bool ssw_heap_order_gains(Oid leaf, double rows, BlockNumber *blocks);

#endif							/* SSW_HEAP_ORDER_H */
