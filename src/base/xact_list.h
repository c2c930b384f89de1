/*
 * xact_list.h
 *		Lists of what a transaction did, by subtransaction.
 */
#ifndef SSW_XACT_LIST_H
#define SSW_XACT_LIST_H

#include "access/xact.h"
#include "nodes/pg_list.h"

/* What items for ssw_xact_list_settle() begin with. */
typedef struct SswXactItem
{
	int			level;			/* of subtransactions */
} SswXactItem;

extern List *ssw_xact_list_settle(List *items, SubXactEvent event);

#endif							/* SSW_XACT_LIST_H */
