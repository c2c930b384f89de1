# A table that is rewritten between the error of a row and its record: the row in the same place is not blamed for it.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
sub sql { return $node->safe_psql('postgres', @_) }
sql(q{CREATE EXTENSION session_sweeper;
    CREATE TABLE held ();
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF coalesce(NEW.bad, OLD.bad) THEN
            WHILE EXISTS (SELECT FROM held) LOOP PERFORM pg_sleep(0.01); END LOOP;
            RAISE 'bad row';
        END IF;
        RETURN coalesce(NEW, OLD); END $$;
    CREATE TABLE written (id int, bad boolean);
    CREATE TABLE swept (id int PRIMARY KEY, bad boolean, d timestamptz);
    CREATE INDEX ON swept (d);
    CREATE TRIGGER refuse BEFORE INSERT ON written FOR EACH ROW EXECUTE FUNCTION refuse();
    CREATE TRIGGER refuse BEFORE DELETE ON swept FOR EACH ROW EXECUTE FUNCTION refuse();
    SELECT sweeper.register('swept', deadline => 'd', start => 'now', batch_size => 1, max_workers => 1, max_retries => 1);
    SELECT sweeper.append('written', '{"id": 0}');
    CALL sweeper.flush('written')});

# While the row waits in the trigger, the rewrite waits for the table; then the row fails, and the rewrite comes first.
sub rewritten {
    my ($table, $begin) = @_;
    my $vacuum = $node->background_psql('postgres');
    sql('INSERT INTO held DEFAULT VALUES');
    sql($begin);
    wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'}, "a row of $table is in its trigger");
    my $file = sql("SELECT pg_relation_filenode('$table')");
    $vacuum->query_until(qr/begins/, "\\echo begins\nVACUUM FULL $table;\n");
    wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE relation = '$table'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted", 'the rewrite waits');
    sql('DELETE FROM held');
    wait_for($node, "SELECT pg_relation_filenode('$table') <> $file", 'the table is rewritten');
    $vacuum->quit;
}
# the first row's place is that of row 2 in the new file
rewritten('sweeper.append_row', q{SELECT sweeper.append_many('written', ARRAY['{"id": 1, "bad": true}', '{"id": 2}', '{"id": 3}']::jsonb[])});
wait_for($node, 'SELECT count(*) = 3 FROM written', 'the other rows are written');
is(sql(q{SELECT string_agg(row_data ->> 'id', ' ') FROM sweeper.append_failed_row}), '1', 'only the bad row is set aside');

rewritten('swept', q{BEGIN; INSERT INTO swept VALUES (0, false, 'infinity');
    INSERT INTO swept SELECT i, i = 1, now() + i * interval '1 ms' - interval '1 s' FROM generate_series(1, 3) AS i; DELETE FROM swept WHERE id = 0; COMMIT});
wait_for($node, 'SELECT count(*) = 1 FROM swept', 'the other rows end');
wait_for($node, q{SELECT count(*) = 1 FROM sweeper.failed_row WHERE state = 'quarantined'}, 'a row is quarantined');
is(sql('SELECT string_agg(key, $$ $$) FROM sweeper.failed_row'), '1', 'it is the bad one');

# Dead entries that an old snapshot kept: when it is gone, rows that are overdue as they are written are found as ever.
sql(q{CREATE TABLE past (id bigserial PRIMARY KEY, d timestamptz); CREATE INDEX ON past (d);
    SELECT sweeper.register('past', deadline => 'd', start => 'now', fuse_fraction => 1, backlog_rate => 0)});
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql(q{INSERT INTO past (d) SELECT now() - interval '1 s' FROM generate_series(1, 3000)});
wait_for($node, 'SELECT count(*) = 0 FROM past', 'they go');
my $gone = sql('SELECT now()');
wait_for($node, "SELECT last_look > '$gone' FROM sweeper.policy_status WHERE policy = 'past'", 'and a look has skipped their entries');
$old->query_safe('COMMIT');
$old->quit;
sql(q{INSERT INTO past (d) SELECT now() - interval '1 s' FROM generate_series(1, 5)});
my $since = time;
wait_for($node, 'SELECT count(*) = 0 FROM past', 'rows written with a deadline that has passed go');
cmp_ok(time - $since, '<', 30, 'before a bound would have been dropped anyway');
$node->stop;
done_testing();
