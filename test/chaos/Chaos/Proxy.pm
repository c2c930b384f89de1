# A TCP proxy in a process of its own: what lies between two nodes.  Its mode is in a file:
#   pass    all goes through
#   delay   each piece waits 0.2 s
#   drop    nothing goes through, and nobody is told; it goes on when the mode changes
#   reset   connections are reset, and new ones, too
package Chaos::Proxy;
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use Time::HiRes qw(time sleep);

use constant { DELAY => 0.2, LOOK => 0.05, MOST => 1 << 18 };

sub new {
    my ($class, %arg) = @_;    # file, to
    my $listen = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1', ReuseAddr => 1) or die "listen: $!";
    my $self = bless { %arg, port => $listen->sockport }, $class;
    $self->mode('pass');
    my $parent = $$;
    my $pid = fork // die "fork: $!";
    if ($pid == 0) {
        @$self{qw(listen parent)} = ($listen, $parent);
        eval { $self->run };
        print STDERR "proxy: $@" if $@;
        require POSIX;
        POSIX::_exit(1);
    }
    $self->{pid} = $pid;
    return $self;
}

sub port { return $_[0]{port} }

sub mode {
    my ($self, $mode) = @_;
    open(my $fh, '>', "$self->{file}.new") or die "$self->{file}: $!";
    print $fh $mode;
    close $fh;
    rename "$self->{file}.new", $self->{file} or die "rename: $!";
    return;
}

sub stop { my ($self) = @_; kill 'KILL', $self->{pid}; waitpid $self->{pid}, 0; return }

sub now_mode {
    my ($self) = @_;
    open(my $fh, '<', $self->{file}) or return 'pass';
    return <$fh> // 'pass';
}

# One end: { socket, peer, buffer, since }; what was read from it goes to its peer.
sub run {
    my ($self) = @_;
    my (%end, $mode);
    my $drop = sub {
        my ($e) = @_;
        for my $x ($e, $e->{peer}) {
            setsockopt($x->{socket}, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0));
            delete $end{ $x->{socket} };
            close $x->{socket};
        }
    };
    local $SIG{PIPE} = 'IGNORE';
    while (getppid() == $self->{parent}) {
        $mode = $self->now_mode;
        if ($mode eq 'reset') { $drop->((values %end)[0]) while %end }
        my $now = time;
        my $late = sub { $mode ne 'delay' || $now - $_[0]{since} >= DELAY };
        my @flowing = $mode eq 'drop' ? () : values %end;
        my ($readable, $writable) = IO::Select->select(
            IO::Select->new($self->{listen}, map { $_->{socket} } grep { !$_->{eof} && length $_->{buffer} < MOST } @flowing),
            IO::Select->new(map { $_->{peer}{socket} } grep { length $_->{buffer} && $late->($_) } @flowing), undef, LOOK);
        for my $socket (@{ $readable // [] }) {
            if ($socket == $self->{listen}) {
                my $in = $socket->accept or next;
                my $out = $mode ne 'reset' && IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{to});
                unless ($out) { setsockopt($in, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0)); close $in; next }
                my ($x, $y) = map { $_->blocking(0); { socket => $_, buffer => '', since => 0 } } $in, $out;
                ($x->{peer}, $y->{peer}) = ($y, $x);
                $end{$in} = $x, $end{$out} = $y;
                next;
            }
            my $e = $end{$socket} or next;
            $e->{since} = $now unless length $e->{buffer};
            my $n = sysread $socket, $e->{buffer}, 65536, length $e->{buffer};
            next if !defined $n && ($!{EAGAIN} || $!{EINTR});
            if (!$n) { $e->{eof} = 1; $drop->($e) unless length $e->{buffer} }
        }
        for my $socket (@{ $writable // [] }) {
            my $to = $end{$socket} or next;
            my $e = $to->{peer};
            my $n = syswrite $socket, $e->{buffer};
            next if !defined $n && ($!{EAGAIN} || $!{EINTR});
            if (!defined $n) { $drop->($e); next }
            substr($e->{buffer}, 0, $n) = '';
            $drop->($e) if $e->{eof} && !length $e->{buffer};
        }
    }
    return;
}
1;
