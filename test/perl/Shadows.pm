# A caller whose search_path puts a twin of each operator and function of pg_catalog before pg_catalog.  The twins raise an
# error, so a statement of ours that means one of pg_catalog without saying so fails.
package Shadows;
use strict;
use warnings;
use Exporter 'import';
our @EXPORT = qw(make_shadows shadowed);

my $make = q{
SET client_min_messages = error;
CREATE SCHEMA shadow;
CREATE FUNCTION pg_temp.name(oid) RETURNS text LANGUAGE sql AS $$ SELECT format('pg_catalog.%I', typname) FROM pg_type WHERE oid = $1 $$;
DO $do$
DECLARE
    twin record;
BEGIN
    FOR twin IN
        SELECT format('CREATE FUNCTION shadow.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS %L', proname, (SELECT string_agg(pg_temp.name(t), ', ' ORDER BY n) FROM unnest(proargtypes) WITH ORDINALITY AS a (t, n)),
            CASE WHEN proretset THEN 'SETOF' END, pg_temp.name(prorettype), format('BEGIN RAISE EXCEPTION USING MESSAGE = %L; END', 'shadow of ' || oid::regprocedure)) AS create
        FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND provariadic = 0
        UNION ALL
        SELECT format('CREATE FUNCTION shadow.o%s(%s) RETURNS %s LANGUAGE plpgsql AS %L', oid, concat_ws(', ', pg_temp.name(oprleft), pg_temp.name(oprright)), pg_temp.name(oprresult),
            format('BEGIN RAISE EXCEPTION USING MESSAGE = %L; END', 'shadow of ' || oid::regoperator)) || format('; CREATE OPERATOR shadow.%s (FUNCTION = shadow.o%s, RIGHTARG = %s', oprname, oid, pg_temp.name(oprright))
            || coalesce(', LEFTARG = ' || pg_temp.name(oprleft), '') || ')'
        FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace
    LOOP
        -- some have types that no function of a language may have
        BEGIN EXECUTE twin.create; EXCEPTION WHEN OTHERS THEN NULL; END;
    END LOOP;
END $do$;
SELECT count(*) > 2500 FROM pg_proc WHERE pronamespace = 'shadow'::regnamespace};

# Each function with the arguments that it requires, and with all, for policies of these names; and each table and view.
my $calls = q{
SELECT format('%s sweeper.%I(%s)', CASE prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT * FROM' END, proname, array_to_string(ARRAY(
    SELECT format('%I => %L::%s', proargnames[i], CASE format_type(proargtypes[i - 1], NULL)
        WHEN 'uuid' THEN (SELECT session::text FROM sweeper.session LIMIT 1) WHEN 'uuid[]' THEN '{}' WHEN 'text[]' THEN '{1}' WHEN 'jsonb' THEN '{}' WHEN 'jsonb[]' THEN '{}'
        WHEN 'interval' THEN '1 s' WHEN 'boolean' THEN 'false' WHEN 'regrole' THEN current_user WHEN 'timestamp with time zone' THEN '2100-01-01' WHEN 'text' THEN p
        WHEN 'regclass' THEN 'public.' || p ELSE '1' END, (SELECT format('pg_catalog.%I', typname) FROM pg_type WHERE oid = proargtypes[i - 1]))
    FROM generate_series(1, pronargs) AS i WHERE i <= pronargs - pronargdefaults OR a), ', '))
FROM pg_proc, unnest('{NAMES}'::text[]) AS p, unnest('{t,f}'::bool[]) AS a
WHERE pronamespace = 'sweeper'::regnamespace AND prorettype <> 'trigger'::regtype
UNION ALL
SELECT format('SELECT * FROM sweeper.%I', relname) FROM pg_class WHERE relnamespace = 'sweeper'::regnamespace AND relkind IN ('r', 'v')};
my @useful = map { "SELECT * FROM sweeper.$_" } q{preview('NAME')}, q{explain_row('NAME', '7')}, q{explain_row('NAME', '-7')}, q{explain_sweep('NAME')}, q{suggest('public.NAME')}, q{touch('NAME', '7')},
    q{touch_many('NAME', '{7,8}')}, q{is_live('NAME', '7')}, q{expire('NAME', '{5,6}', 'why')}, q{expire_group('NAME', 'g')}, q{alter_policy('NAME', batch_size => 7)}, q{pause('NAME')},
    q{resume('NAME')}, q{unregister('NAME')}, q{submit_sql('SELECT 1')}, q{register('public.NAME', 'other', deadline => 'd')};

sub make_shadows {
    my ($node, $set) = @_;
    return $node->safe_psql('postgres', ($set // '') . $make);
}

# The errors of twins that were called.  What is called is undone, where it can be.
sub shadowed {
    my ($node, @names) = @_;
    my $names = join ',', @names;
    my @calls = split /\n/, $node->safe_psql('postgres', $calls =~ s/NAMES/$names/r);
    for my $name (@names) { push @calls, map { s/NAME/$name/r } @useful }
    my @lines = ('SET search_path = shadow, pg_catalog', map { /^CALL/ ? $_ : "BEGIN; $_; ROLLBACK" } @calls);
    my ($rc, $out, $err) = $node->psql('postgres', join(";\n", @lines) . ";\n\\echo the end", on_error_stop => 0);
    die "not all were called: $err" unless $out =~ /the end$/;
    return scalar(@calls), join '', map { "$_\n" } $err =~ /^.*shadow of .*$/mg;
}
1;
