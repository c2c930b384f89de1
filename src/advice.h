/*
 * advice.h
 *		What a policy would find and cost, for register() and preview().
 */
#ifndef SSW_ADVICE_H
#define SSW_ADVICE_H

#include "policy.h"

typedef struct SswPreview
{
	int64		rows;			/* estimated */
	int64		dead;
	bool		exact;			/* dead is a full count */
	TimestampTz oldest;			/* 0: none */
	TimestampTz newest;
	Oid			index;			/* that finds the dead, or invalid */
	double		cascade_rows;	/* child rows for each parent */
	Datum		sample_keys;	/* text[] */
	List	   *advice;			/* of char * */
	double		sample_dead;	/* share of the newest and oldest rows */
	double		sample_absurd;	/* share outside the plausible range */
	int			sampled;
} SswPreview;

extern SswPreview *ssw_advice_preview(SswPolicy *p);

#endif							/* SSW_ADVICE_H */
