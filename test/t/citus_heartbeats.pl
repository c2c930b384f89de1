# Heartbeats for rows of distributed tables: from any node, in transactions, with composite keys, and while shards move.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;
use CitusCluster;

needs_citus();
my @node = map { citus_node("node$_") } 0 .. 2;
my ($coordinator, @workers) = @node;
sub sql { return $coordinator->safe_psql('postgres', $_[0]) }
sub everywhere { my ($sql) = @_; return map { $_->safe_psql('postgres', $sql) } @node }
sub fails { my ($node, $sql, $pattern, $what) = @_; my ($rc, $out, $err) = $node->psql('postgres', $sql); return like($err, $pattern, $what) }

# The worker that has the row, and the other one.
sub workers_of {
    my ($table, $id) = @_;
    my $port = sql("SELECT nodeport FROM citus_shards WHERE table_name = '$table'::regclass AND shardid = get_shard_id_for_distribution_column('$table', $id)");
    return sort { ($b->port == $port) <=> ($a->port == $port) } @workers;
}

sub register
{
    my ($arguments) = @_;
    sql("SELECT sweeper.register($arguments)");
    my $policies = sql("SELECT count(*) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%'");
    wait_for($_, "SELECT count(*) = $policies FROM sweeper.policy WHERE shared_as IS NOT NULL") for @workers;
    return;
}

sql("SELECT citus_set_coordinator_host('127.0.0.1', " . $coordinator->port . ')');
sql("SELECT citus_add_node('127.0.0.1', " . $_->port . ')') for @workers;
sql('CREATE EXTENSION session_sweeper');

# every node answers for every row
my @types = ([ 'int', "'1'" ], [ 'bigint', "'1'" ], [ 'text', "'a b'" ], [ 'uuid', "'11111111-2222-3333-4444-555555555555'" ], [ 'char(5)', "'ab'" ], [ 'date', "'2030-01-01'" ]);
for my $t (@types)
{
    my ($type, $key) = @$t;
    my $name = 'of_' . ($type =~ s/\W.*//r);
    sql("CREATE TABLE $name (id $type PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON $name (seen);
        SELECT create_distributed_table('$name', 'id'); INSERT INTO $name VALUES ($key)");
    register("'$name', last_seen => 'seen', ttl => '1 hour', heartbeats => true");
    is(join(' ', everywhere("SELECT sweeper.touch('$name', $key), sweeper.is_live('$name', $key)")), 't|t t|t t|t', "a key of type $type");
}
sql("CREATE TABLE s (tenant int, id int, seen timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, tenant)); CREATE INDEX ON s (seen);
    SELECT create_distributed_table('s', 'tenant', shard_count => 8); INSERT INTO s SELECT i, i FROM generate_series(1, 40) AS i");
register("'s', key => '{id,tenant}', last_seen => 'seen', ttl => '1 hour', heartbeats => true");
my $shared = sql("SELECT policy_id FROM sweeper.policy WHERE policy = 's'");
is(join(' ', everywhere("SELECT count(*) FILTER (WHERE sweeper.touch('s', format('(%s,%s)', i, i))) FROM generate_series(1, 41) AS i")), '40 40 40',
    'a composite key, and false for a row that is not there');
my ($right, $other) = workers_of('s', 1);
sql("UPDATE s SET seen = now() - interval '10 minutes'");
is(join(' ', map { $_->safe_psql('postgres', "SELECT sweeper.is_live('s', '(1,1)')") } @node), 't t t', 'memory is asked on the right node');

# transactions
is(sql("BEGIN; INSERT INTO s VALUES (1, 99); SELECT sweeper.touch('s', '(99,1)'); COMMIT; SELECT sweeper.is_live('s', '(99,1)')"), "t\nt", 'a row of this transaction');
is(sql("BEGIN; INSERT INTO s VALUES (1, 98); SELECT sweeper.touch('s', '(98,1)'); ROLLBACK; SELECT sweeper.touch('s', '(98,1)')"), "t\nf", 'one that was rolled back');
my $session = $coordinator->background_psql('postgres', on_error_stop => 1);
$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM s');
sql("INSERT INTO s VALUES (2, 97)");
is($session->query_safe("SELECT sweeper.touch('s', '(97,2)')"), 't', 'a row that is newer than the snapshot');
$session->query_safe('ROLLBACK; PREPARE touch(text) AS SELECT sweeper.touch(\'s\', $1)');
is(join('', map { $session->query_safe("EXECUTE touch('(2,2)')") } 1 .. 8), 't' x 8, 'prepared');
$session->quit;

# errors
fails($_, "SELECT sweeper.touch('s', '(1,x)')", qr/invalid input syntax for type integer/, 'no key') for $coordinator, $right;
fails($other, "SELECT sweeper._touch_here('s', '(1,1)', '$shared public.s(id, tenant)')", qr/its shard is moving to another node/, 'not on this node');
fails($coordinator, "BEGIN READ ONLY; SELECT sweeper.touch('s', '(1,1)')", qr/read-only transaction/, 'read-only');

is($other->safe_psql('postgres', "SELECT reason FROM sweeper.explain_row('s', '(1,1)')"), "the key's shard is on another node", 'explain_row says so');

# many: one message a node
sub many { my ($node, $keys) = @_; return join(' ', sort split /\n/, $node->safe_psql('postgres', "SELECT key, state FROM sweeper.touch_many('s', $keys)")) }
my $keys = "(SELECT array_agg(format('(%s,%s)', i, i)) FROM generate_series(1, 40) AS i) || '{\"(41,41)\",\"(x,1)\"}'";
is(many($_, $keys), '(41,41)|gone (x,1)|unknown', 'touch_many from ' . $_->name) for @node;
is(sql("BEGIN; INSERT INTO s SELECT i, i FROM generate_series(50, 60) AS i;
    SELECT key, state FROM sweeper.touch_many('s', (SELECT array_agg(format('(%s,%s)', i, i)) FROM generate_series(50, 61) AS i)); ROLLBACK"), '(61,61)|gone', 'rows of this transaction');
fails($coordinator, "SELECT sweeper.touch_many('s', '{NULL}')", qr/keys must not contain nulls/, 'a null key');
# rows of this node are looked at before others are asked: Citus would begin and undo each look there, too
$right->restart;
my $seen = -s $other->logfile;
is(many($right, $keys), '(41,41)|gone (x,1)|unknown', 'touch_many when memory knows no row');
cmp_ok(scalar(() = slurp_file($other->logfile, $seen) =~ /SAVEPOINT/g), '<', 6, 'asks the other node once');

sub many_of { my ($policy, $list) = @_; return sql("SELECT key, state FROM sweeper.touch_many('$policy', '$list')") }

# rights
sql('CREATE ROLE client LOGIN; GRANT UPDATE ON s TO client');
everywhere("SET citus.enable_ddl_propagation = off; SELECT sweeper.grant_access('client', 'user')");
my @as_client = (extra_params => [ '-U', 'client' ]);
is($right->safe_psql('postgres', "SELECT sweeper.touch('s', '(1,1)')", @as_client), 't', 'UPDATE is enough on the node with the row');
my ($rc, $out, $err) = $coordinator->psql('postgres', "SELECT sweeper.touch('s', '(1,1)')", @as_client);
like($err, qr/permission denied for another node's rows of table "s"/, 'elsewhere SELECT on the key is needed');
sql('GRANT SELECT (tenant, id) ON s TO client');
is($coordinator->safe_psql('postgres', "SELECT sweeper.touch('s', '(1,1)')", @as_client), 't', 'it is enough');
sql('REVOKE UPDATE ON s FROM client');
(undef, undef, $err) = $right->psql('postgres', "SELECT sweeper._touch_here('s', '(1,1)', '$shared public.s(id, tenant)')", @as_client);
like($err, qr/permission denied for table s/, 'the function for other nodes checks the same rights');
sql("CREATE SCHEMA closed; CREATE TABLE closed.s (id int PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON closed.s (seen);
    SELECT create_distributed_table('closed.s', 'id'); INSERT INTO closed.s VALUES (1)");
register("'closed.s', 'closed', last_seen => 'seen', ttl => '1 hour', heartbeats => true");
my ($closed) = workers_of('closed.s', 1);
$closed->safe_psql('postgres', "SET citus.enable_ddl_propagation = off; SELECT sweeper.grant_access('client', 'user', policy => 'closed')");
is($closed->safe_psql('postgres', "SELECT sweeper.touch('closed', '1')", @as_client), 't', 'level user of the policy needs no rights on its schema');

# what is sent to another node runs no code of others as the caller
$_->safe_psql('postgres', "SET citus.enable_ddl_propagation = off; CREATE FUNCTION trap(int) RETURNS int LANGUAGE plpgsql AS \$\$ BEGIN RAISE 'trapped'; END \$\$;
    CREATE AGGREGATE public.count(*) (sfunc = trap, stype = int, initcond = '0'); ALTER ROLE client SET search_path = public, pg_catalog") for @workers;
sql('GRANT UPDATE, SELECT ON s TO client');
is($coordinator->safe_psql('postgres', "SELECT sweeper.touch('s', '(1,1)'), sweeper.touch('s', '(9999,1)')", @as_client), 't|f', 'an aggregate of the same name is not used');
$_->safe_psql('postgres', "SET citus.enable_ddl_propagation = off; DROP AGGREGATE public.count(*); DROP FUNCTION trap; ALTER ROLE client RESET search_path") for @workers;
sql("CREATE ROLE alice LOGIN; GRANT CREATE ON SCHEMA public TO alice");
sql("SET ROLE alice; CREATE FUNCTION who(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS \$\$ BEGIN RAISE NOTICE 'runs as %', current_user; RETURN true; END \$\$;
    CREATE TABLE owned (id int PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now(), g int); CREATE INDEX ON owned (seen); SELECT create_distributed_table('owned', 'id');
    CREATE INDEX ON owned (seen) WHERE who(1); INSERT INTO owned SELECT generate_series(1, 20)");
register("'owned', last_seen => 'seen', ttl => '1 hour', heartbeats => true, group_by => 'g'");
for my $call ("is_live('owned', '1')", "touch('owned', '1')", "expire('owned', '{1}')", "expire_group('owned', '1')") {
    (undef, undef, $err) = $coordinator->psql('postgres', "SELECT sweeper.$call");
    like($err, qr/a superuser cannot reach another node's rows of table "owned"/, "a superuser: $call");
    unlike($err, qr/runs as/, 'the owner\'s code does not run');
}
is(sql("SELECT DISTINCT state, message FROM sweeper.touch_many('owned', '{1,2,3,4,5,6,7,8}')"), qq(unknown|a superuser cannot reach another node's rows of table "owned"), 'touch_many');
# nor does it with the rights of a member of a superuser role, nor that of a partition's owner
sql('CREATE ROLE dba SUPERUSER; CREATE ROLE operator LOGIN; GRANT dba TO operator; GRANT SELECT, UPDATE ON owned TO operator');
everywhere("SET citus.enable_ddl_propagation = off; SELECT sweeper.grant_access(r, 'user') FROM unnest('{alice,operator}'::regrole[]) AS r");
(undef, undef, $err) = $coordinator->psql('postgres', "SELECT sweeper.touch('owned', '1')", extra_params => [ '-U', 'operator' ]);
like($err, qr/a superuser cannot reach.*with the rights of role "operator"/s, 'a member of a superuser role');
sql("CREATE TABLE parts (id int PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now()) PARTITION BY HASH (id); CREATE TABLE parts_1 PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0);
    CREATE INDEX ON parts (seen); SELECT create_distributed_table('parts', 'id'); INSERT INTO parts SELECT generate_series(1, 20)");
register("'parts', last_seen => 'seen', ttl => '1 hour', heartbeats => true");
is(sql("SELECT sweeper.touch('parts', '1')"), 't', 'of superusers alone');
sql('ALTER TABLE parts_1 OWNER TO alice');
fails($coordinator, "SELECT sweeper.touch('parts', '1')", qr/a superuser cannot reach another node's rows of table "parts"/, 'a partition of another owner');
is(sql("SET ROLE alice; SELECT sweeper.touch('owned', '1'), sweeper.is_live('owned', '1'), sweeper.expire('owned', '{1}')"), 't|t|1', 'as the owner all of them can be called');
is(join('', map { $_->safe_psql('postgres', "SELECT sweeper.is_live('owned', '2')") } (workers_of('owned', 2))[0]), 't', 'so can a superuser on the node with the row');

# a policy that only has the same name does not answer for rows that it does not have
sql("CREATE TABLE twin (id int PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON twin (seen); SELECT create_distributed_table('twin', 'id'); INSERT INTO twin SELECT generate_series(1, 20)");
fails($coordinator, "BEGIN; SELECT sweeper.register('twin', last_seen => 'seen', ttl => '1 hour', heartbeats => true); SELECT sweeper.is_live('twin', '1')",
    qr/policy "twin" does not exist on this node.*its definition has not reached this node yet.*Its sessions are not gone: try again/s, 'a definition that other nodes do not have yet');
my ($has, $has_not) = workers_of('twin', 1);
$has->safe_psql('postgres', "SET citus.enable_ddl_propagation = off; CREATE TABLE local (id int PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON local (seen);
    SELECT sweeper.register('local', 'twin', last_seen => 'seen', ttl => '1 hour', heartbeats => true)");
sql("SELECT sweeper.register('twin', last_seen => 'seen', ttl => '1 hour', heartbeats => true)");
wait_for($has, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'definition not applied'");
wait_for($has_not, "SELECT count(*) = 1 FROM sweeper.policy WHERE policy = 'twin'");
for my $call ("touch('twin', '1')", "is_live('twin', '1')", "expire('twin', '{1}')") {
    fails($coordinator, "SELECT sweeper.$call", qr/policy "twin" of this node is not the cluster's policy of that name.*are \d+ public.local\(id\) here, and \d+ public.twin\(id\)/s, "another policy of that name: $call");
}
like(many_of('twin', '{1}'), qr/1\|unknown/, 'touch_many');
$has->safe_psql('postgres', "SELECT sweeper.unregister('twin'); SET citus.enable_ddl_propagation = off; DROP TABLE local");
wait_for($has, "SELECT count(*) = 1 FROM sweeper.policy WHERE policy = 'twin'");
is(sql("SELECT sweeper.touch('twin', '1')"), 't', 'when the definition is there, the row is found');
$has->safe_psql('postgres', 'SET citus.enable_ddl_propagation = off; ALTER ROLE client SET quote_all_identifiers = on');
sql('GRANT SELECT, UPDATE ON twin TO client');
is($coordinator->safe_psql('postgres', "SELECT sweeper.touch('twin', '1')", @as_client), 't', 'also if a setting of the node quotes names');

# values that nodes hash differently
sql("CREATE TYPE colour AS ENUM ('red', 'green', 'blue'); CREATE DOMAIN colours AS colour[]");
for my $column ('colour', 'colours') {
    my $key = $column eq 'colour' ? 'red' : '{red}';
    sql("CREATE TABLE by_$column (c $column PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON by_$column (seen); SELECT create_distributed_table('by_$column', 'c'); INSERT INTO by_$column VALUES ('$key')");
    fails($coordinator, "SELECT sweeper.register('by_$column', last_seen => 'seen', ttl => '1 hour', heartbeats => true)", qr/cannot sweep "by_$column".*(Nodes hash the type of the distribution column "c" differently|column "c")/s, "heartbeats by $column");
    register("'by_$column', last_seen => 'seen', ttl => '1 hour'");
    fails($coordinator, "SELECT sweeper.alter_policy('by_$column', heartbeats => true)", qr/by_$column/, 'later');
    fails($_, "SELECT sweeper.is_live('by_$column', '$key')", qr/not distributed by the hash of a key column that is the same on all nodes/, 'is_live: ' . $_->name) for @node;
    fails($coordinator, "SELECT sweeper.expire('by_$column', '{\"$key\"}')", qr/c is not a column of a built-in type/, 'expire');
}


# what memory knew of a shard's rows before it left is not believed when it is back
sub move {
    my ($table, $id, $from, $to, $mode) = @_;
    sql("SELECT citus_move_shard_placement(get_shard_id_for_distribution_column('$table', $id), '127.0.0.1', " . $from->port . ", '127.0.0.1', " . $to->port . ", '$mode')");
}
is($right->safe_psql('postgres', "SELECT sweeper.touch('s', '(1,1)')"), 't', 'known to memory');
move('s', 1, $right, $other, 'block_writes');
is(join(' ', map { $_->safe_psql('postgres', "SELECT sweeper.touch('s', '(1,1)')") } @node), 't t t', 'found after a move');
sql('DELETE FROM s WHERE tenant = 1 AND id = 1');
move('s', 1, $other, $right, 'force_logical');
is(join(' ', map { $_->safe_psql('postgres', "SELECT sweeper.touch('s', '(1,1)'), sweeper.is_live('s', '(1,1)')") } @node), 'f|f f|f f|f', 'gone on all nodes after it came back');

# an acknowledged heartbeat holds after a move: rows that say less get one ttl of grace on the new node
my $ttl = 8;
sql("CREATE TABLE m (id int PRIMARY KEY, seen timestamptz NOT NULL); CREATE INDEX ON m (seen); SELECT create_distributed_table('m', 'id', shard_count => 1)");
register("'m', last_seen => 'seen', ttl => '$ttl s', heartbeats => true, fuse_fraction => 1, start => 'now'");
my ($from, $to) = workers_of('m', 1);
sql("INSERT INTO m SELECT i, now() - interval '@{[$ttl - 4]} s' FROM generate_series(1, 10) AS i");
is(sql("SELECT count(*) FROM sweeper.touch_many('m', (SELECT array_agg(i::text) FROM generate_series(1, 5) AS i))"), 0, 'five sessions of ten are confirmed');
my $acknowledged = sql('SELECT clock_timestamp()');
move('m', 1, $from, $to, 'block_writes');
cmp_ok(sql("SELECT extract(epoch FROM clock_timestamp() - '$acknowledged')"), '<', 3.5, 'the shard has moved before the rows are due');
ok(wait_for($to, "SELECT count(*) = 10 FROM sweeper.cleanup_event WHERE policy = 'm'"), 'all end without further heartbeats');
is($to->safe_psql('postgres', "SELECT min(cleaned_at) >= '$acknowledged'::timestamptz + interval '$ttl s', max(cleaned_at) < '$acknowledged'::timestamptz + interval '@{[2 * $ttl + 3]} s'
    FROM sweeper.cleanup_event WHERE policy = 'm'"), 't|t', 'not before one ttl after the heartbeat, nor later than the grace');
is(join('', everywhere("SELECT problem FROM sweeper.problem WHERE policy IN ('m', 's')")), '', 'no problem on any node');

# the same when Citus makes the table again, on nodes whose memory has none of the heartbeats
my %remade = (
    undistributed => sub { sql("SELECT undistribute_table('undistributed'); SELECT sweeper.resume('undistributed')") },
    parted => sub {
        # at once, before the missing table counts as an outage; the change of another policy begins the round
        sql("SELECT undistribute_table('parted')");
        sql("SELECT sweeper.pause('m')");
        wait_for($coordinator, "SELECT relid = 'parted'::regclass FROM sweeper.policy WHERE policy = 'parted'", 'the policy follows its table');
        sql("SELECT sweeper.resume('parted')");
    },
    resharded => sub { sql("SELECT alter_distributed_table('resharded', shard_count => 2, cascade_to_colocated => false); SELECT sweeper.resume('resharded')") },
    distributed => sub { sql("SELECT create_distributed_table('distributed', 'id', colocate_with => 'none'); SELECT truncate_local_data_after_distributing_table('distributed');
        SELECT sweeper.resume('distributed')") });
for my $table (sort keys %remade)
{
    sql("CREATE TABLE $table (id int PRIMARY KEY, seen timestamptz NOT NULL)" . ($table eq 'parted' ? ' PARTITION BY RANGE (id); CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100)' : '') .
        "; CREATE INDEX ON $table (seen)");
    sql("SELECT create_distributed_table('$table', 'id', shard_count => 3, colocate_with => 'none')") unless $table eq 'distributed';
    sql("SELECT sweeper.register('$table', last_seen => 'seen', ttl => '$ttl s', heartbeats => true, fuse_fraction => 1, start => 'now')");
}
wait_for($_, "SELECT count(*) = 3 FROM sweeper.policy WHERE policy IN ('undistributed', 'parted', 'resharded')") for @workers;
my %confirmed;
for my $table (sort keys %remade)
{
    sql("INSERT INTO $table SELECT i, now() - interval '@{[$ttl - 4]} s' FROM generate_series(1, 10) AS i");
    is(sql("SELECT count(*) FROM sweeper.touch_many('$table', (SELECT array_agg(i::text) FROM generate_series(1, 10) AS i))"), 0, "$table: all are confirmed");
    $confirmed{$table} = sql('SELECT clock_timestamp()');
    sql("SELECT sweeper.pause('$table')");
    $remade{$table}->();
    # their rows look dead now, and the nodes look
    wait_for($coordinator, "SELECT coalesce(max(seen) < now() - interval '$ttl s', true) FROM $table");
    sql("CALL sweeper.sweep('$table', pass => NULL)");
}
for my $table (sort keys %remade)
{
    ok(wait_for($coordinator, "SELECT count(*) = 10 FROM sweeper.cleanup_event_all WHERE policy = '$table'"), "$table: all end without further heartbeats");
    is(sql("SELECT min(cleaned_at) >= '$confirmed{$table}'::timestamptz + interval '$ttl s' FROM sweeper.cleanup_event_all WHERE policy = '$table'"), 't',
        "$table: not before one ttl after the heartbeat");
}

# heartbeats outlive a clean stop, and there is a grace when they are given up
sql("INSERT INTO s SELECT i, i, now() - interval '30 minutes' FROM generate_series(101, 140) AS i");
my $all = "(SELECT array_agg(format('(%s,%s)', i, i)) FROM generate_series(101, 140) AS i)";
my $touched = sql('SELECT clock_timestamp()');
is(many($coordinator, $all), '', 'all are confirmed');
$_->restart for @workers;
is(sql("SELECT count(*) FROM generate_series(101, 140) AS i, sweeper.explain_row('s', format('(%s,%s)', i, i)) AS r WHERE r.last_heartbeat >= '$touched'"), 40,
    'memory has them after a restart');
sql("SELECT sweeper.alter_policy('s', heartbeats => false)");
ok(wait_for($_, "SELECT NOT heartbeats AND horizons IS NOT NULL FROM sweeper.policy WHERE policy = 's'"), $_->name . ': a grace when the policy takes no more') for @workers;
is(sql("SELECT count(*) FROM s WHERE id > 100"), 40, 'rows that are older than it live on');
sql("SELECT sweeper.alter_policy('s', heartbeats => true)");
ok(wait_for($_, "SELECT heartbeats FROM sweeper.policy WHERE policy = 's'"), 'it takes them again') for @workers;

# a node that is down: its keys are unknown, all others are confirmed
$workers[1]->stop('immediate');
my $down = sql("SELECT string_agg(format('(%s,%s)|unknown', i, i), ' ' ORDER BY format('(%s,%s)', i, i)) FROM generate_series(2, 40) AS i
    JOIN citus_shards c ON c.table_name = 's'::regclass AND c.shardid = get_shard_id_for_distribution_column('s', i) WHERE nodeport = " . $workers[1]->port);
is(many($_, "(SELECT array_agg(format('(%s,%s)', i, i)) FROM generate_series(2, 40) AS i)"), $down, 'touch_many from ' . $_->name . ' while a node is down') for $coordinator, $workers[0];
is(sql("BEGIN; SELECT count(*) FROM sweeper.touch_many('s', (SELECT array_agg(format('(%s,%s)', i, i)) FROM generate_series(2, 40) AS i)); COMMIT"),
    scalar(split / /, $down), 'in a transaction block');
$workers[1]->start;
ok(wait_for($coordinator, "SELECT bool_and(sweeper.is_live('s', format('(%s,%s)', i, i))) FROM generate_series(2, 40) AS i"), 'after the crash all are held');

sql('DROP EXTENSION session_sweeper');
done_testing();
