/*
 * file.c
 *		Heartbeats over a restart, and those that nobody needs any more.
 *
 * Runs in the launcher.  Its last act is to write those heartbeats to a file that
 * are newer than their rows; the next start reads them, if the server was stopped
 * in order, before any row is judged, and removes the file first: one that is there
 * at a later start would be of another time.  A file, because at a stop no more
 * transactions begin, and because the launcher knows the heartbeats of every
 * database.  See doc/heartbeats.md: T1 to T4.
 *
 * Shares the heartbeats (store.c).  A crash leaves no file, and grace covers what
 * was lost.
 */
#include "postgres.h"

#include <sys/stat.h>

#include "miscadmin.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "grace/policy_outage.h"
#include "grace/service_log.h"
#include "heartbeat/file.h"
#include "heartbeat/store.h"

/* In the folder of permanent statistics, which belongs to one cluster. */
#define FILE_NAME	"pg_stat/session_sweeper.heartbeats"
#define MAGIC		UINT64CONST(0x5353573148420001)

/* How often the entries are looked through. */
#define CLEAN_US	(10 * USECS_PER_SEC)
/* So long the last heartbeat of a dead session whose row is older is kept. */
#define KNOWN_US		USECS_PER_DAY
/* Used up so far, also those go that their rows say as much as. */
#define SHORT		0.9

typedef struct FileHeader
{
	uint64		magic;
	uint64		system_identifier;
	int64		n;
	pg_crc32c	crc;			/* of the heartbeats */
} FileHeader;

typedef struct FileRecord
{
	SswHeartbeatKey key;
	TimestampTz seen;
	int64		ttl_us;
	TimestampTz deadline;
} FileRecord;

typedef struct Writer
{
	FILE	   *file;
	bool		ok;
	int64		n;
	pg_crc32c	crc;
} Writer;

typedef struct Copies
{
	int			n;
	int			size;
	FileRecord *records;
} Copies;

static void
add_copy(Copies *c, const SswHeartbeatKey *key, TimestampTz seen, int64 ttl_us, TimestampTz deadline)
{
	if (c->n < c->size)
		c->records[c->n] = (FileRecord)
	{
		*key, seen, ttl_us, deadline
	};
	c->n++;
}

static bool
copy_newer(const SswHeartbeat *b, void *arg)
{
	TimestampTz seen = SSW_ENTRY_SEEN(pg_atomic_read_u64(&unconstify(SswHeartbeat *, b)->word));

	if (seen + b->ttl_us > b->deadline)
		add_copy(arg, &b->key, seen, b->ttl_us, b->deadline);
	return false;
}

/* The last outage of a policy, as a record without a session and time to live. */
static void
copy_outage(SswPolicyShared *s, void *arg)
{
	SswHeartbeatKey key = {.database = s->key.database,.policy_id = s->key.policy_id};

	if (s->outage_until != 0)
		add_copy(arg, &key, s->outage_until, 0, s->outage_since);
}

/*
 * T2 for the entries of one partition, or the outages; they are copied under the lock, and
 * written without.  The copy may have to be made again with more room.
 */
static void
write_copies(Writer *w, int partition, Copies *c)
{
	for (;;)
	{
		c->n = 0;
		if (partition < SSW_ENTRY_PARTITIONS)
			ssw_store_visit(partition, copy_newer, c, false);
		else
			ssw_shmem_policies_seq(LW_SHARED, copy_outage, c);
		if (c->n <= c->size)
			break;
		c->size = c->n + 1000;
		c->records = repalloc_huge(c->records, c->size * sizeof(FileRecord));
	}
	COMP_CRC32C(w->crc, c->records, c->n * sizeof(FileRecord));
	w->ok = w->ok && fwrite(c->records, sizeof(FileRecord), c->n, w->file) == c->n;
	w->n += c->n;
}

/* T1 and T2: write what is newer than its row.  From now on heartbeats write rows. */
void
ssw_file_write(void)
{
	FileHeader	h = {.magic = MAGIC,.system_identifier = ssw_service_system_identifier()};
	Writer		w = {0};
	Copies		c = {.size = 1000,.records = palloc(1000 * sizeof(FileRecord))};
	TimestampTz start = GetCurrentTimestamp();

	ssw_store_set_stopping(true);
	w.file = AllocateFile(FILE_NAME ".new", PG_BINARY_W);
	w.ok = w.file != NULL && fwrite(&h, sizeof(h), 1, w.file) == 1;
	INIT_CRC32C(w.crc);
	for (int i = 0; i <= SSW_ENTRY_PARTITIONS && w.ok; i++)
		write_copies(&w, i, &c);
	FIN_CRC32C(w.crc);
	h.n = w.n;
	h.crc = w.crc;
	w.ok = w.ok && fseek(w.file, 0, SEEK_SET) == 0 && fwrite(&h, sizeof(h), 1, w.file) == 1;
	if (w.file && FreeFile(w.file) != 0)
		w.ok = false;
	if (!w.ok)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", FILE_NAME ".new"),
				 errdetail("The next start counts as one after a crash: sessions with heartbeats get a grace of one time to live.")));
		/* the server needs what is left of the disk */
		(void) unlink(FILE_NAME ".new");
	}
	else if (durable_rename(FILE_NAME ".new", FILE_NAME, LOG) == 0)
		ereport(LOG,
				(errmsg("session_sweeper kept " INT64_FORMAT " heartbeats in " INT64_FORMAT " ms",
						w.n - c.n, (GetCurrentTimestamp() - start) / 1000)));
}

/* Read the heartbeats of a whole and matching file; returns how many, or -1. */
static int64
read_all(FILE * file, FileRecord **records)
{
	FileHeader	h;
	struct stat st;
	pg_crc32c	crc;

	if (fstat(fileno(file), &st) != 0 || fread(&h, sizeof(h), 1, file) != 1 || h.magic != MAGIC ||
		h.system_identifier != ssw_service_system_identifier() || h.n < 0 || h.n > PG_INT32_MAX ||
		st.st_size != sizeof(h) + h.n * sizeof(FileRecord))
		return -1;
	*records = MemoryContextAllocHuge(CurrentMemoryContext, Max(1, h.n) * sizeof(FileRecord));
	if (fread(*records, sizeof(FileRecord), h.n, file) != h.n)
		return -1;
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, *records, h.n * sizeof(FileRecord));
	FIN_CRC32C(crc);
	return EQ_CRC32C(crc, h.crc) ? h.n : -1;
}

/*
 * T4: take over what the last stop left, at the first start of a launcher in this
 * server.  False when heartbeats may have been lost: then it was no clean stop.
 */
bool
ssw_file_load(bool first)
{
	FILE	   *file = AllocateFile(FILE_NAME, PG_BINARY_R);
	FileRecord *records = NULL;
	int64		n = -1;
	bool		room = true;

	if (file)
	{
		/*
		 * first: if there is not memory enough to read it, the next try is a
		 * start after a crash
		 */
		bool		unlinked = durable_unlink(FILE_NAME, LOG) == 0;

		n = read_all(file, &records);
		FreeFile(file);
		if (n < 0)
			ereport(LOG,
					(errmsg("file \"%s\" is damaged, or belongs to another cluster", FILE_NAME),
					 errdetail("This start counts as one after a crash: sessions with heartbeats get a grace of one time to live.")));
		if (!unlinked)
			n = -1;
		for (int64 i = 0; i < n && first && ssw_service_is_clean(); i++)
		{
			const SswHeartbeatKey *k = &records[i].key;

			if (records[i].ttl_us == 0)
			{
				ssw_outage_note(k->database, k->policy_id, records[i].deadline, records[i].seen);
				continue;
			}
			/* it may have ended after the file was written: its row says so */
			room = ssw_store_publish(k, records[i].seen, records[i].ttl_us, records[i].deadline, false) && room;
			ssw_store_look(k);
			ssw_shmem_note_ttl(k->database, k->policy_id, records[i].ttl_us);
		}
		if (records)
			pfree(records);
	}
	ssw_store_set_stopping(false);
	return n >= 0 && room;
}

typedef struct Cleaner
{
	TimestampTz now;
	bool		is_short;		/* of memory */
	SswStarts	starts;
} Cleaner;

/* Does nobody need the entry?  Its session is dead, or its row says as much. */
static bool
is_useless(const SswHeartbeat *b, void *arg)
{
	Cleaner    *c = arg;
	uint64		word = pg_atomic_read_u64(&unconstify(SswHeartbeat *, b)->word);
	TimestampTz until = SSW_ENTRY_SEEN(word) + b->ttl_us;
	bool		dead = Max(until, b->deadline) + b->ttl_us < c->now - ssw_service_credit(&c->starts, c->now, b->ttl_us);

	/* the last evidence of its life, which its end is to tell */
	bool		knows_more = until > b->deadline && c->now - until < KNOWN_US;

	if (b->attached != 0)
		return false;
	return (dead && (c->is_short || !knows_more)) || (c->is_short && until <= b->deadline);
}

/* Memory is full: logged once, until there is room again. */
static void
log_full(const SswHeartbeatCounts *counts)
{
	static TimestampTz logged = 0;

	if (counts->full_since != 0 && counts->full_since != logged)
		ereport(LOG,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("session_sweeper's memory for heartbeats is full"),
				 errdetail("It holds " INT64_FORMAT " of them. Heartbeats of further sessions write their rows, or fail inside a transaction block.", counts->most),
				 errhint("Raise \"session_sweeper.heartbeat_memory\" and restart the server.")));
	logged = counts->full_since;
}

/* Give back entries of sessions that are long dead, now and then. */
void
ssw_file_clean(void)
{
	static TimestampTz last = 0;
	Cleaner		c = {.now = GetCurrentTimestamp()};
	SswHeartbeatCounts counts;

	ssw_store_counts(&counts);
	log_full(&counts);
	if (c.now >= last && c.now - last < CLEAN_US)
		return;
	last = c.now;
	if (counts.used == 0)
		return;
	c.is_short = counts.used > counts.most * SHORT;
	ssw_service_list(&c.starts);
	for (int i = 0; i < SSW_ENTRY_PARTITIONS; i++)
		ssw_store_visit(i, is_useless, &c, true);
}
