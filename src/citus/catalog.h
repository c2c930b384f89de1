/*
 * catalog.h
 *		Readers of Citus's catalogs.
 */
#ifndef SSW_CITUS_CATALOG_H
#define SSW_CITUS_CATALOG_H

#include "access/genam.h"
#include "access/htup.h"
#include "utils/relcache.h"

/* Columns of Citus's catalogs, the same since Citus 10. */
#define SHARD_TABLE			1	/* pg_dist_shard.logicalrelid */
#define SHARD_ID			2	/* pg_dist_shard.shardid */
#define SHARD_LOW			5	/* pg_dist_shard.shardminvalue */
#define PLACEMENT_SHARD		2	/* pg_dist_placement.shardid */
#define PLACEMENT_STATE		3	/* pg_dist_placement.shardstate */
#define PLACEMENT_GROUP		5	/* pg_dist_placement.groupid */
#define PARTITION_TABLE		1	/* pg_dist_partition.logicalrelid */
#define PARTITION_METHOD	2	/* pg_dist_partition.partmethod */
#define PARTITION_KEY		3	/* pg_dist_partition.partkey */
#define PARTITION_MODEL		5	/* pg_dist_partition.repmodel */
#define LOCAL_GROUP			1	/* pg_dist_local_group.groupid */

#define PLACEMENT_ACTIVE	1
#define SSW_NO_GROUP		(-1)

/* A scan of one of Citus's catalogs, by an index over one column or of all rows. */
typedef struct SswCitusScan
{
	Relation	rel;
	SysScanDesc scan;
} SswCitusScan;

/* A distributed table as Citus describes it. */
typedef struct SswDistributed
{
	char		method;
	char		replication;
	char	   *column;			/* null: one shard */
} SswDistributed;

extern Oid	ssw_citus_catalog(const char *name);
extern bool ssw_citus_begin(SswCitusScan *s, const char *name, const char *index, AttrNumber column, RegProcedure equals, Datum value);
extern bool ssw_citus_begin_with(SswCitusScan *s, const char *name, const char *index, AttrNumber column, RegProcedure equals, Datum value,
								 Snapshot snapshot);
extern HeapTuple ssw_citus_next(SswCitusScan *s);
extern Datum ssw_citus_column(const SswCitusScan *s, HeapTuple tup, AttrNumber number);
extern void ssw_citus_end(SswCitusScan *s);
extern Oid	ssw_citus_function(char *name, int nargs, const Oid *types);
extern bool ssw_citus_is_distributed(Oid relid, SswDistributed *d);
extern bool ssw_citus_hashes_alike(Oid relid, const char *column);
extern bool ssw_citus_has_copies(const SswDistributed *d);
extern int32 ssw_citus_local_group(void);
extern int32 ssw_citus_placement(int64 shard_id);
extern bool ssw_citus_is_placed_here(int64 shard_id, int32 group);
extern Oid	ssw_citus_shard_table(Oid relid, int64 shard_id);
extern int64 ssw_citus_shard_id(Oid relid);

#endif							/* SSW_CITUS_CATALOG_H */
