/*
 * definition.c
 *		One definition of a policy for all nodes of a Citus cluster.
 *
 * Runs in the coordinator process of each node (share.c), in a transaction for each
 * policy.  Here is what the other nodes of the cluster do with a definition that the
 * cluster's coordinator has shared, and what both do when Citus makes a table again.
 * Nothing of that runs code of users, which could stay as long as it likes.
 *
 * Shares nothing in memory.  A crash rolls a change back, and the next round repeats it.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "base/identity.h"
#include "base/locks.h"
#include "base/process_slot.h"
#include "base/spi.h"
#include "heartbeat/policy_xact.h"
#include "citus/catalog.h"
#include "citus/definition.h"
#include "commands/policy_store.h"
#include "grace/arrival.h"
#include "policy/partition.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"

/* Columns that each node has for itself. */
#define OWN_COLUMNS \
	"{policy_id,relid,owner,system_identifier,database,on_expire,is_alive,columns,failures,failing_since,broken,retry_at," \
	"last_error,last_sqlstate,backlog_before,backlog_rows,horizons,last_pass_at,shared_as,shared_at}"

/* A hold that registration decided is part of the definition; others are of this node. */
#define DEFINITION \
	"(pg_catalog.to_jsonb(p) - '" OWN_COLUMNS "'::pg_catalog.text[] || CASE WHEN p.held_reason IN ('backlog', 'assumed') THEN '{}'" \
	" ELSE '{\"held_reason\": null, \"held_at\": null}'::pg_catalog.jsonb END || pg_catalog.jsonb_build_object('owner_name'," \
	" coalesce((SELECT o.rolname FROM pg_catalog.pg_roles AS o WHERE o.oid = p.owner), p.owner_name)))"

/* Rows of shared_as, policy_id, policy, text. */
List	   *
ssw_definition_read(const char *sql)
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
		SswDefinition *d = palloc(sizeof(SswDefinition));
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

/* Policies of distributed tables, as they are here. */
List	   *
ssw_definition_read_distributed(void)
{
	return ssw_definition_read("SELECT p.policy_id, p.policy_id, p.policy, " DEFINITION "::pg_catalog.text FROM sweeper.policy AS p"
							   " WHERE EXISTS (SELECT FROM pg_catalog.pg_dist_partition AS d WHERE d.logicalrelid = p.relid)");
}

SswDefinition *
ssw_definition_find(List *all, int shared_as)
{
	ListCell   *lc;

	foreach(lc, all)
		if (((SswDefinition *) lfirst(lc))->shared_as == shared_as)
		return lfirst(lc);
	return NULL;
}

/* Run one of our statements with the number and a text. */
int
ssw_definition_run(const char *sql, int number, const char *text)
{
	Oid			types[] = {INT4OID, TEXTOID};
	Datum		values[] = {Int32GetDatum(number), CStringGetTextDatum(text)};

	return ssw_policy_store_exec(sql, 2, types, values, NULL);
}

void
ssw_definition_add(List **changes, void (*make) (const SswDefinitionChange *), SswDefinition *here, SswDefinition *shared)
{
	SswDefinitionChange *c = palloc0(sizeof(SswDefinitionChange));

	c->make = make;
	c->here = here;
	c->shared = shared;
	*changes = lappend(*changes, c);
}

/* With the policy's name, as it should be. */
const SswDefinition *
ssw_definition_of(const SswDefinitionChange *c)
{
	return c->shared ? c->shared : c->here;
}

/* No batch runs, and nobody else changes the policy, until the transaction ends. */
static void
lock_policy(int policy_id, int patience_ms)
{
	ssw_process_cancel_policy(policy_id);
	if (!ssw_lock_policy(policy_id, ExclusiveLock, patience_ms))
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("another transaction holds its lock"),
				 errhint("%s", ssw_lock_policy_query(policy_id))));
}

#define MOVED \
	"p.system_identifier = (SELECT i.system_identifier FROM pg_catalog.pg_control_system() AS i)" \
	" AND NOT EXISTS (SELECT FROM pg_catalog.pg_class AS o WHERE o.oid = p.relid)" \
	" AND c.oid = pg_catalog.to_regclass(p.relation) AND c.relowner = p.owner"

/*
 * Citus makes another table of the same name when it undistributes or re-shards one.
 * A policy that is shared follows it, if its owner is the same; not one that was
 * restored into another cluster, which somebody must resume.
 */
static void
follow(const SswDefinitionChange *c)
{
	lock_policy(c->here->policy_id, c->patience_ms);
	ssw_definition_run("UPDATE sweeper.policy AS p SET relid = c.oid, columns = sweeper._columns(c.oid),"
					   " held_reason = nullif(p.held_reason, 'restored'), failures = 0, failing_since = NULL, broken = false,"
					   " retry_at = NULL, last_error = NULL, last_sqlstate = NULL FROM pg_catalog.pg_class AS c WHERE p.policy_id = $1 AND " MOVED,
					   c->here->policy_id, "");
	/* heartbeats may be in memory of nodes that had the rows */
	ssw_arrival_replace(c->here->policy_id);
	ssw_policy_xact_changed(c->here->policy_id, SSW_SCAN_VOID);
}

/* The shared policies that have to follow their tables. */
void
ssw_definition_list_moved(SswDefinitionRound *r, List *shared)
{
	List	   *moved = ssw_definition_read(psprintf("SELECT p.%1$s, p.policy_id, p.policy, NULL FROM sweeper.policy AS p, pg_catalog.pg_class AS c"
													 " WHERE p.%1$s IS NOT NULL AND " MOVED, r->coordinator ? "policy_id" : "shared_as"));
	ListCell   *lc;

	foreach(lc, moved)
		if (ssw_definition_find(shared, ((SswDefinition *) lfirst(lc))->shared_as))
		ssw_definition_add(&r->moved, follow, lfirst(lc), NULL);
}

/* Is this server in a cluster that shares definitions? */
bool
ssw_definition_is_shared(void)
{
	SswDistributed d;

	return ssw_citus_is_distributed(get_relname_relid("shared_policy", get_namespace_oid("sweeper", false)), &d);
}

/* Columns of the definition, as a list for a statement. */
static const char *
columns(void)
{
	return ssw_spi_text_as_extension("SELECT pg_catalog.string_agg(pg_catalog.quote_ident(attname), ', ') FROM pg_catalog.pg_attribute"
									 " WHERE attrelid = 'sweeper.policy'::pg_catalog.regclass AND attnum > 0 AND NOT attisdropped"
									 " AND attname <> ALL ('" OWN_COLUMNS "'::pg_catalog.name[] || '{owner_name,held_reason,held_at}')", 0, NULL, NULL, true);
}

#define BOUND \
	"pg_catalog.to_regprocedure(r.on_expire_name), pg_catalog.to_regprocedure(r.is_alive_name)," \
	" ($2::pg_catalog.jsonb ->> 'changed_at')::pg_catalog.timestamptz"

/* The definition, with the time of its change; null: there is none any more. */
static const char *
read_definition(const SswDefinitionChange *c)
{
	List	   *one = ssw_definition_read(psprintf("SELECT policy_id, 0, policy, (definition || pg_catalog.jsonb_build_object('changed_at', changed_at))::pg_catalog.text"
												   " FROM sweeper.shared_policy WHERE policy_id = %d", c->shared->shared_as));

	return one ? ((SswDefinition *) linitial(one))->text : NULL;
}

/*
 * Another policy here may have the name.  One that is shared has got another name on the
 * coordinator: it makes way, with a name that no user can give, and its definition is applied again.
 */
static void
take_name(const SswDefinitionChange *c)
{
	const char *name = quote_literal_cstr(c->shared->policy);
	List	   *others = ssw_definition_read(psprintf("SELECT coalesce(shared_as, 0), policy_id, policy, relation FROM sweeper.policy WHERE policy = %s AND shared_as IS DISTINCT FROM %d",
													  name, c->shared->shared_as));
	SswDefinition *other = others ? linitial(others) : NULL;

	if (other == NULL)
		return;
	if (other->shared_as == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("a policy of table %s has its name on this node", other->text),
				 errhint("SELECT sweeper.alter_policy(%s, new_name => %s);", name, quote_literal_cstr(psprintf("%s here", c->shared->policy)))));
	lock_policy(other->policy_id, c->patience_ms);
	ssw_definition_run("UPDATE sweeper.policy SET policy = $2, shared_at = NULL WHERE policy_id = $1", other->policy_id,
					   psprintf("sweeper.renamed.%d", other->shared_as));
	ssw_policy_xact_changed(other->policy_id, SSW_SCAN_NOTHING);
}

/* A policy that this node does not have yet.  Rows that were due when it was registered are its backlog. */
static void
insert(const SswDefinitionChange *c)
{
	const char *list = columns();
	const char *definition = read_definition(c);
	int			id;

	if (definition == NULL)
		return;
	take_name(c);
	id = ssw_definition_run(psprintf("INSERT INTO sweeper.policy (%s, held_reason, held_at, on_expire, is_alive, shared_at,"
									 " relid, owner, owner_name, system_identifier, database, columns, backlog_before, shared_as)"
									 " SELECT %s, r.held_reason, r.held_at, " BOUND ", c.oid, o.oid, o.rolname, i.system_identifier, d.oid,"
									 " sweeper._columns(c.oid), r.registered_at, $1"
									 " FROM pg_catalog.jsonb_populate_record(NULL::sweeper.policy, $2::pg_catalog.jsonb) AS r"
									 " JOIN pg_catalog.pg_class AS c ON c.oid = pg_catalog.to_regclass(r.relation)"
									 " JOIN pg_catalog.pg_roles AS o ON o.rolname = r.owner_name"
									 " JOIN pg_catalog.pg_database AS d ON d.datname = pg_catalog.current_database()"
									 " CROSS JOIN pg_catalog.pg_control_system() AS i RETURNING policy_id", list, list),
							c->shared->shared_as, definition);
	if (id == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("its table or the role that owns it is not on this node")));
	ssw_rights_forget_policy(id);
	ssw_policy_xact_changed(id, SSW_SCAN_NOTHING);
}

/*
 * Lift the brakes here, as resume() did on the coordinator.  The code of a definition runs
 * as the owner that it names, whom a member has confirmed there, and as nobody else.
 */
static void
resume(int policy_id, const char *definition)
{
	SswPolicy  *p = ssw_policy_load(policy_id);
	bool		resumes = ssw_definition_run("SELECT 1 FROM sweeper.policy WHERE policy_id = $1"
											 " AND resumed_at IS DISTINCT FROM ($2::pg_catalog.jsonb ->> 'resumed_at')::pg_catalog.timestamptz",
											 policy_id, definition) > 0;
	Oid			relid = p ? ssw_policy_relation_now(p) : InvalidOid;
	Oid			owner;
	char	   *name;

	if (p == NULL)
		return;
	ssw_lock_relation(relid, AccessShareLock);
	owner = resumes && OidIsValid(ssw_relation_owner(relid)) ? ssw_relation_owner(relid) : p->owner;
	name = GetUserNameFromId(owner, true);
	if (ssw_definition_run("SELECT 1 WHERE pg_catalog.pg_get_userbyid($1::pg_catalog.oid) = $2::pg_catalog.jsonb ->> 'owner_name'", (int) owner, definition) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("it belongs to role \"%s\" on this node, and no member of that role has resumed the policy on the coordinator",
						name ? name : p->owner_name),
				 errhint("%s", ssw_repair_with_comment(psprintf("SELECT sweeper.resume(%s);", quote_literal_cstr(p->name)),
													   "on the coordinator, as a member of that role"))));
	if (resumes)
		ssw_definition_run("SELECT 1 FROM sweeper.policy AS p CROSS JOIN LATERAL sweeper.resume(p.policy) WHERE p.policy_id = $1", policy_id, "");
}

/*
 * A policy that was changed.  Heartbeats in memory cannot be found by another key, or are
 * not looked for any more, and to write them to the rows would run triggers.  So it is as
 * after a crash: no row dies before one time to live has passed from now on.  Heartbeats
 * are answered by the old definition until the commit, which takes less than the second.
 */
static void
update(const SswDefinitionChange *c)
{
	int			id = c->here->policy_id;
	const char *list = columns();
	const char *definition;
	bool		forgets;

	lock_policy(id, c->patience_ms);
	definition = read_definition(c);
	if (definition == NULL)
		return;
	take_name(c);
	resume(id, definition);
	forgets = ssw_definition_run("UPDATE sweeper.policy AS p SET horizons = ARRAY[pg_catalog.clock_timestamp() + '1 s', '-infinity', pg_catalog.clock_timestamp()]"
								 " FROM pg_catalog.jsonb_populate_record(NULL::sweeper.policy, $2::pg_catalog.jsonb) AS r"
								 " WHERE p.policy_id = $1 AND p.heartbeats AND (p.key IS DISTINCT FROM r.key OR NOT r.heartbeats) RETURNING 1", id, definition) > 0;
	ssw_definition_run(psprintf("UPDATE sweeper.policy AS p SET (%s, held_reason, held_at, on_expire, is_alive, shared_at) ="
								" (SELECT %s, coalesce(r.held_reason, p.held_reason), coalesce(r.held_at, p.held_at), " BOUND
								" FROM pg_catalog.jsonb_populate_record(NULL::sweeper.policy, $2::pg_catalog.jsonb) AS r)"
								" WHERE p.policy_id = $1", list, list), id, definition);
	ssw_policy_store_name_failed_rows(id);
	/* a change may have been the repair */
	ssw_definition_run("UPDATE sweeper.policy SET failures = 0, failing_since = NULL, broken = false, retry_at = NULL, last_error = NULL, last_sqlstate = NULL"
					   " WHERE policy_id = $1 AND failures > 0", id, "");
	ssw_policy_xact_changed(id, forgets ? SSW_SCAN_REMOVE : SSW_SCAN_VOID);
}

/* A policy that was unregistered, or whose table has no rows here any more. */
static void
unregister(const SswDefinitionChange *c)
{
	lock_policy(c->here->policy_id, c->patience_ms);
	ssw_policy_store_remove(c->here->policy_id, c->here->policy);
}

/* What the definitions say has to be done here. */
void
ssw_definition_list_unapplied(SswDefinitionRound *r)
{
	List	   *here;
	List	   *shared;
	ListCell   *lc;

	/* not a member of the cluster yet, or not any more */
	if (!ssw_definition_is_shared())
		return;
	/* once more, if a function of that name has come, or has been made again */
	here = ssw_definition_read("SELECT shared_as, policy_id, policy, CASE WHEN on_expire IS NOT DISTINCT FROM pg_catalog.to_regprocedure(on_expire_name)::pg_catalog.oid"
							   " AND is_alive IS NOT DISTINCT FROM pg_catalog.to_regprocedure(is_alive_name)::pg_catalog.oid THEN shared_at::pg_catalog.text END"
							   " FROM sweeper.policy WHERE shared_as IS NOT NULL");
	shared = ssw_definition_read("SELECT policy_id, 0, policy, changed_at::pg_catalog.text FROM sweeper.shared_policy");
	ssw_definition_list_moved(r, shared);
	foreach(lc, here)
		if (!ssw_definition_find(shared, ((SswDefinition *) lfirst(lc))->shared_as))
		ssw_definition_add(&r->changes, unregister, lfirst(lc), NULL);
	foreach(lc, shared)
	{
		SswDefinition *s = lfirst(lc);
		SswDefinition *p = ssw_definition_find(here, s->shared_as);

		if (p == NULL || strcmp(p->text, s->text) != 0)
			ssw_definition_add(&r->changes, p ? update : insert, p, s);
	}
}
