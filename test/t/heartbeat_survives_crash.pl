# Crashes, promotions, stopped processes and a full memory lose heartbeats or hold
# passes up: nobody dies of that, and the dead go within a bound all the same.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', "session_sweeper.heartbeat_memory = '1kB'");
my $register = sub {
    my ($table, $ttl) = @_;
    $node->safe_psql('postgres', "SET client_min_messages = warning;
        CREATE TABLE $table (id int PRIMARY KEY, d timestamptz NOT NULL);
        SELECT sweeper.register('$table', deadline => 'd', ttl => '$ttl', heartbeats => true, check_every => '100 ms', fuse_fraction => 1)");
};
# A session whose row is overdue while memory knows that it lives: the heartbeat's transaction wrote the row, and is rolled back.
my $only_in_memory = sub {
    my ($table, $id, $due) = @_;
    $due //= "- interval '1 min'";
    is($node->safe_psql('postgres', "SELECT sweeper.pause('$table');
        INSERT INTO $table VALUES ($id, now() $due); BEGIN; SELECT sweeper.touch('$table', $id); ROLLBACK"), "\nt", 'a heartbeat is answered');
};
my $looks = sub {
    my ($n, $table) = @_;
    my $before = $n->safe_psql('postgres', "SELECT coalesce(max(looks), 0) FROM sweeper.stat_policy WHERE policy = '$table'");
    wait_for($n, "SELECT looks > $before + 5 FROM sweeper.stat_policy WHERE policy = '$table'", "$table is looked at");
};
my $rows = sub { $_[0]->safe_psql('postgres', "SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') FROM $_[1]") };
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');
$register->('lease', '1 h');

# The clean-up of a crash gives one time to live, whatever ended before it.  Each session has a key of its own:
# to memory, an older row of the same key that says less is one that somebody has ended.
my $id = 1000;
my $lives = sub {
    my ($n, $what) = @_;
    $n->safe_psql('postgres', "SELECT sweeper.resume('lease')");
    $looks->($n, 'lease');
    is($rows->($n, 'lease'), $id, $what);
    is($n->safe_psql('postgres', "SELECT sweeper.is_live('lease', '$id'), sweeper.touch('lease', $id)"), 't|t', 'and says so');
    $n->safe_psql('postgres', 'DELETE FROM lease');
};
$only_in_memory->('lease', ++$id);
$node->stop('immediate');
$node->start;
$lives->($node, 'a session that memory knew survives an immediate stop');
$only_in_memory->('lease', ++$id);
crash($node, 'launcher');
$lives->($node, 'a crash');
$only_in_memory->('lease', ++$id);
$node->safe_psql('postgres', "SELECT sweeper.resume('lease'), sweeper.pause('lease')");
wait_for($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator'");
kill_process($node, 'coordinator', 'TERM');
kill_process($node, 'launcher', 'TERM');
wait_for($node, "SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type ~ '^session_sweeper (coordinator|launcher)'", 'others have begun');
$node->stop('immediate');
$node->start;
$lives->($node, 'a crash after the processes were ended');

# Promotion: the standby never had the heartbeats, and takes none.
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
$only_in_memory->('lease', ++$id);
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my ($code, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT sweeper.touch('lease', 1)");
like($err, qr/25006/, 'a standby takes no heartbeats');
($code, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT sweeper.is_live('lease', '1')");
like($err, qr/25006: .*HINT:  Heartbeats are in the memory of the primary/s, 'and does not say who lives');
($code, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY sqlstate\nSELECT sweeper.is_live(gen_random_uuid())");
like($err, qr/25006/, 'nor of sessions');
$standby->promote;
$lives->($standby, 'promotion');
$standby->stop;
$node->safe_psql('postgres', "DELETE FROM lease; SELECT sweeper.resume('lease')");

# A standby that was made of a primary at rest: its files say that it was stopped, and it was another server that lived since.
$node->stop('immediate'); # what it knew of the session is gone
$node->start;
$node->stop;
$node->backup_fs_cold('cold');
$node->start;
my $cold = PostgreSQL::Test::Cluster->new('cold');
$cold->init_from_backup($node, 'cold', has_streaming => 1);
$cold->start;
$only_in_memory->('lease', ++$id);
$node->wait_for_catchup($cold, 'replay', $node->lsn('insert'));
$cold->promote;
$lives->($cold, 'promotion of a cold copy');
$cold->stop;
$node->safe_psql('postgres', "DELETE FROM lease; SELECT sweeper.resume('lease')");

# More sessions than fit into memory write their rows.
is($node->safe_psql('postgres', "SET client_min_messages = warning; INSERT INTO lease SELECT i, now() + interval '30 min' FROM generate_series(1, 400) AS i;
    SELECT count(*) FROM generate_series(1, 400) AS i WHERE sweeper.touch('lease', i)"), 400, 'every heartbeat is answered when memory is full');
my $written = $node->safe_psql('postgres', "SELECT count(*) FROM lease WHERE d > now() + interval '50 min'");
cmp_ok($written, '>', 200, 'by rows');
cmp_ok($written, '<', 400, 'and by memory');
is($node->safe_psql('postgres', 'SELECT heartbeats_refused FROM sweeper._cluster()'), $written, 'each is counted once');
is($node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 400) AS i WHERE sweeper.touch('lease', i) AND sweeper.is_live('lease', i::text)"), 400, 'and again');
# to a column of whole seconds, too: not before the heartbeat and its time to live
is($node->safe_psql('postgres', "SET client_min_messages = warning; CREATE TABLE coarse (id int PRIMARY KEY, d timestamptz(0) NOT NULL, ttl interval, beat timestamptz);
    SELECT FROM sweeper.register('coarse', deadline => 'd', ttl_column => 'ttl', heartbeats => true, check_every => '0');
    INSERT INTO coarse SELECT i, now() + interval '30 min', i * interval '97 ms' + interval '1 h', clock_timestamp() FROM generate_series(1, 10) AS i;
    SELECT count(*) FROM generate_series(1, 10) AS i WHERE sweeper.touch('coarse', i); SELECT count(*) FROM coarse WHERE d < beat + ttl"), "10\n0", 'in whole seconds');
$node->safe_psql('postgres', "SELECT sweeper.unregister('coarse')");
# but not where the row's new deadline may be rolled back
($code, $out, $err) = $node->psql('postgres', "INSERT INTO lease VALUES (401, now() + interval '30 min');
    \\set VERBOSITY verbose\nBEGIN; SELECT sweeper.touch('lease', 401)");
like($err, qr/53400: cannot record heartbeat: memory for heartbeats is full/, 'inside a transaction block nothing is promised');
($code, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nDO \$\$ BEGIN PERFORM sweeper.touch('lease', 401); ROLLBACK; END \$\$");
like($err, qr/53400: cannot record heartbeat/, 'nor where a procedure may roll it back');
is($node->safe_psql('postgres', "SELECT sweeper.touch('lease', 401)"), 't', 'outside it is');
$node->safe_psql('postgres', "INSERT INTO lease VALUES (402, now() + interval '30 min')");
my $pipeline = $node->basedir . '/pipeline.sql';
append_to_file($pipeline, "\\startpipeline\nSELECT sweeper.touch('lease', 402);\nSELECT 1 / 0;\n\\endpipeline\n");
$node->command_fails([ 'pgbench', '-n', '-M', 'extended', '-t', '1', '-f', $pipeline, '-h', $node->host, '-p', $node->port, 'postgres' ],
    'a pipeline whose second statement fails');
is($node->safe_psql('postgres', "SELECT d > now() + interval '50 min' FROM lease WHERE id = 402"), 't', 'does not undo the heartbeat of the first');
$node->safe_psql('postgres', 'DELETE FROM lease WHERE id = 402');
$looks->($node, 'lease');
is($node->safe_psql('postgres', 'SELECT count(*) FROM lease'), 401, 'nobody dies');

# Who unregisters gives memory back.
$node->safe_psql('postgres', "SELECT sweeper.unregister('lease'); UPDATE lease SET d = now() + interval '30 min';
    SELECT sweeper.register('lease', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '100 ms', fuse_fraction => 1)");
is($node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 50) AS i WHERE sweeper.touch('lease', i)"), 50, 'heartbeats of another policy');
is($node->safe_psql('postgres', "SELECT count(*) FROM lease WHERE d > now() + interval '50 min'"), 0, 'are kept in memory again');

# Another extension in the same database: its policies have the same numbers, and not the same sessions.
$node->safe_psql('postgres', "SET client_min_messages = warning; DROP EXTENSION session_sweeper; CREATE EXTENSION session_sweeper; DELETE FROM lease;
    SELECT sweeper.register('lease', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '100 ms', fuse_fraction => 1)");
is($node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, 400) AS i WHERE sweeper.touch('lease', i)"), 0, 'what was known is forgotten with the extension');
$node->safe_psql('postgres', "INSERT INTO lease VALUES (1, now() + interval '30 min'); SELECT sweeper.touch('lease', 1);
    SELECT sweeper.unregister('lease'); SET client_min_messages = warning;
    SELECT sweeper.register('lease', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '100 ms', fuse_fraction => 1); DELETE FROM lease");
is($node->safe_psql('postgres', "SELECT sweeper.touch('lease', 1)"), 'f', 'and with the policy');

# A coordinator that is held for longer than the time to live: nobody is refreshed, nobody dies; then the dead go.
$register->('short', '4 s');
$node->safe_psql('postgres', "INSERT INTO short VALUES (1, now() + interval '4 s'), (2, now() + interval '4 s');
    SELECT sweeper.touch('short', 1), sweeper.touch('short', 2)");
my ($coordinator) = pids($node, 'coordinator');
freeze($node, $coordinator);
wait_for($node, "SELECT sweeper.touch('short', 1) AND now() > d + interval '2 s' FROM short WHERE id = 2", 'time passes');
is($rows->($node, 'short'), '1,2', 'nobody is swept');
is($node->safe_psql('postgres', "SELECT sweeper.is_live('short', '1'), sweeper.is_live('short', '2')"), 't|f', 'it is known who lives');
kill 'CONT', $coordinator;
wait_for($node, "SELECT sweeper.touch('short', 1) AND NOT EXISTS (SELECT FROM short WHERE id = 2)", 'the dead go');
is($rows->($node, 'short'), '1', 'the living stay');

# One crash after the other, each sooner than a time to live: who is dead goes after one of them has passed with service.
$node->safe_psql('postgres', "SELECT sweeper.pause('short'); INSERT INTO short VALUES (3, now() - interval '1 min')");
my $crashes = 0;
my $answered = 1;
my $give_up = time + $PostgreSQL::Test::Utils::timeout_default;
$node->stop('immediate');
$node->start;
my $since = $node->safe_psql('postgres', "SELECT sweeper.resume('short'); SELECT clock_timestamp()");
$since =~ s/.*\n//s;
while ($rows->($node, 'short') =~ /3/ && time < $give_up) {
    $answered &&= $node->safe_psql('postgres', "SELECT sweeper.touch('short', 1)") eq 't';
    $looks->($node, 'short');
    next if $rows->($node, 'short') !~ /3/;
    $crashes++;
    crash($node, 'launcher');
}
is($rows->($node, 'short'), '1', 'the dead one is gone, the living is there');
ok($answered, 'and was never told otherwise');
cmp_ok($crashes, '>=', 1, "after $crashes crashes");
is($node->safe_psql('postgres', "SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'short' AND key = '3' AND cleaned_at >= '$since'::timestamptz + interval '3 s'"),
    1, 'after its grace');
is($node->safe_psql('postgres', "SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'short' AND key = '1'"), 0, 'nobody else ended');

# A row that no pass has compared with memory was not judged by the service before a crash: it has a grace after it.
$register->('held', '12 s');
# dead rows that are kept, for longer than the grace after a crash
$node->safe_psql('postgres', q{CREATE TABLE kept (id int PRIMARY KEY, d timestamptz, ttl interval DEFAULT '5 s'); CREATE TABLE kept_own (LIKE kept INCLUDING ALL);
    SELECT sweeper.register('kept', deadline => 'd', ttl => '5 s', heartbeats => true, keep_for => '1 h', check_every => '0'),
        sweeper.register('kept_own', deadline => 'd', ttl_column => 'ttl', heartbeats => true, keep_for => '1 h', check_every => '0')});
crash($node, 'launcher');
$node->safe_psql('postgres', "INSERT INTO $_ VALUES (1, now() - interval '1 s'), (2, now() - interval '1 s')") for qw(kept kept_own);
is($node->safe_psql('postgres', "SELECT sweeper.is_live('kept', '1'), sweeper.touch('kept', 1), sweeper.is_live('kept_own', '1'), sweeper.touch('kept_own', 1)"), 't|t|t|t', 'after a crash their sessions may live');
wait_for($node, "SELECT cardinality(horizons) > 0 FROM sweeper.policy WHERE policy = 'held'", 'the crash is noted');
wait_for($node, "SELECT clock_timestamp() > service_start + interval '7 s' FROM sweeper._cluster()", 'time passes');
is($node->safe_psql('postgres', "SELECT sweeper.is_live('kept', '2'), sweeper.touch('kept', 2), sweeper.is_live('kept_own', '2'), sweeper.touch('kept_own', 2)"), 'f|f|f|f', 'after one time to live they do not');
$only_in_memory->('held', 1, "+ interval '500 ms'");
my $seen = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
wait_for($node, "SELECT horizons[cardinality(horizons)] > '$seen'::timestamptz + interval '600 ms' FROM sweeper.policy WHERE policy = 'held' AND pg_reload_conf()", 'the start is noted again');
crash($node, 'launcher');
$node->safe_psql('postgres', "SELECT sweeper.resume('held')");
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM held)', 'it goes');
is($node->safe_psql('postgres', "SELECT cleaned_at >= '$seen'::timestamptz + interval '11 s' FROM sweeper.cleanup_event WHERE policy = 'held'"),
    't', 'not before one time to live after its heartbeat');
$node->stop;

# without a launcher nobody would keep at a stop what is only in memory
$node = sweeper_node('alone', 'max_worker_processes = 0', 'max_parallel_workers = 0', 'max_logical_replication_workers = 0');
$node->safe_psql('postgres', q{CREATE EXTENSION session_sweeper; CREATE TABLE login (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON login (d);
    SELECT sweeper.register('login', deadline => 'd', ttl => '1 h', heartbeats => true); INSERT INTO login VALUES (1, now() + interval '40 min')});
is($node->safe_psql('postgres', q{SELECT sweeper.touch('login', 1); SELECT d > now() + interval '59 min' FROM login}), "t\nt", 'so a heartbeat writes its row');
$node->stop;
done_testing();
