# Every function of the schema where the library was not loaded at the start of the server: it works, or names the line to add.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
sub sql { return $node->safe_psql('postgres', @_) }
sql(q{CREATE EXTENSION session_sweeper;
    CREATE TABLE beat (id int PRIMARY KEY, tenant text DEFAULT 'a', d timestamptz);
    CREATE TABLE seen (id int PRIMARY KEY, at timestamptz);
    CREATE TABLE spare (id int PRIMARY KEY, d timestamptz);
    INSERT INTO beat SELECT i, 'a', now() + i * interval '1 h' FROM generate_series(-2, 5) AS i;
    INSERT INTO seen SELECT i, now() + i * interval '1 h' FROM generate_series(-2, 5) AS i;
    SELECT FROM sweeper.register('beat', deadline => 'd', ttl => '1 h', group_by => 'tenant', heartbeats => true, check_every => '0', start => 'paused');
    SELECT FROM sweeper.register('seen', last_seen => 'at', ttl => '1 h', check_every => '0', start => 'paused');
    SELECT sweeper.touch('beat', 1);
    SELECT sweeper.create_pool('p', 1), sweeper.create_pool('empty'), sweeper.create_pool('dead');
    SELECT FROM sweeper.acquire('p', 'ann')});
my $session = sql(q{SELECT session FROM sweeper.session WHERE pool = 'p'});
my $worker = sql(q{SELECT sweeper.register_worker('w')});
sql("SELECT sweeper.register_job('$worker', 'room', 'category', 'name')");
my $task = sql(q{SELECT sweeper.submit('room', 'category', 'name')});
my $running = sql(q{SELECT sweeper.submit('room', 'category', 'name')});
sql("SELECT FROM sweeper.claim('$worker', 1, true)");
sql("SELECT sweeper.append('spare', '{\"id\": 1}')");
sql(q{SELECT FROM sweeper.acquire('dead', 'bob'); SELECT sweeper.pause_all();
    UPDATE sweeper.session SET last_seen_at = now() - interval '2 h', acquired_at = now() - interval '3 h', expires_at = now() - interval '1 h' WHERE pool = 'dead'});
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;

# What arguments are, by their names, or else their types.
my %named = (policy => "'beat'", key => "'1'", keys => "'{1,2}'", group_value => "'a'", session => "'$session'", sessions => "'{$session}'", worker => "'$worker'",
    task => "'$task'", pool => "'p'", owner => "'ann'", room => "'room'", category => "'category'", name => "'name'", relation => "'spare'", target => "'spare'",
    status => "'completed'", command => "'SELECT 1'", level => "'user'", role => 'session_user', row_data => q('{"id": 2}'), rows => q(ARRAY['{"id": 3}'::jsonb]),
    deadline => "'d'", preset => 'NULL', schedule => "'0 3 * * *'", payloads => q(ARRAY['{}'::jsonb]), provider => '1', job => '1');
my %typed = (text => "'x'", 'text[]' => "'{}'", integer => '1', bigint => '1', boolean => 'false', interval => "'1 h'", uuid => "'$task'", 'uuid[]' => "'{$task}'",
    jsonb => "'{}'", regclass => "'spare'", 'timestamp with time zone' => 'now()', oid => "'beat'::regclass::oid", real => '0.5', 'double precision' => '0.5',
    smallint => '1', regrole => 'session_user', xid8 => "'3'", anyelement => '1', regprocedure => 'NULL', timestamptz => 'now()', xid => "'3'", name => "'beat'");
my @functions = map { [ split /\|/ ] } split /\n/, sql(q{SELECT p.oid, p.proname, p.prokind, coalesce((SELECT string_agg(coalesce(p.proargnames[i], '') || ':' || format_type(t, NULL)
        || ':' || CASE WHEN i > p.pronargs - p.pronargdefaults THEN 'd' ELSE '' END, ',' ORDER BY i)
        FROM unnest(p.proargtypes) WITH ORDINALITY AS u (t, i)), '')
    FROM pg_proc AS p WHERE pronamespace = 'sweeper'::regnamespace AND prorettype <> ALL ('{trigger,event_trigger}'::regtype[]) ORDER BY proname IN ('unregister', 'drop_pool'), proname, p.oid});
cmp_ok(scalar @functions, '>', 80, 'there are functions');

# All arguments, or those without defaults alone.
sub calls {
    my ($function) = @_;
    my (undef, $name, $kind, $list) = @$function;
    my @args = map { [ split /:/, $_, 3 ] } split /,/, $list // '';
    my @calls = map {
        my $all = $_;
        join ', ', map { ($_->[0] ? "$_->[0] => " : '') . (($_->[1] eq 'oid' ? undef : $named{ $_->[0] }) // $typed{ $_->[1] } // "NULL::$_->[1]") . ($typed{ $_->[1] } || $named{ $_->[0] } ? "::$_->[1]" : '') }
            grep { $all || !$_->[2] } @args
    } 0, 1;
    pop @calls if $calls[0] eq $calls[1];
    return map { $kind eq 'p' ? "CALL sweeper.$name($_)" : "SELECT * FROM sweeper.$name($_)" } @calls;
}

my (@wrong, @asked);
for my $call ((map { calls($_) } @functions),
    "SELECT * FROM sweeper.expire('seen', '{1}')", "SELECT * FROM sweeper.expire('sweeper.session', '{$session}')", "SELECT sweeper.expire_group('sweeper.session', 'p')",
    "SELECT sweeper.is_live('seen', '1')", "SELECT sweeper.acquire('dead', 'eve')", "SELECT sweeper.finish_task('$running', 'completed')",
    "SELECT sweeper.alter_policy('beat', heartbeats => false)", "SELECT sweeper.alter_policy('beat', ttl => '2 h')", "SELECT * FROM sweeper.adopt('spare')",
    "UPDATE sweeper.task SET status = 'failed'", "DELETE FROM sweeper.session", "SELECT sweeper.drop_pool('p', true)", "SELECT sweeper.drop_pool('dead', true)",
    "SELECT sweeper.drop_pool('empty', true)", "SELECT sweeper.unregister('beat')", map { "TABLE sweeper.$_" }
    split /\n/, sql(q{SELECT relname FROM pg_class WHERE relnamespace = 'sweeper'::regnamespace AND relkind IN ('r', 'v') ORDER BY 1})) {
    for my $statement ($call =~ /^CALL/ ? $call : ("BEGIN; $call; ROLLBACK", $call)) {
        my ($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET statement_timeout = '20 s';\n$statement;");
        push @asked, $statement if $err =~ /HINT:  Append session_sweeper to shared_preload_libraries .*libraries that are there/;
        push @wrong, "$statement: $err" if $err =~ /XX000|57014|server closed|connection to server|the database system/ || $ret == 2;
        diag("$statement: $err") if $ENV{SHOW};
    }
}
is(join("\n", @wrong), '', 'each answers, or raises an error');
unlike(slurp_file($node->logfile), qr/was terminated by signal/, 'nobody crashes');
for my $function (qw(touch touch_many heartbeat heartbeat_many attach is_live acquire release claim sweep expire drop_pool)) {
    ok((grep { /sweeper\.$function\(/ } @asked), "$function names the line to add");
}

like(($node->psql('template1', 'CREATE EXTENSION session_sweeper'))[2], qr/WARNING:  session_sweeper does not run.*\nHINT:  Append .*libraries that are there/, 'so does CREATE EXTENSION, which keeps other libraries');

# What waits, where there is nobody to wait for
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'session_sweeper'");
$node->stop;
my ($out, $err) = ('', '');
my @single = ("CALL sweeper.sweep('seen')", "CALL sweeper.claim_wait('$worker', '1 min')", "CALL sweeper.wait_for_task('$task')", "SELECT sweeper.touch('seen', 1)");
IPC::Run::run([ 'postgres', '--single', '-D', $node->data_dir, 'postgres' ], '<', \join('', map { "$_\n" } @single), '>', \$out, '2>', \$err, IPC::Run::timeout(60));
is(scalar(() = $err =~ /ERROR:  session_sweeper does not run in single-user mode/g), scalar @single, 'an error in single-user mode');
done_testing();
