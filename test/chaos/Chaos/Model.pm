# What must be so by what the clients wrote down, against what the tables say.
#
# A session (of the registry, or a lease) is a list of answers and at most one end.
# Times are those of one machine's clock: a client's before and after each question,
# and the server's in the evidence.  A heartbeat counts from the time before its
# question, and an end as committed from the time after which somebody was told of
# it, or saw it: both err to the side of the server by the length of one question.
package Chaos::Model;
use strict;
use warnings;
use List::Util qw(max min sum0);
use PostgreSQL::Test::Utils;
use Chaos::Client;

use constant NEVER => 9e99;
our @VIOLATIONS = ('calls of many failed', 'false expiries', 'missed expiries', 'duplicate events', 'oversold seats', 'refused seats', 'late heartbeats answered true',
    'living told gone', 'ends that nobody asked for', 'ends lost', 'false disconnects', 'failures not recorded');

# Log files, and the tables' rows.
sub new {
    my ($class, %arg) = @_;
    my $self = bless { %arg, session => {}, violation => {}, count => {}, history => {} }, $class;
    $self->read_log($_) for sort glob "$arg{dir}/*.log";
    $self->read_tables;
    return $self;
}

sub of {
    my ($self, $key) = @_;
    return $self->{session}{$key} //= { key => $key, asked => [], events => [], usage => [], seen_gone => NEVER };
}

sub read_log {
    my ($self, $file) = @_;
    my ($client) = $file =~ m{([^/]+)\.log$};
    my %open;
    for (split /\n/, slurp_file($file)) {
        my ($line, @field) = split /\t/, $_, -1;
        if ($line eq 'B' && @field == 6) {
            my ($seq, $conn, $before, $op, $keys, $argument) = @field;
            $open{$seq} = { client => $client, conn => "$client/$conn", before => $before, op => $op, argument => $argument,
                keys => [ split /,/, $keys ], after => NEVER, outcome => 'no answer', answer => '' };
            push @{ $self->{asked} }, $open{$seq};
            push @{ $self->of($_)->{asked} }, $open{$seq} for @{ $open{$seq}{keys} };
        } elsif ($line eq 'E' && @field == 4 && $open{ $field[0] }) {
            my $q = $open{ $field[0] };
            @$q{qw(after outcome answer)} = @field[ 1 .. 3 ];
            $self->answered($q);
        } elsif ($line eq 'S' && @field == 3) {
            my $s = $self->of($field[2]);
            $s->{seen_gone} = min($s->{seen_gone}, $field[0]);
        } elsif ($line eq 'P' && @field == 4) {
            $self->violated('oversold seats', undef, "at $field[0] $field[2] sessions of pool $field[1] were alive, which has $field[3] seats");
        }
    }
}

sub answered {
    my ($self, $q) = @_;
    return if $q->{outcome} ne 'ok';
    if ($q->{op} eq 'acquire' && $q->{answer} ne '') {
        push @{ $q->{keys} }, $q->{answer};
        push @{ $self->of($q->{answer})->{asked} }, $q;
    }
    $self->{last_of}{ $q->{conn} } = max($self->{last_of}{ $q->{conn} } // 0, $q->{before});
}

sub read_tables {
    my ($self) = @_;
    my $rows = sub { map { [ split /\|/, $_, -1 ] } split /\n/, $self->{node}->safe_psql('postgres', $_[0]) };
    my $e = sub { "extract(epoch FROM $_[0])" };
    for ($rows->("SELECT session, pool, owner, status, ${\$e->('acquired_at')}, ${\$e->(q{nullif(ends_at, 'infinity')})}, ${\$e->('released_at')}
            FROM sweeper.session")) {
        my $s = $self->of($_->[0]);
        @$s{qw(kind pool owner)} = ('session', @$_[ 1, 2 ]);
        @$s{qw(alive born limit ended)} = ($_->[3] eq 'active', $_->[4], $_->[5] || NEVER, $_->[6]);
    }
    for ($rows->("SELECT id, ${\$e->('born')}, stubborn FROM lease")) {
        my $s = $self->of($_->[0]);
        @$s{qw(kind alive born limit stubborn)} = ('lease', 1, $_->[1], $_->[1] + $Chaos::Client::LIMIT{lease}, $_->[2] eq 't');
    }
    for ($rows->("SELECT key, id, cleanup_type, ${\$e->('cleaned_at')}, ${\$e->(q{(metadata->>'born')::timestamptz})}, policy, reason, ${\$e->('deadline')}
            FROM sweeper.cleanup_event WHERE policy IN ('lease', 'sweeper.session')")) {
        my $s = $self->of($_->[0]);
        push @{ $s->{events} }, { id => $_->[1], type => $_->[2], at => $_->[3], reason => $_->[6], deadline => $_->[7] };
        next if $_->[5] ne 'lease';
        @$s{qw(kind born limit)} = ('lease', $_->[4], $_->[4] + $Chaos::Client::LIMIT{lease});
        $s->{ended} = $_->[3];
    }
    push @{ $self->of($_->[0])->{usage} }, $_->[1]
        for $rows->("SELECT session, id FROM sweeper.usage_event");
    $self->of($_->[0])->{failed} = $_->[1] for $rows->("SELECT key, sqlstate FROM sweeper.failed_row WHERE policy = 'lease'");
}

# When was it so late by the server's clock?  That may have been twice, or never: the first time, or the last.
sub first_at { my ($self, $t) = @_; return ($self->moments($t))[0] }
sub last_at { my ($self, $t) = @_; return ($self->moments($t))[-1] }

sub moments {
    my ($self, $t) = @_;
    my @clock = @{ $self->{clock} };
    return $t if @clock < 2 || $t >= NEVER;
    my @at;
    for my $i (0 .. $#clock) {
        my ($from, $offset) = @{ $clock[$i] };
        my $to = $i < $#clock ? $clock[ $i + 1 ][0] : NEVER;
        push @at, $t - $offset if $t - $offset >= $from && $t - $offset < $to;
        # the clock jumped over it
        push @at, $from if $i && $t >= $from + $clock[ $i - 1 ][1] && $t < $from + $offset;
    }
    return sort { $a <=> $b } @at;
}

sub violated {
    my ($self, $what, $s, $text) = @_;
    push @{ $self->{violation}{$what} }, $text . ($s ? "\n" . $self->history($s) : '');
}

# Everything that is known of a session; with the faults, unless others tell of them.
sub history {
    my ($self, $s, $alone) = @_;
    my @line = map {
        sprintf '  %.6f  %s  %s %s: %s %s', $_->{before}, $_->{conn}, $_->{op}, $_->{argument},
            $_->{after} == NEVER ? 'no answer' : sprintf('after %.3f s %s', $_->{after} - $_->{before}, $_->{outcome}), $_->{answer}
    } sort { $a->{before} <=> $b->{before} } @{ $s->{asked} };
    push @line, map { sprintf '  %.6f  event %s %s %s, deadline %s', $_->{at}, @$_{qw(id type reason deadline)} } @{ $s->{events} };
    push @line, map { sprintf '  %.6f  %s', @$_ } @{ $self->{faults} } unless $alone;
    @line = sort @line;
    unshift @line, "  $s->{key}: " . join ', ', map { "$_ " . ($s->{$_} // '') } qw(kind pool owner born limit alive ended seen_gone stubborn failed);
    return join "\n", @line;
}

# What a question says of one of its keys: t, f, or nothing.
sub says {
    my ($s, $q) = @_;
    return '' if $q->{outcome} ne 'ok';
    return 't' if $q->{op} eq 'acquire' || $q->{op} eq 'insert';
    return $q->{answer} unless $q->{argument} =~ / many$/;
    my %told = map { $_ => 1 } split /,/, $q->{answer};
    return $told{ $s->{key} } ? 'f' : $told{"?$s->{key}"} ? '' : 't';
}

sub beats { return grep { $_->{op} =~ /^(heartbeat|acquire|insert)$/ } @{ $_[0]{asked} } }

# Was it asked while the clock was fast?  Who is too old by that clock may be young again when it is right.
sub fast {
    my ($self, $q) = @_;
    my @clock = @{ $self->{clock} };
    return grep { $clock[$_][1] && $q->{after} >= $clock[$_][0] && ($_ == $#clock || $q->{before} < $clock[ $_ + 1 ][0]) } 0 .. $#clock;
}

# From when on is a session known to have ended?
sub known_gone {
    my ($self, $s) = @_;
    return min($s->{seen_gone},
        map { $_->{after} } grep { says($s, $_) =~ /^[tf]$/ && $_->{op} =~ /^(release|expire)$/ || $_->{op} eq 'heartbeat' && says($s, $_) eq 'f' && !$self->fast($_) }
            grep { $_->{op} ne 'expire' || says($s, $_) eq 't' } @{ $s->{asked} });
}

# The last time at which it may have shown that it lives.
sub last_sign {
    my ($s) = @_;
    return max($s->{born}, map { $_->{after} } grep { says($s, $_) ne 'f' } beats($s));
}

sub asked_for { my ($s, $op) = @_; return grep { $_->{op} eq $op && says($s, $_) !~ /^(f|undone)$/ } @{ $s->{asked} } }

# Guarantee 3: one end, one event, one usage row.
sub check_once {
    my ($self, $s) = @_;
    my @events = @{ $s->{events} };
    my @usage = @{ $s->{usage} };
    my @told = grep { $_->{op} =~ /^(release|expire)$/ && says($s, $_) eq 't' } @{ $s->{asked} };
    $self->violated('duplicate events', $s, @events . ' events, ' . @usage . ' usage rows, ' . @told . ' told that they ended it')
        if @events > 1 || @usage > 1 || @told > 1;
    $self->violated('ends lost', $s, 'an end without its evidence, or evidence without an end')
        if $s->{kind} eq 'session' && ((@events ? 1 : 0) != ($s->{alive} ? 0 : 1) || @events != @usage || @events && $events[0]{id} != $usage[0])
        || $s->{kind} eq 'lease' && @events && $s->{alive}
        || @told && !@events;
}

# What a transaction wrote that was rolled back holds until the next crash only.
sub forgotten {
    my ($self, $s, $q) = @_;
    return $q->{argument} =~ / undone$/ && grep { $_->[2] && $q->{before} < $_->[1] && $_->[0] < $self->last_at($s->{ended}) } @{ $self->{restarts} };
}

# Guarantee 1, and that ends by name were asked for.
sub check_end {
    my ($self, $s) = @_;
    my $e = $s->{events}[0] or return;
    if ($e->{type} eq 'manual') {
        $self->violated('ends that nobody asked for', $s, 'ended by name') unless asked_for($s, 'expire');
    } elsif ($e->{type} eq 'released') {
        $self->violated('ends that nobody asked for', $s, 'released') unless asked_for($s, 'release') || ($e->{reason} // '') eq 'taken over' &&
            grep { $_->{op} eq 'acquire' && $_->{client} eq $s->{owner} && $_->{argument} =~ /true/ } @{ $self->{asked} };
    } elsif ($e->{type} eq 'disconnected') {
        my @by = asked_for($s, 'attach');
        $self->violated('false disconnects', $s, 'its connection went on')
            if !@by || !grep { ($self->{last_of}{ $_->{conn} } // 0) < $self->last_at($s->{ended}) } @by;
        # a heartbeat by another connection, while it was there, has detached it
        my @attached = grep {
            my $by = $_;
            !grep { says($s, $_) eq 't' && $_->{op} eq 'heartbeat' && $_->{conn} ne $by->{conn} && $_->{before} > $by->{after} &&
                    $_->{after} < ($self->{last_of}{ $by->{conn} } // 0) } @{ $s->{asked} }
        } @by;
        $self->violated('false disconnects', $s, 'another connection had kept it alive') if @by && !@attached;
    } elsif ($s->{ended} < $s->{limit}) {
        my $last = max(0, map { $_->{before} } grep { says($s, $_) eq 't' && !$self->forgotten($s, $_) } beats($s));
        my $ended = $self->last_at($s->{ended});
        $self->violated('false expiries', $s, sprintf 'ended %.6f s after a heartbeat was acknowledged', $ended - $last)
            if $ended < $last + Chaos::Client::TTL;
    }
}

# Guarantee 4, and its converse.
sub check_answers {
    my ($self, $s) = @_;
    my $gone = $self->known_gone($s);
    my $removed = min(NEVER, map { $_->{before} } grep { $_->{op} eq 'remove' } @{ $s->{asked} });
    for my $q (beats($s)) {
        my $said = says($s, $q);
        $self->violated('late heartbeats answered true', $s, sprintf 'asked %.6f s after the end was known', $q->{before} - $gone)
            if $said eq 't' && $q->{before} > $gone && $gone < $removed;
        $self->violated('living told gone', $s, sprintf 'at %.6f', $q->{after})
            if $said eq 'f' && min($self->first_at($s->{ended} || NEVER), $self->first_at($s->{limit} // NEVER), $removed) > $q->{after};
    }
}

# Guarantee 1 for each key of a call of many: it fails as a whole only where the server, the connection or
# the whole table is not to be had.
sub check_many {
    my ($self) = @_;
    for my $q (grep { $_->{argument} =~ / many$/ && $_->{outcome} eq 'error' && $_->{answer} !~ /^(57P|08|53|25006|55P03 .* lock of its table)/ } @{ $self->{asked} }) {
        $self->violated('calls of many failed', undef, sprintf 'at %.6f with %d keys: %s', $q->{before}, scalar @{ $q->{keys} }, $q->{answer});
    }
}

# A session of which the tables know nothing: nobody was told that it began, or the application removed it.
sub check_trace {
    my ($self, $s) = @_;
    my @asked = @{ $s->{asked} };
    $self->violated('ends lost', $s, 'it is gone without a trace')
        if (grep { $_->{op} =~ /^(acquire|insert)$/ && says($s, $_) eq 't' } @asked) && !grep { $_->{op} eq 'remove' } @asked;
}

# Guarantees 2 and 5: who is left, and why.
sub check_left {
    my ($self, $s) = @_;
    return unless $s->{alive};
    return $self->violated('missed expiries', $s, 'it is still there') unless $s->{stubborn};
    $self->violated('failures not recorded', $s, 'a row that cannot be deleted') unless $s->{failed};
}

# Guarantee 9, by the evidence: a seat is free from the time of its holder's end.
sub check_seats {
    my ($self) = @_;
    my %change;
    for my $s (grep { ($_->{kind} // '') eq 'session' } values %{ $self->{session} }) {
        push @{ $change{ $s->{pool} } }, [ $self->last_at($s->{born}), 1 ], [ $self->first_at($s->{ended} || NEVER), -1 ];
    }
    for my $pool (sort keys %change) {
        my ($held, $most) = (0, 0);
        $most = max($most, $held += $_->[1]) for sort { $a->[0] <=> $b->[0] || $a->[1] <=> $b->[1] } @{ $change{$pool} };
        $self->violated('oversold seats', undef, "$most of the $Chaos::Client::SEATS{$pool} seats of pool $pool were taken") if $most > $Chaos::Client::SEATS{$pool};
    }
    $self->check_refusal($_) for grep { $_->{op} eq 'acquire' && $_->{outcome} eq 'ok' && $_->{answer} eq '' } @{ $self->{asked} };
}

# Who got no seat: could as many as there are seats have been alive?  After a restart, also of the launcher, there is grace,
# and so there is after the clock was set forward.
sub check_refusal {
    my ($self, $q) = @_;
    my ($pool) = split ' ', $q->{argument};
    return if grep { $q->{after} >= $_->[0] && $q->{before} < $_->[0] + 2 * Chaos::Client::TTL } @{ $self->{clock} };
    return if grep { $_->[0] < $q->{after} && $q->{before} < $_->[1] + 2 * Chaos::Client::TTL } @{ $self->{restarts} };
    my @perhaps = grep { $self->first_at($_->{born}) <= $q->{after} && min($self->known_gone($_), $self->last_at($_->{limit}), last_sign($_) + Chaos::Client::TTL) > $q->{before} }
        grep { ($_->{pool} // '') eq $pool } values %{ $self->{session} };
    $self->violated('refused seats', undef, join "\n", sprintf('at %.6f pool %s had %d sessions that may have been alive (%s)', $q->{before}, $pool, scalar @perhaps, join ' ', map { $_->{key} } @perhaps),
        (map { sprintf '  %.6f  %s', @$_ } grep { abs($_->[0] - $q->{before}) < 10 } @{ $self->{faults} }),
        map { $self->history($_, 1) } sort { $a->{born} <=> $b->{born} } grep { abs($_->{born} - $q->{before}) < 20 && ($_->{pool} // '') eq $pool } values %{ $self->{session} })
        if @perhaps < $Chaos::Client::SEATS{$pool};
}

# All of it; true when nothing is wrong.
sub check {
    my ($self) = @_;
    for my $s (sort { $a->{key} cmp $b->{key} } grep { $_->{kind} } values %{ $self->{session} }) {
        $self->check_once($s);
        $self->check_end($s);
        $self->check_answers($s);
        $self->check_left($s);
        $self->{count}{"ended $_->{type}"}++ for @{ $s->{events} };
        $self->{count}{'rows that cannot go'}++ if $s->{stubborn};
        $self->{count}{sessions}++;
        $self->{count}{ { t => 'acknowledged', f => 'told gone', '' => 'unknown' }->{ says($s, $_) } }++ for grep { $_->{op} eq 'heartbeat' } @{ $s->{asked} };
    }
    $self->check_trace($_) for grep { !$_->{kind} } values %{ $self->{session} };
    $self->check_many;
    $self->check_seats;
    $self->{count}{questions} = @{ $self->{asked} };
    return !%{ $self->{violation} };
}
1;
