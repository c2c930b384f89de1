/*
 * row_key.h
 *		The text of a row's key, and the row's columns that it stands for.
 */
#ifndef SSW_ROW_KEY_H
#define SSW_ROW_KEY_H

#include "fmgr.h"

#include "base/ssw.h"
#include "policy/policy.h"

/* Values of a key: its columns, or the tid of a relation without one. */
#define SSW_KEY_MAX		INDEX_MAX_KEYS

extern void ssw_key_read(const SswPolicy *p, const char *key, const Oid *types, const Oid *input, const Oid *ioparam, Datum *values);
extern int	ssw_key_params(const SswPolicy *p, const char *key, Oid *types, Datum *values);

/*
 * What is shown for a key that is a credential, as SQL: a hash of its bytes as the
 * database has them, since not all that it takes need be characters of another
 * encoding.
 */
#define SSW_KEY_HASH(key) \
	"pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(" key ", pg_catalog.getdatabaseencoding())), 'hex')"

extern char *ssw_key_place(const SswPolicy *p);
extern void ssw_key_check_place(const SswPolicy *p, FunctionCallInfo fcinfo);
extern bool ssw_key_is_canonical(Oid type);
extern char *ssw_key_text(int n, const Oid *types, const Datum *values);
extern char *ssw_key_sql(const SswPolicy *p);
extern char *ssw_key_value_sql(const SswPolicy *p, Oid leaf);
extern text *ssw_key_of_value(Oid type, Datum value);
extern char *ssw_key_column_sql(const SswPolicy *p, int i);
extern SswHeartbeatId ssw_key_value_id(int n, const Oid *types, const Datum *values);
extern SswHeartbeatId ssw_key_heartbeat_id(const SswPolicy *p, const char *key);
extern char *ssw_key_shown(const SswPolicy *p, const char *key);
extern char *ssw_key_shown_sql(const SswPolicy *p);
extern char *ssw_key_equals(Oid type);
extern char *ssw_key_matches(const SswPolicy *p, int first_param);

#endif							/* SSW_ROW_KEY_H */
