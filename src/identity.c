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
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "jit/jit.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "identity.h"
#include "ssw.h"

#define MARK_NAME "session_sweeper gate"

static needs_fmgr_hook_type prev_needs_fmgr = NULL;
static fmgr_hook_type prev_fmgr = NULL;

/* As whom a gate runs code; after an error it says so until the next one, outside of restricted operations. */
static Oid	gated_as = InvalidOid;

/* The role, other than superusers, whose code this process has run in gates; and were there several? */
static Oid	code_of = InvalidOid;
static bool code_of_several = false;

/*
 * What the text of values and the meaning of SQL depend on; keys are canonical under
 * these.  ssw_bgw_connect() has the same, also for row security, of which
 * ssw_sql_prepare() decides for us.  Locales, abbreviations of time zones and
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
 * Users' code can leave a cursor open, and whoever fetches from it later runs its
 * query with rights of his own.  A mark among the contexts of portals tells those
 * that were opened behind it; code inside can close portals, but not take it away.
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
	save->gated_as = InSecurityRestrictedOperation() ? gated_as : InvalidOid;
	gated_as = context & SECURITY_RESTRICTED_OPERATION ? userid : save->gated_as;
	if ((context & SECURITY_RESTRICTED_OPERATION) && userid != code_of && !superuser_arg(userid))
	{
		code_of_several = code_of_several || OidIsValid(code_of);
		code_of = userid;
	}
	save->guc_level = NewGUCNestLevel();
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

/*
 * The gate: everything that can run a user's code is called through it.  That is
 * not only statements on users' tables, but also parsing and planning of their
 * expressions (a constant of a domain is checked by its CHECK, an immutable function
 * is folded), input, output and casts of their types, expressions of their indexes,
 * row security policies, triggers and hooks.  The call runs as the owner, restricted:
 * no temporary objects, no settings or cursors that outlive it, no SET ROLE; and no
 * exemption from row security, which code of others that it calls would have too
 * (see ssw_sql_prepare()).  It sees the policy's search_path.
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

/* Has this process run no code of another role, who could have compiled the owner's functions with other types? */
bool
ssw_gate_is_clean(Oid owner)
{
	return !code_of_several && (!OidIsValid(code_of) || code_of == owner);
}

/*
 * Can whoever uses this session not turn what runs in it against the owner?  A function
 * that was compiled outside of the gate, or in that of another role, has the types that
 * the search_path of then gave their names; and deferred triggers of the caller may be
 * pending.
 */
bool
ssw_gate_trusts_session(Oid owner)
{
	return ssw_gate_is_clean(owner) && (superuser_arg(GetSessionUserId()) || is_member_of_role(GetSessionUserId(), owner));
}

/* Does its search_path name temporary objects after others?  Else these come first, or it has none. */
static bool
has_safe_path(HeapTuple proc, bool *has_path)
{
	bool		isnull;
	Datum		config = SysCacheGetAttr(PROCOID, proc, Anum_pg_proc_proconfig, &isnull);
	Datum	   *settings = NULL;
	int			n = 0;
	bool		safe = false;

	*has_path = false;
	if (!isnull)
		deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false, TYPALIGN_INT, &settings, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *setting = TextDatumGetCString(settings[i]);
		List	   *names;
		ListCell   *lc;

		if (strncmp(setting, "search_path=", 12) != 0 || !SplitIdentifierString(setting + 12, ',', &names))
			continue;
		*has_path = true;
		foreach(lc, names)
			safe = safe || (foreach_current_index(lc) > 0 && strcmp(lfirst(lc), "pg_temp") == 0);
	}
	return safe;
}

/*
 * A function that the owner's code calls, in a session of somebody else.  Those of the
 * server and in C mean the same everywhere, and those in SQL are analysed when they are
 * called.
 */
static void
check_function(Oid func)
{
	HeapTuple	tup = SearchSysCache1(PROCOID, ObjectIdGetDatum(func));
	Oid			language;
	bool		has_path;
	bool		safe;

	if (!HeapTupleIsValid(tup))
		return;
	language = ((Form_pg_proc) GETSTRUCT(tup))->prolang;
	safe = language == INTERNALlanguageId || language == ClanguageId || has_safe_path(tup, &has_path) ||
		(language == SQLlanguageId && !has_path);
	ReleaseSysCache(tup);
	if (!safe)
	{
		char	   *name = format_procedure_qualified(func);

		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("function %s cannot run as role \"%s\" in a session of role \"%s\"", name,
						GetUserNameFromId(GetUserId(), false), GetUserNameFromId(GetSessionUserId(), false)),
				 errdetail("It has no search_path that ends with pg_temp, so the session could have its names mean something else."),
				 ssw_gate_is_clean(GetUserId()) ? errhint("ALTER FUNCTION %s SET search_path = ..., pg_temp;", name) :
				 errhint("ALTER FUNCTION %s SET search_path = ..., pg_temp; or call it in a new session, which has run no code of other roles.", name)));
	}
}

/* What a SECURITY DEFINER function does is up to its definer, here as anywhere. */
static void
check_called(Oid func)
{
	if (GetUserId() == gated_as && func >= FirstNormalObjectId && InSecurityRestrictedOperation() &&
		!ssw_gate_trusts_session(gated_as))
		check_function(func);
}

/* Asked when a function without settings of its own is looked up to be called. */
static bool
needs_fmgr(Oid func)
{
	check_called(func);
	return prev_needs_fmgr && prev_needs_fmgr(func);
}

/* Others are called with an event. */
static void
fmgr(FmgrHookEventType event, FmgrInfo * flinfo, Datum *private)
{
	if (event == FHET_START)
		check_called(flinfo->fn_oid);
	if (prev_fmgr)
		prev_fmgr(event, flinfo, private);
}

void
ssw_identity_init(void)
{
	prev_needs_fmgr = needs_fmgr_hook;
	needs_fmgr_hook = needs_fmgr;
	prev_fmgr = fmgr_hook;
	fmgr_hook = fmgr;
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
 * owner does, in a worker or in somebody's session.
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
	gated_as = save->gated_as;
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
