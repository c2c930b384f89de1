/*
 * xact_list.c
 *		Lists of what a transaction did, by subtransaction.
 *
 * Runs in any process.  Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "base/xact_list.h"

/*
 * At the end of a subtransaction: what it did is undone, or its parent's now.  Items
 * begin with their level; returns the list.
 */
List	   *
ssw_xact_list_settle(List *items, SubXactEvent event)
{
	int			level = GetCurrentTransactionNestLevel();
	ListCell   *lc;

	foreach(lc, items)
	{
		SswXactItem *item = lfirst(lc);

		if (item->level >= level && event == SUBXACT_EVENT_ABORT_SUB)
			items = foreach_delete_current(items, lc);
		else if (item->level >= level && event == SUBXACT_EVENT_COMMIT_SUB)
			item->level = level - 1;
	}
	return items;
}
