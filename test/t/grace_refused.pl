# Times in which heartbeats cannot be: they are credited when they are over, and the credit ends.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
my ($ret, $out, $err, $holder);
sub sql { return $node->safe_psql('postgres', @_) }
sub verdict { my ($table, $key) = @_; return sql("SELECT verdict FROM sweeper.explain_row('$table', '" . ($key // 1) . "')") }
# the first start credits the second since initdb
sub credited { my ($table, $key) = @_; return wait_for($node, "SELECT verdict = 'in grace' AND deadline < now() - interval '2 s' FROM sweeper.explain_row('$table', '" . ($key // 1) . "')") }
sql('CREATE EXTENSION session_sweeper');
sub make {
    my ($table, $ttl, $more) = @_;
    sql("CREATE TABLE $table (id int PRIMARY KEY, d timestamptz, f text DEFAULT 'on'); CREATE INDEX ON $table (d);
        SELECT sweeper.register('$table', deadline => 'd', ttl => '$ttl', heartbeats => true, start => 'now', fuse_fraction => 1, check_every => '100 ms'" . ($more // '') . ')');
    return;
}

# the server takes no writes
make('briefly', '4 s');
sql(qq{INSERT INTO $_ VALUES (1, now() + interval '2 s')}) for qw(briefly);
sql(q{CREATE TABLE active (id int PRIMARY KEY, seen timestamptz); CREATE INDEX ON active (seen);
    SELECT sweeper.register('active', last_seen => 'seen', ttl => '3 s', start => 'now', fuse_fraction => 1, check_every => '100 ms');
    SELECT sweeper.create_pool('desk', seats => 1, ttl => '3 s')});
my $session = sql(q{SELECT session FROM sweeper.acquire('desk', 'ann')});
sql(qq{INSERT INTO active VALUES (1, now()); SELECT sweeper.heartbeat('$session')});
sql('ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()');
ok(credited('briefly'), 'read-only for a part of a time to live');
wait_for($node, q{SELECT expires_at < now() FROM sweeper.session WHERE owner = 'ann'}, 'a seat is due');
sql('SET default_transaction_read_only = off; ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()');
is(verdict('briefly'), 'in grace', 'credited when it is over');
is(sql(q{SELECT count(*) FROM sweeper.acquire('desk', 'bob')}), 0, 'its seat is not given away');
is(sql(qq{SELECT sweeper.heartbeat('$session')}), 't', 'whoever has it goes on');
is(sql('SELECT count(*) FROM active'), 1, 'the application could not write, either');
wait_for($node, "SELECT count(*) = 0 FROM $_", "$_: the credit ends") for qw(briefly active);
wait_for($node, q{SELECT count(*) = 0 FROM sweeper.live_session}, 'for seats, too');
cmp_ok(sql(q{SELECT extract(epoch FROM cleaned_at - deadline) FROM sweeper.cleanup_event WHERE policy = 'briefly'}), '>', 2.5, 'after as long as that was');

# a database may have another default: there is service in it
$node->safe_psql('postgres', 'CREATE DATABASE writable; ALTER DATABASE writable SET default_transaction_read_only = off');
$node->safe_psql('writable', q{CREATE EXTENSION session_sweeper; CREATE TABLE active (id int PRIMARY KEY, seen timestamptz); CREATE INDEX ON active (seen);
    SELECT sweeper.register('active', last_seen => 'seen', ttl => '1 h', start => 'now', fuse_fraction => 1, check_every => '100 ms')});
sql('ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()');
wait_for($node, q{SELECT state = 'read-only' FROM sweeper.policy_status WHERE policy = 'active'}, 'read-only');
sql(q{SET default_transaction_read_only = off; INSERT INTO active VALUES (1, now() - interval '1 min')});
wait_for($node, q{SELECT verdict = 'in grace' FROM sweeper.explain_row('active', '1')}, 'that is an outage of the service');
$node->safe_psql('writable', q{INSERT INTO active VALUES (1, now() - interval '1 d')});
wait_for($node, 'SELECT count(*) = 0 FROM active', 'its dead go', 'writable');
sql('SET default_transaction_read_only = off; ALTER DATABASE postgres SET default_transaction_read_only = off');
is(sql('SELECT count(*) FROM active'), 1, 'a database that goes its own way from now on counts that time');
wait_for($node, 'SELECT count(*) = 0 FROM active', 'its dead go, too');
sql('ALTER DATABASE postgres RESET default_transaction_read_only');
wait_for($node, q{SELECT state = 'read-only' FROM sweeper.policy_status WHERE policy = 'active'}, 'as the others again');
sql(q{SET default_transaction_read_only = off; INSERT INTO active VALUES (2, now() - interval '1 min')});
my $read_only = q{SELECT next_step FROM sweeper.problem WHERE problem = 'read-only' AND policy = 'active'};
for my $whose ('ROLE ALL', 'DATABASE postgres', map { ("ROLE $_", "ROLE $_ IN DATABASE postgres") } sql(q{SELECT quote_ident(rolname) FROM pg_roles WHERE oid = 10})) {
    sql("BEGIN READ WRITE; ALTER $whose SET default_transaction_read_only = on; COMMIT");
    is(sql($read_only), "BEGIN READ WRITE; ALTER $whose RESET default_transaction_read_only; COMMIT;", "$whose: what to reset");
    sql(sql($read_only));
}
sql(sql($read_only));
wait_for($node, 'SELECT count(*) = 0 FROM active', 'no more, by the statement that the problem gives');
sql('ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf()');
# processes that began with such a setting give way to others when it is gone
sql(q{ALTER DATABASE postgres RESET default_transaction_read_only; ALTER ROLE ALL SET default_transaction_read_only = on});
my $coordinator = q{(SELECT pid FROM pg_stat_activity WHERE backend_type LIKE '%sweeper coordinator' AND datname = 'postgres')};
my $pid = sql("SELECT $coordinator");
kill 'TERM', $pid;
wait_for($node, "SELECT pid <> $pid AND state = 'read-only' FROM (SELECT $coordinator AS pid) AS c, sweeper.policy_status WHERE policy = 'active'", 'with that of a role');
sql(q{BEGIN READ WRITE; INSERT INTO active VALUES (3, now() - interval '1 min'); COMMIT});
sql(sql($read_only));
wait_for($node, 'SELECT count(*) = 0 FROM active', 'the same');

# somebody holds the table, so that rows can be read and not written, or neither
for my $mode ('EXCLUSIVE', 'ACCESS EXCLUSIVE') {
    sql(q{INSERT INTO briefly VALUES (2, now() + interval '2 s')});
    $holder = $node->background_psql('postgres');
    $holder->query_safe("BEGIN; LOCK TABLE briefly IN $mode MODE");
    if ($mode eq 'EXCLUSIVE') { ok(credited('briefly', 2), 'locked for a part of a time to live') }
    else { sql('SELECT pg_sleep(2)') }
    $holder->query_safe('COMMIT');
    $holder->quit;
    is(verdict('briefly', 2), 'in grace', 'credited when it is over');
    wait_for($node, 'SELECT count(*) = 0 FROM briefly', 'the credit ends');
}

# again, when there was service for a part of a time to live: all in all that is no more
make('twice', '3 s');
sql(q{INSERT INTO twice VALUES (1, now() + interval '500 ms')});
for my $long ('1 s', '4 s') {
    $holder = $node->background_psql('postgres');
    $holder->query_safe('BEGIN; LOCK TABLE twice IN EXCLUSIVE MODE');
    my $begin = sql('SELECT clock_timestamp()');
    wait_for($node, "SELECT clock_timestamp() > '$begin'::timestamptz + interval '$long' AND verdict = 'in grace' FROM sweeper.explain_row('twice', '1')", 'locked');
    $holder->query_safe('COMMIT');
    $holder->quit;
    wait_for($node, q{SELECT cardinality(horizons) > 0 FROM sweeper.policy WHERE policy = 'twice'}, 'noted');
    is(verdict('twice'), 'in grace', 'credited when it is over');
}
wait_for($node, 'SELECT count(*) = 0 FROM twice', 'the credit ends');

# short locks are no outage, however long the time from one to the next
make('shortly', '20 s');
sql(q{INSERT INTO shortly VALUES (1, now() + interval '6 s')});
for my $again (0, 1) {
    my $begin = sql('SELECT clock_timestamp()');
    $holder = $node->background_psql('postgres');
    $holder->query_safe('BEGIN; LOCK TABLE shortly IN ACCESS EXCLUSIVE MODE');
    ($ret, $out, $err) = $node->psql('postgres', q{SELECT sweeper.touch('shortly', 2)});
    like($err, qr/could not read the session's row: another transaction holds a lock on its table/, 'a heartbeat is refused');
    $holder->query_safe('COMMIT');
    $holder->quit;
    wait_for($node, "SELECT clock_timestamp() > '$begin'::timestamptz + interval '4 s'") unless $again;
}
wait_for($node, 'SELECT count(*) = 0 FROM shortly', 'the dead go');
cmp_ok(sql(q{SELECT extract(epoch FROM cleaned_at - deadline) FROM sweeper.cleanup_event WHERE policy = 'shortly'}), '<', 12, 'soon');

# somebody holds the row itself for longer than a time to live: whoever goes on sending heartbeats lives
make('held', '6 s', q{, lock_timeout => '200 ms'});
sql(q{INSERT INTO held SELECT i, now() + interval '1 s' FROM generate_series(1, 2) AS i; SELECT sweeper.touch('held', i) FROM generate_series(1, 2) AS i});
$holder = $node->background_psql('postgres');
$holder->query_safe(q{BEGIN; UPDATE held SET f = 'busy'});
my $until = sql(q{SELECT clock_timestamp() + interval '9 s'});
do { ($ret, $out, $err) = $node->psql('postgres', q{SELECT sweeper.touch('held', 1)}) } until sql("SELECT clock_timestamp() > '$until'") eq 't';
like($err, qr/could not read the session's row: another transaction holds a lock on it/, 'a heartbeat is refused');
$holder->query_safe('COMMIT');
is(verdict('held', 1), 'alive', 'whoever has sent it lives');
$holder->quit;
wait_for($node, 'SELECT count(*) = 0 FROM held WHERE id = 2', 'who did not send any goes');

# one partition is held: the others are swept, and their sessions send heartbeats
sql(q{CREATE TABLE parts (id int, part int, d timestamptz, PRIMARY KEY (part, id)) PARTITION BY LIST (part);
    CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1); CREATE TABLE part_2 PARTITION OF parts FOR VALUES IN (2); CREATE INDEX ON parts (d);
    SELECT sweeper.register('parts', deadline => 'd', start => 'now', check_every => '100 ms');
    SELECT sweeper.register('parts', policy => 'beats', deadline => 'd', ttl => '1 h', filter => 'id > 100', heartbeats => true, start => 'now', check_every => '100 ms');
    INSERT INTO parts SELECT 100 + i, 2, now() + interval '1 h' FROM generate_series(1, 2) AS i});
my $number = 100;
for my $mode ('SHARE', 'ACCESS EXCLUSIVE') {
    $holder = $node->background_psql('postgres');
    sql(q{SELECT sweeper.pause('parts'); INSERT INTO parts SELECT 1, i, now() - interval '1 min' FROM generate_series(1, 2) AS i});
    $holder->query_safe("BEGIN; LOCK TABLE part_1 IN $mode MODE");
    sql(q{SELECT sweeper.resume('parts')});
    wait_for($node, 'SELECT count(*) = 0 FROM part_2 WHERE id = 1', "$mode: the other is swept");
    wait_for($node, q{SELECT state = 'locked' FROM sweeper.policy_status WHERE policy = 'parts'}, 'and that is told');
    $number++;
    is(sql("SELECT sweeper.touch('beats', '(2,$number)')"), 't', 'a heartbeat of another counts');
    $holder->query_safe('COMMIT');
    $holder->quit;
    wait_for($node, 'SELECT count(*) = 0 FROM parts WHERE id = 1', 'then it goes on');
}
sql(q{SELECT sweeper.unregister('parts'); SELECT sweeper.unregister('beats')});

# an index is built for longer than a time to live, and nothing is due meanwhile but what cannot be written
sql(q{UPDATE active SET seen = now(); DELETE FROM active; INSERT INTO active VALUES (1, now())});
$holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE active IN SHARE MODE');
wait_for($node, q{SELECT seen < clock_timestamp() - interval '3 s' FROM active}, 'due');
$holder->query_safe('COMMIT');
is(verdict('active'), 'in grace', 'credited');
$holder->quit;

# the same in one partition
sql(q{CREATE TABLE places (id int, part int, seen timestamptz, PRIMARY KEY (part, id)) PARTITION BY LIST (part);
    CREATE TABLE place_1 PARTITION OF places FOR VALUES IN (1) PARTITION BY LIST (id); CREATE TABLE place_1_1 PARTITION OF place_1 DEFAULT; CREATE INDEX ON places (seen);
    SELECT sweeper.register('places', last_seen => 'seen', ttl => '3 s', start => 'now', fuse_fraction => 1, check_every => '100 ms')});
$holder = $node->background_psql('postgres');
wait_for($node, q{SELECT looks > 0 FROM sweeper.stat_policy WHERE policy = 'places'}, 'it is looked at');
sql(q{INSERT INTO places VALUES (1, 1, now())});
$holder->query_safe('BEGIN; LOCK TABLE place_1_1 IN SHARE MODE');
wait_for($node, q{SELECT seen < clock_timestamp() - interval '3 s' FROM places}, 'due');
$holder->query_safe('COMMIT');
is(verdict('places', '(1,1)'), 'in grace', 'credited');
$holder->quit;
wait_for($node, 'SELECT count(*) = 0 FROM places', 'the credit ends');

# the same where databases take turns, each shorter than what is an outage
sql(q{ALTER SYSTEM SET session_sweeper.max_coordinators = 1; SELECT pg_reload_conf()});
$node->safe_psql('postgres', "CREATE DATABASE busy$_ TEMPLATE writable") for 1 .. 2;
sql(q{CREATE TABLE turns (id int PRIMARY KEY, seen timestamptz); CREATE INDEX ON turns (seen);
    SELECT sweeper.register('turns', last_seen => 'seen', ttl => '20 s', start => 'now', fuse_fraction => 1, check_every => '100 ms');
    INSERT INTO turns VALUES (1, now() - interval '9 s')});
my $looked = q{SELECT looks > %d FROM sweeper.stat_policy WHERE policy = 'turns'};
wait_for($node, sprintf($looked, 0), 'its turn');
$holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE turns IN SHARE MODE');
wait_for($node, q{SELECT seen < clock_timestamp() - interval '20 s' FROM turns}, 'due');
my $looks = sql(q{SELECT looks FROM sweeper.stat_policy WHERE policy = 'turns'});
$holder->query_safe('COMMIT');
wait_for($node, sprintf($looked, $looks + 1), 'another turn');
is(verdict('turns'), 'in grace', 'credited');
$holder->quit;
sql(q{SELECT sweeper.unregister('turns'); ALTER SYSTEM RESET session_sweeper.max_coordinators; SELECT pg_reload_conf()});

# a policy that is paused is looked at, too
sql(q{SELECT sweeper.pause('briefly'); INSERT INTO briefly VALUES (3, now() + interval '500 ms')});
$holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE briefly IN ACCESS EXCLUSIVE MODE');
sql('SELECT pg_sleep(3)');
($ret, $out, $err) = $node->psql('postgres', q{SELECT sweeper.touch('briefly', 3)});
like($err, qr/could not read the session's row/, 'a heartbeat is refused');
$holder->query_safe('COMMIT');
$holder->quit;
sql(q{SELECT sweeper.resume('briefly')});
is(verdict('briefly', 3), 'in grace', 'credited after a pause');
wait_for($node, 'SELECT count(*) = 0 FROM briefly', 'the credit ends');

# what reads the rows may not be called any more
sql(q{CREATE ROLE keeper; CREATE SCHEMA util; GRANT USAGE ON SCHEMA util TO keeper;
    CREATE FUNCTION util.open(text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN $1 = 'on'; END $$; ALTER FUNCTION util.open OWNER TO keeper});
make('guarded', '4 s', q{, filter => 'util.open(f)'});
sql(q{ALTER TABLE guarded OWNER TO keeper; SELECT sweeper.resume('guarded')});
sql(q{REVOKE USAGE ON SCHEMA util FROM keeper});
sql(q{INSERT INTO guarded VALUES (1, now())});
($ret, $out, $err) = $node->psql('postgres', q{SELECT sweeper.touch('guarded', 1)});
like($err, qr/permission denied for schema util/, 'a heartbeat is refused');
wait_for($node, q{SELECT failing_since < clock_timestamp() - interval '2 s' FROM sweeper.policy WHERE policy = 'guarded'}, 'passes fail for a part of a time to live');
sql(q{GRANT USAGE ON SCHEMA util TO keeper; SELECT sweeper.resume('guarded')});
is(verdict('guarded'), 'in grace', 'credited when it is over');
is(sql('SELECT count(*) FROM guarded'), 1, 'it stays');
wait_for($node, 'SELECT count(*) = 0 FROM guarded', 'the credit ends');

# what is wrong with one row says nothing of others
sql(q{CREATE OR REPLACE FUNCTION util.open(text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN $1 = 'on' OR $1::regclass IS NULL; END $$});
make('rows', '1 h', q{, filter => 'util.open(f)'});
sql(q{INSERT INTO rows VALUES (1, now() + interval '30 min', 'nothing')});
($ret, $out, $err) = $node->psql('postgres', q{SELECT sweeper.touch('rows', 1)});
like($err, qr/relation "nothing" does not exist/, 'a heartbeat fails');
sql(q{INSERT INTO rows VALUES (2, now())});
wait_for($node, 'SELECT count(*) = 0 FROM rows WHERE id = 2', 'that is credited to nobody');

# a policy that does not fit its table any more, over a restart; for less than that part of a time to live it is no outage
make('renamed', '4 s', q{, filter => $$f = 'on'$$});
make('shortly_renamed', '1 h', q{, filter => $$f = 'on'$$});
sql(qq{ALTER TABLE $_ RENAME f TO status; INSERT INTO $_ VALUES (1, now())}) for qw(renamed shortly_renamed);
sql(q{CREATE ROLE client; SELECT sweeper.grant_access('client', 'user', policy => 'renamed')});
($ret, $out, $err) = $node->psql('postgres', q{SET ROLE client; SELECT sweeper.touch('renamed', 1)});
like($err, qr/cannot send a heartbeat to policy "renamed".*The session is not gone: keep it/s, 'a heartbeat is refused');
sql('SELECT pg_sleep(3)');
$node->restart;
sql(qq{SELECT sweeper.alter_policy('$_', filter => 'status = ''on''')}) for qw(renamed shortly_renamed);
is(verdict('renamed'), 'in grace', 'that is credited');
wait_for($node, 'SELECT count(*) = 0 FROM shortly_renamed', 'not where it was short');
wait_for($node, 'SELECT count(*) = 0 FROM renamed', 'the credit ends');
$node->stop;
done_testing();
