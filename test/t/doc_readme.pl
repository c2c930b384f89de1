# README.md stays short, and its SQL examples run in the order of the page and print what it shows.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $page = slurp_file('README.md');
cmp_ok(scalar(() = $page =~ /\n/g), '<=', 250, 'at most 250 lines');
cmp_ok(length $page, '<=', 14 * 1024, 'at most 14 kB');

my $node = sweeper_node('main');
my $shown = 0;
while ($page =~ /^```sql\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?/msg) {
    my ($block, $output) = ($1, $2);
    my ($ret, $out, $err) = $node->psql('postgres', $block, on_error_stop => 1,
        extra_params => [ '--pset=format=aligned', '--pset=tuples_only=off', '--pset=footer=off' ]);
    is($ret, 0, 'runs: ' . substr($block, 0, 60)) or diag($err);
    next unless defined $output;
    $shown++;
    is($out =~ s/\s+\z//r, $output =~ s/\s+\z//r, '... and prints what the page shows');
}
cmp_ok($shown, '>=', 2, 'the page shows output');
is($node->safe_psql('postgres', 'SELECT count(*) FROM login WHERE id = 2'), 0, 'the dead row of the first example is gone');

# the last one removes the extension
is($node->safe_psql('postgres', q{SELECT to_regnamespace('sweeper') IS NULL}), 't', 'nothing is left');
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');

# where the library is not preloaded, nothing falls over, and what a caller's zone says is not taken for granted
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$node->safe_psql('postgres', q{CREATE TABLE local (sid varchar PRIMARY KEY, sess json NOT NULL, expire timestamp(6) NOT NULL);
    INSERT INTO local SELECT i, '{}', now() AT TIME ZONE 'UTC' + i * interval '1 h' FROM generate_series(-1, 9) AS i});
my (undef, undef, $needs) = $node->psql('postgres', q{SELECT sweeper.register('local', deadline => 'expire')});
like($needs, qr/timezone must be given/, 'not preloaded: an error');
is($node->safe_psql('postgres', q{SELECT state FROM sweeper.adopt('local')}), 'not running', 'not preloaded: adopt() says so');
is($node->safe_psql('postgres', q{SELECT held_reason FROM sweeper.policy WHERE policy = 'local'}), 'assumed', 'and the policy is held');
$node->stop;
done_testing();
