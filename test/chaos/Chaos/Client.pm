# A client of the load: takes seats and makes leases, keeps them alive, lets them
# die, ends them, and does the same to others'.  Its log says what it asked, when
# (before and after, by the machine's clock) and what it was told:
#
#     C conn pid time                        a connection
#     B seq conn time op keys argument       before a question; keys with commas between
#     E seq time ok|error|lost answer        after it
#     K keys                                 it has asked enough, and keeps these alive until it is ended
#     S time kind key                        somebody's end was seen to be committed
#     P time pool live seats                 so many were seen alive, and no more may be
package Chaos::Client;
use strict;
use warnings;
use Fcntl;
use List::Util qw(first shuffle);
use Time::HiRes qw(time);
use Chaos::Wire;

use constant TTL => 2;          # seconds
use constant AHEAD => 0.1;      # session_sweeper.refresh_ahead: passes are often later than that
use constant MARGIN => TTL * AHEAD / 4;   # so near to its deadline a heartbeat writes the row
use constant RUSH => 0.5;       # seconds after which everybody wants a seat at the same instant
use constant FLOOD => 0.25;     # seconds of heartbeats one after the other, from when a session is too old
use constant MOST => 6;         # sessions and leases that a client cares for at a time
our %SEATS = (few => 3, desk => 14, brief => 12);
our %LIMIT = (brief => 3, lease => 5);     # seconds that one may live at most

# steps: how many questions; none: until it is ended.
sub new {
    my ($class, %arg) = @_;
    my $self = bless { %arg, mine => [], gone => [], seq => 0, conn => 0, made => 0 }, $class;
    sysopen $self->{log}, "$arg{dir}/$arg{name}.log", O_WRONLY | O_CREAT | O_APPEND or die "log of $arg{name}: $!";
    return $self;
}

sub note {
    my ($self, @field) = @_;
    syswrite $self->{log}, join("\t", @field) . "\n";
}

sub pause {
    my ($self, $seconds) = @_;
    select undef, undef, undef, $seconds if $seconds > 0;
}

sub now { return sprintf '%.6f', time }

# A connection; with a name, another one than that for everything.
sub wire {
    my ($self, $which) = @_;
    until ($self->{wire}{ $which //= 'main' }) {
        open my $where, '<', $self->{where} or die "$self->{where}: $!";
        chomp(my $place = <$where>);
        if (my $wire = Chaos::Wire->connect(split(/\t/, $place), "chaos $self->{name}")) {
            $wire->{number} = ++$self->{conn};
            $self->note('C', $wire->{number}, $wire->pid, now());
            my $can = $wire->query("SELECT to_regprocedure('sweeper.attach(uuid)') IS NOT NULL");
            $self->{can_attach} = $can->{rows}[0] && $can->{rows}[0][0] eq 't';
            $self->{wire}{$which} = $wire;
        } else {
            $self->pause(0.03);
        }
    }
    return $self->{wire}{$which};
}

# Ask, and write it down.  Returns the rows; null when nothing is known.
sub ask {
    my ($self, $op, $keys, $argument, $sql, $value) = @_;
    return $self->told($self->put('main', $op, $keys, $argument, $sql, $value));
}

# The first half of it, and the other.
sub put {
    my ($self, $which, $op, $keys, $argument, $sql, $value) = @_;
    my $wire = $self->wire($which);
    my $seq = ++$self->{seq};
    $self->note('B', $seq, $wire->{number}, now(), $op, join(',', @$keys), $argument);
    $wire->begin($sql);
    return { seq => $seq, which => $which, value => $value };
}

sub told {
    my ($self, $question) = @_;
    my $answer = $self->{wire}{ $question->{which} }->finish;
    my @note = ('E', $question->{seq}, now());
    if ($answer->{lost}) {
        delete $self->{wire}{ $question->{which} };
        $self->note(@note, 'lost', $answer->{error} // '');
        return;
    }
    if ($answer->{error}) {
        $self->note(@note, 'error', "$answer->{error} $answer->{message}" =~ s/\s+/ /gr);
        return;
    }
    $self->note(@note, 'ok', $question->{value}->($answer->{rows}));
    return $answer->{rows};
}

# The ones of a list that were told to be gone are forgotten, but for late heartbeats.
sub forget {
    my ($self, @keys) = @_;
    my %lost = map { $_ => 1 } @keys;
    push @{ $self->{gone} }, grep { $lost{ $_->{key} } } @{ $self->{mine} };
    splice @{ $self->{gone} }, 0, -20;
    $self->{mine} = [ grep { !$lost{ $_->{key} } } @{ $self->{mine} } ];
}

my $column = sub { join ',', map { $_->[0] // '' } @{ $_[0] } };

sub acquire {
    my ($self, $pool) = @_;
    $pool //= (sort keys %SEATS)[ rand keys %SEATS ];
    my $takeover = rand() < 0.1 ? 'true' : 'false';
    my $before = time;
    my $rows = $self->ask('acquire', [], "$pool $takeover",
        "SELECT session, taken_over FROM sweeper.acquire('$pool', '$self->{name}', takeover => $takeover)", $column) or return;
    return unless @$rows;
    push @{ $self->{mine} }, { kind => 'session', key => $rows->[0][0], pool => $pool, since => $before, seen => $before, next => 0, flood => $LIMIT{$pool} && rand() < 0.4 };
    $self->attach($self->{mine}[-1]) if $self->{can_attach} && rand() < 0.3;
}

sub attach {
    my ($self, $s) = @_;
    $self->ask('attach', [ $s->{key} ], '', "SELECT sweeper.attach('$s->{key}')", $column);
}

# One in twenty cannot be deleted.
sub insert {
    my ($self) = @_;
    my $key = "$self->{name}-" . ++$self->{made};
    my $stubborn = rand() < 0.05 ? 'true' : 'false';
    my $before = time;
    $self->ask('insert', [$key], $stubborn, "INSERT INTO lease (id, d, stubborn) VALUES ('$key', now() + interval '" . TTL . " s', $stubborn)", sub { 't' })
        or return;
    push @{ $self->{mine} }, { kind => 'lease', key => $key, pool => 'lease', since => $before, seen => $before, next => 0, flood => rand() < 0.2 };
}

# Some in a transaction that is rolled back: they count all the same.  Of those that
# come late, half: they leave a row that is overdue, and only memory knows better.
sub heartbeat {
    my ($self, $s) = @_;
    my $before = time;
    my $undone = rand() < ($s->{next} ? 0.5 : 0.1);
    my $sql = $s->{kind} eq 'session' ? "SELECT sweeper.heartbeat('$s->{key}')" : "SELECT sweeper.touch('lease', '$s->{key}')";
    my $rows = $self->ask('heartbeat', [ $s->{key} ], $s->{kind} . ($undone ? ' undone' : ''), $undone ? "BEGIN; $sql; ROLLBACK" : $sql, $column);
    $self->forget($s->{key}) if $rows && $rows->[0][0] eq 'f';
    $s->{seen} = $before if $rows && $rows->[0][0] eq 't';
    $self->plan($s);
    return;
}

# When to send the next: at once or soon, now and then just when it is too late, or never.
sub plan {
    my ($self, $s) = @_;
    my $dice = rand;
    $s->{next} = $dice < 0.80 ? 0 :
        $dice < 0.86 ? $s->{seen} + TTL * rand :
        $dice < 0.90 ? $s->{seen} + TTL - MARGIN + (rand() - 0.5) * 0.02 :
        $dice < 0.98 ? $s->{seen} + TTL + (rand() - 0.2) * 0.4 : $s->{seen} + 100 * TTL;
}

sub heartbeat_many {
    my ($self) = @_;
    my $kind = rand() < 0.5 ? 'session' : 'lease';
    my @all = grep { $_->{kind} eq $kind && $_->{next} <= time } @{ $self->{mine} } or return;
    my @keys = map { $_->{key} } @all;
    my $list = join ',', @keys;
    my $before = time;
    # the keys that were not confirmed; those of which nothing is known with a question mark
    my $rows = $self->ask('heartbeat', \@keys, "$kind many", 'SELECT * FROM sweeper.' . ($kind eq 'session' ? 'heartbeat_many(' : "touch_many('lease', ") . "'{$list}')",
        sub { join ',', map { ($_->[1] eq 'gone' ? '' : '?') . $_->[0] } @{ $_[0] } }) or return;
    my %state = map { $_->[0] => $_->[1] } @$rows;
    $self->forget(grep { $state{$_} eq 'gone' } keys %state);
    $_->{seen} = $before for grep { !$state{ $_->{key} } } @all;
}

# Everybody gives his seat of the small pool back, and then all want one at once.
sub rush {
    my ($self) = @_;
    my $start = (int(time / RUSH) + 1) * RUSH;
    my @few = grep { $_->{pool} eq 'few' } @{ $self->{mine} };
    for my $s (@few) {
        my $rows = $self->ask('release', [ $s->{key} ], $s->{kind}, "SELECT sweeper.release('$s->{key}')", $column);
        $self->forget($s->{key}) if $rows;
    }
    $self->pause($start - time);
    $self->acquire('few');
    return 'at once';
}

# End it by name, sometimes in a transaction that takes its time, or that is rolled
# back.  Meanwhile, and just after it, somebody else keeps it alive.
sub end {
    my ($self, $s) = @_;
    my ($op, $call) = $s->{kind} eq 'session' && rand() < 0.6 ? ('release', "SELECT sweeper.release('$s->{key}')") :
        ('expire', "SELECT sweeper.expire('" . ($s->{kind} eq 'session' ? 'sweeper.session' : 'lease') . "', '{$s->{key}}', 'chaos') > 0");
    my $verdict = rand() < 0.3 ? '' : rand() < 0.8 ? 'COMMIT' : 'ROLLBACK';
    my $sql = $verdict ? sprintf '%s; %s; SELECT FROM pg_sleep(%.3f); %s', 'BEGIN', $call, rand 0.05, $verdict : $call;
    my $end = $self->put('other', $op, [ $s->{key} ], "$s->{kind} $verdict", $sql, sub { $verdict eq 'ROLLBACK' ? 'undone' : $_[0][0][0] });
    $self->pause(rand 0.01);
    $self->heartbeat($s);
    $self->told($end);
    $self->heartbeat($s);
}

# The application's own end of a row.
sub remove {
    my ($self, $s) = @_;
    return unless $s->{kind} eq 'lease';
    $self->ask('remove', [ $s->{key} ], '', "SET session_replication_role = replica; DELETE FROM lease WHERE id = '$s->{key}'; RESET session_replication_role",
        sub { 't' }) and $self->forget($s->{key});
}

# Somebody else's.
sub stranger {
    my ($self) = @_;
    my $kind = rand() < 0.5 ? 'session' : 'lease';
    my $answer = $self->wire->query($kind eq 'session' ? "SELECT session FROM sweeper.session WHERE status = 'active' ORDER BY random() LIMIT 1" :
        'SELECT id FROM lease ORDER BY random() LIMIT 1');
    delete $self->{wire}{main} if $answer->{lost};
    return unless @{ $answer->{rows} };
    return { kind => $kind, key => $answer->{rows}[0][0], seen => time, next => 0 };
}

sub step {
    my ($self) = @_;
    my $dice = rand;
    my $s = $self->{mine}[ rand @{ $self->{mine} } ];
    return $self->rush if time - int(time / RUSH) * RUSH > RUSH - 0.01;
    if (my $ending = first { $_->{flood} && abs(time - $_->{since} - $LIMIT{ $_->{pool} } - FLOOD / 2) < FLOOD / 2 } @{ $self->{mine} }) {
        $self->heartbeat($ending);
        return 'at once';
    }
    if (my $urgent = first { $_->{next} && $_->{next} <= time } @{ $self->{mine} }) {
        return $self->heartbeat($urgent);
    }
    if (!$s || @{ $self->{mine} } < MOST && $dice < 0.3) {
        return rand() < 0.5 ? $self->acquire : $self->insert;
    } elsif ($dice < 0.03) {
        return $self->end($s);
    } elsif ($dice < 0.05) {
        my $other = $self->stranger or return;
        return rand() < 0.6 ? $self->heartbeat($other) : $self->end($other);
    } elsif ($dice < 0.08 && @{ $self->{gone} }) {
        return $self->heartbeat($self->{gone}[ rand @{ $self->{gone} } ]);
    } elsif ($dice < 0.083) {
        return $self->remove($s);
    } elsif ($dice < 0.16) {
        return $self->heartbeat_many;
    }
    my @ready = shuffle grep { $_->{next} <= time } @{ $self->{mine} };
    return @ready ? $self->heartbeat($ready[0]) : $self->pause(0.005);
}

# Questions until there were enough; then only heartbeats of some, until it is ended.
sub run {
    my ($self) = @_;
    srand $self->{seed};
    while ($self->{seq} < $self->{steps}) {
        my $pace = $self->step // '';
        $self->pause(rand 0.008) unless $pace eq 'at once';
    }
    my @kept = grep { $self->{keep} && !$LIMIT{ $_->{pool} } } @{ $self->{mine} };
    $self->note('K', map { $_->{key} } @kept);
    while (@kept) {
        $self->{mine} = [@kept];
        $self->heartbeat($_) for @kept;
        @kept = @{ $self->{mine} };
        $self->pause(TTL / 10);
    }
}

# Look who has ended, and how many live.
sub observe {
    my ($self) = @_;
    my (%seen, $worse);
    while (1) {
        $self->pause(0.04);
        my $events = $self->wire->query("SELECT id, policy, key FROM sweeper.cleanup_event WHERE cleaned_at > now() - interval '15 s' AND policy IN ('lease', 'sweeper.session')");
        my $time = now();
        my $pools = $events->{lost} ? $events : $self->wire->query("SELECT pool, count(*) FROM sweeper.session WHERE status = 'active' GROUP BY pool");
        delete $self->{wire}{main} if $pools->{lost};
        for my $e (@{ $events->{rows} }) {
            $self->note('S', $time, $e->[1] eq 'lease' ? 'lease' : 'session', $e->[2]) unless $seen{ $e->[0] }++;
        }
        next if $pools->{lost};
        $self->note('P', $time, @$_, $SEATS{ $_->[0] }) for grep { $_->[1] > $SEATS{ $_->[0] } } @{ $pools->{rows} };
    }
}
1;
