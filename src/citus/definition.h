/*
 * definition.h
 *		One definition of a policy for all nodes of a Citus cluster.
 */
#ifndef SSW_CITUS_DEFINITION_H
#define SSW_CITUS_DEFINITION_H

#include "nodes/pg_list.h"

/* A row of sweeper.shared_policy, or of sweeper.policy as it should be there. */
typedef struct SswDefinition
{
	int			shared_as;		/* policy_id on the cluster's coordinator */
	int			policy_id;		/* 0: read from sweeper.shared_policy */
	char	   *policy;
	char	   *text;			/* the definition; on other nodes, when it
								 * changed, or which change is applied here */
} SswDefinition;

/* What one policy needs. */
typedef struct SswDefinitionChange
{
	void		(*make) (const struct SswDefinitionChange *c);
	SswDefinition *here;		/* null: not yet */
	SswDefinition *shared;		/* null: not yet, or not any more */
	int			patience_ms;	/* for locks */
	bool		last;			/* of this round */
} SswDefinitionChange;

/* What all policies need now. */
typedef struct SswDefinitionRound
{
	bool		absent;			/* there is no Citus */
	bool		coordinator;	/* this is the cluster's */
	List	   *moved;			/* SswDefinitionChanges: tables were made
								 * again */
	List	   *changes;
	int			made;
	bool		failed;			/* one of them */
	bool		unfinished;		/* time was up */
} SswDefinitionRound;

extern List *ssw_definition_read(const char *sql);
extern List *ssw_definition_read_distributed(void);
extern SswDefinition *ssw_definition_find(List *all, int shared_as);
extern const SswDefinition *ssw_definition_of(const SswDefinitionChange *c);
extern int	ssw_definition_run(const char *sql, int number, const char *text);
extern void ssw_definition_add(List **changes, void (*make) (const SswDefinitionChange *), SswDefinition *here, SswDefinition *shared);
extern bool ssw_definition_is_shared(void);
extern void ssw_definition_list_moved(SswDefinitionRound *r, List *shared);
extern void ssw_definition_list_unapplied(SswDefinitionRound *r);

#endif							/* SSW_CITUS_DEFINITION_H */
