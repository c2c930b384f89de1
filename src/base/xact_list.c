/*
 * xact_list.c
 *		What the current transaction has done, for when it ends.
 *
 * Runs in any process.  Each list is static in the file that fills it.  That file is called
 * at the transaction's events.  What a subtransaction has added is dropped when that is
 * rolled back.
 *
 * Shares nothing; a crash forgets the lists, as it does the transactions.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/xact_list.h"

static void
at_xact_event(XactEvent event, void *arg)
{
	SswXactList *list = arg;

	list->at_event(event);
	if (event != XACT_EVENT_PRE_COMMIT && event != XACT_EVENT_PARALLEL_PRE_COMMIT && event != XACT_EVENT_PRE_PREPARE)
		list->items = NIL;
}

static void
at_subxact_event(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	SswXactList *list = arg;
	int			level = GetCurrentTransactionNestLevel();

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	/* those of the subtransaction are the last ones */
	for (int n = list_length(list->items); n > 0; n--)
	{
		SswXactItem *item = list_nth(list->items, n - 1);

		if (item->level < level)
			break;
		item->level = level - 1;
		if (event == SUBXACT_EVENT_ABORT_SUB)
			list->items = list_truncate(list->items, n - 1);
	}
}

/* Call at_event() at the events of this and all later transactions. */
void
ssw_xact_list_watch(SswXactList *list)
{
	if (list->watched)
		return;
	RegisterXactCallback(at_xact_event, list);
	RegisterSubXactCallback(at_subxact_event, list);
	list->watched = true;
}

/* Add an item of that size, all zero. */
void	   *
ssw_xact_list_add(SswXactList *list, Size size)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	SswXactItem *item = palloc0(size);

	ssw_xact_list_watch(list);
	item->level = GetCurrentTransactionNestLevel();
	list->items = lappend(list->items, item);
	MemoryContextSwitchTo(old);
	return item;
}
