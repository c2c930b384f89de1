/*
 * replicated.c
 *		Rows of our tables that logical replication brings are not written.
 *
 * A publication FOR ALL TABLES takes the tables of schema sweeper along.  What they
 * say is true of the publisher alone, and its keys are those of rows here.  Triggers of
 * these tables, which fire only where session_replication_role is "replica", discard
 * what the subscription's processes write, also of the first copy; and nothing that a
 * restore writes under that setting.
 *
 * Runs in the subscription's processes.  Shares nothing; a crash leaves nothing.
 */
#include "postgres.h"

#include "commands/trigger.h"
#include "replication/logicalworker.h"

PG_FUNCTION_INFO_V1(ssw_discard_replicated);

Datum
ssw_discard_replicated(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(data->tg_event) || !TRIGGER_FIRED_FOR_ROW(data->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED), errmsg("_discard_replicated() must be called as a BEFORE trigger for each row")));
	if (IsLogicalWorker())
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple);
}
