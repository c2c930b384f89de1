# The clients of doc/clients.md hold their session over a restart and a crash, and learn that it is gone.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', "listen_addresses = '127.0.0.1'");
$node->safe_psql('postgres', "CREATE EXTENSION session_sweeper; SELECT sweeper.create_pool('clients', ttl => '1 min')");
my $page = slurp_file('doc/clients.md');
my $dir = PostgreSQL::Test::Utils::tempdir;
$ENV{NODE_PATH} = join(':', grep { defined } $ENV{NODE_PATH}, '/usr/share/nodejs', '/usr/lib/nodejs', split(/\n/, `npm root -g 2>/dev/null` // ''));
local @ENV{qw(PGHOST PGPORT PGDATABASE PGUSER EVERY)} = ('127.0.0.1', $node->port, 'postgres', scalar(getpwuid($<)), '0.1');
$ENV{JDBC_URL} = "jdbc:postgresql://127.0.0.1:" . $node->port . "/postgres?user=$ENV{PGUSER}&connectTimeout=5&socketTimeout=5";
my @languages = (
    [ 'python', 'py', [ 'python3', '-c', 'import psycopg2' ], ['python3'] ],
    [ 'javascript', 'js', [ 'node', '-e', 'require("pg")' ], ['node'] ],
    [ 'java', 'java', [ 'sh', '-c', 'command -v java && test -f /usr/share/java/postgresql.jar' ], [ 'java', '-cp', '/usr/share/java/postgresql.jar' ] ]);

# the later ones hold their sessions at once, beside each other
my @clients;
for my $l (@languages) {
    my ($language, $suffix, $probe, $command) = @$l;
    my ($code) = $page =~ /^```$language\n(.*?)^```$/ms;
    ok($code, "the page has a client in $language");
    my ($out, $err) = ('', '');
  SKIP: {
        my $here = eval { IPC::Run::run($probe, '>', \$out, '2>', \$err) };
        diag("SKIPPED: $language") unless $here;
        skip "there is no $language here, or no driver for it; make setup installs what the machine can have", 1 unless $here;
        my $file = "$dir/Hold.$suffix";
        append_to_file($file, $code);
        my %c = (language => $language, out => '', err => '');
        $c{session} = $node->safe_psql('postgres', "SELECT session FROM sweeper.acquire('clients', '$language')");
        $c{run} = IPC::Run::start([ @$command, $file, $c{session} ], '>', \$c{out}, '2>', \$c{err});
        push @clients, \%c;
    }
}

sub all_live {
    my ($when) = @_;
    my $since = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
    for my $c (@clients) {
        ok(wait_for($node, "SELECT sweeper._last_heartbeat('$c->{session}') > '$since'"), "$c->{language}: heartbeats $when");
    }
}
END { diag("$_->{language}: $_->{err}") for grep { $? && $_ } @clients }
all_live('arrive');
# a restart that none of them misses
$node->stop;
for my $c (@clients) {
    wait_until(sub { eval { $c->{run}->pump_nb; 1 } or die "$c->{language} has left: $c->{err}"; return $c->{err} =~ /nothing is known/ }, "$c->{language}: an error says nothing");
}
$node->start;
all_live('go on after a restart');
crash($node);
all_live('go on after a crash');
for my $c (@clients) {
    is($node->safe_psql('postgres', "SELECT sweeper.release('$c->{session}')"), 't', "$c->{language}: the session was there");
    wait_until(sub { !$c->{run}->pumpable || (eval { $c->{run}->pump_nb; 1 } && $c->{out} =~ /gone/) }, "$c->{language} learns that it is gone");
    $c->{run}->finish;
    is($c->{out}, "gone\n", "$c->{language}: gone is what it says then");
}
$node->stop;
done_testing();
