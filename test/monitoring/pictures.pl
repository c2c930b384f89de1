#!/usr/bin/perl
# pictures.pl ROOT PRIVATE PROMETHEUS FROM TO FOLDER: the dashboard's panels, drawn from what a Prometheus has of the
# time from FROM to TO, and the last screen of PRIVATE/watch.txt, as PNG files in FOLDER.  Grafana is no package of
# Debian: title, expression, legend and unit of each panel are the dashboard's, the drawing is ours.
use strict;
use warnings;
use utf8;
use HTTP::Tiny;
use JSON::PP;
use List::Util qw(max min);

my ($root, $private, $prometheus, $from, $to, $folder) = @ARGV;
my @palette = ('#2f6690', '#2f7d57', '#b7791f', '#b23a48', '#6b5b95', '#4a5568');
my ($columns, $wide, $high, $gap) = (3, 380, 230, 14);

sub slurp { my ($file) = @_; open(my $fh, '<', $file) or die "$file: $!"; local $/; return scalar <$fh> }
sub escaped { return $_[0] =~ s/&/&amp;/gr =~ s/</&lt;/gr =~ s/>/&gt;/gr }

sub series {
    my ($target) = @_;
    my %variable = ('__rate_interval' => '10s', datname => 'app', policy => '.*', instance => '.*');
    my $expr = $target->{expr} =~ s/\$(\w+)/$variable{$1} \/\/ "\$$1"/ger;
    my $form = HTTP::Tiny->new->www_form_urlencode({ query => $expr, start => $from, end => $to, step => 1 });
    my $answer = decode_json(HTTP::Tiny->new->get("http://127.0.0.1:$prometheus/api/v1/query_range?$form")->{content});
    my @found;
    for my $one (@{ $answer->{data}{result} // [] }) {
        my @points = grep { $_->[1] =~ /^[-+\d.e]+$/i } @{ $one->{values} };
        my $name = ($target->{legendFormat} // '') =~ s/\{\{(\w+)\}\}/$one->{metric}{$1} \/\/ ''/ger =~ s/\bapp //r =~ s/^127\.\S+ ?//r;
        push @found, { name => $name, points => \@points, most => max map { $_->[1] } @points } if @points;
    }
    return @found;
}

sub number {
    my ($value, $unit) = @_;
    return number($value / 3600, '') . ' h' if $unit eq 's' && $value >= 7200;
    return number($value / 60, '') . ' min' if $unit eq 's' && $value >= 180;
    my $text = $value >= 10_000 ? sprintf('%.0fk', $value / 1000) : $value >= 10 || $value == int $value ? sprintf('%.0f', $value) : sprintf('%.2g', $value);
    return $text . ($unit eq 's' ? ' s' : $unit eq 'cps' ? '/s' : '');
}

sub text {
    my ($x, $y, $words, $more) = @_;
    return qq(<text x="$x" y="$y" ) . ($more // 'font-size="11" fill="#52606d"') . '>' . escaped($words) . "</text>\n";
}

sub frame {
    my ($x, $y, $w, $h, $title) = @_;
    return qq(<rect x="$x" y="$y" width="$w" height="$h" rx="5" fill="#ffffff" stroke="#d3d9de"/>\n)
        . text($x + 12, $y + 20, $title, 'font-size="12.5" font-weight="bold" fill="#1f2933"');
}

sub figure {
    my ($panel, $x, $y, $w) = @_;
    my ($one) = map { series($_) } @{ $panel->{targets} };
    my $value = $one ? number($one->{points}[-1][1], $panel->{fieldConfig}{defaults}{unit} // '') : '-';
    return frame($x, $y, $w, 74, $panel->{title}) . text($x + 12, $y + 58, $value, 'font-size="26" fill="#2f6690"');
}

sub timeseries {
    my ($panel, $x, $y) = @_;
    my $unit = $panel->{fieldConfig}{defaults}{unit} // '';
    my @series = sort { $b->{most} <=> $a->{most} || $a->{name} cmp $b->{name} } map { series($_) } @{ $panel->{targets} };
    splice @series, 4;
    my $most = max(map({ $_->{most} } @series), $unit eq 's' ? 0.01 : 1);
    my $scale = 10**int(log($most) / log(10) - ($most < 1));
    ($most) = grep { $_ >= $most } map { $_ * $scale } 1, 2, 5, 10, 20;
    my ($left, $top, $w, $h) = ($x + 52, $y + 34, $wide - 68, $high - 96);
    my $out = frame($x, $y, $wide, $high, $panel->{title});
    for my $part (0, 0.5, 1) {
        my $at = $top + $h * (1 - $part);
        $out .= qq(<line x1="$left" y1="$at" x2="@{[$left + $w]}" y2="$at" stroke="#e4e8eb"/>\n)
            . text($left - 6, $at + 4, number($most * $part, $unit), 'font-size="10.5" fill="#52606d" text-anchor="end"');
    }
    for my $part (0, 0.5, 1) {
        $out .= text($left + $w * $part, $top + $h + 15, sprintf('%.0f s', ($to - $from) * $part), 'font-size="10.5" fill="#52606d" text-anchor="middle"');
    }
    for my $n (reverse 0 .. $#series) {
        my $d = join ' ', map { sprintf '%.1f,%.1f', $left + $w * ($_->[0] - $from) / ($to - $from), $top + $h * (1 - max(0, $_->[1]) / $most) } @{ $series[$n]{points} };
        $out .= qq(<polyline points="$d" fill="none" stroke="$palette[$n]" stroke-width="1.8"/>\n);
        my ($lx, $ly) = ($x + 14 + 180 * ($n % 2), $top + $h + 34 + 17 * int($n / 2));
        $out .= qq(<rect x="$lx" y="@{[$ly - 7]}" width="12" height="4" fill="$palette[$n]"/>\n) . text($lx + 18, $ly, substr($series[$n]{name} || $panel->{title}, 0, 26));
    }
    return $out;
}

sub screenshot {
    my ($file, $page, $w, $h) = @_;
    open my $fh, '>:utf8', "$private/page.html" or die "$private/page.html: $!";
    print $fh qq(<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">$page</body>\n);
    close $fh;
    my @chromium = ('timeout', '60', 'chromium-headless-shell', '--no-sandbox', '--disable-gpu', "--user-data-dir=$private/chromium",
        '--hide-scrollbars', "--window-size=$w,$h", "--screenshot=$folder/$file", "file://$private/page.html");
    system('sh', '-c', '"$@" 2>"$0"', "$private/chromium.log", @chromium) == 0 or die slurp("$private/chromium.log");
    print "drawn: $folder/$file\n";
}

# The rows of the dashboard with these titles; heat maps, tables and time lines of states are left to Grafana.
sub dashboard {
    my ($file, @rows) = @_;
    my $panels = decode_json(slurp("$root/monitoring/dashboard.json"))->{panels};
    my $width = $columns * $wide + ($columns + 1) * $gap;
    my ($out, $y, $row) = ('', $gap, '');
    my %of;
    for my $panel (@$panels) {
        $row = $panel->{title} if $panel->{type} eq 'row';
        push @{ $of{$row} }, $panel if $panel->{type} =~ /^(?:stat|timeseries)$/;
    }
    for my $title (@rows) {
        my @panels = @{ $of{$title} or die "the dashboard has no row \"$title\"\n" };
        $out .= text($gap + 2, $y + 14, $title, 'font-size="14" font-weight="bold" fill="#52606d"');
        $y += 24;
        my $stats = $panels[0]{type} eq 'stat';
        my $per_row = $stats ? 4 : $columns;
        my $w = $stats ? ($width - ($per_row + 1) * $gap) / $per_row : $wide;
        for my $n (0 .. $#panels) {
            my $x = $gap + ($n % $per_row) * ($w + $gap);
            $out .= $stats ? figure($panels[$n], $x, $y, $w) : timeseries($panels[$n], $x, $y);
            $y += ($stats ? 74 : $high) + $gap if $n == $#panels || $n % $per_row == $per_row - 1;
        }
    }
    screenshot($file, qq(<svg xmlns="http://www.w3.org/2000/svg" width="$width" height="$y" style="display:block" )
            . qq(font-family="DejaVu Sans, Verdana, sans-serif"><rect width="$width" height="$y" fill="#f4f5f2"/>\n$out</svg>), $width, $y);
}

sub watch {
    my @screens = split /^(?=session_sweeper in )/m, do { utf8::decode(my $text = slurp("$private/watch.txt")); $text };
    my $screen = $screens[-2] // die "watch.txt has no whole screen\n";
    my @lines = split /\n/, $screen =~ s/\s+\z//r;
    my $w = 24 + 8 * min(160, max(map { length } @lines));
    screenshot('watch.png', q(<pre style="margin:0;padding:12px;background:#1e2429;color:#dfe5ea;font:13px/17px 'DejaVu Sans Mono',monospace">)
            . escaped(join "\n", map { substr $_, 0, 160 } @lines) . '</pre>', $w, 24 + 17 * @lines);
}

dashboard('dashboard-sweeps.png', 'State', 'Rows and passes', 'How fast, how late');
dashboard('dashboard-sessions.png', 'Heartbeats', 'Pools, tasks, server');
watch();
