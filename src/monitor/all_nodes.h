/*
 * all_nodes.h
 *		What the other nodes of a cluster say.
 */
#ifndef SSW_ALL_NODES_H
#define SSW_ALL_NODES_H

#include "nodes/pg_list.h"
#include "utils/array.h"

/* The answer of another node to a statement that returns one value. */
typedef struct SswAnswer
{
	char	   *node;			/* host:port */
	bool		failed;
	char	   *text;			/* failed: why */
} SswAnswer;

/* Nodes of a cluster.  Filled in by citus/. */
typedef struct SswNodes
{
	char	   *(*own_name) (void); /* null: this server is not in a cluster */
	List	   *(*ask_others) (const char *statement, int connect_timeout); /* SswAnswers; ms, 0: as
																			 * configured */
	bool		(*leads) (Oid relid);	/* are we the coordinator, and its
										 * rows on other nodes? */
} SswNodes;

extern const SswNodes *ssw_nodes;

extern ArrayType *ssw_nodes_rows(const char *query, const char **silent);

#endif							/* SSW_ALL_NODES_H */
