# A table that is altered in the middle of a pass: nothing goes by what its columns meant before.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(4711)');
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    CREATE TABLE swap (id int PRIMARY KEY, d timestamptz, a boolean, b boolean);
    INSERT INTO swap SELECT i, now() - interval '1 h' + i * interval '1 s', i <= 2000, i > 2000 FROM generate_series(1, 4000) AS i;
    CREATE INDEX ON swap (d);
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN
        PERFORM pg_advisory_lock(4711), pg_advisory_unlock(4711); RETURN OLD; END $$;
    CREATE TRIGGER hold AFTER DELETE ON swap FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION hold();
    SELECT sweeper.register('swap', deadline => 'd', filter => 'a IS TRUE', start => 'now', check_every => '100 ms', batch_size => 10, fuse_fraction => 1)});
wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'the first batch is held');
my $swapper = $node->background_psql('postgres');
$swapper->query_until(qr/waits/, q{\echo waits
    BEGIN; ALTER TABLE swap RENAME a TO tmp; ALTER TABLE swap RENAME b TO a; ALTER TABLE swap RENAME tmp TO b; COMMIT;
});
wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE relation = 'swap'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted",
    'the swap waits behind it');
# the worker itself must see it, before any other tells it
my ($coordinator) = pids($node, 'coordinator');
wait_for($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $coordinator", 'the coordinator sleeps');
kill 'STOP', $coordinator;
$holder->query_safe('SELECT pg_advisory_unlock(4711)');
wait_for($node, "SELECT bool_and(state = 'idle') FROM sweeper.stat_process WHERE backend_type = 'session_sweeper worker'", 'the worker has left the pass');
is($node->safe_psql('postgres', 'SELECT count(*) FROM swap WHERE id > 2000'), 2000, 'no row that the filter left out went in the pass');
kill 'CONT', $coordinator;
wait_for($node, "SELECT state = 'broken' FROM sweeper.policy_status WHERE policy = 'swap'", 'it is noticed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM swap WHERE id > 2000'), 2000, 'nor later');
is($node->safe_psql('postgres', 'SELECT count(*) FROM swap WHERE id <= 2000'), 1990, 'after the batch that was held');
like($node->safe_psql('postgres', "SELECT detail FROM sweeper.problem WHERE policy = 'swap'"), qr/column "a", which filter names/, 'and told');
$swapper->quit;

# A partition that is rewritten while its rows are asked about: an answer stays with its row, with a key and without.
for my $table ('keyed', 'keyless') {
    my $key = $table eq 'keyed' ? 'PRIMARY KEY' : '';
    my $name = $table eq 'keyed' ? 'id::text' : 'ctid::text';
    $holder->query_safe('SELECT pg_advisory_lock(4711)');
    $node->safe_psql('postgres', qq{
        CREATE TABLE $table (id int $key, seen timestamptz) PARTITION BY RANGE (id);
        CREATE TABLE ${table}_part PARTITION OF $table FOR VALUES FROM (0) TO (10);
        INSERT INTO $table SELECT i, now() - interval '1 h' FROM generate_series(0, 3) AS i;
        DELETE FROM $table WHERE id = 0;
        CREATE FUNCTION ${table}_alive(key text) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = 0 AS \$\$ DECLARE
            i int = (SELECT id FROM $table WHERE $name = key);
        BEGIN
            IF i = 1 THEN PERFORM pg_advisory_lock(4711), pg_advisory_unlock(4711); END IF; RETURN i <> 1; END \$\$;
        SELECT sweeper.register('$table', last_seen => 'seen', ttl => '5 min', is_alive => '${table}_alive(text)', start => 'now', check_every => '100 ms')});
    wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'it asks about the first row');
    my $rewriter = $node->background_psql('postgres');
    $rewriter->query_until(qr/waits/, qq{\\echo waits\nVACUUM FULL ${table}_part;\n});
    wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE relation = '${table}_part'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted",
        'the rewrite waits behind it');
    $holder->query_safe('SELECT pg_advisory_unlock(4711)');
    wait_for($node, "SELECT NOT EXISTS (SELECT FROM $table WHERE seen < now() - interval '5 min')", 'nothing is left to be done');
    is($node->safe_psql('postgres', "SELECT string_agg(id::text, ',' ORDER BY id) FROM $table"), '2,3', "$table: who is alive stays");
    $rewriter->quit;
}
$holder->quit;
$node->stop;
done_testing();
