# No statement of a pass, of heartbeats or of a call with many rows compares each of its rows with all others: their plans, which
# auto_explain writes into the log, say how many rows each node has read.
use strict;
use warnings;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $n = 3000;
# A row may be read by some nodes, some times; one loop over all for each would be thousands.
my $most = 30;
my $node = sweeper_node('main', "shared_preload_libraries = 'session_sweeper, auto_explain'", 'auto_explain.log_min_duration = 0',
    'auto_explain.log_analyze = on', 'auto_explain.log_timing = off', 'auto_explain.log_nested_statements = on', 'auto_explain.log_buffers = on', "auto_explain.log_format = 'json'",
    'session_sweeper.max_workers = 2');
sub sql { return $node->safe_psql('postgres', @_) }

# The most rows that a node of the plan has read, and which.
sub rows_read {
    my ($plan) = @_;
    my @nodes = ($plan);
    my ($rows, $type) = (0, '');
    while (my $p = shift @nodes) {
        my $read = 0;
        $read += $p->{$_} // 0 for 'Actual Rows', grep { /^Rows Removed/ } keys %$p;
        $read *= $p->{'Actual Loops'} // 0;
        ($rows, $type) = ($read, $p->{'Node Type'}) if $read > $rows;
        push @nodes, @{ $p->{Plans} // [] };
    }
    return ($rows, $type);
}
# What has been run since then reads its rows a few times at most.
sub few {
    my ($offset, $what, $like) = @_;
    my $log = substr(slurp_file($node->logfile), $offset);
    my ($seen, $bad) = (0, '');
    while ($log =~ /duration: [\d.]+ ms  plan:\n((?:\t.*\n)+)/g) {
        my $query = decode_json($1);
        my ($rows, $type) = rows_read($query->{Plan});
        $seen++ if $query->{'Query Text'} =~ $like;
        $bad .= "$type reads $rows rows: $query->{'Query Text'}\n" if $rows > $most * $n;
    }
    ok($seen > 0, "$what: it was logged");
    is($bad, '', "$what: reads its rows a few times");
}
# A table with that many rows, half of them dead, and what is to be done with them; then a pass.
sub sweep {
    my ($what, $register, $like, %more) = @_;
    sql(q{CREATE TABLE b (id int, tenant int, d timestamptz, seen timestamptz DEFAULT now(), g text, state text DEFAULT 'new', } . ($more{key} // 'PRIMARY KEY (id)') . ") " . ($more{by} // ''));
    sql("CREATE TABLE b$_ PARTITION OF b FOR VALUES WITH (MODULUS 2, REMAINDER $_)") for $more{by} ? (0, 1) : ();
    sql("INSERT INTO b (id, tenant, d, g) SELECT i, i % 7, now() + CASE WHEN i % 2 = 0 THEN -1 ELSE 1 END * interval '1 h', i % 10 FROM generate_series(1, $n) AS i; CREATE INDEX ON b (d); VACUUM ANALYZE b");
    sql($_) for @{ $more{then} // [] };
    sql("SELECT FROM sweeper.register('b', start => 'now', check_every => '0', fuse_fraction => 1, $register)");
    my $holder = $node->background_psql('postgres');
    $holder->query_safe("BEGIN; $more{beside}") if $more{beside};
    my $offset = -s $node->logfile;
    $more{sweep} ? $more{sweep}->() : sql(q{CALL sweeper.sweep('b')});
    few($offset, $what, $like);
    $holder->quit;
    sql(q{SELECT sweeper.unregister('b'); DROP TABLE b; TRUNCATE sweeper.cleanup_event});
}

sql(q{CREATE EXTENSION session_sweeper;
    CREATE FUNCTION gone(key text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN false; END';
    CREATE FUNCTION all_gone(keys text[]) RETURNS boolean[] LANGUAGE plpgsql AS 'BEGIN RETURN array_fill(false, ARRAY[cardinality(keys)]); END';
    CREATE FUNCTION ended(keys text[]) RETURNS void LANGUAGE plpgsql AS 'BEGIN END';
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id % 500 = 0 THEN RAISE 'not this one'; END IF; RETURN OLD; END $$});

sweep('delete', q{deadline => 'd'}, qr/DELETE FROM ONLY/);
sweep('no audit', q{deadline => 'd', audit => 'none'}, qr/DELETE FROM ONLY/);
sweep('groups', q{deadline => 'd', group_by => 'g', audit => 'hash', capture => '{g}'}, qr/DELETE FROM ONLY/);
sweep('a key of two columns, in partitions', q{deadline => 'd'}, qr/DELETE FROM ONLY/, key => 'PRIMARY KEY (tenant, id)', by => 'PARTITION BY HASH (tenant, id)');
sweep('update', q{deadline => 'd', action => 'update', set_clause => 'state = ''ended''', filter => 'state = ''new'''}, qr/UPDATE ONLY/);
sweep('small batches', q{deadline => 'd', batch_size => 100}, qr/DELETE FROM ONLY/);
sweep('beside locked rows', q{deadline => 'd'}, qr/SKIP LOCKED/, beside => 'SELECT FROM b WHERE id % 300 = 0 FOR UPDATE');
sweep('rows that fail', q{deadline => 'd'}, qr/DELETE FROM ONLY/, then => ['CREATE TRIGGER refuse BEFORE DELETE ON b FOR EACH ROW EXECUTE FUNCTION refuse()']);
sweep('a hook', q{deadline => 'd', on_expire => 'ended'}, qr/ended/);
sweep('a check of a row', q{last_seen => 'd', ttl => '1 min', is_alive => 'gone'}, qr/gone/);
sweep('a check of many', q{last_seen => 'd', ttl => '1 min', is_alive => 'all_gone'}, qr/all_gone/);
sweep('repair', q{last_seen => 'd', ttl => '1 min', on_null => 'repair'}, qr/UPDATE/, then => ['UPDATE b SET d = NULL']);

# rows near their deadlines that heartbeats keep alive, without and beside some that are locked
for my $beside ('SELECT', 'SELECT FROM b WHERE id % 300 = 1 FOR UPDATE') {
    sweep("heartbeats, $beside", q{deadline => 'd', ttl => '1 day', heartbeats => true}, qr/ssw_until/, sweep => sub {
        is(sql(q{SELECT count(*) FROM b WHERE CASE WHEN id % 2 = 1 THEN sweeper.touch('b', id) END}), $n / 2, 'touched');
        sql(q{CALL sweeper.sweep('b')});
        cmp_ok(sql(q{SELECT count(*) FROM b WHERE d > now() + '20 h'}), '>=', 0.4 * $n, 'the rows know it');
    });
}

# sessions, whose rows are never waited for
sql(qq{SELECT sweeper.create_pool('p', ttl => '1 h'); SELECT sweeper.alter_policy('sweeper.session', check_every => '0', fuse_fraction => 1);
    SELECT count(*) FROM generate_series(1, $n) AS i, sweeper.acquire('p', i::text)});
sql(q{UPDATE sweeper.session SET expires_at = now() + interval '10 min'});
sql(q{CALL sweeper.sweep('sweeper.session')});
my $offset = -s $node->logfile;
is(sql(q{SELECT count(*) FROM sweeper.session WHERE NOT sweeper.heartbeat(session)}), 0, 'heartbeats of sessions');
sql(q{CALL sweeper.sweep('sweeper.session')});
is(sql(q{SELECT count(*) FROM sweeper.session WHERE expires_at > now() + interval '50 min'}), $n, 'they are in the rows');
few($offset, 'heartbeats of sessions', qr/ssw_until/);
$offset = -s $node->logfile;
my $client = $node->background_psql('postgres');
is($client->query_safe(q{SELECT count(*) FROM sweeper.session WHERE CASE WHEN owner::int <= 1000 THEN sweeper.attach(session) END}), 1000, 'attached');
$client->quit;
wait_for($node, q{SELECT count(*) = 1000 FROM sweeper.session WHERE status = 'expired'}, 'they have ended with their connection');
few($offset, 'sessions that end with their connection', qr/UPDATE ONLY/);
is(sql(q{SELECT count(DISTINCT key) FROM sweeper.cleanup_event WHERE relation = 'sweeper.session'}), 1000, 'each has an event');

# what clients do with many rows in one call
sql(qq{CREATE TABLE b (id int PRIMARY KEY, d timestamptz, g text);
    INSERT INTO b SELECT i, now() + '1 h', i % 2 FROM generate_series(1, $n) AS i;
    SELECT FROM sweeper.register('b', deadline => 'd', check_every => '0', ttl => '1 day', group_by => 'g', heartbeats => true)});
$offset = -s $node->logfile;
is(sql(q{SELECT count(*) FROM sweeper.touch_many('b', ARRAY(SELECT id::text FROM b))}), 0, 'all live');
is(sql(qq{SELECT sweeper.expire('b', ARRAY(SELECT i::text FROM generate_series(1, $n / 3) AS i))}), $n / 3, 'expire');
is(sql(q{SELECT sweeper.expire_group('b', '1')}), $n / 3, 'expire_group');
sql(q{SELECT sweeper.unregister('b')});
is(sql(q{SELECT count(*) FROM b WHERE d > now() + '23 h'}), $n / 3, 'heartbeats are in the rows');
sql(qq{SELECT sweeper.append_many('b', ARRAY(SELECT jsonb_build_object('id', i) FROM generate_series($n + 1, 2 * $n) AS i))});
sql(q{CALL sweeper.flush('b')});
is(sql(qq{SELECT count(*) FROM b WHERE id > $n}), $n, 'appended');
few($offset, 'calls with many rows', qr/INSERT INTO public.b/);

# Entries of rows that are gone stay in the index until VACUUM: a pass reads none of their pages.
sql(qq{CREATE TABLE gone (id int PRIMARY KEY, d timestamptz) WITH (autovacuum_enabled = off);
    INSERT INTO gone SELECT i, CASE WHEN i > $n THEN now() - '1 h'::interval ELSE 'infinity' END FROM generate_series(1, 11 * $n) AS i;
    CREATE INDEX gone_d ON gone (d); ANALYZE gone;
    SELECT FROM sweeper.register('gone', deadline => 'd', start => 'now', check_every => '0', fuse_min => 1)});
sql(q{CALL sweeper.sweep('gone', force => true)});
my $pages = sql(q{SELECT pg_relation_size('gone_d') / 8192});
cmp_ok($pages, '>', 20, 'the index has pages of dead entries');
sql(q{INSERT INTO gone VALUES (0, now() - '1 min'::interval)});
$offset = -s $node->logfile;
sql(q{CALL sweeper.sweep('gone')});
is(sql(q{SELECT count(*) FROM gone}), $n, 'the last one went');
my ($log, $seen, $bad) = (substr(slurp_file($node->logfile), $offset), 0, '');
while ($log =~ /duration: [\d.]+ ms  plan:\n((?:\t.*\n)+)/g) {
    my $query = decode_json($1);
    next if $query->{'Query Text'} !~ /FROM ONLY public\.gone/;
    $seen++;
    my $read = $query->{Plan}{'Shared Hit Blocks'} + $query->{Plan}{'Shared Read Blocks'};
    $bad .= "$read pages: $query->{'Query Text'}\n" if $read > $pages / 2;
}
cmp_ok($seen, '>=', 3, 'statements of a pass beside dead entries: the fuse, the search, the deletion');
is($bad, '', 'they do not read them');
$node->stop;
done_testing();
