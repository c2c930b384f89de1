/*
 * append_insert.c
 *		Insert appended rows into their table.
 *
 * Runs in an ordinary worker, in the transaction of append_writer.c, through the gate as
 * the table's owner, which must be the same as when the rows were appended.  The role that
 * appended a row must still have the right to insert it.
 *
 * Shares nothing.  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"

#include "base/deferred.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "work/append.h"
#include "work/append_insert.h"

/* Columns that are not named are left out: they get their defaults, and their types may refuse nulls. */
static char *
column_type(const SswAppendTarget *t, char *name)
{
	Oid			type;
	int32		typmod;
	Oid			collation;
	AttrNumber	att = get_attnum(t->relid, name);

	if (att == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation %s does not exist", name, t->relation)));
	get_atttypetypmodcoll(t->relid, att, &type, &typmod, &collation);
	return ssw_guard_type(type, typmod);
}

/* Insert rows that name the same columns. */
static void
insert_alike(const SswAppendTarget *t, const SswAppendedRow *rows, int n)
{
	const char *relation = ssw_guard_table(t->relid);
	StringInfoData columns;
	StringInfoData values;
	StringInfoData types;
	List	   *names = ssw_append_columns(rows[0].data);
	ListCell   *lc;
	Oid			type = JSONBARRAYOID;
	Datum	   *data = palloc(n * sizeof(Datum));
	Datum		array;

	initStringInfo(&columns);
	initStringInfo(&values);
	initStringInfo(&types);
	foreach(lc, names)
	{
		const char *name = quote_identifier(lfirst(lc));

		appendStringInfo(&columns, "%s%s", columns.len ? ", " : "", name);
		appendStringInfo(&values, "%sr.%s", values.len ? ", " : "", name);
		appendStringInfo(&types, "%s%s %s", types.len ? ", " : "", name, column_type(t, lfirst(lc)));
	}
	for (int i = 0; i < n; i++)
		data[i] = JsonbPGetDatum(rows[i].data);
	array = PointerGetDatum(construct_array(data, n, JSONBOID, -1, false, TYPALIGN_INT));
	ssw_spi_exec(psprintf("INSERT INTO %s AS t (%s) SELECT %s FROM pg_catalog.unnest($1) WITH ORDINALITY AS d (j, n)"
						  " CROSS JOIN LATERAL pg_catalog.jsonb_to_record(d.j) AS r (%s) ORDER BY d.n",
						  relation, columns.data, values.data, types.data),
				 1, &type, &array, NULL, false, 0);
}

/* Insert the rows, those that name the same columns and follow each other together.  In the gate. */
void
ssw_append_insert(void *arg)
{
	const SswAppendInsertion *in = arg;

	ssw_deferred_fire();
	for (int from = 0, to; from < in->n; from = to)
	{
		for (to = from + 1; to < in->n && ssw_append_same_columns(in->rows[from].data, in->rows[to].data); to++)
			;
		insert_alike(in->target, in->rows + from, to - from);
	}
	ssw_deferred_fire();
}

/* May the role that appended the rows insert them now, as this owner? */
void
ssw_append_insert_check(const SswAppendTarget *t, Oid owner, const SswAppendedRow *rows, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (rows[i].owner != owner)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("the owner of relation %s has changed since the row was appended", t->relation),
					 errhint("If the table's code may run as the new owner, append the row again.")));
		if (i == 0 || !ssw_append_same_columns(rows[i].data, rows[i - 1].data))
			ssw_append_check_rights(t->relid, t->role, ssw_append_columns(rows[i].data));
	}
}
