/*
 * expire.c
 *		expire() and expire_group(): end named rows now.
 *
 * Runs in the caller's session and transaction, with the same row action,
 * hooks, events and notifications as a pass; whether the rows are dead does
 * not matter.  The owner's code runs as the owner.  Rows are locked by key
 * first, so that one which the application is just writing goes too.
 *
 * Shares nothing; works without the background processes.  A crash, or the
 * caller's rollback, undoes all of it.
 *
 * Lock order: extension object, policy, relation, rows; as in a batch.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "action.h"
#include "alive.h"
#include "identity.h"
#include "key.h"
#include "lock.h"
#include "mend.h"
#include "rights.h"
#include "sql.h"
#include "stmt.h"

PG_FUNCTION_INFO_V1(ssw_expire);
PG_FUNCTION_INFO_V1(ssw_expire_group);

/* Rows that one statement acts on. */
#define ROWS_AT_ONCE	10000

typedef struct FoundRow
{
	Oid			leaf;
	ItemPointerData tid;
} FoundRow;

typedef struct FoundRows
{
	int			n;
	int			size;
	FoundRow   *rows;
	MemoryContext cxt;
} FoundRows;

static int
compare_rows(const void *a, const void *b)
{
	const FoundRow *x = a;
	const FoundRow *y = b;

	if (x->leaf != y->leaf)
		return x->leaf < y->leaf ? -1 : 1;
	return ItemPointerCompare(unconstify(ItemPointerData *, &x->tid),
							  unconstify(ItemPointerData *, &y->tid));
}

/* SELECT the place of the rows that match, locked. */
static char *
find_statement(const SswPolicy *p, const char *matches)
{
	return psprintf("SELECT t.tableoid, t.ctid FROM %s AS t WHERE %s AND (%s) FOR UPDATE",
					ssw_stmt_relation(p->relid), matches, p->filter ? p->filter : "true");
}

static SPIPlanPtr
prepare(const char *sql, int nargs, Oid *types)
{
	SPIPlanPtr	plan = SPI_prepare(sql, nargs, types);

	if (plan == NULL)
		elog(ERROR, "could not prepare statement: %s", sql);
	return plan;
}

/* Run a statement of find_statement() and add what it finds. */
static void
find(FoundRows *found, SPIPlanPtr plan, Datum *values)
{
	uint64		n;

	if (SPI_execute_plan(plan, values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not look for the rows to expire");
	n = SPI_processed;

	if (found->n + n > INT_MAX / 2)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED), errmsg("too many rows to expire in one call")));
	if (found->n + n > found->size)
	{
		found->size = Max(found->n + n, 2 * found->size);
		found->rows = found->rows ?
			repalloc_huge(found->rows, found->size * sizeof(FoundRow)) :
			MemoryContextAllocHuge(found->cxt, found->size * sizeof(FoundRow));
	}
	for (uint64 i = 0; i < n; i++)
	{
		FoundRow   *r = &found->rows[found->n++];
		HeapTuple	tup = SPI_tuptable->vals[i];
		bool		isnull;

		r->leaf = DatumGetObjectId(SPI_getbinval(tup, SPI_tuptable->tupdesc, 1, &isnull));
		r->tid = *(ItemPointer) DatumGetPointer(SPI_getbinval(tup, SPI_tuptable->tupdesc, 2, &isnull));
	}
	SPI_freetuptable(SPI_tuptable);
}

static void
find_by_keys(const SswPolicy *p, ArrayType *keys, FoundRows *found)
{
	SPIPlanPtr	plan = NULL;
	Datum	   *elems;
	int			n;

	deconstruct_array(keys, TEXTOID, -1, false, TYPALIGN_INT, &elems, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		Oid			types[SSW_KEY_MAX];
		Datum		values[SSW_KEY_MAX];
		char	   *key = TextDatumGetCString(elems[i]);
		char	   *trouble;
		int			nvalues = ssw_key_params(p, key, types, values, &trouble);

		if (trouble)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
					 errmsg("invalid key \"%s\" for policy \"%s\"", key, p->name),
					 errdetail_internal("%s", trouble)));
		if (plan == NULL)
			plan = prepare(find_statement(p, ssw_key_matches(p, 1)), nvalues, types);
		find(found, plan, values);
	}
}

/* A plain column is compared as its own type, so that an index on it serves. */
static void
find_by_group(const SswPolicy *p, char *group, FoundRows *found)
{
	AttrNumber	attnum = get_attnum(p->relid, p->group_by);
	Oid			type = TEXTOID;
	Datum		value;
	const char *matches;

	if (attnum > 0)
	{
		Oid			input,
					ioparam;

		type = get_atttype(p->relid, attnum);
		getTypeInputInfo(type, &input, &ioparam);
		value = OidInputFunctionCall(input, group, ioparam, -1);
		matches = psprintf("t.%s %s $1", quote_identifier(p->group_by), ssw_key_equals(type));
	}
	else
	{
		value = CStringGetTextDatum(group);
		matches = psprintf("%s OPERATOR(pg_catalog.=) $1", p->group_text);
	}
	find(found, prepare(find_statement(p, matches), 1, &type), &value);
}

/* Act on up to ROWS_AT_ONCE rows of one leaf, from *next on. */
static int64
act(const SswPolicy *p, const FoundRows *found, int *next, const char *reason)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext, "rows to expire",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	SswTarget	target = {.policy = p,.phase = SSW_PHASE_MANUAL,.cutoff = GetCurrentTimestamp()};
	SswSink    *sink = ssw_audit_begin(p, 0, "manual", reason,
									   ssw_identity_actor());
	ItemPointerData *tids = palloc(ROWS_AT_ONCE * sizeof(ItemPointerData));
	SswIdentity save;
	int			n = 0;
	int64		acted;

	target.leaf = found->rows[*next].leaf;
	for (; *next < found->n && found->rows[*next].leaf == target.leaf && n < ROWS_AT_ONCE; ++*next)
		if (n == 0 || !ItemPointerEquals(&tids[n - 1], &found->rows[*next].tid))
			tids[n++] = found->rows[*next].tid;
	ssw_action_lock_leaf(p, target.leaf, RowExclusiveLock);
	ssw_identity_become_owner(p->owner, p->search_path, &save);
	ssw_identity_pin_text();
	ssw_sql_begin();
	acted = ssw_alive_run(&target, tids, n, sink);
	ssw_action_constraints_immediate();
	ssw_sql_end();
	ssw_identity_restore(&save);
	MemoryContextSwitchTo(cxt);
	ssw_audit_end(sink);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
	return acted;
}

/* The policy, locked against changes, if rows may be ended by hand now. */
static SswPolicy *
lock_policy(FunctionCallInfo fcinfo)
{
	text	   *name = PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0);
	SswPolicy  *p = ssw_rights_policy(name, SSW_RIGHT_ADMIN);
	char	   *trouble;
	char	   *step;

	PreventCommandIfReadOnly("sweeper.expire()");
	if (strncmp(p->name, SSW_SCHEMA ".", strlen(SSW_SCHEMA ".")) == 0 && p->audit == SSW_AUDIT_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot expire rows of policy \"%s\": they are evidence", p->name),
				 errhint("They go after the time that the retention settings say.")));
	LockDatabaseObject(ExtensionRelationId, get_extension_oid(SSW_EXTENSION, false), 0, AccessShareLock);
	ssw_lock_policy_batch(p->id);
	p = ssw_rights_policy(name, SSW_RIGHT_ADMIN);	/* as it is now */
	trouble = ssw_policy_unusable(p);
	step = trouble ? ssw_mend(p) : NULL;
	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot expire rows of policy \"%s\": %s", p->name, trouble),
				 errhint("When that is right: %s", step ? step :
						 psprintf("SELECT sweeper.resume(%s);", quote_literal_cstr(p->name)))));
	trouble = ssw_policy_hook_trouble(p);
	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot expire rows of policy \"%s\": %s", p->name, trouble),
				 errhint("Give the function to role \"%s\", or name another with sweeper.alter_policy().", p->owner_name)));
	return p;
}

/*
 * End rows by keys, or else by group.  Deferred constraints are made immediate
 * for the rest of the caller's transaction, first and as the caller: what the
 * owner's code leaves behind must not fire at commit as somebody else.
 */
static int64
expire_rows(SswPolicy *p, ArrayType *keys, char *group, const char *reason)
{
	FoundRows	found = {.cxt = CurrentMemoryContext};
	SswIdentity save;
	Relation	rel;
	int64		total = 0;

	ssw_action_constraints_immediate();
	ssw_action_lock_leaf(p, p->relid, RowExclusiveLock);
	rel = table_open(p->relid, NoLock);
	ssw_identity_become_owner(p->owner, p->search_path, &save);
	ssw_identity_pin_text();
	ssw_clock_build(p, rel);
	if (keys && p->nkeys == 0 && rel->rd_rel->relhassubclass)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" has no key", p->name),
				 errdetail("Rows of different partitions may have the same place."),
				 errhint("Give it one: SELECT sweeper.alter_policy(%s, key => '{...}');", quote_literal_cstr(p->name))));
	if (group && p->group_text == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" has no group", p->name),
				 errhint("Give it one: SELECT sweeper.alter_policy(%s, group_by => '...');",
						 quote_literal_cstr(p->name))));
	ssw_sql_begin();
	if (keys)
		find_by_keys(p, keys, &found);
	else
		find_by_group(p, group, &found);
	ssw_sql_end();
	ssw_identity_restore(&save);
	table_close(rel, NoLock);
	qsort(found.rows, found.n, sizeof(FoundRow), compare_rows);
	for (int next = 0; next < found.n;)
		total += act(p, &found, &next, reason);
	return total;
}

static char *
required_text(FunctionCallInfo fcinfo, int n, const char *name)
{
	if (PG_ARGISNULL(n))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", name)));
	return text_to_cstring(PG_GETARG_TEXT_PP(n));
}

/* expire(policy, keys, reason) → rows ended. */
Datum
ssw_expire(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = lock_policy(fcinfo);
	ArrayType  *keys;

	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("keys must not be null")));
	keys = PG_GETARG_ARRAYTYPE_P(1);
	if (array_contains_nulls(keys))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("keys must not contain nulls")));
	PG_RETURN_INT64(expire_rows(p, keys, NULL, required_text(fcinfo, 2, "reason")));
}

/* expire_group(policy, group_value, reason) → rows ended. */
Datum
ssw_expire_group(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = lock_policy(fcinfo);
	char	   *group = required_text(fcinfo, 1, "group_value");

	PG_RETURN_INT64(expire_rows(p, NULL, group, required_text(fcinfo, 2, "reason")));
}
