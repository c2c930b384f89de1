# Many databases on few processes, and in nobody's way.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
my $n = 30;
$node->safe_psql('postgres', "CREATE DATABASE proto");
$node->safe_psql('proto', 'CREATE EXTENSION session_sweeper');
load_table($node, 'login', 50, 50, 'proto');
$node->safe_psql('proto', "SELECT sweeper.register('login', deadline => 'd', start => 'paused')");
for my $i (1 .. $n) {
    $node->safe_psql('postgres', "CREATE DATABASE db$i");
    $node->safe_psql("db$i", 'CREATE EXTENSION session_sweeper');
    load_table($node, 'login', 50, 50, "db$i");
    $node->safe_psql("db$i", "SELECT sweeper.register('login', deadline => 'd', start => 'now', fuse_fraction => 1)");
}
wait_for($node, "SELECT NOT EXISTS (SELECT FROM login WHERE id <= 50)", "db$_ is swept", "db$_") for 1 .. $n;
is(exactly_once($node, 'login', 50, 50, "db$_"), '0|0|0|0', "exactly once in db$_") for 1 .. $n;
# An idle database takes no turn, and leaves its place at once: a row in each is deleted within seconds, also where it was
# written when its deadline had passed. With turns of 2 s each, the last would be deleted after more than half a minute.
wait_for($node, 'SELECT bool_and(next_due > now()) FROM sweeper._database() WHERE state = \'present\'', 'all are idle', 'db1');
$node->safe_psql("db$_", "INSERT INTO login SELECT -1, clock_timestamp() + CASE WHEN $_ % 2 = 0 THEN interval '3 s' ELSE interval '0' END") for 1 .. $n;
wait_for($node, 'SELECT EXISTS (SELECT FROM sweeper.cleanup_event WHERE key = \'-1\')', "the row in db$_", "db$_") for 1 .. $n;
my @lags = sort { $a <=> $b } map { $node->safe_psql("db$_", "SELECT extract(epoch FROM cleaned_at - deadline) FROM sweeper.cleanup_event WHERE key = '-1'") } 1 .. $n;
cmp_ok($lags[-1], '<', 12, "lag in $n databases: median $lags[$n / 2] s");
cmp_ok(scalar(pids($node, 'coordinator')), '<=', 2, 'no more than max_coordinators');
cmp_ok(scalar(pids($node, 'worker')), '<=', 2, 'no more than max_workers');

# who calls all the time does not lose the turn of the database by it
my $caller = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('db5'), '-c', q{DO $$ DECLARE pass bigint; BEGIN
    LOOP CALL sweeper.sweep('login', wait => false, pass => pass); COMMIT; PERFORM pg_sleep(0.01); END LOOP; END $$} ], '2>', \my $ended);
wait_for($node, "SELECT looks > 1 FROM sweeper.stat_policy WHERE policy = 'login'", 'its calls are heard', 'db5');
$node->safe_psql('db5', "INSERT INTO login SELECT i, now() FROM generate_series(1000, 1010) AS i");
wait_for($node, "SELECT NOT EXISTS (SELECT FROM login WHERE d < now())", 'a database is swept in which somebody calls all the time', 'db5');
$node->safe_psql('db5', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DO %LOOP%'");
$caller->finish;

# commands that need a database for themselves, while it is being swept
$node->safe_psql('db1', "INSERT INTO login SELECT i, now() FROM generate_series(1000, 60000) AS i;
    SELECT sweeper.alter_policy('login', batch_size => 100, backlog_rate => 0)");
$node->safe_psql('postgres', 'CREATE DATABASE copy1 TEMPLATE db1');
pass('CREATE DATABASE … TEMPLATE of a swept database');
wait_for($node, "SELECT held_reason = 'restored' FROM sweeper.policy WHERE policy = 'login'", 'the copy is held', 'copy1');
is($node->safe_psql('copy1', "SELECT sweeper.resume('login')"), '{restored}', 'until somebody resumes it');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM login WHERE d < now())", 'then it is swept', 'copy1');
$node->safe_psql('db2', "INSERT INTO login SELECT i, now() FROM generate_series(1000, 60000) AS i");
$node->safe_psql('postgres', 'ALTER DATABASE db2 RENAME TO renamed');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM login WHERE d < now())", 'a renamed database is swept', 'renamed');
# one that takes no connections is left, and served again when it does
$node->safe_psql('db3', "SELECT sweeper.alter_policy('login', batch_size => 1, backlog_rate => 0); INSERT INTO login SELECT i, now() FROM generate_series(1000, 9000) AS i");
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = 'db3' AND backend_type = 'session_sweeper worker')", 'it is swept');
$node->safe_psql('postgres', 'ALTER DATABASE db3 ALLOW_CONNECTIONS false');
# a process has left its slot a moment before it is gone for others
wait_for($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'db3' AND backend_type LIKE 'session_sweeper %'", 'a closed database is left');
$node->safe_psql('postgres', 'ALTER DATABASE db3 ALLOW_CONNECTIONS true');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM login WHERE d < now())", 'and swept when it is open', 'db3');
# none that comes to nothing leaves the database closed to us, however it ends
my ($ret, $out, $err) = $node->psql('postgres', 'CREATE DATABASE renamed TEMPLATE db4');
like($err, qr/database "renamed" already exists/, 'an error in the command');
$node->safe_psql('postgres', 'BEGIN; SAVEPOINT s; ALTER DATABASE db4 RENAME TO other; ROLLBACK TO s; COMMIT');
$node->safe_psql('postgres', 'BEGIN; ALTER DATABASE db4 RENAME TO other; ROLLBACK');
$node->safe_psql('db4', 'INSERT INTO login SELECT -2, now()');
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM login WHERE id = -2)', 'is swept after these', 'db4');
my $guest = $node->background_psql('db4');
my $drop = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), '-c', 'DROP DATABASE db4' ], '2>', \my $ended_drop);
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query = 'DROP DATABASE db4') AND NOT EXISTS
    (SELECT FROM pg_stat_activity WHERE datname = 'db4' AND backend_type LIKE 'session_sweeper%')", 'we have left');
$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'DROP DATABASE db4'");
$drop->finish;
$guest->query_safe('INSERT INTO login SELECT -3, now()');
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM login WHERE id = -3)', 'and after the end of the session', 'db4');
$guest->quit;
$node->safe_psql('db3', "INSERT INTO login SELECT i, now() FROM generate_series(1000, 60000) AS i");
$node->safe_psql('postgres', 'DROP DATABASE db3');
pass('DROP DATABASE without force');

# who may not drop it does not stop us
$node->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
$node->safe_psql('postgres', "CREATE EXTENSION session_sweeper");
my ($before) = pids($node, 'launcher');
($ret, $out, $err) = $node->psql('postgres', 'SET ROLE nobody; DROP DATABASE db4');
like($err, qr/must be owner of database db4/, 'a refused DROP DATABASE');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM login WHERE d < now())", 'goes on', 'db4');
is((pids($node, 'launcher'))[0], $before, 'the launcher is the same');

# A database that allows no connections any more while it is swept: our processes
# there come to nothing, less and less often, until it is forgotten.
$node->stop;
$node = sweeper_node('deaf', 'session_sweeper.max_hard_time_limit = 10min');
for my $kind ('coordinator', 'worker') {
    $node->safe_psql('postgres', "CREATE DATABASE deaf");
    $node->safe_psql('deaf', 'CREATE EXTENSION session_sweeper');
    load_table($node, 'login', 0, 10, 'deaf');
    $node->safe_psql('deaf', "INSERT INTO login SELECT i, now() + i * interval '20 ms' FROM generate_series(100, 4000) AS i;
        SELECT sweeper.register('login', deadline => 'd', start => 'now', check_every => '100 ms', fuse_min => 100000)");
    wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.cleanup_event)", 'deaf is swept', 'deaf');
    my $log = -s $node->logfile;
    my $pids = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'deaf' AND backend_type = 'session_sweeper $kind'";
    # by hand: the command would have them all leave
    $node->safe_psql('postgres', "UPDATE pg_database SET datallowconn = false WHERE datname = 'deaf'; $pids");
    my $refused = qr/^(\S+ \S+) .*FATAL:  database "deaf" is not currently accepting connections$/m;
    $node->wait_for_log(qr/(?:$refused.*?){4}/s, $log);
    my @at = slurp_file($node->logfile, $log) =~ /$refused/g;
    my $apart = $node->safe_psql('postgres', "SELECT extract(epoch FROM '$at[3]'::timestamp - '$at[0]'::timestamp)");
    cmp_ok($apart, '>=', 5.5, "a $kind that cannot start is tried again later each time");
    $node->safe_psql('postgres', 'DROP DATABASE deaf');
}

# whoever lacks the rights stops nobody: a worker that hangs is the same after each command
$node->safe_psql('postgres', 'CREATE ROLE bob LOGIN; CREATE ROLE carol LOGIN CREATEDB; CREATE DATABASE bobdb OWNER bob');
$node->safe_psql('postgres', "SET allow_in_place_tablespaces = on; CREATE TABLESPACE space LOCATION ''");
my $holder = $node->background_psql('bobdb');
$holder->query_safe('SELECT pg_advisory_lock(1)');
$node->safe_psql('bobdb', q{CREATE EXTENSION session_sweeper;
    CREATE TABLE hangs (id int PRIMARY KEY, d timestamptz); INSERT INTO hangs VALUES (1, now());
    CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN PERFORM pg_advisory_lock(1); RETURN OLD; END $$;
    CREATE TRIGGER hang BEFORE DELETE ON hangs FOR EACH ROW EXECUTE FUNCTION hang();
    SELECT sweeper.register('hangs', deadline => 'd', start => 'now', soft_time_limit => '599 s', hard_time_limit => '600 s')});
my $hanging = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
# not for 2 s, as at first
wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.failed_row WHERE class = 'slow')", 'the row is slow', 'bobdb');
wait_for($node, "SELECT EXISTS ($hanging)", 'a worker hangs');
my $pid = $node->safe_psql('postgres', $hanging);
sub refused {
    my ($command, $user, $error, $db) = @_;
    my ($ret, $out, $err) = $node->psql($db // 'postgres', $command, extra_params => [ '-U', $user ]);
    like($err, $error, "$user: $command");
    is($node->safe_psql('postgres', $hanging), $pid, '… stops nobody');
}
my $super = $node->safe_psql('postgres', 'SELECT current_user');
refused('CREATE DATABASE x TEMPLATE bobdb', 'bob', qr/permission denied to create database/);
refused('CREATE DATABASE x TEMPLATE bobdb', 'carol', qr/permission denied to copy database/);
refused('DROP DATABASE bobdb', 'carol', qr/must be owner/);
for my $command ('DROP DATABASE bobdb', 'ALTER DATABASE bobdb RENAME TO x', 'ALTER DATABASE bobdb SET TABLESPACE space') {
    refused($command, $super, qr/current(ly open)? database/, 'bobdb');
}
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;
$node->safe_psql('postgres', 'ALTER DATABASE bobdb IS_TEMPLATE true');
$node->safe_psql('postgres', 'ALTER DATABASE bobdb SET TABLESPACE space');
$node->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE bobdb', extra_params => [ '-U', 'carol' ]);
is($node->safe_psql('copied', "SELECT count(*) FROM sweeper.policy WHERE policy = 'hangs'"), 1, 'who may is served');

# a list of databases, with names that must be quoted
my $odd = 'We,ird "N';
$node->safe_psql('postgres', 'CREATE DATABASE "We,ird ""N"; CREATE EXTENSION session_sweeper; CREATE DATABASE unlisted');
$node->safe_psql($_, 'CREATE EXTENSION session_sweeper') for $odd, 'unlisted';
$node->append_conf('postgresql.conf', q{session_sweeper.databases = 'Postgres, "We,ird ""N"'});
$node->reload;
wait_for($node, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'database not swept'", 'a database that is not listed says so', 'unlisted');
load_table($node, 'login', 10, 10, 'unlisted');
$node->safe_psql('unlisted', "SELECT sweeper.register('login', deadline => 'd', start => 'now')");
($ret, $out, $err) = $node->psql('unlisted', "CALL sweeper.sweep('login')");
like($err, qr/cannot sweep: "session_sweeper.databases" does not list "unlisted"/, 'sweep refuses there at once');
(undef, undef, $out) = $node->psql('unlisted', "CALL sweeper.flush('login')");
like($out, qr/cannot flush: "session_sweeper.databases" does not list "unlisted"/, 'so does flush');
my ($hint) = $err =~ /HINT:  (.*)/;
is($hint, $node->safe_psql('unlisted', "SELECT next_step FROM sweeper.problem WHERE problem = 'database not swept'"), 'with the next step of the view');
load_table($node, 'login', 10, 10, $odd);
$node->safe_psql($odd, "SELECT sweeper.register('login', deadline => 'd', start => 'now')");
wait_for($node, 'SELECT count(*) = 10 FROM login', 'one that is listed is swept', $odd);
is($node->safe_psql($_, "SELECT count(*) FROM sweeper.problem WHERE problem = 'database not swept'"), 0, "and does not say so: $_") for $odd, 'postgres';

# of a database that is not swept nobody takes events and counts: these leave room for those of others
$node->restart;
my $many = q{SELECT count(sweeper.submit('r', 'c', 'j', to_jsonb(i))) FROM generate_series(1, %1$s) AS i;
    SELECT sweeper.create_pool('pool' || i, seats => 1) FROM generate_series(1, %1$s) AS i;
    SELECT count(session) FROM generate_series(1, %1$s) AS i, sweeper.acquire('pool' || i, 'ann')};
$node->safe_psql('unlisted', sprintf($many, 5000));
my $listener = $node->background_psql($odd);
$listener->query_safe('LISTEN "sweeper.task"');
$node->safe_psql($odd, sprintf($many, 1));
my $heard = '';
wait_until(sub { $heard .= $listener->query('SELECT'); return $heard =~ /"sweeper.task"/ }, 'a listener hears of a task');
unlike($heard, qr/lost/, 'no event was lost');
wait_for($node, q{SELECT acquired = 1 FROM sweeper.pool_day WHERE pool = 'pool1'}, 'a seat is counted', $odd);
$listener->quit;
$node->stop;
done_testing();
