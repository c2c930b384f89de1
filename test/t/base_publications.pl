# A publication FOR ALL TABLES takes schema sweeper along: where it is subscribed to, what it brings is discarded.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my %node;
sub sql { my ($name, $sql) = @_; return $node{$name}->safe_psql('postgres', $sql) }
for my $name ('publisher', 'subscriber') {
    $node{$name} = sweeper_node($name, 'wal_level = logical', 'max_logical_replication_workers = 10', 'max_sync_workers_per_subscription = 4', 'max_worker_processes = 24');
    sql($name, qq{CREATE EXTENSION session_sweeper; CREATE TABLE app (id int PRIMARY KEY); CREATE TABLE login (id int PRIMARY KEY, d timestamptz);
        SELECT sweeper.register('login', policy => 'of $name', deadline => 'd', check_every => '0', start => 'now');
        SELECT sweeper.create_pool('desks', 5, metadata => '{"of": "$name"}');
        SELECT count(a.session) FROM generate_series(1, 3) AS i CROSS JOIN LATERAL sweeper.acquire('desks', '$name ' || i) AS a;
        INSERT INTO login VALUES (1, now() - interval '1 min')});
    sql($name, "CALL sweeper.sweep('of $name')");
    sql($name, q{SELECT sweeper.register_worker('w') AS w \gset
        SELECT sweeper.register_job(:'w', 'r', 'c', 'n') > 0, sweeper.submit('r', 'c', 'n') IS NOT NULL, sweeper.append('login', '{"id": "x"}') > 0});
    sql($name, q{CALL sweeper.flush('login')});
}
# What a server says of itself; the retention of its own rows is far.
my @own = (q{SELECT policy, paused_reason FROM sweeper.policy WHERE policy_id > 100}, q{SELECT pass, policy FROM sweeper.pass ORDER BY 1}, q{SELECT pool, seats, metadata FROM sweeper.pool ORDER BY 1},
    q{SELECT owner FROM sweeper.session WHERE pool = 'desks' ORDER BY 1}, q{SELECT id, policy, key FROM sweeper.cleanup_event ORDER BY id}, q{SELECT count(*) FROM sweeper.job},
    q{SELECT count(*) FROM sweeper.task}, q{SELECT id, error FROM sweeper.append_failed}, q{SELECT clusters FROM sweeper.service_mark}, q{SELECT count(*) FROM sweeper.policy_change});
sub of_subscriber { return join "\n", map { sql('subscriber', $_) } @own }
my $before = of_subscriber();
unlike($before, qr/of publisher|publisher 1/, 'a server of its own');

sql('publisher', 'CREATE PUBLICATION everything FOR ALL TABLES; INSERT INTO app VALUES (1)');
sql('subscriber', "CREATE SUBSCRIPTION everything CONNECTION \$c\$" . $node{publisher}->connstr('postgres') . "\$c\$ PUBLICATION everything");
wait_for($node{subscriber}, q{SELECT count(*) > 18 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel}, 'all tables are copied');
is(sql('subscriber', 'SELECT count(*) FROM app'), 1, 'the table of the application, with its row');
is(of_subscriber(), $before, 'nothing of what the publisher says of itself');

sql('publisher', q{INSERT INTO app VALUES (2); SELECT sweeper.alter_pool('desks', seats => 2), sweeper.pause('of publisher', 'on the publisher');
    SELECT sweeper.create_pool('more'); SELECT count(a.session) FROM generate_series(1, 3) AS i CROSS JOIN LATERAL sweeper.acquire('more', 'publisher ' || i) AS a; SELECT sweeper.submit('r', 'c', 'n');
    SELECT count(sweeper.release(session)) FROM sweeper.session WHERE owner = 'publisher 1';
    UPDATE sweeper.pool SET metadata = '{}'; UPDATE sweeper.pass SET error = 'of the publisher'; DELETE FROM sweeper.append_failed; DELETE FROM sweeper.pass;
    UPDATE sweeper.policy SET policy_id = policy_id; DELETE FROM sweeper.session WHERE status <> 'active'});
$node{publisher}->wait_for_catchup('everything');
is(sql('subscriber', 'SELECT count(*) FROM app'), 2, 'what is streamed, too');
is(of_subscriber(), $before, 'nor what it says later');
is(sql('subscriber', 'SELECT apply_error_count, sync_error_count FROM pg_stat_subscription_stats'), '0|0', 'and nothing fails');

# The subscriber does its own work as before.
is(sql('subscriber', q{SELECT count(sweeper.release(session)) FROM sweeper.session WHERE pool = 'desks' AND status = 'active'}), 3, 'its sessions end');
sql('subscriber', q{SELECT sweeper.acquire('desks', 'late', ttl => '1 s')});
wait_for($node{subscriber}, q{SELECT status = 'expired' FROM sweeper.session WHERE owner = 'late'}, 'and expire');
is(sql('subscriber', q{SELECT string_agg(policy, ',') FROM sweeper.policy_status WHERE policy LIKE 'sweeper.%' AND state NOT IN ('waiting', 'running', 'held', 'off')}), '', 'without trouble of its own policies');
like(sql('subscriber', q{SELECT detail FROM sweeper.problem WHERE policy = 'of subscriber'}), qr/target of a subscription/, 'a table that the publisher sweeps is left to it');

# What a restore writes under the same setting is written.
sql('subscriber', q{SET session_replication_role = replica; INSERT INTO sweeper.pool (pool, ttl, metadata, created_by) SELECT 'restored', ttl, metadata, created_by FROM sweeper.pool WHERE pool = 'desks'});
is(sql('subscriber', q{SELECT count(*) FROM sweeper.pool WHERE pool = 'restored'}), 1, 'a restore is no replication');
sql('subscriber', 'DROP SUBSCRIPTION everything');
$_->stop for values %node;
done_testing();
