# Rows of a Citus cluster fall due while their shards move and their nodes fail.  See README.md.
package Chaos::Shards;
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Sweeper;
use Test::More;
use Time::HiRes qw(time sleep);
use CitusCluster;
use Chaos::Proxy;

# Half of the rows never fall due; of each table, key and columns of the key.
my %TABLES = (
    lease => { part => 0, key => 'id', columns => 'id bigint PRIMARY KEY, d timestamptz NOT NULL', by => 'id' },
    seat => { part => 1, key => 'tenant, id', columns => 'tenant int, id bigint, d timestamptz NOT NULL, PRIMARY KEY (tenant, id)', by => 'tenant' },
    visit => { part => 2, key => 'id, at', columns => 'id bigint, at timestamptz, d timestamptz NOT NULL, PRIMARY KEY (id, at)', by => 'id' });
my $PARTS = 3;
use constant { LATE => 300 };    # seconds after which all dead rows must be gone

# What happens to nodes, and to shards.
my @FAULTS = qw(kill_node kill_node stop_node freeze_node cut_node cut_node promote);
my @MOVES = qw(move_logical move_logical move_blocking move_blocking split_logical split_blocking rebalance drain);

sub new {
    my ($class, %arg) = @_;    # seed, rows, seconds, shards
    my $self = bless { %arg, count => {}, log => [], nodes => {}, standbys => 0 }, $class;
    srand $arg{seed};
    $self->{root} = PostgreSQL::Test::Utils::tempdir();
    $self->{judge} = PostgreSQL::Test::Cluster->new('judge');
    $self->{judge}->init;
    $self->{judge}->append_conf('postgresql.conf', "fsync = off\nautovacuum = off");
    $self->{judge}->start;
    $self->add_member($_) for 'coordinator', 1 .. 3;
    my $c = $self->{member}{coordinator};
    $self->sql("SELECT citus_set_coordinator_host('127.0.0.1', $c->{proxy}{port})");
    $self->join_cluster($_) for 1, 2;
    return $self;
}

# A node and the proxy through which others see it.
sub add_member {
    my ($self, $name) = @_;
    my $node = citus_node($name eq 'coordinator' ? $name : "worker$name", 'citus.recover_2pc_interval = 2s', 'citus.defer_shard_delete_interval = 5s',
        'citus.node_connection_timeout = 5000', 'wal_receiver_timeout = 10s', 'wal_sender_timeout = 10s', 'tcp_keepalives_idle = 5', 'tcp_keepalives_interval = 5',
        'max_wal_senders = 40', 'max_replication_slots = 40', 'max_logical_replication_workers = 12', 'log_min_messages = warning', 'log_statement = none',
        'deadlock_timeout = 1s', "shared_buffers = '64MB'", "session_sweeper.synchronous_commit = 'on'");
    my $m = $self->{member}{$name} = { name => $name eq 'coordinator' ? $name : "worker $name", key => $name, node => $node };
    $self->give_proxy($m);
    return;
}

sub give_proxy {
    my ($self, $m) = @_;
    $m->{proxy} = Chaos::Proxy->new(file => "$self->{root}/proxy_$m->{key}_" . $m->{node}->port, to => $m->{node}->port);
    push @{ $self->{proxies} }, $m->{proxy};
    return;
}

sub join_cluster {
    my ($self, $name) = @_;
    my $m = $self->{member}{$name};
    $self->sql("SELECT citus_add_node('127.0.0.1', $m->{proxy}{port})");
    $m->{joined} = 1;
    return;
}

sub members { my ($self) = @_; return grep { $_->{joined} || $_->{key} eq 'coordinator' } map { $self->{member}{$_} } sort keys %{ $self->{member} } }
sub workers { my ($self) = @_; return grep { $_->{key} ne 'coordinator' } $self->members }
sub sql { my ($self, $sql) = @_; return $self->{member}{coordinator}{node}->safe_psql('postgres', $sql) }

# For what may fail: (true if it went well, output, errors)
sub try {
    my ($self, $member, $sql) = @_;
    my ($rc, $out, $err) = eval { $self->{member}{$member}{node}->psql('postgres', $sql, timeout => 120) };
    return (defined $rc && $rc == 0, $out, $@ ? $@ : $err);
}

sub note_that { my ($self, $text) = @_; push @{ $self->{log} }, sprintf '%7.1f %s', time - $self->{t0}, $text; diag $self->{log}[-1] if $ENV{CHAOS_LOUD}; return }

# Rows are made by a formula; the judge makes its own.
sub formula {
    my ($self, $t) = @_;
    my ($id, $n) = ('i', "(SELECT generate_series(1, $self->{rows} / $PARTS) AS i) AS r");
    my $first = $t->{key} =~ /tenant/ ? 'i % 97, i' : $t->{key} =~ /at/ ? "i, '2029-12-31'::timestamptz + (i % 3) * interval '1 day'" : 'i';
    my $spread = $self->{seconds} * 0.9;
    return "SELECT $first, CASE WHEN i % 2 = 0 THEN '$self->{base}'::timestamptz + hashint8(i)::bigint % 1000000 * interval '1 us' * $spread ELSE '2100-01-01' END FROM $n";
}

sub load {
    my ($self) = @_;
    my $judge = $self->{judge};
    $self->sql('CREATE EXTENSION session_sweeper');
    # what is due at once is due when the policies are there
    $self->{base} = $judge->safe_psql('postgres', "SELECT now() + $self->{rows} / 20000 * interval '1 s' + interval '10 s'");
    $judge->safe_psql('postgres', "CREATE TABLE event (node text, policy text, key text, deadline timestamptz, type text); CREATE TABLE truth (policy text, key text, d timestamptz);
        CREATE TABLE alive (policy text, key text)");
    for my $name (sort keys %TABLES) {
        my $t = $TABLES{$name};
        my $parted = $name eq 'visit' ? 'PARTITION BY RANGE (at)' : '';
        $self->sql("CREATE TABLE $name ($t->{columns}) $parted; CREATE INDEX ON $name (d)");
        $self->sql("CREATE TABLE visit_1 PARTITION OF visit FOR VALUES FROM ('2020-01-01') TO ('2030-01-01');
            CREATE TABLE visit_2 PARTITION OF visit FOR VALUES FROM ('2030-01-01') TO ('2040-01-01')") if $parted;
        $self->sql("SELECT create_distributed_table('$name', '$t->{by}', shard_count => $self->{shards}, colocate_with => 'none')");
        $self->sql("INSERT INTO $name " . $self->formula($t));
        my $columns = $name eq 'seat' ? 'tenant, id, d' : $name eq 'visit' ? 'id, at, d' : 'id, d';
        my $key = $self->key_text($name);
        $judge->safe_psql('postgres', "SET timezone = 'UTC'; INSERT INTO truth SELECT '$name', $key, d FROM (" . $self->formula($t) . ") AS t ($columns)");
    }
    $self->register;
    $self->{t0} = time;
    return;
}

# As events have it.
sub key_text {
    my ($self, $name) = @_;
    return $name eq 'lease' ? 'id::text' : $name eq 'seat' ? 'ROW(tenant, id)::text' : "ROW(id, at)::text";
}

sub register {
    my ($self) = @_;
    $self->sql("SELECT sweeper.register('$_', deadline => 'd', start => 'now', fuse_fraction => 1, max_workers => 2)") for sort keys %TABLES;
    return;
}

# Shards.  In a process of its own, one after the other; all of it may fail.
sub shard_of {
    my ($self) = @_;
    my ($ok, $out) = $self->try('coordinator', "SELECT s.shardid, s.nodeport, (SELECT string_agg(nodeport::text, ' ') FROM pg_dist_node WHERE shouldhaveshards AND groupid > 0)
        FROM citus_shards AS s WHERE table_name IN ('lease'::regclass, 'seat'::regclass, 'visit'::regclass) ORDER BY random() LIMIT 1");
    return unless $ok && $out;
    my ($shard, $from, $all) = split /\|/, $out;
    my @others = grep { $_ != $from } split / /, $all;
    return ($shard, $from, $others[ rand @others ]);
}

sub move { my ($self, $mode) = @_; my ($shard, $from, $to) = $self->shard_of; return $to && "SELECT citus_move_shard_placement($shard, '127.0.0.1', $from, '127.0.0.1', $to, '$mode')" }
sub move_logical { return $_[0]->move('force_logical') }
sub move_blocking { return $_[0]->move('block_writes') }

sub split_shard {
    my ($self, $mode) = @_;
    my ($ok, $out) = $self->try('coordinator', "SELECT s.shardid, (s.shardminvalue::bigint + s.shardmaxvalue::bigint) / 2,
            (SELECT string_agg(nodeid::text, ' ') FROM pg_dist_node WHERE shouldhaveshards AND groupid > 0)
        FROM pg_dist_shard AS s WHERE logicalrelid IN ('lease'::regclass, 'seat'::regclass, 'visit'::regclass)
            AND s.shardmaxvalue::bigint - s.shardminvalue::bigint > 4294967296 / $self->{shards} / 4 ORDER BY random() LIMIT 1");
    return unless $ok && $out;
    my ($shard, $middle, $all) = split /\|/, $out;
    my @nodes = split / /, $all;
    return "SELECT citus_split_shard_by_split_points($shard, ARRAY['$middle'], ARRAY[$nodes[ rand @nodes ], $nodes[ rand @nodes ]], '$mode')";
}
sub split_logical { return $_[0]->split_shard('force_logical') }
sub split_blocking { return $_[0]->split_shard('block_writes') }

sub rebalance {
    return q{SELECT citus_rebalance_start(shard_transfer_mode => 'force_logical'); SELECT citus_rebalance_wait()};
}

sub drain {
    my ($self) = @_;
    my ($ok, $out) = $self->try('coordinator', 'SELECT nodeport FROM pg_dist_node WHERE groupid > 0 ORDER BY random() LIMIT 1');
    return unless $ok && $out;
    return "SELECT citus_drain_node('127.0.0.1', $out, shard_transfer_mode => 'block_writes'); SELECT citus_set_node_property('127.0.0.1', $out, 'shouldhaveshards', true)";
}

sub move_shards {
    my ($self) = @_;
    open(my $fh, '>', "$self->{root}/moves") or die;
    $fh->autoflush;
    srand $self->{seed} + 1;
    until (-e "$self->{root}/stop") {
        my $what = $MOVES[ rand @MOVES ];
        my $sql = $self->$what or do { sleep 0.5; next };
        my $start = time;
        my ($ok, $out, $err) = $self->try('coordinator', "SET lock_timeout = '20 s'; SET statement_timeout = '100 s'; $sql");
        ($err) = grep { /ERROR|FATAL|connect|timed out/ } split /\n/, $err // '' unless $ok;
        printf $fh "%7.1f %s: %s %.1f s %s\n", $start - $self->{t0}, $what, $ok ? 'done' : 'failed', time - $start, $ok ? '' : $err // '';
        next if $ok;
        sleep 0.5;
        $self->try('coordinator', 'SELECT citus_rebalance_stop()') if $what eq 'rebalance';
        $self->try('coordinator', "SELECT citus_set_node_property('127.0.0.1', nodeport, 'shouldhaveshards', true) FROM pg_dist_node WHERE groupid > 0 AND NOT shouldhaveshards");
        $self->try('coordinator', 'CALL citus_cleanup_orphaned_resources()');
    }
    return;
}

# Nodes.
sub any_member { my ($self) = @_; my @m = $self->members; return $m[ rand @m ] }

sub processes {
    my ($m) = @_;
    my $postmaster = (split /\n/, slurp_file($m->{node}->data_dir . '/postmaster.pid'))[0];
    return ($postmaster, map { /(\d+)/ } `ps -o pid= --ppid $postmaster`);
}

sub kill_node {
    my ($self) = @_;
    my $m = $self->any_member;
    $self->note_that("$m->{name} is killed");
    my @pids = processes($m);
    $m->{node}->kill9;
    # its backends end by themselves
    wait_until(sub { !kill 0, @pids }, "all processes of $m->{name} have ended");
    sleep rand 5;
    $m->{node}->start;
    return;
}

sub stop_node {
    my ($self) = @_;
    my $m = $self->any_member;
    $self->note_that("$m->{name} is stopped fast");
    $m->{node}->stop('fast');
    sleep rand 3;
    $m->{node}->start;
    return;
}

sub freeze_node {
    my ($self) = @_;
    my $m = $self->any_member;
    my $s = 10 + rand 20;
    $self->note_that(sprintf '%s is frozen for %.0f s', $m->{name}, $s);
    my @pids = processes($m);
    kill 'STOP', @pids;
    sleep $s;
    kill 'CONT', @pids;
    return;
}

sub cut_node {
    my ($self) = @_;
    my $m = $self->any_member;
    my $mode = (qw(delay drop reset))[ rand 3 ];
    my $s = 5 + rand 10;
    $self->note_that(sprintf '%s is cut off: %s for %.0f s', $m->{name}, $mode, $s);
    $m->{proxy}->mode($mode);
    sleep $s;
    $m->{proxy}->mode('pass');
    return;
}

# A synchronous standby takes over from a node that hangs, at another address.
sub promote {
    my ($self) = @_;
    my @m = $self->workers;
    my $m = $m[ rand @m ];
    my ($old, $name) = ($m->{node}, "standby" . ++$self->{standbys});
    my $standby = PostgreSQL::Test::Cluster->new($name);
    $old->backup($name);
    $standby->init_from_backup($old, $name, has_streaming => 1);
    $standby->start;
    $old->safe_psql('postgres', $_) for "ALTER SYSTEM SET synchronous_standby_names = '*'", 'SELECT pg_reload_conf()';
    my $lsn = $old->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
    wait_for($old, "SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = '$name' AND sync_state = 'sync' AND flush_lsn >= '$lsn'", 'the standby has all of it');
    $self->note_that("$m->{name} hangs, and its standby $name takes over");
    my @pids = processes($m);
    kill 'STOP', @pids;
    sleep rand 5;
    kill 'KILL', @pids;
    $old->kill9;
    my $port = $m->{proxy}{port};
    $standby->promote;
    $m->{node} = $standby;
    $self->give_proxy($m);
    for (1 .. 30) {
        my ($ok, undef, $err) = $self->try('coordinator', "SET lock_timeout = '30 s'; SELECT citus_update_node(nodeid, '127.0.0.1', $m->{proxy}{port}, force => true, lock_cooldown => 1000)
            FROM pg_dist_node WHERE nodeport = $port");
        return if $ok;
        $self->note_that("citus_update_node: $err");
        sleep 1;
    }
    die 'citus_update_node failed';
}

sub add_node {
    my ($self) = @_;
    $self->note_that('worker 3 is added');
    for (1 .. 30) {
        last if eval { $self->join_cluster(3); 1 };
        $self->note_that("citus_add_node: $@");
        sleep 1;
    }
    return;
}

sub run {
    my ($self) = @_;
    $self->load;
    diag "shards: seed $self->{seed}, $self->{rows} rows, $self->{shards} shards a table, $self->{seconds} s";
    my $mover = fork // die;
    if ($mover == 0) { eval { $self->move_shards }; print STDERR $@ if $@; POSIX::_exit(0) }
    my @faults;
    my $added = 0;
    while (time - $self->{t0} < $self->{seconds}) {
        if (!$added && time - $self->{t0} > $self->{seconds} / 4) { $self->add_node; $added = 1 }
        @faults = sort { rand() <=> 0.5 } @FAULTS unless @faults;
        my $fault = $self->{only} ? $self->{only}[ rand @{ $self->{only} } ] : shift @faults;
        $self->$fault;
        $self->{count}{$fault}++;
        sleep 2 + rand 3;
    }
    open(my $stop, '>', "$self->{root}/stop") or die;
    waitpid $mover, 0;
    $self->settle;
    $self->check;
    return;
}

# Until what failed is put right, and all dead rows are gone.
sub settle {
    my ($self) = @_;
    $self->try('coordinator', $_) for 'SELECT citus_rebalance_stop()', 'SELECT citus_rebalance_wait()', 'CALL citus_cleanup_orphaned_resources()';
    $self->note_that('the faults are over');
    my $give_up = time + LATE;
    for my $m ($self->members) {
        my $left = 1;
        while ($left && time < $give_up) {
            (undef, $left) = $self->try($m->{key}, 'SELECT count(*) FROM pg_prepared_xacts');
            sleep 0.5 if $left;
        }
    }
    my $left = 1;
    while ($left && time < $give_up) {
        (undef, $left) = $self->try('coordinator', 'SELECT ' . join ' + ', map { "(SELECT count(*) FROM $_ WHERE d < now())" } sort keys %TABLES);
        sleep 0.5 if $left;
    }
    $self->note_that("dead rows left: $left");
    return;
}

sub check {
    my ($self) = @_;
    my $judge = $self->{judge};
    my $at = sub { my ($m, $sql, $to) = @_;
        my $file = "$self->{root}/copy";
        $m->{node}->safe_psql('postgres', "\\copy ($sql) to '$file'");
        $judge->safe_psql('postgres', "\\copy $to from '$file'") };
    $at->($_, "SELECT '$_->{name}', policy, key, deadline, cleanup_type FROM sweeper.cleanup_event WHERE policy IN ('lease', 'seat', 'visit')", 'event') for $self->members;
    $at->($self->{member}{coordinator}, "SELECT '$_', " . $self->key_text($_) . " FROM $_", 'alive') for sort keys %TABLES;
    # times in keys as the judge writes them
    my $value = sub { $judge->safe_psql('postgres', $_[0]) };
    my @all = split /\n/, slurp_file("$self->{root}/moves");
    my %moves;
    /^ *[\d.]+ (\w+): (\w+)/ and $moves{"$1 $2"}++ for @all;
    diag 'faults: ' . join ', ', map { "$_ $self->{count}{$_}" } sort keys %{ $self->{count} };
    diag 'moves: ' . join ', ', map { "$_ $moves{$_}" } sort keys %moves;
    diag 'events by node: ' . $value->("SELECT string_agg(node || ' ' || n, ', ' ORDER BY node) FROM (SELECT node, count(*) AS n FROM event GROUP BY 1) AS e");
    my $end = "'$self->{base}'::timestamptz + $self->{seconds} * interval '1 s'";
    my %wrong = (
        'dead rows left' => 'SELECT policy, key FROM truth JOIN alive USING (policy, key) WHERE d < now()',
        'living rows lost' => "SELECT policy, key FROM truth WHERE d > '2099-01-01' EXCEPT SELECT policy, key FROM alive",
        'rows twice' => 'SELECT policy, key FROM alive GROUP BY 1, 2 HAVING count(*) > 1',
        'unknown rows' => 'SELECT policy, key FROM alive EXCEPT SELECT policy, key FROM truth',
        'events missing' => "SELECT policy, key, d FROM truth WHERE d < '2099-01-01' EXCEPT SELECT policy, key, deadline FROM event",
        'events of nothing' => "SELECT policy, key, deadline FROM event EXCEPT SELECT policy, key, d FROM truth WHERE d < '2099-01-01'",
        'events twice' => "SELECT policy, key, string_agg(node, ' ') FROM event GROUP BY 1, 2 HAVING count(*) > 1");
    my $bad = 0;
    for (sort keys %wrong) {
        my $n = $value->("SELECT count(*) FROM ($wrong{$_}) AS w");
        $bad += $n;
        is($n, 0, $_) or diag $value->("$wrong{$_} LIMIT 5");
    }
    cmp_ok($value->('SELECT count(*) FROM event'), '>', 0, 'there were events');
    for my $m ($self->members) {
        my $node = $m->{node};
        my $calm = "SELECT NOT EXISTS (SELECT FROM sweeper.problem WHERE problem <> 'table grows')";
        ok(eval { local $PostgreSQL::Test::Utils::timeout_default = 60; wait_for($node, $calm) }, "$m->{name}: no problem is left")
            or diag $node->safe_psql('postgres', 'SELECT * FROM sweeper.problem');
        is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT state || coalesce(': ' || reason, ''), ', ') FROM sweeper.policy_status WHERE policy IN ('lease', 'seat', 'visit') AND state NOT IN ('waiting', 'running', 'grace')"),
            '', "$m->{name}: no policy is stuck");
    }
    diag join "\n", 'what happened:', sort { ($a =~ /([\d.]+)/)[0] <=> ($b =~ /([\d.]+)/)[0] } @{ $self->{log} }, @all if $bad || $ENV{CHAOS_TELL};
    $_->{node}->stop('immediate') for $self->members;
    $_->stop for @{ $self->{proxies} };
    return;
}
1;
