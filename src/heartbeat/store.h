/*
 * store.h
 *		The heartbeats of the server, in shared memory.
 */
#ifndef SSW_STORE_H
#define SSW_STORE_H

#include "datatype/timestamp.h"
#include "port/atomics.h"

#include "base/ssw.h"

typedef struct SswHeartbeatKey
{
	SswHeartbeatId id;
	Oid			database;
	int32		policy_id;
} SswHeartbeatKey;

/*
 * What is known of one session.  word is the time of the last heartbeat, eight
 * times, whether somebody is about to end the session (SSW_ENTRY_MARK), whether
 * the row may have changed, so that the next heartbeat must look at it
 * (SSW_ENTRY_LOOK), and whether the connection that it was attached to has gone
 * since (SSW_ENTRY_GONE: nothing is attached then); it changes by compare-and-set
 * under a shared lock of the partition.  The rest changes under an exclusive one.
 */
typedef struct SswHeartbeat
{
	SswHeartbeatKey key;
	pg_atomic_uint64 word;
	int64		ttl_us;
	TimestampTz deadline;		/* of the row, as last read or written by us */
	uint64		attached;		/* number of its attachment to a connection,
								 * or 0; none is given twice.  The lowest
								 * SSW_ENTRY_PID_BITS are the process */
	uint32		next;			/* in its bucket, or in the list of free ones */
} SswHeartbeat;

#define SSW_ENTRY_MARK		UINT64CONST(1)
#define SSW_ENTRY_LOOK		UINT64CONST(2)
#define SSW_ENTRY_GONE		UINT64CONST(4)
#define SSW_ENTRY_FLAGS		(SSW_ENTRY_MARK | SSW_ENTRY_LOOK | SSW_ENTRY_GONE)
#define SSW_ENTRY_WORD(t)	((uint64) (t) << 3)
#define SSW_ENTRY_SEEN(w)	((TimestampTz) ((w) >> 3))

#define SSW_ENTRY_PID_BITS	22
/* Is that the number of another process's attachment? */
#define SSW_ENTRY_ELSEWHERE(attached) \
	((attached) != 0 && (((attached) ^ (uint64) MyProcPid) & ((UINT64CONST(1) << SSW_ENTRY_PID_BITS) - 1)) != 0)

#define SSW_ENTRY_PARTITIONS 128

/* Whether a session may end, as far as memory knows. */
typedef enum SswHeartbeatVerdict
{
	SSW_VERDICT_NONE,			/* memory knows nothing newer than the row */
	SSW_VERDICT_ALIVE,
	SSW_VERDICT_MARKED,			/* we marked it */
	SSW_VERDICT_BUSY			/* another process did */
} SswHeartbeatVerdict;

/* On what condition a session is marked. */
typedef enum SswHeartbeatEnd
{
	SSW_END_IF_DEAD,
	SSW_END_ANYWAY,				/* heartbeats do not hold it: an absolute
								 * limit */
	SSW_END_BY_NAME,			/* somebody named it */
	SSW_END_IF_GONE				/* its connection has gone, and no heartbeat
								 * has come since */
} SswHeartbeatEnd;

/* How many entries there are. */
typedef struct SswHeartbeatCounts
{
	int64		used;
	int64		most;
	int64		refused;		/* heartbeats that found no room, ever */
	TimestampTz full_since;		/* 0: there is room */
} SswHeartbeatCounts;

extern void ssw_store_init(void);

extern int64 ssw_store_margin(int64 ttl_us);
extern bool ssw_store_touch(const SswHeartbeatKey *key, TimestampTz now);
extern void ssw_store_spare(const SswHeartbeatKey *key, TimestampTz now);
extern bool ssw_store_publish(const SswHeartbeatKey *key, TimestampTz seen, int64 ttl_us, TimestampTz deadline,
							  bool committed);
extern void ssw_store_prolong(const SswHeartbeatKey *key, TimestampTz remembered, TimestampTz deadline, int64 ttl_us);
extern bool ssw_store_find(const SswHeartbeatKey *key, SswHeartbeat *copy);

extern SswHeartbeatVerdict ssw_store_mark(const SswHeartbeatKey *key, TimestampTz due, TimestampTz cutoff,
										  SswHeartbeatEnd end, bool locked, uint64 *word);
extern bool ssw_store_is_marked(const SswHeartbeatKey *key, uint64 word);
extern void ssw_store_unmark(const SswHeartbeatKey *key, uint64 word, bool look);
extern void ssw_store_remove(const SswHeartbeatKey *key, uint64 word);
extern void ssw_store_look(const SswHeartbeatKey *key);
extern void ssw_store_refute(const SswHeartbeatKey *key);
extern void ssw_store_unpublish(const SswHeartbeatKey *key);

/* Nothing else is done meanwhile: no allocation, no error, no other lock. */
typedef void (*SswHeartbeatChange) (SswHeartbeat *b, void *arg);
extern bool ssw_store_change(const SswHeartbeatKey *key, SswHeartbeatChange change, void *arg);

/* Returns whether the entry is to be removed. */
typedef bool (*SswHeartbeatVisitor) (const SswHeartbeat *b, void *arg);
extern void ssw_store_visit(int partition, SswHeartbeatVisitor visitor, void *arg, bool may_remove);
extern void ssw_store_counts(SswHeartbeatCounts *c);
extern void ssw_store_count_refused(void);

extern bool ssw_store_stopping(void);
extern void ssw_store_set_stopping(bool stopping);

#endif							/* SSW_STORE_H */
