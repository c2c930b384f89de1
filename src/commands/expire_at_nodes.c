/*
 * expire_at_nodes.c
 *		Rows of a distributed table, ended on the nodes that have them.
 *
 * Runs in the caller's session on the coordinator of a cluster.  Each key goes to the
 * node of its row, as the caller and in the caller's transaction.
 *
 * Shares nothing.  A rollback undoes all of it.  At commit each node commits its part: if
 * a node fails in between, the caller gets an error, and the others keep theirs.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "commands/expire_at_nodes.h"
#include "heartbeat/shard_route.h"
#include "policy/deadline.h"
#include "policy/row_key.h"

static void
refuse(const SswPolicy *p, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot expire rows of policy \"%s\" on other nodes", p->name),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

static void
check_column(const SswPolicy *p, const char *name, const char *hint)
{
	AttrNumber	attnum = get_attnum(p->relid, name);

	if (attnum <= 0 || get_atttype(p->relid, attnum) >= FirstNormalObjectId)
		refuse(p, psprintf("%s is not a column of a built-in type.", name), hint);
}

/* Is there nothing in a query of key and group that runs code of the table's owner as the caller? */
static void
check_plain(const SswPolicy *p, const char *group)
{
	if (p->nkeys == 0)
		refuse(p, "The policy has no key.", psprintf("Give it one: SELECT sweeper.alter_policy(%s, key => '{...}');", quote_literal_cstr(p->name)));
	for (int i = 0; i < p->nkeys; i++)
		check_column(p, p->key[i], "End the rows by an UPDATE of their deadline.");
	if (group)
		check_column(p, p->group_by, "Call sweeper.expire() with the keys of the group.");
	ssw_shard_route->check_rights(p);
}

typedef struct Lookup
{
	const SswPolicy *policy;
	const char *sql;
	int			n;
	Oid			types[SSW_KEY_MAX];
	Datum		values[SSW_KEY_MAX];
	MemoryContext cxt;			/* of the result: texts */
	List	   *result;
} Lookup;

static void
run(void *arg)
{
	Lookup	   *q = arg;

	ssw_spi_begin();
	ssw_spi_exec(q->sql, q->n, q->types, q->values, NULL, false, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		MemoryContext spi = MemoryContextSwitchTo(q->cxt);

		q->result = lappend(q->result, ssw_spi_text(i, 1));
		MemoryContextSwitchTo(spi);
	}
	ssw_spi_end();
}

static void
read_key(void *arg)
{
	Lookup	   *q = arg;

	q->n = ssw_key_params(q->policy, linitial(q->result), q->types, q->values);
}

/*
 * Outside of a transaction block Citus would commit each key by itself.  A row lock makes
 * it begin a transaction on the nodes; that one is locked or not changes nothing.
 */
static void
begin_on_nodes(const SswPolicy *p, const char *key)
{
	Lookup		q = {.policy = p,.cxt = CurrentMemoryContext,.result = list_make1((char *) key)};

	if (IsTransactionBlock())
		return;
	if (pg_class_aclcheck(p->relid, GetUserId(), ACL_UPDATE) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
				 errmsg("cannot expire rows of other nodes outside of a transaction block"),
				 errdetail("A role with UPDATE on the table can."),
				 errhint("BEGIN; SELECT sweeper.expire(...); COMMIT;")));
	ssw_gate(p->owner, p->search_path, read_key, &q);
	q.sql = psprintf("SELECT 1 FROM %s AS t WHERE %s FOR KEY SHARE SKIP LOCKED", ssw_guard_table(p->relid), ssw_key_matches(p, 1));
	ssw_gate(GetUserId(), p->search_path, run, &q);
}

static void
build(void *arg)
{
	Lookup	   *q = arg;
	Relation	rel = table_open(q->policy->relid, AccessShareLock);
	SswPolicy	p = *q->policy;

	ssw_deadline_build(&p, rel);
	q->sql = psprintf("SELECT %s FROM %s AS t WHERE %s OPERATOR(pg_catalog.=) $1", p.key_text, ssw_guard_table(p.relid), p.group_text);
	table_close(rel, NoLock);
}

static List *
keys_of_group(const SswPolicy *p, const char *group)
{
	Lookup		q = {.policy = p,.n = 1,.types = {TEXTOID},.values = {CStringGetTextDatum(group)},.cxt = CurrentMemoryContext};

	ssw_gate(p->owner, p->search_path, build, &q);
	ssw_gate(GetUserId(), p->search_path, run, &q);
	return q.result;
}

static List *
keys_of_array(ArrayType *array)
{
	List	   *keys = NIL;
	Datum	   *elems;
	int			n;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &elems, NULL, &n);
	for (int i = 0; i < n; i++)
		keys = lappend(keys, TextDatumGetCString(elems[i]));
	return keys;
}

/* End the rows with these keys, or of the group.  The caller may end rows of the policy. */
int64
ssw_expire_at_nodes(const SswPolicy *p, ArrayType *keys, const char *group, const char *reason)
{
	int64		ended = 0;
	List	   *all;
	ListCell   *lc;

	check_plain(p, group);
	all = keys ? keys_of_array(keys) : keys_of_group(p, group);
	if (all != NIL)
		begin_on_nodes(p, linitial(all));
	foreach(lc, all)
	{
		Datum		what[2] = {CStringGetTextDatum(lfirst(lc)), reason ? CStringGetTextDatum(reason) : (Datum) 0};
		bool		nulls[2] = {false, reason == NULL};
		int			dims[1] = {2};
		int			low[1] = {1};
		bool		isnull;
		ArrayType  *arg = construct_md_array(what, nulls, 1, dims, low, TEXTOID, -1, false, TYPALIGN_INT);

		ended += DatumGetInt64(ssw_shard_route->ask(p, "_expire_here", lfirst(lc), TEXTARRAYOID, PointerGetDatum(arg), &isnull));
	}
	return ended;
}
