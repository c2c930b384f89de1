/*
 * all_nodes.c
 *		Views of all nodes of a cluster: problem_all and its like.
 *
 * Runs in the session of a reader.  Each other node answers with the rows of one of
 * five views or tables, as JSON, over a connection of the reader's role.  So a reader
 * sees what it could see by connecting to the node, and no statement is passed on.
 * The time for a connection, and for the answer, is limited.
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/json.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/spi.h"
#include "monitor/all_nodes.h"
#include "work/command_queue.h"

PG_FUNCTION_INFO_V1(ssw_node_name);
PG_FUNCTION_INFO_V1(ssw_node_rows);
PG_FUNCTION_INFO_V1(ssw_other_nodes);

/* Time for a connection to a node, and for its answer. */
#define NODE_TIMEOUT		2000	/* ms */

/* Rows of evidence that a node returns, the latest first. */
#define EVIDENCE_ROWS		10000

const SswNodes *ssw_nodes = NULL;

/* What a node may be asked for. */
typedef struct Source
{
	const char *name;
	const char *latest_first;	/* null: it has few rows */
	bool		shows_silence;	/* its view has a row for a node without an
								 * answer */
} Source;

static const Source *
find_source(Datum name)
{
	static const Source sources[] = {
		{"policy_status", NULL, true},
		{"problem", NULL, true},
		{"stat_progress", NULL, false},
		{"pass", "started_at", false},
		{"cleanup_event", "cleaned_at", false},
	};
	char	   *wanted = TextDatumGetCString(name);

	for (int i = 0; i < lengthof(sources); i++)
		if (strcmp(sources[i].name, wanted) == 0)
			return &sources[i];
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("nodes are not asked for \"%s\"", wanted)));
}

/* What this node is called in its cluster. */
Datum
ssw_node_name(PG_FUNCTION_ARGS)
{
	char	   *name = ssw_nodes->own_name();

	PG_RETURN_TEXT_P(cstring_to_text(name ? name : ssw_queue_machine()));
}

/* The rows of a view on this node, as an array in JSON; an error if they take too long. */
Datum
ssw_node_rows(PG_FUNCTION_ARGS)
{
	const Source *source = find_source(PG_GETARG_DATUM(0));
	TimestampTz deadline = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), NODE_TIMEOUT);
	TimestampTz earlier = get_timeout_active(STATEMENT_TIMEOUT) ? get_timeout_finish_time(STATEMENT_TIMEOUT) : 0;
	StringInfoData sql;
	volatile Datum rows = 0;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT coalesce(pg_catalog.json_agg(v)::text, '[]') FROM (SELECT * FROM sweeper.%s", source->name);
	if (source->latest_first)
		appendStringInfo(&sql, " ORDER BY %s DESC LIMIT %d", source->latest_first, EVIDENCE_ROWS);
	appendStringInfoString(&sql, ") AS v");
	if (earlier == 0 || earlier > deadline)
		enable_timeout_at(STATEMENT_TIMEOUT, deadline);
	PG_TRY();
	{
		ssw_spi_begin();
		ssw_spi_exec(sql.data, 0, NULL, NULL, NULL, true, 0);
		rows = SPI_datumTransfer(ssw_spi_column(0, 1), false, -1);
		ssw_spi_end();
	}
	PG_FINALLY();
	{
		disable_timeout(STATEMENT_TIMEOUT, false);
		if (earlier != 0)
			enable_timeout_at(STATEMENT_TIMEOUT, earlier);
	}
	PG_END_TRY();
	PG_RETURN_DATUM(rows);
}

/* The rows that a node returned as JSON, or why it did not; what its view does not show is a warning. */
static void
put_answer(ReturnSetInfo *rsinfo, const Source *source, const SswAnswer *a)
{
	Datum		v[3] = {CStringGetTextDatum(a->node), CStringGetTextDatum(a->text), CStringGetTextDatum(a->text)};
	bool		n[3] = {false, a->failed, !a->failed};

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
	if (a->failed && !source->shows_silence)
		ereport(WARNING,
				(errmsg("rows of node %s are missing", a->node),
				 errdetail_internal("%s", a->text)));
	if (!a->failed && source->latest_first && DatumGetInt32(DirectFunctionCall1(json_array_length, v[1])) >= EVIDENCE_ROWS)
		ereport(WARNING,
				(errmsg("only the latest %d rows of node %s are shown", EVIDENCE_ROWS, a->node),
				 errhint("Connect to the node to see all.")));
}

/* The rows of a view on each other node, or the reason why a node did not return them. */
Datum
ssw_other_nodes(PG_FUNCTION_ARGS)
{
	const Source *source = find_source(PG_GETARG_DATUM(0));
	List	   *answers;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	answers = ssw_nodes->ask_others(psprintf("SELECT sweeper._node_rows('%s')", source->name), NODE_TIMEOUT);
	foreach(lc, answers)
		put_answer((ReturnSetInfo *) fcinfo->resultinfo, source, lfirst(lc));
	return (Datum) 0;
}

/* A row as JSON, with its node as the first field. */
static char *
with_node(const SswAnswer *a)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "{\"node\":");
	escape_json(&buf, a->node);
	appendStringInfo(&buf, ",%s", a->text +1);
	return buf.data;
}

/*
 * The rows that a query gives on the other nodes, each as JSON, in an array of text, or
 * null if there are none.  A node that does not answer is a warning; *silent is one of
 * them, or null.
 */
ArrayType  *
ssw_nodes_rows(const char *query, const char **silent)
{
	ArrayBuildState *rows = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	ListCell   *lc;

	*silent = NULL;
	foreach(lc, ssw_nodes->ask_others(psprintf("SELECT pg_catalog.to_json(r) FROM (%s) AS r", query), NODE_TIMEOUT))
	{
		SswAnswer  *a = lfirst(lc);

		if (!a->failed)
			rows = accumArrayResult(rows, CStringGetTextDatum(with_node(a)), false, TEXTOID, CurrentMemoryContext);
		else
		{
			*silent = a->node;
			ereport(WARNING,
					(errmsg("rows of node %s are missing", a->node),
					 errdetail_internal("%s", a->text)));
		}
	}
	return DatumGetArrayTypeP(makeArrayResult(rows, CurrentMemoryContext));
}
