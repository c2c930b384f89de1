# Sessions attached through pgbouncer in session mode: the server's connection is the client's while that is there, and with
# server_lifetime = 0 no longer.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my ($program) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'there is no pgbouncer: install the package' unless $program;

my $node = sweeper_node('main');
sub sql { return $node->safe_psql('postgres', @_) }
my $user = sql(q{CREATE EXTENSION session_sweeper; SELECT FROM sweeper.create_pool('p', ttl => '1 h'); SELECT session_user});

my @poolers;
# A node that is reached through a pooler with these settings, and the pooler.
sub pooler {
    my ($name, @conf) = @_;
    my $dir = PostgreSQL::Test::Utils::tempdir_short();
    my $port = PostgreSQL::Test::Cluster::get_free_port();
    append_to_file("$dir/ini", join("\n", '[databases]', 'postgres = host=' . $node->host . ' port=' . $node->port . " user=$user",
        '[pgbouncer]', "listen_port = $port", "unix_socket_dir = $dir", "logfile = $dir/log", "pidfile = $dir/pid", 'auth_type = any',
        'server_reset_query = DISCARD ALL', (grep { /pool_mode/ } @conf) ? () : 'pool_mode = session', @conf) . "\n");
    my $run = IPC::Run::start([ $program, '-q', "$dir/ini" ], '<', \undef, '>', "$dir/out", '2>', "$dir/err");
    push @poolers, $run;
    my $through = bless { %$node, _host => $dir, _port => $port }, ref $node;
    wait_until(sub { $run->pumpable or die slurp_file("$dir/err"); return eval { ($through->psql('postgres', 'SELECT'))[0] == 0 } }, "pgbouncer $name answers");
    return ($through, $run);
}

END { local $?; $_->kill_kill for grep { $_->pumpable } @poolers }

sub attached {
    my ($through, $who) = @_;
    my $client = $through->background_psql('postgres');
    my $id = $client->query_safe("SELECT session FROM sweeper.acquire('p', '$who')");
    is($client->query_safe("SELECT sweeper.attach('$id')"), 't', "$who is attached");
    return ($id, $client, $client->query_safe('SELECT pg_backend_pid()'));
}

sub disconnected {
    my ($id, $what) = @_;
    wait_for($node, "SELECT status <> 'active' FROM sweeper.session WHERE session = '$id'", $what);
    is(sql("SELECT string_agg(cleanup_type, ',') FROM sweeper.cleanup_event WHERE key = '$id'"), 'disconnected', $what);
}

my ($through, $run) = pooler('once', 'server_lifetime = 0');
my ($id, $client, $pid) = attached($through, 'ann');
my ($other, $others_client, $others_pid) = attached($through, 'bob');
isnt($pid, $others_pid, 'a client has a connection of its own');
is($client->query_safe('BEGIN; SELECT pg_backend_pid(); COMMIT'), $pid, 'and keeps it');
kill 'KILL', $client->{run}->{KIDS}[0]{PID};
disconnected($id, 'a client that dies takes its session along');
is($others_client->query_safe("SELECT sweeper.heartbeat('$other')"), 't', 'and no other');
$others_client->quit;
disconnected($other, 'so does one that leaves');
eval { $client->quit };
$run->signal('TERM');
$run->finish;

# what is pooled is not gone
($through, $run) = pooler('pooled');
($id, $client, $pid) = attached($through, 'carl');
$client->quit;
my ($others_id, $next, $next_pid) = attached($through, 'dora');
is($next_pid, $pid, 'the next client has the connection');
is($next->query_safe("SELECT status FROM sweeper.session WHERE session = '$id'"), 'active', 'which the session goes with');
$next->quit;
sql("SELECT pg_terminate_backend($pid)");
disconnected($_, 'when it goes, all that were attached to it do') for $id, $others_id;
$run->signal('TERM');
$run->finish;

# In transaction mode the connection that attached is anybody's.  A heartbeat by another one detaches the session; and attach
# can be forbidden.
($through, $run) = pooler('shared', 'pool_mode = transaction');
my @shared = map { attached($through, $_) } 'ella';
$id = $shared[0];
my $holder = $through->background_psql('postgres');
is($holder->query_safe('BEGIN; SELECT pg_backend_pid()'), $shared[2], 'another client has the connection');
is($shared[1]->query_safe("SELECT sweeper.heartbeat('$id')"), 't', 'so the heartbeat comes by another one');
$holder->quit;
sql("SELECT pg_terminate_backend($shared[2])");
wait_for($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $shared[2]", 'the pool loses the one that attached');
sql(q{CALL sweeper.sweep('sweeper.session')});
is($shared[1]->query_safe("SELECT sweeper.heartbeat('$id')"), 't', 'the session lives');
sql("ALTER ROLE $user SET session_sweeper.allow_attach = off");
my ($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT sweeper.attach('$id')");
like($err, qr/55000: "session_sweeper.allow_attach" is off.*HINT/s, 'a role may not attach');
sql("ALTER ROLE $user RESET session_sweeper.allow_attach");
$shared[1]->quit;
$run->signal('TERM');
$run->finish;
$node->stop;
done_testing();
