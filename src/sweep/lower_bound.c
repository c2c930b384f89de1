/*
 * lower_bound.c
 *		Below which deadline a policy's index has only dead entries.
 *
 * Entries of rows that are gone stay in an index until VACUUM, and a search for the
 * earliest deadline reads them all.  So the statements of a pass begin where the probe
 * that the pass is opened for has found the first row.  What is written before it since is
 * found by the next probe.
 *
 * While an old snapshot may see these rows, each entry takes a visit of its row.  A probe
 * of the coordinator that has skipped more than SSW_LOW_ENTRIES of such entries
 * remembers the bound.  The next probes begin there, too, and passes that are opened without
 * one.  A probe without it follows within SSW_LOW_US, so that a row that was
 * written below it, with a deadline that had passed already, is found by then.
 * It is forgotten as soon as no snapshot is left that may see rows which were skipped.
 * CALL sweep forgets it before, if the table was written since it did so last, or with
 * "force": see ssw_probe_requested().
 *
 * Both are of tables without partitions.  The first is in SswPass.  The second is one a
 * policy and deadline, in SswPolicyShared under SswShared->lock.  A crash forgets them.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#include "policy/deadline.h"
#include "sweep/lower_bound.h"

/* Bounds are kept of columns whose types are integers of 64 bits. */
bool
ssw_lower_bound_fits(const SswDeadline *c)
{
	return c->sort_type == TIMESTAMPTZOID || c->sort_type == TIMESTAMPOID || c->sort_type == INT8OID;
}

/* The bound below this value of that leaf; false: there is none. */
bool
ssw_lower_bound_set(SswLowerBound *low, Oid leaf, const SswDeadline *c, int64 value)
{
	if (c->sort_type == INT8OID ? value == PG_INT64_MIN : value <= MIN_TIMESTAMP || value >= END_TIMESTAMP)
		return false;
	low->leaf = leaf;
	low->type = c->sort_type;
	low->attnum = c->attnum;
	low->value = value - 1;
	return true;
}

/* Is it of that deadline, and does it still hold? */
static bool
holds(const SswLowerBound *low, Oid leaf, const SswDeadline *c, TimestampTz now)
{
	return low->full_at != 0 && low->leaf == leaf && low->type == c->sort_type && low->attnum == c->attnum &&
		now >= low->full_at && now - low->full_at < SSW_LOW_US;
}

/* The bound of that leaf, if there is one that still holds. */
bool
ssw_lower_bound_find(int policy_id, int which, Oid leaf, const SswDeadline *c, TimestampTz now, SswLowerBound *low)
{
	(void) ssw_shmem_read_field(MyDatabaseId, policy_id, low[which], low);
	return holds(low, leaf, c, now);
}

void
ssw_lower_bound_keep(int policy_id, int which, const SswLowerBound *low)
{
	ssw_shmem_write_field(policy_id, low[which], low, false);
}

/* The next look reads everything. */
void
ssw_lower_bound_forget(int policy_id)
{
	SswLowerBound none = {0};

	for (int i = 0; i < 2; i++)
		ssw_lower_bound_keep(policy_id, i, &none);
}

/* When a bound of the policy ends next, and a look is to read everything; or DT_NOEND. */
TimestampTz
ssw_lower_bound_until(int policy_id, TimestampTz now)
{
	SswLowerBound low[2];
	TimestampTz until = DT_NOEND;

	(void) ssw_shmem_read_field(MyDatabaseId, policy_id, low, &low);
	for (int i = 0; i < 2; i++)
		if (low[i].full_at + SSW_LOW_US > now)
			until = Min(until, low[i].full_at + SSW_LOW_US);
	return until;
}

/* The bound as a literal. */
static char *
literal(const SswLowerBound *low)
{
	switch (low->type)
	{
		case TIMESTAMPTZOID:
			return psprintf("'%s'::pg_catalog.timestamptz", timestamptz_to_str(low->value));
		case TIMESTAMPOID:
			return psprintf("'%s'::pg_catalog.timestamp",
							DatumGetCString(DirectFunctionCall1(timestamp_out, TimestampGetDatum(low->value))));
		default:
			return psprintf("'" INT64_FORMAT "'::pg_catalog.int8", low->value);
	}
}

/* The statements of a pass begin at the bounds; in a worker, after ssw_deadline_build(). */
void
ssw_lower_bound_apply(SswPolicy *p, const SswPass *pass)
{
	for (int i = 0; i < p->ndeadlines; i++)
	{
		SswDeadline *c = &p->deadlines[i];
		SswLowerBound low = pass->low[i];

		if (holds(&low, p->relid, c, pass->now) || ssw_lower_bound_find(p->id, i, p->relid, c, pass->now, &low))
			c->low = psprintf("%s " SSW_OP(">") " %s", c->sort, literal(&low));
	}
}
