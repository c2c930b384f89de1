/*
 * row_holders.h
 *		Whose transaction holds a row.
 */
#ifndef SSW_ROW_HOLDERS_H
#define SSW_ROW_HOLDERS_H

#include "storage/itemptr.h"

extern Datum ssw_holders_of_row(Oid leaf, ItemPointer tid, MemoryContext cxt, TransactionId *prepared);
extern char *ssw_holders_prepared_name(TransactionId xid);

#endif							/* SSW_ROW_HOLDERS_H */
