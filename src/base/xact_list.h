/*
 * xact_list.h
 *		What the current transaction has done, for when it ends.
 */
#ifndef SSW_XACT_LIST_H
#define SSW_XACT_LIST_H

#include "access/xact.h"
#include "nodes/pg_list.h"

/* The first field of an item. */
typedef struct SswXactItem
{
	int			level;			/* of its subtransaction */
} SswXactItem;

typedef struct SswXactList
{
	void		(*at_event) (XactEvent event);
	List	   *items;			/* of SswXactItem, in TopTransactionContext */
	bool		watched;
} SswXactList;

extern void ssw_xact_list_watch(SswXactList *list);
extern void *ssw_xact_list_add(SswXactList *list, Size size);

#endif							/* SSW_XACT_LIST_H */
