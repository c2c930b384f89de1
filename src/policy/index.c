/*
 * index.c
 *		Which index serves a deadline, which one identifies rows, and the
 *		statement that would create a missing one.
 *
 * Runs in workers and sessions, as the relation's owner; the caller holds a lock on the
 * relation.  Index expressions and predicates are folded, which may run immutable functions
 * of the owner, and for long: so never in the coordinator.  Shares nothing; a crash leaves
 * nothing behind.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_inherits.h"
#include "lib/stringinfo.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "base/compat.h"
#include "base/identity.h"
#include "policy/expr.h"
#include "policy/index.h"
#include "policy/partition.h"

/* Leaves named in the advice for a partitioned table. */
#define MAX_LEAVES_NAMED	3

static Node *
strip(Node *node)
{
	while (node && IsA(node, RelabelType))
		node = (Node *) ((RelabelType *) node)->arg;
	return node;
}

/* Does column i of an index hold this expression? */
static bool
column_matches(Relation index, int i, List *exprs, Node *node)
{
	AttrNumber	attnum = index->rd_index->indkey.values[i];

	node = strip(node);
	if (attnum != 0)
		return IsA(node, Var) && ((Var *) node)->varattno == attnum;
	for (int j = 0; j < i; j++)
		if (index->rd_index->indkey.values[j] == 0)
			exprs = list_copy_tail(exprs, 1);
	return exprs != NIL && equal(strip(linitial(exprs)), node);
}

/* Is column i held to one value by a clause of the filter? */
static bool
column_is_fixed(Relation index, int i, List *exprs, List *clauses)
{
	ListCell   *lc;

	foreach(lc, clauses)
	{
		OpExpr	   *op = lfirst(lc);
		Node	   *left;
		Node	   *right;

		if (!IsA(op, OpExpr) || list_length(op->args) != 2 ||
			get_op_opfamily_strategy(op->opno, index->rd_opfamily[i]) != BTEqualStrategyNumber)
			continue;
		left = linitial(op->args);
		right = lsecond(op->args);
		if ((column_matches(index, i, exprs, left) && !contain_var_clause(right)) ||
			(column_matches(index, i, exprs, right) && !contain_var_clause(left)))
			return true;
	}
	return false;
}

/* sort <= something, for the proof of a partial index's predicate. */
static Node *
range_clause(Node *sort)
{
	Oid			type = getBaseType(exprType(sort));
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY);
	Oid			op = get_opfamily_member(entry->btree_opf, entry->btree_opintype,
										 entry->btree_opintype, BTLessEqualStrategyNumber);
	Param	   *param = makeNode(Param);

	if (!OidIsValid(op))
		return NULL;
	param->paramkind = PARAM_EXTERN;
	param->paramid = 1;
	param->paramtype = type;
	param->paramtypmod = -1;
	return (Node *) make_opclause(op, BOOLOID, false, (Expr *) sort, (Expr *) param,
								  InvalidOid, exprCollation(sort));
}

/* Can a btree return the dead rows in order of sort?  Which of its columns that is, from 1, or 0. */
static int
index_serves(Relation index, Node *sort, List *clauses, Node *range)
{
	Form_pg_index form = index->rd_index;
	TypeCacheEntry *entry = lookup_type_cache(getBaseType(exprType(sort)), TYPECACHE_BTREE_OPFAMILY);
	List	   *exprs;
	List	   *pred;

	if (!form->indisvalid || !form->indisready || !form->indislive ||
		index->rd_rel->relam != BTREE_AM_OID)
		return 0;
	pred = RelationGetIndexPredicate(index);
	if (pred != NIL &&
		!predicate_implied_by(pred, range ? lappend(list_copy(clauses), range) : clauses, false))
		return 0;
	exprs = RelationGetIndexExpressions(index);
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		if (column_matches(index, i, exprs, sort))
			return index->rd_opfamily[i] == entry->btree_opf ? i + 1 : 0;
		if (!column_is_fixed(index, i, exprs, clauses))
			return 0;
	}
	return 0;
}

/* An index of this very relation, not of its children; to_read: see ssw_index_to_read(). */
static Oid
find_own(Relation rel, const char *sort_sql, const char *filter, bool to_read)
{
	Node	   *sort = ssw_expr_folded(ssw_expr_parse(rel, "deadline", sort_sql));
	List	   *clauses = NIL;
	List	   *indexes = RelationGetIndexList(rel);
	Node	   *range = range_clause(sort);
	Oid			found = InvalidOid;
	ListCell   *lc;

	if (filter)
		clauses = make_ands_implicit((Expr *) ssw_expr_folded(ssw_expr_parse(rel, "filter", filter)));
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		bool		skip = to_read && IsA(sort, Var) && heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
		int			column = skip ? 0 : index_serves(index, sort, clauses, range);
		bool		best = false;

		if (column == 1 || (column > 1 && !to_read))
		{
			found = lfirst_oid(lc);
			/* no other rows are in it */
			best = !to_read || predicate_implied_by(clauses, RelationGetIndexPredicate(index), false);
		}
		index_close(index, AccessShareLock);
		if (best)
			break;
	}
	return found;
}

static bool
holds_rows(Oid relid)
{
	return get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE && get_rel_persistence(relid) != RELPERSISTENCE_TEMP;
}

/*
 * The index that serves rows in order of sort, or invalid.  For a parent whose
 * own index does not cover its children every leaf must have one, of those that
 * nobody holds; the first leaf's is returned.
 */
Oid
ssw_index_find(Relation rel, const char *sort, const char *filter)
{
	Oid			first = find_own(rel, sort, filter, false);
	List	   *children;
	ListCell   *lc;

	if (!rel->rd_rel->relhassubclass ||
		(OidIsValid(first) && rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE))
		return first;
	children = ssw_partition_family(RelationGetRelid(rel));
	foreach(lc, children)
	{
		Oid			relid = lfirst_oid(lc);
		Relation	leaf;
		Oid			found;
		bool		holds;

		if (relid == RelationGetRelid(rel))
		{
			if (holds_rows(relid) && !OidIsValid(first))
				return InvalidOid;
			continue;
		}
		if (!ConditionalLockRelationOid(relid, AccessShareLock))
			continue;
		leaf = try_relation_open(relid, NoLock);
		if (leaf == NULL)
			continue;
		holds = holds_rows(relid);
		found = holds ? find_own(leaf, sort, filter, false) : InvalidOid;
		table_close(leaf, NoLock);
		if (!holds)
			continue;
		if (!OidIsValid(found))
			return InvalidOid;
		if (!OidIsValid(first))
			first = found;
	}
	return first;
}

typedef struct ToRead
{
	Relation	rel;
	const SswPolicy *p;
	Oid			index;
} ToRead;

static void
find_to_read(void *arg)
{
	ToRead	   *t = arg;

	t->index = find_own(t->rel, t->p->deadlines[0].sort, t->p->filter, true);
}

/*
 * What the coordinator may read the only deadline from, and does not find by itself: an index of
 * a table without children that begins with the deadline, is partial or on an expression, and has
 * all rows of the filter.  No others, if there is such a one; or invalid.  The fragments are built.
 */
Oid
ssw_index_to_read(Relation rel, const SswPolicy *p)
{
	const SswDeadline *c = &p->deadlines[0];
	ToRead		t = {rel, p, InvalidOid};

	/* the coordinator goes by the time to live in each row, or not at all */
	if (!p->filter_indexed && p->ndeadlines == 1 && ssw_partition_is_alone(rel) && (p->last_seen == NULL || c->row_ttl == NULL || c->attnum == 0))
		ssw_gate(p->owner, p->search_path, find_to_read, &t);
	return t.index;
}

/*
 * Does an index tell values of a column apart as its equality does?  Rows that are
 * equal by the column's collation may differ by the index's, or by its operators.
 */
static bool
same_equality(Relation index, int i, Form_pg_attribute att)
{
	Oid			column = att->attcollation;
	Oid			eq = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i],
										 index->rd_opcintype[i], BTEqualStrategyNumber);

	return eq == lookup_type_cache(att->atttypid, TYPECACHE_EQ_OPR)->eq_opr &&
		(index->rd_indcollation[i] == column || !OidIsValid(column) || get_collation_isdeterministic(column));
}

/* Are all key columns of an index plain, not null, and unique at once? */
static bool
identifies(Relation rel, Relation index)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisunique || !form->indimmediate || !form->indisvalid || !form->indislive ||
		!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return false;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		AttrNumber	attnum = form->indkey.values[i];

		if (attnum <= 0 || !ssw_column_is_not_null(RelationGetRelid(rel), TupleDescAttr(RelationGetDescr(rel), attnum - 1)) ||
			!same_equality(index, i, TupleDescAttr(RelationGetDescr(rel), attnum - 1)))
			return false;
	}
	return true;
}

static bool
is_among(const char *name, char **names, int n)
{
	for (int i = 0; i < n; i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

/*
 * Columns that identify a row: the primary key, else the shortest unique index
 * over columns that are not null; names, or empty when there is none.  If key is
 * given, only indexes over some of its columns count: then all of them identify.
 */
List	   *
ssw_index_key(Relation rel, char **key, int nkeys)
{
	List	   *best = NIL;
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);
		Form_pg_index form = index->rd_index;
		bool		primary = form->indisprimary && form->indisvalid;
		bool		fits = primary || identifies(rel, index);
		List	   *names = NIL;

		for (int i = 0; i < form->indnkeyatts && fits; i++)
		{
			char	   *name = NameStr(TupleDescAttr(RelationGetDescr(rel), form->indkey.values[i] - 1)->attname);

			fits = key == NULL || is_among(name, key, nkeys);
			names = lappend(names, pstrdup(name));
		}
		index_close(index, AccessShareLock);
		if (fits && primary)
			return names;
		if (fits && (best == NIL || list_length(names) < list_length(best)))
			best = names;
	}
	return best;
}

static void
append_statement(StringInfo buf, Oid relid, const char *sql)
{
	appendStringInfo(buf, "%sCREATE INDEX CONCURRENTLY ON %s (%s);", buf->len ? " " : "",
					 quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
												get_rel_name(relid)), sql);
}

static bool
is_users(Oid function, void *context)
{
	return function >= FirstGenbkiObjectId;
}

/* Would a role that pastes it into a statement run code that is not the server's? */
static bool
runs_code(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if ((IsA(node, Var) && ((Var *) node)->vartype >= FirstGenbkiObjectId) ||
		(IsA(node, Const) && ((Const *) node)->consttype >= FirstGenbkiObjectId) ||
		IsA(node, CoerceToDomain) || IsA(node, RowExpr) || IsA(node, ConvertRowtypeExpr) || IsA(node, FieldSelect))
		return true;
	return check_functions_in_node(node, is_users, context) || expression_tree_walker(node, runs_code, context);
}

/*
 * The statement that makes a usable index, or null when none can be made.  A
 * partitioned table gets one for each leaf: on the parent it would block writes.
 */
char	   *
ssw_index_statement(Relation rel, const char *sort)
{
	Node	   *node = ssw_expr_parse(rel, "deadline", sort);
	char	   *sql = ssw_expr_text(rel, node, false);
	StringInfoData buf;
	ListCell   *lc;
	int			leaves = 0;

	if (!IsA(node, Var))
	{
		if (contain_mutable_functions(node))
			return NULL;
		if (runs_code(node, NULL))
			return pstrdup("An index on the deadline expression would find the dead rows. It runs code of the table's owner: log in as that role to create the index.");
		if (!IsA(node, OpExpr))
			sql = psprintf("(%s)", sql);
	}
	initStringInfo(&buf);
	if (!rel->rd_rel->relhassubclass)
	{
		append_statement(&buf, RelationGetRelid(rel), sql);
		return buf.data;
	}
	foreach(lc, find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL))
	{
		if (holds_rows(lfirst_oid(lc)) && leaves++ < MAX_LEAVES_NAMED)
			append_statement(&buf, lfirst_oid(lc), sql);
	}
	if (leaves > MAX_LEAVES_NAMED)
		appendStringInfo(&buf, " -- and so on for %d more", leaves - MAX_LEAVES_NAMED);
	return buf.data;
}
