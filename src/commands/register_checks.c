/*
 * register_checks.c
 *		What register and alter_policy check alike: names, and what a look at the
 *		relation finds.
 *
 * Runs in the session that calls one of them; reads only, and shares nothing.  A crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"

#include "base/argument_checks.h"
#include "base/relation_guard.h"
#include "commands/args.h"
#include "commands/preview.h"
#include "commands/register_checks.h"
#include "policy/policy.h"

/* Fewer rows than these are no reason to ask first. */
#define BACKLOG_ROWS	20

/*
 * ereport that a name is taken, perhaps by a policy of another table than that, with one
 * that is free.  argument: where it was given; only register has if_exists.
 */
void
ssw_register_name_taken(const char *name, const char *argument, const char *relation)
{
	char	   *free_name = NULL;

	for (int i = 2; free_name == NULL; i++)
	{
		char	   *candidate = psprintf("%s_%d", name, i);

		if (ssw_policy_find(candidate, true) == NULL)
			free_name = candidate;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("policy \"%s\" already exists", name),
			 relation ? errdetail("It is a policy of another table, not of %s.", relation) : 0,
			 relation || strcmp(argument, "policy") != 0 ? errhint("Give a name that is free, for example %s => %s.", argument, quote_literal_cstr(free_name)) :
			 errhint("Give a name that is free, for example policy => %s, change the policy with sweeper.alter_policy(), or give if_exists => 'alter'.",
					 quote_literal_cstr(free_name))));
}

/* ereport that a policy's table was dropped. */
void
ssw_register_table_gone(const SswPolicy *p)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("table %s of policy \"%s\" no longer exists", p->relation, p->name),
			 errhint("SELECT sweeper.unregister(%s);", quote_literal_cstr(p->name))));
}

/* May a policy have this name, whether or not one has it? */
void
ssw_register_check_spelling(const char *name, const char *argument)
{
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("the name of a policy must not be empty")));
	if (strlen(name) > SSW_MAX_NAME)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("the name of a policy must not be longer than %d bytes", SSW_MAX_NAME)));
	ssw_argument_printable(name, strlen(name), "the name of a policy", argument);
	if (strncmp(name, SSW_BUILTIN_PREFIX, strlen(SSW_BUILTIN_PREFIX)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("policy name \"%s\" is reserved", name),
				 errdetail("Names that begin with \"%s\" are those of the built-in policies.", SSW_BUILTIN_PREFIX),
				 errhint("Give another name.")));
}

/* May a new policy have this name? */
void
ssw_register_check_name(const char *name, const char *argument)
{
	ssw_register_check_spelling(name, argument);
	if (ssw_policy_find(name, true))
		ssw_register_name_taken(name, argument, NULL);
}

/* Say how to make a sweep cheap. */
static void
notice_index(const SswPolicy *p, const SswPreview *v)
{
	ListCell   *lc;

	foreach(lc, v->missing)
		ereport(NOTICE,
				(errmsg("policy \"%s\": no index finds the dead rows of %s", p->name, p->relation),
				 errdetail("Each look reads the whole table; while it is small, that costs little."),
				 errhint("%s", (char *) lfirst(lc))));
}

/* The arguments that adopt() guessed, as "name => value"; or, to be completed, the one that says what is dead. */
static char *
doubtful_args(const SswPolicy *p, bool values)
{
	const SswArgs *a = p->args;
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	foreach(lc, a->assumed)
		appendStringInfo(&buf, "%s%s => %s", buf.len ? ", " : "", ssw_fields[lfirst_int(lc)].name,
						 values ? quote_literal_cstr(ssw_args_text(lfirst_int(lc), a->value[lfirst_int(lc)])) : "'...'");
	if (buf.len == 0 && !values)
		appendStringInfo(&buf, "%s => '...'", p->last_seen ? "last_seen" : "deadline");
	return buf.data;
}

/* How a held policy is resumed, and how it is corrected. */
static char *
held_hint(const SswPolicy *p)
{
	char	   *name = quote_literal_cstr(p->name);

	if (p->args->dry_run)
		return psprintf("If that is right: %s If it is not, give %s.",
						ssw_args_call(p->args, "start", "now"), doubtful_args(p, false));
	return psprintf("If that is right: SELECT sweeper.resume(%s); If it is not: SELECT sweeper.alter_policy(%s, %s), sweeper.resume(%s);",
					name, name, doubtful_args(p, false), name);
}

/*
 * Why nothing must be removed before somebody has confirmed it, or null: what the
 * deadline means is a guess, or most rows are dead already.
 */
static const char *
hold(const SswPolicy *p, const SswPreview *v)
{
	const SswArgs *a = p->args;
	bool		guessed = a->assumed != NIL || a->doubt != NULL;
	const char *about = v->exact ? "" : "about ";

	if (!guessed && (v->rows < BACKLOG_ROWS || v->sample_dead <= 0.5))
		return NULL;
	ereport(NOTICE,
			(guessed ? errmsg("policy \"%s\" %s held: the meaning of some arguments is not certain", p->name, a->dry_run ? "would be" : "is") :
			 errmsg("policy \"%s\" %s held: more than half of its rows are dead already", p->name, a->dry_run ? "would be" : "is"),
			 errdetail("Of %s" INT64_FORMAT " rows, %s" INT64_FORMAT " would be expired now.%s%s%s%s%s", about, v->rows, about, v->dead,
					   a->assumed ? " Assumed: " : "", doubtful_args(p, true), a->assumed ? "." : "",
					   a->doubt ? " " : "", a->doubt ? a->doubt : ""),
			 errhint("%s", held_hint(p))));
	return guessed ? "assumed" : "backlog";
}

/* Look at the table, refuse what is implausible and say what is held, why (*held), and what makes a sweep cheap. */
SswPreview *
ssw_register_look(SswPolicy *p, Relation rel, const char **held)
{
	SswPreview *v = ssw_preview_run(p, rel);

	ssw_preview_check_plausible(p, v);
	notice_index(p, v);

	/*
	 * a policy that is paused already needs no hold; one that is altered may
	 * run
	 */
	if (p->args->alter ? strcmp(p->args->start, "now") != 0 : strcmp(p->args->start, "auto") == 0)
		*held = hold(p, v);
	return v;
}

/* What the policy is bound to. */
void
ssw_register_identity(SswPolicy *p, Relation rel)
{
	p->relid = RelationGetRelid(rel);
	p->relation = ssw_guard_relation(p->relid);
	p->owner = rel->rd_rel->relowner;
	p->owner_name = GetUserNameFromId(p->owner, false);
	p->system_identifier = GetSystemIdentifier();
	p->database = MyDatabaseId;
}
