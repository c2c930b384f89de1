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
#include "access/table.h"
#include "catalog/pg_type.h"
#include "storage/bufmgr.h"
#include "storage/lockdefs.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "citus/catalog.h"
#include "citus/citus.h"
#include "citus/remote.h"
#include "policy/partition.h"

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

/* Wait for a move of the shard, as DML through Citus does, and keep others off until the end of the transaction. */
static void
lock_shard(int64 shard_id)
{
	static const Oid types[] = {INT4OID, INT8ARRAYOID};
	Datum		id = Int64GetDatum(shard_id);
	ArrayType  *ids = construct_array(&id, 1, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE);

	(void) OidFunctionCall2(ssw_citus_function("lock_shard_metadata", 2, types), Int32GetDatum(ShareLock), PointerGetDatum(ids));
}

/*
 * The distributed table of a shard that has its active placement here, until the
 * transaction ends; invalid if it is no such shard.
 */
static Oid
hold_shard(Oid leaf)
{
	int64		shard_id = OidIsValid(ssw_citus_catalog("pg_dist_shard")) ? ssw_citus_shard_id(leaf) : 0;
	Oid			relid = InvalidOid;
	SswCitusScan s;
	HeapTuple	tup;

	if (shard_id == 0 ||
		!ssw_citus_begin(&s, "pg_dist_shard", "pg_dist_shard_shardid_index", SHARD_ID, F_INT8EQ, Int64GetDatum(shard_id)))
		return InvalidOid;
	if (HeapTupleIsValid(tup = ssw_citus_next(&s)))
		relid = DatumGetObjectId(ssw_citus_column(&s, tup, SHARD_TABLE));
	ssw_citus_end(&s);
	if (!OidIsValid(relid) || ssw_citus_shard_table(relid, shard_id) != leaf)
		return InvalidOid;
	lock_shard(shard_id);
	return ssw_citus_is_placed_here(shard_id, ssw_citus_local_group()) ? relid : InvalidOid;
}

static void
refuse(const SswPolicy *p, const char *detail, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot sweep \"%s\"", get_rel_name(p->relid)),
			 errdetail_internal("%s", detail),
			 errhint("%s", hint)));
}

/* Can a policy sweep the table, if it is distributed? */
static void
check(const SswPolicy *p)
{
	SswDistributed d;
	Relation	rel;
	bool		in_key = p->nkeys == 0;

	if (!ssw_citus_is_distributed(p->relid, &d))
		return;
	if (d.method == 'n' && d.replication == 't')
		refuse(p, "It is a reference table: every node has all its rows, and would expire them.",
			   "Use a distributed table, or a table that is local to one node.");
	if (d.method == 'a')
		refuse(p, "It is distributed by append.", "Distribute it by hash: SELECT alter_distributed_table(...).");
	if (ssw_citus_has_copies(&d))
		refuse(p, "Its shards may have several placements, and each would expire the rows.",
			   "Distribute it again with citus.shard_replication_factor = 1.");
	if (p->heartbeats)
		refuse(p, "It is distributed, and heartbeats are kept on one node.", "Renew leases by an UPDATE of the deadline: heartbeats => false.");
	for (int i = 0; i < p->nkeys && d.column; i++)
		in_key = in_key || strcmp(p->key[i], d.column) == 0;
	if (d.column && !in_key)
		refuse(p, psprintf("Its key is without the distribution column \"%s\".", d.column),
			   psprintf("Give a key that contains it: key => ARRAY['%s', ...].", d.column));
	rel = table_open(p->relid, AccessShareLock);
	if (rel->rd_rel->relkind == RELKIND_RELATION && RelationGetNumberOfBlocks(rel) > 0)
		refuse(p, "This node still has the rows from before it was distributed.",
			   psprintf("SELECT truncate_local_data_after_distributing_table(%s);", quote_literal_cstr(p->relation)));
	table_close(rel, NoLock);
}

void
ssw_citus_init(void)
{
	static const SswShards shards = {.find = find_shards,.hold = hold_shard,.check = check};

	ssw_shards = &shards;
	ssw_citus_remote_init();
}
