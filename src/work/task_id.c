/*
 * task_id.c
 *		Identifiers of tasks, whose order is that of their submission.
 *
 * Runs in any session; shares nothing, and needs nothing after a crash: the clock and
 * chance make them.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "utils/timestamp.h"

#include "base/ssw.h"
#include "work/task_id.h"

/* Of a time-ordered uuid (RFC 9562, version 7): 48 bits of ms, 12 of parts of one. */
#define PARTS_OF_MS		4096
#define US_PER_MS		1000

static uint64
parts_of(TimestampTz at)
{
	uint64		us = at + (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;

	return us / US_PER_MS * PARTS_OF_MS + us % US_PER_MS * PARTS_OF_MS / US_PER_MS;
}

static void
set_time(pg_uuid_t *id, uint64 parts)
{
	uint64		first = pg_hton64(parts / PARTS_OF_MS << 16 | 7 << 12 | parts % PARTS_OF_MS);

	memcpy(id->data, &first, sizeof(first));
}

/*
 * An identifier that is greater than those made before: here, and elsewhere as
 * far as the clocks agree.
 */
pg_uuid_t  *
ssw_task_identifier(void)
{
	static uint64 last = 0;
	pg_uuid_t  *id = palloc(UUID_LEN);

	last = ssw_max(last + 1, parts_of(GetCurrentTimestamp()));
	if (!pg_strong_random(id, UUID_LEN))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
	set_time(id, last);
	id->data[8] = (id->data[8] & 0x3f) | 0x80;
	return id;
}

/* No identifier that is made from then on is less. */
pg_uuid_t
ssw_task_first_identifier(TimestampTz at)
{
	pg_uuid_t	id = {0};

	set_time(&id, parts_of(at));
	return id;
}
