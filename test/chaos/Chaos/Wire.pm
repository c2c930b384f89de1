# A connection to PostgreSQL in the process itself: whoever is killed or stopped is
# the client, and not a psql that works for it.  Simple queries over a Unix socket.
package Chaos::Wire;
use strict;
use warnings;
use IO::Select;
use IO::Socket::UNIX;
use constant { PROTOCOL => 3 << 16, PATIENCE => 120 };

# Null when the server does not take us.
sub connect {
    my ($class, $host, $port, $name) = @_;
    my $socket = IO::Socket::UNIX->new(Peer => "$host/.s.PGSQL.$port") or return;
    my $self = bless { socket => $socket, buffer => '', status => '' }, $class;
    my $body = pack('N', PROTOCOL) . join("\0", user => scalar getpwuid($>), database => 'postgres', application_name => $name) . "\0\0";
    return unless $self->write(pack('N', 4 + length $body) . $body);
    return $self->answer->{lost} || !$self->{pid} ? undef : $self;
}

sub pid { return $_[0]{pid} }

# { rows => [[…], …], error => SQLSTATE, message, lost => 1 }: all rows of all its statements.
sub query {
    my ($self, $sql) = @_;
    $self->begin($sql);
    return $self->finish;
}

# The same in two halves, with time for something else between.
sub begin {
    my ($self, $sql) = @_;
    $self->{sent} = $self->write('Q' . pack('N', 5 + length $sql) . "$sql\0");
}

sub finish {
    my ($self) = @_;
    my $answer = $self->{sent} ? $self->answer : { lost => 1, rows => [] };
    # an error within BEGIN … COMMIT
    $self->query('ROLLBACK') if !$answer->{lost} && $self->{status} eq 'E';
    return $answer;
}

sub write {
    my ($self, $bytes) = @_;
    local $SIG{PIPE} = 'IGNORE';
    while (length $bytes) {
        my $n = syswrite $self->{socket}, $bytes;
        next if !defined $n && $!{EINTR};
        return 0 unless $n;
        substr($bytes, 0, $n) = '';
    }
    return 1;
}

# Exactly so many bytes.
sub read {
    my ($self, $want) = @_;
    while (length $self->{buffer} < $want) {
        unless (IO::Select->new($self->{socket})->can_read(PATIENCE)) {
            next if $!{EINTR};
            return;
        }
        my $n = sysread $self->{socket}, $self->{buffer}, 65536, length $self->{buffer};
        next if !defined $n && $!{EINTR};
        return unless $n;
    }
    return substr $self->{buffer}, 0, $want, '';
}

# What comes until the server is ready again.
sub answer {
    my ($self) = @_;
    my %answer = (rows => []);
    while (defined(my $head = $self->read(5))) {
        my ($type, $length) = unpack 'a N', $head;
        my $body = $self->read($length - 4);
        last unless defined $body;
        if ($type eq 'D') {
            push @{ $answer{rows} }, columns($body);
        } elsif ($type eq 'E') {
            my %field = map { substr($_, 0, 1) => substr $_, 1 } grep { length } split /\0/, $body;
            $answer{error} //= $field{C};
            $answer{message} //= $field{M};
        } elsif ($type eq 'K') {
            ($self->{pid}) = unpack 'N', $body;
        } elsif ($type eq 'Z') {
            $self->{status} = $body;
            return \%answer;
        }
    }
    # a backend's last word, if any, is an error of class 57P
    $answer{lost} = 1;
    return \%answer;
}

sub columns {
    my ($body) = @_;
    my ($n, $at) = (unpack('n', $body), 2);
    my @columns;
    for (1 .. $n) {
        my $length = unpack 'N', substr $body, $at, 4;
        $at += 4;
        if ($length == 0xFFFFFFFF) { push @columns, undef; next }
        push @columns, substr $body, $at, $length;
        $at += $length;
    }
    return \@columns;
}
1;
