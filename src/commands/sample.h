/*
 * sample.h
 *		Estimates and samples of a table.
 */
#ifndef SSW_SAMPLE_H
#define SSW_SAMPLE_H

#include "policy/policy.h"

extern double ssw_sample_estimate(Relation rel, bool *analysed);
extern char *ssw_sample_select(Relation rel, const char *list, double rows_wanted, double *part);

#endif							/* SSW_SAMPLE_H */
