/*
 * share.c
 *		When a node shares the definitions of policies, or applies shared ones.
 *
 * Runs in the coordinator process of each node of a Citus cluster, once a second, between
 * its rounds.  A policy of a distributed table is registered, altered and removed on the
 * cluster's coordinator.  The process there copies the definition to
 * sweeper.shared_policy, a reference table, so each node has it.  The processes of the
 * other nodes apply it to their own sweeper.policy (definition.c).  A node that was down,
 * or was added later, does so when it is there.
 *
 * Each policy is changed in a transaction of its own, which waits for locks no longer
 * than a moment, and policies take turns.  So no role can hold up the policies of others.
 *
 * Shares nothing in memory.  A crash rolls a change back, and the next round repeats it.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/error_class.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "citus/catalog.h"
#include "citus/definition.h"
#include "citus/share.h"
#include "commands/policy_store.h"
#include "monitor/all_nodes.h"

#define LOOK_US			USECS_PER_SEC
/*
 * On the cluster's coordinator, where a change of a policy is known at once; a table may
 * have become distributed, or a node be back.
 */
#define LOOK_THERE_US	(5 * USECS_PER_SEC)
/* Other nodes answer within this time, or are tried again later. */
#define ANSWER_MS		2000
/* The same when the reference table is made. */
#define CREATE_MS		30000
/* In this time a batch ends that was cancelled.  So long a round may wait for locks, and change policies. */
#define ROUND_MS		500
#define PATIENCE_MIN_MS	10

static bool
is_in_service(void)
{
	return !XactReadOnly && ssw_lock_extension(false) && OidIsValid(get_extension_oid(SSW_EXTENSION, true)) && !ssw_identity_other_version();
}

typedef struct Note
{
	const char *policy;			/* "": all */
	bool		sharing;
	const ErrorData *error;
} Note;

/* What could not be done is shown in view problem until it is.  Our own hints that are a statement are its next step. */
static void
note_error(void *arg)
{
	const Note *n = arg;
	bool		statement = n->error->hint && strncmp(n->error->hint, "SELECT ", 7) == 0;
	Oid			types[] = {TEXTOID, BOOLOID, TEXTOID, TEXTOID};
	Datum		values[4] = {CStringGetTextDatum(n->policy), BoolGetDatum(n->sharing), CStringGetTextDatum(n->error->message)};

	if (statement)
		values[3] = CStringGetTextDatum(n->error->hint);
	if (is_in_service())
		ssw_policy_store_exec("INSERT INTO sweeper.sharing_error (policy, sharing, error, next_step) VALUES ($1, $2, $3, $4)"
							  " ON CONFLICT (policy) DO UPDATE SET sharing = $2, error = $3, next_step = $4", 4, types, values, statement ? NULL : "   n");
}

/* What does not need to be done any more, or is done, is no problem. */
static void
forget_errors(const SswDefinitionRound *r)
{
	ArrayBuildState *names = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	List	   *all = list_concat_copy(r->moved, r->changes);
	Oid			type = TEXTARRAYOID;
	Datum		value;
	ListCell   *lc;

	foreach(lc, all)
		names = accumArrayResult(names, CStringGetTextDatum(ssw_definition_of(lfirst(lc))->policy), false, TEXTOID, CurrentMemoryContext);
	/* whether the nodes answer is not known yet */
	if (r->coordinator && r->changes)
		names = accumArrayResult(names, CStringGetTextDatum(""), false, TEXTOID, CurrentMemoryContext);
	value = makeArrayResult(names, CurrentMemoryContext);
	ssw_policy_store_exec("DELETE FROM sweeper.sharing_error WHERE policy <> ALL ($1)", 1, &type, &value, NULL);
}

/*
 * Before DROP EXTENSION: Citus leaves the copies of a reference table on the nodes when
 * it is dropped as a member of an extension.
 */
void
ssw_citus_drop_shared(void)
{
	int			level;

	if (ssw_citus_local_group() != 0 || !ssw_definition_is_shared())
		return;
	level = ssw_identity_pin("client_min_messages", "warning");
	ssw_definition_run("ALTER EXTENSION session_sweeper DROP TABLE sweeper.shared_policy", 0, "");
	ssw_definition_run("DROP TABLE sweeper.shared_policy", 0, "");
	AtEOXact_GUC(true, level);
}

/* On the cluster's coordinator. */

static bool
has_other_nodes(void)
{
	return ssw_policy_store_exec("SELECT pg_catalog.count(*)::pg_catalog.int4 FROM pg_catalog.pg_dist_node WHERE groupid <> 0 AND isactive",
								 0, NULL, NULL, NULL) > 0;
}

/*
 * An error if a node does not answer.  A statement that Citus has sent to a frozen node
 * cannot be cancelled before the node is back, so it must not be sent.
 */
static void
require_answers(void)
{
	SswIdentity save;
	List	   *answers;
	ListCell   *lc;

	ssw_identity_become_extension(&save);
	answers = ssw_nodes->ask_others("SELECT 1", ANSWER_MS);
	ssw_identity_restore(&save);
	foreach(lc, answers)
	{
		SswAnswer  *a = lfirst(lc);

		if (a->failed)
			ereport(ERROR,
					(errcode(ERRCODE_CONNECTION_FAILURE),
					 errmsg("node %s does not answer: %s", a->node, a->text)));
	}
}

/* Each node answers, and has the reference table; without other nodes nothing is shared. */
static void
prepare_nodes(void *arg)
{
	SswDefinitionRound *r = arg;

	if (!has_other_nodes())
	{
		r->changes = NIL;
		return;
	}
	/* nodes that do not answer are asked one after the other */
	enable_timeout_after(STATEMENT_TIMEOUT, 3 * ANSWER_MS);
	require_answers();
	if (!ssw_definition_is_shared())
	{
		/* the table is to be read here, whatever node is frozen */
		if (ssw_definition_run("SELECT 1 FROM pg_catalog.pg_dist_node WHERE groupid = 0", 0, "") == 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the cluster does not know the address of its coordinator"),
					 errhint("SELECT citus_set_coordinator_host('...');")));
		enable_timeout_after(STATEMENT_TIMEOUT, CREATE_MS);
		ssw_definition_run("SELECT 1 FROM pg_catalog.create_reference_table('sweeper.shared_policy')", 0, "");
	}
	ssw_definition_run("DELETE FROM sweeper.sharing_error WHERE policy = ''", 0, "");
}

/* Citus keeps connections, which a node that is restarted closes: not until the next round. */
static void
limit_connections(const SswDefinitionChange *c)
{
	if (c->last)
		(void) ssw_identity_pin("citus.max_cached_conns_per_worker", "0");
	enable_timeout_after(STATEMENT_TIMEOUT, ANSWER_MS);
}

/* The policies that are to be shared, in this round: int[] as text. */
static char *shared_here;

/* On every node: one that was away may have rows that are gone on the others, and that nobody sees here. */
static void
erase_others(void)
{
	ssw_definition_run("DELETE FROM sweeper.shared_policy WHERE policy_id <> ALL ($2::pg_catalog.int4[])", 0, shared_here);
}

static void
write_definition(const SswDefinitionChange *c)
{
	limit_connections(c);
	ssw_definition_run("INSERT INTO sweeper.shared_policy (policy_id, policy, changed_at, definition)"
					   " SELECT $1, d ->> 'policy', pg_catalog.clock_timestamp(), d FROM (VALUES ($2::pg_catalog.jsonb)) AS v (d)"
					   " ON CONFLICT (policy_id) DO UPDATE SET policy = excluded.policy, changed_at = excluded.changed_at, definition = excluded.definition",
					   c->here->shared_as, c->here->text);
	erase_others();
}

static void
erase_definition(const SswDefinitionChange *c)
{
	limit_connections(c);
	erase_others();
}

/* What has changed here has to be written to all nodes. */
static void
list_unshared(SswDefinitionRound *r)
{
	List	   *here;
	List	   *shared;
	StringInfoData ids;
	ListCell   *lc;

	here = ssw_definition_read_distributed();
	shared = ssw_definition_read("SELECT policy_id, 0, policy, definition::pg_catalog.text FROM sweeper.shared_policy");
	ssw_definition_list_moved(r, shared);
	foreach(lc, r->moved)
		here = lappend(here, ((SswDefinitionChange *) lfirst(lc))->here);
	initStringInfo(&ids);
	foreach(lc, here)
	{
		SswDefinition *p = lfirst(lc);
		SswDefinition *s = ssw_definition_find(shared, p->shared_as);

		appendStringInfo(&ids, "%c%d", ids.len == 0 ? '{' : ',', p->shared_as);
		if (s == NULL || (p->text[0] != '\0' && strcmp(s->text, p->text) != 0))
			ssw_definition_add(&r->changes, write_definition, p, NULL);
	}
	shared_here = psprintf("%s}", ids.len == 0 ? "{" : ids.data);
	foreach(lc, shared)
		if (!ssw_definition_find(here, ((SswDefinition *) lfirst(lc))->shared_as))
		ssw_definition_add(&r->changes, erase_definition, NULL, lfirst(lc));
}

/* On each node. */

static void
list_changes(void *arg)
{
	SswDefinitionRound *r = arg;

	r->absent = !OidIsValid(ssw_citus_catalog("pg_dist_partition"));
	r->coordinator = !r->absent && ssw_citus_local_group() == 0;
	if (r->absent || !is_in_service())
		return;
	if (r->coordinator)
	{
		/* the reference table may be on another node */
		enable_timeout_after(STATEMENT_TIMEOUT, 3 * ANSWER_MS);
		list_unshared(r);
	}
	else
		ssw_definition_list_unapplied(r);
	forget_errors(r);
}

static void
make_change(void *arg)
{
	const SswDefinitionChange *c = arg;

	if (!is_in_service())
		return;
	ssw_identity_lock_timeout(c->patience_ms);
	c->make(c);
}

/* Do it in a transaction of its own.  Returns the error, or null. */
static ErrorData *
in_transaction(void (*step) (void *), void *arg)
{
	MemoryContext cxt = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		ssw_spi_start_transaction();
		MemoryContextSwitchTo(cxt);
		step(arg);
		ssw_spi_commit();
		disable_timeout(STATEMENT_TIMEOUT, false);
	}
	PG_CATCH();
	{
		disable_timeout(STATEMENT_TIMEOUT, false);
		MemoryContextSwitchTo(cxt);
		error = ssw_error_catch();
		ssw_spi_abort();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	return error;
}

static void
note(const SswDefinitionRound *r, const char *policy, const ErrorData *error)
{
	Note		n = {.policy = policy,.sharing = r->coordinator,.error = error};

	(void) in_transaction(note_error, &n);
}

static int	last_tried = 0;

static int
compare_turns(const ListCell *a, const ListCell *b)
{
	int			x = ssw_definition_of(lfirst(a))->shared_as;
	int			y = ssw_definition_of(lfirst(b))->shared_as;

	if ((x <= last_tried) != (y <= last_tried))
		return x <= last_tried ? 1 : -1;
	return x < y ? -1 : x > y;
}

/* Make changes until the round is over; the next one begins with the next policy.  What cannot be done holds up no other. */
static void
make_changes(SswDefinitionRound *r, List *changes)
{
	TimestampTz until = GetCurrentTimestamp() + ROUND_MS * INT64CONST(1000);
	ListCell   *lc;

	list_sort(changes, compare_turns);
	foreach(lc, changes)
	{
		SswDefinitionChange *c = lfirst(lc);
		ErrorData  *error;

		if (GetCurrentTimestamp() > until)
		{
			r->unfinished = true;
			break;
		}
		c->patience_ms = ssw_max(PATIENCE_MIN_MS, ROUND_MS / list_length(changes));
		c->last = lnext(changes, lc) == NULL;
		last_tried = ssw_definition_of(c)->shared_as;
		error = in_transaction(make_change, c);
		if (error)
			note(r, ssw_definition_of(c)->policy, error);
		r->failed = r->failed || error;
		r->made += error == NULL;
	}
}

/* What this node does for the cluster.  Returns an error that concerns all policies, or null. */
static ErrorData *
do_round(SswDefinitionRound *r)
{
	ErrorData  *error = in_transaction(list_changes, r);

	if (error)
		return error;
	make_changes(r, r->moved);
	if (r->coordinator && r->changes)
		error = in_transaction(prepare_nodes, r);
	if (error == NULL)
		make_changes(r, r->changes);
	return error;
}

static void
report(const ErrorData *error, bool again)
{
	ereport(again ? DEBUG1 : WARNING,
			(errcode(error->sqlerrcode),
			 errmsg("could not share definitions of policies with the other nodes: %s", error->message),
			 errdetail("It is tried again every %d s.", (int) (LOOK_THERE_US / USECS_PER_SEC)),
			 errhint("The other nodes keep the definitions that they have. To stop a policy on each node that answers: SELECT run_command_on_all_nodes($$SELECT sweeper.pause(...)$$);")));
}

/*
 * A round, if it is time or policies were changed.  Returns when the next one is due;
 * without Citus, never.
 */
TimestampTz
ssw_citus_share(uint64 generation, TimestampTz now)
{
	static TimestampTz next = 0;
	static TimestampTz not_before = 0;	/* whatever changes */
	static bool failing = false;
	static uint64 seen = 0;
	MemoryContext cxt;
	MemoryContext old;
	SswDefinitionRound r = {0};
	ErrorData  *error;

	if (now < next && next <= now + LOOK_THERE_US && (generation == seen || now < not_before))
		return generation == seen ? next : not_before;
	seen = generation;
	cxt = AllocSetContextCreate(TopMemoryContext, "definitions of policies", ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cxt);
	error = do_round(&r);
	if (error)
	{
		report(error, failing);
		note(&r, "", error);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
	now = GetCurrentTimestamp();
	failing = error != NULL;
	not_before = failing || r.failed ? now + LOOK_US : 0;
	if (r.unfinished && !r.failed)
		next = now;
	else
		next = now + (failing || (r.coordinator && r.made == 0) ? LOOK_THERE_US : LOOK_US);
	return r.absent ? DT_NOEND : next;
}
