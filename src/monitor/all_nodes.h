/*
 * all_nodes.h
 *		What the other nodes of a cluster say.
 */
#ifndef SSW_ALL_NODES_H
#define SSW_ALL_NODES_H

#include "nodes/pg_list.h"

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
} SswNodes;

extern const SswNodes *ssw_nodes;

#endif							/* SSW_ALL_NODES_H */
