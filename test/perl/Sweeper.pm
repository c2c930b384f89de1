# Nodes that preload session_sweeper, and waits with a deadline.
package Sweeper;
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Exporter 'import';
our @EXPORT = qw(sweeper_node wait_for wait_until together pids kill_process freeze crash load_table exactly_once needs_pg_cron);

# A started node with fast settings; extra lines of configuration may follow.
sub sweeper_node {
    my ($name, @conf) = @_;
    my $node = PostgreSQL::Test::Cluster->new($name);
    $node->init(allows_streaming => 1);
    $node->append_conf('postgresql.conf', join("\n",
        "shared_preload_libraries = 'session_sweeper'",
        'max_worker_processes = 32', 'restart_after_crash = on', 'autovacuum = off',
        "session_sweeper.min_interval = '20ms'", 'session_sweeper.max_workers = 4', @conf) . "\n");
    $node->start;
    return $node;
}

# Until a query gives true, or the node's deadline passes.  While a server comes
# back from a crash, psql may exit before it has read the query.
sub wait_for {
    my ($node, $query, $what, $db) = @_;
    my $done;
    do { $done = eval { $node->poll_query_until($db // 'postgres', $query) ? 1 : 0 } } until defined $done || $@ !~ /Broken pipe/;
    die $@ unless defined $done;
    die 'timed out waiting until ' . ($what // $query) unless $done;
    return 1;
}

# The same for what no query tells.
sub wait_until {
    my ($condition, $what) = @_;
    my $give_up = time + $PostgreSQL::Test::Utils::timeout_default;
    until ($condition->()) {
        die "timed out waiting until $what" if time > $give_up;
        select(undef, undef, undef, 0.05);
    }
    return 1;
}

# So many clients run a script of pgbench at the same moment, each so many times.
sub together {
    my ($node, $clients, $script, $times) = @_;
    my $file = $node->basedir . '/together.sql';
    open(my $fh, '>', $file) or die "$file: $!";
    # who has passed the gate does not wait there again
    print $fh "SELECT pg_advisory_lock_shared(4711);\n$script\n";
    close $fh;
    my $gate = $node->background_psql('postgres');
    $gate->query_safe('SELECT pg_advisory_lock(4711)');
    my $out = '';
    my $pgbench = IPC::Run::start([ 'pgbench', '-n', '-c', $clients, '-j', 2, '-t', $times // 1, '-f', $file, $node->connstr('postgres') ], '<', \undef, '>&', \$out);
    wait_for($node, "SELECT count(*) = $clients FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", "$clients clients wait for each other");
    $gate->query_safe('SELECT pg_advisory_unlock(4711)');
    $gate->quit;
    $pgbench->finish or die "pgbench: $out";
    return 1;
}

sub pids {
    my ($node, $kind) = @_;
    return split /\n/, $node->safe_psql('postgres',
        "SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper $kind' ORDER BY pid");
}

# Send a signal to one process of a kind; false when there is none.
sub kill_process {
    my ($node, $kind, $signal) = @_;
    my ($pid) = eval { pids($node, $kind) };
    return 0 unless $pid;
    return kill $signal, $pid;
}

# SIGSTOP of a process of ours while it sleeps: if it held a lock of shared memory, all others would wait for it.
sub freeze {
    my ($node, $pid) = @_;
    return wait_until(
        sub {
            kill 'STOP', $pid;
            return 1 if $node->safe_psql('postgres', "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $pid") eq 't';
            kill 'CONT', $pid;
            return 0;
        },
        "process $pid sleeps");
}

# kill -9 of one process of a kind, which is a crash of the server, and wait for
# its next life; false when there is none of that kind.
sub crash {
    my ($node, $kind) = @_;
    my $life = $node->safe_psql('postgres', 'SELECT service_start FROM sweeper._cluster()');
    kill_process($node, $kind, 'KILL') or return 0;
    return wait_for($node, "SELECT service_start > '$life' FROM sweeper._cluster()", "the server is back after the end of a $kind");
}

# A table of $dead dead and $live live rows, not registered yet.
sub load_table {
    my ($node, $table, $dead, $live, $db) = @_;
    $node->safe_psql($db // 'postgres', qq{
        CREATE TABLE $table (id int PRIMARY KEY, d timestamptz NOT NULL);
        CREATE INDEX ON $table (d);
        INSERT INTO $table SELECT i, now() + CASE WHEN i <= $dead THEN -1 ELSE 3600 END * (1 + i % 60) * interval '1 s'
        FROM generate_series(1, $dead + $live) AS i;});
}

# Debian's servers have it; one that was built for assertions has not.
sub needs_pg_cron {
    my ($libraries) = run_command([ 'pg_config', '--pkglibdir' ]);
    Test::More::plan(skip_all => 'this PostgreSQL has no pg_cron') unless -e "$libraries/pg_cron.so";
    return;
}

# Every row that is gone has one event, every live row is there.
sub exactly_once {
    my ($node, $table, $dead, $live, $db) = @_;
    return $node->safe_psql($db // 'postgres', qq{
        SELECT (SELECT count(*) FROM $table WHERE id <= $dead),
               (SELECT count(*) FROM $table WHERE id > $dead) - $live,
               (SELECT count(*) - count(DISTINCT key) FROM sweeper.cleanup_event WHERE policy = '$table'),
               (SELECT count(*) FROM sweeper.cleanup_event WHERE policy = '$table') - $dead});
}
1;
