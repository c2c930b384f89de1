# Hostile calls and expressions for a while: see test/fuzz/README.md; make fuzz runs it for longer.
use strict;
use warnings;
use FindBin;
use lib "$FindBin::RealBin/../fuzz";
use Test::More;
use Fuzz;

my %for = (seed => 'FUZZ_SEED', seconds => 'FUZZ_SECONDS', least => 'FUZZ_CALLS', only => 'FUZZ_ONLY');
my %given = map { $ENV{ $for{$_} } ? ($_ => $ENV{ $for{$_} }) : () } keys %for;
my $long = $given{seconds} || $given{least};
Fuzz->new(seed => $long ? int rand 1_000_000 : 1, seconds => $long ? 0 : 60, %given)->run;
done_testing();
