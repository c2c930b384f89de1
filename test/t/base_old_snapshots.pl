# A transaction whose snapshot is older than another's commit: each call does what it does without that snapshot, or fails with 40001.
# Every call of a group beside every change of that group, so that a new call is compared by one line here.
use strict;
use warnings;
use IPC::Open2;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_task_workers = 0', 'client_min_messages = error');

# A psql that prints errors, as their SQLSTATE only, among its results.
sub session {
    my $pid = open2(my $out, my $in, 'exec psql -XAtq -v VERBOSITY=sqlstate "' . $node->connstr('postgres') . '" 2>&1');
    $in->autoflush;
    return { in => $in, out => $out, pid => $pid };
}

sub ask {
    my ($session, $sql) = @_;
    print { $session->{in} } "$sql;\n\\echo end of answer\n";
    my $answer = '';
    while (defined(my $line = readline $session->{out})) {
        return $answer if $line eq "end of answer\n";
        $answer .= $line;
    }
    die "psql ended after: $sql";
}

my ($caller, $other) = (session(), session());
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    SELECT sweeper.alter_policy('sweeper.session', check_every => '0');
    CREATE FUNCTION make_work(n int, OUT ann uuid, OUT worker uuid, OUT idle uuid, OUT enqueued uuid, OUT allocated uuid, OUT running uuid,
        OUT failed uuid, OUT provider bigint) LANGUAGE plpgsql AS $$
    DECLARE r text := 'r' || n;
    BEGIN
        PERFORM sweeper.create_pool('p' || n, 2);
        SELECT session INTO ann FROM sweeper.acquire('p' || n, 'ann');
        worker := sweeper.register_worker('worker' || n);
        idle := sweeper.register_worker('idle' || n);
        PERFORM sweeper.create_job(r, 'c', 'n'), sweeper.register_job(worker, r, 'c', 'n'), sweeper.register_job(idle, r, 'c', 'n');
        failed := sweeper.submit(r, 'c', 'n', '"failed"');
        PERFORM sweeper.claim(worker, start => true);
        PERFORM sweeper.finish_task(failed, 'failed');
        running := sweeper.submit(r, 'c', 'n', '"running"');
        PERFORM sweeper.claim(worker, start => true);
        allocated := sweeper.submit(r, 'c', 'n', '"allocated"');
        PERFORM sweeper.claim(worker);
        enqueued := sweeper.submit(r, 'c', 'n', '"enqueued"', unique_key => 'k');
        provider := sweeper.register_provider(worker, r, 'c', 'x');
    END $$;
    CREATE FUNCTION show_work(n int) RETURNS SETOF text LANGUAGE sql AS $$
        SELECT concat_ws(' ', 'session', owner, status) FROM sweeper.session WHERE pool = 'p' || n OR owner IN ('worker' || n, 'idle' || n, 'new' || n) UNION ALL
        SELECT concat_ws(' ', 'pool', seats, (SELECT count(*) FROM sweeper.policy_change WHERE new ->> 'pool' = p.pool)) FROM sweeper.pool AS p WHERE pool = 'p' || n UNION ALL
        SELECT concat_ws(' ', 'task', payload, t.status, attempt, unique_key, s.owner) FROM sweeper.task AS t LEFT JOIN sweeper.session AS s ON s.session = t.worker
        WHERE job IN (SELECT job FROM sweeper.job WHERE room = 'r' || n) UNION ALL
        SELECT concat_ws(' ', 'job', name, deleted_at IS NULL, permanent, provisional) FROM sweeper.job WHERE room = 'r' || n UNION ALL
        SELECT concat_ws(' ', 'offer', s.owner, j.name) FROM sweeper.job_worker AS w JOIN sweeper.job AS j USING (job) LEFT JOIN sweeper.session AS s ON s.session = w.worker WHERE j.room = 'r' || n UNION ALL
        SELECT concat_ws(' ', 'provider', name) FROM sweeper.provider WHERE room = 'r' || n ORDER BY 1 $$;
    CREATE FUNCTION make_table(n int, OUT x int, OUT y int) LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('CREATE TABLE %1$I (id int PRIMARY KEY, d timestamptz, g text); CREATE INDEX ON %1$I (d);
            INSERT INTO %1$I VALUES (1, ''2020-01-01'', ''a''), (2, now() + interval ''1 h'', ''a''), (3, now() + interval ''1 h'', ''b'')', 't' || n);
        PERFORM sweeper.register(('t' || n)::regclass, deadline => 'd', ttl => '1 h', heartbeats => true, group_by => 'g', check_every => '0', start => 'now');
    END $$;
    CREATE FUNCTION show_table(n int) RETURNS SETOF text LANGUAGE plpgsql AS $$
    BEGIN
        RETURN QUERY EXECUTE format('SELECT concat_ws('' '', ''row'', id, d < now(), g) FROM %I UNION ALL
            SELECT concat_ws('' '', ''policy'', p.state = ''paused'', c.batch_size) FROM sweeper.policy_status AS p JOIN sweeper.policy AS c USING (policy) WHERE policy = %2$L UNION ALL
            SELECT concat_ws('' '', ''event'', key, cleanup_type, reason) FROM sweeper.cleanup_event WHERE policy = %2$L ORDER BY 1', 't' || n, 't' || n);
    END $$});

my $job = q{'r{n}', 'c', 'n'};
my %groups = (
    work => {
        changes => [
            q{SELECT session IS NULL FROM sweeper.acquire('p{n}', 'cat')}, q{SELECT sweeper.release('{ann}')}, q{SELECT sweeper.drop_pool('p{n}', true)},
            q{SELECT sweeper.alter_pool('p{n}', seats => 1)}, q{SELECT sweeper.release('{worker}')}, q{SELECT sweeper.submit(} . $job . q{, '"other"', unique_key => 'l')},
            q{SELECT sweeper.claim('{idle}', start => true)}, q{SELECT sweeper.start_task('{allocated}')}, q{SELECT sweeper.finish_task('{running}', 'completed')},
            q{SELECT sweeper.cancel_task('{enqueued}')}, q{SELECT sweeper.cancel_task('{running}')}, q{SELECT sweeper.retry_task('{failed}')},
            q{SELECT sweeper.drop_job(} . "$job)", q{SELECT sweeper.register_job('{idle}', 'r{n}', 'c', 'm')}, q{SELECT sweeper.create_job('r{n}', 'c', 'm')},
            q{SELECT sweeper.register_job(sweeper.register_worker('new{n}'), } . "$job)", q{SELECT sweeper.unregister_provider({provider})},
            q{SELECT sweeper.register_provider('{idle}', 'r{n}', 'c', 'y')},
        ],
        calls => [
            q{SELECT fence IS NULL, seats, seats_used FROM sweeper.acquire('p{n}', 'bob')}, q{SELECT taken_over, seats_used FROM sweeper.acquire('p{n}', 'ann', takeover => true)},
            q{SELECT sweeper.release('{ann}')}, q{SELECT sweeper.claim_session('{ann}', 'ann')}, q{SELECT sweeper.drop_pool('p{n}')}, q{SELECT sweeper.drop_pool('p{n}', true)},
            q{SELECT sweeper.alter_pool('p{n}', seats => 5)}, q{SELECT sweeper.create_pool('p{n}', 3)}, q{SELECT sweeper.create_pool('p{n}', 2, if_exists => 'alter')}, q{SELECT sweeper.create_pool('p{n}', 3, if_exists => 'alter')},
            q{SELECT sweeper.heartbeat('{ann}')}, q{SELECT sweeper.is_live('{ann}'::uuid)}, q{SELECT sweeper.heartbeat('{worker}')},
            q{SELECT sweeper.submit(} . $job . q{, '"mine"')}, q{SELECT sweeper.submit(} . $job . q{, '"mine"', unique_key => 'k')}, q{SELECT sweeper.submit(} . $job . q{, '"mine"', unique_key => 'l')},
            q{SELECT sweeper.submit('r{n}', 'c', 'm', '"mine"')}, q{SELECT count(*) FROM sweeper.submit_many(} . $job . q{, ARRAY['"mine"', '"mine"']::jsonb[])},
            q{SELECT payload, attempt FROM sweeper.claim('{worker}')}, q{SELECT payload, attempt FROM sweeper.claim('{worker}', 10, true)},
            q{SELECT sweeper.start_task('{allocated}')}, q{SELECT sweeper.start_task('{enqueued}')}, q{SELECT sweeper.task_progress('{running}', done => 1, total => 2)},
            q{SELECT sweeper.finish_task('{running}', 'completed')}, q{SELECT sweeper.finish_task('{running}', 'failed', retry => true)}, q{SELECT sweeper.finish_task('{allocated}', 'completed')},
            q{SELECT sweeper.cancel_task('{enqueued}')}, q{SELECT sweeper.cancel_task('{running}')}, q{SELECT sweeper.retry_task('{failed}')}, q{SELECT sweeper.retry_task('{enqueued}')},
            q{SELECT sweeper.drop_job(} . "$job)", q{SELECT sweeper.create_job(} . "$job) IS NULL", q{SELECT sweeper.create_job('r{n}', 'c', 'm') IS NULL},
            q{SELECT sweeper.register_job('{worker}', } . "$job) IS NULL", q{SELECT sweeper.register_job('{worker}', 'r{n}', 'c', 'm') IS NULL},
            q{SELECT sweeper.register_provider('{worker}', 'r{n}', 'c', 'x') IS NULL}, q{SELECT sweeper.register_provider('{worker}', 'r{n}', 'c', 'y') IS NULL},
            q{SELECT sweeper.unregister_provider({provider})}, q{SELECT sweeper.release('{worker}')},
        ],
    },
    table => {
        changes => [
            q{INSERT INTO t{n} VALUES (4, '2020-01-01', 'a')}, q{DELETE FROM t{n} WHERE id = 1}, q{DELETE FROM t{n} WHERE id = 2}, q{UPDATE t{n} SET d = now() + interval '1 h' WHERE id = 1},
            q{UPDATE t{n} SET d = '2020-01-01' WHERE id = 2}, q{UPDATE t{n} SET g = 'b' WHERE id = 2}, q{UPDATE t{n} SET id = 9 WHERE id = 2}, q{SELECT sweeper.touch('t{n}', 2)},
            q{SELECT sweeper.expire('t{n}', '{2}')}, q{CALL sweeper.sweep('t{n}')}, q{SELECT sweeper.pause('t{n}')}, q{SELECT sweeper.alter_policy('t{n}', batch_size => 100)},
            q{SELECT sweeper.alter_policy('t{n}', heartbeats => false)}, q{SELECT sweeper.unregister('t{n}')},
            q{SELECT sweeper.alter_policy('t{n}', new_name => 'other{n}')}, q{TRUNCATE t{n}},
        ],
        calls => [
            q{SELECT sweeper.touch('t{n}', 1)}, q{SELECT sweeper.touch('t{n}', 2)}, q{SELECT sweeper.touch('t{n}', 4)}, q{SELECT key, state FROM sweeper.touch_many('t{n}', '{1,2,3,4}')},
            q{SELECT sweeper.is_live('t{n}', '2')}, q{SELECT sweeper.expire('t{n}', '{1,2,4}')}, q{SELECT sweeper.expire_group('t{n}', 'a')}, q{SELECT sweeper.retry_row('t{n}', '2')},
            q{SELECT sweeper.pause('t{n}')}, q{SELECT sweeper.resume('t{n}')}, q{SELECT sweeper.alter_policy('t{n}', batch_size => 200)}, q{SELECT sweeper.unregister('t{n}')},
            q{SELECT policy IS NULL FROM sweeper.register('t{n}', deadline => 'd', check_every => '0', start => 'now')},
            q{SELECT policy IS NULL FROM sweeper.register('t{n}', deadline => 'd', check_every => '0', start => 'now', if_exists => 'alter')},
        ],
    });

# What the call and its transaction say, and what is there afterwards.
my $n = 0;
sub outcome {
    my ($group, $change, $call, $isolation) = @_;
    my $out = ask($other, "SELECT row_to_json(m) FROM make_$group(" . ++$n . ") AS m");
    my %id = (n => $n, $out =~ /"(\w+)":"?([^",}]+)/g);
    my %name = map { $id{$_} => $_ } grep { $_ ne 'n' } keys %id;
    my $fill = sub { my ($sql) = @_; $sql =~ s/\{([a-z]+)\}/$id{$1}/g; return $sql };
    ask($caller, "BEGIN ISOLATION LEVEL $isolation; SELECT FROM pg_class LIMIT 0");
    my $changed = ask($other, $fill->($change));
    die "$change: $changed" if $changed =~ /ERROR/;
    my $said = ask($caller, $fill->($call)) . ask($caller, 'COMMIT');
    my $state = ask($other, "SELECT * FROM show_$group($n)");
    $said =~ s/([0-9a-f-]{36})/$name{$1} || 'new'/ge;
    return { said => $said, state => $state =~ s/(worker|idle|new|other)$n\b/$1/gr };
}

for my $group (sort keys %groups) {
    my ($same, $retried, @wrong) = (0, 0);
    for my $call (@{ $groups{$group}{calls} }) {
        for my $change (@{ $groups{$group}{changes} }) {
            my $want = outcome($group, $change, $call, 'READ COMMITTED');
            my $got = outcome($group, $change, $call, 'REPEATABLE READ');
            if ($got->{said} =~ /40001/) { $retried++ }
            elsif ($call =~ /register\('t/ && $change =~ /INSERT|UPDATE/) { next }    # what it would remove is counted by the snapshot
            elsif ($call =~ /claim\(/ && $change =~ /submit|retry_task/) { next }    # a later claim has what this one does not see
            elsif ($got->{said} eq $want->{said} && $got->{state} eq $want->{state}) { $same++ }
            else { push @wrong, "$call\nafter $change:\n$got->{said}$got->{state}but without the snapshot:\n$want->{said}$want->{state}" }
        }
    }
    is(join("\n", @wrong), '', "$group: each call with an old snapshot is right, or is to be tried again");
    cmp_ok($same, '>', 0, "$group: $same are right");
    cmp_ok($retried, '>', 0, "$group: $retried are to be tried again");
}
for ($caller, $other) { close $_->{in}; waitpid $_->{pid}, 0 }
$node->stop;
done_testing();
