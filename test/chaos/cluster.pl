# Shards move and nodes fail while rows fall due: make chaos CITUS=1 [ROWS=…] [SECONDS=…].  Takes minutes; not part of make check.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin";
use Test::More;
use CitusCluster;
use Chaos::Shards;

needs_citus();
Chaos::Shards->new(seed => $ENV{CHAOS_SEED} || 1, rows => $ENV{CHAOS_ROWS} || 60_000, seconds => $ENV{CHAOS_SECONDS} || 120, shards => $ENV{CHAOS_SHARDS} || 32,
    only => $ENV{CHAOS_ONLY} ? [ split / /, $ENV{CHAOS_ONLY} ] : undef)->run;
done_testing();
