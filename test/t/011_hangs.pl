# Code of users that hangs: it costs its own policy, nobody else.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    CREATE TABLE gate (name text PRIMARY KEY);
    -- hangs until somebody opens its gate
    CREATE FUNCTION hang(name text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        WHILE NOT EXISTS (SELECT FROM public.gate AS g WHERE g.name = hang.name) LOOP PERFORM pg_sleep(0.02); END LOOP; END $$;
    CREATE FUNCTION hanging() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.hang(TG_TABLE_NAME); RETURN OLD; END $$});
my $hanging = "backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep'";

# A worker that is ended in the middle of a chunk: what it had is no less due,
# although others found the end of the pass.
load_table($node, 'parted', 3000, 10);
$node->safe_psql('postgres', "CREATE TRIGGER hang BEFORE DELETE ON parted FOR EACH ROW WHEN (OLD.id = 2999) EXECUTE FUNCTION hanging();
    SELECT sweeper.register('parted', deadline => 'd', start => 'now', backlog_rate => 0, batch_size => 100, max_workers => 2)");
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $hanging) AND count(*) < 1100 FROM parted", 'all but the chunk of one worker');
my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE $hanging");
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)") for 1 .. 2;
wait_for($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)", 'a second SIGTERM ends it');
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $hanging)", 'another tries');
$node->safe_psql('postgres', "INSERT INTO gate VALUES ('parted')");
wait_for($node, 'SELECT count(*) = 10 FROM parted', 'the rest is found');
is(exactly_once($node, 'parted', 3000, 10), '0|0|0|0', 'exactly once');
is($node->safe_psql('postgres', "SELECT fuse_trips FROM sweeper.stat_policy WHERE policy = 'parted'"), 0, 'and still counted as the backlog it is');

$node->stop;
done_testing();
