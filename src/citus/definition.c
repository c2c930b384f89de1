/*
 * definition.c
 *		One definition of a policy for all nodes of a Citus cluster.
 *
 * Runs in the coordinator process of each node, once a second, between its rounds.  A
 * policy of a distributed table is registered, altered and removed on the cluster's
 * coordinator.  The process there copies the definition to sweeper.shared_policy, a
 * reference table, so each node has it.  The processes of the other nodes apply it to
 * their own sweeper.policy.  A node that was down, or was added later, does so when it
 * is there.
 *
 * Shares nothing in memory.  Each direction is one transaction; a crash rolls it back,
 * and the next round repeats it.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/error_class.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/process_slot.h"
#include "base/spi.h"
#include "heartbeat/policy_xact.h"
#include "citus/catalog.h"
#include "citus/definition.h"
#include "commands/policy_store.h"
#include "grace/arrival.h"
#include "monitor/all_nodes.h"
#include "policy/partition.h"
#include "sweep/heartbeat_flush.h"

#define LOOK_US			USECS_PER_SEC
/* On the cluster's coordinator, where a change of a policy is known at once; a table may have become distributed. */
#define LOOK_THERE_US	(5 * USECS_PER_SEC)
#define RETRY_MAX_US	USECS_PER_MINUTE
/* Other nodes answer within this time, or are tried again later. */
#define ANSWER_MS		2000
/* The same when the reference table is made. */
#define CREATE_MS		30000
/* A batch that was cancelled ends within this time, or the definition is applied later. */
#define BATCH_END_MS	500

/* Columns that each node has for itself. */
#define OWN_COLUMNS \
	"{policy_id,relid,owner,system_identifier,database,on_expire,is_alive,columns,failures,failing_since,broken,retry_at," \
	"last_error,last_sqlstate,backlog_before,horizons,last_pass_at,shared_as,shared_at}"

/* A hold that registration decided is part of the definition; others are of this node. */
#define DEFINITION \
	"(pg_catalog.to_jsonb(p) - '" OWN_COLUMNS "'::pg_catalog.text[] || CASE WHEN p.held_reason IN ('backlog', 'assumed') THEN '{}'" \
	" ELSE '{\"held_reason\": null, \"held_at\": null}'::pg_catalog.jsonb END)"

/* A row of sweeper.shared_policy, or of sweeper.policy as it should be there. */
typedef struct Definition
{
	int			shared_as;		/* policy_id on the cluster's coordinator */
	int			policy_id;		/* 0: read from sweeper.shared_policy */
	char	   *policy;
	char	   *text;			/* the definition; on other nodes, when it
								 * changed, or which change is applied here */
} Definition;

static List *
read_definitions(const char *sql)
{
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;
	List	   *all = NIL;
	uint64		n;

	ssw_spi_begin_as_extension(&save);
	n = ssw_spi_exec(sql, 0, NULL, NULL, NULL, false, 0);
	for (uint64 i = 0; i < n; i++)
	{
		MemoryContext spi = MemoryContextSwitchTo(cxt);
		Definition *d = palloc(sizeof(Definition));
		char	   *text = ssw_spi_text(i, 4);

		d->shared_as = DatumGetInt32(ssw_spi_column(i, 1));
		d->policy_id = DatumGetInt32(ssw_spi_column(i, 2));
		d->policy = ssw_spi_text(i, 3);
		d->text = text ? text : "";

		all = lappend(all, d);
		MemoryContextSwitchTo(spi);
	}
	ssw_spi_end_as(&save);
	return all;
}

static Definition *
find(List *all, int shared_as)
{
	ListCell   *lc;

	foreach(lc, all)
		if (((Definition *) lfirst(lc))->shared_as == shared_as)
		return lfirst(lc);
	return NULL;
}

/* Run one of our statements with the number and a text. */
static int
run(const char *sql, int number, const char *text)
{
	Oid			types[] = {INT4OID, TEXTOID};
	Datum		values[] = {Int32GetDatum(number), CStringGetTextDatum(text)};

	return ssw_policy_store_exec(sql, 2, types, values, NULL);
}

/*
 * Citus makes another table of the same name when it undistributes or re-shards one.
 * A policy that is shared follows it, if its owner is the same; not one that was
 * restored into another cluster, which somebody must resume.
 */
static void
follow_tables(void)
{
	List	   *moved = read_definitions("UPDATE sweeper.policy AS p SET relid = c.oid, columns = sweeper._columns(c.oid),"
										 " held_reason = nullif(p.held_reason, 'restored'), failures = 0, failing_since = NULL, broken = false,"
										 " retry_at = NULL, last_error = NULL, last_sqlstate = NULL FROM pg_catalog.pg_class AS c WHERE p.shared_as IS NOT NULL"
										 " AND p.system_identifier = (SELECT i.system_identifier FROM pg_catalog.pg_control_system() AS i)"
										 " AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS o WHERE o.oid = p.relid)"
										 " AND c.oid = pg_catalog.to_regclass(p.relation) AND c.relowner = p.owner"
										 " RETURNING p.shared_as, p.policy_id, p.policy, NULL");
	ListCell   *lc;

	foreach(lc, moved)
	{
		int			id = ((Definition *) lfirst(lc))->policy_id;

		/* heartbeats may be in memory of nodes that had the rows */
		ssw_arrival_replace(id);
		ssw_policy_xact_changed(id, SSW_SCAN_VOID);
	}
}

/* What a round could not do is shown in view problem until a round can. */
static void
note_error(const char *policy, const char *message)
{
	Oid			types[] = {TEXTOID, TEXTOID};
	Datum		values[] = {CStringGetTextDatum(policy), CStringGetTextDatum(message)};

	ssw_policy_store_exec("INSERT INTO sweeper.sharing_error AS e (policy, error) VALUES ($1, $2)"
						  " ON CONFLICT (policy) DO UPDATE SET error = $2, noted_at = pg_catalog.clock_timestamp()", 2, types, values, NULL);
}

/* All that this round did not note is done. */
static void
forget_errors(TimestampTz before)
{
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(before);

	ssw_policy_store_exec("DELETE FROM sweeper.sharing_error WHERE noted_at < $1", 1, &type, &value, NULL);
}

static bool
is_shared_table_distributed(void)
{
	SswDistributed d;

	return ssw_citus_is_distributed(get_relname_relid("shared_policy", get_namespace_oid("sweeper", false)), &d);
}

/*
 * Before DROP EXTENSION: Citus leaves the copies of a reference table on the nodes when
 * it is dropped as a member of an extension.
 */
void
ssw_citus_drop_shared(void)
{
	int			level;

	if (ssw_citus_local_group() != 0 || !is_shared_table_distributed())
		return;
	level = ssw_identity_pin("client_min_messages", "warning");
	run("ALTER EXTENSION session_sweeper DROP TABLE sweeper.shared_policy", 0, "");
	run("DROP TABLE sweeper.shared_policy", 0, "");
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

/* Write what has changed here to all nodes. */
static void
share(void)
{
	List	   *here;
	List	   *shared;
	List	   *changed = NIL;
	List	   *gone = NIL;
	ListCell   *lc;

	here = read_definitions("SELECT p.policy_id, p.policy_id, p.policy, " DEFINITION "::pg_catalog.text FROM sweeper.policy AS p"
							" WHERE EXISTS (SELECT FROM pg_catalog.pg_dist_partition AS d WHERE d.logicalrelid = p.relid) ORDER BY 1");
	shared = read_definitions("SELECT policy_id, 0, policy, definition::pg_catalog.text FROM sweeper.shared_policy");
	foreach(lc, here)
	{
		Definition *p = lfirst(lc);
		Definition *s = find(shared, p->shared_as);

		if (s == NULL || strcmp(s->text, p->text) != 0)
			changed = lappend(changed, p);
	}
	foreach(lc, shared)
		if (!find(here, ((Definition *) lfirst(lc))->shared_as))
		gone = lappend(gone, lfirst(lc));
	if ((changed == NIL && gone == NIL) || !has_other_nodes())
		return;
	require_answers();
	enable_timeout_after(STATEMENT_TIMEOUT, ANSWER_MS);
	if (!is_shared_table_distributed())
	{
		enable_timeout_after(STATEMENT_TIMEOUT, CREATE_MS);
		run("SELECT 1 FROM pg_catalog.create_reference_table('sweeper.shared_policy')", 0, "");
	}
	foreach(lc, changed)
	{
		Definition *p = lfirst(lc);

		run("INSERT INTO sweeper.shared_policy (policy_id, policy, changed_at, definition)"
			" SELECT $1, d ->> 'policy', pg_catalog.clock_timestamp(), d FROM (VALUES ($2::pg_catalog.jsonb)) AS v (d)"
			" ON CONFLICT (policy_id) DO UPDATE SET policy = excluded.policy, changed_at = excluded.changed_at, definition = excluded.definition",
			p->shared_as, p->text);
		run("UPDATE sweeper.policy SET shared_as = policy_id WHERE policy_id = $1 AND shared_as IS NULL", p->shared_as, "");
	}
	foreach(lc, gone)
	{
		Definition *p = lfirst(lc);

		run("DELETE FROM sweeper.shared_policy WHERE policy_id = $1", p->shared_as, "");
		run("UPDATE sweeper.policy SET shared_as = NULL WHERE policy_id = $1", p->shared_as, "");
	}
}

/* On the other nodes. */

/* Columns of the definition, as a list for a statement. */
static const char *
columns(void)
{
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;
	char	   *list;

	ssw_spi_begin_as_extension(&save);
	ssw_spi_exec("SELECT pg_catalog.string_agg(pg_catalog.quote_ident(attname), ', ') FROM pg_catalog.pg_attribute"
				 " WHERE attrelid = 'sweeper.policy'::pg_catalog.regclass AND attnum > 0 AND NOT attisdropped"
				 " AND attname <> ALL ('" OWN_COLUMNS "'::pg_catalog.name[] || '{held_reason,held_at}')", 0, NULL, NULL, NULL, true, 1);
	list = MemoryContextStrdup(cxt, ssw_spi_text(0, 1));
	ssw_spi_end_as(&save);
	return list;
}

#define BOUND \
	"pg_catalog.to_regprocedure(r.on_expire_name), pg_catalog.to_regprocedure(r.is_alive_name)," \
	" ($2::pg_catalog.jsonb ->> 'changed_at')::pg_catalog.timestamptz"

/* A policy that this node does not have yet.  Rows that were due when it was registered are its backlog. */
static void
insert(int shared_as, const char *definition)
{
	const char *list = columns();
	int			id = run(psprintf("INSERT INTO sweeper.policy (%s, held_reason, held_at, on_expire, is_alive, shared_at,"
								  " relid, owner, system_identifier, database, columns, backlog_before, shared_as)"
								  " SELECT %s, r.held_reason, r.held_at, " BOUND ", c.oid, o.oid, i.system_identifier, d.oid,"
								  " sweeper._columns(c.oid), r.registered_at, $1"
								  " FROM pg_catalog.jsonb_populate_record(NULL::sweeper.policy, $2::pg_catalog.jsonb) AS r"
								  " JOIN pg_catalog.pg_class AS c ON c.oid = pg_catalog.to_regclass(r.relation)"
								  " JOIN pg_catalog.pg_roles AS o ON o.rolname = r.owner_name"
								  " JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database()"
								  " CROSS JOIN pg_catalog.pg_control_system() AS i RETURNING policy_id", list, list),
						 shared_as, definition);

	if (id == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("its table or the role that owns it is not on this node")));
	ssw_policy_xact_changed(id, SSW_SCAN_NOTHING);
}

/* A policy that was changed. */
static void
update(int policy_id, const char *definition)
{
	const char *list = columns();

	ssw_process_cancel_policy(policy_id);
	if (!ssw_lock_policy(policy_id, ExclusiveLock, BATCH_END_MS))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("another transaction holds its lock"),
				 errhint("To find it: %s", ssw_lock_policy_query(policy_id))));
	if (run("SELECT 1 FROM sweeper.policy WHERE policy_id = $1"
			" AND resumed_at IS DISTINCT FROM ($2::pg_catalog.jsonb ->> 'resumed_at')::pg_catalog.timestamptz",
			policy_id, definition) > 0)
		run("SELECT 1 FROM sweeper.policy AS p CROSS JOIN LATERAL sweeper.resume(p.policy) WHERE p.policy_id = $1", policy_id, definition);

	/*
	 * heartbeats in memory could not be found by another key, or are not
	 * looked for any more
	 */
	if (run("SELECT 1 FROM sweeper.policy AS p, pg_catalog.jsonb_populate_record(NULL::sweeper.policy, $2::pg_catalog.jsonb) AS r"
			" WHERE p.policy_id = $1 AND (p.key IS DISTINCT FROM r.key OR p.heartbeats AND NOT r.heartbeats)", policy_id, definition) > 0)
		ssw_heartbeat_flush(ssw_policy_load(policy_id));
	run(psprintf("UPDATE sweeper.policy AS p SET (%s, held_reason, held_at, on_expire, is_alive, shared_at) ="
				 " (SELECT %s, coalesce(r.held_reason, p.held_reason), coalesce(r.held_at, p.held_at), " BOUND
				 " FROM pg_catalog.jsonb_populate_record(NULL::sweeper.policy, $2::pg_catalog.jsonb) AS r)"
				 " WHERE p.policy_id = $1", list, list), policy_id, definition);
	ssw_policy_xact_changed(policy_id, SSW_SCAN_VOID);
}

/* A policy that was unregistered, or whose table has no rows here any more. */
static void
unregister(const Definition *p)
{
	run("UPDATE sweeper.policy SET shared_as = NULL, shared_at = NULL WHERE policy_id = $1", p->policy_id, p->policy);
	run("SELECT 1 FROM sweeper.unregister($2)", p->policy_id, p->policy);
}

typedef struct Change
{
	Definition *here;			/* null: not yet */
	Definition *shared;			/* null: not any more */
} Change;

/* The definition, with the time of its change. */
static const char *
read_definition(int shared_as)
{
	List	   *one = read_definitions(psprintf("SELECT policy_id, 0, policy, (definition || pg_catalog.jsonb_build_object('changed_at', changed_at))::pg_catalog.text"
												" FROM sweeper.shared_policy WHERE policy_id = %d", shared_as));

	return ((Definition *) linitial(one))->text;
}

static bool
apply_one(void *arg)
{
	Change	   *c = arg;

	if (c->shared == NULL)
		unregister(c->here);
	else if (c->here == NULL)
		insert(c->shared->shared_as, read_definition(c->shared->shared_as));
	else
		update(c->here->policy_id, read_definition(c->shared->shared_as));
	return true;
}

/* Apply one change; what it could not do holds up no other. */
static void
apply_change(Definition *here, Definition *shared)
{
	Change		c = {here, shared};
	ErrorData  *error = ssw_spi_try(apply_one, &c);

	if (error)
		note_error(shared ? shared->policy : here->policy, error->message);
}

/* Do here what the definitions say. */
static void
apply(void)
{
	List	   *here;
	List	   *shared;
	ListCell   *lc;

	/* not a member of the cluster yet, or not any more */
	if (!is_shared_table_distributed())
		return;
	here = read_definitions("SELECT shared_as, policy_id, policy, shared_at::pg_catalog.text FROM sweeper.policy WHERE shared_as IS NOT NULL");
	shared = read_definitions("SELECT policy_id, 0, policy, changed_at::pg_catalog.text FROM sweeper.shared_policy");
	foreach(lc, here)
	{
		Definition *p = lfirst(lc);

		if (!find(shared, p->shared_as))
			apply_change(p, NULL);
	}
	foreach(lc, shared)
	{
		Definition *s = lfirst(lc);
		Definition *p = find(here, s->shared_as);

		if (p == NULL || strcmp(p->text, s->text) != 0)
			apply_change(p, s);
	}
}

/* What this node does for the cluster, in a transaction.  Returns the time to the next round; 0: there is no Citus. */
static int64
do_round(void)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		coordinator = ssw_citus_local_group() == 0;

	if (!OidIsValid(ssw_citus_catalog("pg_dist_partition")))
		return 0;
	if (XactReadOnly || !ssw_lock_extension(false) || !OidIsValid(get_extension_oid(SSW_EXTENSION, true)) || ssw_identity_other_version())
		return LOOK_US;
	follow_tables();
	if (!coordinator)
		apply();
	else
	{
		/* nodes that do not answer are asked one after the other */
		enable_timeout_after(STATEMENT_TIMEOUT, 3 * ANSWER_MS);
		share();
	}
	forget_errors(now);
	return coordinator ? LOOK_THERE_US : LOOK_US;
}

/* The same in a transaction of its own.  *every: that time.  Returns the error, or null. */
static ErrorData *
try_round(int64 *every)
{
	MemoryContext cxt = CurrentMemoryContext;
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		ssw_spi_start_transaction();
		*every = do_round();
		ssw_spi_commit();
		disable_timeout(STATEMENT_TIMEOUT, false);
	}
	PG_CATCH();
	{
		disable_timeout(STATEMENT_TIMEOUT, false);
		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		ssw_spi_abort();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	return error;
}

/*
 * A round, if it is time or policies were changed.  Returns when the next one is due;
 * without Citus, never.
 */
TimestampTz
ssw_citus_share(uint64 generation, TimestampTz now)
{
	static TimestampTz next = 0;
	static uint64 seen = 0;
	static int64 retry_us = 0;
	int64		every = LOOK_US;
	ErrorData  *error;

	if (now < next && next <= now + RETRY_MAX_US && (generation == seen || retry_us > 0))
		return next;
	seen = generation;
	error = try_round(&every);
	retry_us = error ? Min(Max(LOOK_US, 2 * retry_us), RETRY_MAX_US) : 0;
	now = GetCurrentTimestamp();
	next = now + (error ? retry_us : Max(LOOK_US, every));
	if (error)
	{
		ereport(retry_us == LOOK_US ? WARNING : LOG,
				(errcode(error->sqlerrcode),
				 errmsg("could not share definitions of policies with the other nodes: %s", error->message),
				 errdetail("It is tried again in %d s.", (int) (retry_us / USECS_PER_SEC)),
				 errhint("The other nodes keep the definitions that they have. To stop a policy on each node that answers: SELECT run_command_on_all_nodes($$SELECT sweeper.pause(...)$$);")));
		ssw_spi_start_transaction();
		note_error("", error->message);
		ssw_spi_commit();
	}
	return every > 0 ? next : DT_NOEND;
}
