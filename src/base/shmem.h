/*
 * shmem.h
 *		The fixed shared memory of the server: known databases, our processes,
 *		running passes, per-policy counters.
 *
 * One lock, SswShared->lock, guards everything here, except where a field's comment
 * says otherwise.  It is held for a few instructions only: no catalog access,
 * allocation or ereport while holding it.  A private lock of another file may be taken
 * while it is held, and not the other way round.
 */
#ifndef SSW_SHMEM_H
#define SSW_SHMEM_H

#include "access/xlogdefs.h"
#include "nodes/bitmapset.h"
#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/itemptr.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "utils/uuid.h"

#include "base/ssw.h"

#define SSW_MAX_DATABASES	1024
#define SSW_BUILTIN_POLICIES 7	/* of each database; their ids are the first */
#define SSW_LAST_BUILTIN	100
#define SSW_MAX_SWEPT	64		/* tables of a database whose statistics are
								 * read */
/* The hint wherever the library was not loaded; shared_preload_libraries may have others. */
#define SSW_PRELOAD_HINT \
	"Append session_sweeper to shared_preload_libraries in postgresql.conf, keep the libraries that are there, and restart the server."
/* A database without a coordinator takes a turn at least so often. */
#define SSW_IDLE_TURN_US	(5 * USECS_PER_MINUTE)
#define SSW_CHECK_LIST		4096	/* rows one look hands out to is_alive */
#define SSW_CURSOR_LEN		256
#define SSW_MESSAGE_LEN		512
#define SSW_MET_WORDS		64	/* bits for failed rows that a pass met */
#define SSW_LAG_BUCKETS		10
#define SSW_DURATION_BUCKETS 9

typedef enum SswDatabaseState
{
	SSW_DB_UNKNOWN,				/* a coordinator is to find out */
	SSW_DB_ABSENT,				/* no extension; -> PRESENT at CREATE
								 * EXTENSION */
	SSW_DB_PRESENT				/* has it; -> ABSENT when a coordinator misses
								 * it */
} SswDatabaseState;

typedef struct SswDatabase
{
	Oid			oid;			/* invalid: entry free */
	SswDatabaseState state;
	Oid			extension;		/* its coordinator found last, or invalid */
	TimestampTz known_since;	/* when the entry was made */
	int			closed;			/* commands in progress that want nobody here */
	int			coordinator;	/* index in procs, or -1 */
	int			workers_wanted; /* by its coordinator, now */
	TimestampTz wanted_since;	/* when workers_wanted last rose above what it
								 * has, or one of them left */
	TimestampTz next_due;		/* coordinator wanted from then on */
	TimestampTz not_before;		/* back-off after a failed start of its
								 * coordinator */

	/* left by a coordinator for its successor; see coordinator_turn.c */
	TimestampTz marked_at;		/* service_mark was written, or 0: unknown */

	/* see written_tables.c */
	TimestampTz looked_at;		/* by a coordinator, last */
	bool		may_be_due;		/* rows may be due earlier than is known */
	int64		check_every_us; /* the shortest of its policies */
	int			nswept;			/* 0: unknown; -1: too many */
	Oid			swept[SSW_MAX_SWEPT];
	uint64		written;		/* rows, as statistics say */
	TimestampTz written_until;	/* statistics may still come until then */
	TimestampTz workers_not_before; /* back-off after a failed start of a
									 * worker */
	int			start_failures;
	uint64		policy_generation;	/* counts commits that change policies */
	uint64		wakeups;		/* of its coordinator: a lock wait inside the
								 * server swallows a latch, this stays */

	Oid			runner_role;	/* a runner is wanted for it, or invalid */
	Oid			last_runner_role;	/* one was wanted for it before */
	TimestampTz runner_since;	/* since then */
	Oid			append_waits;	/* an owner whose rows wait for a worker, or
								 * invalid */
	TimestampTz append_waits_since;
	bool		idle;			/* session_sweeper.databases does not list it,
								 * or it takes no connections */
} SswDatabase;

typedef enum SswProcKind
{
	SSW_PROC_LAUNCHER,
	SSW_PROC_COORDINATOR,
	SSW_PROC_WORKER,
	SSW_PROC_RUNNER				/* a worker that runs one role's commands */
} SswProcKind;

typedef enum SswProcState
{
	SSW_STATE_FREE,				/* -> STARTING */
	SSW_STATE_STARTING,			/* registered; -> IDLE, FREE when it never
								 * came */
	SSW_STATE_IDLE,				/* -> BUSY, FREE */
	SSW_STATE_BUSY				/* a worker with a pass; -> IDLE, FREE */
} SswProcState;

typedef struct SswProc
{
	SswProcKind kind;
	SswProcState state;
	uint32		generation;		/* so a late starter cannot take a reused slot */
	Oid			database;
	int			pid;
	Latch	   *latch;			/* null while no process is attached */
	int			pass;			/* index in passes, or -1 */
	int			policy_id;		/* what it works on, for the view */
	int			asking;			/* of a worker: rows for is_alive that it has
								 * taken and whose answers do not count yet */
	bool		stop;			/* leave at the next safe point */
	TimestampTz stop_at;		/* launcher: when it asked for that */
	bool		connected;		/* to its database; own write only */
	uint32		settings;		/* it connected with: ssw_process_settings(),
								 * or 0; own write only */
	bool		ready;			/* it could connect and do its work */
	volatile	sig_atomic_t terminating;	/* SIGTERM seen; set without lock */
	TimestampTz started_at;
	TimestampTz state_since;
	TimestampTz stop_since;		/* launcher: when it first saw terminating */
	TimestampTz batch_deadline; /* hard limit of the running batch, or 0 */
	int64		rows;			/* acted on by this process; own writes only */
	Oid			code_owner;		/* of a worker: the role whose code it has
								 * run, or invalid */
	Oid			append_owner;	/* of a worker: the role to whose tables it
								 * writes appended rows, or invalid */
	Oid			append_left;	/* of a worker: the role of whose rows it left
								 * some that are due; the coordinator takes
								 * that */

	/* of a runner; see command_runner.c */
	Oid			role;
	bool		has_task;
	pg_uuid_t	task;
	TimestampTz cancel_since;	/* the task is to stop, or 0 */
	bool		interrupted;	/* its command or batch was cancelled, not by
								 * a time-out of its own */
} SswProc;

/* What a pass does next; for each leaf in the order of phase_after(). */
typedef enum SswPhase
{
	SSW_PHASE_DEADLINE,
	SSW_PHASE_MAX_AGE,
	SSW_PHASE_NULLS,
	SSW_PHASE_END,
	SSW_PHASE_MANUAL			/* no pass: rows that somebody named */
} SswPhase;

/* What the cursor of a pass says of the rows with its deadline. */
typedef enum SswCursor
{
	SSW_CURSOR_NONE,			/* at the start */
	SSW_CURSOR_AFTER,			/* all were read */
	SSW_CURSOR_WITHIN			/* those up to its tid were read */
} SswCursor;

typedef enum SswPassEnd
{
	SSW_END_NONE,				/* running */
	SSW_END_DONE,				/* nothing is left to hand out: workers end
								 * what they have */
	SSW_END_SPENT,				/* the same, because a rate or load care lets
								 * no other row go now; -> LIMIT */
	SSW_END_REFRESHED,			/* the same, and the dead wait: see
								 * SswPass.refresh_only */
	SSW_END_LIMIT,				/* soft limit or a rate: continue at the next
								 * look */
	SSW_END_STOPPED,			/* paused, dropped, changed, shut down */
	SSW_END_LOCKED,				/* a lock on a table was not to be had: try
								 * again at the next look */
	SSW_END_FAILED,				/* the policy as a whole failed; back off */
	SSW_END_FUSE				/* held by the fuse */
} SswPassEnd;

/* A probe that skipped more entries of an index than that keeps a lower bound; see lower_bound.c. */
#define SSW_LOW_ENTRIES	1000
#define SSW_LOW_US		(55 * USECS_PER_SEC)

/* No row of the leaf has a value of the deadline's column up to this one. */
typedef struct SswLowerBound
{
	Oid			leaf;
	Oid			type;
	int			attnum;
	int64		value;
	TimestampTz full_at;		/* when all was read, or 0: no bound */
	TransactionId horizon;		/* transactions before it have removed the
								 * rows that were skipped */
} SswLowerBound;

/* A pass of a policy.  SswShared->lock guards all of it, except where a group says otherwise. */
typedef struct SswPass
{
	/* the coordinator writes these when it opens the pass; then they stay */
	bool		in_use;			/* until the coordinator closes it */
	Oid			database;
	int			policy_id;
	Oid			owner;			/* whose code it runs */
	uint64		policy_generation;
	int64		previous;		/* pass of the policy, or 0 */
	bool		forced;			/* asked for by CALL sweep: no rate limit */
	bool		refresh_only;	/* nothing ends, as throttle.c says */
	bool		fuse_open;		/* do not count for the fuse, or counted */
	bool		locked_for_long;	/* some partitions have been for long */
	TimestampTz now;			/* the one cutoff, keep_for not subtracted */
	TimestampTz deadline_cutoff[2]; /* DT_NOBEGIN: this deadline rests (grace) */
	TimestampTz refresh_cutoff; /* rows due before are looked at for their
								 * heartbeats; DT_NOBEGIN: only the dead */
	TimestampTz full_cutoff;	/* now - keep_for: without grace and backlog */
	TimestampTz backlog_before; /* rows due before are drained at backlog_rate */
	TimestampTz above;			/* rows due before are held by the fuse, or
								 * covered by grace: it begins after them; or
								 * 0 */
	SswLowerBound low[2];		/* of each deadline; see lower_bound.c */

	/* the coordinator, while the pass runs; a worker that leaves: the counts */
	uint64		request;		/* of CALL sweep, that it answers; or 0 */
	TimestampTz started_at;
	TimestampTz soft_deadline;
	int			target;			/* so many workers are to be attached */
	int			max_workers_seen;
	bool		yield;			/* attached workers leave after their batch */
	int			workers;		/* attached now */
	int			unfinished;		/* workers that have not left, or left without
								 * handling all rows that they were given */
	TimestampTz waits_since;	/* while it has no worker */

	/* how it ends, and what failed: the coordinator, or any worker */
	SswPassEnd	end;
	int			sqlerrcode;
	char		message[SSW_MESSAGE_LEN];

	/* any worker */
	bool		skip_locked;	/* after the first lock time-out; set without
								 * the lock */
	Oid			reported_index; /* see SswPolicy; set without the lock */
	bool		more;			/* the last chunk was full, and more rows may
								 * go: worth another worker */
	double		tokens;			/* rows that may still go; < 0: no limit */
	double		backlog_tokens;
	int64		handed_out;		/* rows that workers were given */

	/* the fuse: the collector counts, workers add answers and what they hold */
	bool		harmless;		/* nothing would trip, even if let go before */
	int			fuse_trips;		/* groups that it holds since */
	TimestampTz fuse_next;		/* the first of these until then */
	TimestampTz fuse_until;		/* the whole policy until then, or 0 */
	int64		fuse_left;		/* so many more rows may end, by the last
								 * count */
	bool		fuse_asks;		/* answers of is_alive count for the fuse: */
	int64		said_dead;		/* so many are dead, or need no answer, */
	int64		said_alive;		/* and so many alive, as far as was counted */
	bool		suspect;		/* the fuse trips if is_alive says false of
								 * all rows: all answers come before any
								 * action */
	bool		tripped;		/* it has, by them */
	bool		answered;		/* is_alive has given an answer */
	int64		unanswered;		/* rows without one */

	/* the dispenser: who takes it, under the lock */
	int			collector;		/* index in procs, or -1 */
	ConditionVariable collector_cv;

	/* the rest of it: the collector alone, without the lock */
	int64		pass_id;		/* 0 until the row in table pass is written */
	bool		counted;		/* the first collector has come so far */
	uint32		left_out;		/* partitions that somebody holds, or 0 */
	bool		graced;			/* grace covers rows that are due, by a rule
								 * of their own */
	bool		backlog_segment;	/* 0: fresh rows, 1: backlog */
	Oid			leaf;			/* last leaf begun; invalid at the start */
	SswPhase	phase;
	SswCursor	cursor_kind;
	char		cursor[SSW_CURSOR_LEN]; /* sort value in text form */
	ItemPointerData cursor_tid;
	int64		collected;		/* rows by tids, in all leaves */
	BlockNumber next_block;		/* next of its blocks */
	BlockNumber nblocks;		/* 0: rows go in due order */
	double		block_rows;		/* dead in each, about */

	/* rows for is_alive: the collector fills the list, workers take from it */
	uint32		check_list;		/* counts the lists of the pass */
	int			nchecks;
	int			next_check;
	int			check_slow;		/* from there on they were slow before */
	Oid			check_leaf;
	SswPhase	check_phase;
	TimestampTz check_cutoff;
	ItemPointerData check_tid[SSW_CHECK_LIST];

	/* results: workers, after each batch and when they leave */
	int64		expired;
	int64		refreshed;
	int64		repaired;
	int64		failed;
	int64		skipped;
	int			excluded;		/* dead rows left alone: known failures */
	int64		batches;
	int64		max_lag_us;
	TimestampTz next_due;		/* earliest reason to look again, or 0 */
	TimestampTz oldest_due;		/* of the last batch, keep_for added, or 0 */
	uint64		met[SSW_MET_WORDS]; /* bits of the failed rows that workers
									 * met which have left */
} SswPass;

typedef struct SswPolicyKey
{
	Oid			database;
	int32		policy_id;
} SswPolicyKey;

/* How fast rows of a policy can be handled, as its workers learn. */
typedef struct SswPace
{
	int			batch_rows;		/* adaptive size of batches, or 0 */
	int			chunk_rows;		/* read at once, where more took too long; or
								 * 0 */
	int64		patience_us;	/* with batches, where all rows are slow, or 0 */
	TimestampTz locked_retry_at;	/* rows that somebody held are tried from
									 * then on */
} SswPace;

/* The last five seconds, in which rows are counted for the rate of a drain. */
#define SSW_RATE_SLOTS	10
#define SSW_RATE_SLOT_US	(500 * 1000)

/* What is due is worked off, in as many passes as it takes. */
typedef struct SswDrain
{
	TimestampTz since;			/* when its first row was found, or 0: there
								 * is none */
	int64		left;			/* rows, about */
	int64		counted;		/* so many were left when they were counted */
	TimestampTz counted_at;
	TimestampTz count_at;		/* count them again from then on */
	int64		expired;
	int64		refreshed;
	int64		repaired;
	int64		failed;
	int64		skipped;
	int64		batches;
	int64		max_lag_us;
	int64		idle_us;		/* in which no pass could run */
	TimestampTz idle_since;		/* or 0 */
	int64		slot;			/* the last one with rows, since the epoch and
								 * without idle time */
	int64		handled[SSW_RATE_SLOTS];	/* rows, by slot */
	double		pace;			/* its rate when rows were last handled, or 0 */
} SswDrain;

#define SSW_END_TYPES	5		/* of cleanup events */

/* Counters and the coordinator's view of a policy; entry of a shared hash. */
typedef struct SswPolicyShared
{
	SswPolicyKey key;			/* must be first */
	uint64		changed_at;		/* policy_generation of the last commit that
								 * changed it, or when the entry was made */
	uint64		judged_generation;	/* the coordinator judged it then; it
									 * wrote what follows */
	SswPolicyState state;		/* as its coordinator found it */
	TimestampTz state_since;	/* when it first did */
	char		reason[160];
	TimestampTz last_look;
	TimestampTz last_success;	/* it found nothing, or a pass went well */
	TimestampTz went_at;		/* when a row was last ended or refreshed */
	TimestampTz blocked_since;	/* rows cannot be written, see
								 * policy_outage.c; or 0 */
	bool		locked;			/* blocked_since is because of a lock */
	TimestampTz free_at;		/* they could be, when one looked last */
	TimestampTz outage_since;	/* the last outage, or 0 */
	TimestampTz outage_until;
	TimestampTz next_look;
	TimestampTz oldest_due;		/* deadline of the oldest row still due, or 0 */
	int64		due_rows;		/* see SswWatch; -1: unknown */
	TimestampTz refresh_at;		/* see SswWatch */
	int			idle;
	int			trusted;
	int			excluded;
	Oid			reported_index; /* as in SswWatch */
	double		tokens;
	double		backlog_tokens;
	TimestampTz tokens_at;
	SswPace		pace;			/* private to pace.h */
	SswDrain	drain;			/* private to drain.c, and read by views */
	int64		heartbeat_ttl_us;	/* shortest time to live of a session with
									 * heartbeats since the start, or 0 */
	TimestampTz compared_at;	/* rows due until then were compared with
								 * memory, or 0 */
	SswLowerBound low[2];		/* per deadline */
	int			running_pass;	/* index in passes, or -1 */
	int64		last_pass_id;
	bool		unfinished;		/* its last pass is to be continued */

	/* CALL sweep: request numbers; done when completed >= the caller's */
	uint64		requested;
	uint64		completed;
	bool		request_force;
	bool		request_exact;	/* see lower_bound.c */
	bool		request_found;	/* the last request had something to do */
	int			request_code;	/* SQLSTATE when it did not end well, or 0 */
	char		request_error[SSW_MESSAGE_LEN];

	/* counters since stat_reset() */
	TimestampTz stats_since;
	int64		looks;
	int64		passes;
	int64		batches;
	int64		expired;
	int64		ended[SSW_END_TYPES];	/* see cleanup_event.c */
	int64		refreshed;
	int64		repaired;
	int64		failed;
	int64		skipped;
	int64		failed_passes;
	int64		fuse_trips;
	int64		max_lag_us;
	double		busy_seconds;
	int64		duration_hist[SSW_DURATION_BUCKETS];
	double		duration_sum;
	int64		lag_hist[SSW_LAG_BUCKETS];
	double		lag_sum;
} SswPolicyShared;

typedef struct SswSharedState
{
	LWLock	   *lock;
	ConditionVariable request_cv;	/* a pass ended; waiters of CALL sweep */
	ConditionVariable exit_cv;	/* one of our processes left; DROP DATABASE
								 * waits */

	int			npolicies;		/* of users, that have an entry */

	int			launcher;		/* index in procs, or -1 */
	bool		rescan;			/* the list of databases changed */
	bool		counts_writes;	/* track_counts, as sessions have it; the
								 * launcher writes it */
	bool		coordinators_waiting;	/* a database waits for a coordinator */
	int			nprocs;			/* length of procs and passes */
	TimestampTz no_slot_since;	/* 0: there was one for every start lately */
	TimestampTz no_slot_at;		/* the last start that found none */
	int			ndatabases;		/* entries beyond them were never used */
	SswDatabase databases[SSW_MAX_DATABASES];
	/* procs and passes follow */
} SswSharedState;

extern SswSharedState *SswShared;
extern SswProc *SswProcs;
extern SswPass *SswPasses;
extern SswProc *MySswProc;

extern const double ssw_lag_bounds[SSW_LAG_BUCKETS - 1];
extern const double ssw_duration_bounds[SSW_DURATION_BUCKETS - 1];

extern void ssw_shmem_add(const char *name, Size size, Size more, int nlocks, void *pointer, void (*init) (LWLock *locks));
extern void ssw_shmem_add_struct(const char *name, Size size, void *pointer, void (*init) (LWLock *lock));
extern void ssw_shmem_init(void);
extern bool ssw_shmem_available(void);
extern void ssw_shmem_require(void);

extern SswDatabase *ssw_shmem_database(Oid dboid, bool create);
extern SswPolicyShared *ssw_shmem_policy(Oid dboid, int policy_id, bool create);
extern uint64 ssw_shmem_policy_generation(void);
extern uint64 ssw_shmem_next_generation(bool created);
extern bool ssw_shmem_is_served(void);
extern bool ssw_shmem_is_closed(void);
extern bool ssw_shmem_read_part(Oid dboid, int policy_id, Size offset, Size size, void *copy);
extern void ssw_shmem_write_part(int policy_id, Size offset, Size size, const void *value, bool create);
extern bool ssw_shmem_policies_full(void);
extern void ssw_shmem_refuse_policy(void);
extern void ssw_shmem_add_policy(int policy_id);
extern bool ssw_shmem_forget_unknown(const Bitmapset * known, uint64 generation);
extern void ssw_shmem_forget_policies(Oid dboid);
extern void ssw_shmem_forget_passes(Oid dboid);
extern void ssw_shmem_note_ttl(Oid dboid, int policy_id, int64 ttl_us);
extern void ssw_shmem_policies_seq(LWLockMode mode, void (*callback) (SswPolicyShared *, void *), void *arg);
extern void ssw_shmem_wake_launcher(void);
extern void ssw_shmem_wake_coordinator(Oid dboid);
extern void ssw_shmem_wake_own_coordinator(void);

extern bool ssw_shmem_pass_is_stale(const SswPass *pass);
extern void ssw_shmem_text(char *to, const char *from, size_t size);

/* Copy one field of a policy's entry, or the whole entry of one of this database; write one field of such an entry. */
#define ssw_shmem_read_field(dboid, policy_id, field, copy) \
	ssw_shmem_read_part(dboid, policy_id, offsetof(SswPolicyShared, field), sizeof(*(copy)), copy)
#define ssw_shmem_read_policy(policy_id, copy) ssw_shmem_read_part(MyDatabaseId, policy_id, 0, sizeof(SswPolicyShared), copy)
#define ssw_shmem_write_field(policy_id, field, value, create) \
	ssw_shmem_write_part(policy_id, offsetof(SswPolicyShared, field), sizeof(*(value)), value, create)

#endif							/* SSW_SHMEM_H */
