#!/usr/bin/perl
# The page of monitoring/page: what page.sh has started is seen through it as SQL
# sees it, by keyboard too, whatever names there are, and over restarts.
use strict;
use warnings;
use utf8;
use HTTP::Tiny;
use IO::Select;
use IO::Socket::INET;
use JSON::PP;
use Time::HiRes qw(time);
use Browser;

my ($root, $private, $pictures) = @ARGV;
my @as_server_user = split ' ', $ENV{AS_SERVER_USER};
my ($passed, $failed) = (0, 0);
my %servers;
my ($documented) = do { open my $fh, '<', "$root/monitoring/README.md" or die "README.md: $!"; local $/; <$fh> } =~ /^ *(PGUSER=page \S+server\.py app)$/m
    or die "monitoring/README.md has no command\n";
$| = 1;
$ENV{PGCLIENTENCODING} = 'UTF8';
binmode STDOUT, ':utf8';

sub ok($$;$) {
    my ($good, $name, $detail) = @_;
    $good ? $passed++ : $failed++;
    print $good ? 'ok' : 'not ok', " - $name\n";
    print map { "#   $_\n" } split /\n/, $detail if !$good && defined $detail;
    return $good;
}
sub is($$$) { my ($has, $wanted, $name) = @_; return ok(($has // '') eq $wanted, $name, 'has:    ' . ($has // 'nothing') . "\nwanted: $wanted") }

sub sql {
    my ($query, $database) = @_;
    open(my $psql, '-|:utf8', 'psql', '-X', '-q', '-A', '-t', '-v', 'ON_ERROR_STOP=1', '-d', $database, '-c', $query) or die "psql: $!";
    local $/;
    return (<$psql> // '') =~ s/\n\z//r;
}
sub sql_json { my ($query, $database) = @_; return JSON::PP->new->allow_nonref->decode(sql("SELECT json_agg(q) FROM ($query) AS q", $database)) }

sub wait_until {
    my ($condition) = @_;
    my $give_up = time + 60;
    until ($condition->()) {
        return 0 if time > $give_up;
        select(undef, undef, undef, 0.1);
    }
    return 1;
}

sub free_port { my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "no port: $!"; return $socket->sockport }

# A page server, by the command of the document; at a port of its own, or at the same one again.
sub serve {
    my ($connection, %more) = @_;
    my $port = $more{port} // free_port();
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        $ENV{PGUSER} = $more{role} // 'page';
        open STDOUT, '>>', "$private/page.log";
        open STDERR, '>&', \*STDOUT;
        exec 'sh', '-c', "cd '$root' && exec env $documented --port $port" if $connection eq 'app';
        exec "$root/monitoring/page/server.py", '--port', $port, $connection or die "server.py: $!";
    }
    $servers{$port} = $pid;
    wait_until(sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) }) or die "the page's server does not start\n";
    return $port;
}
sub stop_serving { my ($port) = @_; my $pid = delete $servers{$port}; kill TERM => $pid; waitpid $pid, 0; return $? }
END { for my $pid (values %servers) { kill TERM => $pid; waitpid $pid, 0 } }

my $browser = Browser->new($private);
END { my $status = $?; $browser->end if $browser; $? = $status }

# A page with its first figures; the marker shows whether it was ever loaded again.
sub visit {
    my ($port) = @_;
    $browser->visit("http://localhost:$port/");
    $browser->js('marker = 1; owned = () => { marker = 0 }');
    return $browser->wait_for(q(document.querySelector('#age').textContent === 'read just now'));
}
sub cells { my ($id) = @_; return $browser->js("[...document.querySelectorAll('#$id tbody tr')].map(tr => [...tr.cells].map(td => td.innerText.trim().replace(/\\n+/g, '\\n')))") }
sub quiet { my ($name) = @_; my $said = $browser->console; return ok($said eq '', "$name: the console is empty", $said) }
# As the page shows a text.
sub visible { return $_[0] =~ s/([\x00-\x09\x0b-\x1f\x7f-\x9f\xad\x{61c}\x{115f}\x{1160}\x{180e}\x{200b}-\x{200f}\x{2028}-\x{202e}\x{2060}-\x{2069}\x{3164}\x{feff}\x{ffa0}\x{e0000}-\x{e007f}])/sprintf '\\u%04x', ord $1/ger }

sub answers {
    my ($port) = @_;
    my $http = HTTP::Tiny->new(timeout => 20);
    my $silent = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
    my $raw = sub {
        my ($request) = @_;
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or return 'no connection';
        print $socket $request =~ s/\n/\r\n/gr;
        return scalar <$socket>;
    };
    my $page = $http->get("http://127.0.0.1:$port/");
    my $policy = $page->{headers}{'content-security-policy'} // '';
    ok($page->{success} && $policy =~ /^default-src 'none';/ && $policy !~ /unsafe|http|\*/, 'the page has a strict Content-Security-Policy', $policy);
    is($page->{headers}{'x-content-type-options'}, 'nosniff', 'and types are not guessed');
    for my $host ('evil.example', "localhost.evil.example:$port", "evil.example\@localhost:$port", "127.0.0.1.evil.example", "localhost:$port:80", '') {
        like_line($raw->("GET /data HTTP/1.1\nHost: $host\nConnection: close\n\n"), 403, "Host \"$host\" gets nothing");
    }
    like_line($raw->("GET /data HTTP/1.0\n\n"), 403, 'nor does a request without Host');
    like_line($raw->("GET /data HTTP/1.1\nHost: $_:$port\nConnection: close\n\n"), 200, "Host $_ is served") for 'localhost', '127.0.0.1', '[::1]';
    like_line($raw->("GET $_ HTTP/1.1\nHost: localhost\nConnection: close\n\n"), 404, "$_ is not served") for '/server.py', '/../server.py', '//etc/passwd', '/page.html';
    like_line($raw->("$_ / HTTP/1.1\nHost: localhost\nConnection: close\n\n"), 501, "$_ is refused") for 'POST', 'DELETE';
    # the local address is the second field of /proc/net/tcp, and 0A is a listener
    my $hex = sprintf '%04X', $port;
    my @listens = map { open my $fh, '<', $_ or (); grep { /^\s*\d+: \S+:$hex \S+ 0A / } <$fh> } '/proc/net/tcp', '/proc/net/tcp6';
    ok(@listens == 1 && $listens[0] =~ / 0100007F:$hex /, 'it listens on the loopback address alone', join '', @listens);
    my @links = map { /(?:src|href)="([^"]*)"|url\(([^)]*)\)/g } $page->{content}, $http->get("http://127.0.0.1:$port/uPlot.css")->{content};
    ok(IO::Select->new($silent)->can_read(60) && !sysread($silent, my $byte, 1), 'a client that asks nothing is given up');
    is(join(' ', grep { defined && !/^(?:uPlot\.(?:js|css)$|data:)/ } @links), '', 'the page loads nothing from elsewhere');
}
sub like_line { my ($line, $status, $name) = @_; return ok(($line // '') =~ m{^HTTP/1\.[01] $status }, $name, $line) }

# Of a busy server each figure lies between what SQL says before and after.
sub busy_content {
    my ($port) = @_;
    my $query = q(SELECT policy, expired, percent FROM sweeper.policy_status WHERE policy NOT LIKE 'sweeper.%');
    my $wrong;
    my $same = wait_until(sub {
        my %before = map { $_->{policy} => $_ } @{ sql_json($query, 'app') };
        my $stamp = $browser->js('last.history.length');
        $browser->wait_for("last.history.length > $stamp + 1");
        my %row = map { $_->[0] => $_ } @{ cells('policies') };
        my %after = map { $_->{policy} => $_ } @{ sql_json($query, 'app') };
        $wrong = join "\n", map { "$_: " . join ' | ', @{ $row{$_} // [] } } grep {
            my $expired = ($row{$_}[5] // 'none') =~ s/,//gr;
            $expired !~ /^\d+$/ || $expired < $before{$_}{expired} || $expired > $after{$_}{expired}
        } sort keys %after;
        return $wrong eq '' && keys %row == keys %after;
    });
    ok($same, 'a busy server: policies and their expired rows are those of SQL', $wrong);
    ok($browser->wait_for(q([...document.querySelectorAll('#policies tr')].some(tr => tr.cells[0].innerText === 'token' && /^\d+\.\d % · [\d,]+ rows\/s · .* left$/.test(tr.cells[4].innerText.trim()) && tr.querySelector('progress').value > 0))),
        'a backlog has its percent, its rate and the time left', join "\n", map { join ' | ', @$_ } @{ cells('policies') });
    ok($browser->wait_for(q([...document.querySelectorAll('#passes tr')].some(tr => tr.cells[0].innerText === 'token' && /^running|^waiting/.test(tr.cells[1].innerText)))), 'and is among the passes');
    ok($browser->wait_for(q([...document.querySelectorAll('.big')].every(e => e.textContent !== '–') && document.querySelectorAll('.chart canvas').length === 3)), 'the charts have figures');
    ok($browser->wait_for(q([...document.querySelectorAll('canvas')].every(c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((v, i) => i % 4 === 3 && v > 0).length > 500))), 'and lines');
    my ($completed, $failures) = split /\|/, sql(q(SELECT count(*) FILTER (WHERE status = 'completed') > 0, count(*) FILTER (WHERE status = 'failed') > 0 FROM sweeper.task_info), 'app');
    ok($completed eq 't' && $browser->wait_for(q(/last hour: .*\d completed/.test(document.querySelector('#hour').innerText))), 'what tasks ended in the last hour');
    is(sql(q(SELECT string_agg(DISTINCT concat_ws(' ', usename, backend_type), ',') FROM pg_stat_activity WHERE application_name = 'session_sweeper page'), 'app'), 'page client backend', 'its session has a name');
    is($browser->js('last.figures.read_only'), 'on', 'and is read-only');
}

sub hostile_content {
    wait_until(sub { sql(q(SELECT count(*) FROM sweeper.problem), 'hostile') >= 4 && $browser->js('last.figures.problems.length') == sql(q(SELECT count(*) FROM sweeper.problem), 'hostile') });
    $browser->wait_for('last.figures.tasks && last.figures.problems.length === document.querySelectorAll("#problems tbody tr").length');
    my @policies = @{ sql_json(q(SELECT policy, relation, state, brakes, backlog, expired FROM sweeper.policy_status WHERE policy NOT LIKE 'sweeper.%'), 'hostile') };
    my %row = map { (split /\n/, $_->[0])[0] => $_ } @{ cells('policies') };
    is(scalar(keys %row), scalar(@policies), 'each policy has a row');
    for my $policy (@policies) {
        my $row = $row{ visible($policy->{policy}) } // [];
        is((split /\n/, $row->[1] // '')[0], $policy->{state}, visible("$policy->{policy}: state"));
        is($row->[3], $policy->{backlog} // 'not counted', 'and backlog');
        is($row->[5], $policy->{expired}, 'and expired');
    }
    my $steps = $browser->js(q([...document.querySelectorAll('#problems code')].map(c => c.textContent).sort().join('\n')));
    my $wanted = join "\n", sort map { visible($_->{next_step}) } @{ sql_json('SELECT next_step FROM sweeper.problem', 'hostile') };
    is($steps, $wanted, 'the next step of each problem is there');
    my %pool = map { $_->[0] => $_ } @{ cells('pools') };
    is(join('|', map { s/\s+/ /gr } @{ $pool{'<b onclick=owned()>pool</b>'} }[1, 2]), '3 of 4|1', 'seats of a pool, and those that are free');
    is(join('|', map { s/\s+/ /gr } @{ $pool{full} }[1, 2]), '1 of 1|▲ full', 'a full pool says so');
    is($pool{'any number'}[1], '0 of any number', 'a pool of any number');
    my %job = map { (split /\n/, $_->[0])[0] => $_ } @{ cells('jobs') };
    is(join('|', @{ $job{'</script>'} }[1 .. 3]), '1|2|1', 'workers, waiting and running tasks of a job');
    is(join('|', @{ $job{'nobody works'} }[1 .. 3]), '▲ none|1|0', 'a job without a worker');
    my ($task) = @{ cells('tasks') };
    is($task->[0], "<script> / owned() / </script>\nby <img src=x onerror=owned()>", 'a task, with the name of its worker');
    is($task->[1], '3 of 12 · <img src=x onerror=owned()>', 'its progress and message');
    ok($browser->js(q(document.body.innerText)) =~ m{</td></table><img src=x onerror="owned\(\)">\\u0007}, 'an error is shown as it is');
    is($browser->js(q(document.querySelectorAll('main :is(img, svg, script, iframe, i, b[onclick])').length)), 0, 'no name has become an element');
    is($browser->js('marker'), 1, 'and none has run');
    unlike_page(qr/[\x{202e}\x{2028}\x07\x{61c}\x{115f}\x{1160}\x{180e}\x{3164}\x{ffa0}\x{e0041}]/, 'characters that hide, or change the order of others, are shown as numbers');
    my $left_out = $browser->call('Accessibility.getFullAXTree')->{nodes};
    my %names;
    push @{ $names{ $_->{role}{value} } }, $_->{name}{value} for grep { !$_->{ignored} } @$left_out;
    is(scalar(grep { /\w/ } @{ $names{table} }), 6, 'six tables have captions');
    ok(!(grep { !/\w/ } @{ $names{progressIndicator} // $names{progressbar} // [''] }), 'bars have names');
}
sub unlike_page { my ($pattern, $name) = @_; my $text = $browser->js('document.body.textContent'); return ok($text !~ $pattern, $name) }

# Tab to a Copy button, press it, and stay there.
sub keyboard {
    my ($database) = @_;
    $browser->call('Browser.grantPermissions', permissions => [ 'clipboardReadWrite', 'clipboardSanitizedWrite' ]);
    my $steps = sql_json('SELECT next_step FROM sweeper.problem', $database);
    my %wanted = map { $_->{next_step} => 1 } @$steps;
    my %copied;
    $browser->js('document.activeElement.blur()');
    for my $n (1 .. @$steps) {
        $browser->key('Tab');
        last if $browser->js('document.activeElement.tagName') ne 'BUTTON';
        ok($browser->js(q(getComputedStyle(document.activeElement).outlineStyle)) eq 'solid', 'the focus is visible') if $n == 1;
        $n % 2 ? $browser->key('Enter', "\r") : $browser->key(' ', ' ');
        $browser->wait_for(q(document.activeElement.textContent === 'Copied'), 5);
        ok($browser->wait_for(q(/clipboard/.test(document.querySelector('#copied').textContent))), 'a screen reader hears that it is copied') if $n == 1;
        $copied{ $browser->js('navigator.clipboard.readText()') } = 1;
    }
    is(join("\n", sort keys %copied), join("\n", sort keys %wanted), 'Tab leads to each Copy button; Enter and Space copy the statement of SQL');
    $browser->js('pressed = document.activeElement, 0');
    my $stamp = $browser->js('last.history.length');
    $browser->wait_for("last.history.length > $stamp + 2");
    ok($browser->js(q(document.activeElement === pressed && pressed.isConnected && pressed.tagName === 'BUTTON')), 'the focus stays while figures change');
    $browser->key('Tab');
    $browser->key(' ', ' ');
    ok($browser->wait_for(q([...document.querySelectorAll('#policies b')].some(b => b.textContent === 'sweeper.session'))), 'Tab and Space show the built-in policies');
    $browser->key(' ', ' ');
}

# Text against what is behind it, as WCAG measures it.
my $contrast = <<'JS';
(() => {
  const part = v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => { const [r, g, b] = c.match(/[\d.]+/g).map(Number); return .2126 * part(r) + .7152 * part(g) + .0722 * part(b); };
  const back = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  return [...document.querySelectorAll('body *')].filter(e => e.offsetParent && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(back(e))].sort((x, y) => y - x);
    return [(a + .05) / (b + .05), e.tagName + '.' + e.className + ' ' + e.textContent.slice(0, 20)];
  }).filter(([ratio]) => ratio < 4.5).map(([ratio, name]) => ratio.toFixed(2) + ' ' + name).join('\n');
})()
JS

sub looks {
    my ($name) = @_;
    my %back;
    for my $scheme ('light', 'dark') {
        $browser->prefers('color-scheme' => $scheme);
        $back{$scheme} = $browser->js('getComputedStyle(document.body).backgroundColor');
        is($browser->js($contrast), '', "$name, $scheme: the contrast of each text is at least 4.5");
    }
    ok($back{light} ne $back{dark}, "$name: dark mode is dark", "$back{light} $back{dark}");
    $browser->prefers('color-scheme' => 'light', 'reduced-motion' => 'reduce');
    is($browser->js(q([...document.querySelectorAll('*')].filter(e => getComputedStyle(e).transitionDuration !== '0s' || getComputedStyle(e).animationName !== 'none').length)), 0, "$name: nothing moves for those who do not want it");
    for my $width (360, 320, 800, 1240) {
        $browser->size($width, 900);
        ok($browser->js('document.documentElement.scrollWidth') <= $width, "$name: no horizontal scrolling at $width pixels",
            $browser->js("[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > $width && e.offsetParent).map(e => e.tagName + '.' + e.className).slice(0, 5).join()"));
        next if $width != 360 || $name =~ /empty/;
        my $nodes = $browser->call('Accessibility.getFullAXTree')->{nodes};
        ok((grep { $_->{role}{value} eq 'table' } @$nodes) >= 2 && (grep { $_->{role}{value} =~ /^columnheader$/i } @$nodes) > 0, "$name: tables are tables on a narrow screen, too");
    }
}

sub take_pictures {
    my @shots = ([ 'page-light', 1100, 1020, 'light' ], [ 'page-dark', 1100, 1020, 'dark' ], [ 'page-narrow', 360, 1080, 'light' ]);
    for my $shot (@shots) {
        my ($name, $width, $height, $scheme) = @$shot;
        $browser->prefers('color-scheme' => $scheme);
        $browser->size($width, $height);
        my $stamp = $browser->js('last.history.length');
        $browser->wait_for("last.history.length > $stamp");
        $browser->screenshot("$pictures/$name.png");
        my $size = -s "$pictures/$name.png";
        ok($size > 10_000 && $size < 150_000, "picture $name", "$size bytes");
    }
}

sub pg_ctl { my (@arguments) = @_; return system('sh', '-c', '"$@" </dev/null >/dev/null 2>&1', 'sh', @as_server_user, 'timeout', '90', 'pg_ctl', '-w', @arguments) == 0 }

# The page keeps what it has, says since when, and recovers without being loaded again.
sub restarts {
    my ($port) = @_;
    my $before = join '|', sort map { $_->[0] } @{ cells('policies') };
    my $away = sub {
        my ($name, $pattern) = @_;
        ok($browser->wait_for("!document.querySelector('#banner').hidden && /$pattern/.test(document.querySelector('#says').textContent)"), "$name: the page says so", $browser->js(q(document.querySelector('#banner').innerText)));
        ok($browser->wait_for(q(/^The figures below are (\d+ s|\d\.\d s|\d+ min( \d+ s)?) old/.test(document.querySelector('#old').textContent) && document.querySelector('#state').textContent === 'not connected')), "$name: and how old its figures are");
        my $age = $browser->js('+parseFloat(document.querySelector("#old").textContent.match(/[\d.]+/)[0])');
        ok($browser->wait_for("parseFloat(document.querySelector('#old').textContent.match(/[\\d.]+/)[0]) > $age"), "$name: they grow older");
        is(join('|', sort map { $_->[0] } @{ cells('policies') }), $before, "$name: the last figures are kept");
        is($browser->js($contrast), '', "$name: and can be read");
    };
    my $back = sub {
        my ($name) = @_;
        ok($browser->wait_for(q(document.querySelector('#banner').hidden && document.querySelector('#state').textContent === 'on' && document.querySelector('#age').textContent === 'read just now')), "$name: it recovers",
            $browser->js(q(document.querySelector('#banner').innerText)));
        is($browser->js('marker'), 1, "$name: without being loaded again");
    };
    pg_ctl('-D', "$private/data", '-m', 'fast', 'stop') or die "pg_ctl stop failed\n";
    $away->('the database is down', 'The database cannot be read: ');
    pg_ctl('-D', "$private/data", '-l', "$private/server.log", 'start') or die "pg_ctl start failed\n";
    $back->('the database is back');
    is(sql(q(SELECT count(*) FROM (SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'session_sweeper page' AND datname = 'hostile') AS t), 'hostile'), 1, 'its session is terminated');
    ok(wait_until(sub { sql(q(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'session_sweeper page' AND datname = 'hostile' AND state = 'idle'), 'hostile') eq '1' }), 'another one follows');
    $back->('the session is back');
    quiet('until here');

    # a server that neither answers nor ends
    my $pid;
    wait_until(sub { ($pid = sql(q(SELECT pid FROM pg_stat_activity WHERE application_name = 'session_sweeper page' AND datname = 'hostile'), 'hostile')) =~ /^\d+$/ }) or die "no session\n";
    kill STOP => $pid;
    $away->('the session hangs', 'the server has not answered for 15 s');
    kill CONT => $pid;
    $back->('another session answers');
    quiet('then, too');

    stop_serving($port);
    $away->('the server of the page is down', 'The server of this page does not answer');
    serve('hostile', port => $port);
    $back->('the server of the page is back');
    $browser->console;    # requests that were refused

    # a lock on what the views read, longer than the page waits
    open(my $lock, '|-', 'psql', '-X', '-q', '-d', 'hostile', '-o', "$private/out") or die "psql: $!";
    $lock->autoflush;
    print $lock "BEGIN; LOCK TABLE sweeper.policy_change, sweeper.pass;\n";
    $away->('a locked table', 'A table of the extension is locked');
    print $lock "ROLLBACK;\n";
    close $lock;
    $back->('the lock is gone');
    quiet('to the end');
}

sub sentences {
    for my $case (
        [ 'plain', 'page', qr/^Database "plain" does not have the extension\. Create it there/, 'CREATE EXTENSION session_sweeper;' ],
        [ 'hostile', 'no "right', qr/^Role "no "right" does not have access level monitor in database "hostile"\./, q(SELECT sweeper.grant_access('"no ""right"', 'monitor');) ],
        [ 'no{where}', 'page', qr/^The database cannot be read: .*database "no\{where\}" does not exist/, '' ]) {
        my ($database, $role, $says, $statement) = @$case;
        my $port = serve($database, role => $role);
        $browser->visit("http://localhost:$port/");
        $browser->wait_for(q(!document.querySelector('#banner').hidden));
        my $text = $browser->js(q(document.querySelector('#says').textContent));
        ok($text =~ $says, "$database, $role: a sentence says what is wrong", $text);
        is($browser->js(q(document.querySelector('#fix code').textContent)), $statement, 'with the statement that helps, if there is one');
        is($browser->js($contrast), '', 'and can be read');
        if ($statement) {
            sql($statement, $database);
            sql(q(SELECT sweeper.grant_access('page', 'monitor')), $database) if $database eq 'plain';
            ok($browser->wait_for(q(document.querySelector('#banner').hidden && document.querySelector('#state').textContent === 'on')), 'after which the page works', $browser->js('document.body.innerText'));
        }
        stop_serving($port);
    }
    my $port = serve('host=' . $ENV{PGHOST} . ' port=5433 dbname=hostile');
    visit($port);
    ok($browser->js(q(document.querySelector('#says').textContent)) =~ /^This server is a standby/ && $browser->js(q(document.querySelector('#state').textContent)) eq 'standby', 'a standby is called so', $browser->js('document.body.innerText'));
    ok(@{ cells('policies') } == 3, 'and shows the policies');
    stop_serving($port);
    $browser->console;
}

# make demo DEMO=page, of which the first part is any demo's.
sub demo {
    my $port = free_port();
    my $pid = fork // die "fork: $!";
    if (!$pid) {
        @ENV{qw(PORT SECONDS_SHOWN)} = ($port, 600);
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', "$private/demo.log";
        open STDERR, '>&', \*STDOUT;
        exec "$root/tools/demo-page.sh" or die "demo-page.sh: $!";
    }
    ok(wait_until(sub { (HTTP::Tiny->new->get("http://localhost:$port/data")->{content} // '') =~ /"policy": "login"/ }), 'the demo shows its page');
    kill TERM => $pid;
    waitpid $pid, 0;
    my ($log, $folder) = do { open my $fh, '<', "$private/demo.log" or die "demo.log: $!"; local $/; map { $_, m{private cluster in (\S+)} } <$fh> };
    ok($? >> 8 == 143 && !-e $folder, 'and leaves nothing when it is ended', $log);
}

my $load = fork // die "fork: $!";
if (!$load) {
    open STDERR, '>', "$private/load.log";
    exec 'psql', '-X', '-q', '-d', 'app', '-c', 'CALL load(300)' or die "psql: $!";
}
# a backlog that lasts for minutes from now on
sql(q(CREATE TABLE token (id int PRIMARY KEY, d timestamptz NOT NULL); CREATE INDEX ON token (d);
    INSERT INTO token SELECT i, now() - i * interval '1 s' FROM generate_series(1, 40000) AS i;
    SELECT FROM sweeper.register('token', policy => 'token', deadline => 'd', start => 'now', backlog_rate => 150)), 'app');
my $app = serve('app');
answers($app);
$browser->size(1240, 900);
visit($app);
busy_content($app);
quiet('a busy server');
$browser->wait_for('last.history.length >= ' . ($pictures eq $private ? 3 : 40), 120);
take_pictures();
looks('a busy server');
stop_serving($app);
sql(q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CALL load%'), 'app');
waitpid $load, 0;
$browser->console;

my $hostile = serve('hostile');
visit($hostile);
hostile_content();
keyboard('hostile');
looks('hostile names');
quiet('hostile names');
restarts($hostile);
is($browser->js('marker'), 1, 'no name has run in the end');
stop_serving($hostile);

my $empty = serve('empty');
visit($empty);
my $text = $browser->js('document.body.innerText');
ok($text =~ /No problems/ && $text =~ /No policy yet.*sweeper\.register\(/s && $text =~ /No pool.*create_pool\(/s && $text =~ /No job.*create_job\(/s && $text =~ /No task runs/, 'where nothing is, the page says how to begin', $text);
looks('an empty database');
stop_serving($empty);
$browser->console;
sentences();
demo();
ok(wait_until(sub { sql(q(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'session_sweeper page'), 'postgres') eq '0' }), 'no session is left when the servers have ended');
print "$passed passed, $failed failed\n";
exit($failed != 0 || $passed == 0);
