/*
 * preview_nodes.c
 *		What a policy of a distributed table would find, over shards and nodes.
 *
 * Runs in the backend that asks for a preview, on the coordinator of a cluster.  Each
 * node looks at its own shards, as the caller.  Shares and changes nothing; a crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/spi.h"
#include "commands/preview_nodes.h"
#include "monitor/all_nodes.h"
#include "policy/partition.h"

/* Add what another part of the table has. */
static void
add(SswPreview *v, const SswPreview *more)
{
	ListCell   *lc;

	v->rows += more->rows;
	v->dead += more->dead;
	v->exact = v->exact && more->exact;
	if (more->found)
	{
		v->oldest = v->found ? Min(v->oldest, more->oldest) : more->oldest;
		v->newest = v->found ? Max(v->newest, more->newest) : more->newest;
		v->found = true;
	}
	v->cascade_rows = Max(v->cascade_rows, more->cascade_rows);
	if (v->nkeys == 0)
		v->keys_shown = more->keys_shown;
	for (int i = 0; i < more->nkeys && v->nkeys < SSW_PREVIEW_KEYS && v->keys_shown == more->keys_shown; i++)
		v->keys[v->nkeys++] = more->keys[i];
	foreach(lc, more->advice)
	{
		ListCell   *known;
		bool		is_known = false;

		foreach(known, v->advice)
			is_known = is_known || strcmp(lfirst(known), lfirst(lc)) == 0;
		if (!is_known)
			v->advice = lappend(v->advice, lfirst(lc));
	}
}

/* Look at the relation of a built policy; of a table that has shards, at those on this node. */
SswPreview *
ssw_preview_here(SswPolicy *p, Relation rel)
{
	List	   *places = ssw_partition_places(p);
	SswPreview *v;
	ListCell   *lc;

	if (list_member_oid(places, p->relid))
		return ssw_preview_run(p, rel);
	v = ssw_preview_part(p, rel, true, false);
	foreach(lc, places)
	{
		Relation	shard = try_table_open(lfirst_oid(lc), AccessShareLock);

		if (shard == NULL)
			continue;			/* moved away meanwhile */
		add(v, ssw_preview_part(p, shard, false, true));
		table_close(shard, NoLock);
	}
	return v;
}

static int
read_texts(uint64 row, int col, MemoryContext cxt, char **texts, int max)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);
	Datum	   *elems;
	int			n;

	deconstruct_array(DatumGetArrayTypeP(ssw_spi_column(row, col)), TEXTOID, -1, false, TYPALIGN_INT, &elems, NULL, &n);
	n = Min(n, max);
	for (int i = 0; i < n; i++)
		texts[i] = TextDatumGetCString(elems[i]);
	MemoryContextSwitchTo(old);
	return n;
}

static void
add_row(SswPreview *v, uint64 row, MemoryContext cxt)
{
	SswPreview	more = {.keys_shown = true};
	char	   *advice[64];
	MemoryContext old;
	int			n;

	more.rows = DatumGetInt64(ssw_spi_column(row, 1));
	more.dead = DatumGetInt64(ssw_spi_column(row, 2));
	more.exact = DatumGetBool(ssw_spi_column(row, 3));
	more.found = ssw_spi_text(row, 4) != NULL;
	more.oldest = more.found ? DatumGetTimestampTz(ssw_spi_column(row, 4)) : 0;
	more.newest = more.found ? DatumGetTimestampTz(ssw_spi_column(row, 5)) : 0;
	more.cascade_rows = DatumGetFloat8(ssw_spi_column(row, 6));
	more.nkeys = read_texts(row, 7, cxt, more.keys, SSW_PREVIEW_KEYS);
	n = read_texts(row, 8, cxt, advice, lengthof(advice));
	old = MemoryContextSwitchTo(cxt);
	for (int i = 0; i < n; i++)
		more.advice = lappend(more.advice, advice[i]);
	add(v, &more);
	MemoryContextSwitchTo(old);
}

/* Add what the other nodes have.  Without the answer of one, the sum is not exact. */
void
ssw_preview_add_nodes(const SswPolicy *p, SswPreview *v)
{
	static const char *const sql =
	"SELECT r.rows_estimate, r.dead_estimate, r.exact, r.oldest_deadline, r.newest_deadline, r.cascade_rows_per_parent::pg_catalog.float8, r.sample_keys, r.advice"
	" FROM pg_catalog.unnest($1) AS a (answer), pg_catalog.json_to_record(a.answer::pg_catalog.json) AS r (rows_estimate bigint, dead_estimate bigint, exact boolean,"
	" oldest_deadline timestamptz, newest_deadline timestamptz, cascade_rows_per_parent numeric, sample_keys text[], advice text[])";
	MemoryContext cxt = CurrentMemoryContext;
	Oid			type = TEXTARRAYOID;
	const char *silent;
	Datum		answers = PointerGetDatum(ssw_nodes_rows(psprintf("SELECT * FROM sweeper.preview(%s)", quote_literal_cstr(p->name)), &silent));

	v->exact = v->exact && silent == NULL;
	ssw_spi_begin();
	ssw_spi_exec(sql, 1, &type, &answers, NULL, true, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		add_row(v, i, cxt);
	ssw_spi_end();
}
