/*
 * preview.h
 *		What a policy would find and cost now, and what would help it.
 */
#ifndef SSW_PREVIEW_H
#define SSW_PREVIEW_H

#include "fmgr.h"

#include "policy/policy.h"

#define SSW_PREVIEW_KEYS	5

typedef struct SswPreview
{
	int64		rows;			/* that the policy looks at, about */
	int64		dead;			/* of these */
	bool		exact;			/* dead is a count, and rows of a small table */
	double		sample_dead;	/* share of them that is dead */
	double		sample_absurd;	/* share with an implausible deadline */
	TimestampTz earliest;		/* deadlines of all rows read in this process */
	TimestampTz latest;
	TimestampTz oldest;			/* deadlines of the dead ones */
	TimestampTz newest;
	bool		found;			/* oldest and newest are set */
	Oid			index;			/* that serves the first deadline, or invalid */
	double		cascade_rows;	/* child rows that go with a parent */
	int			nkeys;
	char	   *keys[SSW_PREVIEW_KEYS]; /* of some dead rows */
	bool		keys_shown;		/* as another node shows them */
	List	   *advice;			/* of char *: what would help */
	List	   *missing;		/* of char *: CREATE INDEX statements among it */
} SswPreview;

extern SswPreview *ssw_preview_part(SswPolicy *p, Relation rel, bool advise, bool count);
extern SswPreview *ssw_preview_run(SswPolicy *p, Relation rel);
extern Datum ssw_preview_row(FunctionCallInfo fcinfo, const SswPolicy *p,
							 const SswPreview *v, const char *state);
extern void ssw_preview_check_plausible(const SswPolicy *p, const SswPreview *v);

#endif							/* SSW_PREVIEW_H */
