# Every SQL example of the documents runs, each document in a database of its own, in the order of the page; and what a
# page links to is there.  (Lint checks the files that pages name.)  (doc_readme.pl is about README.md's examples.)
use strict;
use warnings;
use File::Basename qw(dirname);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

needs_pg_cron();
# A block that is not to be run says another language, or none.  One in a list is indented.
sub examples {
    my ($page) = @_;
    my @blocks;
    while ($page =~ /^( *)```sql\n(.*?)^\1```$/msg) {
        my ($indent, $block) = ($1, $2);
        $block =~ s/^$indent//mg;
        push @blocks, $block;
    }
    return @blocks;
}

# What headings become on the page, as GitHub does it.
sub anchors {
    my ($page) = @_;
    my (%anchors, %seen);
    $page =~ s/^( *)```.*?^\1```$//msg;
    for my $heading ($page =~ /^#+ +(.*)$/mg) {
        $heading =~ s/\[([^]]*)\]\([^)]*\)/$1/g;
        my $anchor = lc $heading;
        $anchor =~ s/[^\w\- ]//g;
        $anchor =~ s/ /-/g;
        my $n = $seen{$anchor}++;
        $anchors{ $n ? "$anchor-$n" : $anchor } = 1;
    }
    return %anchors;
}

sub broken_links {
    my ($file, $page) = @_;
    my @broken;
    my %own = anchors($page);
    $page =~ s/^( *)```.*?^\1```$//msg;
    $page =~ s/`[^`\n]*`//g;
    for my $link ($page =~ /\[[^]]*\]\(([^)\s]+)\)/g) {
        next if $link =~ /^[a-z]+:/;
        my ($path, $anchor) = split /#/, $link, 2;
        my $target = $path eq '' ? $file : dirname($file) . "/$path";
        my %anchors = $path eq '' ? %own : -f $target ? anchors(slurp_file($target)) : ();
        push @broken, $link if $path ne '' && !-e $target || defined $anchor && !$anchors{$anchor};
    }
    return @broken;
}

my @pages = sort glob('doc/*.md monitoring/*.md');
my %text = map { $_ => slurp_file($_) } @pages, glob('README.md bench/README.md schema/README.md test/*/README.md src/README.md src/*/README.md');

is(join(' ', broken_links('doc/page.md', "[a](none.md) [b](CONTRIBUTING.md#rules) [c](CONTRIBUTING.md#none) [d](#here) [e](#there)\n# Here\n")),
    'none.md CONTRIBUTING.md#none #there', 'a broken link is seen');
is(join(' ', broken_links($_, $text{$_})), '', "links of $_") for sort keys %text;
my ($promises) = $text{'doc/guarantees.md'} =~ /^(## 1\..*?)^## Limits/ms;
is(join(' ', map { /^(\d+)/ && !/^Tests: `/m ? $1 : () } split /^## /m, $promises), '', 'each promise names its tests');

# pg_cron lives in the database of the page that has its jobs.
my $node = sweeper_node('main');
my %database = map { $_ => lc s/\W+/_/gr } @pages;
$node->safe_psql('postgres', "CREATE DATABASE $_") for values %database;
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_cron, session_sweeper'\ncron.database_name = 'doc_migrating_md'\n");
$node->restart;
$node->safe_psql('doc_migrating_md', 'CREATE EXTENSION pg_cron');

# Elsewhere a job is run at once.
$node->safe_psql('doc_tasks_md', q{CREATE SCHEMA cron; CREATE FUNCTION cron.schedule(name text, times text, command text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN EXECUTE command; RETURN 1; END $$});

my ($ret, $out, $err) = $node->psql('postgres', (examples("- item:\n  ```sql\n  SELECT 1;\n  SELECT nothing;\n  ```\n"))[0], on_error_stop => 1);
like("$ret $out", qr/^3 1$/, 'an example with a mistake fails');
my $partman = $node->safe_psql('postgres', "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_partman' AND default_version LIKE '4.%'");
for my $page (@pages) {
    my @blocks = examples($text{$page});
    is(scalar(@blocks), scalar(() = $text{$page} =~ /```sql/g), "$page: all examples are found");
    if ($page eq 'doc/partitions.md' && !$partman) {
        diag("SKIPPED: $page needs pg_partman 4");
        next;
    }
    next unless @blocks;
    $node->safe_psql($database{$page}, 'CREATE EXTENSION session_sweeper') unless $text{$page} =~ /^ *CREATE EXTENSION session_sweeper/m;
    for my $block (@blocks) {
        ($ret, $out, $err) = $node->psql($database{$page}, $block, on_error_stop => 1);
        is($ret, 0, "$page: " . substr($block, 0, 60)) or diag($err);
    }
    # settings are the cluster's
    $node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL; SELECT pg_reload_conf()');
}
$node->stop;
done_testing();
