/*
 * policy_hooks.h
 *		What the built-in policies do besides what every policy does.
 */
#ifndef SSW_POLICY_HOOKS_H
#define SSW_POLICY_HOOKS_H

#include "datatype/timestamp.h"
#include "executor/tuptable.h"

struct SswWork;

/* A row that has ended, as its evidence is written. */
typedef struct SswEndedRow
{
	TimestampTz due;
	TimestampTz seen;
	text	   *key;
	text	   *group;
	struct varlena *meta;
	bool		has_due;
	bool		has_seen;
	text	   *owner;			/* for the event; null: none */
	char	   *channel;		/* notified instead of the policy's own; or
								 * null */
	void	   *extra;			/* what read_row() made of extra_columns */
} SswEndedRow;

/* Members may be null, and a policy may have several of these. */
typedef struct SswPolicyHooks
{
	int			policy_id;
	const char *extra_columns;	/* SQL over t; the row action returns them */
	void		(*read_row) (TupleTableSlot *slot, int first_extra, SswEndedRow *row);

	/*
	 * in the batch's transaction, as the extension, before the events are
	 * written; event: id of the first row's
	 */
	void		(*rows_ended) (SswEndedRow *rows, int n, const char *type, int64 event);

	/*
	 * in the pass's collector, before it looks for rows; what lasts goes to
	 * cxt
	 */
	void		(*before_collect) (struct SswWork *w, MemoryContext cxt);
	struct SswPolicyHooks *next;	/* of the same policy */
} SswPolicyHooks;

extern void ssw_policy_hooks_add(SswPolicyHooks *hooks);
extern const SswPolicyHooks *ssw_policy_hooks_find(int policy_id);

#endif							/* SSW_POLICY_HOOKS_H */
