# Values of a type, most of them hostile, some of them right: SQL expressions.
# What an argument is called tells what would be right.
package Fuzz::Value;
use strict;
use warnings;
use Exporter 'import';
our @EXPORT_OK = qw(value one chance quoted);

sub one { return $_[ rand @_ ] }
sub chance { return rand() < $_[0] }

sub quoted {
    my ($text) = @_;
    $text =~ s/'/''/g;
    return $text =~ /\\/ ? 'E\'' . $text =~ s/\\/\\\\/gr . '\'' : "'$text'";
}

my @policies = ('fuzz.lease', 'fuzz.seen', 'fuzz.composite', 'fuzz.moody', 'fuzz.picky', 'fuzz.char_key', 'fuzz.no_key', 'fuzz.part', 'fuzz.hooked', 'fuzz.checked',
    'fuzz.hashed', 'fuzz."Odd ""table"" %s"', 'sweeper.session', 'sweeper.task', 'sweeper.cleanup_event', 'sweeper.pass', 'sweeper.worker', 'p1', 'fuzz.free', 'fuzz.express');
my @relations = ((map { "fuzz.$_" } qw(lease seen composite moody picky char_key no_key part part_one part_rest hooked checked hashed epoch free free free others target target target
            view matview sequence unlogged lease_pkey pair at_trigger at_index)), 'fuzz."Odd ""table"" %s"',
    qw(pg_class pg_proc pg_database pg_toast.pg_toast_1255 information_schema.tables sweeper.session sweeper.policy sweeper.task sweeper.append_row sweeper.problem));
my @columns = qw(expires_at seen_at ttl_s d who n id k note props mood picky created_at data a b "select" D t day iv s ctid tableoid xmin oid Expires_At nothing);
my @expressions = ("d + interval '1 s'", 'now()', 'random()', 'expires_at - 1', 'fuzz.odd_time(d)', 'fuzz.odd_time(expires_at)', 'fuzz.slow(d)', 'fuzz.fail()', "'{x}'::fuzz.picky_list", "'fail'::fuzz.picky_text",
    '(SELECT 1)', 'count(*)', 'generate_series(1,2)', 'row_number() OVER ()', 'd; DELETE FROM fuzz.lease', 'd -- ', 'd /*', '$1', '(', ')', 'true', 'null', "'infinity'", 'd = d', 'lease', 'fuzz.lease.d', '*', 'DEFAULT',
    'd IN (SELECT d FROM fuzz.seen)', 'current_setting(\'search_path\') = \'\'', 'n > 0', 'n / 0 > 1', 'mood = \'good\'', 'xmin', "COALESCE(d, 'infinity')");
my %words = (
    policy => \@policies, relation => \@relations, pool => [ 'p1', 'p2', 'sweeper.worker', 'p3', 'sweeper.x' ], owner => [ 'o1', 'o2', 'fuzz_user' ], key => [ '1', '(1,"a,""b\\\\")', '(3,)', 'good', 'p1', 'c1', 'secret1', '%s 1', '(0,1)' ],
    status => [qw(completed failed cancelled running)], room => [ 'room', '@global', '@internal', 'r2' ], category => ['category'], name => [ 'name', 'w' ], on_worker_loss => [qw(fail requeue)],
    start => [qw(auto now paused)], unit => [qw(s ms us)], timezone => [ 'UTC', 'Europe/Berlin', 'posix/Nowhere', '+25', "Etc/GMT-14" ], on_null => [qw(ignore repair expire)], action => [qw(delete update call)],
    audit => [qw(row hash count none)], if_exists => [qw(error alter)], maintenance_window => [ 'Mon-Fri 22:00-06:00 UTC', '00:00-24:00', '25:00-1:00', 'Mon' ], search_path => [ 'fuzz', 'pg_temp, public', '"$user"', 'a,', '' ],
    preset => [qw(express django rails hangfire)], deadline => [ @columns, @expressions ], last_seen => [ @columns, @expressions ], ttl_column => [ @columns, 'ttl_s' ], created => [ @columns, @expressions ], filter => \@expressions,
    set_clause => [ 'note = null', 'n = n + 1', 'd = null', 'nothing = 1', "d = now(), d = now()", 'd = DEFAULT', '(d, n) = (SELECT now(), 1)', '"select" = null', @expressions ], group_by => [ @columns, @expressions ],
    level => [qw(user monitor admin superuser)], schedule => [ '* * * * *', '30 seconds', 'never' ], command => [ 'SELECT 1', 'SELECT pg_sleep(0.1)', 'COMMIT', 'SELECT 1/0', 'VACUUM', 'SELECT 1; SELECT 2', 'SELECT (', 'CALL fuzz.refill()', 'SELECT fuzz.fail()', 'SELECT sweeper.task_progress()' ],
    statement => ['SELECT 1'], reset => [ '{ttl}', '{filter,group_by}', '{nothing}', '{seats}' ],
);
my @hostile = ("''", "' '", "'null'", "'-1'", "'1e400'", "'NaN'", "'infinity'", "'00000000-0000-0000-0000-000000000000'", "'{a,b}'", "'{'", "'('", "'(,)'", q{'("'}, "'%s%n%s%d'", q{E'\\\\'}, q{''';DROP TABLE fuzz.free;--'},
    "'/*'", "'--'", "'\$1'", "'pg_temp'", "E'\\x7f\\x01\\n\\r\\t'", "U&'\\+01F600'", "U&'\\202E\\00a0'", 'chr(1114111)', "repeat('x', 63)", "repeat('x', 64)", "repeat('é', 32)", "repeat('x', 1000)", "repeat('x', 8200)",
    "repeat('x', 1000000)", "repeat('(', 20000)", "repeat(''',', 3000)", "repeat(E'\\n', 5000)", "repeat('a.', 1000)", "repeat('1 + ', 4000) || '1'", "'Ü'", "'sweeper.x'", "'pg_catalog.pg_class'", "'(1,2)'", "'999999999999999999999'");

# Of the right kind and of others.
sub id_of {
    my ($what) = @_;
    return one("'00000000-0000-0000-0000-000000000000'::uuid", "'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid", 'gen_random_uuid()') if chance(0.15);
    my @right = $what eq 'task' ? map { "task $_" } qw(allocated enqueued claimed running completed failed) : $what eq 'worker' ? ('worker') : ('session active', 'session released', 'session expired', 'worker');
    my $kind = chance(0.75) ? one(@right) : one('session active', 'worker', 'task running', 'task enqueued', 'lease');
    return "fuzz.pick('$kind', " . int(rand 4) . ')';
}

sub text_of {
    my ($name) = @_;
    my $words = $words{$name} // $words{ $name =~ s/s$//r };
    if ($name =~ /^keys?$/ && chance(0.25)) { return 'fuzz.pick(\'lease\', ' . int(rand 8) . ')::text' }
    return one(@hostile) if chance($words ? 0.25 : 0.7);
    return quoted(one(@$words)) if $words && chance(0.9);
    return quoted(one(map { @$_ } @words{ sort keys %words }));
}

my %of = (
    boolean => sub { one('true', 'false') },
    integer => sub { one(0, 1, 2, 3, 100, -1, 2147483647, '(-2147483648)', 1048576, 65536, 1000) },
    bigint => sub { one(0, 1, 2, 5, -1, 2147483648, 9223372036854775807, '(-9223372036854775808)') },
    real => sub { one(0, 0.5, 1, -0.1, "'NaN'", "'Infinity'", "'-Infinity'", "'1e-45'", "'3.4e38'") },
    'double precision' => sub { one(0, 0.5, -1, "'NaN'", "'Infinity'", "'-Infinity'", "'1e-320'", "'1.7e308'") },
    oid => sub { one(0, 1, 4294967295, "'pg_class'::regclass", "'fuzz.lease'::regclass", "'fuzz_user'::regrole", "'fuzz_admin'::regrole") },
    uuid => sub { id_of($_[0]) },
    text => sub { text_of($_[0]) },
    name => sub { one("''", "'fuzz_user'", "repeat('x', 63)") },
    interval => sub {
        return $_[0] =~ /^(wait|timeout)$/ ? one("'0'", "'1 ms'", "'50 ms'", "'-1 s'", "'1 month'", "'-2147483648 days'", "'2147483647 days'")
            : one("'0'", "'1 s'", "'2 s'", "'1 us'", "'1 h'", "'1 day'", "'-1 s'", "'1 month'", "'1 mon -30 days'", "'73000 days'", "'73001 days'", "'-2147483648 days'", "'2147483647 days'", "'-2147483648 mons'",
                "'2562047788 hours'", "'-2562047788 hours'", "'2147483647 days 2562047788 hours'", "'50 ms'", "'100 ms'", "'5 min'", "'-178000000 years'");
    },
    'timestamp with time zone' => sub { one('now()', "now() + interval '1 s'", "now() - interval '1 h'", "'infinity'", "'-infinity'", "'4714-11-24 00:00:00+00 BC'", "'294276-12-31 23:59:59.999999+00'", "'epoch'", "'2026-10-25 02:30 Europe/Berlin'") },
    regclass => sub { chance(0.08) ? one('0', '1', '4294967295') . '::oid::regclass' : quoted(one(@relations)) . '::regclass' },
    regprocedure => sub { chance(0.08) ? one('0', '4294967295') . '::oid::regprocedure' : quoted(one('fuzz.hook(text[])', 'fuzz.row_hook(fuzz.lease[])', 'fuzz.alive(text)', 'fuzz.alive_many(text[])', 'fuzz.wrong_set(text[])', 'fuzz.wrong_arguments(int,int)',
                'fuzz.wrong_any(anyelement)', 'fuzz.wrong_variadic(text[])', 'fuzz.wrong_procedure(text[])', 'fuzz.wrong_trigger()', 'fuzz.wrong_aggregate(text)', 'sum(int)', 'pg_sleep(float8)', 'now()', 'array_in(cstring,oid,int)', 'rank()', 'cardinality(anyarray)', 'quote_ident(text)', 'sweeper.is_live(uuid)', 'sweeper.heartbeat(uuid)', 'sweeper.unregister(text)')) . '::regprocedure' },
    regrole => sub { chance(0.1) ? one('0', '4294967295') . '::oid::regrole' : quoted(one('fuzz_user', 'fuzz_user', 'fuzz_monitor', 'fuzz_admin', 'fuzz_none', 'fuzz_group', 'fuzz_super', '"Odd ""role"" \'é"', 'pg_monitor')) . '::regrole' },
    jsonb => sub { one("'{}'", "'null'", "'[]'", "'1'", "'\"x\"'", "'{\"a\": 1}'", "'{\"a\": 1, \"b\": \"x\", \"c\": {\"d\": [1,2]}}'", "'{\"\": null}'", "'{\"a\": \"x\"}'", "'{\"nothing\": 1}'", "'{\"g\": 1}'", "'{\"a\": 1e400}'", "'{\"m\": \"good\", \"p\": \"fail\"}'", "'{\"l\": [1], \"f\": {\"a\": 1}}'", "'{\"c\": \"\\\\ud83d\\\\ude00\"}'",
            "jsonb_build_object('b', repeat('x', 2000000))", "(repeat('[', 3000) || repeat(']', 3000))::jsonb", 'fuzz.many_keys()', "'[{\"a\": 1}]'", "'{\"at\": \"infinity\", \"a\": 2147483648}'") },
);

# An SQL expression of that type for an argument of that name.
sub value {
    my ($type, $name) = @_;
    return "NULL::$type" if chance(0.06);
    if ($type =~ /^(.*)\[\]$/) {
        my $element = $1;
        my $cast = sub { '(' . $of{$element}->($name =~ s/s$//r) . ")::$element" };
        return one("'{}'::$type", "'{NULL}'::$type", "ARRAY[NULL, " . $cast->() . "]::$type", "ARRAY[[" . $cast->() . '],[' . $cast->() . "]]::$type", "array_fill(" . $cast->() . ", ARRAY[3], ARRAY[-5])", "array_fill(" . $cast->() . ", ARRAY[1,2,1,2])",
            "array_fill(NULL::$element, ARRAY[2])", ($element eq 'text' ? "array_fill(left(" . $cast->() . ", 10), ARRAY[" . ($name eq 'keys' ? 10000 : 100000) . '])' : "array_fill(" . $cast->() . ", ARRAY[10000])"), "ARRAY[" . $cast->() . ']', "ARRAY[" . join(', ', map { $cast->() } 1 .. 5) . ']', "ARRAY[" . $cast->() . ']')
            unless $element eq 'text' && $words{$name} && $words{$name}[0] =~ /^\{/ && chance(0.5);
        return quoted(one(@{ $words{$name} })) . "::$type";
    }
    my $make = $of{$type} or return "NULL::$type";
    my $text = $make->($name);
    return $text =~ /::\w+$|^fuzz\.pick|^\d+$|^true$|^false$/ ? $text : "($text)::$type";
}
1;
