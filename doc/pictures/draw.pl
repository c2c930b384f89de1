#!/usr/bin/perl
# draw.pl FOLDER: draws the pictures of the documents into a folder, as SVG.
# "make pictures" calls it for this folder; "make lint" compares.  The chart takes
# its figures from bench.txt, the output of: make bench BENCH="pass cron"
use strict;
use warnings;
use File::Basename qw(dirname);

my $here = dirname($0);
my $folder = $ARGV[0] // $here;

# Each picture has a light card of its own, so it is legible on any background.
my %color = (
    ink => '#1f2933', soft => '#52606d', line => '#9aa5b1', card => '#fcfcfa', edge => '#d3d9de',
    blue => '#2f6690', green => '#2f7d57', amber => '#b7791f', red => '#b23a48', grey => '#7b8794',
);
my %fill = (blue => '#e6eff6', green => '#e5f2ea', amber => '#faf0dc', red => '#f8e6e8', grey => '#eef1f4', plain => '#ffffff');
my ($width, $height, $out);

sub escaped { return $_[0] =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr }

sub begin {
    my ($w, $h, $title) = @_;
    ($width, $height, $out) = ($w, $h, '');
    for my $name (qw(soft blue green amber red grey)) {
        $out .= qq(<marker id="$name" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">)
            . qq(<path d="M0,0 L8,4 L0,8 z" fill="$color{$name}"/></marker>\n);
    }
    $out = "<title>" . escaped($title) . "</title>\n<defs>\n$out</defs>\n"
        . qq(<rect x="0.5" y="0.5" width="@{[$w - 1]}" height="@{[$h - 1]}" rx="10" fill="$color{card}" stroke="$color{edge}"/>\n);
    text(24, 34, $title, size => 18, bold => 1);
}

sub finish {
    my ($name) = @_;
    open my $fh, '>', "$folder/$name.svg" or die "$folder/$name.svg: $!\n";
    print $fh qq(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 $width $height" width="$width" height="$height" )
        . qq(font-family="DejaVu Sans, Verdana, Helvetica, Arial, sans-serif">\n$out</svg>\n);
    close $fh or die "$name: $!\n";
}

sub text {
    my ($x, $y, $words, %is) = @_;
    my $size = $is{size} // 12;
    my $weight = $is{bold} ? ' font-weight="bold"' : '';
    my $anchor = $is{anchor} ? qq( text-anchor="$is{anchor}") : '';
    my $ink = $color{ $is{color} // 'ink' };
    $out .= qq(<text x="$x" y="$y" font-size="$size"$weight$anchor fill="$ink">) . escaped($words) . "</text>\n";
}

# A box with a title and lines of text below it.
sub box {
    my ($x, $y, $w, $h, $kind, $title, @lines) = @_;
    $out .= qq(<rect x="$x" y="$y" width="$w" height="$h" rx="6" fill="$fill{$kind}" stroke="@{[$color{$kind} // $color{line}]}"/>\n);
    text($x + 12, $y + 22, $title, size => 13, bold => 1);
    text($x + 12, $y + 24 + 17 * $_, $lines[ $_ - 1 ], size => 11.5, color => 'soft') for 1 .. @lines;
}

# A line through points; the last end has a head, with "both" the first one, too.
sub arrow {
    my ($name, $points, %is) = @_;
    my $d = 'M' . join ' L', map { join ',', @$_ } @$points;
    my $dash = $is{dash} ? ' stroke-dasharray="5 4"' : '';
    my $start = $is{both} ? qq( marker-start="url(#$name)") : '';
    $out .= qq(<path d="$d" fill="none" stroke="$color{$name}" stroke-width="1.6"$dash$start marker-end="url(#$name)"/>\n);
}

sub line {
    my ($name, $x1, $y1, $x2, $y2, %is) = @_;
    my $dash = $is{dash} ? ' stroke-dasharray="4 4"' : '';
    my $thick = $is{thick} // 1.2;
    $out .= qq(<line x1="$x1" y1="$y1" x2="$x2" y2="$y2" stroke="$color{$name}" stroke-width="$thick"$dash/>\n);
}

sub dot {
    my ($name, $x, $y, $r) = @_;
    $out .= qq(<circle cx="$x" cy="$y" r="$r" fill="$color{$name}"/>\n);
}

sub bar {
    my ($name, $x, $y, $w, $h) = @_;
    $out .= qq(<rect x="$x" y="$y" width="$w" height="$h" rx="2" fill="$color{$name}"/>\n);
}

sub processes {
    begin(960, 560, 'Processes and what they share');
    box(24, 56, 150, 66, 'plain', 'postmaster', 'starts the launcher,', 'and restarts it');
    box(300, 56, 260, 66, 'blue', 'launcher, one per server', 'starts and stops all others;', 'connected to no database');
    arrow('soft', [[174, 89], [296, 89]]);

    $out .= qq(<rect x="24" y="164" width="912" height="380" rx="8" fill="none" stroke="$color{line}" stroke-dasharray="6 4"/>\n);
    text(36, 183, 'one database', size => 12, color => 'soft');
    text(924, 183, 'many databases take turns', size => 12, color => 'soft', anchor => 'end');
    box(40, 196, 236, 84, 'blue', 'coordinator, at most one', 'decides which policy gets a', 'pass, and when;', 'applies the brakes');
    box(312, 196, 252, 84, 'blue', 'workers, a pool of the server', "expire and refresh rows as", "the table's owner; or run the", "commands of one role");
    box(620, 196, 300, 84, 'green', "clients' backends", 'send heartbeats, acquire and', 'release sessions, submit tasks;', 'with the rights of their role');
    arrow('soft', [[340, 122], [158, 192]]);
    arrow('soft', [[430, 122], [430, 192]]);
    text(200, 150, 'starts', size => 11.5, color => 'soft', anchor => 'end');
    text(440, 150, 'starts', size => 11.5, color => 'soft');

    box(40, 340, 360, 72, 'amber', 'shared memory: policies and passes', 'states, open passes, counters;', 'a mailbox: a crash may empty it');
    box(500, 340, 350, 72, 'amber', 'shared memory: heartbeat store', "last heartbeat of each session;", 'a heartbeat changes one word, no WAL');
    arrow('soft', [[120, 280], [120, 336]]);
    text(130, 313, 'assigns passes', size => 11.5, color => 'soft');
    arrow('soft', [[360, 336], [360, 284]]);
    text(350, 313, 'takes a pass', size => 11.5, color => 'soft', anchor => 'end');
    arrow('soft', [[534, 284], [534, 336]], both => 1);
    text(544, 313, 'reads, marks', size => 11.5, color => 'soft');
    arrow('green', [[740, 280], [740, 336]]);
    text(750, 313, 'heartbeats', size => 11.5, color => 'green');

    box(40, 456, 360, 72, 'grey', 'tables of schema sweeper', 'policy, fuse_hold, session, task:', 'every decision that must last');
    box(500, 456, 420, 72, 'grey', "your tables, and sweeper.cleanup_event", "a row and its audit row change in one", 'transaction');
    arrow('soft', [[450, 280], [450, 492], [496, 492]]);
    arrow('soft', [[450, 492], [404, 492]]);
    text(442, 440, 'a batch at a time', size => 11.5, color => 'soft', anchor => 'end');
    arrow('green', [[886, 280], [886, 452]]);
    text(878, 440, 'own SQL', size => 11.5, color => 'green', anchor => 'end');
    finish('processes');
}

# The time axis has one ttl for each 200 units.
sub session {
    begin(960, 500, "One session's life: TTL 30 min, a heartbeat every 5 min");
    my ($x0, $ttl) = (150, 200);
    my $x = sub { $x0 + $ttl * $_[0] };
    for my $step (0 .. 7) {
        my $at = $x->($step / 2);
        line('edge', $at, 64, $at, 356);
        text($at, 60, 15 * $step . ' min', size => 11, color => 'soft', anchor => 'middle');
    }
    text(24, 104, 'client', bold => 1);
    text(24, 174, 'heartbeat store', bold => 1);
    text(24, 190, '(shared memory)', size => 10.5, color => 'soft');
    text(24, 264, 'row', bold => 1);
    text(24, 280, '(table, WAL)', size => 10.5, color => 'soft');
    line('line', 130, 100, 930, 100);
    line('line', 130, 260, 930, 260);

    # INSERT at 0, heartbeats at 5 to 55 min, then the client is lost.
    dot('blue', $x->(0), 100, 6);
    text($x->(0), 86, 'INSERT', size => 11, color => 'blue', anchor => 'middle');
    dot('green', $x->($_ / 6), 100, 4) for 1 .. 11;
    text($x->(1), 86, 'heartbeats: each answers true and writes no row', size => 11, color => 'green', anchor => 'middle');
    my $last = 11 / 6;
    line('red', $x->($last) + 14, 93, $x->($last) + 28, 107, thick => 2);
    line('red', $x->($last) + 14, 107, $x->($last) + 28, 93, thick => 2);
    text($x->($last) + 36, 92, 'client lost at 57 min', size => 11, color => 'red');

    # What memory says: alive from each heartbeat for one ttl; here the last one.
    bar('green', $x->(1 / 6), 160, $ttl * ($last - 1 / 6), 10);
    $out .= qq(<rect x="@{[$x->($last)]}" y="160" width="$ttl" height="10" rx="2" fill="$fill{green}" stroke="$color{green}"/>\n);
    text($x->(1 / 6), 152, 'moves the deadline with each heartbeat', size => 11, color => 'green');
    text($x->($last) + 4, 152, 'last heartbeat + 30 min', size => 11, color => 'green');

    # What the row says.  A pass refreshes it a quarter of a ttl before its deadline:
    # the last heartbeat plus the ttl.
    my @write = map { $_ / 30 } 0, 22.5, 42.5, 62.5;
    my @deadline = map { $_ / 30 } 30, 50, 70, 85;
    for my $i (0 .. 3) {
        my $y = 282 + 20 * $i;
        dot('blue', $x->($write[$i]), 260, 5);
        line('blue', $x->($deadline[$i]), 252, $x->($deadline[$i]), 268, thick => 2);
        arrow('blue', [[$x->($write[$i]), 260], [$x->($write[$i]), $y], [$x->($deadline[$i]) - 2, $y]]);
        text($x->($write[$i]) + 6, $y - 5, ($i ? 'refresh: ' : 'deadline: ') . 30 * $deadline[$i] . ' min', size => 11, color => 'blue');
    }
    text($x->(0), 240, 'a pass writes the new deadline, about once per TTL', size => 11, color => 'blue');

    my $gone = $x->(17 / 6) + 6;
    arrow('red', [[$gone, 174], [$gone, 256]]);
    dot('red', $gone, 260, 6);
    text($gone + 10, 212, '85 min: deadline passed', size => 11, color => 'red');
    text($gone + 10, 250, 'expired', size => 11, color => 'red', bold => 1);
    text($gone + 10, 282, 'one transaction:', size => 11, color => 'red');
    text($gone + 10, 298, 'DELETE, audit row,', size => 11, color => 'red');
    text($gone + 10, 314, 'NOTIFY', size => 11, color => 'red');
    text($gone + 10, 340, 'the next heartbeat: false', size => 11, color => 'red');

    text(24, 386, 'What can come between', bold => 1);
    box(24, 398, 216, 82, 'grey', 'the row is locked', 'skipped; the next pass', 'tries again');
    box(256, 398, 216, 82, 'grey', 'an error', 'tried again with backoff,', 'then quarantined;', 'other rows still expire');
    box(488, 398, 216, 82, 'grey', 'a brake', 'fuse, hold, pause, window,', 'throttle: the row waits,', 'view problem reports it');
    box(720, 398, 216, 82, 'grey', 'an outage', 'time in which no heartbeat', 'could be recorded counts', 'as grace');
    finish('session');
}

sub pass {
    begin(960, 520, 'What a pass does');
    text(24, 64, 'coordinator', bold => 1, color => 'blue');
    box(24, 76, 206, 88, 'blue', '1  Look', 'reads the first entry of', 'the index on the deadline;', 'nothing due: sleeps');
    box(266, 76, 206, 88, 'blue', '2  Brakes', 'paused, held, failing,', 'locked, outside window,', 'throttled: the policy rests');
    box(508, 76, 206, 88, 'blue', '3  Open', 'one cutoff for the pass,', 'earlier by the grace;', 'a worker gets the pass');
    box(750, 76, 186, 88, 'blue', '8  Close', 'counts go to table pass,', 'brakes to table policy');
    arrow('soft', [[230, 120], [262, 120]]);
    arrow('soft', [[472, 120], [504, 120]]);

    text(266, 206, 'workers, as the owner of the table', bold => 1, color => 'green');
    box(24, 218, 206, 106, 'green', '4  Collect', 'reads the next candidates,', 'oldest deadline first,', 'leaf by leaf; one worker', 'at a time');
    box(266, 218, 206, 106, 'amber', '5  Fuse', 'once per pass: would a', 'group lose more than', 'fuse_fraction? Then it', 'is held');
    box(508, 218, 206, 106, 'green', '6  Refresh', 'a candidate with a newer', 'heartbeat gets its new', 'deadline instead');
    box(750, 218, 186, 106, 'red', '7  Expire a batch', 'one transaction: mark', 'in memory, on_expire,', 'DELETE or UPDATE,', 'audit rows, NOTIFY');
    arrow('soft', [[611, 164], [611, 186], [127, 186], [127, 214]]);
    arrow('soft', [[230, 271], [262, 271]]);
    arrow('soft', [[472, 271], [504, 271]]);
    arrow('soft', [[714, 271], [746, 271]]);
    arrow('soft', [[900, 218], [900, 168]]);
    text(892, 196, 'no more candidates', size => 11.5, color => 'soft', anchor => 'end');
    arrow('soft', [[780, 324], [780, 352], [127, 352], [127, 328]]);
    text(454, 346, 'next chunk', size => 11.5, color => 'soft', anchor => 'middle');

    text(266, 396, 'When a batch fails', bold => 1);
    box(24, 406, 206, 88, 'grey', 'Roll back, halve', 'both halves run again,', 'down to single rows');
    box(266, 406, 206, 88, 'grey', 'A row fails alone', 'recorded in failed_row,', 'tried again with backoff');
    box(508, 406, 206, 88, 'grey', 'After max_retries', 'the row is quarantined;', 'all others expired');
    box(750, 406, 186, 88, 'grey', 'All rows fail alike', 'the policy backs off;', 'no row is blamed');
    arrow('soft', [[230, 450], [262, 450]]);
    arrow('soft', [[472, 450], [504, 450]]);
    arrow('red', [[860, 324], [860, 372], [127, 372], [127, 402]], dash => 1);
    text(850, 366, 'error', size => 11.5, color => 'red', anchor => 'end');
    finish('pass');
}

# A line of bench.txt, as the texts of its cells.
sub measured {
    my ($begins) = @_;
    open my $fh, '<', "$here/bench.txt" or die "bench.txt: $!\n";
    while (<$fh>) {
        next unless /^\| \Q$begins\E/;
        chomp;
        s/^\| | \|$//g;
        return split / \| /;
    }
    die "bench.txt has no line that begins with \"$begins\"\n";
}

sub figures { return $_[0] =~ /(\d+(?:\.\d+)?)/g }

# One comparison: bars with their texts, the longest as long as there is room.
sub panel {
    my ($x, $y, $title, $better, @bars) = @_;
    my $longest = 0;
    for (@bars) { $longest = $_->[2] if $_->[2] > $longest }
    text($x, $y, $title, size => 13, bold => 1);
    text($x, $y + 16, $better, size => 11, color => 'soft');
    my $row = $y + 26;
    for (@bars) {
        my ($kind, $name, $value, $says) = @$_;
        my $long = sprintf '%.1f', 210 * $value / $longest;
        text($x + 106, $row + 12, $name, size => 11, anchor => 'end');
        bar($kind, $x + 112, $row, $long < 1.5 ? 1.5 : $long, 15);
        text($x + 118 + $long, $row + 12, $says, size => 11, color => 'soft');
        $row += 21;
    }
}

sub comparison {
    begin(960, 610, 'Against a job of pg_cron each minute: WITH d AS (DELETE …) INSERT into an audit table');
    my ($us, $cron, $plain) = ('green', 'grey', 'grey');
    my @lag = measured('time to expire, from deadline to commit');
    my ($us50, $us99) = figures($lag[1]);
    my ($cron50, $cron99) = figures($lag[2]);
    panel(24, 72, 'Time to expire, p99', 'from the deadline to the commit; shorter is better',
        [$us, 'session_sweeper', $us99, "$us99 s"], [$cron, 'pg_cron', $cron99, "$cron99 s"]);

    my ($us_crash) = figures((measured('first dead row expired after the start of a crashed server'))[1]);
    my ($cron_crash) = figures((measured('first dead row expired after the start of a crashed server'))[2]);
    panel(496, 72, 'First row expired after a crash', 'from the start of the server; shorter is better',
        [$us, 'session_sweeper', $us_crash, "$us_crash s"], [$cron, 'pg_cron', $cron_crash, "$cron_crash s"]);

    my @wait = measured("wait of other sessions' UPDATEs meanwhile");
    my ($default) = $wait[1] =~ /By default: .*; (\d+) ms/ or die "no wait by default\n";
    my ($wait_cron) = $wait[2] =~ /; (\d+) ms/ or die "no wait of pg_cron\n";
    panel(24, 182, "Longest wait of other sessions' UPDATEs", 'while 500,000 rows expire; shorter is better',
        [$us, 'session_sweeper', $default, "$default ms"], [$cron, 'pg_cron', $wait_cron, "$wait_cron ms"]);

    my ($us_bad) = figures((measured('one row of 1,000 dead is refused'))[1]);
    my ($cron_bad) = figures((measured('one row of 1,000 dead is refused'))[2]);
    panel(496, 182, 'A foreign key refuses 1 row of 1,000', 'expired of the other 999; longer is better',
        [$us, 'session_sweeper', $us_bad, $us_bad], [$cron, 'pg_cron', $cron_bad, $cron_bad]);

    my @calls = measured('moving a deadline, 8 clients: calls/s');
    my ($touch, $update) = map { (figures($_))[0] } @calls[1, 2];
    my @wal = measured('WAL bytes, dead row versions a call');
    my ($wal_us, $wal_cron) = map { 0 + (figures($_))[0] } @wal[1, 2];
    my $thousands = sub { scalar reverse((reverse $_[0]) =~ s/(\d{3})(?=\d)/$1,/gr) };
    panel(24, 292, 'Moving a deadline, calls per second', '8 clients; longer is better',
        [$us, 'touch()', $touch, $thousands->($touch)], [$cron, 'UPDATE', $update, $thousands->($update)]);
    panel(496, 292, 'Moving a deadline, WAL per call', 'touch() also writes the row once per TTL; shorter is better',
        [$us, 'touch()', $wal_us, "$wal_us bytes"], [$cron, 'UPDATE', $wal_cron, "$wal_cron bytes"]);

    line('edge', 24, 384, 936, 384);
    text(24, 410, 'Where one statement is faster: it has no limit of rate, or writes no audit row', size => 13, bold => 1, color => 'blue');
    my @gone = measured('backlog of 500000 dead');
    my ($no_limit, $paced) = $gone[1] =~ /^([\d.]+) s .*; ([\d.]+) s/ or die "no times of a backlog\n";
    my ($gone_cron) = figures($gone[2]);
    panel(24, 438, '500,000 of 1,000,000 rows, with audit', 'seconds until all have expired; shorter is better',
        [$us, 'without limit', $no_limit, "$no_limit s"], [$us, '5,000 rows/s', $paced, "$paced s (the default)"], [$cron, 'pg_cron', $gone_cron, "$gone_cron s"]);
    my @pass = measured('(milliseconds here: the pass; bare, same, usual)');
    my ($ours, $bare, $same, $usual) = figures($pass[2]);
    panel(496, 438, 'The same rows: a pass without limit, and statements', 'milliseconds; shorter is better',
        [$us, 'pass', $ours, "$ours ms, with audit"], [$plain, 'DELETE', $bare, "$bare ms, no audit"],
        [$plain, 'same audit', $same, "$same ms"], [$plain, 'usual audit', $usual, "$usual ms"]);
    open my $fh, '<', "$here/bench.txt" or die "bench.txt: $!\n";
    my ($version) = <$fh> =~ /^(PostgreSQL [\d.]+)/ or die "bench.txt has no version\n";
    text(24, 594, "$version, two runs on 2 processors, of pass and of cron (see bench.txt); method and all figures: bench/README.md", size => 11, color => 'soft');
    finish('comparison');
}

processes();
session();
pass();
comparison();
