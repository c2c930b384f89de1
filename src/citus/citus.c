/*
 * citus.c
 *		Tables whose rows are in shards of Citus.
 *
 * Runs in any process that looks for the leaves of a policy, in a transaction.
 * A shard is a leaf on the node that has its active placement.  A copy that a move
 * makes, or has left behind, is none.
 *
 * Shares nothing.  A batch holds the lock of a shard's metadata that DML of Citus takes,
 * and a move conflicts with; a crash releases it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/spi.h"
#include "base/identity.h"
#include "citus/catalog.h"
#include "citus/citus.h"
#include "citus/remote.h"
#include "citus/share.h"
#include "policy/partition.h"
#include "policy/repair_hint.h"

static bool
has_shards(Oid relid)
{
	SswDistributed d;

	return ssw_citus_is_distributed(relid, &d);
}

/* The shards of a distributed table that have their rows on this node; false: it is none. */
static bool
find_shards(Oid relid, List **shards)
{
	SswCitusScan s;
	HeapTuple	tup;
	SswDistributed d;
	int32		group;

	*shards = NIL;
	if (!ssw_citus_is_distributed(relid, &d))
		return false;
	/* made so after its registration: the copies on other nodes would stay */
	if (ssw_citus_has_copies(&d))
		return true;
	group = ssw_citus_local_group();
	if (!ssw_citus_begin(&s, "pg_dist_shard", "pg_dist_shard_logical_relid_index", SHARD_TABLE, F_OIDEQ, ObjectIdGetDatum(relid)))
		return true;
	while (HeapTupleIsValid(tup = ssw_citus_next(&s)))
	{
		int64		shard_id = DatumGetInt64(ssw_citus_column(&s, tup, SHARD_ID));
		Oid			shard = ssw_citus_is_placed_here(shard_id, group) ? ssw_citus_shard_table(relid, shard_id) : InvalidOid;

		if (OidIsValid(shard))
			*shards = lappend_oid(*shards, shard);
	}
	ssw_citus_end(&s);
	return true;
}

static void
lock_shard_as_owner(void *shard_id)
{
	static const Oid types[] = {INT4OID, INT8ARRAYOID};
	Datum		id = Int64GetDatum(*(int64 *) shard_id);
	ArrayType  *ids = construct_array(&id, 1, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);

	(void) OidFunctionCall2(ssw_citus_function("lock_shard_metadata", 2, types), Int32GetDatum(ShareLock), PointerGetDatum(ids));
}

/*
 * Wait for a move of the shard, as DML through Citus does, and keep others off until the
 * end of the transaction.  Citus lets only the owner do so, and a row can be ended by others.
 */
static void
lock_shard(Oid relid, int64 shard_id)
{
	Oid			owner = ssw_relation_owner(relid);

	if (GetUserId() == owner || superuser())
		lock_shard_as_owner(&shard_id);
	else
		ssw_gate(owner, "pg_catalog", lock_shard_as_owner, &shard_id);
}

/* The distributed table that has a shard with the number in the table's name; or invalid. */
static Oid
table_of_shard(Oid leaf, int64 *shard_id)
{
	Oid			relid = InvalidOid;
	SswCitusScan s;
	HeapTuple	tup;

	*shard_id = OidIsValid(ssw_citus_catalog("pg_dist_shard")) ? ssw_citus_shard_id(leaf) : 0;
	if (*shard_id == 0 ||
		!ssw_citus_begin(&s, "pg_dist_shard", "pg_dist_shard_shardid_index", SHARD_ID, F_INT8EQ, Int64GetDatum(*shard_id)))
		return InvalidOid;
	if (HeapTupleIsValid(tup = ssw_citus_next(&s)))
		relid = DatumGetObjectId(ssw_citus_column(&s, tup, SHARD_TABLE));
	ssw_citus_end(&s);
	return relid;
}

/*
 * Is the table that shard of the other, and its active placement here?  Not a table that
 * somebody gave the name of a shard.
 */
static bool
is_shard(Oid leaf, Oid relid, int64 shard_id)
{
	return ssw_citus_is_placed_here(shard_id, ssw_citus_local_group()) && ssw_citus_shard_table(relid, shard_id) == leaf &&
		ssw_relation_owner(leaf) == ssw_relation_owner(relid);
}

/*
 * The distributed table of a shard that has its active placement here, until the
 * transaction ends; invalid if it is no such shard.
 */
static Oid
hold_shard(Oid leaf)
{
	int64		shard_id;
	Oid			relid = table_of_shard(leaf, &shard_id);

	/* only then: others may hold the lock of any shard of their own */
	if (!OidIsValid(relid) || !is_shard(leaf, relid, shard_id))
		return InvalidOid;
	lock_shard(relid, shard_id);
	return is_shard(leaf, relid, shard_id) ? relid : InvalidOid;
}

static bool
try_hold(void *leaf)
{
	SetConfigOption("lock_timeout", "1", PGC_SUSET, PGC_S_OVERRIDE);
	(void) hold_shard(*(Oid *) leaf);
	return false;
}

/* Would holding the leaf wait, because a move or split of the shard waits, runs or is in doubt? */
static bool
is_moving(Oid leaf)
{
	ErrorData  *error = OidIsValid(ssw_citus_catalog("pg_dist_shard")) ? ssw_spi_try(try_hold, &leaf) : NULL;

	if (error && error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE)
		ReThrowError(error);
	return error != NULL;
}

/* Why a policy cannot sweep its table, and what to do. */
typedef struct Trouble
{
	const char *detail;
	const char *hint;
} Trouble;

/* Is the table, or a partition of it, columnar? */
static bool
has_columnar(Oid relid)
{
	Oid			columnar = get_am_oid("columnar", true);
	bool		found = false;
	ListCell   *lc;

	if (!OidIsValid(columnar))
		return false;
	foreach(lc, ssw_partition_family(relid))
	{
		HeapTuple	tup = SearchSysCache1(RELOID, ObjectIdGetDatum(lfirst_oid(lc)));

		if (!HeapTupleIsValid(tup))
			continue;
		found = found || ((Form_pg_class) GETSTRUCT(tup))->relam == columnar;
		ReleaseSysCache(tup);
	}
	return found;
}

/* Are there rows in the table itself?  If it is locked, the answer waits for the next time. */
static bool
has_local_rows(Oid relid)
{
	Relation	rel;
	bool		found;

	if (get_rel_relkind(relid) != RELKIND_RELATION || !ConditionalLockRelationOid(relid, AccessShareLock))
		return false;
	rel = try_relation_open(relid, NoLock);
	found = rel && RelationGetNumberOfBlocks(rel) > 0;
	if (rel)
		relation_close(rel, NoLock);
	UnlockRelationOid(relid, AccessShareLock);
	return found;
}

/* Is the distribution column, if there is one, in the key? */
static bool
has_key(const SswPolicy *p, const SswDistributed *d)
{
	bool		found = p->nkeys == 0 || d->column == NULL;

	for (int i = 0; i < p->nkeys && !found; i++)
		found = strcmp(p->key[i], d->column) == 0;
	return found;
}

static bool
set_trouble(Trouble *t, const char *detail, const char *hint)
{
	t->detail = detail;
	t->hint = hint;
	return true;
}

static bool
find_trouble(const SswPolicy *p, Trouble *t)
{
	SswDistributed d;
	bool		distributed = ssw_citus_is_distributed(p->relid, &d);
	const char *argument;
	const char *table = quote_literal_cstr(p->relation);

	if (!OidIsValid(ssw_citus_catalog("pg_dist_partition")))
		return false;
	if (has_columnar(p->relid))
		return set_trouble(t, "It is columnar: its rows cannot be deleted or updated.",
						   psprintf("SELECT alter_table_set_access_method(%s, 'heap');", table));
	if (!distributed)
		return false;
	if (d.method == 'n' && d.replication == 't')
		return set_trouble(t, "It is a reference table: every node has all its rows, and would expire them.",
						   psprintf("SELECT undistribute_table(%s); -- or use a distributed table", table));
	/* other nodes do not know its shards */
	if (d.method != 'h' && d.method != 'n')
		return set_trouble(t, psprintf("It is distributed by %s.", d.method == 'a' ? "append" : "range"), "Use a table that is distributed by hash.");
	if (ssw_citus_has_copies(&d))
		return set_trouble(t, "Its shards may have several placements, and each would expire the rows.",
						   psprintf("SET citus.shard_replication_factor = 1; SELECT undistribute_table(%1$s); SELECT create_distributed_table(%1$s, %2$s);",
									table, quote_literal_cstr(d.column ? d.column : "")));
	if (!has_key(p, &d))
		return set_trouble(t, psprintf("Its key is without the distribution column \"%s\".", d.column),
						   psprintf("Give a key that contains it: key => ARRAY[%s, ...].", quote_literal_cstr(d.column)));
	argument = d.column ? ssw_partition_updated_by(p, d.column) : NULL;
	if (argument)
		return set_trouble(t, psprintf("By its %s the policy would change distribution column \"%s\", and leave rows in shards where they are not found.",
									   argument, d.column),
						   "Use another column.");
	if (p->heartbeats && d.column && !ssw_citus_hashes_alike(p->relid, d.column))
		return set_trouble(t, psprintf("Nodes hash the type of the distribution column \"%s\" differently, so they could not find the row of a heartbeat.", d.column),
						   "Distribute it by a column of a built-in type, or renew leases by an UPDATE of the deadline: heartbeats => false.");
	if (has_local_rows(p->relid))
		return set_trouble(t, "This node still has the rows from before it was distributed.",
						   psprintf("SELECT truncate_local_data_after_distributing_table(%s);", table));
	return false;
}

/* Why the policy does not sweep its table, and what to do; null: it can. */
static char *
find_misfit(const SswPolicy *p, char **next_step)
{
	Trouble		t;

	if (!find_trouble(p, &t))
		return NULL;
	if (next_step)
		*next_step = strncmp(t.hint, "SE", 2) == 0 ? pstrdup(t.hint) :
			ssw_repair_with_comment(psprintf("SELECT * FROM citus_tables WHERE table_name = %s::regclass;", quote_literal_cstr(p->relation)), t.hint);
	return pstrdup(t.detail);
}

/* Can a policy sweep the table, if it is distributed? */
static void
check(const SswPolicy *p)
{
	Trouble		t = {NULL, NULL};
	int64		shard_id;
	Oid			sharded = table_of_shard(p->relid, &shard_id);

	if (OidIsValid(sharded) && is_shard(p->relid, sharded, shard_id))
		(void) set_trouble(&t, psprintf("It is a shard of table \"%s\".", get_rel_name(sharded)),
						   "Register that table, on the coordinator.");
	else if (has_shards(p->relid) && ssw_citus_local_group() != 0)
		(void) set_trouble(&t, "It is distributed, and this node is not the cluster's coordinator.",
						   "Call the function on the coordinator. The other nodes follow.");
	else
		(void) find_trouble(p, &t);
	if (t.detail)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot sweep \"%s\"", get_rel_name(p->relid)),
				 errdetail_internal("%s", t.detail),
				 errhint("%s", t.hint)));
}

static bool
follows(void)
{
	return ssw_citus_local_group() > 0;
}

void
ssw_citus_init(void)
{
	static const SswShards shards = {.has = has_shards,.find = find_shards,.hold = hold_shard,.is_moving = is_moving,.check = check,.misfit = find_misfit,
	.share = ssw_citus_share,.drop = ssw_citus_drop_shared};

	ssw_shards = &shards;
	ssw_policy_follows = follows;
	ssw_citus_remote_init();
}
