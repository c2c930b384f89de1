# Nodes of a Citus cluster on this machine, for tests that are skipped where the server has no Citus.
package CitusCluster;
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use Test::More;
use Exporter 'import';
our @EXPORT = qw(needs_citus citus_node);

sub needs_citus {
    chomp(my $share = `$ENV{PG_CONFIG} --sharedir`);
    plan skip_all => 'no Citus in this PostgreSQL; give one that has it: make check-citus PG_CONFIG=...' unless -f "$share/extension/citus.control";
    return;
}

# A started node with Citus in database postgres, not yet part of a cluster.  Parameters of the node (install_path), and lines of
# configuration, may follow.
sub citus_node {
    my ($name, @conf) = @_;
    my $node = PostgreSQL::Test::Cluster->new($name, ref $conf[0] ? %{ shift @conf } : ());
    $node->init(allows_streaming => 'logical');
    # Citus must come first
    $node->append_conf('postgresql.conf', join("\n",
        "shared_preload_libraries = 'citus,session_sweeper'", "listen_addresses = '127.0.0.1'", 'max_connections = 100', 'max_prepared_transactions = 50',
        'max_worker_processes = 40', 'autovacuum = off', 'restart_after_crash = on',
        'citus.shard_count = 4', "citus.node_conninfo = 'sslmode=prefer'", "session_sweeper.min_interval = '20ms'", @conf) . "\n");
    # nodes connect to each other
    open(my $hba, '>', $node->data_dir . '/pg_hba.conf') or die;
    print $hba "local all all trust\nlocal replication all trust\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n";
    close $hba;
    $node->start;
    # where a server has this setting, logical splits need it
    if ($node->safe_psql('postgres', "SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries'")) {
        $node->append_conf('postgresql.conf', "output_plugin_libraries = 'pgoutput, citus'");
        $node->restart;
    }
    $node->safe_psql('postgres', 'CREATE EXTENSION citus');
    return $node;
}
1;
