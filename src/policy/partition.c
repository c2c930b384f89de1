/*
 * partition.c
 *		The leaves of a policy.
 *
 * Runs in any process that builds or uses a policy, in a transaction, with a lock
 * on the relation.  A leaf is swept by itself.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_subscription_rel.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "base/identity.h"
#include "policy/expr.h"
#include "policy/partition.h"

const SswShards *ssw_shards = NULL;

/* These tables, but instead of those that have shards, their shards. */
static List *
with_shards(List *tables)
{
	List	   *all = NIL;
	ListCell   *lc;

	foreach(lc, tables)
	{
		List	   *shards;

		if (ssw_shards && ssw_shards->find(lfirst_oid(lc), &shards))
			all = list_concat(all, shards);
		else
			all = lappend_oid(all, lfirst_oid(lc));
	}
	return all;
}

/*
 * A relation and all below it, none of them locked: some may be dropped at any moment.  Each
 * once: a child may have several parents, and there may be very many ways to it.
 */
List	   *
ssw_partition_family(Oid relid)
{
	HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(Oid),.hcxt = CurrentMemoryContext};
	HTAB	   *seen = hash_create("relations", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	List	   *all = list_make1_oid(relid);

	for (int i = 0; i < list_length(all); i++)
	{
		Oid			parent = list_nth_oid(all, i);
		List	   *children = SearchSysCacheExists1(RELOID, ObjectIdGetDatum(parent)) ? find_inheritance_children(parent, NoLock) : NIL;
		ListCell   *lc;

		CHECK_FOR_INTERRUPTS();
		foreach(lc, children)
		{
			bool		found;

			(void) hash_search(seen, &lfirst_oid(lc), HASH_ENTER, &found);
			if (!found)
				all = lappend_oid(all, lfirst_oid(lc));
		}
		list_free(children);
	}
	hash_destroy(seen);
	return all;
}

/* Lock a leaf at once.  One that is to be changed must be neither locked nor moving. */
static bool
lock_at_once(Oid leaf, LOCKMODE mode)
{
	return ConditionalLockRelationOid(leaf, mode) && !(mode >= RowExclusiveLock && ssw_shards && ssw_shards->is_moving(leaf));
}

/*
 * The relation's leaves (itself, when it is no partitioned table), by oid, locked in this
 * mode.  One of another owner is left alone; view problem reports it.  So is a
 * temporary child: its rows are in the memory of the session that made it.  If others
 * is given, those that cannot be locked at once are left out; *others is a hash of
 * these, 0: none.
 */
List	   *
ssw_partition_leaves(const SswPolicy *p, LOCKMODE mode, uint32 *others)
{
	List	   *all;
	List	   *leaves = NIL;
	ListCell   *lc;

	if (others)
		*others = 0;
	LockRelationOid(p->relid, AccessShareLock);
	if (!OidIsValid(ssw_relation_owner(p->relid)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation %s does not exist", p->relation)));
	all = with_shards(others ? ssw_partition_family(p->relid) : find_all_inheritors(p->relid, mode, NULL));
	foreach(lc, all)
	{
		Oid			leaf = lfirst_oid(lc);

		if (get_rel_relkind(leaf) != RELKIND_RELATION || get_rel_persistence(leaf) == RELPERSISTENCE_TEMP ||
			(leaf != p->relid && ssw_relation_owner(leaf) != p->owner))
			continue;
		if (!others)
			LockRelationOid(leaf, mode);	/* not yet, if it is a shard */
		if (others && leaf != p->relid && !lock_at_once(leaf, mode))
			*others += Max(1, murmurhash32(leaf));
		else if (get_rel_relkind(leaf) == RELKIND_RELATION) /* not dropped meanwhile */
			leaves = lappend_oid(leaves, leaf);
	}
	list_sort(leaves, list_oid_cmp);
	list_free(all);
	return leaves;
}

/* Are all rows in the table itself?  It has neither partitions, nor children, nor shards. */
bool
ssw_partition_is_alone(Relation rel)
{
	return !rel->rd_rel->relhassubclass && !(ssw_shards && ssw_shards->has(RelationGetRelid(rel)));
}

/* The table that is the shard of a leaf's rows; invalid if the policy's table has no shards. */
Oid
ssw_partition_shard(const SswPolicy *p, Oid leaf)
{
	if (ssw_shards == NULL || !ssw_shards->has(p->relid))
		return InvalidOid;
	/* partitions of a shard move with it */
	while (get_rel_relispartition(leaf))
		leaf = get_partition_parent(leaf, false);
	return leaf;
}

/* The tables of this node in which the policy's rows are found: the relation, or its shards here. */
List	   *
ssw_partition_places(const SswPolicy *p)
{
	List	   *shards;

	return ssw_shards && ssw_shards->find(p->relid, &shards) ? shards : list_make1_oid(p->relid);
}

/* Could rows be written just now, in the relation and in all that are below it? */
bool
ssw_partition_is_writable(Oid relid)
{
	List	   *all = ssw_partition_family(relid);
	bool		writable = true;
	ListCell   *lc;

	foreach(lc, all)
	{
		writable = ConditionalLockRelationOid(lfirst_oid(lc), RowExclusiveLock);
		if (!writable)
			break;
		UnlockRelationOid(lfirst_oid(lc), RowExclusiveLock);
	}
	list_free(all);
	return writable;
}

/*
 * Is a table, which is locked, a partition, child or shard of the other, at any level?
 * Not one that is being detached: for queries it is outside.
 */
bool
ssw_partition_is_below(Oid leaf, Oid relid)
{
	Relation	inherits = table_open(InheritsRelationId, AccessShareLock);
	Oid			sharded = ssw_shards ? ssw_shards->hold(leaf) : InvalidOid;
	List	   *todo = list_make1_oid(OidIsValid(sharded) ? sharded : leaf);
	bool		found = sharded == relid;

	for (int i = 0; i < list_length(todo) && !found; i++)
	{
		ScanKeyData key;
		SysScanDesc scan;
		HeapTuple	tup;

		ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber, F_OIDEQ,
					ObjectIdGetDatum(list_nth_oid(todo, i)));
		scan = systable_beginscan(inherits, InheritsRelidSeqnoIndexId, true, NULL, 1, &key);
		while (!found && HeapTupleIsValid(tup = systable_getnext(scan)))
		{
			Form_pg_inherits link = (Form_pg_inherits) GETSTRUCT(tup);

			if (link->inhdetachpending)
				continue;
			found = link->inhparent == relid;
			todo = list_append_unique_oid(todo, link->inhparent);
		}
		systable_endscan(scan);
	}
	table_close(inherits, AccessShareLock);
	list_free(todo);
	return found;
}

/* Do a table's rows, or, if it is invalid, those of any table of the database, come from a publisher? */
bool
ssw_partition_is_subscribed(Oid relid)
{
	/* the cache would search its lists of all tables one by one */
	Relation	rel = table_open(SubscriptionRelRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		subscribed;

	ScanKeyInit(&key, Anum_pg_subscription_rel_srrelid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, SubscriptionRelSrrelidSrsubidIndexId, true, NULL, OidIsValid(relid) ? 1 : 0, &key);
	subscribed = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return subscribed;
}

/*
 * The first of the relation and its descendants whose rows are a publisher's, which
 * the policy may not sweep; invalid when there is none.
 */
Oid
ssw_partition_subscribed(const SswPolicy *p)
{
	ListCell   *lc;

	/* there may be thousands of partitions */
	if (p->allow_replicated || !ssw_partition_is_subscribed(InvalidOid))
		return InvalidOid;
	foreach(lc, ssw_partition_family(p->relid))
		if (ssw_partition_is_subscribed(lfirst_oid(lc)))
		return lfirst_oid(lc);
	return InvalidOid;
}

/*
 * A leaf is swept by itself: an update of these columns must not move its rows to another
 * one.  A partition key can be an expression over them, too.
 */
static void
check_update(Oid relid, const char *field, List *columns)
{
	ListCell   *lc;

	foreach(lc, columns ? find_all_inheritors(relid, AccessShareLock, NULL) : NIL)
	{
		Relation	part = table_open(lfirst_oid(lc), NoLock);
		Bitmapset  *attnums = NULL;
		bool		used_in_expr;
		ListCell   *c;

		foreach(c, columns)
			attnums = bms_add_member(attnums, ssw_expr_find_column(part, lfirst(c)) - FirstLowInvalidHeapAttributeNumber);
		if (part->rd_rel->relkind == RELKIND_PARTITIONED_TABLE && has_partition_attrs(part, attnums, &used_in_expr))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot sweep \"%s\": %s would change its partition key", RelationGetRelationName(part), field),
					 errdetail("An update of a policy does not move rows to other partitions."),
					 errhint("Use action \"call\" with an on_expire function that updates the rows, or another column.")));
		table_close(part, NoLock);
	}
}

/*
 * The columns that one of these arguments makes the policy update.  Heartbeats add
 * none that matters: the key contains what says where a row is, and they do not change it.
 */
static List *
updated_columns(const SswPolicy *p, int argument)
{
	if (argument == 0)
		return p->set_clause ? ssw_expr_set_columns(p->set_clause) : NIL;
	if (p->on_null != SSW_NULL_REPAIR && !OidIsValid(p->is_alive))
		return NIL;
	return list_make1(p->last_seen ? p->last_seen : p->deadline);
}

static const char *
updating_argument(const SswPolicy *p, int argument)
{
	return argument == 0 ? "set_clause" : p->last_seen ? "last_seen" : "deadline";
}

/* The argument that makes the policy update the column, or null.  The policy is as it is stored. */
const char *
ssw_partition_updated_by(const SswPolicy *p, const char *column)
{
	ListCell   *lc;

	for (int i = 0; i < 2; i++)
		foreach(lc, updated_columns(p, i))
			if (strcmp(lfirst(lc), column) == 0)
			return updating_argument(p, i);
	return NULL;
}

/*
 * Does the policy, whose fragments are there, update what the relation is partitioned
 * by?  Then an error.  Looking at a partition key folds its expressions: inside the gate.
 */
void
ssw_partition_check(const SswPolicy *p)
{
	ssw_gate_require();
	for (int i = 0; i < 2; i++)
		check_update(p->relid, updating_argument(p, i), updated_columns(p, i));
}

/* A rule on the action, or on an UPDATE that gives a row a new deadline, would make something else of it. */
void
ssw_partition_check_rules(const SswPolicy *p, Relation leaf)
{
	CmdType		command = p->action == SSW_ACTION_UPDATE ? CMD_UPDATE :
	p->action == SSW_ACTION_DELETE ? CMD_DELETE : CMD_NOTHING;
	bool		refreshes = p->on_null == SSW_NULL_REPAIR || OidIsValid(p->is_alive) || p->heartbeats;

	for (int i = 0; leaf->rd_rules && i < leaf->rd_rules->numLocks; i++)
	{
		CmdType		event = leaf->rd_rules->rules[i]->event;

		if (event == command || (refreshes && event == CMD_UPDATE))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot sweep \"%s\": it has a rule on %s", RelationGetRelationName(leaf),
							event == CMD_UPDATE ? "UPDATE" : "DELETE"),
					 errdetail("The rule would rewrite the statements of a sweep."),
					 errhint("Use a trigger instead of the rule.")));
	}
}
