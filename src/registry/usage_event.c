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
#include "registry/usage_event.h"

/* Columns of sweeper.usage_event, in the order of schema/45_registry.sql. */
enum
{
	U_ID, U_RECORDED_AT, U_ACQUIRED_AT, U_ENDED_AT, U_SESSION, U_POOL, U_OWNER, U_HOURS, U_TYPE, U_NCOLS
};

#define US_PER_HOUR		INT64CONST(3600000000)
#define HOURS_SCALE		6		/* digits; the last one is 3.6 ms */

struct SswUsage
{
	SswMultiInsert *table;
	Datum		type;
};

SswUsage   *
ssw_usage_open(const char *cleanup_type)
{
	SswUsage   *u = palloc(sizeof(SswUsage));

	u->table = ssw_multi_insert_open("usage_event", U_NCOLS, U_RECORDED_AT + 1);
	u->type = CStringGetTextDatum(cleanup_type);
	return u;
}

/* Exact to the last digit: a float or integer quotient would not add up. */
static Datum
hours(int64 us)
{
	Datum		exact = DirectFunctionCall2(numeric_div, NumericGetDatum(int64_to_numeric(us)),
											NumericGetDatum(int64_to_numeric(US_PER_HOUR)));

	return DirectFunctionCall2(numeric_round, exact, Int32GetDatum(HOURS_SCALE));
}

/* One session; event is the id of its row in cleanup_event. */
void
ssw_usage_add(SswUsage *u, int64 event, text *pool, const SswLife *life)
{
	TupleTableSlot *slot = ssw_multi_insert_slot(u->table);
	Datum	   *v = slot->tts_values;

	v[U_ID] = Int64GetDatum(event);
	v[U_RECORDED_AT] = TimestampTzGetDatum(GetCurrentTransactionStartTimestamp());
	v[U_ACQUIRED_AT] = TimestampTzGetDatum(life->acquired_at);
	v[U_ENDED_AT] = TimestampTzGetDatum(life->ended_at);
	v[U_SESSION] = UUIDPGetDatum(&life->session);
	v[U_POOL] = PointerGetDatum(pool);
	v[U_OWNER] = PointerGetDatum(life->owner);
	slot->tts_isnull[U_OWNER] = life->owner == NULL;
	v[U_HOURS] = hours(life->ended_at - life->acquired_at);
	v[U_TYPE] = u->type;
	ssw_multi_insert_row(u->table);
}

void
ssw_usage_close(SswUsage *u)
{
	ssw_multi_insert_close(u->table);
}
