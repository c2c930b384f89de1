# A dump is restored without a surprise.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');
load_table($node, 'login', 20, 20);
$node->safe_psql('postgres', "CREATE ROLE keeper; ALTER TABLE login OWNER TO keeper;
    SELECT sweeper.grant_access('keeper', 'admin');
    SELECT sweeper.register('login', deadline => 'd', start => 'paused', check_every => '100 ms', group_by => 'id % 2')");
$node->safe_psql('postgres', "CREATE ROLE client; SELECT sweeper.create_pool('p'); SELECT sweeper.grant_access('client', 'user', policy => 'login'), sweeper.grant_access('client', 'user', pool => 'p')");
my $file = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '-f', $file, $node->connstr('postgres') ], 'pg_dump');
for my $where (qw(same other)) {
    my $target = $where eq 'same' ? $node : sweeper_node('other');
    $target->safe_psql('postgres', 'CREATE ROLE keeper; CREATE ROLE client') if $where eq 'other';
    $target->safe_psql('postgres', 'CREATE DATABASE restored');
    $target->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
    $target->reload;
    $target->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, $target->connstr('restored') ],
        "restore into the $where cluster");
    # set-up scripts give the same numbers everywhere: they are no evidence
    $target->safe_psql('restored', "UPDATE sweeper.policy SET relid = 'login'::regclass, owner = 'keeper'::regrole,
        paused_at = NULL, database = (SELECT oid FROM pg_database WHERE datname = current_database()) WHERE policy = 'login'")
        if $where eq 'other';
    $target->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
    $target->reload;
    wait_for($target, "SELECT held_reason = 'restored' FROM sweeper.policy WHERE policy = 'login'", 'it is held', 'restored');
    is($target->safe_psql('restored', "SELECT count(*) FROM login"), 40, 'nothing was removed');
    is($target->safe_psql('restored', "SELECT has_function_privilege('keeper', 'sweeper._admin()', 'EXECUTE')"), 't',
        'access levels came along');
    is($target->safe_psql('restored', "SELECT count(*) FROM pg_proc WHERE proname LIKE '\\_user\\_of%' AND has_function_privilege('client', oid, 'EXECUTE') AND NOT has_function_privilege('pg_monitor', oid, 'EXECUTE')"), 2,
        'those of a policy and a pool, too');
    is($target->safe_psql('restored', "BEGIN; SET ROLE client; SELECT count(*) FROM sweeper.acquire('p', 'x'); ROLLBACK"), 1, 'and count');
    is($target->safe_psql('restored', "BEGIN; DROP EXTENSION session_sweeper; SELECT count(*) FROM pg_proc WHERE proname LIKE '\\_user\\_of%'; ROLLBACK"), 0, 'they go with the extension');
    is($target->safe_psql('restored', "SELECT count(*) FROM sweeper.policy WHERE policy LIKE 'sweeper.%'"), 7,
        'built-in policies are there once');
    is($target->safe_psql('restored', "SELECT sweeper.resume('login')"),
        $where eq 'same' ? '{paused,restored}' : '{restored}', 'resume');
    wait_for($target, "SELECT count(*) = 20 FROM login", 'and then it is swept', 'restored');
}
# over the original
$node->safe_psql('postgres', "SELECT sweeper.resume('login')");
wait_for($node, 'SELECT count(*) = 20 FROM login', 'the original is swept');
$node->command_ok([ 'pg_dump', '--clean', '--if-exists', '-f', $file, $node->connstr('postgres') ], 'pg_dump --clean');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, $node->connstr('postgres') ], 'restore in place');
$node->safe_psql('postgres', "INSERT INTO login SELECT id + 1000, now() - interval '1 h' FROM login");
wait_for($node, "SELECT next_step = 'SELECT sweeper.resume(''login'');' FROM sweeper.problem WHERE problem = 'held: restored' AND policy = 'login'",
    'it is held');
is($node->safe_psql('postgres', 'SELECT count(*) FROM login'), 40, 'nothing was removed');
is($node->safe_psql('postgres', "SELECT sweeper.resume('login')"), '{restored}', 'resume');
wait_for($node, 'SELECT count(*) = 20 FROM login', 'and then it is swept');
$node->stop;
done_testing();
