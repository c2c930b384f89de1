# No heartbeat that was answered is lost when the server is stopped, not even one
# that is answered while it stops.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', "session_sweeper.refresh_ahead = 0.9", "session_sweeper.shutdown_timeout = '1 s'", "log_statement = none");
my $sessions = 40;
# Looked at by nobody while it is paused: what a row says afterwards it has from memory, or from the heartbeat itself.
$node->safe_psql('postgres', "CREATE EXTENSION session_sweeper;
    CREATE TABLE lease (id int PRIMARY KEY, d timestamptz NOT NULL);
    SELECT sweeper.register('lease', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0', fuse_fraction => 1)");

# Clients that send heartbeats until their connection ends and write down which were answered, with a time before them.
my $clients = 4;
my $dir = PostgreSQL::Test::Utils::tempdir();
my $per_client = $sessions / $clients;
my $one = "SELECT min(id), max(id), min(extract(epoch FROM clock_timestamp())), bool_and(sweeper.touch('lease', id)) FROM generate_series(%d, %d) AS id;\n";
my @running;
my $first = 1;    # sessions of their own for each stop
my (@read, %last, $n);    # of the answers: how far, when each session had its last one, how many
my $begin = sub {
    $first += $sessions;
    @read = %last = ();
    $n = 0;
    $node->safe_psql('postgres', "SELECT sweeper.pause('lease'); DELETE FROM lease;
        INSERT INTO lease SELECT i, now() + interval '40 min' FROM generate_series($first, $first + $sessions - 1) AS i");
    for my $c (0 .. $clients - 1) {
        my $statement = sprintf $one, $first + $c * $per_client, $first + ($c + 1) * $per_client - 1;
        unlink "$dir/script$c", "$dir/answers$c";
        append_to_file("$dir/script$c", $statement x 20_000 . "\\i $dir/script$c\n");
        push @running, IPC::Run::start([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'),
                '-o', "$dir/answers$c", '-f', "$dir/script$c" ], '<', \undef, '>', \my $out, '2>', \my $err);
    }
};
# What was read before is not read again.
my $answers = sub {
    for my $c (0 .. $clients - 1) {
        next unless -e "$dir/answers$c";
        my $new = slurp_file("$dir/answers$c", $read[$c] // 0) =~ s/[^\n]*\z//r;
        $read[$c] += length $new;
        for (split /\n/, $new) {
            my ($from, $to, $at, $answer) = /^(\d+)\|(\d+)\|([\d.]+)\|(\w)$/ or next;
            die "one of the sessions $from to $to is gone" if $answer ne 't';
            $last{$_} = $at for $from .. $to;
            $n += $to - $from + 1;
        }
    }
    return $n;
};
# Until so many more than there were, and some of each session.
my $more = sub {
    my ($want) = @_;
    my $before = $answers->();
    wait_until(sub { $answers->() >= $before + $want && %last == $sessions }, 'clients have more answers');
};
# Connections have ended, and so do the clients.
my $ended = sub {
    $_->finish for @running;
    @running = ();
};
my $check = sub {
    my ($what) = @_;
    $ended->();
    $answers->();
    $node->start;
    $node->safe_psql('postgres', "SELECT sweeper.resume('lease'); CALL sweeper.sweep('lease');
        CREATE TEMP TABLE last (id int, at numeric);
        INSERT INTO last VALUES " . join(', ', map { "($_, $last{$_})" } sort keys %last) . ";
        CREATE TABLE lost AS SELECT id FROM last JOIN lease USING (id) WHERE extract(epoch FROM d) < at + 3600");
    is(scalar(keys %last), $sessions, "$what: every session had an answer");
    is($node->safe_psql('postgres', "SELECT coalesce(string_agg(id::text, ','), '') FROM lost"), '', "$what: none of $n is lost");
    is($node->safe_psql('postgres', 'SELECT count(*) FROM lease'), $sessions, "$what: nobody is dead");
    $node->safe_psql('postgres', 'DROP TABLE lost');
};

# A fast stop under load.
for my $round (1 .. 3) {
    $begin->();
    $more->(20 * $sessions);
    $node->stop('fast');
    like(slurp_file($node->logfile), qr/session_sweeper kept \d+ heartbeats/, 'they are in the file');
    $check->("fast stop $round");
}

# Answers after the file is written: the launcher has done its last act, and the postmaster is held so that the server goes on
# a while.
$begin->();
$more->(20 * $sessions);
my $transaction = $node->background_psql('postgres', on_error_stop => 0);
$transaction->query_safe("BEGIN; SELECT sweeper.touch('lease', $first)");
# sessions of the registry: two that hear of nobody, one that ends after the file is written
$node->safe_psql('postgres', "SELECT sweeper.create_pool('p', ttl => '1 h'); SELECT count(*) FROM generate_series(1, 3) AS i, sweeper.acquire('p', i::text)");
my $registry = $node->background_psql('postgres');
my $session = sub { return "(SELECT session FROM sweeper.session WHERE owner = '$_[0]' AND status = 'active')" };
my $written = q{SELECT string_agg((expires_at - acquired_at > interval '1 h')::text, ' ' ORDER BY owner) FROM sweeper.session};
$registry->query_safe('SELECT ' . join(', ', map { 'sweeper.heartbeat(' . $session->($_) . ')' } 1 .. 3));
is($registry->query_safe($written), 'false false false', 'heartbeats write no row');
my $ended_id = $registry->query_safe('SELECT ' . $session->(3));
my ($launcher) = pids($node, 'launcher');
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
my $log = -s $node->logfile;
kill 'STOP', $postmaster;
kill 'TERM', $launcher;
$node->wait_for_log(qr/session_sweeper kept/, $log);
$more->(5 * $sessions);
$transaction->query("SELECT sweeper.touch('lease', $first)");
like($transaction->{stderr}, qr/cannot record heartbeat: the server is stopping/, 'what a transaction would write too late is unknown');
is($registry->query_safe('SELECT sweeper.heartbeat(' . $session->(1) . '), (SELECT count(*) FROM sweeper.heartbeat_many(ARRAY[' . $session->(2) . ']))'), 't|0', 'they are answered');
is($registry->query_safe($written), 'true true false', 'and write their rows while it stops');
$registry->query_safe("SELECT sweeper.release('$ended_id')");
kill 'INT', $postmaster;
kill 'CONT', $postmaster;
eval { $transaction->quit };
eval { $registry->quit };
$node->stop('fast', fail_ok => 1);
$check->('answered while it stops');
is($node->safe_psql('postgres', "SELECT sweeper.heartbeat('$ended_id')"), 'f', 'who ended after the file was written is gone');

# The launcher comes back, and the server goes on: rows are no longer written by each heartbeat.
$begin->();
$more->(2 * $sessions);
($launcher) = pids($node, 'launcher');
$log = -s $node->logfile;
kill 'TERM', $launcher;
$node->wait_for_log(qr/session_sweeper launcher started/, $log);
$more->(5 * $sessions);
my $places = $node->safe_psql('postgres', 'SELECT array_agg(ctid ORDER BY id) FROM lease');
$more->(20 * $sessions);
is($node->safe_psql('postgres', 'SELECT array_agg(ctid ORDER BY id) FROM lease'), $places, 'with another launcher memory is enough again');
$node->stop('fast');
$ended->();
$node->start;

# A file that was left by an earlier stop is not taken for the last one's: immediate stop is a crash.
$begin->();
$more->(20 * $sessions);
($launcher) = pids($node, 'launcher');
$log = -s $node->logfile;
kill 'TERM', $launcher;
$node->wait_for_log(qr/session_sweeper kept/, $log);
$node->stop('immediate');
$ended->();
$node->start;
wait_for($node, "SELECT service_start IS NOT NULL FROM sweeper._cluster()", 'there is service');
like(slurp_file($node->data_dir . '/pg_stat/session_sweeper.starts'), qr/crash 1 jump 0\n\z/, 'a crash: the file does not count');
ok(!-e $node->data_dir . '/pg_stat/session_sweeper.heartbeats', 'and is gone');

# A file that is damaged, be it in how many there are, holds nobody up: it is told once, and gone; the start is one after a crash.
for my $n (0x7fffffff, 1, -1) {
    $begin->();
    $more->(2 * $sessions);
    $node->stop('fast');
    $ended->();
    open my $file, '+<:raw', $node->data_dir . '/pg_stat/session_sweeper.heartbeats' or die "no file: $!";
    seek $file, 16, 0;
    print $file pack 'q', $n;
    close $file;
    $log = -s $node->logfile;
    $node->start;
    wait_for($node, "SELECT service_start IS NOT NULL FROM sweeper._cluster()", "there is service after a file with a count of $n");
    my @told = slurp_file($node->logfile, $log) =~ /file "pg_stat\/session_sweeper.heartbeats" is damaged/g;
    is(scalar @told, 1, 'it is told once');
    like(slurp_file($node->data_dir . '/pg_stat/session_sweeper.starts'), qr/crash 1 jump 0\n\z/, 'and taken for a crash');
    ok(!-e $node->data_dir . '/pg_stat/session_sweeper.heartbeats', 'the file is gone');
}
$node->stop;
done_testing();
