/*
 * fence.c
 *		Fences: numbers of sessions that never repeat.
 *
 * Runs in sessions that acquire.  A fence is the next value of a sequence.  Its upper bits
 * are an epoch, no less than the timeline.  Another epoch begins where values may have been
 * given out that the sequence does not know of: on a promoted standby, and in a database
 * that comes from a dump, a template or pg_upgrade.  A second sequence, which no dump takes
 * along, says for which server, database and timeline the epoch was begun.
 *
 * Shares the two sequences; an epoch begins under the lock of a pool without a name, which
 * is held for that only.  A crash between both writes begins another epoch.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "common/hashfn.h"
#include "miscadmin.h"

#include "base/identity.h"
#include "base/locks.h"
#include "base/multi_insert.h"
#include "base/spi.h"
#include "registry/fence.h"
#include "registry/session.h"

#define COUNTER_BITS	40

/* A number for this server, database and timeline. */
static int64
origin(void)
{
	uint64		parts[] = {GetSystemIdentifier(), MyDatabaseId, GetWALInsertionTimeLine()};

	return (hash_bytes_extended((const unsigned char *) parts, sizeof(parts), 0) & PG_INT64_MAX) | 1;
}

/* Was the epoch begun here?  As the extension, in SPI. */
static bool
is_begun(void)
{
	(void) ssw_spi_exec("SELECT last_value FROM sweeper._fence_origin", 0, NULL, NULL, NULL, false, 1);
	return DatumGetInt64(ssw_spi_column(0, 1)) == origin();
}

/* Others use it from now on, though this transaction has not ended: a sequence does not go back. */
static void
begin_epoch(Oid sequence)
{
	Oid			types[] = {INT8OID, INT8OID};
	int64		epoch = (nextval_internal(sequence, false) >> COUNTER_BITS) + 1;
	Datum		values[2];

	epoch = Max(epoch, (int64) GetWALInsertionTimeLine());
	values[0] = Int64GetDatum(epoch << COUNTER_BITS);
	values[1] = Int64GetDatum(origin());
	(void) ssw_spi_exec("SELECT pg_catalog.setval('sweeper.fence_seq', $1), pg_catalog.setval('sweeper._fence_origin', $2)", 2, types, values, NULL, false, 1);
}

/* A number that is higher than all others that were given out. */
int64
ssw_fence_next(void)
{
	static Oid	begun = InvalidOid; /* the sequence whose epoch was looked at */
	Oid			sequence = ssw_multi_insert_relation("fence_seq");

	if (begun != sequence)
	{
		SswIdentity save;

		ssw_spi_begin_as_extension(&save);
		if (!is_begun())
		{
			/* no pool has an empty name */
			ssw_session_lock_pool("", ExclusiveLock);
			if (!is_begun())
				begin_epoch(sequence);
			ssw_lock_pool_release("", ExclusiveLock);
		}
		ssw_spi_end_as(&save);
		begun = sequence;
	}
	return nextval_internal(sequence, false);
}
