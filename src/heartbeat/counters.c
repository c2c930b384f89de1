/*
 * counters.c
 *		How many heartbeats there were, and what became of them.
 *
 * Runs in sessions.  Those that send heartbeats at once would wait for one counter
 * longer than for the heartbeat: each counts in one of many, a cache line apart.
 *
 * Shares the counters, which are atomic.  A crash sets them to zero.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"

#include "base/shmem.h"
#include "heartbeat/counters.h"

#define PARTS	64

typedef union Part
{
	pg_atomic_uint64 n[SSW_HEARTBEAT_STATS];
	char		pad[PG_CACHE_LINE_SIZE];
} Part;

static Part *parts = NULL;

static void
init_parts(LWLock *lock)
{
	for (int i = 0; i < PARTS; i++)
		for (int k = 0; k < SSW_HEARTBEAT_STATS; k++)
			pg_atomic_init_u64(&parts[i].n[k], 0);
}

/* What is in shared memory begins with a cache line. */
void
ssw_counters_init(void)
{
	ssw_shmem_add_struct("session_sweeper heartbeat counters", PARTS * sizeof(Part), &parts, init_parts);
}

void
ssw_counters_count(SswHeartbeatStat stat)
{
	if (parts)
		pg_atomic_fetch_add_u64(&parts[MyProcPid % PARTS].n[stat], 1);
}

/* Of each kind, since the last start. */
void
ssw_counters_read(int64 *counts)
{
	memset(counts, 0, SSW_HEARTBEAT_STATS * sizeof(int64));
	for (int i = 0; i < PARTS && parts; i++)
		for (int k = 0; k < SSW_HEARTBEAT_STATS; k++)
			counts[k] += pg_atomic_read_u64(&parts[i].n[k]);
}
