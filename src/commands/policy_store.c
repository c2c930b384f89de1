/*
 * policy_store.c
 *		Write rows of sweeper.policy, and what changed in them.
 *
 * Runs in the backend that registers, alters or removes a policy, as the
 * extension's owner and in the caller's transaction: a rollback or a crash
 * leaves no trace.  Shares nothing but the tables.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "base/identity.h"
#include "base/spi.h"
#include "commands/policy_store.h"
#include "heartbeat/policy_xact.h"
#include "policy/policy_rights.h"

/* Add a column and its value to a statement. */
void
ssw_policy_store_add(SswParams *q, const char *column, Oid type, Datum value, bool isnull)
{
	if (q->n == 0)
	{
		initStringInfo(&q->columns);
		initStringInfo(&q->params);
	}
	if (q->n >= SSW_STORE_MAX)
		elog(ERROR, "too many columns of a policy");
	q->types[q->n] = type;
	q->values[q->n] = value;
	q->nulls[q->n] = isnull ? 'n' : ' ';
	q->n++;
	appendStringInfo(&q->columns, "%s%s", q->n > 1 ? ", " : "", quote_identifier(column));
	appendStringInfo(&q->params, "%s$%d", q->n > 1 ? ", " : "", q->n);
}

/* Add a text, or null. */
void
ssw_policy_store_add_text(SswParams *q, const char *column, const char *value)
{
	ssw_policy_store_add(q, column, TEXTOID, value ? CStringGetTextDatum(value) : (Datum) 0, value == NULL);
}

/* Names as text[]. */
static Datum
names_array(char **names, int n)
{
	Datum	   *elems = palloc(sizeof(Datum) * Max(n, 1));

	for (int i = 0; i < n; i++)
		elems[i] = CStringGetTextDatum(names[i]);
	return PointerGetDatum(construct_array(elems, n, TEXTOID, -1, false, TYPALIGN_INT));
}

/* Names of all columns, in the order of their numbers; empty for one that was dropped. */
static Datum
column_names(TupleDesc desc)
{
	char	  **names = palloc(sizeof(char *) * Max(desc->natts, 1));

	for (int i = 0; i < desc->natts; i++)
		names[i] = TupleDescAttr(desc, i)->attisdropped ? "" : NameStr(TupleDescAttr(desc, i)->attname);
	return names_array(names, desc->natts);
}

/*
 * Columns of sweeper.policy that come from arguments; without the relation, the limits
 * only.  Names of columns are written as deadline.c resolved them, a window with its zone;
 * everything else as it was given.
 */
void
ssw_policy_store_add_fields(SswParams *q, const SswArgs *a, const SswPolicy *p, Relation rel)
{
	for (int i = 0; i < SSW_NARGS; i++)
	{
		const SswField *f = &ssw_fields[i];
		const char *member = (const char *) p + f->offset;

		if (rel == NULL && !(f->flags & SSW_FIELD_LIMIT))
			continue;
		if (f->kind == SSW_FIELD_NAMES)
			ssw_policy_store_add(q, f->name, TEXTARRAYOID,
								 names_array(*(char **const *) member, *(const int *) ((const char *) p + f->count)),
								 *(char **const *) member == NULL);
		else if (f->flags & SSW_FIELD_RESOLVED)
			ssw_policy_store_add_text(q, f->name, *(char *const *) member);
		else if (a->given[i] || !a->alter || (f->flags & SSW_FIELD_COLUMNS))
			ssw_policy_store_add(q, f->name, f->kind == SSW_FIELD_FUNCTION ? OIDOID : ssw_field_type(f), a->value[i], a->isnull[i]);
	}
	if (rel == NULL)
		return;
	ssw_policy_store_add_text(q, "on_expire_name", p->on_expire_name);
	ssw_policy_store_add_text(q, "is_alive_name", p->is_alive_name);
	ssw_policy_store_add(q, "columns", TEXTARRAYOID, column_names(RelationGetDescr(rel)), false);
}

/* Run one statement as the extension's owner; an int4 result, or 0. */
int
ssw_policy_store_exec(const char *sql, int nargs, Oid *types, Datum *values, const char *nulls)
{
	SswIdentity save;
	int			result = 0;
	bool		isnull;

	ssw_spi_begin_as_extension(&save);
	if (ssw_spi_exec(sql, nargs, types, values, nulls, false, 0) > 0 && SPI_tuptable)
		result = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	ssw_spi_end_as(&save);
	CommandCounterIncrement();
	return result;
}

/* Columns that passes and brakes write, or that follow from others: they are no part of the definition. */
#define STATE_COLUMNS \
	"'{paused_at,paused_by,paused_reason,paused_until,held_reason,held_at," \
	"failures,failing_since,broken,retry_at,last_error,last_sqlstate,backlog_before,backlog_rows,horizons," \
	"last_pass_at,columns,resumed_at,shared_as,shared_at}'::pg_catalog.text[]"

/* Write down who changed what.  old is the row before, as JSON, or null. */
void
ssw_policy_store_log(int policy_id, const char *name, const char *change, const char *old)
{
	static const char *const sql =
	"INSERT INTO sweeper.policy_change (policy_id, policy, changed_by, change, old, new)"
	" SELECT $1, $2, $3, $4, o.fields, n.fields FROM"
	" (SELECT (SELECT pg_catalog.to_jsonb(p) - " STATE_COLUMNS " FROM sweeper.policy AS p WHERE p.policy_id = $1) AS now,"
	"  $5::pg_catalog.jsonb - " STATE_COLUMNS " AS before) AS r,"
	" LATERAL (SELECT pg_catalog.jsonb_object_agg(e.key, e.value) AS fields"
	"  FROM pg_catalog.jsonb_each(r.before) AS e WHERE (r.now -> e.key) IS DISTINCT FROM e.value) AS o,"
	" LATERAL (SELECT pg_catalog.jsonb_object_agg(e.key, e.value) AS fields"
	"  FROM pg_catalog.jsonb_each(r.now) AS e WHERE (r.before -> e.key) IS DISTINCT FROM e.value) AS n";
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID, TEXTOID, TEXTOID};
	Datum		values[] = {Int32GetDatum(policy_id), CStringGetTextDatum(name), CStringGetTextDatum(ssw_identity_actor()),
	CStringGetTextDatum(change), old ? CStringGetTextDatum(old) : (Datum) 0};
	char		nulls[6] = "     ";

	nulls[4] = old ? ' ' : 'n';
	ssw_policy_store_exec(sql, lengthof(types), types, values, nulls);
}

/* The stored row of a policy as JSON, or null. */
char	   *
ssw_policy_store_json(int policy_id)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(policy_id);

	return ssw_spi_text_as_extension("SELECT pg_catalog.to_jsonb(p)::pg_catalog.text FROM sweeper.policy AS p WHERE p.policy_id = $1",
									 1, &type, &value, false);
}

/* Remove a policy that the caller has locked.  Its heartbeats are forgotten, its evidence stays. */
void
ssw_policy_store_remove(int policy_id, const char *name)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(policy_id);
	char	   *before = ssw_policy_store_json(policy_id);

	ssw_policy_store_exec("DELETE FROM sweeper.policy WHERE policy_id = $1", 1, &type, &value, NULL);
	ssw_policy_store_log(policy_id, name, "unregister", before);
	ssw_policy_xact_changed(policy_id, SSW_SCAN_REMOVE);
	ssw_rights_forget_policy(policy_id);
}

/* The policy may have another name: its failed rows have it, too. */
void
ssw_policy_store_name_failed_rows(int policy_id)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(policy_id);

	ssw_policy_store_exec("UPDATE sweeper.failed_row AS f SET policy = p.policy FROM sweeper.policy AS p"
						  " WHERE p.policy_id = $1 AND f.policy_id = p.policy_id AND f.policy <> p.policy", 1, &type, &value, NULL);
}
