# Expressions in policies that sweep while they are changed: a small grammar of typed expressions.
package Fuzz::Expression;
use strict;
use warnings;
use Fuzz::Value qw(one chance quoted);

my %column = (time => [qw(expires_at)], bool => [], int => ['n'], text => [qw(note who)], json => ['props'], interval => []);
my %literal = (
    time => [ 'now()', "'infinity'::timestamptz", "'-infinity'::timestamptz", "'epoch'::timestamptz", "'2026-03-29 02:30'::timestamp", "'290000-01-01'::timestamptz", 'NULL::timestamptz', "'2026-01-01'::date" ],
    bool => [ 'true', 'false', 'NULL::boolean', "'{x}'::fuzz.picky_list IS NOT NULL", "'fail'::fuzz.picky_text IS NULL", 'fuzz.fail()', "'good'::fuzz.mood::text IS NULL" ],
    int => [ 0, 1, -1, 2147483647, "'NaN'::numeric", '(1/0)', "'-Infinity'::float8", '9223372036854775807', 'NULL::int', "'5'::fuzz.never_null", 'NULL::fuzz.never_null' ],
    text => [ "''", "'x'", "NULL::text", "'fail'::fuzz.picky_text", "repeat('x', 100000)", "'good'::fuzz.mood::text", 'current_user::text', "U&'\\+01F600'" ],
    json => [ "'{}'::jsonb", "'null'::jsonb", "'[1]'::jsonb", 'NULL::jsonb' ],
    interval => [ "interval '1 s'", "interval '-178000000 years'", "interval '1 month'", "interval '0'", "make_interval(secs => n)", 'NULL::interval' ]);
my %rule = (
    time => [ 'TIME + INTERVAL', 'COALESCE(TIME, TIME)', 'CASE WHEN BOOL THEN TIME ELSE TIME END', 'fuzz.odd_time(TIME)', 'fuzz.slow(TIME)', 'to_timestamp(INT)', "TIME AT TIME ZONE 'UTC'", "date_trunc('second', TIME)", '(TEXT)::timestamptz', 'greatest(TIME, TIME)', "(JSON ->> 'at')::timestamptz", '(SELECT max(TIME))' ],
    bool => [ 'BOOL AND BOOL', 'BOOL OR NOT BOOL', 'INT > INT', 'TEXT = TEXT', 'TEXT LIKE TEXT', 'TIME < TIME', 'TIME IS NULL', 'INT = ANY (ARRAY[INT, INT])', 'fuzz.picky(TEXT)', 'mood = ANY (enum_range(NULL::fuzz.mood))', 'picky IS DISTINCT FROM TEXT', 'ROW(n, who) > ROW(INT, TEXT)', "JSON @> JSON", 'EXISTS (SELECT 1)', 'fuzz.slow(BOOL)' ],
    int => [ 'INT + INT', 'INT / INT', 'length(TEXT)', 'CASE WHEN BOOL THEN INT END', '(TEXT)::int', 'extract(epoch FROM TIME)', 'count(*)', 'generate_series(1, INT)', 'nullif(INT, INT)', 'random()' ],
    text => [ 'TEXT || TEXT', 'lower(TEXT)', 'substr(TEXT, INT::int)', '(INT)::text', 'mood::text', '(TIME)::text', "JSON ->> 'a'", 'CASE WHEN BOOL THEN TEXT ELSE TEXT END', 'md5(TEXT)', 'quote_ident(TEXT)', "to_char(TIME, TEXT)", 'lease::text' ],
    json => [ 'JSON || JSON', "JSON -> 'a'", 'to_jsonb(TEXT)', 'jsonb_build_object(TEXT, INT)', 'to_jsonb(lease)' ],
    interval => [ 'INTERVAL * INT', 'INTERVAL + INTERVAL', 'TIME - TIME', '(TEXT)::interval', 'fuzz.slow(INTERVAL)' ]);

sub expression {
    my ($type, $depth) = @_;
    return one(@{ $column{$type} }) if @{ $column{$type} } && chance(0.4);
    return one(@{ $literal{$type} }) if $depth <= 0 || chance(0.3);
    my $rule = one(@{ $rule{$type} });
    $rule =~ s/\b(TIME|BOOL|INT|TEXT|JSON|INTERVAL)\b/'(' . expression(lc $1, $depth - 1) . ')'/ge;
    return $rule;
}

# What a parser sees that is lied to.
sub mangled {
    my ($text) = @_;
    return $text if chance(0.85);
    return one("$text)", "($text", "$text --", "$text /*", "$text; SELECT 1", "$text, 1", "1 $text", "$text AS x", "$text RETURNING *", "\$1 = $text", "$text COLLATE \"C\"", "'$text", "$text\" ", substr($text, 0, rand length $text), ('(' x 5000) . $text . (')' x 5000), $text . " AND true" x 3000,
        $text =~ s/n\b/sum(n) OVER ()/r, $text =~ s/expires_at/ctid/r);
}

my %argument = (
    deadline => sub { expression('time', 3) }, filter => sub { expression('bool', 3) }, group_by => sub { expression('text', 2) },
    set_clause => sub { join ', ', map { one('expires_at', 'note', 'n', 'who', 'picky', 'mood', 'props') . ' = ' . expression(one(qw(time text int json)), 2) } 1 .. one(1, 1, 2) },
    created => sub { expression('time', 2) }, last_seen => sub { expression('time', 2) });

# A policy of an own table, registered with one thing after another, and swept.
sub lines {
    my ($n) = @_;
    my $table = 'fuzz.e' . $n;
    my @lines = (["CREATE TABLE $table (LIKE fuzz.lease INCLUDING ALL);"], ["ALTER TABLE $table OWNER TO fuzz_user;"],
        ["INSERT INTO $table SELECT (jsonb_populate_record(l, jsonb_build_object('expires_at', now() - interval '1 s' * (random() * 10)))).* FROM fuzz.lease AS l;"]);
    my %with = (deadline => 'expires_at', fuse_fraction => 1, start => 'now', check_every => '100 ms');
    push @lines, [ "SELECT sweeper.register('$table', " . join(', ', map { "$_ => '$with{$_}'" } sort keys %with) . ');', 'register' ];
    for (1 .. 8) {
        my $what = one(sort keys %argument);
        my $text = quoted(mangled($argument{$what}->()));
        my $set = $what eq 'set_clause' ? "action => 'update', set_clause => $text" : $what eq 'created' ? "created => $text, max_age => '1 h'"
            : $what eq 'last_seen' ? "last_seen => $text, ttl => '1 s', reset => '{deadline}'" : "$what => $text";
        $set .= one('', '', ", on_expire => 'fuzz.hook(text[])'", ", is_alive => 'fuzz.alive(text)', ttl => '1 s'", ", is_alive => 'fuzz.alive_many(text[])', ttl => '1 s'", ", audit => 'hash'", ", key => '{who,n}'", ", on_null => 'repair', ttl => '1 s'", ", capture => '{note,props,mood}'");
        my $again = join ', ', "if_exists => 'alter'", $set =~ s/, reset => '\{deadline\}'//r, map { "$_ => '$with{$_}'" } grep { $set !~ /^$_ =>/ } sort keys %with;
        push @lines, chance(0.7) ? [ "SELECT sweeper.alter_policy('$table', $set);", 'alter_policy' ] : [ "SELECT sweeper.register('$table', $again);", 'register' ],
            ["UPDATE $table SET expires_at = now() - interval '1 s', note = '', n = n % 4;"],
            [ "CALL sweeper.sweep('$table', timeout => '300 ms');", 'sweep' ],
            map { [ "SELECT * FROM sweeper.$_;", $_ =~ s/\(.*//r ] } one("preview('$table')", "explain_row('$table', (SELECT id::text FROM $table LIMIT 1))", "explain_sweep('$table')", "expire('$table', ARRAY(SELECT id::text FROM $table LIMIT 2), 'x')", "is_live('$table', (SELECT id::text FROM $table LIMIT 1))", "policy_status", "problem", "resume('$table')", "metrics_text()");
    }
    push @lines, [ "SELECT sweeper.unregister('$table');", 'unregister' ], ["DROP TABLE IF EXISTS $table;"];
    return @lines;
}
1;
