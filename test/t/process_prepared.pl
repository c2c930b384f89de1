# Prepared transactions that change policies, over a crash between PREPARE and COMMIT PREPARED.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'max_prepared_transactions = 5');
my $coordinators = "FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator' AND datname = 'postgres'";
sub sql { return $node->safe_psql('postgres', $_[0]) }

# the server crashes while the transaction is prepared
sub prepared_over_crash
{
    my ($name, $sql) = @_;
    sql("BEGIN; $sql; PREPARE TRANSACTION '$name'");
    $node->stop('immediate');
    $node->start;
}

sql('CREATE TABLE rows (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON rows (d); INSERT INTO rows VALUES (1, now())');
prepared_over_crash('create', 'CREATE EXTENSION session_sweeper');
sql("COMMIT PREPARED 'create'");
ok(wait_for($node, "SELECT count(*) = 1 $coordinators"), 'a coordinator after CREATE EXTENSION');

prepared_over_crash('register', "SELECT sweeper.register('rows', deadline => 'd', start => 'now')");
wait_for($node, "SELECT count(*) = 1 $coordinators");
sql("COMMIT PREPARED 'register'");
ok(wait_for($node, 'SELECT NOT EXISTS (SELECT FROM rows)'), 'the policy sweeps after its registration');

prepared_over_crash('pause', "SELECT sweeper.pause('rows')");
sql("COMMIT PREPARED 'pause'");
ok(wait_for($node, "SELECT state = 'paused' FROM sweeper.policy_status WHERE policy = 'rows'"), 'the policy is paused');
prepared_over_crash('resume', "SELECT sweeper.resume('rows')");
sql('INSERT INTO rows VALUES (2, now())');
sql("ROLLBACK PREPARED 'resume'");
ok(wait_for($node, "SELECT state = 'paused' FROM sweeper.policy_status WHERE policy = 'rows'"), 'and stays so after a rollback');
sql("SELECT sweeper.resume('rows')");
ok(wait_for($node, 'SELECT NOT EXISTS (SELECT FROM rows)'), 'until it is resumed');

prepared_over_crash('drop', 'DROP EXTENSION session_sweeper');
sql("ROLLBACK PREPARED 'drop'; INSERT INTO rows VALUES (3, now())");
ok(wait_for($node, 'SELECT NOT EXISTS (SELECT FROM rows)'), 'the policy sweeps after a rollback of DROP EXTENSION');
prepared_over_crash('drop', 'DROP EXTENSION session_sweeper');
sql("COMMIT PREPARED 'drop'");
ok(wait_for($node, "SELECT count(*) = 0 $coordinators"), 'no coordinator after DROP EXTENSION');
done_testing();
