# A short round of the load that test/torture/README.md describes; make torture runs long ones.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../torture";
use Test::More;
use Torture;

Torture->new(seed => $ENV{TORTURE_SEED} || 1, steps => $ENV{TORTURE_STEPS} || 3000)->run($ENV{TORTURE_ROUNDS} || 1);
done_testing();
