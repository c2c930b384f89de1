# doc/reference.md has a heading for each object, and none for what does not exist.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
$node->safe_psql('postgres', "CREATE EXTENSION session_sweeper; SELECT sweeper.create_pool('p', 1)");
my $page = slurp_file('doc/reference.md');

sub rows {
    my ($query) = @_;
    return split /\n/, $node->safe_psql('postgres', $query);
}

sub part {
    my ($title) = @_;
    my ($text) = $page =~ /^## \Q$title\E\n(.*?)(?=^## |\z)/ms or die "no part $title";
    return $text;
}

# The names that the headings of a part have, in order.
sub headings {
    my ($title, $pattern) = @_;
    my @names;
    for my $heading (part($title) =~ /^### (.*)$/mg) {
        fail("$title: heading \"$heading\"") and next unless $heading =~ /^$pattern$/;
        push @names, $1;
    }
    return @names;
}

# The text below a heading.
sub below {
    my ($heading) = @_;
    my ($text) = $page =~ /^### \Q$heading\E\n(.*?)(?=^##|\z)/ms or return '';
    return $text;
}

sub same {
    my ($what, $on_page, $real) = @_;
    my %on_page = map { $_ => 1 } @$on_page;
    my %real = map { $_ => 1 } @$real;
    is(join(' ', grep { !$on_page{$_} } @$real), '', "$what: the page lacks none");
    is(join(' ', grep { !$real{$_} } @$on_page), '', "$what: the page invents none");
    is(scalar(@$on_page), scalar(keys %on_page), "$what: none twice");
    return;
}

# Functions, and the names of their arguments and columns.  The arguments of register, adopt and alter_policy are a part of the page.
my $functions = q{FROM pg_proc AS p WHERE pronamespace = 'sweeper'::regnamespace AND proname !~ '^_'};
same('functions', [ headings('Functions', '(\w+)') ], [ rows("SELECT DISTINCT proname $functions") ]);
same('functions by subject', [ part('Functions') =~ /\[(\w+)\]\(#\1\)(?=[^\n]*\|$)/mg ], [ headings('Functions', '(\w+)') ]);
for my $line (rows(qq{SELECT proname, string_agg(DISTINCT a.name, ' ' ORDER BY a.name)
        FROM (SELECT proname, proargnames $functions AND proname NOT IN ('register', 'adopt', 'alter_policy')) AS f
        LEFT JOIN LATERAL unnest(proargnames) AS a (name) ON true GROUP BY proname})) {
    my ($function, $names) = split /\|/, $line;
    my ($signatures) = below($function) =~ /\A\n((?:`.*`\n)+)/ or fail("$function: no signature") and next;
    my %names;
    for my $list ($signatures =~ /\(([^()]*)\)/g) {
        $names{$_} = 1 for map { /^(\w+)/ ? $1 : () } split /, (?=\w+ )/, $list;
    }
    is(join(' ', sort keys %names), join(' ', sort split / /, $names // ''), "$function: arguments and columns");
}
my @arguments = headings('Arguments of register', 'Argument `(\w+)`');
same('arguments of register', \@arguments, [ rows(q{SELECT unnest(proargnames[1:pronargs]) FROM pg_proc WHERE oid = 'sweeper.register'::regproc}) ]);
for my $other ('adopt', 'alter_policy') {
    my %known = map { $_ => 1 } @arguments, below($other) =~ /^`.*?`$/m ? $& =~ /(\w+) \w+(?:\[\])? = /g : ();
    is(join(' ', grep { !$known{$_} } rows("SELECT unnest(proargnames[1:pronargs]) FROM pg_proc WHERE oid = 'sweeper.$other'::regproc")),
        '', "$other takes those and its own");
}

# Views and tables; columns where the page has them.
for ([ 'Views', 'View', 'v' ], [ 'Tables', 'Table', 'r' ]) {
    my ($title, $word, $kind) = @$_;
    my @names = headings($title, "$word `(\\w+)`");
    same(lc $title, \@names, [ rows("SELECT relname FROM pg_class WHERE relnamespace = 'sweeper'::regnamespace AND relkind = '$kind' AND relname !~ '^_'") ]);
    for my $name (@names) {
        my ($columns) = below("$word `$name`") =~ /^\| columns \|\n\| --- \|\n\| (.*) \|$/m;
        ok(defined $columns, "$word $name: columns") or next if $kind eq 'v';
        is($columns =~ tr/`//dr, join(', ', rows("SELECT attname FROM pg_attribute WHERE attrelid = 'sweeper.$name'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum")),
            "$word $name: its columns") if defined $columns;
    }
}

# Settings: the table at a glance, and a heading each.
my @settings = rows(q{SELECT name FROM pg_settings WHERE name LIKE 'session\_sweeper.%' ORDER BY name});
same('settings', [ headings('Settings', '`(session_sweeper\.\w+)`') ], \@settings);
my %glance;
my $settings = part('Settings');
$glance{$1} = [ $2, $3, $4 ] while $settings =~ /^\| \[(session_sweeper\.\w+)\]\(#\w+\) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$/mg;
same('settings at a glance', [ sort keys %glance ], \@settings);
for my $setting (sort keys %glance) {
    my ($default, $unit, $changed) = @{ $glance{$setting} };
    my $same = $unit =~ /^(?:ms|s|min)$/ ? "(boot_val || unit)::interval = interval '$default'" : "coalesce(nullif(boot_val, ''), 'empty') = '$default'";
    is($node->safe_psql('postgres', qq{
        SELECT $same, coalesce(unit, ''), CASE context WHEN 'sighup' THEN 'reload' WHEN 'postmaster' THEN 'restart' WHEN 'user' THEN 'each session' ELSE context || ', each session' END
        FROM pg_settings WHERE name = '$setting'}), "t|$unit|$changed", "$setting: default, unit, how it is changed");
}

# States, in the order of the code.
my ($names) = slurp_file('src/process/brake.c') =~ /\bstates\[\] = \{(.*?)^\};/ms;
is(join(', ', headings('States', 'State `([a-z -]+)`')), join(', ', $names =~ /"([^"]+)"/g), 'states, in order');

# Names of problems: strings of the third column of each part of view problem, except those that an expression needs.
sub problems {
    my ($sql) = @_;
    my %names;
    my ($view) = $sql =~ /^CREATE VIEW sweeper\.problem AS\n.*?^FROM \(\n(.*?)\) AS p;\nCOMMENT/ms or return;
    for my $part (split /^UNION ALL\n(?=SELECT)/m, $view) {
        my ($columns) = $part =~ /\ASELECT (.*?)^FROM /ms;
        my @columns = ('');
        my $depth = 0;
        while ($columns =~ /\G('(?:[^']|'')*'|\$\$.*?\$\$|\bCASE\b|\bEND\b|.)/gs) {
            $depth++ if $1 =~ /^(?:\(|CASE)$/;
            $depth-- if $1 =~ /^(?:\)|END)$/;
            if ($1 eq ',' && !$depth) { push @columns, ''; next }
            $columns[-1] .= $1;
        }
        my @found = $columns[2] =~ /'([^']+)'/g;
        push @found, $part =~ /s\.state IN \(([^)]*)\)/ ? $1 =~ /'([^']+)'/g : () if !@found || $columns[2] =~ /s\.state/;
        return unless @found;    # a part that is not understood
        $names{ s/:? *$//r } = 1 for @found;
    }
    return sort keys %names;
}
my @problems = problems(slurp_file('schema/49_problem.sql'));
push @problems, slurp_file('schema/51_all_nodes.sql') =~ /coalesce\(p\.problem, '([^']+)'\)/g;
cmp_ok(scalar(@problems), '>', 20, 'view problem is understood');
same('problems', [ headings('Problems', 'Problem `([^`]+)`') ], \@problems);

# Metrics and their types; seats of single pools are in metrics_text() only.
my @metrics = rows(q{SELECT m[1] || ' ' || m[2] FROM regexp_matches(sweeper.metrics_text(true) || sweeper.metrics_text(), '^# TYPE (\w+) (\w+)$', 'gn') AS m GROUP BY m ORDER BY m});
cmp_ok(scalar(@metrics), '>', 30, 'metrics');
same('metrics', [ map { below("`$_`") =~ /\A\n(Counter|Gauge|Histogram)\b/ ? "$_ " . lc $1 : $_ } headings('Metrics', '`(session_sweeper_\w+)`') ], \@metrics);

same('presets', [ part('Presets') =~ /^\| `([^`]+)` \|/mg ], [ rows('SELECT preset FROM sweeper.preset') ]);
$node->stop;
done_testing();
