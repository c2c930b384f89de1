# Copies of the server's files, and the next release of the extension, made of this source, to install there.
package Installation;
use strict;
use warnings;
use File::Path 'make_path';
use PostgreSQL::Test::Utils;
use Exporter 'import';
our @EXPORT = qw(copy_of_server output next_release install_next $VERSION_NOW);

our ($VERSION_NOW) = slurp_file('session_sweeper.control') =~ /^default_version = '(.*)'/m;
my $next;

sub output { my $out = `@_`; die "@_: $out" if $?; chomp $out; return $out }
sub text { my ($file, $text) = @_; open(my $fh, '>', $file) or die "$file: $!"; print $fh $text; return close $fh }

# The install_path of a copy.  A server finds its files from where it is itself, so all keep their places below another root.
sub copy_of_server {
    my $root = PostgreSQL::Test::Utils::tempdir();
    my %at = map { $_ => output("pg_config --$_") } qw(bindir pkglibdir sharedir includedir);
    system_or_bail('cp', '-R', '--parents', @at{qw(bindir pkglibdir sharedir)}, $root);
    make_path($root . $at{includedir} =~ s|/[^/]*$||r);
    symlink($at{includedir}, "$root$at{includedir}") or die $!;
    return $root . $at{bindir} =~ s|/bin$||r;
}

# Release 9.9, not built yet.  What it adds, its script has too.
sub next_release {
    my ($adds) = @_;
    $next = PostgreSQL::Test::Utils::tempdir();
    make_path("$next/schema/updates");
    system_or_bail('cp', '-R', qw(Makefile session_sweeper.c session_sweeper.control src schema), $next);
    unlink(glob "$next/src/*/*.o");
    text("$next/session_sweeper.control", slurp_file("$next/session_sweeper.control") =~ s/^default_version = .*/default_version = '9.9'/mr);
    text("$next/schema/99_next.sql", $adds);
    my $scripts = "$next/schema/updates/session_sweeper";
    text("$scripts--$VERSION_NOW.sql", join '', map { slurp_file($_) } sort glob 'schema/*.sql');
    text("$scripts--$VERSION_NOW--9.9.sql", qq{\\echo Use "ALTER EXTENSION session_sweeper UPDATE" to load this file. \\quit\n$adds});
    return;
}

# Run make there with the goals: all, install.
sub install_next {
    my ($install_path, @goals) = @_;
    delete local @ENV{qw(MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES)};
    return system_or_bail('make', '-s', '-C', $next, @goals, "PG_CONFIG=$install_path/bin/pg_config", 'COPT=-O0 -Wno-maybe-uninitialized');
}
1;
