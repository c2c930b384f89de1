/*
 * xact.c
 *		What the end of this transaction means for heartbeats in memory.
 *
 * Runs in workers and in callers' sessions.  A list of what was marked, what has
 * a new deadline and what may be published only when the transaction that wrote
 * the row has ended; done by the callbacks of transactions and subtransactions.
 * See doc/heartbeats.md: E3, E4, R2, S4.
 *
 * Shares nothing itself; a crash empties the list and the memory it is about.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/shmem.h"
#include "heartbeat/attach.h"
#include "heartbeat/xact.h"

typedef enum PendingKind
{
	PENDING_UNMARK,				/* marked: the mark goes, whatever happens */
	PENDING_REMOVE,				/* marked, and ended if we commit */
	PENDING_DISTRUST,			/* marked, and perhaps ended if we commit */
	PENDING_PROLONG,			/* its row has a new deadline if we commit */
	PENDING_ATTACH				/* attached to this connection if we commit */
} PendingKind;

typedef struct Pending
{
	PendingKind kind;
	SubTransactionId subid;
	SswHeartbeatKey key;
	uint64		word;			/* of a mark; 0: there was no entry */
	TimestampTz deadline;
	int64		ttl_us;			/* 0: as it was */
	TimestampTz remembered;		/* the one that memory had when the row was
								 * written */
	TimestampTz undone;			/* the row's deadline if we abort */
	bool		is_new;			/* others do not see the row yet */
	int			earliest;		/* the first item of its key, or itself */
} Pending;

typedef struct Prolonged
{
	SswHeartbeatKey key;
	int			earliest;		/* unless a rollback has taken that away */
} Prolonged;

/*
 * In TopTransactionContext, in the order of the levels they were added at: those of
 * a subtransaction are at the end when it ends.
 */
static Pending *pending = NULL;
static int	npending = 0;
static int	pending_max = 0;
static HTAB *prolonged = NULL;	/* of those of kind PENDING_PROLONG; in the
								 * same context */

static void
on_commit(const Pending *p)
{
	switch (p->kind)
	{
		case PENDING_UNMARK:
			ssw_store_unmark(&p->key, p->word, false);
			break;
		case PENDING_REMOVE:
			ssw_store_remove(&p->key, p->word);
			break;
		case PENDING_DISTRUST:
			ssw_store_unmark(&p->key, p->word, true);
			break;
		case PENDING_PROLONG:
			ssw_store_prolong(&p->key, p->remembered, p->deadline, p->ttl_us);
			ssw_shmem_note_ttl(p->key.database, p->key.policy_id, p->ttl_us);
			break;
		case PENDING_ATTACH:
			ssw_attach_commit(&p->key);
			break;
	}
}

/*
 * The heartbeat still counts; what its row says, the next one reads.  But a row that
 * others never saw never was.
 */
static void
on_abort(const Pending *p)
{
	switch (p->kind)
	{
		case PENDING_ATTACH:
			ssw_attach_abort();
			break;
		case PENDING_PROLONG:
			if (p->is_new)
				ssw_store_unpublish(&p->key);
			else if (p->undone != p->remembered)
				ssw_store_prolong(&p->key, p->remembered, p->undone, 0);
			break;
		default:
			ssw_store_unmark(&p->key, p->word, false);
	}
}

/* A prepared transaction may end much later: until then the rows' locks decide. */
static void
on_prepare(const Pending *p)
{
	if (p->kind <= PENDING_DISTRUST)
		ssw_store_unmark(&p->key, p->word, true);
	else if (p->is_new)
	{
		ssw_shmem_note_ttl(p->key.database, p->key.policy_id, p->ttl_us);
		ssw_store_prolong(&p->key, DT_NOBEGIN, p->deadline, p->ttl_us);
	}
}

/* Nobody knows which connections will be there when it commits. */
static void
before_prepare(void)
{
	for (int i = 0; i < npending; i++)
		if (pending[i].kind == PENDING_ATTACH)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has attached a session"),
					 errhint("Call sweeper.attach() in a transaction of its own.")));
}

static void
for_all(void (*what) (const Pending *))
{
	for (int i = 0; i < npending; i++)
		what(&pending[i]);
}

static void
at_xact_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_PREPARE:
			before_prepare();
			return;
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			return;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PARALLEL_COMMIT:
			for_all(on_commit);
			break;
		case XACT_EVENT_PREPARE:
			for_all(on_prepare);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			for_all(on_abort);
			break;
	}
	pending = NULL;
	prolonged = NULL;
	npending = pending_max = 0;
}

/* The subtransaction that added the rest of the list, from there on, is rolled back. */
static void
undo(int first)
{
	int			added = npending;

	npending = first;
	for (int i = first; i < added; i++)
		/* a heartbeat before the subtransaction still counts */
		if (!pending[i].is_new || pending[i].earliest >= first)
			on_abort(&pending[i]);
}

static void
at_subxact_event(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	int			first = npending;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	while (first > 0 && pending[first - 1].subid == subid)
		first--;
	if (event == SUBXACT_EVENT_ABORT_SUB)
		undo(first);
	for (int i = first; i < npending; i++)
		pending[i].subid = parent;
}

static Pending *
add(PendingKind kind, const SswHeartbeatKey *key)
{
	if (npending == pending_max)
	{
		int			larger = Max(64, pending_max * 2);

		pending = pending ? repalloc_huge(pending, larger * sizeof(Pending)) :
			MemoryContextAllocHuge(TopTransactionContext, larger * sizeof(Pending));
		pending_max = larger;
	}
	memset(&pending[npending], 0, sizeof(Pending));
	pending[npending].kind = kind;
	pending[npending].subid = GetCurrentSubTransactionId();
	pending[npending].key = *key;
	return &pending[npending++];
}

/* The first item for that key, whose row this transaction has written; or the next item. */
static int
find_earliest(const SswHeartbeatKey *key)
{
	Prolonged  *found;
	bool		known;

	if (prolonged == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(SswHeartbeatKey),.entrysize = sizeof(Prolonged),.hcxt = TopTransactionContext};

		prolonged = hash_create("rows with new deadlines", 64, &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	found = hash_search(prolonged, key, HASH_ENTER, &known);
	if (!known || found->earliest >= npending || pending[found->earliest].kind != PENDING_PROLONG ||
		memcmp(&pending[found->earliest].key, key, sizeof(SswHeartbeatKey)) != 0)
		found->earliest = npending;
	return found->earliest;
}

void
ssw_heartbeat_xact_init(void)
{
	RegisterXactCallback(at_xact_end, NULL);
	RegisterSubXactCallback(at_subxact_event, NULL);
}

/* How many there are: where those of an action begin. */
int
ssw_heartbeat_xact_count(void)
{
	return npending;
}

/*
 * The session is marked with that word; 0: it had no entry, and must not get one.
 */
void
ssw_heartbeat_xact_mark(const SswHeartbeatKey *key, uint64 word)
{
	add(PENDING_UNMARK, key)->word = word;
}

/* E3: do those since then still carry our marks? */
bool
ssw_heartbeat_xact_marks_hold(int from)
{
	for (int i = from; i < npending; i++)
		if (pending[i].kind == PENDING_UNMARK && !ssw_store_is_marked(&pending[i].key, pending[i].word))
			return false;
	return true;
}

/* Those marked since then end with this transaction; not all: nobody knows which. */
void
ssw_heartbeat_xact_ended(int from, bool all)
{
	for (int i = from; i < npending; i++)
		if (pending[i].kind == PENDING_UNMARK)
			pending[i].kind = all ? PENDING_REMOVE : PENDING_DISTRUST;
}

/*
 * The session's row, which we hold, has this deadline and time to live (0: as it had),
 * if we commit.  undone: the deadline if we abort, when memory has another.  is_new: others
 * do not see the row yet.
 */
void
ssw_heartbeat_xact_prolong(const SswHeartbeatKey *key, TimestampTz deadline, int64 ttl_us, const TimestampTz *undone, bool is_new)
{
	SswHeartbeat b;
	Pending    *p;
	int			earliest;

	if (!ssw_store_find(key, &b))
		return;
	earliest = find_earliest(key);
	p = add(PENDING_PROLONG, key);
	p->earliest = earliest;
	p->deadline = deadline;
	p->ttl_us = ttl_us;
	p->is_new = is_new;
	p->remembered = b.deadline;
	p->undone = undone ? *undone : b.deadline;
}

/* The session is attached to this connection, if we commit. */
void
ssw_heartbeat_xact_attach(const SswHeartbeatKey *key)
{
	ssw_attach_begin();
	(void) add(PENDING_ATTACH, key);
}
