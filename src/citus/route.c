/*
 * route.c
 *		Heartbeats for rows in shards of Citus: which node they go to, and whether one counts.
 *
 * Runs in callers' sessions.  What is asked of another node goes through Citus, as the
 * caller, on the connection that this transaction has to the node.
 *
 * A heartbeat that was answered true is held, also while its shard moves.  Citus changes
 * pg_dist_placement by two-phase commit: the change is prepared on all nodes before it is
 * committed on any.  This node first puts the heartbeat into memory, and then looks at
 * the placement.  If no transaction that moves the shard away has changed the placement
 * by then, none is prepared here, so none is committed anywhere.  So the node to which the
 * shard goes does not see it yet.  That node gives all sessions of the shard one time to
 * live from the moment that it sees it, which ends later than the time to live that was
 * acknowledged here.
 *
 * Shares nothing.  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

#include "base/cached_plan.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "citus/catalog.h"
#include "citus/route.h"
#include "heartbeat/shard_route.h"
#include "policy/partition.h"
#include "policy/row_key.h"

/* A shard and the lowest hash of its rows' distribution column. */
typedef struct HashedShard
{
	int32		low;
	SswShard	shard;
} HashedShard;

/* The shards of a table, by their hashes. */
struct SswShardMap
{
	int			column;			/* of the key: the distribution column; -1:
								 * one shard has all rows */
	FmgrInfo	hash;
	Oid			collation;
	int			n;
	HashedShard *shards;
};

static int
compare_low(const void *a, const void *b)
{
	int32		x = ((const HashedShard *) a)->low;
	int32		y = ((const HashedShard *) b)->low;

	return x < y ? -1 : x > y;
}

/* All shards of the table. */
static void
read_shards(SswShardMap *map, Oid relid)
{
	int			size = 64;
	int32		group = ssw_citus_local_group();
	SswCitusScan s;
	HeapTuple	tup;

	map->shards = palloc(size * sizeof(HashedShard));
	if (!ssw_citus_begin(&s, "pg_dist_shard", "pg_dist_shard_logical_relid_index", SHARD_TABLE, F_OIDEQ, ObjectIdGetDatum(relid)))
		return;
	while (HeapTupleIsValid(tup = ssw_citus_next(&s)))
	{
		HashedShard h = {.shard.id = DatumGetInt64(ssw_citus_column(&s, tup, SHARD_ID))};

		if (map->column >= 0)
			h.low = pg_strtoint32(TextDatumGetCString(ssw_citus_column(&s, tup, SHARD_LOW)));
		h.shard.group = ssw_citus_placement(h.shard.id);
		if (h.shard.group == group)
			h.shard.table = ssw_citus_shard_table(relid, h.shard.id);
		if (map->n == size)
			map->shards = repalloc(map->shards, (size *= 2) * sizeof(HashedShard));
		map->shards[map->n++] = h;
	}
	ssw_citus_end(&s);
	qsort(map->shards, map->n, sizeof(HashedShard), compare_low);
}

/* Where the rows of a policy are; null: its table has no shards. */
static SswShardMap *
load(const SswPolicy *p)
{
	SswShardMap *map;
	SswDistributed d;

	if (!ssw_citus_is_distributed(p->relid, &d))
		return NULL;
	map = palloc0(sizeof(SswShardMap));
	map->column = -1;
	for (int i = 0; i < p->nkeys && d.column; i++)
		if (strcmp(p->key[i], d.column) == 0)
		{
			AttrNumber	attnum = get_attnum(p->relid, p->key[i]);
			TypeCacheEntry *type = lookup_type_cache(get_atttype(p->relid, attnum), TYPECACHE_HASH_PROC_FINFO);
			Oid			typid;
			int32		typmod;

			get_atttypetypmodcoll(p->relid, attnum, &typid, &typmod, &map->collation);
			fmgr_info_copy(&map->hash, &type->hash_proc_finfo, CurrentMemoryContext);
			map->column = i;
		}
	if (d.column && (map->column < 0 || d.method != 'h' || !ssw_citus_hashes_alike(p->relid, d.column)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot find a row of policy \"%s\": its table is not distributed by the hash of a key column that is the same on all nodes", p->name)));
	read_shards(map, p->relid);
	return map;
}

/* The shard of the row with that key. */
static const SswShard *
find(const SswShardMap *map, const Datum *values)
{
	static const SswShard nowhere = {.group = SSW_NO_GROUP};
	int			low = 0;
	int			high = map->n - 1;
	int32		hash = 0;

	if (map->n == 0)
		return &nowhere;
	if (map->column >= 0)
		hash = DatumGetInt32(FunctionCall1Coll(unconstify(FmgrInfo *, &map->hash), map->collation, values[map->column]));
	while (low < high)
	{
		int			middle = (low + high + 1) / 2;

		if (map->shards[middle].low <= hash)
			low = middle;
		else
			high = middle - 1;
	}
	return &map->shards[low].shard;
}

/* Is the shard's active placement here, and does no transaction that has not ended change that? */
static bool
is_here(const SswShard *shard)
{
	bool		here = false;
	SnapshotData dirty;
	SswCitusScan s;
	HeapTuple	tup;

	InitDirtySnapshot(dirty);
	if (!ssw_citus_begin_with(&s, "pg_dist_placement", "pg_dist_placement_shardid_index", PLACEMENT_SHARD, F_INT8EQ, Int64GetDatum(shard->id), &dirty))
		return false;
	while (!here && HeapTupleIsValid(tup = ssw_citus_next(&s)))
		here = !TransactionIdIsValid(dirty.xmin) && !TransactionIdIsValid(dirty.xmax) &&
			DatumGetInt32(ssw_citus_column(&s, tup, PLACEMENT_GROUP)) == shard->group &&
			DatumGetInt32(ssw_citus_column(&s, tup, PLACEMENT_STATE)) == PLACEMENT_ACTIVE;
	ssw_citus_end(&s);
	return here;
}

/* What is asked of the node of a row. */
typedef struct Question
{
	const SswPolicy *policy;
	const char *function;
	const char *key;
	Oid			type;
	Datum		arg;
	MemoryContext cxt;			/* of the answer */
	Datum		answer;
	bool		isnull;
} Question;

/*
 * Citus sends the statement to the node with the row.  HAVING makes one row of the answer,
 * whether the statement's snapshot shows the row or not: the function looks itself.  An
 * aggregate would, too, but Citus writes the names of those without their schema.
 */
static void
send(void *arg)
{
	Question   *q = arg;
	const SswPolicy *p = q->policy;
	Oid			types[SSW_KEY_MAX + 3];
	Datum		values[SSW_KEY_MAX + 3];
	int			n;
	MemoryContext old;

	ssw_spi_begin();
	n = ssw_key_params(p, q->key, types, values);
	types[n] = TEXTOID;
	values[n] = CStringGetTextDatum(p->name);
	types[n + 1] = q->type;
	values[n + 1] = q->arg;
	types[n + 2] = TEXTOID;
	values[n + 2] = CStringGetTextDatum(ssw_key_place(p));
	if (ssw_plan_execute(psprintf("SELECT sweeper.%s($%d, $%d, $%d) FROM %s AS t WHERE %s HAVING true", q->function, n + 1, n + 2, n + 3,
								  ssw_guard_table(p->relid), ssw_key_matches(p, 1)), n + 3, types, values, NULL, false) != 1)
		elog(ERROR, "the node of a row gave no answer");
	q->answer = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &q->isnull);
	old = MemoryContextSwitchTo(q->cxt);
	if (!q->isnull && !TupleDescAttr(SPI_tuptable->tupdesc, 0)->attbyval)
		q->answer = PointerGetDatum(PG_DETOAST_DATUM_COPY(q->answer));
	MemoryContextSwitchTo(old);
	ssw_spi_end();
}

/* Is the role a superuser, or can it become one? */
static bool
may_be_superuser(Oid role)
{
	Relation	roles;
	SysScanDesc scan;
	HeapTuple	tup;
	bool		found = superuser_arg(role);

	if (found)
		return true;
	roles = table_open(AuthIdRelationId, AccessShareLock);
	scan = systable_beginscan(roles, InvalidOid, false, NULL, 0, NULL);
	while (!found && HeapTupleIsValid(tup = systable_getnext(scan)))
	{
		Form_pg_authid other = (Form_pg_authid) GETSTRUCT(tup);

		found = other->rolsuper && is_member_of_role_nosuper(role, other->oid);
	}
	systable_endscan(scan);
	table_close(roles, AccessShareLock);
	return found;
}

/* Do the table and all its partitions belong to superusers? */
static bool
belongs_to_superusers(Oid relid)
{
	ListCell   *lc;

	foreach(lc, ssw_partition_family(relid))
		if (!superuser_arg(ssw_relation_owner(lfirst_oid(lc))))
		return false;
	return true;
}

/*
 * A statement on the table is planned and run as the caller.  That needs SELECT, and runs
 * what the table's owner has put into indexes, row security and types: with the
 * rights of a superuser the owner could do anything on that node.
 */
static void
check_rights(const SswPolicy *p)
{
	bool		allowed = pg_class_aclcheck(p->relid, GetUserId(), ACL_SELECT) == ACLCHECK_OK;
	bool		columns = true;

	if (may_be_superuser(GetUserId()) && !belongs_to_superusers(p->relid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("a superuser cannot reach another node's rows of table \"%s\"", get_rel_name(p->relid)),
				 errdetail("A query of the table would run code of the owners of the table and its partitions, with the rights of role \"%s\".",
						   GetUserNameFromId(GetUserId(), false)),
				 errhint("The session is not gone: keep it. SET ROLE to the owner, or to a role that is no superuser or member of one.")));
	for (int i = 0; i < p->nkeys && !allowed; i++)
		columns = columns && pg_attribute_aclcheck(p->relid, get_attnum(p->relid, p->key[i]), GetUserId(), ACL_SELECT) == ACLCHECK_OK;
	if (!allowed && !columns)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for another node's rows of table \"%s\"", get_rel_name(p->relid)),
				 errdetail("To reach that node, the role needs SELECT on the key's columns."),
				 errhint("The session is not gone: keep it. Grant the role SELECT.")));
	if (check_enable_rls(p->relid, InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("row security applies to another node's rows of table \"%s\"", get_rel_name(p->relid)),
				 errdetail("To reach that node, the table is queried as role \"%s\".", GetUserNameFromId(GetUserId(), false)),
				 errhint("The session is not gone: keep it. Call as a role to which row security does not apply.")));
}

static Datum
ask(const SswPolicy *p, const char *function, const char *key, Oid type, Datum arg, bool *isnull)
{
	Question	q = {.policy = p,.function = function,.key = key,.type = type,.arg = arg,.cxt = CurrentMemoryContext};

	check_rights(p);
	ssw_gate(GetUserId(), p->search_path, send, &q);
	*isnull = q.isnull;
	return q.answer;
}

void
ssw_citus_route_init(void)
{
	static const SswShardRoute route = {.load = load,.find = find,.is_here = is_here,.check_rights = check_rights,.ask = ask};

	ssw_shard_route = &route;
}
