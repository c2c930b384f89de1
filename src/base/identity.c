/*
 * identity.c
 *		The gate for users' code; and our own statements as the extension's owner.
 *
 * Runs in any process that has a transaction; shares nothing.  Each switch
 * opens a GUC nest level, so that settings changed by code of the owner are
 * undone on return; when an error is thrown instead, the abort of the
 * (sub)transaction restores user, context and settings and drops the portals, so
 * no caller needs a PG_TRY for that.
 *
 * A crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_extension.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "jit/jit.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/identity.h"
#include "base/ssw.h"

#define MARK_NAME "session_sweeper gate"

/*
 * What the text of values and the meaning of SQL depend on; keys are canonical under
 * these, in our processes too.  For our own statements ssw_spi_prepare() decides about
 * row security.  Locales, abbreviations of time zones and
 * configurations of text search are the database's: columns hold what was written
 * under those.
 */
static const char *const text_settings[][2] = {
	{"DateStyle", "ISO, YMD"}, {"IntervalStyle", "postgres"}, {"TimeZone", "UTC"},
	{"extra_float_digits", "1"}, {"bytea_output", "hex"}, {"xmlbinary", "base64"}, {"xmloption", "content"},
	{"standard_conforming_strings", "on"}, {"backslash_quote", "on"}, {"transform_null_equals", "off"},
	{"array_nulls", "on"}, {"quote_all_identifiers", "off"}, {"row_security", "on"}
};

static void
set_local(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/* The context whose children are those of portals, newest first; null before the first portal. */
static MemoryContext
portals_context(void)
{
	static MemoryContext found = NULL;

	for (MemoryContext c = TopMemoryContext->firstchild; found == NULL && c; c = c->nextchild)
		if (strcmp(c->name, "TopPortalContext") == 0)
			found = c;
	return found;
}

/*
 * Users' code can leave a cursor open, and the session that fetches from it
 * later runs its query with its own rights.  A mark among the contexts of portals shows
 * which were opened behind it; code inside can close portals, but not remove the mark.
 * Marks of gates that an error has left stay until the next one.
 */
static MemoryContext
mark_portals(void)
{
	MemoryContext top = portals_context();
	MemoryContext next;

	if (top == NULL)
		return NULL;
	for (MemoryContext c = InSecurityRestrictedOperation() ? NULL : top->firstchild; c; c = next)
	{
		next = c->nextchild;
		if (strcmp(c->name, MARK_NAME) == 0)
			MemoryContextDelete(c);
	}
	return AllocSetContextCreate(top, MARK_NAME, ALLOCSET_SMALL_SIZES);
}

static void
close_portals(MemoryContext mark)
{
	MemoryContext c = mark ? mark->prevchild : NULL;

	while (c)
	{
		Portal		portal = c->ident ? GetPortalByName(c->ident) : NULL;

		c = c->prevchild;
		if (!PortalIsValid(portal) || portal->status == PORTAL_ACTIVE || portal->portalPinned)
			continue;
		PortalDrop(portal, false);
		/* what it held may have gone with it */
		c = mark->prevchild;
	}
	if (mark)
		MemoryContextDelete(mark);
}

static void
become(Oid userid, int context, const char *search_path, SswIdentity *save)
{
	GetUserIdAndSecContext(&save->userid, &save->sec_context);
	save->portals = context & SECURITY_RESTRICTED_OPERATION ? mark_portals() : NULL;
	save->guc_level = NewGUCNestLevel();
	save->restricted = (context & SECURITY_RESTRICTED_OPERATION) != 0;
	if (save->restricted)
		ssw_trust_enter(userid);
	SetUserIdAndSecContext(userid, (save->sec_context & ~SECURITY_NOFORCE_RLS) | context);
	/* pg_catalog first, even where somebody would have it otherwise */
	if (strstr(search_path, "pg_catalog") != NULL && strncmp(search_path, "pg_catalog", 10) != 0)
		search_path = psprintf("pg_catalog, %s", search_path);
	set_local("search_path", search_path);

	/*
	 * where enable_seqscan is off, costs are high enough to compile each
	 * short statement for a second
	 */
	if (jit_enabled)
		set_local("jit", "off");
}

/*
 * After a switch in a session: read and write values as our processes do.  Undone
 * with the switch.
 */
void
ssw_identity_pin_text(void)
{
	for (int i = 0; i < lengthof(text_settings); i++)
		if (strcmp(GetConfigOption(text_settings[i][0], false, false), text_settings[i][1]) != 0)
			set_local(text_settings[i][0], text_settings[i][1]);
}

/* The same for the whole life of one of our processes. */
void
ssw_identity_pin_process(void)
{
	for (int i = 0; i < lengthof(text_settings); i++)
		SetConfigOption(text_settings[i][0], text_settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * The gate: everything that can run a user's code is called through it.  That is
 * not only statements on users' tables, but also parsing and planning of their
 * expressions (a constant of a domain is checked by its CHECK, an immutable function
 * is folded), input, output and casts of their types, expressions of their indexes,
 * row security policies, triggers and hooks.  The call runs as the owner, restricted:
 * no temporary objects, no settings or cursors that outlive it, no SET ROLE; and no
 * exemption from row security, which code of others that it calls would have too
 * (see ssw_spi_prepare()).  It sees the policy's search_path.
 */
void
ssw_gate(Oid owner, const char *search_path, SswGated call, void *arg)
{
	SswIdentity save;

	ssw_identity_become_owner(owner, search_path, &save);
	call(arg);
	ssw_identity_restore(&save);
}

/* The same, values read and written as in the caller's session. */
void
ssw_gate_unpinned(Oid owner, const char *search_path, SswGated call, void *arg)
{
	SswIdentity save;

	become(owner, SECURITY_RESTRICTED_OPERATION, search_path, &save);
	call(arg);
	ssw_identity_restore(&save);
}

/* The gate's two halves, where a function calls more than users' code between them. */
void
ssw_identity_become_owner(Oid owner, const char *search_path, SswIdentity *save)
{
	become(owner, SECURITY_RESTRICTED_OPERATION, search_path, save);
	ssw_identity_pin_text();
}

/* What can run a user's code insists on having been called through the gate. */
void
ssw_gate_require(void)
{
	if (!InSecurityRestrictedOperation())
		elog(ERROR, "code of users is called outside of the gate");
}

/* So long a lock is waited for, until AtEOXact_GUC() of the level around it, or the end of the switch. */
void
ssw_identity_lock_timeout(int ms)
{
	set_local("lock_timeout", psprintf("%d", ms));
}

/* One setting alone, until AtEOXact_GUC() of the level that is returned. */
int
ssw_identity_pin(const char *name, const char *value)
{
	int			level = NewGUCNestLevel();

	set_local(name, value);
	return level;
}

/*
 * The extension's owner, looked up afresh: it can be handed over.  *version is
 * that of its SQL.  Invalid when it does not exist.
 */
static Oid
extension_row(char **version)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tup;
	Oid			owner = InvalidOid;

	ScanKeyInit(&key, Anum_pg_extension_extname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(SSW_EXTENSION));
	scan = systable_beginscan(rel, ExtensionNameIndexId, true, NULL, 1, &key);
	tup = systable_getnext(scan);
	if (HeapTupleIsValid(tup))
	{
		bool		isnull;
		Datum		d = heap_getattr(tup, Anum_pg_extension_extversion, RelationGetDescr(rel), &isnull);

		owner = ((Form_pg_extension) GETSTRUCT(tup))->extowner;
		*version = TextDatumGetCString(d);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return owner;
}

static Oid
extension_owner(void)
{
	char	   *version;
	Oid			owner = extension_row(&version);

	if (!OidIsValid(owner))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"%s\" does not exist", SSW_EXTENSION)));
	return owner;
}

/* The version of the extension's SQL when it is not the library's; else null. */
char	   *
ssw_identity_other_version(void)
{
	char	   *version;

	return OidIsValid(extension_row(&version)) && strcmp(version, SSW_VERSION) != 0 ? version : NULL;
}

/* May the current user alter the extension? */
bool
ssw_identity_owns_extension(void)
{
	char	   *version;
	Oid			owner = extension_row(&version);

	return OidIsValid(owner) && has_privs_of_role(GetUserId(), owner);
}

/*
 * Become the extension's owner, for our own fully qualified statements on our
 * own tables: not restricted, because nothing of a user's runs in them.
 */
void
ssw_identity_become_extension(SswIdentity *save)
{
	become(extension_owner(), SECURITY_LOCAL_USERID_CHANGE | SECURITY_NOFORCE_RLS,
		   "pg_catalog, pg_temp", save);
}

/*
 * Who acts, for the evidence: the session's user, but not where code of a table's
 * owner does, in a worker or in another role's session.
 */
char	   *
ssw_identity_actor(void)
{
	return GetUserNameFromId(InSecurityRestrictedOperation() ? GetUserId() : GetSessionUserId(), false);
}

/* Undo a switch: cursors and settings first, while the role that made them is current. */
void
ssw_identity_restore(const SswIdentity *save)
{
	close_portals(save->portals);
	AtEOXact_GUC(false, save->guc_level);
	SetUserIdAndSecContext(save->userid, save->sec_context);
	if (save->restricted)
		ssw_trust_leave();
}

/* Who owns a relation; invalid when it is gone. */
Oid
ssw_relation_owner(Oid relid)
{
	HeapTuple	tup = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			owner = InvalidOid;

	if (HeapTupleIsValid(tup))
	{
		owner = ((Form_pg_class) GETSTRUCT(tup))->relowner;
		ReleaseSysCache(tup);
	}
	return owner;
}
