/*
 * holders.h
 *		Whose transaction holds a row.
 */
#ifndef SSW_HOLDERS_H
#define SSW_HOLDERS_H

#include "storage/itemptr.h"

extern Datum ssw_holders_of_row(Oid leaf, ItemPointer tid, MemoryContext cxt);

#endif							/* SSW_HOLDERS_H */
