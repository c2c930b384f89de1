/*
 * remote.c
 *		Statements for the other nodes of a Citus cluster.
 *
 * Runs in any session.  Citus connects to the nodes as the present role, with new
 * connections, sends them the same statement, and waits for all.
 * Shares nothing; a crash leaves nothing behind, but the nodes finish what was sent.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "base/spi.h"
#include "citus/catalog.h"
#include "citus/remote.h"
#include "monitor/all_nodes.h"
#include "policy/partition.h"

#define NODES \
	"FROM pg_catalog.pg_dist_node AS n CROSS JOIN pg_catalog.pg_dist_local_group AS l WHERE n.isactive AND n.noderole = 'primary'"

static void
set(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* Run a statement as the caller, whose search_path may have operators of the same names. */
static uint64
run(const char *sql, int nargs, Oid *types, Datum *values)
{
	set("search_path", "pg_catalog, pg_temp");
	ssw_spi_begin();
	return ssw_spi_exec(sql, nargs, types, values, NULL, true, 0);
}

static char *
own_name(void)
{
	MemoryContext cxt = CurrentMemoryContext;
	char	   *name = NULL;
	int			nest;

	if (!OidIsValid(ssw_citus_catalog("pg_dist_node")))
		return NULL;
	nest = NewGUCNestLevel();
	if (run("SELECT n.nodename || ':' || n.nodeport " NODES " AND n.groupid = l.groupid", 0, NULL, NULL) > 0)
		name = MemoryContextStrdup(cxt, ssw_spi_text(0, 1));
	ssw_spi_end();
	AtEOXact_GUC(true, nest);
	return name;
}

/* Send a statement that returns one value; the failure of a node is its answer. */
static List *
ask_others(const char *statement, int connect_timeout)
{
	static const char *const sql =
	"SELECT r.node_name || ':' || r.node_port, NOT r.success, r.result"
	" FROM (SELECT array_agg(n.nodename), array_agg(n.nodeport), array_agg($1) " NODES " AND n.groupid <> l.groupid HAVING count(*) > 0)"
	" AS others (names, ports, statements), pg_catalog.master_run_on_worker(names, ports, statements, true) AS r";
	Oid			type = TEXTOID;
	Datum		value = CStringGetTextDatum(statement);
	MemoryContext cxt = CurrentMemoryContext;
	List	   *answers = NIL;
	uint64		n;
	int			nest;

	if (!OidIsValid(ssw_citus_catalog("pg_dist_node")))
		return NIL;
	nest = NewGUCNestLevel();
	if (connect_timeout > 0)
		set("citus.node_connection_timeout", psprintf("%d", connect_timeout));
	/* a node that cannot be reached is in the result */
	set("client_min_messages", "error");
	n = run(sql, 1, &type, &value);
	for (uint64 i = 0; i < n; i++)
	{
		MemoryContext spi = MemoryContextSwitchTo(cxt);
		SswAnswer  *a = palloc(sizeof(SswAnswer));
		char	   *text = ssw_spi_text(i, 3);

		a->node = ssw_spi_text(i, 1);
		a->failed = DatumGetBool(ssw_spi_column(i, 2));
		a->text = text ? text : "";

		answers = lappend(answers, a);
		MemoryContextSwitchTo(spi);
	}
	ssw_spi_end();
	AtEOXact_GUC(true, nest);
	return answers;
}

/* A table with one shard, here, is on no other node. */
static bool
leads(Oid relid)
{
	SswDistributed d;
	List	   *shards;

	if (!ssw_citus_is_distributed(relid, &d) || ssw_citus_local_group() != 0)
		return false;
	return d.column || !ssw_shards->find(relid, &shards) || shards == NIL;
}

void
ssw_citus_remote_init(void)
{
	static const SswNodes nodes = {.own_name = own_name,.ask_others = ask_others,.leads = leads};

	ssw_nodes = &nodes;
}
