# Short of slots: told once, and sweeps go on with what is free.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'max_worker_processes = 2', 'max_parallel_workers = 0', 'max_logical_replication_workers = 0');
# the launcher and the coordinator take the two places
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');
load_table($node, 'login', 20, 20);
$node->safe_psql('postgres', "SELECT sweeper.register('login', deadline => 'd', start => 'now')");
wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.problem WHERE problem = 'worker slots short')", 'the problem is shown');
my $told = () = slurp_file($node->logfile) =~ /could not start a background process/g;
is($told, 1, 'the log says it once');
like($$_[0], qr/[Ww]ithout a slot for the launcher, a coordinator and a worker nothing expires/, "what sweeping needs, in $$_[1]")
  for [ slurp_file($node->logfile), 'the log' ], [ $node->safe_psql('postgres', "SELECT detail FROM sweeper.problem WHERE problem = 'worker slots short'"), 'the problem' ];
# also when a slot is free now and then: a coordinator comes and goes
for (1 .. 5) {
    my ($pid) = pids($node, 'coordinator');
    $node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
    wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator' AND pid <> $pid)", 'another comes');
}
$told = () = slurp_file($node->logfile) =~ /could not start a background process/g;
is($told, 1, 'as long as it lasts');
my $problem = $node->safe_psql('postgres', "SELECT rtrim(pg_get_viewdef('sweeper.problem'), ';')");
my $enough = $problem =~ s/current_setting\('max_worker_processes'::text\)/'16'/gr;
my $later = $enough =~ s/\bnow\(\)/(now() + interval '5 min')/gr;
is($node->safe_psql('postgres', "SELECT severity FROM ($$_[0]) AS p WHERE problem = 'worker slots short'"), $$_[1], "how bad it is: $$_[2]")
  for [ $problem, 'critical', 'no worker ever has a place' ], [ $enough, 'warning', 'others use the places' ], [ $later, 'critical', 'for minutes' ];
is($node->safe_psql('postgres', 'SELECT count(*) FROM login'), 40, 'nothing was swept');
$node->append_conf('postgresql.conf', 'max_worker_processes = 16');
$node->restart;
wait_for($node, 'SELECT count(*) = 20 FROM login', 'with more places it is swept');
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM sweeper.problem)', 'and healthy');

# the launcher runs for years: processes that it has started leave nothing in its memory
sub launcher_memory {
    my ($from, $used) = (-s $node->logfile);
    my ($pid) = pids($node, 'launcher');
    $node->safe_psql('postgres', "SELECT pg_log_backend_memory_contexts($pid)");
    wait_until(sub { ($used) = slurp_file($node->logfile, $from) =~ /TopMemoryContext: .*; (\d+) used/ }, 'the launcher writes it down');
    return $used;
}
$node->safe_psql('postgres', $_) for 'ALTER SYSTEM SET session_sweeper.worker_idle_timeout = 0', 'SELECT pg_reload_conf()';
my $another = "INSERT INTO login SELECT max(id) + 1, now() FROM login; CALL sweeper.sweep('login');";
$node->safe_psql('postgres', $another x 5);
my $used = launcher_memory();
$node->safe_psql('postgres', $another x 40);
cmp_ok(launcher_memory() - $used, '<', 1000, 'no memory is lost with each start');
$node->safe_psql('postgres', $_) for 'ALTER SYSTEM RESET session_sweeper.worker_idle_timeout', 'SELECT pg_reload_conf()';

# places for one or two workers, and two databases that always have work for more: in turn
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION session_sweeper');
for my $db (qw(postgres second)) {
    load_table($node, 'slow', 50000, 0, $db);
    $node->safe_psql($db, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN OLD; END';
        CREATE TRIGGER slow BEFORE DELETE ON slow FOR EACH ROW EXECUTE FUNCTION slow();
        SELECT sweeper.register('slow', deadline => 'd', start => 'now', backlog_rate => 0, batch_size => 20)");
}
sub each_gets_the_place {
    for my $db (qw(postgres second)) {
        my $left = $node->safe_psql($db, 'SELECT count(*) FROM slow');
        wait_for($node, "SELECT count(*) < $left FROM slow", "$db gets the place", $db);
    }
    return;
}
# the databases of so many workers, in the order in which these came
sub next_workers {
    my ($n) = @_;
    my (@of, %seen);
    wait_until(
        sub {
            my $workers = $node->safe_psql('postgres', "SELECT datname, pid FROM pg_stat_activity
                WHERE backend_type = 'session_sweeper worker' AND datname IS NOT NULL ORDER BY backend_start");
            for (split /\n/, $workers) {
                my ($db, $pid) = split /\|/;
                push @of, $db unless $seen{$pid}++;
            }
            return @of >= $n;
        },
        "$n workers have come");
    return "@of";
}
# nor do coordinators keep the workers from all the slots there are
for my $slots (4, 3) {
    $node->append_conf('postgresql.conf', "max_worker_processes = $slots");
    $node->restart;
    each_gets_the_place() for 1 .. 2;
    unlike(next_workers(12), qr/\b(\w+) \1 \1\b/, "in turn with $slots slots");
}

# limits that are lowered hold for those that run; nobody stands still
sub limits { $node->safe_psql('postgres', "ALTER SYSTEM SET session_sweeper.$_") for @_; return $node->reload }
sub running { my ($kind) = @_; return "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'session_sweeper $kind'" }
limits('max_workers = 4');
$node->append_conf('postgresql.conf', 'max_worker_processes = 16');
$node->restart;
wait_for($node, 'SELECT (' . running('worker') . ') = 4', 'four workers');
is($node->safe_psql('postgres', running('coordinator')), 2, 'two coordinators');
limits('max_workers = 1', 'max_coordinators = 1');
wait_for($node, 'SELECT (' . running('worker') . ') <= 1 AND (' . running('coordinator') . ') <= 1', 'one of each');
each_gets_the_place();
$node->stop;

# Short of slots, too, one role does not keep them all for long while another waits.
$node = sweeper_node('roles', 'max_worker_processes = 4', 'max_parallel_workers = 0', 'max_logical_replication_workers = 0',
    q{session_sweeper.max_hard_time_limit = '5min'});
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', q{CREATE EXTENSION session_sweeper; CREATE ROLE other;
    CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN PERFORM pg_advisory_lock(1); RETURN OLD; END $$});
for my $table ('hangs_1', 'hangs_2') {
    $node->safe_psql('postgres', "CREATE TABLE $table (id int PRIMARY KEY, d timestamptz); INSERT INTO $table VALUES (1, now());
        CREATE TRIGGER hang BEFORE DELETE ON $table FOR EACH ROW EXECUTE FUNCTION hang();
        SELECT sweeper.register('$table', deadline => 'd', start => 'now', soft_time_limit => '299 s', hard_time_limit => '300 s')");
}
# not for 2 s, as at first
wait_for($node, "SELECT count(*) = 2 FROM sweeper.failed_row WHERE class = 'slow'", 'both rows are slow');
wait_for($node, "SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'two workers hang');
load_table($node, 'others', 10, 10);
$node->safe_psql('postgres', "ALTER TABLE others OWNER TO other; SELECT sweeper.register('others', deadline => 'd', start => 'now')");
wait_for($node, 'SELECT count(*) = 10 FROM others', 'rows of the other role go');
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM hangs_1) + (SELECT count(*) FROM hangs_2)'), 2, 'while those of the first hang');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;
$node->stop;

# each dead row in a group of its own: they are counted on disk, not in memory
$node = sweeper_node('groups', q{work_mem = '64kB'}, 'log_temp_files = 0');
$node->safe_psql('postgres', q{CREATE EXTENSION session_sweeper; CREATE TABLE own (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON own (d);
    INSERT INTO own SELECT i, now() + interval '1 h' FROM generate_series(1, 50000) AS i;
    SELECT sweeper.register('own', deadline => 'd', group_by => 'id', fuse_min => 1, check_every => '0');
    UPDATE own SET d = now() WHERE id <= 20000});
my $log = -s $node->logfile;
my ($ret, $out, $err) = $node->psql('postgres', q{CALL sweeper.sweep('own')});
like($err, qr/would expire 20000 rows and leave 30000 alive/, 'more groups than are held one by one');
like(slurp_file($node->logfile, $log), qr/temporary file: path/, 'and were sorted on disk');
$node->stop;

# A commit that notifies, and waits for a standby that is lost, keeps the lock of NOTIFY: rows go on time, and what would have to wait is left out.
$node = sweeper_node('lock', 'synchronous_standby_names = nosuch', "synchronous_commit = local");
$node->safe_psql('postgres', q{CREATE EXTENSION session_sweeper; CREATE TABLE told (id int PRIMARY KEY, d timestamptz);
    SELECT sweeper.register('told', deadline => 'd', notify_channel => 'ends', fuse_fraction => 1, check_every => '100 ms'); CREATE INDEX ON told (d)});
my $coordinator = q{SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator'};
my $before = $node->safe_psql('postgres', $coordinator);
$holder = $node->background_psql('postgres');
$holder->query_until(qr/begun/, "SET synchronous_commit = on;\n\\echo begun\nBEGIN; CREATE TABLE waits (); NOTIFY other; COMMIT;\n");
$node->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'});
my $sql = q{INSERT INTO told SELECT i, now() + i * interval '50 ms' FROM generate_series(1, 40) AS i; };
$node->safe_psql('postgres', $sql . q{DO $$ BEGIN FOR i IN 1 .. 20 LOOP PERFORM sweeper.submit('r', 'c', 'n'); COMMIT; PERFORM pg_sleep(0.1); END LOOP; END $$});
wait_for($node, 'SELECT count(*) = 0 FROM told', 'rows are swept while another session holds the lock of NOTIFY');
is($node->safe_psql('postgres', $coordinator), $before, 'the coordinator is the same');
is($node->safe_psql('postgres', q{SELECT value > 0 FROM sweeper.metrics WHERE family = 'session_sweeper_notifications_skipped_total'}), 't', 'what is left out is counted');
my $listener = $node->background_psql('postgres');
$listener->query_safe('LISTEN "sweeper.task"');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}), 1, 'it still does');
$node->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf()});
wait_until(sub { $listener->query_safe('SELECT') =~ /sweeper\.task/ }, 'events of tasks are sent after it');
$_->quit for $holder, $listener;
$node->stop;

# A session that listens and does not read fills the notification queue: what we would notify is left out and counted.
# Before 17 the queue holds gigabytes.
SKIP: {
    skip 'the notification queue cannot be made small before PostgreSQL 17', 4 if $node->pg_version < 17;
    $node = sweeper_node('queue', 'max_notify_queue_pages = 64');
    $node->safe_psql('postgres', q{CREATE EXTENSION session_sweeper; CREATE TABLE told (id int PRIMARY KEY, d timestamptz);
        SELECT sweeper.register('told', deadline => 'd', notify_channel => 'ends', check_every => '0', fuse_fraction => 1)});
    my $listener = $node->background_psql('postgres');
    $listener->query_safe('LISTEN ends');
    $listener->query_safe('BEGIN; SELECT 1');
    for (1 .. 60) {
        $node->safe_psql('postgres', q{INSERT INTO told VALUES (1, now()); CALL sweeper.sweep('told'); SELECT pg_notify('other', repeat('x', 7900))});
    }
    is($node->safe_psql('postgres', 'SELECT count(*) FROM told'), 0, 'rows are swept while the notification queue is full');
    cmp_ok($node->safe_psql('postgres', 'SELECT pg_notification_queue_usage()'), '>', 0.5, 'it is');
    cmp_ok($node->safe_psql('postgres', q{SELECT value FROM sweeper.metrics WHERE family = 'session_sweeper_notifications_skipped_total'}), '>', 10, 'what is left out is counted');
    my $told = () = slurp_file($node->logfile) =~ /sends no notifications/g;
    is($told, 1, 'and logged once');
    $listener->quit;
    $node->stop;
}
done_testing();
