# A headless Chromium with one page, driven by DevTools over two pipes.
package Browser;
use strict;
use warnings;
use JSON::PP;
use MIME::Base64 qw(decode_base64);
use POSIX ();
use Time::HiRes qw(time);

my $json = JSON::PP->new->utf8->allow_nonref;

sub new {
    my ($class, $folder) = @_;
    pipe(my $in, my $to)    or die "pipe: $!";
    pipe(my $from, my $out) or die "pipe: $!";
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        # Chromium reads from 3 and writes to 4, which may be ours.
        my ($read, $write) = map { above($_) } fileno $in, fileno $out;
        POSIX::dup2($read, 3);
        POSIX::dup2($write, 4);
        open STDERR, '>', "$folder/chromium.log";
        exec 'chromium-headless-shell', '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', '--hide-scrollbars', "--user-data-dir=$folder/chromium", 'about:blank'
            or POSIX::_exit(1);
    }
    close $in;
    close $out;
    my $self = bless { pid => $pid, to => $to, from => $from, buffer => '', id => 0, said => [] }, $class;
    my $target = $self->call('Target.createTarget', url => 'about:blank')->{targetId};
    $self->{session} = $self->call('Target.attachToTarget', targetId => $target, flatten => JSON::PP::true)->{sessionId};
    $self->call("$_.enable") for qw(Page Runtime Log);
    return $self;
}

# Above all numbers that pipes and files have here.
sub above { my ($fd) = @_; my $high = 30 + $fd; POSIX::dup2($fd, $high); return $high }

sub call {
    my ($self, $method, %parameters) = @_;
    my $id = ++$self->{id};
    my %message = (id => $id, method => $method, params => \%parameters);
    $message{sessionId} = $self->{session} if $self->{session};
    syswrite $self->{to}, $json->encode(\%message) . "\0";
    my $end;
    while (1) {
        while (($end = index $self->{buffer}, "\0") < 0) {
            my $ready = '';
            vec($ready, fileno $self->{from}, 1) = 1;
            select($ready, undef, undef, 60) or die "the browser does not answer $method\n";
            sysread($self->{from}, $self->{buffer}, 65536, length $self->{buffer}) or die "the browser has ended\n";
        }
        my $answer = $json->decode(substr $self->{buffer}, 0, $end);
        substr($self->{buffer}, 0, $end + 1) = '';
        if (($answer->{id} // 0) == $id) {
            die "$method: $answer->{error}{message}\n" if $answer->{error};
            return $answer->{result};
        }
        push @{ $self->{said} }, $json->encode($answer->{params})
            if ($answer->{method} // '') =~ /^(?:Runtime\.exceptionThrown|Runtime\.consoleAPICalled|Log\.entryAdded)$/;
    }
}

# What the page has written to the console since the last call: errors, warnings, refused resources.
sub console {
    my ($self) = @_;
    $self->js('1');
    return join("\n", splice @{ $self->{said} });
}

sub js {
    my ($self, $expression) = @_;
    my $answer = $self->call('Runtime.evaluate', expression => $expression, returnByValue => JSON::PP::true, awaitPromise => JSON::PP::true, userGesture => JSON::PP::true);
    die "$expression: " . ($answer->{exceptionDetails}{exception}{description} // 'error') . "\n" if $answer->{exceptionDetails};
    return $answer->{result}{value};
}

# Until the expression is true; its last value.
sub wait_for {
    my ($self, $expression, $limit) = @_;
    my $give_up = time + ($limit // 60);
    while (1) {
        my $value = eval { $self->js($expression) };
        return $value if $value || time > $give_up;
        select(undef, undef, undef, 0.1);
    }
}

sub visit {
    my ($self, $url) = @_;
    $self->call('Page.navigate', url => $url);
    return $self->wait_for(q(document.readyState === 'complete' && location.href !== 'about:blank'));
}

sub size {
    my ($self, $width, $height) = @_;
    $self->call('Emulation.setDeviceMetricsOverride', width => $width, height => $height, deviceScaleFactor => 1, mobile => JSON::PP::false);
    $self->js('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))');
}

sub prefers {
    my ($self, %features) = @_;
    $self->call('Emulation.setEmulatedMedia', features => [ map { { name => "prefers-$_", value => $features{$_} } } keys %features ]);
}

sub key {
    my ($self, $key, $text) = @_;
    my %code = (Tab => 9, Enter => 13, ' ' => 32);
    my %press = (key => $key, code => $key eq ' ' ? 'Space' : $key, windowsVirtualKeyCode => $code{$key});
    $self->call('Input.dispatchKeyEvent', type => 'keyDown', %press, defined $text ? (text => $text) : ());
    $self->call('Input.dispatchKeyEvent', type => 'keyUp', %press);
}

sub screenshot {
    my ($self, $file) = @_;
    open(my $out, '>:raw', $file) or die "$file: $!";
    print $out decode_base64($self->call('Page.captureScreenshot', format => 'png')->{data});
    close $out;
}

sub end {
    my ($self) = @_;
    kill KILL => $self->{pid};
    waitpid $self->{pid}, 0;
}

1;
