/*
 * key.h
 *		The text of a row's key, and the row's columns that it stands for.
 */
#ifndef SSW_KEY_H
#define SSW_KEY_H

#include "beats.h"
#include "policy.h"

/* Values of a key: its columns, or the tid of a relation without one. */
#define SSW_KEY_MAX		INDEX_MAX_KEYS

extern int	ssw_key_params(const SswPolicy *p, const char *key, Oid *types, Datum *values,
						   char **trouble);
extern char **ssw_key_fields(const SswPolicy *p, const char *key);
extern SswBeatId ssw_key_beat_id(const SswPolicy *p, const char *key);
extern char *ssw_key_shown(const SswPolicy *p, const char *key);
extern char *ssw_key_shown_sql(const SswPolicy *p);
extern char *ssw_key_equals(Oid type);
extern char *ssw_key_matches(const SswPolicy *p, int first_param);

#endif							/* SSW_KEY_H */
