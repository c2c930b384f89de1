/*
 * database_hook.c
 *		Utility-command hook: stay out of the way of database commands.
 *
 * Runs in the session that executes the command.  DROP, RENAME, SET TABLESPACE
 * of a database, and CREATE ... TEMPLATE, need a database without connections.  If the
 * caller has the right to that, the hook closes the database to us (a count in
 * SswShared->databases, under SswShared->lock) and waits until our processes have left
 * it.  So it does for ALLOW_CONNECTIONS, and the launcher looks at it again.  It opens
 * the database again when the command has failed or its transaction has ended: until
 * then its row is locked, and processes that connect would wait.
 *
 * The hook also sees DROP and ALTER EXTENSION, which wait for the batches in flight, and
 * COMMIT PREPARED, because no transaction callback runs there.
 *
 * A crash empties shared memory, and with it the count.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "base/compat.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/shmem.h"
#include "heartbeat/policy_xact.h"
#include "heartbeat/store_scan.h"
#include "policy/partition.h"
#include "work/task_shmem.h"
#include "work/work_state.h"
#include "process/database_hook.h"
#include "registry/pool_count.h"

/* How much longer than a batch may take to end; the server itself waits 5 s more. */
#define CLOSE_GRACE_MS		2000

static ProcessUtility_hook_type prev_process_utility = NULL;

/* Databases that commands of this transaction have closed; in TopTransactionContext. */
static List *closed = NIL;

static bool
may_own(Oid dboid)
{
	return object_ownercheck(DatabaseRelationId, dboid, GetUserId());
}

static bool
is_template(Oid dboid)
{
	HeapTuple	tup = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	bool		result;

	if (!HeapTupleIsValid(tup))
		return false;
	result = ((Form_pg_database) GETSTRUCT(tup))->datistemplate;
	ReleaseSysCache(tup);
	return result;
}

static const char *
template_name(CreatedbStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->options)
	{
		DefElem    *def = lfirst(lc);

		if (strcmp(def->defname, "template") == 0 && def->arg)
			return defGetString(def);
	}
	return "template1";
}

/* The server's own check is not exported in all minor releases. */
static bool
may_create_databases(void)
{
	HeapTuple	tup = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	bool		may = superuser();

	if (HeapTupleIsValid(tup))
	{
		may = may || ((Form_pg_authid) GETSTRUCT(tup))->rolcreatedb;
		ReleaseSysCache(tup);
	}
	return may;
}

/* Does it move the database, or say whether it takes connections? */
static bool
concerns_us(AlterDatabaseStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->options)
	{
		const char *name = ((DefElem *) lfirst(lc))->defname;

		if (strcmp(name, "tablespace") == 0 || strcmp(name, "allow_connections") == 0)
			return true;
	}
	return false;
}

/*
 * The database that a command wants for itself, or invalid.  Only a command of its owner,
 * or of a role that may copy it, stops us; also one that the server then refuses.
 */
static Oid
wanted_database(Node *stmt)
{
	Oid			dboid = InvalidOid;

	switch (nodeTag(stmt))
	{
		case T_DropdbStmt:
			dboid = get_database_oid(((DropdbStmt *) stmt)->dbname, true);
			break;
		case T_RenameStmt:
			if (((RenameStmt *) stmt)->renameType == OBJECT_DATABASE)
				dboid = get_database_oid(((RenameStmt *) stmt)->subname, true);
			break;
		case T_AlterDatabaseStmt:
			if (concerns_us((AlterDatabaseStmt *) stmt))
				dboid = get_database_oid(((AlterDatabaseStmt *) stmt)->dbname, true);
			break;
		case T_CreatedbStmt:
			dboid = get_database_oid(template_name((CreatedbStmt *) stmt), true);
			/* who is connected to it may copy it */
			return OidIsValid(dboid) && may_create_databases() && (is_template(dboid) || may_own(dboid)) ? dboid : InvalidOid;
		default:
			break;
	}
	return OidIsValid(dboid) && dboid != MyDatabaseId && may_own(dboid) ? dboid : InvalidOid;
}

static void
add_closed(Oid dboid, int change)
{
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(dboid, change > 0);
	if (d)
		d->closed = Max(0, d->closed + change);
	/* the launcher looks for itself what was made, renamed or dropped */
	if (change < 0)
		SswShared->rescan = true;
	for (int i = 0; i < SswShared->nprocs; i++)
		if (SswProcs[i].state != SSW_STATE_FREE && SswProcs[i].database == dboid && SswProcs[i].latch)
			SetLatch(SswProcs[i].latch);
	ssw_shmem_wake_launcher();
	LWLockRelease(SswShared->lock);
}

/* The transaction has ended; a prepared one does not end, but no session holds it. */
static void
at_xact_end(XactEvent event, void *arg)
{
	ListCell   *lc;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	foreach(lc, closed)
		add_closed(lfirst_oid(lc), -1);
	closed = NIL;
}

/*
 * The database stays closed until the transaction ends, also if a savepoint is rolled back
 * or the session is terminated.
 */
static void
reopen_at_end(Oid dboid)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	closed = lappend_oid(closed, dboid);
	MemoryContextSwitchTo(old);
}

static bool
anybody_in(Oid dboid)
{
	bool		found = false;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	for (int i = 0; i < SswShared->nprocs; i++)
		found = found || (SswProcs[i].state != SSW_STATE_FREE && SswProcs[i].database == dboid);
	LWLockRelease(SswShared->lock);
	return found;
}

static void
wait_until_empty(Oid dboid)
{
	static uint32 wait_event = 0;
	TimestampTz until = GetCurrentTimestamp() + (ssw_shutdown_timeout + CLOSE_GRACE_MS) * INT64CONST(1000);

	ConditionVariablePrepareToSleep(&SswShared->exit_cv);
	while (anybody_in(dboid) && GetCurrentTimestamp() < until)
		(void) ConditionVariableTimedSleep(&SswShared->exit_cv, 50,
										   ssw_wait_event("SessionSweeperCloseDatabase", wait_event));
	ConditionVariableCancelSleep();
}

/*
 * DROP EXTENSION, ALTER EXTENSION ... UPDATE: wait for the batches in flight, and let
 * no other begin before its end.  The coordinator looks at the extension again after
 * the commit.  False: it is another extension, or the caller may not.
 */
static bool
keep_batches_out(const char *extension)
{
	if (strcmp(extension, SSW_EXTENSION) != 0 || !ssw_identity_owns_extension() ||
		!OidIsValid(get_extension_oid(extension, true)))
		return false;
	ssw_lock_extension_exclusive();
	ssw_policy_xact_changed_all();
	return true;
}

static void
process_utility(PlannedStmt *pstmt, const char *query, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params,
				QueryEnvironment *env, DestReceiver *dest, QueryCompletion *qc)
{
	Oid			dboid = InvalidOid;

	switch (nodeTag(pstmt->utilityStmt))
	{
		case T_DropdbStmt:
		case T_RenameStmt:
		case T_AlterDatabaseStmt:
		case T_CreatedbStmt:
			if (ssw_shmem_available() && IsTransactionState())
				dboid = wanted_database(pstmt->utilityStmt);
			break;
		case T_AlterExtensionStmt:
			if (IsTransactionState())
				(void) keep_batches_out(((AlterExtensionStmt *) pstmt->utilityStmt)->extname);
			break;
		case T_DropStmt:
			if (IsTransactionState() && ((DropStmt *) pstmt->utilityStmt)->removeType == OBJECT_EXTENSION)
			{
				ListCell   *lc;

				foreach(lc, ((DropStmt *) pstmt->utilityStmt)->objects)
					if (keep_batches_out(strVal(lfirst(lc))) && ssw_shards)
					ssw_shards->drop();
			}
			break;
		case T_TransactionStmt:
			if (IsTransactionState() && ((TransactionStmt *) pstmt->utilityStmt)->kind == TRANS_STMT_COMMIT_PREPARED)
				ssw_policy_xact_commit_prepared();
			break;
		default:
			break;
	}

	/* the database is closed to us meanwhile, and stays closed */
	if (OidIsValid(dboid))
	{
		/*
		 * a callback of our own at exit would not be the last one: other
		 * extensions add theirs in the command
		 */
		reopen_at_end(dboid);
		add_closed(dboid, 1);
		wait_until_empty(dboid);
	}
	(prev_process_utility ? prev_process_utility : standard_ProcessUtility) (pstmt, query, read_only_tree, context, params, env, dest, qc);
	if (OidIsValid(dboid) && IsA(pstmt->utilityStmt, DropdbStmt))
	{
		ssw_store_forget(dboid);
		ssw_task_shmem_forget(dboid);
		ssw_work_forget(dboid);
		ssw_pool_count_forget(dboid);
	}
}

void
ssw_database_hook_init(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	RegisterXactCallback(at_xact_end, NULL);
}
