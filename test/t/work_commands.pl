# Commands that run in the server: as whom, what is seen of them, how they end, and what ends them.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
sub sql { return $node->safe_psql('postgres', @_) }
sub client { return $node->background_psql('postgres', on_error_stop => 0) }
sub quoted { return "'" . ($_[0] =~ s/'/''/gr) . "'" }
# Submitted as a role, with further arguments.
sub submit {
    my ($role, $command, $more) = @_;
    return sql("SET ROLE $role; SELECT sweeper.submit_sql(" . quoted($command) . ($more ? ", $more" : '') . ')');
}
sub complaint {
    my ($statement) = @_;
    my ($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$statement");
    return $err;
}
sub status { return sql("SELECT concat_ws(': ', status, error) FROM sweeper.task WHERE task = '$_[0]'") }
sub comments { return sql("SELECT coalesce(string_agg(comment, ' / ' ORDER BY commented_at), 'none') FROM sweeper.task_comment WHERE task = '$_[0]'") }
sub ended { return wait_for($node, "SELECT finished_at IS NOT NULL FROM sweeper.task WHERE task = '$_[0]'", $_[1] // 'the command has ended') }
sub running { return wait_for($node, "SELECT status = 'running' FROM sweeper.task WHERE task = '$_[0]'", 'the command runs') }
sub set { my ($name, $value) = @_; sql("ALTER SYSTEM SET session_sweeper.$name = '$value'"); return sql('SELECT pg_reload_conf()') }
sub unset { sql("ALTER SYSTEM RESET session_sweeper.$_[0]"); return sql('SELECT pg_reload_conf()') }
# A command that goes on when the gate is opened.
my $gate;
sub close_gate { $gate = client(); return $gate->query_safe('SELECT pg_advisory_lock(1)') }
sub open_gate { return $gate->quit }
my $at_gate = 'SELECT pg_advisory_xact_lock(1);';
sub waits_at_gate { return wait_for($node, "SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 1 AND NOT granted", 'a command waits at the gate') }
sql(q{CREATE EXTENSION session_sweeper;
    CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE mute; CREATE SCHEMA ann AUTHORIZATION ann;
    SELECT sweeper.grant_access(r, 'user') FROM unnest('{ann,bob,mute}'::regrole[]) AS r;
    ALTER ROLE ann SET work_mem = '5 MB'; ALTER ROLE ann SET search_path = 'ann';
    ALTER ROLE ann SET default_transaction_read_only = on; ALTER ROLE ann SET statement_timeout = '1 ms';
    CREATE TABLE done (at timestamptz DEFAULT clock_timestamp(), who name DEFAULT current_user, what text);
    CREATE TABLE secret (owner name, what text); ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
    CREATE POLICY mine ON secret USING (owner = current_user);
    INSERT INTO secret VALUES ('ann', 'of ann'), ('bob', 'of bob');
    GRANT ALL ON done TO ann, bob; GRANT SELECT ON secret TO ann; CREATE TABLE forbidden (); CREATE SEQUENCE tries; GRANT ALL ON SEQUENCE tries TO ann;
    CREATE FUNCTION by_bob(command text) RETURNS uuid LANGUAGE sql SECURITY DEFINER AS 'SELECT sweeper.submit_sql(command)';
    ALTER FUNCTION by_bob OWNER TO bob});

# as whom it runs
my $t = submit('ann', q{INSERT INTO public.done (what) SELECT concat_ws(' ', session_user, current_schemas(false), current_setting('work_mem'),
    (SELECT string_agg(what, ',') FROM public.secret), pg_backend_pid()) FROM pg_sleep(0.1)});
ended($t);
is(status($t), 'completed', 'a command');
my ($pid) = sql('SELECT what FROM done') =~ /(\d+)$/;
is(sql('SELECT who, what FROM done'), "ann|ann {ann} 5MB of ann $pid", 'as its submitter: user, settings, row security');
for my $more ('TABLE public.forbidden', 'SET ROLE postgres', 'SET SESSION AUTHORIZATION postgres', "SELECT pg_read_file('postgresql.conf')",
    'SELECT * FROM sweeper.task', "UPDATE sweeper.task SET owner = 'postgres'", "RESET SESSION AUTHORIZATION; TABLE public.forbidden") {
    ended($t = submit('ann', $more));
    like(comments($t), qr/^failed: 42501: /, "can do no more: $more");
}
ended($t = submit('ann', q{SET work_mem = '1 MB'; SET search_path = 'public'; CREATE TEMPORARY TABLE left_over AS SELECT 1; PREPARE left_over AS SELECT 1;
    SELECT pg_advisory_lock(99); DECLARE left_over CURSOR WITH HOLD FOR SELECT 1; SELECT setseed(0.5); SET SESSION AUTHORIZATION ann; SET ROLE ann}));
is(status($t), 'completed', 'a command that changes its session');
ended($t = submit('ann', q{INSERT INTO public.done (what) SELECT concat_ws(' ', current_setting('work_mem'), current_schemas(false), pg_my_temp_schema() <> 0 AND to_regclass('pg_temp.left_over') IS NOT NULL,
    (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
    (SELECT count(*) FROM pg_cursors WHERE name = 'left_over'), pg_backend_pid())}));
is(sql('SELECT what FROM done ORDER BY at DESC LIMIT 1'), "5MB {ann} f 0 0 0 $pid", 'nothing of that is left to the next, in the same process');
is(sql(q{SET ROLE ann; SELECT public.by_bob('INSERT INTO public.done (what) VALUES (session_user)') IS NOT NULL}), 't', 'from a SECURITY DEFINER function');
wait_for($node, q{SELECT EXISTS (SELECT FROM done WHERE who = 'bob' AND what = 'bob')}, 'it runs as the owner of the function');
like(complaint(q{SET ROLE mute; SELECT sweeper.submit_sql('SELECT 1')}), qr/28000: role "mute" cannot run commands: it may not log in/, 'not for who may not log in')
    if $node->pg_version < 17;

# submitted, or not
sql(q{BEGIN; SELECT sweeper.submit_sql('INSERT INTO done (what) VALUES (''undone'')'); ROLLBACK});
ended($t = sql(q{SELECT sweeper.submit_sql('INSERT INTO done (what) VALUES (''later'')')}));
is(sql(q{SELECT count(*) FROM done WHERE what = 'undone'}) . sql(q{SELECT count(*) FROM sweeper.task WHERE command ~ 'undone'}), '00', 'rolled back with its transaction');

# progress is seen while it runs, by others
close_gate();
$t = submit('ann', "SELECT sweeper.task_progress(done => 3, total => 10, message => 'half'); $at_gate");
wait_for($node, "SELECT (status, done, total, message) = ('running', 3, 10, 'half') FROM sweeper.list_tasks(tasks => '{$t}')", 'its progress is seen');
open_gate();
ended($t);
is(sql("SELECT status, done, total, message FROM sweeper.task WHERE task = '$t'"), 'completed|3|10|half', 'and kept at the end');

# what a command cannot do
for my $c (['COPY public.done TO STDOUT', 'a command cannot use COPY FROM STDIN or COPY TO STDOUT: it has no client'], ['SELECT 1; COMMIT', 'a command cannot begin or end a transaction: the server commits after it']) {
    ended($t = submit('ann', $c->[0]));
    is(status($t), "failed: $c->[1]", "refused: $c->[0]");
}

# failures, and tries
ended($t = submit('ann', "INSERT INTO public.done (what) VALUES ('by halves'); SELECT 1/0"));
is(status($t) . ' ' . comments($t), 'failed: division by zero failed: 22012: division by zero', 'a failure is told');
is(sql(q{SELECT count(*) FROM done WHERE what = 'by halves'}), 0, 'and undoes all');
my $again = submit('ann', "SELECT nextval('public.tries'); SELECT 1/0", 'max_retries => 2');
my $mended = submit('bob', "DO 'BEGIN IF NOT pg_try_advisory_xact_lock_shared(1) THEN RAISE ''not now''; END IF; END'", 'max_retries => 100');
ended($again, 'all attempts have failed');
is(sql("SELECT status, attempt, (SELECT last_value FROM tries) FROM sweeper.task WHERE task = '$again'"), 'failed|3|3', 'tried again, so often as asked for');
like(comments($again), qr/^(failed: 22012: division by zero\nIt is tried again\. \/ ){2}failed: 22012: division by zero$/, 'each failure is on record');
is(sql("SELECT string_agg((gap >= wait)::text, ' ' ORDER BY wait) FROM (SELECT commented_at - lag(commented_at) OVER w AS gap, interval '0.7 s' * (row_number() OVER w - 1) AS wait
    FROM sweeper.task_comment WHERE task = '$again' WINDOW w AS (ORDER BY commented_at)) AS g WHERE gap IS NOT NULL"), 'true true', 'later and later');
ended($mended);
is(sql("SELECT status FROM sweeper.task WHERE task = '$mended'"), 'completed', 'or until it succeeds');
ended($t = submit('ann', 'SELECT pg_sleep(600)', "timeout => '100 ms'"));
like(comments($t), qr/^failed: 57014: canceling statement due to statement timeout$/, 'a time limit');
ended($t = submit('ann', 'SELECT pg_sleep(0.05)'));
is(status($t), 'completed', 'which is not that of the next, nor that of the role');
# it fails while somebody cancels it
close_gate();
$t = submit('ann', "$at_gate SELECT 1/0", 'max_retries => 3');
waits_at_gate();
my $killer = client();
$killer->query_safe("BEGIN; SELECT sweeper.cancel_task('$t')");
open_gate();
wait_for($node, q{SELECT count(*) > 0 FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND backend_type LIKE 'session_sweeper%'}, 'its end waits for that');
$killer->query_safe('COMMIT');
$killer->quit;
ended($t);
is(sql("SELECT status, attempt FROM sweeper.task WHERE task = '$t'"), 'failed|1', 'then it is not tried again');

# one that never ends: it is told that others wait; it ends at the limit of all, and then the others have their turns
my $long = submit('ann', 'SELECT pg_sleep(100000)');
running($long);
submit('ann', 'SELECT pg_sleep(100000)') for 1 .. 3;
my $waits = submit('bob', 'SELECT 1');
is(sql(q{SELECT count(*) FROM sweeper.problem WHERE problem = 'commands wait'}), 0, 'one waits');
sql("UPDATE sweeper.task SET enqueued_at = enqueued_at - interval '2 min' WHERE task = '$waits'");
like(sql(q{SELECT detail FROM sweeper.problem WHERE problem = 'commands wait'}), qr/^Commands have waited for more than a minute: 1\./, 'for more than a minute: it is told');
like(sql(sql(q{SELECT next_step FROM sweeper.problem WHERE problem = 'commands wait'})), qr/^$long\|ann\|/, 'and who holds the place');
sql("SELECT sweeper.cancel_task('$long')");
set('task_timeout', '300 ms');
set('cancel_grace', 100);
ended($waits, 'another role has its turn');
is(status($waits), 'completed', 'between those of the first');
wait_for($node, q{SELECT count(*) = 3 FROM sweeper.task WHERE command ~ '100000' AND status = 'failed' AND error ~ 'timeout'}, 'these end at the limit of all');
unset($_) for 'task_timeout', 'cancel_grace';

# cancelled: before it ran, honoured, ignored, forced
close_gate();
my $first = submit('ann', "INSERT INTO public.done (what) VALUES ('ignores'); $at_gate");
waits_at_gate();
my $second = submit('ann', "INSERT INTO public.done (what) VALUES ('never')");
is(sql("SELECT sweeper.cancel_task('$second'), sweeper.cancel_task('$second')"), 't|f', 'cancelled before it runs');
is(sql("SELECT sweeper.cancel_task('$first'), sweeper.cancel_task('$first')"), 't|f', 'while it runs');
is(status($second) . ', ' . status($first), 'cancelled, running', 'at once, or when it likes to');
open_gate();
ended($first);
ended($t = submit('ann', 'SELECT 1'));
is(status($first) . sql("SELECT cancel_requested_at IS NOT NULL FROM sweeper.task WHERE task = '$first'"), 'completedt', 'who ignores it completes');
is(sql(q{SELECT string_agg(what, ' ') FROM done WHERE what IN ('never', 'ignores')}), 'ignores', 'who did not begin does not');
my $obeys = q{DO $$ BEGIN WHILE sweeper.task_progress() LOOP PERFORM pg_sleep(0.01); END LOOP; RAISE SQLSTATE 'SW006'; END $$};
running($t = submit('ann', $obeys, "group_role => 'bob'"));
is(sql("SET ROLE bob; SELECT sweeper.cancel_task('$t')"), 't', 'cancelled by a member of its group');
ended($t);
is(sql("SELECT status FROM sweeper.task WHERE task = '$t'") . comments($t), 'cancelledcancel requested / cancelled: stopped on request', 'honoured');
# a cancel that is rolled back has the command read its row again, which it knows by the number of its role
running($t = submit('ann', $obeys));
sql("ALTER ROLE ann RENAME TO anna; BEGIN; SELECT sweeper.cancel_task('$t'); ROLLBACK");
sql('SELECT pg_sleep(0.5); ALTER ROLE anna RENAME TO ann');
is(status($t), 'running', 'a role that is renamed stops no command');
sql("SELECT sweeper.cancel_task('$t')");
ended($t);
set('cancel_grace', '100 ms');
running($t = submit('ann', "INSERT INTO public.done (what) VALUES ('forced'); SELECT pg_sleep(600)"));
sql("SELECT sweeper.cancel_task('$t')");
ended($t);
is(sql("SELECT status FROM sweeper.task WHERE task = '$t'") . comments($t), 'cancelledcancel requested / cancelled: stopped on request', 'forced');
is(sql(q{SELECT count(*) FROM done WHERE what = 'forced'}), 0, 'and undone');
# what is rolled back cancels nothing, if only to a savepoint
close_gate();
running($t = submit('ann', $at_gate));
sql(qq{BEGIN; SAVEPOINT a; SAVEPOINT b; SELECT sweeper.cancel_task('$t'); RELEASE b; ROLLBACK TO a; COMMIT});
sql('SELECT pg_sleep(0.5)');
is(status($t), 'running', 'not one that runs');
sql(qq{BEGIN; SAVEPOINT a; SELECT sweeper.cancel_task('$t'); RELEASE a; COMMIT});
ended($t);
like(status($t), qr/^cancelled/, 'what is committed does');
open_gate();
unset('cancel_grace');

# the queue is bounded; who left or may no longer log in runs nothing
set('max_queued_tasks', 3);
sql(q{CREATE ROLE carl LOGIN; CREATE ROLE dora LOGIN; SELECT sweeper.grant_access('carl', 'user'), sweeper.grant_access('dora', 'user')});
close_gate();
running($t = submit('ann', $at_gate));
# what is rolled back takes no room: of a transaction, or of a part of one that commits
sql(q{DO $$ BEGIN FOR i IN 1 .. 9 LOOP BEGIN PERFORM sweeper.submit_sql('SELECT 1'); RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN END; END LOOP; END $$});
sql(q{BEGIN; SELECT count(sweeper.submit_sql('SELECT 1')) FROM generate_series(1, 3); ROLLBACK});
# what a session has submitted itself counts at once
like(complaint(q{SET ROLE ann; SELECT count(sweeper.submit_sql('SELECT 1')) FROM generate_series(1, 4)}), qr/53400/, 'more than there is room for in one transaction');
my ($carl, $dora) = (submit('carl', 'SELECT 1'), submit('dora', 'SELECT 1'));
my $last = submit('ann', 'SELECT 1');
like(complaint(q{SET ROLE ann; SELECT sweeper.submit_sql('SELECT 1')}), qr/53400: the queue of commands is full.*DETAIL:  3 commands wait/s, 'beyond max_queued_tasks');
sql(q{SELECT sweeper.revoke_access('carl'); DROP ROLE carl; ALTER ROLE dora NOLOGIN});
open_gate();
ended($carl);
is(status($carl), qq{dropped: no process could connect as role "carl"; the server's log says why}, 'a role was dropped');
if ($node->pg_version < 17) {
    ended($dora);
    is(status($dora), qq{dropped: no process could connect as role "dora"; the server's log says why}, 'a role may no longer log in');
}
ended($last);
is(status($t) . ' ' . status($last), 'completed completed', 'others go on');
unset('max_queued_tasks');

# a role is the same under another name
set('max_task_workers', 0);
$t = submit('ann', 'SELECT 1');
sql('ALTER ROLE ann RENAME TO anna');
set('max_task_workers', 1);
ended($t);
is(status($t), 'completed', 'of a role that was renamed');
sql('ALTER ROLE anna RENAME TO ann');
# the shortest limit
ended($t = sql(q{SET ROLE ann; SELECT sweeper.submit_sql('SELECT pg_sleep(600)', timeout => '1 ms')}));
like(status($t), qr/^failed: canceling statement due to statement timeout/, 'out of time');

# one after the other: none waits for a look that is due later
sql(join("\n", "SET ROLE ann;", map { ("SELECT sweeper.submit_sql('SELECT 1', 'swift') AS t \\gset", "CALL sweeper.wait_for_task(:'t', '60 s');") } 1 .. 600));
is(sql(q{SELECT count(*), count(*) FILTER (WHERE finished_at - created_at > interval '5 s') FROM sweeper.task WHERE summary = 'swift'}), '600|0', 'each is run at once');

# one place for commands: two roles take turns
wait_for($node, 'SELECT count(*) = 0 FROM sweeper.task WHERE finished_at IS NULL');
for (1 .. 2) {
    sql(q{SET ROLE ann; SELECT count(sweeper.submit_sql('SELECT pg_sleep(0.2)', 'turn')) FROM generate_series(1, 25)});
    ended($t = submit('bob', 'SELECT 1', "'turn'"));
    ok(sql(q{SELECT count(*) FROM sweeper.task WHERE owner = 'ann' AND summary = 'turn' AND finished_at IS NULL}) > 0, 'one role does not wait for all that another has submitted');
    sql(q{SELECT count(sweeper.cancel_task(task)) FROM sweeper.list_tasks(owners => '{ann}', statuses => '{enqueued}')});
}

# a third role and its rows have their turn, too, whatever the others have to do
sql(q{CREATE TABLE turns (n int); CREATE ROLE host; ALTER TABLE turns OWNER TO host; GRANT INSERT ON turns TO mute; ALTER ROLE mute LOGIN});
for my $role (qw(ann bob)) { sql(qq{SET ROLE $role; SELECT count(sweeper.submit_sql('SELECT pg_sleep(0.2)', 'turn')) FROM generate_series(1, 200)}) }
sql(q{SET ROLE mute; SELECT sweeper.append('turns', '{"n": 1}')});
ended($t = submit('mute', 'SELECT 1'));
wait_for($node, 'SELECT count(*) = 1 FROM turns', 'a row is written');
is(sql(q{SELECT count(DISTINCT owner) FROM sweeper.task WHERE owner IN ('ann', 'bob') AND summary = 'turn' AND status = 'enqueued'}), 2, 'while two others have backlogs');
# and one that is long does not keep the other place from them
set('max_workers', 3);
set('max_task_workers', 2);
close_gate();
running($t = submit('postgres', $at_gate));
ended(submit('mute', 'SELECT 1')) for 1 .. 2;
is(status($t) . sql(q{SELECT count(DISTINCT owner) FROM sweeper.task WHERE owner IN ('ann', 'bob') AND summary = 'turn' AND status = 'enqueued'}), 'running2', 'while another is long');
open_gate();
unset('max_workers');
set('max_task_workers', 1);
sql(q{SELECT count(sweeper.cancel_task(task)) FROM sweeper.list_tasks(owners => '{ann,bob}', statuses => '{enqueued}', max => NULL)});

# who holds the row of a command does not hold the place
running($t = submit('ann', 'SELECT pg_sleep(1)'));
my $canceller = client();
$canceller->query_safe("BEGIN; SELECT sweeper.cancel_task('$t')");
ended(submit('bob', 'SELECT 1'), 'another command ends meanwhile');
$canceller->query_safe('ROLLBACK');
$canceller->quit;
ended($t);
like(status($t), qr/^failed/, 'it could not say that it had completed');

# rows that a command returns take no room
ended($t = submit('ann', q{SELECT repeat('x', 1000) FROM generate_series(1, 300000)}));
my ($peak) = map { /VmHWM:\s+(\d+)/ ? $1 : () } map { eval { slurp_file("/proc/$_/status") } // '' } sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND usename = 'ann'}) || 0;
cmp_ok($peak // 0, '<', 200_000, 'kB');

# where nothing is to be written by default no command runs
sql(q{ALTER SYSTEM SET default_transaction_read_only = on; SELECT pg_reload_conf()});
wait_for($node, q{SELECT current_setting('default_transaction_read_only') = 'on'});
$t = sql(q{SET default_transaction_read_only = off; SELECT sweeper.submit_sql('SELECT 1')});
my $off = sql(q{SET default_transaction_read_only = off; SELECT pg_sleep(1); ALTER SYSTEM RESET default_transaction_read_only; SELECT clock_timestamp(), pg_reload_conf()});
($off) = $off =~ /([^|\n]+)\|t$/;
ended($t);
is(sql("SELECT status, started_at > '$off' FROM sweeper.task WHERE task = '$t'"), 'completed|t', 'not before that is over');

# sweeps go on while commands do, and commands while sweeps do; never more processes than there may be
set('max_task_workers', 4);
my $watcher = client();
sql(q{CREATE TABLE seen (most bigint); CREATE TABLE enough (); INSERT INTO seen VALUES (0);
    CREATE PROCEDURE watch() LANGUAGE plpgsql AS $$ BEGIN
        WHILE NOT EXISTS (SELECT FROM public.enough) LOOP
            UPDATE public.seen SET most = n FROM (SELECT count(*) AS n FROM sweeper.stat_process WHERE backend_type = 'session_sweeper worker') AS p WHERE n > most; COMMIT; PERFORM pg_sleep(0.005);
        END LOOP; END $$});
$watcher->query_until(qr/watches/, "\\echo watches\nCALL watch();\n\\echo watched\n");
close_gate();
my @held = (submit('ann', $at_gate), submit('bob', $at_gate), submit('postgres', $at_gate));
waits_at_gate();
load_table($node, 'meanwhile', 100, 10);
sql(q{SELECT sweeper.register('meanwhile', deadline => 'd', start => 'now', fuse_min => 100000)});
wait_for($node, 'SELECT count(*) = 10 FROM meanwhile', 'a table is swept while commands take long');
open_gate();
ended($_) for @held;
load_table($node, 'slow', 20000, 10);
sql(q{CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.01); RETURN OLD; END $$;
    CREATE TRIGGER slow BEFORE DELETE ON slow FOR EACH ROW EXECUTE FUNCTION slow();
    SELECT sweeper.register('slow', deadline => 'd', start => 'now', backlog_rate => 0, fuse_min => 100000, batch_size => 10, max_workers => 2)});
wait_for($node, q{SELECT max(workers) = 2 FROM sweeper.stat_progress WHERE policy = 'slow'}, 'a sweep takes both places');
ended($t = submit('ann', 'SELECT 1'), 'a command ends while a sweep takes long');
is(sql('SELECT count(*) > 10 FROM slow') . status($t), 'tcompleted', 'which still goes on');
sql(q{SELECT sweeper.unregister('slow'); INSERT INTO enough DEFAULT VALUES});
$watcher->query_until(qr/watched/, '');
$watcher->quit;
is(sql('SELECT most FROM seen'), 2, 'never more than max_workers');

# the only worker sweeps: commands are refused, and those of before wait
set('max_task_workers', 0);
close_gate();
$t = submit('ann', $at_gate);
set('max_workers', 1);
set('max_task_workers', 1);
like(complaint(q{SELECT sweeper.submit_sql('SELECT 1')}), qr/55000: the server runs no commands.*max_workers = 2/s, 'refused with one worker');
for my $row (1 .. 3) {
    sql("INSERT INTO meanwhile VALUES (1000 + $row, now())");
    wait_for($node, 'SELECT count(*) = 10 FROM meanwhile', 'the table is swept');
}
is(status($t), 'enqueued', 'a command waits');
unset('max_workers');
open_gate();
ended($t);
is(status($t), 'completed', 'until there are two');

# a runner is asked to leave while its command takes long, or made to: failed, or tried again
sub terminate { my ($times) = @_; return wait_until(sub { return sql(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep'}) eq '0' }, 'no runner is left') if $times > 1;
    return sql(q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep'}) }
my $asleep = q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep'};
for my $times (1, 2) {
    $t = submit('ann', q{SELECT pg_sleep(600)});
    wait_for($node, $asleep);
    terminate($times);
    ended($t);
    is(status($t) . comments($t), 'failed: the process that ran it was endedfailed: the process that ran it was ended', "its runner is ended, $times: it has failed");
    $t = submit('ann', q{SELECT pg_sleep(CASE WHEN nextval('public.tries') % 2 = 0 THEN 600 ELSE 0 END)}, 'max_retries => 1');
    wait_for($node, $asleep);
    terminate($times);
    ended($t);
    is(sql("SELECT status, attempt FROM sweeper.task WHERE task = '$t'"), 'completed|2', 'or is tried again');
}
# again and again, under load, in whatever they do; also in parallel
set('max_workers', 5);
set('max_task_workers', 4);
close_gate();
@held = map { submit('ann', $at_gate) } 1 .. 2;
running($_) for @held;
open_gate();
ended($_) for @held;
$t = submit('ann', 'SELECT 1/0', 'max_retries => 1');
ended($t);
is(sql("SELECT max(commented_at) - min(commented_at) < interval '8 s' FROM sweeper.task_comment WHERE task = '$t'"), 't', 'tried again in time, though another runner has nothing to do');
sql(q{CREATE TABLE effect (n int); GRANT ALL ON effect TO ann});
sql(q{SET ROLE ann; SELECT count(sweeper.submit_sql(format('DO $d$ BEGIN IF NOT pg_try_advisory_xact_lock(2, %1$s) THEN RAISE ''twice at once''; END IF; INSERT INTO public.effect VALUES (%1$s); PERFORM pg_sleep(0.2); END $d$', i),
    'load', max_retries => 5 * (i % 2))) FROM generate_series(1, 120) AS i});
my $hits = 0;
for my $hit (1 .. 20) {
    my $runner;
    # on a slow machine all may have ended before
    wait_until(sub { ($runner) = split /\n/, sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND usename = 'ann' ORDER BY random()});
        return $runner || sql(q{SELECT count(*) FROM sweeper.task WHERE summary = 'load' AND finished_at IS NULL}) eq '0' }, 'there is a runner');
    last if !$runner;
    $hits++;
    kill 'TERM', $runner;
    # a second signal is none when it comes at once
    wait_until(sub { select(undef, undef, undef, 0.02); return !kill($hit % 4 ? 'TERM' : 0, $runner) }, 'the runner has left');
}
cmp_ok($hits, '>=', 5, 'some were ended');
cmp_ok(sql(q{SELECT max(n) FROM (SELECT count(*) AS n FROM sweeper.task AS a JOIN sweeper.task AS b ON b.started_at BETWEEN a.started_at AND a.finished_at
    WHERE a.summary = 'load' AND b.summary = 'load' AND a.attempt = 1 GROUP BY a.task) AS n}), '>', 1, 'commands of one role run in parallel');
wait_for($node, q{SELECT count(*) = 0 FROM sweeper.task WHERE summary = 'load' AND finished_at IS NULL}, 'all commands have ended');
is(sql(q{SELECT count(*), count(DISTINCT n) FROM effect}), sql(q{SELECT count(*), count(*) FROM sweeper.task WHERE summary = 'load' AND status = 'completed'}), 'the effects of those that completed, once');
is(sql(q{SELECT count(*) FROM sweeper.task WHERE summary = 'load' AND NOT (status = 'completed' OR (status = 'failed' AND error = 'the process that ran it was ended' AND attempt = max_retries + 1))}), 0, 'the others have failed, each with its reason');
cmp_ok(sql(q{SELECT count(*) FROM sweeper.task_comment JOIN sweeper.task USING (task) WHERE summary = 'load' AND comment ~ 'the process that ran it was ended'}), '>=', 5, 'some met their runner\'s end');
is(sql(q{SELECT count(*) FROM sweeper.task_comment WHERE comment ~ 'twice at once'}), 0, 'no two attempts at once');
note sql(q{SELECT status, attempt, count(*) FROM sweeper.task WHERE summary = 'load' GROUP BY 1, 2 ORDER BY 1, 2});

# the extension, or the database, goes while a command runs
for my $drop ('DROP EXTENSION session_sweeper', 'DROP DATABASE going') {
    sql('CREATE DATABASE going');
    $node->safe_psql('going', "CREATE EXTENSION session_sweeper; CREATE TABLE kept (); SELECT sweeper.submit_sql('INSERT INTO kept DEFAULT VALUES; SELECT pg_sleep(600)')");
    wait_for($node, $asleep, 'it runs');
    $node->safe_psql($drop =~ /EXTENSION/ ? 'going' : 'postgres', $drop);
    pass("$drop while a command runs");
    if ($drop =~ /EXTENSION/) {
        terminate(2);
        is($node->safe_psql('going', 'SELECT count(*) FROM kept'), 0, 'which leaves nothing');
        sql('DROP DATABASE going');
    }
}

# a server that stops, crashes, or is taken over by another drops what has not ended
sub leave_behind {
    my ($how) = @_;
    running(submit('ann', "INSERT INTO public.done (what) VALUES ('$how'); SELECT pg_sleep(600)", "'$how'"));
    submit('ann', "INSERT INTO public.done (what) VALUES ('$how')", "'$how'") for 1 .. 3;
    return sql(q{SET ROLE ann; SELECT count(sweeper.submit_sql('SELECT 1/0', '} . $how . q{', max_retries => 5))});
}
sub all_dropped {
    my ($server, $how, $re) = @_;
    wait_for($server, "SELECT count(*) = 0 FROM sweeper.task WHERE summary = '$how' AND finished_at IS NULL", "after $how all have ended");
    is($server->safe_psql('postgres', "SELECT string_agg(DISTINCT concat_ws(' ', status, cancel_requested_at), ',') FROM sweeper.task WHERE summary = '$how'"), 'dropped', "$how: dropped, not cancelled");
    is($server->safe_psql('postgres', "SELECT count(*) FROM sweeper.task AS t WHERE summary = '$how' AND NOT EXISTS (SELECT FROM sweeper.task_comment AS c WHERE c.task = t.task AND comment ~ '$re')"), 0, 'each with its reason');
    is($server->safe_psql('postgres', "SELECT count(*) FROM done WHERE what = '$how'"), 0, 'without effect');
}
my $cores = `nproc`;
sql("SET ROLE ann; SELECT sweeper.submit_sql(\$s\$$obeys\$s\$, 'stop')");
sql("SET ROLE ann; SELECT count(sweeper.submit_sql('SELECT pg_sleep(600)', 'stop')) FROM generate_series(1, 4 * $cores - 1)");
wait_for($node, q{SELECT count(*) = 4 FROM sweeper.task WHERE summary = 'stop' AND status = 'running'}, 'some run');
my $begin = time;
$node->stop('fast');
cmp_ok(time - $begin, '<', 8, 'the server stops in time');
$node->start;
all_dropped($node, 'stop', '^dropped: (the server is being stopped|the server was stopped before it ended \(it was (enqueued|running)\))');
is(sql(q{SELECT string_agg(comment, ',') FROM sweeper.task JOIN sweeper.task_comment USING (task) WHERE summary = 'stop' AND command ~ 'SW006'}), 'dropped: the server is being stopped', 'who looks whether it is to go on stops by itself');
note sql(q{SELECT comment, count(*) FROM sweeper.task JOIN sweeper.task_comment USING (task) WHERE summary = 'stop' GROUP BY 1});
unset('max_workers');
set('max_task_workers', 1);
# what is wrong with the tables of tasks keeps no policy waiting
sql(q{CREATE TABLE login (id int PRIMARY KEY, d timestamptz); SELECT sweeper.register('login', deadline => 'd', start => 'now', check_every => '100 ms');
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.status = 'dropped' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER refuse BEFORE UPDATE ON sweeper.task FOR EACH ROW EXECUTE FUNCTION refuse()});
running($t = submit('ann', 'SELECT pg_sleep(600)'));
$node->stop('immediate');
$node->start;
wait_for($node, q{SELECT detail ~ 'not this one' FROM sweeper.problem WHERE problem = 'tasks are not processed'}, 'it is told');
like(sql(q{BEGIN; LOCK TABLE sweeper.task IN SHARE MODE;} . sql(q{SELECT next_step FROM sweeper.problem WHERE problem = 'tasks are not processed'})), qr/^sweeper\.task\|\d+\|ShareLock$/m, 'who has locked them, by the statement that the problem gives');
my $coordinator = sql(q{SELECT pid FROM sweeper.stat_process WHERE backend_type = 'session_sweeper coordinator'});
for my $row (1 .. 3) {
    sql("INSERT INTO login VALUES ($row, now())");
    wait_for($node, 'SELECT count(*) = 0 FROM login', 'swept all the same');
}
is(sql(q{SELECT pid FROM sweeper.stat_process WHERE backend_type = 'session_sweeper coordinator'}), $coordinator, 'the coordinator goes on');
sql(q{DROP TRIGGER refuse ON sweeper.task; DROP FUNCTION refuse});
ended($t);
wait_for($node, q{SELECT count(*) = 0 FROM sweeper.problem WHERE problem = 'tasks are not processed'}, 'and is over');
# a lock on them keeps it waiting for 2 s, once in a while
my $lock = $node->background_psql('postgres');
$lock->query_safe('BEGIN; LOCK TABLE sweeper.task IN SHARE MODE');
sql(q{SELECT sweeper.create_job('r', 'c', 'locked', timeout => '1 s')});
wait_for($node, q{SELECT detail ~ 'lock timeout' FROM sweeper.problem WHERE problem = 'tasks are not processed'}, 'a lock is told');
sql('INSERT INTO login VALUES (9, now())');
wait_for($node, 'SELECT count(*) = 0 FROM login', 'swept beside a lock');
$lock->query_safe('ROLLBACK');
$lock->quit;
wait_for($node, q{SELECT count(*) = 0 FROM sweeper.problem WHERE problem = 'tasks are not processed'}, 'which is over, too');
sql(q{SELECT sweeper.unregister('login')});
leave_behind('crash');
crash($node, 'worker');
all_dropped($node, 'crash', 'dropped: the server crashed, or another took over');
ended($t = submit('ann', 'SELECT 1'), 'and goes on');
is(status($t), 'completed', 'with later ones');
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
leave_behind('promotion');
$node->wait_for_catchup($standby);
like(($standby->psql('postgres', "SELECT sweeper.submit_sql('SELECT 1')"))[2], qr/cannot execute sweeper.submit_sql\(\) on a standby/, 'nothing is submitted to a standby');
$standby->promote;
all_dropped($standby, 'promotion', 'dropped: the server crashed, or another took over');
is(sql(q{SELECT count(*) FROM sweeper.task WHERE summary = 'promotion' AND status = 'running'}), 1, 'not on the server that runs them');
$standby->stop;
$node->stop('immediate');
done_testing();
