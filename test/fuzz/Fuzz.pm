# Calls with hostile values, and expressions in policies, while sweeps run: see README.md.
package Fuzz;
use strict;
use warnings;
use FindBin;
use POSIX qw(:sys_wait_h);
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Sweeper;
use Fuzz::Call;
use Fuzz::Expression;
use Fuzz::Value qw(one chance);

my $here = "$FindBin::RealBin/../fuzz";
my $longest_call = 30; # seconds; other tests run beside it
my $longest_script = 120;

# seed: of all scripts; seconds: how long; calls: until each function was called so often on each server; lanes: scripts at a time
sub new {
    my ($class, %self) = @_;
    my $self = bless { lanes => 4, findings => {}, calls => {}, %self }, $class;
    return $self;
}

sub run {
    my ($self) = @_;
    diag "fuzz: SEED=$self->{seed}";
    $self->start;
    $self->read_errors;
    $self->{until} = time + $self->{seconds} if $self->{seconds};
    my ($n, %running) = (0);
    until ($self->{stop} && !%running) {
        while (!$self->{stop} && keys %running < $self->{lanes}) {
            my $script = $self->script(++$n);
            $running{ $script->{pid} } = $script;
        }
        my $pid = waitpid(-1, WNOHANG);
        if ($pid > 0 && $running{$pid}) { $self->judge(delete $running{$pid}) }
        else { select(undef, undef, undef, 0.02) }
        for my $script (values %running) {
            next if time < $script->{started} + $longest_script;
            $self->finding($script, 'hang', "a script ran for more than $longest_script s", scalar @{ $script->{lines} });
            kill 'KILL', $script->{pid};
        }
        $self->{stop} ||= $self->done;
    }
    $self->read_logs;
    $self->report($n);
    return;
}

sub done {
    my ($self) = @_;
    return 1 if $self->{until} && time > $self->{until};
    return 1 if keys %{ $self->{findings} } >= 50;
    return 0 unless $self->{least};
    for my $server (keys %{ $self->{nodes} }) {
        for my $function (@{ $self->{functions} }) {
            return 0 if ($self->{calls}{$server}{ $function->{name} } // 0) < $self->{least};
        }
    }
    return 1;
}

sub start {
    my ($self) = @_;
    my @conf = ('max_prepared_transactions = 50', "log_line_prefix = '%m [%p] %b <%e> '", 'log_error_verbosity = verbose', 'fsync = off', 'lc_messages = C',
        'max_standby_streaming_delay = -1', 'hot_standby_feedback = on', "wal_level = replica", 'hot_standby = on', 'log_min_error_statement = error', 'autovacuum = on', 'log_statement = none', 'log_lock_waits = on');
    my $primary = sweeper_node('primary', @conf);
    # who waits for another client's lock does not hang; enable_seqscan = off makes all plans look dear enough to be compiled
    $primary->safe_psql('postgres', "ALTER DATABASE postgres SET statement_timeout = '${longest_call}s'; ALTER DATABASE postgres SET lock_timeout = '5s'; ALTER DATABASE postgres SET jit = off");
    $primary->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $primary->connstr('postgres'), '-f', "$here/setup.sql" ], 'set up');
    $primary->safe_psql('postgres', 'CALL fuzz.refill()');
    $primary->backup('copy');
    my $standby = PostgreSQL::Test::Cluster->new('standby');
    $standby->init_from_backup($primary, 'copy', has_streaming => 1);
    $standby->start;
    my $plain = PostgreSQL::Test::Cluster->new('plain');
    $plain->init_from_backup($primary, 'copy');
    $plain->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
    $plain->start;
    $self->{nodes} = { preloaded => $primary, standby => $standby, plain => $plain };
    $self->{dir} = $primary->basedir;
    my $parallel = $primary->safe_psql('postgres', q{SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
    my $procs = $primary->safe_psql('postgres', q{
        SELECT p.proname, p.prokind, p.prorettype::regtype, p.pronargdefaults, coalesce(obj_description(p.oid, 'pg_proc'), ''),
               ARRAY(SELECT coalesce(p.proargnames[i], '') FROM generate_series(1, p.pronargs) AS i)::text,
               ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) AS t)::text
        FROM pg_proc AS p WHERE p.pronamespace = 'sweeper'::regnamespace AND p.prokind IN ('f', 'p') ORDER BY p.oid::regprocedure::text}, extra_params => [ '-F', "\x1f", '-R', "\x1e" ]);
    for my $row (split /\x1e/, $procs) {
        chomp $row;
        my ($name, $kind, $returns, $defaults, $comment, $names, $types) = split /\x1f/, $row;
        my @names = split /,/, $names =~ s/^\{|\}$//gr;
        my @types = map { s/"//gr } split /,/, $types =~ s/^\{|\}$//gr;
        push @{ $self->{functions} }, Fuzz::Call->new(name => $name, kind => $kind, returns => $returns, defaults => $defaults, comment => $comment, parallel => $parallel,
            in => [ grep { length $_->{name} } map { { name => $names[$_] =~ s/"//gr, type => $types[$_] } } 0 .. $#names ]);
    }
    note scalar(@{ $self->{functions} }) . ' functions and procedures';
    return;
}

# The SQLSTATEs that the reference gives: those of doc/reference.md for all functions, and those in the comment
# of each ("Errors: 42704 no such policy, others of class 22, those of register()").
sub read_errors {
    my ($self) = @_;
    open my $page, '<', "$here/../../doc/reference.md" or die "doc/reference.md: $!";
    while (<$page>) { $self->{every}{$1} = 1 if /^\| `([0-9A-Z]{5})` \|/ }
    close $page;
    my (%own, %like);
    for my $f (@{ $self->{functions} }) {
        my ($errors) = $f->{comment} =~ /\bErrors\b(.*)/s or next;
        $own{ $f->{name} }{$_} = 1 for grep { /\d/ } $errors =~ /\b([0-9A-Z]{5})\b/g;
        $own{ $f->{name} }{$_} = 1 for $errors =~ /\bclass (\d\d)\b/g;
        push @{ $like{ $f->{name} } }, $errors =~ /(\w+)\(\)/g;
    }
    for my $f (map { $_->{name} } @{ $self->{functions} }) {
        my @todo = ($f);
        my %seen;
        while (defined(my $g = shift @todo)) {
            next if $seen{$g}++;
            $self->{allowed}{$f}{$_} = 1 for keys %{ $own{$g} // {} };
            push @todo, @{ $like{$g} // [] };
        }
    }
    return;
}

# What a statement around a call may raise by itself.
my %context = (
    context => qr/^(0A000|25000|25001|25P02|2D000|3B001|42P16|42601|42804|34000|42704|42883|24000|42P01|42P07|42703|42846|23514|23503|42501|55000|25006|42701|42P03|42P11|3F000)$/,
    settings => qr/^(22P05|22021|54001|42P01|42883|42704|42601|57014|55P03|0A000|2201.|22008|22007|54000|3F000)$/,
    prepared => qr/^(26000)$/);

sub script {
    my ($self, $n) = @_;
    srand(($self->{seed} * 1_000_003 + $n * 7919) % 2**31);
    my $server = one($self->{servers} ? @{ $self->{servers} } : qw(preloaded preloaded preloaded plain standby));
    my $role = one(qw(fuzz_user fuzz_user fuzz_user fuzz_monitor fuzz_admin fuzz_super fuzz_super));
    my @lines = ([ "-- script $n of SEED=$self->{seed}, as $role, on server $server" ]);
    push @lines, ['\connect - fuzz_super'], ['CALL fuzz.refill();'], ["\\connect - $role"] if $server ne 'standby' && chance(0.5);
    my $expressions = $server eq 'preloaded' && chance(0.25);
    if ($expressions) { push @lines, Fuzz::Expression::lines($n) }
    else { push @lines, $self->function->lines("${n}_$_") for 1 .. 30 }
    my $file = "$self->{dir}/script$n";
    open my $out, '>', "$file.sql" or die $!;
    print $out "$_->[0]\n" for @lines;
    close $out;
    my $node = $self->{nodes}{$server};
    my $pid = fork // die "fork: $!";
    unless ($pid) {
        $ENV{PGOPTIONS} = '-c client_min_messages=error';
        $ENV{PGCLIENTENCODING} = 'UTF8';
        open STDIN, '<', '/dev/null';
        open STDOUT, '>', '/dev/null';
        open STDERR, '>', "$file.err";
        exec('psql', '-X', '-q', '-A', '-t', '-v', 'VERBOSITY=verbose', '-U', $role, '-d', $node->connstr('postgres'), '-f', "$file.sql") or POSIX::_exit(127);
    }
    return { n => $n, pid => $pid, file => $file, lines => \@lines, server => $server, role => $role, expressions => $expressions, started => time };
}

# One that was called least is likelier.
sub function {
    my ($self) = @_;
    my @functions = $self->{only} ? grep { $_->{name} =~ /^(?:$self->{only})$/ } @{ $self->{functions} } : @{ $self->{functions} };
    return one(@functions);
}

sub judge {
    my ($self, $script) = @_;
    my $lost;
    open my $in, '<', "$script->{file}.err" or die $!;
    while (<$in>) {
        if (/^psql:[^:]*:(\d+): (ERROR|FATAL|PANIC):  ([0-9A-Z]{5}): (.*)/) {
            my ($line, $level, $code, $message) = ($1, $2, $3, $4);
            my ($statement, $f, $where) = @{ $script->{lines}[ $line - 1 ] };
            $self->{errors}{ $f // '-' }{$code}++;
            my $timed_out = $code eq '57014' && $message =~ /statement timeout/;
            next if $code =~ /^FZ/ || $level eq 'FATAL';
            if ($code =~ /^XX/) { $self->finding($script, "$code in " . ($f // 'a statement'), $message, $line) }
            elsif ($timed_out && $f) { $self->finding($script, "over $longest_call s: $f", $message, $line) }
            elsif ($f && $f !~ /^_/ && !$script->{expressions} && !$self->{every}{$code} && !$self->{allowed}{$f}{$code} && !$self->{allowed}{$f}{ substr $code, 0, 2 } && !($where && $code =~ $context{$where})) {
                $self->finding($script, "$code of $f", $message, $line);
            }
        }
        elsif (/^psql:[^:]*:(\d+): (.*(?:server closed the connection|connection to server was lost).*)/) { $lost = $1 }
    }
    close $in;
    my $last = $lost // @{ $script->{lines} };
    for (@{ $script->{lines} }[ 0 .. $last - 1 ]) { $self->{calls}{ $script->{server} }{ $_->[1] }++ if $_->[1] }
    if ($lost) {
        # somebody else may have crashed: who has the last word is in the log
        push @{ $self->{suspects} }, { script => $script, line => $lost };
        $self->recover($script->{server});
    }
    else { unlink "$script->{file}.sql", "$script->{file}.err" }
    return;
}

# After a crash.
sub recover {
    my ($self, $server) = @_;
    my $node = $self->{nodes}{$server};
    my $give_up = time + 60;
    until (eval { $node->psql('postgres', 'SELECT 1', timeout => 10) == 0 }) {
        if (time > $give_up) { $self->{stop} = 1; $self->{findings}{"$server does not come back"} //= $node->logfile; return }
        select(undef, undef, undef, 0.2);
    }
    return if $server eq 'standby';
    $node->psql('postgres', q{SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts \gexec});
    return;
}

# The last statements from the one that began the transaction on.
sub finding {
    my ($self, $script, $what, $message, $line) = @_;
    return if $self->{findings}{$what};
    my @lines = map { $_->[0] } @{ $script->{lines} }[ 0 .. $line - 1 ];
    my $first = $#lines;
    $first-- while $first > 0 && $first > $#lines - 60 && $lines[$first] !~ /^BEGIN|^SET /;
    $first-- while $first > 0 && $lines[ $first - 1 ] =~ /^SET /;
    $first = $#lines if $lines[$first] !~ /^BEGIN|^SET / || grep { /^(ROLLBACK|COMMIT|RESET ALL|RESET ROLE);/ } @lines[ $first .. $#lines - 1 ];
    $self->{findings}{$what} = substr("$message\n" . join("\n", "-- script $script->{n}, line $line, as $script->{role} on $script->{server}; psql, after setup.sql:", @lines[ $first .. $#lines ]), 0, 4000);
    diag "fuzz: $what: $self->{findings}{$what}";
    return;
}

# What no client is told: crashes, and internal errors of any process.
sub read_logs {
    my ($self) = @_;
    for my $server (sort keys %{ $self->{nodes} }) {
        my $node = $self->{nodes}{$server};
        open my $log, '<', $node->logfile or die $!;
        my ($after, $what) = (0);
        while (<$log>) {
            if (/(TRAP: .*|PANIC: .*|was terminated by signal (?!9\b).*|<XX\w{3}> (?:ERROR|WARNING|LOG|FATAL).*)/) {
                my $said = $1;
                my $kind = $said =~ s/\d{4,}|0x[0-9a-f]+|"[^"]*"/…/gr;
                ($what, $after) = ("$server log: $kind", 4);
                if ($self->{findings}{$what}) { $after = 0 }
                else { $self->{findings}{$what} = '' }
                $said = $_;
            }
            if ($after) { $self->{findings}{$what} .= substr($_, 0, 1500); $after-- }
            # a client's own statement, with what went before
            next unless /Failed process was running: (.*)/;
            my $ran = substr $1, 0, 1000;
            for my $suspect (grep { index($_->{script}{lines}[ $_->{line} - 1 ][0], $ran) == 0 } @{ $self->{suspects} // [] }) {
                $self->finding($suspect->{script}, "crash by $suspect->{script}{lines}[ $suspect->{line} - 1 ][1]", '', $suspect->{line});
            }
        }
        close $log;
    }
    return;
}

sub report {
    my ($self, $n) = @_;
    my $calls = 0;
    for my $server (sort keys %{ $self->{calls} }) {
        my $of = $self->{calls}{$server};
        my ($least) = sort { $of->{$a} <=> $of->{$b} } keys %$of;
        my $sum = 0;
        $sum += $_ for values %$of;
        diag sprintf 'fuzz: %s: %d calls of %d functions, least %s (%d)', $server, $sum, scalar keys %$of, $least, $of->{$least} if $least;
        $calls += $sum;
    }
    diag "fuzz: $n scripts, $calls calls";
    for my $f (sort keys %{ $self->{errors} }) {
        my $codes = $self->{errors}{$f};
        my ($all, $failed) = (0, 0);
        $all += $_->{$f} // 0 for values %{ $self->{calls} };
        $failed += $_ for values %$codes;
        note "$f: $all calls, $failed failed: " . join ', ', map { "$_ $codes->{$_}" } sort { $codes->{$b} <=> $codes->{$a} } keys %$codes;
    }
    my @findings = sort keys %{ $self->{findings} };
    is(scalar @findings, 0, "no findings (SEED=$self->{seed})") or diag map { "--- $_\n$self->{findings}{$_}\n" } @findings;
    return;
}
1;
