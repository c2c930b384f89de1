/*
 * owner_budget.c
 *		Looks at policies, for which each owner has so much time in a round.
 *
 * Runs in the coordinator, in the transaction of a round.  When the looks at the policies
 * of one owner have taken that time, the rest of them waits for the next round, which comes
 * at once and begins with them.  So tables with very many partitions delay others' policies
 * by little more than that.  Where none was left out, the next rounds begin with the first
 * policy for whose pass there was no room: so they take turns.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "process/owner_budget.h"

#define OWNER_ROUND_US		(100 * INT64CONST(1000))
#define LONG_LOOK_US		100

typedef struct Spent
{
	Oid			owner;
	int64		us;
} Spent;

static Spent *
spent_by(List *all, Oid owner)
{
	ListCell   *lc;

	foreach(lc, all)
		if (((Spent *) lfirst(lc))->owner == owner)
		return lfirst(lc);
	return NULL;
}

bool
ssw_owner_budget_each(List *watches, int *first, SswLook look, TimestampTz now)
{
	int			left_out = -1;
	int			no_room = -1;
	List	   *all = NIL;		/* of those whose looks took long */
	TimestampTz began = GetCurrentTimestamp();

	for (int i = 0; i < list_length(watches); i++)
	{
		int			k = (*first + i) % list_length(watches);
		SswWatch   *w = list_nth(watches, k);
		Spent	   *s = w->policy ? spent_by(all, w->policy->owner) : NULL;
		TimestampTz ended;

		if (s && s->us > OWNER_ROUND_US)
		{
			left_out = left_out < 0 ? k : left_out;
			continue;
		}
		if (!look(w, now) && no_room < 0)
			no_room = k;
		ended = GetCurrentTimestamp();
		if (w->policy && ended - began > LONG_LOOK_US)
		{
			if (s == NULL)
			{
				s = palloc0(sizeof(Spent));
				s->owner = w->policy->owner;
				all = lappend(all, s);
			}
			s->us += ended - began;
		}
		began = ended;
	}
	if (left_out >= 0 || no_room >= 0)
		*first = left_out >= 0 ? left_out : no_room;
	return left_out < 0;
}
