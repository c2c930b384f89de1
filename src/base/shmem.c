/*
 * shmem.c
 *		Fixed shared memory: reserve it, set it up, find entries in it.
 *
 * The postmaster reserves and initialises it; every process of the server may
 * read it.  SswShared->lock guards it (see shmem.h).  A crash of any backend
 * empties it: everything in it is a cache, a mailbox or a counter, and facts
 * are in tables.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/guc.h"
#include "base/shmem.h"

SswSharedState *SswShared = NULL;
SswProc    *SswProcs = NULL;
SswPass    *SswPasses = NULL;
SswProc    *MySswProc = NULL;

static HTAB *policy_hash = NULL;
static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* Upper bounds in seconds; the last bucket is open. */
const double ssw_lag_bounds[SSW_LAG_BUCKETS - 1] =
{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300};
const double ssw_duration_bounds[SSW_DURATION_BUCKETS - 1] =
{0.1, 0.5, 1, 2.5, 5, 10, 30, 60};

/*
 * Entries of the hash of policies: those of users, and the built-in ones of each
 * database.  Memory of the latter is reserved, and used as databases come.
 */
static Size
most_policies(void)
{
	return (Size) ssw_max_policies + SSW_BUILTIN_POLICIES * SSW_MAX_DATABASES;
}

/* What files keep in shared memory, each with locks of its own. */
typedef struct Part
{
	const char *name;
	Size		size;
	Size		more;
	int			nlocks;
	void	  **pointer;
	void		(*init) (LWLock *locks);
} Part;

static List *parts = NIL;

/*
 * Called from _PG_init: *pointer will point to that much shared memory, filled with
 * zeros.  Then init is called in the postmaster, with so many locks, and can allocate
 * more.  A server that starts again after a crash does so again.
 */
void
ssw_shmem_add(const char *name, Size size, Size more, int nlocks, void *pointer, void (*init) (LWLock *locks))
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	Part	   *part = palloc(sizeof(Part));

	*part = (Part)
	{
		name, size, more, nlocks, pointer, init
	};
	parts = lappend(parts, part);
	MemoryContextSwitchTo(old);
}

/* A struct with one lock. */
void
ssw_shmem_add_struct(const char *name, Size size, void *pointer, void (*init) (LWLock *lock))
{
	ssw_shmem_add(name, size, 0, 1, pointer, init);
}

static void
shmem_request(void)
{
	ListCell   *lc;

	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	foreach(lc, parts)
	{
		Part	   *part = lfirst(lc);

		RequestAddinShmemSpace(add_size(CACHELINEALIGN(part->size), CACHELINEALIGN(part->more)));
		RequestNamedLWLockTranche(part->name, part->nlocks);
	}
}

/* Only the postmaster comes here, so no lock is needed. */
static void
shmem_startup(void)
{
	ListCell   *lc;

	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	foreach(lc, parts)
	{
		Part	   *part = lfirst(lc);
		bool		found;

		*part->pointer = ShmemInitStruct(part->name, part->size, &found);
		memset(*part->pointer, 0, part->size);
		part->init(&GetNamedLWLockTranche(part->name)->lock);
	}
}

static void
init_shared(LWLock *lock)
{
	HASHCTL		ctl = {.keysize = sizeof(SswPolicyKey),.entrysize = sizeof(SswPolicyShared)};

	SswProcs = (SswProc *) ((char *) SswShared + MAXALIGN(sizeof(SswSharedState)));
	SswPasses = (SswPass *) ((char *) SswProcs + MAXALIGN(max_worker_processes * sizeof(SswProc)));
	SswShared->lock = lock;
	SswShared->nprocs = max_worker_processes;
	SswShared->launcher = -1;
	ConditionVariableInit(&SswShared->request_cv);
	ConditionVariableInit(&SswShared->exit_cv);
	for (int i = 0; i < max_worker_processes; i++)
	{
		SswProcs[i].pass = -1;
		ConditionVariableInit(&SswPasses[i].collector_cv);
	}
	policy_hash = ShmemInitHash("session_sweeper policies", ssw_max_policies, most_policies(), &ctl, HASH_ELEM | HASH_BLOBS);
}

/* Set the hooks; called from _PG_init while the postmaster preloads us. */
void
ssw_shmem_init(void)
{
	Size		size = MAXALIGN(sizeof(SswSharedState));

	size = add_size(size, MAXALIGN(mul_size(max_worker_processes, sizeof(SswProc))));
	size = add_size(size, MAXALIGN(mul_size(max_worker_processes, sizeof(SswPass))));
	ssw_shmem_add(SSW_EXTENSION, size, hash_estimate_size(most_policies(), sizeof(SswPolicyShared)), 1, &SswShared, init_shared);
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
}

/* Was the library preloaded? */
bool
ssw_shmem_available(void)
{
	return SswShared != NULL;
}

/* ereport unless the library was preloaded, into a server that has our processes. */
void
ssw_shmem_require(void)
{
	if (!IsUnderPostmaster)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("session_sweeper does not run in single-user mode"),
				 errhint("Start the server, and connect to it.")));
	if (!ssw_shmem_available())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("session_sweeper is not running in this server"),
				 errdetail("The library was not loaded when the server started."),
				 errhint(SSW_PRELOAD_HINT)));
}

/*
 * The entry of a database, or null.  With create, a missing one is made, in
 * state UNKNOWN; null then means that all SSW_MAX_DATABASES are taken.  The
 * caller holds the lock, exclusively to create.
 */
SswDatabase *
ssw_shmem_database(Oid dboid, bool create)
{
	SswDatabase *free_entry = NULL;

	Assert(LWLockHeldByMe(SswShared->lock));
	for (int i = 0; i < SswShared->ndatabases; i++)
	{
		SswDatabase *d = &SswShared->databases[i];

		if (d->oid == dboid)
			return d;
		if (!OidIsValid(d->oid) && free_entry == NULL)
			free_entry = d;
	}
	if (create && free_entry == NULL && SswShared->ndatabases < SSW_MAX_DATABASES)
		free_entry = &SswShared->databases[SswShared->ndatabases++];
	if (create && free_entry)
	{
		Assert(LWLockHeldByMeInMode(SswShared->lock, LW_EXCLUSIVE));
		memset(free_entry, 0, sizeof(SswDatabase));
		free_entry->oid = dboid;
		free_entry->coordinator = -1;
		free_entry->known_since = GetCurrentTimestamp();
		return free_entry;
	}
	return NULL;
}

/* It changes with every commit that changes policies of this database. */
uint64
ssw_shmem_policy_generation(void)
{
	SswDatabase *d;
	uint64		generation;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MyDatabaseId, false);
	generation = d ? d->policy_generation : 0;
	LWLockRelease(SswShared->lock);
	return generation;
}

/*
 * Policies of this database are changed by a commit; created: with the extension.
 * Returns its generation, or 0 when there is no entry.  The caller holds the lock
 * exclusively.
 */
uint64
ssw_shmem_next_generation(bool created)
{
	SswDatabase *d = ssw_shmem_database(MyDatabaseId, created);

	if (d == NULL)
		return 0;
	if (created)
	{
		d->state = SSW_DB_PRESENT;
		d->not_before = 0;
		d->marked_at = 0;
	}
	ssw_shmem_wake_coordinator(MyDatabaseId);
	return ++d->policy_generation;
}

/*
 * Does a coordinator come to this database, which takes what waits for it in shared
 * memory?  Of one that session_sweeper.databases does not list nothing is ever taken.
 */
bool
ssw_shmem_is_served(void)
{
	SswDatabase *d;
	bool		served;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MyDatabaseId, false);
	served = d && d->closed == 0 && !d->idle && d->state != SSW_DB_ABSENT;
	LWLockRelease(SswShared->lock);
	return served;
}

/* Are none of our processes wanted in this database?  The caller holds the lock. */
bool
ssw_shmem_is_closed(void)
{
	SswDatabase *d = ssw_shmem_database(MyDatabaseId, false);

	return d == NULL || d->closed > 0;
}

/*
 * The shared entry of a policy, or null.  With create, a missing one is made;
 * null then means that users have max_policies of them.  The caller holds the
 * lock, exclusively to create.
 */
SswPolicyShared *
ssw_shmem_policy(Oid dboid, int policy_id, bool create)
{
	SswPolicyKey key = {.database = dboid,.policy_id = policy_id};
	SswPolicyShared *s;
	SswDatabase *d;
	bool		found;

	Assert(LWLockHeldByMe(SswShared->lock));
	s = hash_search(policy_hash, &key, HASH_FIND, NULL);
	if (s || !create || (policy_id > SSW_LAST_BUILTIN && SswShared->npolicies >= ssw_max_policies))
		return s;
	s = hash_search(policy_hash, &key, HASH_ENTER_NULL, &found);
	if (s)
	{
		SswShared->npolicies += policy_id > SSW_LAST_BUILTIN;
		memset((char *) s + sizeof(SswPolicyKey), 0,
			   sizeof(SswPolicyShared) - sizeof(SswPolicyKey));

		/*
		 * a coordinator that reads an earlier generation does not take it for
		 * one that is gone
		 */
		d = ssw_shmem_database(dboid, false);
		s->changed_at = d ? d->policy_generation : 0;
		s->running_pass = -1;
		s->stats_since = GetCurrentTimestamp();
	}
	return s;
}

/* Copies a part of the entry of a policy, or zeros when there is none. */
bool
ssw_shmem_read_part(Oid dboid, int policy_id, Size offset, Size size, void *copy)
{
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	s = ssw_shmem_policy(dboid, policy_id, false);
	if (s)
		memcpy(copy, (char *) s + offset, size);
	else
		memset(copy, 0, size);
	LWLockRelease(SswShared->lock);
	return s != NULL;
}

/* Writes a part of the entry of one of this database's policies, if there is one, or is to be. */
void
ssw_shmem_write_part(int policy_id, Size offset, Size size, const void *value, bool create)
{
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, create);
	if (s)
		memcpy((char *) s + offset, value, size);
	LWLockRelease(SswShared->lock);
}

/* Call back for every policy entry, under the lock. */
void
ssw_shmem_policies_seq(LWLockMode mode, void (*callback) (SswPolicyShared *, void *), void *arg)
{
	HASH_SEQ_STATUS seq;
	SswPolicyShared *s;

	LWLockAcquire(SswShared->lock, mode);
	hash_seq_init(&seq, policy_hash);
	while ((s = hash_seq_search(&seq)) != NULL)
		callback(s, arg);
	LWLockRelease(SswShared->lock);
}

/* Is there no place for another policy of a user? */
bool
ssw_shmem_policies_full(void)
{
	return SswShared->npolicies >= ssw_max_policies;
}

void
ssw_shmem_refuse_policy(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("all %d slots for policies in shared memory are in use", ssw_max_policies),
			 errhint("Raise \"session_sweeper.max_policies\" and restart the server, or unregister policies of any database.")));
}

/*
 * A policy that this transaction makes has a slot, or is refused.  If the transaction
 * fails, the coordinator gives the slot back when it reads the policies again.
 */
void
ssw_shmem_add_policy(int policy_id)
{
	bool		fits;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	fits = ssw_shmem_policy(MyDatabaseId, policy_id, true) != NULL;
	LWLockRelease(SswShared->lock);
	if (!fits)
		ssw_shmem_refuse_policy();
}

static void
forget_policy(SswPolicyShared *s)
{
	SswShared->npolicies -= s->key.policy_id > SSW_LAST_BUILTIN;
	(void) hash_search(policy_hash, &s->key, HASH_REMOVE, NULL);
}

typedef struct Unknown
{
	const		Bitmapset *known;
	uint64		generation;
	bool		any;
} Unknown;

static void
forget_if_unknown(SswPolicyShared *s, void *arg)
{
	Unknown    *u = arg;

	if (s->key.database != MyDatabaseId || s->changed_at > u->generation || bms_is_member(s->key.policy_id, u->known))
		return;
	forget_policy(s);
	u->any = true;
}

/*
 * Remove the entries of policies of this database that are not known, and were not
 * changed after that generation.  False: there were none.
 */
bool
ssw_shmem_forget_unknown(const Bitmapset * known, uint64 generation)
{
	Unknown		u = {.known = known,.generation = generation};

	ssw_shmem_policies_seq(LW_EXCLUSIVE, forget_if_unknown, &u);
	return u.any;
}

/* Remove the policy entries of a database that lost the extension. */
void
ssw_shmem_forget_policies(Oid dboid)
{
	HASH_SEQ_STATUS seq;
	SswPolicyShared *s;

	Assert(LWLockHeldByMeInMode(SswShared->lock, LW_EXCLUSIVE));
	hash_seq_init(&seq, policy_hash);
	while ((s = hash_seq_search(&seq)) != NULL)
		if (s->key.database == dboid)
			forget_policy(s);
}

/*
 * Give back the passes of a database that is gone, or lost the extension, in which
 * nobody works any more.  The caller holds the lock exclusively.
 */
void
ssw_shmem_forget_passes(Oid dboid)
{
	Assert(LWLockHeldByMeInMode(SswShared->lock, LW_EXCLUSIVE));
	for (int i = 0; i < SswShared->nprocs; i++)
		if (SswPasses[i].in_use && SswPasses[i].database == dboid && SswPasses[i].workers == 0)
			SswPasses[i].in_use = false;
}

/*
 * Set the launcher's latch, if there is one.  The caller holds the lock, or is a signal
 * handler; then the launcher may leave meanwhile, and each word is read once.
 */
void
ssw_shmem_wake_launcher(void)
{
	int			launcher = *(volatile int *) &SswShared->launcher;
	Latch	   *latch = launcher >= 0 ? *(Latch *volatile *) &SswProcs[launcher].latch : NULL;

	if (latch)
		SetLatch(latch);
}

/*
 * Wake the coordinator of a database, or have one started.  The caller holds
 * the lock exclusively.
 */
void
ssw_shmem_wake_coordinator(Oid dboid)
{
	SswDatabase *d = ssw_shmem_database(dboid, false);

	if (d == NULL)
		return;
	d->wakeups++;
	if (d->coordinator >= 0 && SswProcs[d->coordinator].latch)
		SetLatch(SswProcs[d->coordinator].latch);
	else
	{
		/* it keeps its place among those that are due */
		d->next_due = Min(d->next_due, GetCurrentTimestamp());
		ssw_shmem_wake_launcher();
	}
}

/* The same for this process's database; the caller does not hold the lock. */
void
ssw_shmem_wake_own_coordinator(void)
{
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	ssw_shmem_wake_coordinator(MyDatabaseId);
	LWLockRelease(SswShared->lock);
}

/* Have the coordinator look for rows to refresh, often enough for this time to live. */
void
ssw_shmem_note_ttl(Oid dboid, int policy_id, int64 ttl_us)
{
	SswPolicyShared *s;
	int64		known_us;

	/* a session that no heartbeat prolongs has none */
	if (ttl_us <= 0)
		return;
	if (ssw_shmem_read_field(dboid, policy_id, heartbeat_ttl_us, &known_us) && known_us != 0 && known_us <= ttl_us)
		return;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(dboid, policy_id, true);
	if (s && (s->heartbeat_ttl_us == 0 || ttl_us < s->heartbeat_ttl_us))
	{
		s->heartbeat_ttl_us = ttl_us;
		ssw_shmem_wake_coordinator(dboid);
	}
	LWLockRelease(SswShared->lock);
}

/* Was the policy changed since it was read for the pass?  The caller holds the lock. */
bool
ssw_shmem_pass_is_stale(const SswPass *pass)
{
	SswDatabase *d = ssw_shmem_database(pass->database, false);
	SswPolicyShared *s = ssw_shmem_policy(pass->database, pass->policy_id, false);

	if (s)
		return s->changed_at > pass->policy_generation;
	return d == NULL || d->policy_generation != pass->policy_generation;
}

/* A text to be kept in shared memory, cut between characters. */
void
ssw_shmem_text(char *to, const char *from, size_t size)
{
	size_t		len = pg_mbcliplen(from, strlen(from), size - 1);

	memcpy(to, from, len);
	to[len] = '\0';
}
