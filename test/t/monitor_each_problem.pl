# Each problem of the reference: its next_step is pasted as it is, here or in the test that is named here.
# Afterwards the problem is gone, or the statement has shown its cause.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use File::Basename;
use Sweeper;

my $root = dirname(dirname(dirname(File::Spec->rel2abs(__FILE__))));
my %pasted = (
    'commands wait' => 'test/t/work_commands.pl',
    'tasks are not processed' => 'test/t/work_commands.pl',
    'definitions not shared' => 'test/t/citus_definition.pl',
    'definition not applied' => 'test/t/citus_definition.pl',
    'node does not answer' => 'test/t/citus_views.pl',
    'restart needed' => 'test/t/process_update.pl',
    'broken' => 'sql/monitor_next_step.sql',
    'failing' => 'sql/monitor_problems.sql',
    'read-only' => 'test/t/grace_refused.pl',
    'table locked' => 'test/t/monitor_late.pl',
    'rows locked for long' => 'test/t/monitor_late.pl',
    'restored rows wait' => 'test/t/work_append_crash.pl',
    'tasks without a worker' => 'sql/monitor_problems.sql',
    'queue grows' => 'sql/monitor_problems.sql',
    'tasks fail again and again' => 'sql/monitor_problems.sql',
    'pool full for long' => 'sql/monitor_problems.sql',
    'seats refused' => 'sql/monitor_problems.sql',
);

my $node;
sub sql { return $node->safe_psql('postgres', @_) }
sub set { return sql("ALTER SYSTEM SET $_[0]; SELECT pg_reload_conf()") }
sub next_step { return sql("SELECT next_step FROM sweeper.problem WHERE problem LIKE '$_[0]%'" . ($_[1] ? " AND policy = '$_[1]'" : '') . ' LIMIT 1') }
# Wait for the problem, paste what it gives; returns what that has shown.
sub paste {
    my ($problem, $policy) = @_;
    my $step;
    wait_until(sub { return ($step = next_step($problem, $policy)) ne '' }, "there is the problem \"$problem\"");
    $pasted{$problem} = basename(__FILE__);
    # nothing of another role runs with the rights of the person who pastes it
    my $out = sql("SET search_path = public, trap; $step");
    $node->restart if $step =~ /restart the server/;
    return $out;
}
sub gone {
    my ($problem, $policy) = @_;
    return ok(wait_until(sub { return next_step($problem, $policy) eq '' }, "the problem \"$problem\" is gone"), "$problem: over");
}
# What the comment of a next step has for a person who has looked.
sub decide { return sql(next_step(@_) =~ s/.*-- .*?then ([^;]*;).*/$1/r) }
sub rows { return join ', ', map { "(SELECT count(*) FROM $_)" } @_ }
sub due { return "CREATE TABLE $_[0] (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON $_[0] (d); INSERT INTO $_[0] SELECT i, now() - interval '1 h' FROM generate_series(1, $_[1]) AS i;" }

# what lasts for a minute until it is a problem: its only worker is busy, a table is locked, a coordinator stands still
my $busy = sweeper_node('busy', 'session_sweeper.max_workers = 1', 'session_sweeper.max_hard_time_limit = 1h', 'session_sweeper.max_policies = 3');
$node = $busy;
sql('CREATE EXTENSION session_sweeper; CREATE DATABASE still');
sql(due('holder', 1) . due('waiter', 1) . q{CREATE TABLE target (id int);
    CREATE FUNCTION hold(text[]) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(100000)'});
sql(q{SELECT sweeper.register('holder', deadline => 'd', on_expire => 'hold(text[])', start => 'now', hard_time_limit => '50 min', soft_time_limit => '49 min')});
wait_for($busy, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep'}, 'the only worker is busy');
sql(q{INSERT INTO waiter SELECT 1 + i, now() + i * interval '1 s' FROM generate_series(1, 1000) AS i; SELECT sweeper.register('waiter', deadline => 'd', start => 'now')});
my $lock = $busy->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE target IN SHARE MODE');
sql(q{SELECT sweeper.append('target', '{"id": 1}')});
$busy->safe_psql('still', q{CREATE EXTENSION session_sweeper; CREATE TABLE t (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON t (d); SELECT sweeper.register('t', deadline => 'd')});
wait_for($busy, q{SELECT state = 'waiting' AND next_look IS NOT NULL AND last_look IS NOT NULL FROM sweeper.policy_status WHERE policy = 't'}, 'it is looked at', 'still');
my $pid = $busy->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator' AND datname = 'still'});
freeze($busy, $pid);
# there are three slots for policies, and all are in use: another policy comes as from a dump
sql(due('slotless', 0) . q{CREATE TEMP TABLE dumped AS SELECT * FROM sweeper.policy WHERE policy = 'waiter';
    UPDATE dumped SET policy_id = nextval('sweeper.policy_policy_id_seq'), policy = 'slotless', relid = 'slotless'::regclass, relation = 'public.slotless';
    INSERT INTO sweeper.policy SELECT * FROM dumped});

# a server that does not load the library, or whose settings leave it nothing to do
$node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', "max_worker_processes = 16\nautovacuum = off\nsession_sweeper.min_interval = '20ms'\nsession_sweeper.max_policies = 1\nsession_sweeper.heartbeat_memory = '1 kB'\n");
$node->start;
sql('CREATE EXTENSION session_sweeper');
sql(slurp_file("$root/test/trap_operators.sql"));
paste('library not preloaded');
gone('library not preloaded');
set('session_sweeper.enabled = off');
paste('disabled');
gone('disabled');
set("session_sweeper.databases = 'elsewhere'");
paste('database not swept');
gone('database not swept');
is(sql('SHOW session_sweeper.databases'), 'elsewhere, postgres', 'others are swept as before');
sql('ALTER SYSTEM RESET session_sweeper.databases; ALTER SYSTEM SET max_worker_processes = 2');
$node->restart;
paste('worker slots short');
gone('worker slots short');
sql('ALTER SYSTEM SET max_worker_processes = 0');
$node->restart;
is(paste('launcher not running'), '', 'launcher not running: it shows no process');
sql('ALTER SYSTEM SET max_worker_processes = 16');
$node->restart;
gone('launcher not running');
sql(due('one', 0) . q{SELECT sweeper.register('one', deadline => 'd')});
paste('policy slots short');
gone('policy slots short');
sql(q{SELECT sweeper.create_pool('p', ttl => '1 h'); SELECT count(*) FROM generate_series(1, 200) AS i, sweeper.acquire('p', i::text)});
wait_until(sub { return sql(q{SELECT FROM sweeper.heartbeat_many(ARRAY(SELECT session FROM sweeper.session)); SELECT count(*) FROM sweeper.problem WHERE problem = 'heartbeat memory full'}) eq '1' }, 'memory is full');
paste('heartbeat memory full');
sql(q{SELECT FROM sweeper.heartbeat_many(ARRAY(SELECT session FROM sweeper.session))});
is(sql(q{SELECT count(*) FROM sweeper.session WHERE sweeper._last_heartbeat(session) IS NOT NULL}), 200, 'there is room');
gone('heartbeat memory full');
sql('ALTER SYSTEM SET session_sweeper.max_policies = 50');
$node->restart;

# brakes
sql(due('heldback', 200));
sql(q{SELECT sweeper.register('heldback', deadline => 'd')});
like(paste('held'), qr/^heldback\|/, 'held: it shows what would expire');
is(next_step('held') ? sql('SELECT ' . rows('heldback')) : '', 200, 'and all is held');
decide('held');
wait_for($node, 'SELECT ' . rows('heldback') . ' = 0', 'held: resumed');
gone('held');
$pasted{'held'} = basename(__FILE__);
sql(q{INSERT INTO heldback SELECT i, now() + interval '1 h' FROM generate_series(1, 200) AS i});
sql(q{UPDATE heldback SET d = now()});
like(paste('fuse'), qr/^heldback\|.*\|200\|/, 'fuse: it shows what would expire');
is(next_step('fuse') ? sql('SELECT ' . rows('heldback')) : '', 200, 'and all is held');
decide('fuse');
wait_for($node, 'SELECT ' . rows('heldback') . ' = 0', 'fuse: resumed');
gone('fuse');
sql(q{SELECT sweeper.pause('one'); UPDATE sweeper.policy SET paused_at = now() - interval '2 days' WHERE policy = 'one'});
paste('paused for more than a day');
gone('paused for more than a day');
sql(q{CREATE ROLE somebody; CREATE TABLE tree (id int PRIMARY KEY, d timestamptz) PARTITION BY RANGE (id); CREATE TABLE branch PARTITION OF tree FOR VALUES FROM (1) TO (9);
    SELECT sweeper.register('tree', deadline => 'd'); ALTER TABLE branch OWNER TO somebody});
like(next_step('partition'), qr/-- if these may run as role .*: ALTER TABLE branch OWNER TO/, 'partition of another owner: what to look at, and what then');
is(paste('partition of another owner'), '', 'it has no triggers');
sql(next_step('partition') =~ s/.*role [^:]*: //r);
gone('partition of another owner');

# rows that fail, or go too slowly
sql(q{CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$});
sql(due('retried', 1) . due('gaveup', 1) . due('slow', 400));
sql(qq{CREATE TRIGGER refuse BEFORE DELETE ON $_ FOR EACH ROW EXECUTE FUNCTION refuse()}) for qw(retried gaveup);
sql(q{SELECT sweeper.register('retried', deadline => 'd', start => 'now', max_lag => '1 s', max_retries => 1000), sweeper.register('gaveup', deadline => 'd', start => 'now', max_retries => 0),
    sweeper.register('slow', deadline => 'd', start => 'now', max_lag => '1 s', rate_limit => 10, backlog_rate => 0, fuse_fraction => 1)});
sql(q{UPDATE sweeper.policy SET backlog_before = NULL WHERE policy = 'slow'});
like(paste('rows fail again and again', 'retried'), qr/not this one/, 'rows fail again and again: it shows the error');
like(paste('quarantined rows', 'gaveup'), qr/not this one/, 'quarantined rows: it shows the error');
sql(q{DROP TRIGGER refuse ON gaveup});
# in one transaction: else a retry of its own may come between
sql(q{BEGIN; DROP TRIGGER refuse ON retried; SELECT sweeper.retry_row('retried', '1'); COMMIT});
decide('quarantined rows', 'gaveup');
gone('rows fail again and again', 'retried');
gone('quarantined rows', 'gaveup');
my $pastes = 0;
wait_until(sub { return 1 if sql('SELECT ' . rows('slow')) eq '0'; sql(next_step('lag above max_lag', 'slow')); return !++$pastes }, 'its rows are gone');
cmp_ok(sql(q{SELECT rate_limit FROM sweeper.policy WHERE policy = 'slow'}), '>', 10, 'lag above max_lag: the limit is raised until it is gone');
gone('lag above max_lag', 'slow');
$pasted{'lag above max_lag'} = basename(__FILE__);

# what was appended and cannot be written
sql(q{CREATE ROLE appender LOGIN; SELECT sweeper.grant_access('appender', 'user'); CREATE TABLE target (id int CHECK (id < 5)); CREATE ROLE host; ALTER TABLE target OWNER TO host; GRANT INSERT ON target TO appender});
sql(q{SET ROLE appender; SELECT sweeper.append('target', '{"id": 7}'); CALL sweeper.flush('target')});
like(paste('appended rows failed'), qr/"id": 7.*23514/, 'appended rows failed: it shows them');
# the role's name is of no role any more
sql(q{BEGIN; REVOKE ALL ON target FROM appender; SELECT sweeper.revoke_access('appender'); DROP ROLE appender; COMMIT});
like(paste('appended rows failed'), qr/"id": 7.*23514/, 'appended rows failed: it shows them when the role is gone');
sql(q{SELECT sweeper.take_append_failed_rows('public.target')});
gone('appended rows failed');

# a minute is over
$node = $busy;
wait_for($busy, q{SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'not looked at' AND policy = 't'}, 'it is told', 'still');
like($busy->safe_psql('still', $busy->safe_psql('still', q{SELECT next_step FROM sweeper.problem WHERE problem = 'not looked at' AND policy = 't'})), qr/session_sweeper coordinator\|$pid\|still/, 'not looked at: it shows the process');
$pasted{'not looked at'} = basename(__FILE__);
is(sql(q{SELECT state, reason FROM sweeper.policy_status WHERE policy = 'slotless'}), 'waiting|it has no slot in shared memory, so its looks are not shown', 'a policy without a slot: its state says so');
sql(q{UPDATE sweeper.policy SET registered_at = now() - interval '1 h' WHERE policy = 'slotless'});
is(sql(q{SELECT concat_ws(' ', problem, policy) FROM sweeper.problem WHERE problem = 'policy slots short' OR (problem = 'not looked at' AND policy = 'slotless')}), 'policy slots short', 'and it is not reported as not looked at');
kill 'CONT', $pid;
ok(wait_for($busy, q{SELECT NOT EXISTS (SELECT FROM sweeper.problem WHERE problem = 'not looked at' AND policy = 't')}, 'it goes on', 'still'), 'not looked at: over');
my $holder = $lock->query_safe('SELECT pg_backend_pid()');
like(paste('appended rows wait'), qr/\Q$holder\E\|.*ShareLock/, 'appended rows wait: it shows who holds the table');
$lock->query_safe('ROLLBACK');
paste('pass waits for a worker');
gone($_) for 'pass waits for a worker', 'appended rows wait';
$lock->quit;
ok(wait_for($busy, q{SELECT min(d) > now() - interval '5 s' FROM waiter}, 'its rows have gone'), 'the other one works');

# no problem is left out: neither one of the reference, nor one of the view
my %reference = map { $_ => 1 } slurp_file("$root/doc/reference.md") =~ /^### Problem `([^`]+)`/mg;
is_deeply([ grep { !$pasted{$_} } sort keys %reference ], [], 'each next_step is pasted by a test');
for my $problem (sort keys %pasted) {
    ok($reference{$problem}, "$problem: in the reference");
    my $file = $pasted{$problem};
    ok($file eq basename(__FILE__) || slurp_file("$root/$file") =~ /next_step/, "$problem: $file");
}
my @view;
for my $part (split /\bUNION ALL\s/, sql(q{SELECT pg_get_viewdef('sweeper.problem')}) =~ s/\A.*?\bFROM \(\s*(?=SELECT\s)//sr) {
    # columns up to the third, which may be an expression
    next unless $part =~ /^\s*SELECT\s/;
    my ($depth, $quoted, $case, @columns) = (0, 0, 0, '');
    for my $token ($part =~ /'(?:[^']|'')*'|"[^"]*"|\w+|\s+|./gs) {
        $depth += $token eq '(' || uc $token eq 'CASE' ? 1 : $token eq ')' || uc $token eq 'END' ? -1 : 0;
        if ($token eq ',' && $depth == 0) { push @columns, '' } else { $columns[-1] .= $token }
        last if @columns > 3;
    }
    push @view, ($columns[2] // '') =~ /(?:^\s*|THEN |ELSE |\()'([a-z][a-z ,-]+?)(?:: )?'::text/g;
}
cmp_ok(scalar @view, '>', 25, 'problems of the view');
is_deeply([ grep { !$reference{$_} } @view ], [], 'each is in the reference');
$_->stop for $node, $busy;
done_testing();
