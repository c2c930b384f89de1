#!/usr/bin/perl
# What must be true of a server, an exporter and a Prometheus that run.sh has
# started: one line a check, then "N passed, N failed".
use strict;
use warnings;
use utf8;
use HTTP::Tiny;
use JSON::PP;
use Time::HiRes qw(time);

my ($root, $private, $pg_bin, $exporter, $prometheus, $load, $from, $to, $pictures) = @ARGV;
my $limit = 60;    # seconds until a wait is given up
my ($passed, $failed) = (0, 0);
$| = 1;
$ENV{PGCLIENTENCODING} = 'UTF8';
binmode STDOUT, ':utf8';

# Its prototype gives a failed match its false value; in a list it would be none.
sub ok($$;$) {
    my ($good, $name, $detail) = @_;
    $good ? $passed++ : $failed++;
    print $good ? 'ok' : 'not ok', " - $name\n";
    print map { "#   $_\n" } split /\n/, $detail if !$good && defined $detail;
    return $good;
}

sub wait_until {
    my ($condition) = @_;
    my $give_up = time + $limit;
    until ($condition->()) {
        return 0 if time > $give_up;
        select(undef, undef, undef, 0.1);
    }
    return 1;
}

sub get {
    my ($port, $path, %form) = @_;
    my $http = HTTP::Tiny->new(timeout => 20);
    my $answer = $http->get("http://127.0.0.1:$port$path" . (%form ? '?' . $http->www_form_urlencode(\%form) : ''));
    return $answer->{content};
}

# The samples that Prometheus answers, or its error.
sub ask {
    my ($query) = @_;
    my $answer = eval { decode_json(get($prometheus, '/api/v1/query', query => $query)) };
    return ([], $@ || $answer->{error}) unless $answer && $answer->{status} eq 'success';
    my $result = $answer->{data}{result};
    return ($answer->{data}{resultType} eq 'vector' ? $result : [ { metric => {}, value => $result } ], undef);
}

sub sql {
    my ($query, $database) = @_;
    open(my $psql, '-|', "$pg_bin/psql", '-X', '-q', '-A', '-t', '-d', $database // 'app', '-c', $query) or die "psql: $!";
    local $/;
    return scalar <$psql>;
}

sub run {
    my (@command) = @_;
    open(my $out, '-|', @_) or die "$_[0]: $!";
    my $text = do { local $/; <$out> };
    close $out;
    return ($? == 0, $text);
}

sub slurp { my ($file) = @_; open(my $fh, '<', $file) or die "$file: $!"; local $/; return scalar <$fh> }

# A series as text: its name and its labels in order, without those of the scrape.
sub name_of {
    my ($labels) = @_;
    my %l = %$labels;
    my $name = delete $l{__name__};
    delete @l{qw(instance job server)};
    return $name . '{' . join(',', map { "$_=$l{$_}" } sort keys %l) . '}';
}

sub said_by_sql {
    my $query = q(SELECT json_agg(json_build_object('labels', labels || jsonb_build_object('__name__', metric), 'value', value)) FROM sweeper.metrics);
    return { map { name_of($_->{labels}) => $_->{value} } map { @{ decode_json(sql($query, $_)) } } 'app', 'latin' };
}

sub static_checks {
    my ($config, $out) = run('promtool', 'check', 'config', "$root/monitoring/prometheus.yml");
    ok($config, 'promtool check config', $out);
    for my $verb ('check', 'test') {
        my ($good, $text) = run('promtool', $verb, 'rules', "$root/monitoring/" . ($verb eq 'test' ? 'rules_test.yml' : 'rules.yml'));
        ok($good, "promtool $verb rules", $text);
    }
    my $file = "$private/metrics.txt";
    open(my $fh, '>', $file) or die "$file: $!";
    print $fh sql('SELECT sweeper.metrics_text(pools => true)');
    close $fh;
    my ($good, $text) = run('sh', '-c', "grep -v '^\$' '$file' | promtool check metrics 2>&1");
    ok($good, 'promtool check metrics, of metrics_text()', $text);
}

# Of each alert a case in which it fires and one in which it does not.
sub cases_checked {
    my ($rules) = @_;
    my $tests = slurp("$root/monitoring/rules_test.yml");
    for my $alert (map { $_->{name} } @$rules) {
        my ($fires) = $tests =~ /^  - name: '$alert fires:.*?exp_samples: \[(.*?)\]$/ms;
        my ($calm) = $tests =~ /^  - name: '$alert does not fire:.*?exp_samples: \[(.*?)\]$/ms;
        ok(($fires // '') =~ /alertname="$alert"/ && ($calm // 'none') eq '', "$alert has a case that fires and one that does not");
    }
}

sub exporter_checks {
    my $up = wait_until(sub { (get($exporter, '/metrics') // '') =~ /^session_sweeper_value/m });
    ok($up, 'the exporter returns the rows of the view', slurp("$private/exporter.log"));
    wait_until(sub { sql(q(SELECT count(*) FROM pg_stat_activity WHERE usename = 'prometheus' AND datname = 'plain')) > 0 });
    my $text = get($exporter, '/metrics');
    ok(sql(q(SELECT string_agg(DISTINCT datname, ' ' ORDER BY datname) FROM pg_stat_activity WHERE usename = 'prometheus')) eq "app latin plain postgres\n",
        'it has been in all databases');
    for my $metric (qw(pg_exporter_last_scrape_error pg_exporter_user_queries_load_error)) {
        ok($text =~ /^$metric(?:\{[^}]*\})? 0$/m, "$metric is 0", slurp("$private/exporter.log"));
    }
    my ($seconds) = $text =~ /^pg_exporter_last_scrape_duration_seconds (\S+)/m;
    ok($seconds < 2, 'a scrape takes less than 2 s', "$seconds s");
}

# What Prometheus has lies between what the server said before and after the scrape.
sub same_series {
    my ($difference, $series);
    my $same = wait_until(sub {
        my ($from, $before) = (time, said_by_sql());
        wait_until(sub { my ($t) = ask('max(timestamp(session_sweeper_enabled))'); @$t && $t->[0]{value}[1] > $from + 0.5 });
        my ($samples) = ask('{__name__=~"session_sweeper_.+",pool=""}');
        my $after = said_by_sql();
        my %has = map { name_of($_->{metric}) => $_->{value}[1] } @$samples;
        my @wrong = map { "$_ is not in Prometheus" } grep { exists $after->{$_} && !exists $has{$_} } keys %$before;
        for my $name (keys %has) {
            my ($low, $high) = sort { $a <=> $b } map { $_->{$name} // $has{$name} } $before, $after;
            push @wrong, "$name is in no view" if !exists $before->{$name} && !exists $after->{$name};
            push @wrong, "$name is $has{$name}, not $low to $high" if $has{$name} < $low || $has{$name} > $high;
        }
        $series = keys %has;
        $difference = join("\n", sort @wrong);
        return !@wrong && $series > 0;
    });
    ok((grep { /policy=<größe> & "a\\b"/ } keys %{ said_by_sql() }) > 0, 'a policy has a name that is hard to write');
    ok($same, "the $series series of the view are in Prometheus, with its names, labels and values", $difference);
    my ($raw) = ask('{metric!=""} or session_sweeper_value');
    ok(!@$raw, 'none has the name that the exporter gave it');
    my ($errors) = ask('max_over_time(pg_exporter_last_scrape_error[5m])');
    ok(@$errors && $errors->[0]{value}[1] == 0, 'and no scrape had an error', encode_json($errors));
}

sub load_shows {
    for my $query (
        'rows_ended_total{policy="login",type="expired"}', 'rows_ended_total{policy="device",type="zombie"}',
        'rows_ended_total{type="released"}', 'rows_ended_total{type="manual"}', 'rows_refreshed_total{policy="device"}',
        'rows_repaired_total{policy="cart"}', 'rows_failed_total{policy="invoice"}', 'rows_quarantined{policy="invoice"}',
        'brake{policy="legacy",brake="held"}', 'pass_duration_seconds_count{policy="login"}', 'lag_seconds_bucket{policy="login",le="+Inf"}',
        'heartbeats_total{result="fast"}', 'tracked_sessions', 'seats_used', 'pool_seats_used{datname="app",pool!=""}', 'tasks{status="running"}',
        'tasks_ended_hour{status="failed"}', 'processes{kind="worker"}', 'problems{severity="warning"}') {
        my ($samples) = ask("max_over_time(session_sweeper_${query}[5m]) > 0");
        ok(@$samples > 0, "the load shows in $query");
    }
}

# The parts of an expression between top-level operators that match the pattern.
sub split_top {
    my ($expr, $operator) = @_;
    my ($depth, $part, @parts) = (0, '');
    while ($expr =~ /\G(?:("[^"]*"|\{[^}]*\})|([(\[])|([)\]])|($operator)|(.))/gs) {
        $depth++ if defined $2;
        $depth-- if defined $3;
        if (defined $4 && $depth == 0) { push @parts, $part; $part = ''; next }
        $part .= $&;
    }
    return map { s/^\s+|\s+$//gr } @parts, $part;
}

sub returns_data {
    my ($expr, $name) = @_;
    my ($samples, $error) = ask($expr);
    my @values = grep { $_->{value}[1] ne 'NaN' } @$samples;
    return ok(@values > 0, $name, $error // "no data: $expr");
}

# Of an alert each side of a comparison; of absent() what it looks for.
sub rule_expressions {
    my ($rules) = @_;
    for my $rule (@$rules) {
        my $n = 0;
        for my $side (split_top($rule->{query}, qr/\b(?:and|or|unless)\b(?:\s+(?:on|ignoring)\s*\([^)]*\))?/)) {
            for my $operand (grep { !/^[\d.e+-]+$/ } split_top($side, qr/[<>]=?|[!=]=/)) {
                $operand =~ s/^absent\((.*)\)$/$1/s;
                returns_data($operand, "$rule->{name}, operand " . ++$n);
            }
        }
        ok($rule->{health} eq 'ok', "$rule->{name} is evaluated", $rule->{lastError});
    }
}

sub dashboard_expressions {
    my $dashboard = decode_json(slurp("$root/monitoring/dashboard.json"));
    my %variable = ('__rate_interval' => '5m', datname => '.*', policy => '.*', instance => '.*');
    my @panels = map { $_, @{ $_->{panels} // [] } } @{ $dashboard->{panels} };
    for my $panel (@panels) {
        for my $target (@{ $panel->{targets} // [] }) {
            my $expr = $target->{expr} =~ s/\$(\w+)/$variable{$1} \/\/ "\$$1"/ger;
            returns_data($expr, "panel \"$panel->{title}\", $target->{refId}");
        }
    }
    for my $var (grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} }) {
        my ($metric, $label) = $var->{definition} =~ /^label_values\((.*), (\w+)\)$/;
        returns_data("count by ($label) (" . $metric =~ s/\$(\w+)/$variable{$1}/ger . ')', "variable $var->{name}");
    }
    my @ids = map { $_->{id} } @panels;
    my %once = map { $_ => 1 } @ids;
    ok(@ids == keys %once, 'each panel has a number of its own');
}

sub held_alert {
    my $alert;
    wait_until(sub {
        my $alerts = decode_json(get($prometheus, '/api/v1/alerts'))->{data}{alerts};
        ($alert) = grep { $_->{labels}{alertname} eq 'SessionSweeperHeld' && $_->{labels}{policy} eq 'legacy' } @$alerts;
        return $alert;
    });
    ok($alert && $alert->{annotations}{summary} =~ /legacy in app/ && $alert->{annotations}{description} =~ /resume\('legacy'\)/,
        'the alert of the held policy says which, and what to paste', encode_json($alert // {}));
}

# Prometheus' own page draws the sweep: as a picture, and as lines in its document.
sub graph_page {
    my %form = ('g0.expr' => 'sum by (policy, type) (rate(session_sweeper_rows_ended_total{type="expired"}[10s])) > 0', 'g0.tab' => 0, 'g0.range_input' => '30s');
    my $url = "http://127.0.0.1:$prometheus/graph?" . HTTP::Tiny->new->www_form_urlencode(\%form);
    my @chromium = ('timeout', '60', 'chromium-headless-shell', '--no-sandbox', '--disable-gpu', "--user-data-dir=$private/chromium",
        '--window-size=1000,900', '--virtual-time-budget=8000');
    my $picture = "$private/graph.png";
    run('sh', '-c', '"$@" 2>&1', 'sh', @chromium, "--screenshot=$picture", $url);
    my $png = -f $picture ? slurp($picture) : '';
    my ($width, $height) = length $png > 24 ? unpack('x16 N N', $png) : (0, 0);
    ok($png =~ /^\x89PNG/ && $width == 1000 && $height == 900 && length $png > 20_000, 'a picture of the graph page', length($png) . ' bytes');
    my (undef, $page) = run('sh', '-c', '"$@" 2>/dev/null', 'sh', @chromium, '--dump-dom', $url);
    my @lines = grep { () = /[LCS]/g; (() = /[LCSQ]/g) >= 3 } $page =~ /<path[^>]* d="(M[^"]*)"/g;
    ok(@lines > 0 && $page =~ /policy="login"/, 'its graph has the line of a sweep, and its legend the policy', substr($page, 0, 2000));
}

# The dashboard's panels and the view for terminals, as the documents show them.
sub pictures {
    my ($good, $text) = run('sh', '-c', '"$@" 2>&1', 'sh', "$root/test/monitoring/pictures.pl", $root, $private, $prometheus, $from, $to, $pictures);
    my @files = map { "$pictures/$_.png" } qw(dashboard-sweeps dashboard-sessions watch);
    ok($good && !(grep { !-f $_ || slurp($_) !~ /^\x89PNG/ || -s $_ < 20_000 } @files), 'pictures of the dashboard and of watch.sql', $text);
}

# The view for terminals, twice in a session: the second time knows rates.
sub watch {
    my $file = "$root/monitoring/watch.sql";
    my ($good, $text) = run('sh', '-c', "cat '$file' '$file' | '$pg_bin/psql' -XqAt -v ON_ERROR_STOP=1 -U prometheus -d app 2>&1");
    my ($first, $second) = $text =~ /^(session_sweeper in app at .*?)^(session_sweeper in app at .*)/ms;
    ok($good && $second, 'watch.sql, for a role of level monitor', $text);
    ok(($second // '') =~ m{heartbeats \d+/s.*^problems\n.*legacy .*sweeper\.resume.*^login +running .* \d+:\d\d:\d\d .* \d+\.\d\n.*^last events.* login .* rows\n}ms,
        'it has rates, the lag, events and problems', $second);
}

static_checks();
exporter_checks();
my $loaded = wait_until(sub { !kill(0, $load) || slurp("/proc/$load/stat") =~ /\) Z / });
ok($loaded && slurp("$private/load.log") eq '', 'the load has ended', slurp("$private/load.log"));
load_shows();
same_series();
my $rules = decode_json(get($prometheus, '/api/v1/rules'))->{data}{groups}[0]{rules};
ok(@$rules > 0, scalar(@$rules) . ' rules are loaded');
cases_checked($rules);
rule_expressions($rules);
dashboard_expressions() if -f "$root/monitoring/dashboard.json";
held_alert();
watch();
graph_page();
pictures();
print "$passed passed, $failed failed\n";
exit($failed != 0 || $passed == 0);
