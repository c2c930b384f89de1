# Write-behind into a table that somebody has locked: it is tried each second, whatever else happens, and the log is told once.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Sweeper;

my $node = sweeper_node('main', 'max_prepared_transactions = 2');
sub sql { return $node->safe_psql('postgres', @_) }
sub told { my ($offset, $what) = @_; return scalar(() = slurp_file($node->logfile, $offset) =~ /$what/g) }
my $not_written = 'could not write rows appended to public.held';
sql(q{CREATE EXTENSION session_sweeper; CREATE TABLE held (n int); CREATE TABLE other (n int); CREATE SEQUENCE tries;
    CREATE FUNCTION down() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM nextval('tries');
        RAISE disk_full USING MESSAGE = 'no room for row ' || currval('tries'); END $$;
    SELECT sweeper.append('held', '{"n": 1}'), sweeper.append('other', '{"n": 1}');
    CALL sweeper.flush('held'); SELECT sweeper.alter_append('other', flush_every => '10 ms')});

# while a transaction is prepared, and while others append all the time
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE held IN SHARE MODE');
sql(q{BEGIN; CREATE TABLE pl (); PREPARE TRANSACTION 'p'});
my $offset = -s $node->logfile;
sql(q{SELECT sweeper.append('held', '{"n": 2}')});
$node->wait_for_log(qr/$not_written/, $offset);
my $written = sql('SELECT count(*) FROM other');
$node->command_ok([ 'psql', '-X', '-q', '-d', $node->connstr('postgres'), '-c', q{DO $$ BEGIN
    FOR i IN 1 .. 300 LOOP PERFORM sweeper.append('other', '{"n": 2}'); COMMIT; PERFORM pg_sleep(0.01); END LOOP; END $$} ], 'others append');
wait_for($node, "SELECT count(*) = $written + 300 FROM other", 'which is written');
is(told($offset, $not_written), 1, 'one line in the log for a table that stays locked');
$holder->query_safe('COMMIT');
wait_for($node, 'SELECT count(*) = 2 FROM held', 'when it is free, the row is written');

# append itself waits for a lock of mode ACCESS EXCLUSIVE, until the caller's lock_timeout
$holder->query_safe('BEGIN; LOCK TABLE held IN ACCESS EXCLUSIVE MODE');
my ($ret, $out, $err) = $node->psql('postgres', q{SET lock_timeout = '100 ms'; SELECT sweeper.append('held', '{"n": 9}')});
like($err, qr/lock timeout/, 'the caller does not wait for longer');
$holder->query_safe('COMMIT');

# an error of the table that is none of its rows: it is tried, but not at each occasion, and a new beginning is told again
$offset = -s $node->logfile;
sql(q{CREATE TRIGGER down BEFORE INSERT ON held FOR EACH ROW EXECUTE FUNCTION down(); SELECT sweeper.append('held', '{"n": 3}')});
$node->wait_for_log(qr/$not_written/, $offset);
my $since = time;
my $tries = sql('SELECT last_value FROM tries');
$node->command_ok([ 'psql', '-X', '-q', '-d', $node->connstr('postgres'), '-c', q{DO $$ BEGIN
    FOR i IN 1 .. 300 LOOP PERFORM sweeper.append('other', '{"n": 3}'); COMMIT; PERFORM pg_sleep(0.01); END LOOP; END $$} ], 'others append');
wait_for($node, "SELECT last_value > $tries + 1 FROM tries", 'it is tried again');
cmp_ok(sql('SELECT last_value FROM tries') - $tries, '<=', 2 * (time - $since) + 1, 'not all the time');
is(told($offset, $not_written), 1, 'nor told again');
$holder->query_safe('BEGIN; LOCK TABLE held IN SHARE MODE');
wait_until(sub { told($offset, "$not_written: another session holds a lock") == 1 }, 'another error is told');
$holder->query_safe('COMMIT');
sql('DROP TRIGGER down ON held');
wait_for($node, 'SELECT count(*) = 3 FROM held', 'the row is written');
sql(q{ROLLBACK PREPARED 'p'});

# many rows that wait for a lock, or for rows that they refer to, hold up neither the rows of other roles nor later rows of their own
sql(q{CREATE ROLE host; CREATE ROLE ann; CREATE ROLE bob; SELECT sweeper.grant_access(r, 'user') FROM unnest('{ann,bob}'::regrole[]) AS r;
    CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE shared (id int PRIMARY KEY, p int REFERENCES parent, at timestamptz DEFAULT clock_timestamp());
    ALTER TABLE parent OWNER TO host; ALTER TABLE shared OWNER TO host; GRANT INSERT, SELECT ON parent, shared TO ann, bob;
    SET ROLE ann; SELECT sweeper.append('parent', '{"id": 0}'); CALL sweeper.flush('parent');
    RESET ROLE; SELECT sweeper.alter_append('parent', flush_every => '1 h')});
my $written_by_now = 'SELECT count(*) = 1 FROM shared WHERE id =';
$holder->query_safe('BEGIN; SET LOCAL ROLE ann; INSERT INTO shared SELECT generate_series(1, 40)');
sql(q{SET ROLE ann; SELECT sweeper.append_many('shared', array_agg(jsonb_build_object('id', i))) FROM generate_series(1, 40) AS i});
sql(q{SET ROLE bob; SELECT sweeper.append('shared', '{"id": 101}')});
wait_for($node, "$written_by_now 101", 'a row of another role is written');
is(sql(q{SELECT count(*) >= 40 FROM sweeper.append_row}), 't', 'while the others wait');
sql(q{SET ROLE ann; SELECT sweeper.append('shared', '{"id": 102}')});
wait_for($node, "$written_by_now 102", 'a later row of the role is written');
sql(q{SET ROLE bob; SELECT sweeper.append('shared', '{"id": 103}')});
wait_for($node, "$written_by_now 103", 'and of others');
is(sql(q{SELECT count(*) FROM sweeper.append_row}), 40, 'while they wait');
$holder->query_safe('ROLLBACK');
wait_for($node, 'SELECT count(*) = 43 FROM shared', 'when the lock is released, all are written');
is(sql('SELECT count(DISTINCT id) FROM shared'), 43, 'each once');
wait_for($node, q{SELECT NOT bool_or(waiting) AND sum(resume_after) = 0 FROM sweeper.append_stream}, 'and nothing is kept of that');
sql(q{SET ROLE ann; SELECT sweeper.append('parent', '{"id": 1}'), sweeper.append_many('shared', array_agg(jsonb_build_object('id', i, 'p', 1))) FROM generate_series(201, 1200) AS i});
sql(q{SET ROLE ann; SELECT sweeper.append('shared', '{"id": 1201, "p": 0}')});
wait_for($node, "$written_by_now 1201", 'a row behind many that refer to one that waits');
is(sql(q{SELECT count(*) FROM sweeper.append_row}), 1001, 'these wait');
sql(q{SELECT sweeper.alter_append('parent', flush_every => '10 ms')});
wait_for($node, 'SELECT count(*) = 1000 FROM shared WHERE p = 1', 'and are written after it');
# nor do rows that refer to a table which is locked
$holder->query_safe('BEGIN; LOCK TABLE parent IN SHARE MODE');
sql(q{SET ROLE ann; SELECT sweeper.append('parent', '{"id": 2}'), sweeper.append('shared', '{"id": 1301, "p": 2}'), sweeper.append('shared', '{"id": 1302, "p": 0}')});
wait_for($node, "$written_by_now 1302", 'a row behind one that refers to a row for a locked table');
is(sql(q{SELECT count(*) FROM sweeper.append_row}), 2, 'which waits');
$holder->query_safe('COMMIT');
wait_for($node, "$written_by_now 1301", 'and is written after it');
# a row that waits only until it is its table's turn is not overtaken
sql(q{CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1.2); RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON parent FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION slow(); SELECT sweeper.alter_append('shared', flush_every => '10 ms');
    SET ROLE ann; SELECT sweeper.append(r.relation::regclass, r.row_data::jsonb) FROM (VALUES ('parent', '{"id": 3}'), ('parent', '{"id": 4}'),
        ('shared', '{"id": 1401, "p": 4}'), ('shared', '{"id": 1402, "p": 0}')) AS r (relation, row_data)});
wait_for($node, "$written_by_now 1402", 'rows that refer to rows of a long turn');
is(sql('SELECT array_agg(id ORDER BY at) FROM shared WHERE id > 1400'), '{1401,1402}', 'are written in their order');
is(sql('SELECT count(*) FROM sweeper.append_failed'), 0, 'none is set aside');
# nor do rows that all take too long delay other tables for longer than one of them
sql(q{CREATE TABLE hanging (n int); ALTER TABLE hanging OWNER TO host; GRANT INSERT ON hanging TO ann;
    CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;
    CREATE TRIGGER hang BEFORE INSERT ON hanging FOR EACH ROW EXECUTE FUNCTION hang();
    SET ROLE ann; SELECT sweeper.append_many('hanging', ARRAY['{"n": 1}', '{"n": 2}', '{"n": 3}']::jsonb[]);
    RESET ROLE; SELECT sweeper.alter_append('hanging', flush_every => '10 ms')});
wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'}, 'the first is tried');
sql(q{SET ROLE ann; SELECT sweeper.append('shared', '{"id": 1501}')});
wait_for($node, "$written_by_now 1501", 'a row behind rows that take too long');
cmp_ok(sql('SELECT count(*) FROM sweeper.append_row'), '>=', 1, 'which are still tried');
$holder->quit;
$node->stop('immediate');
done_testing();
