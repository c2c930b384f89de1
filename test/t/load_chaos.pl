# A short round of the load that test/chaos/README.md describes; make chaos runs long ones.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../chaos";
use Test::More;
use Chaos;

Chaos->new(seed => $ENV{CHAOS_SEED} || 1, steps => $ENV{CHAOS_STEPS} || 3000)->run($ENV{CHAOS_ROUNDS} || 1);
done_testing();
