/*
 * plain_probe.c
 *		What is known of a policy's deadlines without any code of a user's.
 *
 * Runs in the coordinator, in a transaction.  Shares nothing; a crash leaves
 * nothing behind.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_class.h"
#include "process/plain_probe.h"
#include "utils/rel.h"

#include "policy/expr.h"
#include "policy/policy.h"

static bool
is_builtin_column(Relation rel, const char *name)
{
	AttrNumber	attnum = name ? ssw_expr_find_column(rel, name) : InvalidAttrNumber;

	return name == NULL ||
		(attnum != InvalidAttrNumber && TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid < FirstGenbkiObjectId);
}

/*
 * Is the policy all columns of built-in types, or all ours?  Then its fragments can
 * be built and its deadlines read without any code of a user's.
 */
bool
ssw_plain_columns(const SswPolicy *p, Relation rel)
{
	if (p->filter_indexed)
		return true;
	/* by what it is partitioned may be computed when somebody asks */
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE && (p->set_clause || OidIsValid(p->is_alive)))
		return false;
	return p->filter == NULL && p->on_null == SSW_NULL_IGNORE && p->ttl_column == NULL && is_builtin_column(rel, p->group_by) &&
		is_builtin_column(rel, p->deadline) && is_builtin_column(rel, p->last_seen) &&
		is_builtin_column(rel, p->created);
}

/* What can be said of the deadlines without a look at expressions: grace needs no more. */
void
ssw_plain_outline(SswPolicy *p)
{
	memset(p->deadlines, 0, sizeof(p->deadlines));
	p->ndeadlines = p->created ? 2 : 1;
	p->deadlines[0].activity = p->last_seen != NULL || p->heartbeats;
	p->deadlines[0].ttl_us = p->ttl_us;
	p->deadlines[0].row_ttl = p->ttl_column;
	p->deadlines[1].absolute = true;
}
