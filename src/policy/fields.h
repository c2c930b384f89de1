/*
 * fields.h
 *		The kinds of fields that a policy has.
 */
#ifndef SSW_FIELDS_H
#define SSW_FIELDS_H

/* What an argument of register() is, and the member of SswPolicy that it becomes. */
typedef enum SswFieldKind
{
	SSW_FIELD_TEXT,				/* char *; of words, if there are any */
	SSW_FIELD_WORD,				/* an enum, in the order of words */
	SSW_FIELD_NAMES,			/* char **, and how many */
	SSW_FIELD_INTERVAL,			/* int64, microseconds */
	SSW_FIELD_MILLISECONDS,		/* an interval; int */
	SSW_FIELD_INT,
	SSW_FIELD_REAL,				/* float4 */
	SSW_FIELD_BOOL,
	SSW_FIELD_FUNCTION			/* Oid */
} SswFieldKind;

/* What a change of the argument touches. */
#define SSW_FIELD_DEADLINE	1	/* which rows are dead */
#define SSW_FIELD_LIMIT		2	/* only how often and how much */
#define SSW_FIELD_RESOLVED	4	/* stored as SswPolicy has it, not as it was
								 * given */

typedef struct SswField
{
	const char *name;
	SswFieldKind kind;
	const char *dflt;			/* input text, or null */
	int			flags;
	size_t		offset;			/* of the member of SswPolicy */
	size_t		count;			/* of that which says how many names */
	int64		min;			/* of a number or an interval */
	int64		max;			/* of a number */
	const char *const *words;	/* ends with null */
} SswField;

extern Oid	ssw_field_type(const SswField *f);
extern void ssw_field_set(void *policy, const SswField *f, Datum value, bool isnull);

#endif							/* SSW_FIELDS_H */
