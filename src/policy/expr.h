/*
 * expr.h
 *		Columns and SQL expressions that users name in a policy.
 */
#ifndef SSW_EXPR_H
#define SSW_EXPR_H

#include "nodes/pg_list.h"
#include "utils/rel.h"

extern AttrNumber ssw_expr_find_column(Relation rel, const char *name);
extern AttrNumber ssw_expr_column(Relation rel, const char *field, const char *name);
extern Node *ssw_expr_parse_here(Relation rel, const char *field, const char *text);
extern Node *ssw_expr_parse(Relation rel, const char *field, const char *text);
extern AttrNumber ssw_expr_as_column(const Node *node);
extern char *ssw_expr_text(Relation rel, Node *node, bool prefix);
extern Node *ssw_expr_folded(Node *node);
extern List *ssw_expr_set_columns(const char *set_clause);
extern const char *ssw_expr_similar(const char *name, const char *const *candidates, int n);

#endif							/* SSW_EXPR_H */
