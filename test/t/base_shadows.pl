# A superuser with a hostile search_path calls every function, reads every view, and runs what monitoring/ has: no statement
# of ours uses what the path has.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;
use Shadows;

my $node = sweeper_node('main');
$node->safe_psql('postgres', q{CREATE EXTENSION session_sweeper;
    CREATE TABLE x (id int PRIMARY KEY, d timestamptz NOT NULL, g text); CREATE INDEX ON x (d);
    CREATE TABLE y (id text PRIMARY KEY, d timestamptz NOT NULL, g varchar(10)); CREATE INDEX ON y (d);
    INSERT INTO x SELECT i, now() + i * interval '1 min', 'g' FROM generate_series(-20, 20) AS i;
    INSERT INTO y SELECT i, now() + i * interval '1 min', 'g' FROM generate_series(-20, 20) AS i;
    SELECT sweeper.register(t, deadline => 'd', ttl => '1 min', heartbeats => true, group_by => 'g', check_every => '0') FROM unnest('{x,y}'::regclass[]) AS t;
    SELECT sweeper.create_pool('x'); SELECT sweeper.acquire('x')});
is(make_shadows($node), 't', 'twins of what pg_catalog has');
like(($node->psql('postgres', "SET search_path = shadow, pg_catalog; SELECT 'a'::text || 'b'::text"))[2], qr/shadow of/, 'they are used');
my ($calls, $errors) = shadowed($node, 'x', 'y');
is($errors, '', "by none of $calls statements");
cmp_ok($calls, '>', 400, 'which is the whole surface');

my $server = slurp_file('monitoring/page/server.py');
my ($options) = $server =~ /^SESSION = '(.*)'$/m;
my ($figures) = $server =~ /^FIGURES = r"""\n(.*?)\n\\watch """$/ms;
my @series = slurp_file('monitoring/queries.yaml') =~ s/^#pool //mgr =~ /^  query: \|\n(.*?)^  metrics:/msg;
is(scalar(@series), 2, 'two queries for the exporter');
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET search_path = shadow, pg_catalog');
for my $query (slurp_file('monitoring/watch.sql'), @series, $figures) {
    local $ENV{PGOPTIONS} = $query eq $figures ? $options : '';
    my ($rc, $out, $err) = $node->psql('postgres', $query);
    is($err, '', 'nor by ' . ($query =~ /^(.*)/)[0]);
    isnt($out, '', 'which has an answer');
}
done_testing();
