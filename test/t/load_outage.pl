# Some errors that begin and end in the middle of a pass, as test/chaos/README.md describes; make chaos runs more of them.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../chaos";
use Test::More;
use Chaos::Outage;

Chaos::Outage->new(seed => $ENV{CHAOS_SEED} || 1)->run(4 * ($ENV{CHAOS_ROUNDS} || 1));
done_testing();
