#!/bin/bash
# english.sh [FILE…]: where the rules of plain English are broken (doc/CONTRIBUTING.md).
# Sentences of more than 30 words in *.md, outside tables and code; and the strings of
# tools/english.txt in documents, in comments and strings of C, in SQL, monitoring/ and shell scripts.
# With files it prints each place; without, the counts by file.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# != 0 ] && mode=places || mode=counts
if [ $# = 0 ]; then
    cd "$root"
    shopt -s nullglob
    set -- *.md doc/*.md bench/*.md monitoring/*.* monitoring/page/*.* schema/*.md schema/*.sql test/*.md test/*/README.md clients/*.md clients/*.sh src/*.md src/*/README.md \
        session_sweeper.c session_sweeper.control src/*/*.[ch] Makefile debian/README.Debian tools/*.sh tools/gate-calls.txt bench/*.sh test/*.sh test/*/*.sh
fi
# shellcheck disable=SC2016  # the program is Perl
exec perl -CSD -Mutf8 -Mstrict -e '
    my ($mode, $list, @files) = @ARGV;
    my (%better, $all);
    open my $in, "<", $list or die "$list: $!\n";
    while (<$in>) { $better{$1} = $2 if /^([^#\t]+)\t(.*)$/ }
    my $banned = join "|", map { s/ /\\s+(?:[*#]\\s+|--\\s+)?/gr } sort { length $b <=> length $a } keys %better;

    # What is not to be looked at becomes blank; lines stay.
    sub blank { $_[0] =~ s/\S/ /gr }
    sub line { 1 + (substr($_[0], 0, $_[1]) =~ tr/\n//) }

    # Text of C that people read: comments, and strings with a blank.
    sub of_c {
        my ($text) = @_;
        $text =~ s{(/\*.*?\*/)|("(?:[^"\\\n]|\\.)*")|(\x27(?:[^\x27\\\n]|\\.)*\x27)|([^/"\x27]+|.)}
            {defined $1 ? $1 : defined $2 && index($2, " ") >= 0 ? $2 : blank($&)}gse;
        return $text;
    }

    sub long_sentences {
        my ($text) = @_;
        $text =~ s/^( *)```.*?^\1```$/blank($&)/gmse;
        $text =~ s/^ *\|.*$/blank($&)/gme;
        $text =~ s/^#.*$/blank($&)/gme;
        my @found;
        while ($text =~ /\G(.*?)(\n(?=\s*\n)|\n(?=\s*(?:[-*]|\d+\.) )|\z)/gs) {
            my ($paragraph, $at, $end) = ($1, $-[1], $2);
            $paragraph =~ s/`[^`]*`/"X" . ("\n" x ($& =~ tr,\n,,))/ge;
            $paragraph =~ s/\]\([^)]*\)/"\n" x ($& =~ tr,\n,,)/ge;
            $paragraph =~ s/^(\s*)(?:[-*]|\d+\.) /$1/;
            while ($paragraph =~ /(\S.*?(?:[.!?][)"*\x{201d}]*(?=\s+[^a-z\s])|\z))/gs) {
                my ($sentence, $offset) = ($1, $-[1]);
                my $n = () = $sentence =~ /\S*\w\S*/g;
                push @found, [line($text, $at) + (substr($paragraph, 0, $offset) =~ tr/\n//), $n, $sentence =~ s/\s+/ /gr] if $n > 30;
            }
            last if $end eq "";
        }
        return @found;
    }

    my ($sum_long, $sum_strings) = (0, 0);
    for my $file (@files) {
        open my $fh, "<", $file or die "$file: $!\n";
        my $text = do { local $/; <$fh> };
        my @long = $file =~ /\.md$/ ? long_sentences($text) : ();
        $text = of_c($text) if $file =~ /\.[ch]$/;
        $text =~ s/`[^`\n]*`/blank($&)/ge if $file =~ /\.md$/;
        my @strings;
        push @strings, [line($text, $-[0]), $1 =~ s/\s+(?:[*#]\s+|--\s+)?/ /gr] while $text =~ /(?<![\w.])($banned)(?![\w])/gi;
        $sum_long += @long;
        $sum_strings += @strings;
        next unless @long || @strings;
        if ($mode eq "counts") {
            printf "%s: %d long, %d strings\n", $file, scalar @long, scalar @strings;
            next;
        }
        printf "%s:%d: %d words: %s\n", $file, @$_ for @long;
        printf "%s:%d: \"%s\": %s\n", $file, $_->[0], $_->[1], $better{lc $_->[1]} for @strings;
    }
    print "english: $sum_long long sentences, $sum_strings strings\n";
' "$mode" "$root/tools/english.txt" "$@"
