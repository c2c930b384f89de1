/*
 * usage_event.c
 *		What an ended session of the registry is billed.
 *
 * Runs in a worker, or in a session that ends sessions, inside the transaction
 * that ends them; shares nothing.  A crash leaves nothing: the rows are part of
 * the transaction.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/numeric.h"
#include "utils/timestamp.h"

#include "base/multi_insert.h"
#include "base/spi.h"
#include "policy/policy.h"
#include "policy/policy_hooks.h"
#include "registry/usage_event.h"

/* Columns of sweeper.usage_event, in the order of schema/45_registry.sql. */
enum
{
	U_ID, U_RECORDED_AT, U_ACQUIRED_AT, U_ENDED_AT, U_SESSION, U_POOL, U_OWNER, U_HOURS, U_TYPE, U_NCOLS
};

#define US_PER_HOUR		INT64CONST(3600000000)
#define HOURS_SCALE		6		/* digits; the last one is 3.6 ms */

/* Exact to the last digit: a float or integer quotient would not add up. */
static Datum
hours(int64 us)
{
	Datum		exact = DirectFunctionCall2(numeric_div, NumericGetDatum(int64_to_numeric(us)),
											NumericGetDatum(int64_to_numeric(US_PER_HOUR)));

	return DirectFunctionCall2(numeric_round, exact, Int32GetDatum(HOURS_SCALE));
}

/* What the row action returns besides of a session; see hooks. */
static void
read_life(TupleTableSlot *slot, int first, SswEndedRow *row)
{
	SswLife    *life = palloc(sizeof(SswLife));

	life->session = *DatumGetUUIDP(slot->tts_values[first]);
	life->acquired_at = DatumGetTimestampTz(slot->tts_values[first + 2]);
	life->ended_at = DatumGetTimestampTz(slot->tts_values[first + 3]);
	row->extra = life;
	row->owner = slot->tts_isnull[first + 1] ? NULL : DatumGetTextPCopy(slot->tts_values[first + 1]);
	row->channel = slot->tts_isnull[first + 4] ? NULL : TextDatumGetCString(slot->tts_values[first + 4]);
}

/* One usage row for each session that ended, with the id of its cleanup event. */
static void
add_usage(SswEndedRow *rows, int n, const char *type, int64 event)
{
	SswMultiInsert *table = ssw_multi_insert_open("usage_event", U_NCOLS, U_RECORDED_AT + 1);
	Datum		end_type = CStringGetTextDatum(type);

	for (int i = 0; i < n; i++)
	{
		const SswLife *life = rows[i].extra;
		TupleTableSlot *slot = ssw_multi_insert_slot(table);
		Datum	   *v = slot->tts_values;

		v[U_ID] = Int64GetDatum(event + i);
		v[U_RECORDED_AT] = TimestampTzGetDatum(GetCurrentTransactionStartTimestamp());
		v[U_ACQUIRED_AT] = TimestampTzGetDatum(life->acquired_at);
		v[U_ENDED_AT] = TimestampTzGetDatum(life->ended_at);
		v[U_SESSION] = UUIDPGetDatum(&life->session);
		v[U_POOL] = PointerGetDatum(rows[i].group);
		v[U_OWNER] = PointerGetDatum(rows[i].owner);
		slot->tts_isnull[U_OWNER] = rows[i].owner == NULL;
		v[U_HOURS] = hours(life->ended_at - life->acquired_at);
		v[U_TYPE] = end_type;
		ssw_multi_insert_row(table);
	}
	ssw_multi_insert_close(table);
}

static SswPolicyHooks hooks = {
	.policy_id = SSW_SESSION_POLICY_ID,
	.extra_columns = "t.session, t.owner, t.acquired_at, t.ended_at,"
	" (SELECT ssw_pool.notify_channel FROM sweeper.pool AS ssw_pool WHERE ssw_pool.pool " SSW_OP("=") " t.pool)",
	.read_row = read_life,
	.rows_ended = add_usage
};

void
ssw_usage_init(void)
{
	ssw_policy_hooks_add(&hooks);
}
