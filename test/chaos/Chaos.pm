# Load with faults, in rounds, and what a model says of it.  See README.md.
package Chaos;
use strict;
use warnings;
use List::Util qw(min shuffle sum0);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sweeper;
use Test::More;
use Time::HiRes qw(time);
use Chaos::Client;
use Chaos::Model;

use constant TTL => Chaos::Client::TTL;
use constant { CLIENTS => 6, BOUND => 60 };   # seconds after which the dead must have gone
use constant { FAST => 20, FREEZE => 60 };     # most seconds of a clock that is fast, and of a server that hangs

# What happens in a round, in an order by the seed.
my @FAULTS = qw(kill_client kill_client pause_client pause_client pause_backend terminate_backend terminate_backend
    terminate_process terminate_process pause_process pause_process kill_backend kill_ours restart_fast restart_immediate
    lock_rows lock_rows old_snapshot change_table change_table change_policy set_clock fail_over);

# What may happen to a table in use.  Each is one transaction, or cannot be in one.
my @CHANGES = ('REINDEX TABLE CONCURRENTLY lease', 'VACUUM FULL lease', 'ANALYZE lease', 'CREATE INDEX CONCURRENTLY one_more ON lease (d, id)', 'DROP INDEX IF EXISTS one_more',
    'ALTER TABLE lease ADD COLUMN IF NOT EXISTS one_more int DEFAULT 1', 'ALTER TABLE lease DROP COLUMN IF EXISTS one_more',
    'BEGIN; ALTER TABLE lease RENAME COLUMN d TO e; SELECT FROM pg_sleep(0.3); ALTER TABLE lease RENAME COLUMN e TO d; COMMIT',
    'BEGIN; ALTER TABLE lease RENAME TO other; ALTER TABLE other RENAME TO lease; COMMIT', 'ALTER TABLE lease ALTER COLUMN id TYPE varchar', 'ALTER TABLE lease ALTER COLUMN id TYPE text',
    'BEGIN; LOCK TABLE lease IN ACCESS EXCLUSIVE MODE; SELECT FROM pg_sleep(1.5); COMMIT');
my @POLICY_CHANGES = (q{SELECT sweeper.alter_policy('lease', batch_size => 5)}, q{SELECT sweeper.alter_policy('lease', reset => '{batch_size}')},
    q{SELECT sweeper.alter_policy('lease', max_workers => 2)}, q{SELECT sweeper.pause('lease'); SELECT FROM pg_sleep(1); SELECT sweeper.resume('lease')},
    q{CALL sweeper.sweep('lease', timeout => '2 s')});

sub new {
    my ($class, %arg) = @_;
    my $self = bless { %arg, round => 0, count => {}, violation => {}, tests => 0 }, $class;
    $self->{root} = PostgreSQL::Test::Utils::tempdir();
    system_or_bail('cc', '-shared', '-fPIC', '-o', "$self->{root}/clock.so", 'test/clock.c', '-ldl');
    $self->set_offset(0);
    # what commits is on the standby, where there is one
    my $node = $self->clocked(sub { sweeper_node('chaos', 'max_connections = 60', 'session_sweeper.refresh_ahead = ' . Chaos::Client::AHEAD,
        'log_statement = none', 'log_min_messages = log', 'session_sweeper.synchronous_commit = on') });
    $self->serves($node);
    my ($ttl, %seats) = (TTL, %Chaos::Client::SEATS);
    $node->safe_psql('postgres', qq{CREATE EXTENSION session_sweeper;
        CREATE TABLE lease (id text PRIMARY KEY, d timestamptz NOT NULL, born timestamptz NOT NULL DEFAULT now(), stubborn boolean NOT NULL);
        CREATE INDEX ON lease (d);
        CREATE INDEX ON lease (born);
        CREATE FUNCTION goes_slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN
            PERFORM pg_sleep(CASE WHEN random() < 0.1 THEN 0.3 ELSE random() * 0.04 END);
            IF OLD.stubborn OR random() < 0.05 THEN RAISE EXCEPTION ''it does not go''; END IF;
            RETURN OLD; END';
        CREATE TRIGGER slow BEFORE DELETE ON lease FOR EACH ROW EXECUTE FUNCTION goes_slowly();
        CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''it does not change''; END';
        CREATE TRIGGER stubborn BEFORE UPDATE ON lease FOR EACH ROW WHEN (OLD.stubborn) EXECUTE FUNCTION stays();
        SELECT sweeper.register('lease', deadline => 'd', ttl => '$ttl s', created => 'born', max_age => '$Chaos::Client::LIMIT{lease} s',
            heartbeats => true, capture => '{born}', check_every => '100 ms', fuse_fraction => 1);
        SELECT sweeper.alter_policy('sweeper.session', check_every => '100 ms', fuse_fraction => 1)});
    for my $pool (sort keys %seats) {
        my $limit = $Chaos::Client::LIMIT{$pool};
        $node->safe_psql('postgres', "SELECT sweeper.create_pool('$pool', $seats{$pool}, ttl => '$ttl s'" . ($limit ? ", max_ttl => '$limit s'" : '') . ')');
    }
    return $self;
}

# Processes of our own.

# One that asks so often.
sub start_client {
    my ($self, $n, $steps) = @_;
    my $c = { n => $n, name => "r$self->{round}c" . ++$self->{started}, steps => $steps };
    $c->{pid} = $self->spawn($c->{name}, sub { $_[0]->run }, steps => $steps, keep => $n % 3 == 0);
    $self->{client}{$n} = $c;
}

sub spawn {
    my ($self, $name, $main, @arg) = @_;
    my $seed = $self->{seed} * 10_000 + $self->{round} * 100 + ++$self->{spawned};
    my $pid = fork // die "fork: $!";
    return $pid if $pid;
    $SIG{$_} = 'DEFAULT' for qw(INT TERM);
    eval {
        $main->(Chaos::Client->new(name => $name, dir => $self->{dir}, where => "$self->{root}/where", seed => $seed, @arg));
    };
    print STDERR "$name: $@" if $@;
    POSIX::_exit($@ ? 1 : 0);
}

sub end_process {
    my ($self, $pid) = @_;
    kill 'KILL', $pid;
    waitpid $pid, 0;
}

# Questions in a client's log, and whether it has asked enough.
sub progress {
    my ($self, $c) = @_;
    my $log = "$self->{dir}/$c->{name}.log";
    my $text = -e $log ? slurp_file($log) : '';
    return (scalar(() = $text =~ /^B\t/mg), scalar($text =~ /^K(\t|$)/m), $text);
}

# The server.

# A command that starts one whose clock can be set.
sub clocked {
    my ($self, $do) = @_;
    local $ENV{LD_PRELOAD} = "$self->{root}/clock.so";
    local $ENV{CLOCK_OFFSET} = "$self->{root}/offset";
    return $do->();
}

sub replace {
    my ($file, $text) = @_;
    append_to_file("$file.new", $text);
    rename "$file.new", $file or die "$file: $!";
}

sub set_offset {
    my ($self, $seconds) = @_;
    push @{ $self->{clock} }, [ time, $seconds ];
    replace("$self->{root}/offset", "$seconds\n");
}

# From now on clients connect to this one.
sub serves {
    my ($self, $node) = @_;
    $self->{node} = $node;
    replace("$self->{root}/where", join("\t", $node->host, $node->port) . "\n");
}

# Faults.

sub happened {
    my ($self, $what, $text) = @_;
    $self->{count}{$what}++;
    push @{ $self->{faults} }, [ time, uc $text ];
    note sprintf '%.3f %s', time, $text;
}

sub later { my ($self, $seconds, $what) = @_; push @{ $self->{agenda} }, [ time + $seconds, $what ] }

# What is due of the agenda; all of it, before something that would wait for it.
sub attend {
    my ($self, $all) = @_;
    my @due = grep { $all || $_->[0] <= time } @{ $self->{agenda} };
    $self->{agenda} = [ grep { my $a = $_; !grep { $_ == $a } @due } @{ $self->{agenda} } ];
    $_->[1]->() for @due;
}

sub hold {
    my ($self, $pid, $seconds, $what) = @_;
    kill 'STOP', $pid or return;
    $self->happened('pauses', "$what $pid is stopped");
    $self->later($seconds, sub { kill 'CONT', $pid; push @{ $self->{faults} }, [ time, uc "$what $pid goes on" ] });
}

sub any_client { my ($self) = @_; return $self->{client}{ 1 + int rand CLIENTS } }

sub backend {
    my ($self) = @_;
    my @pids = split /\n/, $self->{node}->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE application_name ~ '^chaos r\\d+c' ORDER BY pid");
    return $pids[ rand @pids ];
}

sub process {
    my ($self, @kinds) = @_;
    for my $kind (shuffle @kinds) {
        my ($pid) = pids($self->{node}, $kind);
        return ($kind, $pid) if $pid;
    }
    return;
}

# The server goes down and comes back.
sub outage {
    my ($self, $what, $text, $do) = @_;
    $self->attend('all');
    my $life = $self->{node}->safe_psql('postgres', 'SELECT service_start FROM sweeper._cluster()') || '-infinity';
    my $down = time;
    return unless $do->();
    $self->happened($what, $text);
    # who was just leaving when he was killed took nobody with him
    return if $what eq 'crashes' && !$self->is_down($life);
    wait_for($self->{node}, "SELECT coalesce(service_start > '$life', false) FROM sweeper._cluster()", 'there is service again');
    push @{ $self->{restarts} }, [ $down, time, $what ne 'fast restarts' ];
}

# Does the crash come?  The server goes on with the same life if not.
sub is_down {
    my ($self, $life) = @_;
    for (1 .. 40) {
        # who cannot connect may have left before he was asked
        my ($code, $now) = eval { $self->{node}->psql('postgres', 'SELECT service_start FROM sweeper._cluster()') };
        return 1 if !defined $code || $code != 0 || ($now || '-infinity') ne $life;
        select undef, undef, undef, 0.1;
    }
    return 0;
}

sub kill_client {
    my ($self) = @_;
    my $c = $self->any_client;
    my ($asked, $done) = $self->progress($c);
    return if $done;
    $self->end_process($c->{pid});
    $self->happened('clients killed', "client $c->{name} is killed");
    $self->start_client($c->{n}, $c->{steps} - $asked) if $asked < $c->{steps};
}

sub pause_client { my ($self) = @_; my $c = $self->any_client; $self->hold($c->{pid}, TTL * (1.1 + rand 0.5), "client $c->{name}") }

sub pause_backend { my ($self) = @_; my $pid = $self->backend or return; $self->hold($pid, rand 1, 'backend') }

sub pause_process {
    my ($self) = @_;
    my ($kind, $pid) = $self->process(qw(launcher coordinator worker)) or return;
    $self->hold($pid, TTL * rand 1.3, $kind);
}

sub terminate_backend {
    my ($self) = @_;
    my $pid = $self->backend or return;
    $self->happened('backends terminated', "backend $pid is terminated");
    $self->{node}->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
}

sub terminate_process {
    my ($self) = @_;
    my ($kind, $pid) = $self->process(qw(launcher coordinator worker)) or return;
    $self->happened('processes terminated', "$kind $pid is terminated");
    $self->{node}->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
    # service begins anew, when the postmaster has started another
    push @{ $self->{restarts} }, [ time, time + 1, 0 ] if $kind eq 'launcher';
}

sub kill_backend { my ($self) = @_; my $pid = $self->backend or return; $self->outage('crashes', "backend $pid is killed", sub { kill 'KILL', $pid }) }

sub kill_ours {
    my ($self) = @_;
    my ($kind, $pid) = $self->process(qw(launcher coordinator worker)) or return;
    $self->outage('crashes', "$kind $pid is killed", sub { kill 'KILL', $pid });
}

sub restart {
    my ($self, $mode) = @_;
    $self->outage("$mode restarts", "the server is stopped ($mode)", sub { $self->{node}->stop($mode); $self->clocked(sub { $self->{node}->start }); 1 });
}
sub restart_fast { $_[0]->restart('fast') }
sub restart_immediate { $_[0]->restart('immediate') }

# A standby that has all that was committed takes over from a server that hangs.
sub fail_over {
    my ($self) = @_;
    my $old = $self->{node};
    my $name = 'standby' . ++$self->{standbys};
    my $standby = PostgreSQL::Test::Cluster->new($name);
    $old->backup($name);
    $standby->init_from_backup($old, $name, has_streaming => 1);
    $self->clocked(sub { $standby->start });
    $old->safe_psql('postgres', $_) for "ALTER SYSTEM SET synchronous_standby_names = '*'", 'SELECT pg_reload_conf()';
    my $lsn = $old->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
    wait_for($old, "SELECT sync_state = 'sync' AND flush_lsn >= '$lsn' FROM pg_stat_replication", 'the standby has all of it');
    my $freeze = rand() < 0.1 ? FREEZE : rand 3;
    $self->outage('fail-overs', sprintf('the server hangs for %.1f s, and a standby takes over', $freeze), sub {
        my $postmaster = (split /\n/, slurp_file($old->data_dir . '/postmaster.pid'))[0];
        my @pids = ($postmaster, map { /(\d+)/ } `ps -o pid= --ppid $postmaster`);
        kill 'STOP', @pids;
        select undef, undef, undef, $freeze;
        kill 'KILL', @pids;
        $old->kill9;
        $standby->promote;
        $self->serves($standby);
        return 1;
    });
}

# A connection of ours that does something meanwhile; it may fail.
sub meanwhile {
    my ($self, $seconds, $what, $text, @sql) = @_;
    my $wire = Chaos::Wire->connect($self->{node}->host, $self->{node}->port, 'chaos') or return;
    my $last = pop @sql;
    for my $sql (@sql) {
        return if $wire->query($sql)->{lost};
    }
    $self->happened($what, $text);
    $wire->begin($last) unless $seconds;
    $self->later($seconds || 3, sub { $seconds ? $wire->query($last) : $wire->finish });
}

sub lock_rows {
    my ($self) = @_;
    $self->meanwhile(TTL * (1 + rand), 'rows locked', 'some leases are locked', 'BEGIN', 'SELECT FROM lease ORDER BY random() LIMIT 3 FOR UPDATE', 'ROLLBACK');
}

sub old_snapshot {
    my ($self) = @_;
    $self->meanwhile(3 * TTL, 'old snapshots', 'a snapshot grows old', 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM lease', 'COMMIT');
}

sub change {
    my ($self, $what, $sql) = @_;
    $self->meanwhile(0, $what, $sql, q{SET lock_timeout = '3 s'}, $sql);
}
sub change_table { my ($self) = @_; $self->change('tables changed', $CHANGES[ rand @CHANGES ]) }
sub change_policy { my ($self) = @_; $self->change('policies changed', $POLICY_CHANGES[ rand @POLICY_CHANGES ]) }

# It goes wrong, and is put right.
sub set_clock {
    my ($self) = @_;
    my $seconds = 3 + int rand FAST - 3;
    $self->set_offset($seconds);
    $self->happened('clocks set', "the clock is fast by $seconds s");
    $self->later(TTL * (1 + rand 2), sub { $self->set_offset(0); push @{ $self->{faults} }, [ time, 'THE CLOCK IS RIGHT AGAIN' ] });
}

# Rounds.

# Until every client has asked enough, with the faults spread over that time.
sub load {
    my ($self) = @_;
    my $each = int($self->{steps} / CLIENTS);
    $self->start_client($_, $each) for 1 .. CLIENTS;
    my @faults = shuffle @FAULTS;
    my $place = $self->{steps} / (@faults + 1);
    my ($next, $give_up) = ($place, time + 10 * BOUND + $self->{steps} / 10);
    while (1) {
        my @clients = values %{ $self->{client} };
        my @progress = map { [ $self->progress($_) ] } @clients;
        my $asked = $self->{steps} - sum0(map { $clients[$_]{steps} - min($clients[$_]{steps}, $progress[$_][0]) } 0 .. $#clients);
        last unless grep { !$_->[1] } @progress;
        die "clients do not come to an end: $asked of $self->{steps} steps" if time > $give_up;
        for (@clients) {
            die "client $_->{name} has failed" if waitpid($_->{pid}, POSIX::WNOHANG()) != 0 && !($self->progress($_))[1];
        }
        if (@faults && $asked >= $next) {
            $next += $place;
            my $fault = shift @faults;
            $self->$fault;
        }
        $self->attend;
        select undef, undef, undef, 0.05;
    }
    $self->attend('all');
    return map { my (undef, undef, $log) = $self->progress($_); $log =~ /^K\t(.+)$/m ? split /\t/, $1 : () } values %{ $self->{client} };
}

# Until nobody is left but those; what is left after the bound is for the model.
sub settle {
    my ($self, @kept) = @_;
    my $kept = join ', ', "''", map { "'$_'" } @kept;
    my $give_up = time + BOUND;
    while (time < $give_up) {
        my $left = $self->{node}->safe_psql('postgres', "SELECT (SELECT count(*) FROM sweeper.session WHERE status = 'active' AND session::text NOT IN ($kept))
            + (SELECT count(*) FROM lease WHERE NOT stubborn)
            + (SELECT count(*) FROM lease WHERE stubborn AND NOT EXISTS (SELECT FROM sweeper.failed_row WHERE policy = 'lease' AND key = id))");
        return 1 if $left eq '0';
        select undef, undef, undef, 0.1;
    }
    return 0;
}

# Guarantee 9: who is dead has no seat.  Not more than there are, either.
sub all_seats {
    my ($self) = @_;
    my $seats = \%Chaos::Client::SEATS;
    return join ', ', map {
        my $n = $self->{node}->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, $seats->{$_} + 1) AS i, LATERAL sweeper.acquire('$_', 'all' || i)");
        $n == $seats->{$_} ? () : "$n of $seats->{$_} seats of $_ were given"
    } sort keys %$seats;
}

sub round {
    my ($self) = @_;
    $self->{round}++;
    @$self{qw(spawned started agenda faults restarts client clock)} = (0, 0, [], [], [], {}, [ [ 0, 0 ] ]);
    srand $self->{seed} * 10_000 + $self->{round} * 100;
    mkdir($self->{dir} = "$self->{root}/round$self->{round}") or die "mkdir: $!";
    # by time they could not be told from the last round's: the clock is set now and then
    $self->{node}->safe_psql('postgres', "SET session_replication_role = replica; DELETE FROM lease; DELETE FROM sweeper.session WHERE status <> 'active';
        DELETE FROM sweeper.cleanup_event; DELETE FROM sweeper.usage_event");
    my $observer = $self->spawn('observer', sub { $_[0]->observe });
    my @kept = eval { $self->load };
    my $error = $@;
    my $survivors = 0;
    unless ($error) {
        $self->settle(@kept);
        $survivors = @kept && $self->{node}->safe_psql('postgres', "SELECT count(*) FROM sweeper.session WHERE status = 'active' AND session IN (" . join(', ', map { "'$_'" } @kept) . ')');
    }
    $self->attend('all');
    $self->end_process($_) for map { $_->{pid} } values %{ $self->{client} };
    die $error if $error;
    $self->settle;
    $self->end_process($observer);
    my $model = Chaos::Model->new(node => $self->{node}, dir => $self->{dir}, faults => $self->{faults}, restarts => $self->{restarts}, clock => $self->{clock});
    $model->check;
    my $wrong = $self->all_seats;
    $model->violated('refused seats', undef, "after all had ended: $wrong") if $wrong;
    $self->{node}->safe_psql('postgres', "SELECT sweeper.release(session) FROM sweeper.session WHERE status = 'active'");
    $model->{count}{'kept alive'} = $survivors;
    return $model;
}

# Counts in a fixed order: those of the load, then the violations.
sub report {
    my ($self, $model) = @_;
    my %count = (%{ $model->{count} });
    my $what = join ', ', map { "$_ $count{$_}" } sort keys %count;
    my $faults = join ', ', map { "$_ $self->{count}{$_}" } sort keys %{ $self->{count} };
    my $wrong = join ', ', map { "$_ " . @{ $model->{violation}{$_} // [] } } @Chaos::Model::VIOLATIONS;
    diag "round $self->{round} (seed $self->{seed}, $self->{steps} steps): $what";
    diag "    faults so far: $faults";
    diag "    $wrong";
}

# All rounds, until one fails.  A failure tells the whole story of up to three sessions of each kind.
sub run {
    my ($self, $rounds) = @_;
    diag "chaos: seed $self->{seed}, $self->{steps} steps a round";
    $self->{round} = ($ENV{CHAOS_FIRST} || 1) - 1;
    for (1 .. $rounds) {
        my $model = $self->round;
        $self->report($model);
        for my $what (@Chaos::Model::VIOLATIONS) {
            my @found = @{ $model->{violation}{$what} // [] };
            is(scalar @found, 0, "round $self->{round}: $what") or diag join "\n", "with SEED=$self->{seed} STEPS=$self->{steps}:", @found[ 0 .. min(2, $#found) ];
        }
        cmp_ok($model->{count}{acknowledged} // 0, '>', 0, "round $self->{round}: there were heartbeats");
        wait_for($self->{node}, "SELECT count(DISTINCT backend_type) = 2 FROM pg_stat_activity WHERE backend_type IN ('session_sweeper launcher', 'session_sweeper coordinator')", 'our processes are back');
        last if %{ $model->{violation} };
    }
    $self->{node}->stop;
}
1;
