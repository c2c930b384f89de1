# The next release is installed under a running server, under load.  Of two databases one is updated before the server
# restarts with the new library, one after it: what lives lives on, what is dead goes once, what was begun is finished.
# The next release is made here, of this source; it goes into a copy of the server.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;
use Installation;

my $installed = copy_of_server();
like(output("$installed/bin/pg_config --pkglibdir"), qr/^\Q$installed\E/, 'the copy has its own libraries');
next_release(q{
ALTER TABLE sweeper.policy ADD COLUMN next_note text NOT NULL DEFAULT 'none';
UPDATE sweeper.policy SET next_note = 'updated' WHERE heartbeats;
ALTER TABLE sweeper.task ADD COLUMN next_weight int CHECK (next_weight > 0);
CREATE INDEX task_next_idx ON sweeper.task (next_weight) WHERE next_weight IS NOT NULL;
CREATE FUNCTION sweeper.next_release() RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS 'SELECT library FROM sweeper._library()';
COMMENT ON FUNCTION sweeper.next_release IS 'Is there in the next release.';
CREATE VIEW sweeper.next_policy AS SELECT policy, next_note FROM sweeper.policy;
});
install_next($installed, '-j2', 'all');

my $node = PostgreSQL::Test::Cluster->new('main', install_path => $installed);
$node->init;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'session_sweeper'\nmax_worker_processes = 32\nautovacuum = off\njit = off\n"
    . "session_sweeper.min_interval = '20ms'\nsession_sweeper.max_workers = 6\nlog_statement = none");
$node->start;
my @databases = qw(before after);    # updated before the restart, and after it
sub sql { my ($db, @rest) = @_; return $node->safe_psql($db, @rest) }
for my $db (@databases) {
    sql('postgres', "CREATE DATABASE $db");
    sql($db, q{CREATE EXTENSION session_sweeper; CREATE TABLE hit (n int); CREATE TABLE ran (what text)});
    # 2,000 dead rows at a pace that lasts beyond the update
    load_table($node, 'busy', 2000, 50, $db);
    # sessions that only memory knows to live: what their heartbeats write is undone, and nobody looks at their rows
    # until all is done
    sql($db, q{CREATE TABLE held (id int PRIMARY KEY, d timestamptz NOT NULL);
        SELECT sweeper.register('held', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '100 ms', fuse_fraction => 1);
        SELECT sweeper.pause('held', 'memory only');
        INSERT INTO held SELECT i, now() + interval '3 s' FROM generate_series(1, 60) AS i;
        BEGIN; SELECT sweeper.touch('held', i) FROM generate_series(1, 50) AS i; ROLLBACK;
        SELECT sweeper.register('busy', deadline => 'd', start => 'now', backlog_rate => 100, check_every => '100 ms', fuse_fraction => 1)});
}
my %worker = map { $_ => sql($_, q{SELECT sweeper.register_worker('w', ttl => '10 min')}) } @databases;
my %task;
for my $db (@databases) {
    sql($db, "SELECT sweeper.register_job('$worker{$db}', 'r', 'c', 'j'); SELECT sweeper.submit('r', 'c', 'j') FROM generate_series(1, 2)");
    $task{$db} = sql($db, "SELECT task FROM sweeper.claim('$worker{$db}', start => true)");
}
# a command that runs until it is let go
my $gate = $node->background_psql('before');
$gate->query_safe('SELECT pg_advisory_lock(1)');
my $command = sql('before', q{SELECT sweeper.submit_sql($$SELECT pg_advisory_xact_lock(1); INSERT INTO ran VALUES ('gate')$$)});
wait_for($node, "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'the command runs', 'before');
# a client of each, that asks for its session again and again
my %client;
for my $db (@databases) {
    sql($db, q{CREATE TABLE beat (id int PRIMARY KEY, d timestamptz NOT NULL); INSERT INTO beat VALUES (1, now() + interval '1 min');
        SELECT sweeper.register('beat', deadline => 'd', ttl => '1 min', heartbeats => true, check_every => '100 ms')});
    $client{$db} = $node->background_psql($db, on_error_stop => 0);
}
sub beat { my ($db, $when) = @_; return is($client{$db}->query("SELECT sweeper.touch('beat', 1)"), 't', "$db: alive $when") }
sub swept { return sql($_[0], 'SELECT 2050 - count(*) FROM busy') }
sub goes_on {
    my ($db, $when) = @_;
    my $n = swept($db);
    return ok(wait_for($node, "SELECT 2050 - count(*) > $n FROM busy", "$db is swept", $db), "$db: swept on $when");
}
sub rests {
    my ($db, $when) = @_;
    is(sql($db, q{SELECT problem || ': ' || next_step FROM sweeper.problem WHERE problem = 'restart needed'}),
        'restart needed: ALTER EXTENSION session_sweeper UPDATE; -- and restart the server', "$db: problem says so $when");
    is(sql($db, 'SELECT restart_needed FROM sweeper.version()'), 't', "$db: so does version()");
    is(sql($db, 'SELECT DISTINCT state FROM sweeper.policy_status'), 'restart needed', "$db: and each policy");
    my ($ret, $out, $err) = $node->psql($db, "CALL sweeper.sweep('beat', timeout => '1 s')");
    like($err, qr/cannot sweep: the library is version .*HINT: +SELECT next_step/s, "$db: nor is it swept on request $when");
    ($ret, $out, $err) = $node->psql($db, "CALL sweeper.flush('beat')");
    like($err, qr/cannot flush: the library is version/, "$db: nor does flush() wait $when");
    return is(sql($db, "BEGIN; SELECT state FROM sweeper.register('beat', policy => 'other', deadline => 'd'); ROLLBACK"), 'restart needed', "$db: register() says so $when");
}
for my $db (@databases) { goes_on($db, 'at first'); beat($db, 'at first') }

# the package is upgraded: the server has the old library, files are the new one's
install_next($installed, 'install');
is(sql('before', "SELECT count(*) FROM pg_available_extension_versions WHERE name = 'session_sweeper' AND version IN ('$VERSION_NOW', '9.9')"), 2,
    'scripts of both versions are installed');
goes_on($_, 'with new files') for @databases;
sql('before', 'ALTER EXTENSION session_sweeper UPDATE');
cmp_ok(swept('before'), '<', 2000, 'updated during a pass');
ok($node->wait_for_log(qr/session_sweeper is inactive in this database: its SQL is version 9\.9, the library version \Q$VERSION_NOW\E/), 'the log says that it rests');
my $then = swept('before');
goes_on('after', 'while the other rests');
rests('before', 'before the restart');
is(swept('before'), $then, 'before: nothing was swept meanwhile');
beat($_, 'before the restart') for @databases;
sql('before', q{SELECT sweeper.append('hit', jsonb_build_object('n', i)) FROM generate_series(1, 7) AS i});
$gate->quit;
wait_for($node, "SELECT finished_at IS NOT NULL FROM sweeper.task WHERE task = '$command'", 'the command ends', 'before');
is(sql('before', "SELECT status FROM sweeper.task WHERE task = '$command'"), 'completed', 'the command that ran has completed');
is(sql('before', 'SELECT count(*) FROM ran'), 1, 'with its effect');

$client{$_}->quit for @databases;
$node->restart;
$client{$_} = $node->background_psql($_, on_error_stop => 0) for @databases;
is(sql('after', 'SELECT library FROM sweeper.version()'), '9.9', 'the new library');
ok($node->wait_for_log(qr/session_sweeper is inactive in this database: its SQL is version \Q$VERSION_NOW\E, the library version 9\.9/), 'rests where the SQL is old');
beat($_, 'after the restart') for @databases;
$then = swept('after');
goes_on('before', 'after the restart');
rests('after', 'after the restart');
is(swept('after'), $then, 'after: nothing was swept meanwhile');
my $waiting = sql('after', q{SELECT sweeper.submit_sql($$INSERT INTO ran VALUES ('later')$$)});
sql('after', 'ALTER EXTENSION session_sweeper UPDATE');
goes_on('after', 'when it is updated');
wait_for($node, "SELECT status = 'completed' FROM sweeper.task WHERE task = '$waiting'", 'the command that waited is run', 'after');

for my $db (@databases) {
    sql($db, "SELECT sweeper.alter_policy('busy', backlog_rate => 0)");
    wait_for($node, 'SELECT count(*) = 50 FROM busy', 'all dead rows are gone', $db);
    is(exactly_once($node, 'busy', 2000, 50, $db), '0|0|0|0', "$db: every dead row is gone once, every live one is there");
    wait_for($node, 'SELECT max(d) < now() FROM held', 'rows of sessions are over', $db);
    is(sql($db, q{SELECT count(*) FROM held}), 60, "$db: nobody looked at them");
    sql($db, q{SELECT sweeper.resume('held')});
    wait_for($node, 'SELECT count(*) <= 50 FROM held', 'the dead of them go', $db);
    is(sql($db, q{SELECT count(*), max(id), bool_and(sweeper.is_live('held', id::text)) FROM held}), '50|50|t', "$db: heartbeats in memory counted");
    is(sql($db, q{SELECT count(*), count(DISTINCT key) FROM sweeper.cleanup_event WHERE policy = 'held'}), '10|10', "$db: who sent none is gone once");
    beat($db, 'at last');
    is(sql($db, "SELECT status, worker = '$worker{$db}' FROM sweeper.task WHERE task = '$task{$db}'"), 'running|t', "$db: the task is the worker's");
    is(sql($db, "SELECT sweeper.finish_task('$task{$db}', 'completed', attempt => 1)"), 't', "$db: which finishes it");
    is(sql($db, "SELECT count(*) FROM sweeper.claim('$worker{$db}')"), 1, "$db: and takes the next");
    is(sql($db, 'SELECT sweeper.next_release()'), '9.9', "$db: what is new is there");
    is(sql($db, 'SELECT string_agg(policy || next_note, $$,$$ ORDER BY policy) FROM sweeper.next_policy WHERE policy IN ($$busy$$, $$held$$)'), 'busynone,heldupdated', "$db: and what is old is changed");
    is(sql($db, q{SELECT string_agg(problem, ',') FROM sweeper.problem WHERE severity <> 'info'}), '', "$db: no problem");
    $client{$db}->quit;
}
wait_for($node, 'SELECT count(*) = 7 FROM hit', 'what was appended is written', 'before');

# an update ends where a new installation begins, from every version
my $catalog = q{
    WITH member AS (SELECT classid, objid FROM pg_depend WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
                    AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'session_sweeper'))
    SELECT pg_describe_object(classid, objid, 0) AS object, concat_ws(' | ', obj_description(objid, classid::regclass::name),
        (SELECT concat_ws(' ', pg_get_functiondef(oid), proacl::text) FROM pg_proc WHERE classid = 'pg_proc'::regclass AND oid = objid AND prokind <> 'a'),
        (SELECT concat_ws(' ', relkind, relacl::text, reloptions, CASE WHEN relkind = 'v' THEN pg_get_viewdef(oid) END) FROM pg_class WHERE classid = 'pg_class'::regclass AND oid = objid),
        (SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod), attnotnull, attidentity, attacl::text,
                (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = attrelid AND adnum = attnum)), ', ' ORDER BY attnum)
            FROM pg_attribute WHERE classid = 'pg_class'::regclass AND attrelid = objid AND attnum > 0 AND NOT attisdropped),
        (SELECT string_agg(conname || ' ' || pg_get_constraintdef(oid), ', ' ORDER BY conname) FROM pg_constraint WHERE classid = 'pg_class'::regclass AND conrelid = objid),
        (SELECT string_agg(pg_get_indexdef(indexrelid), ', ' ORDER BY indexrelid::regclass::text) FROM pg_index WHERE classid = 'pg_class'::regclass AND indrelid = objid),
        (SELECT string_agg(pg_get_triggerdef(oid), ', ' ORDER BY tgname) FROM pg_trigger WHERE classid = 'pg_class'::regclass AND tgrelid = objid AND NOT tgisinternal),
        (SELECT string_agg(pg_get_ruledef(oid), ', ' ORDER BY rulename) FROM pg_rewrite WHERE classid = 'pg_class'::regclass AND ev_class = objid AND rulename <> '_RETURN'))
    FROM member WHERE classid <> 'pg_type'::regclass ORDER BY 1};
sql('postgres', 'CREATE DATABASE fresh');
sql('fresh', 'CREATE EXTENSION session_sweeper');
my $fresh = sql('fresh', $catalog);
cmp_ok(scalar(split /\n/, $fresh), '>', 100, 'a new installation has objects');
is(sql($_, $catalog), $fresh, "$_: as in a new installation") for @databases;
for my $version (split /\n/, sql('postgres', "SELECT version FROM pg_available_extension_versions WHERE name = 'session_sweeper' AND version <> '9.9' ORDER BY 1")) {
    sql('postgres', 'CREATE DATABASE old');
    sql('old', "CREATE EXTENSION session_sweeper VERSION '$version'; ALTER EXTENSION session_sweeper UPDATE");
    is(sql('old', $catalog), $fresh, "so is version $version, updated");
    sql('postgres', 'DROP DATABASE old WITH (FORCE)');
}
$node->stop;
done_testing();
