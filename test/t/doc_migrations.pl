# The migrations of doc/migrations.md, in SQL, by Django and by Alembic: up, down and up again.  A superuser runs only what the
# page has for a new server; the role that it makes connects, and runs the rest.  Databases of Django and Alembic have the extension from template1.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $page = slurp_file('doc/migrations.md');
my %block = map { /^from (\w+)/ ? ($1 => $_) : () } $page =~ /^```python\n(.*?)^```$/msg;
my ($new_server, @sql) = $page =~ /^```sql\n(.*?)^```$/msg;
my $python = '/usr/bin/python3';
my $node = sweeper_node('main');
like($new_server, qr/CREATE EXTENSION/, 'what a superuser runs');
$node->safe_psql('postgres', 'CREATE DATABASE sql_app');
$node->safe_psql('sql_app', $new_server);
$node->safe_psql('template1', $new_server =~ s/^CREATE ROLE .*$//mgr);
local @ENV{qw(PGHOST PGPORT PYTHONDONTWRITEBYTECODE)} = ($node->host, $node->port, 1);

sub policies {
    my ($database) = @_;
    return $node->safe_psql($database, "SELECT string_agg(policy || ' of ' || owner_name, ', ' ORDER BY policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%'");
}

# Files in a folder of their own.
sub project {
    my (%files) = @_;
    my $dir = PostgreSQL::Test::Utils::tempdir;
    for my $file (sort keys %files) {
        my $path = $dir;
        for my $part (split '/', $file =~ s,/[^/]*$,,r) { $file =~ m,/, or last; $path .= "/$part"; -d $path or mkdir $path }
        append_to_file("$dir/$file", $files{$file});
    }
    return $dir;
}

# A command of the tool succeeds, as that role.
sub tool {
    my ($dir, @command) = @_;
    my $out = '';
    local $ENV{PGUSER} = 'deployer';
    ok(IPC::Run::run([ $python, @command ], '>', \$out, '2>&1', init => sub { chdir $dir or die }), "@command") or diag($out);
    return;
}

sub there_and_back {
    my ($database, $policies, $up, $down) = @_;
    for my $step ([ $up, $policies ], [ $down, '' ], [ $up, $policies ]) {
        $step->[0]->();
        is(policies($database), $step->[1], "policies of $database");
    }
    return;
}

# as a tool for plain SQL does: each file in a transaction
sub files {
    for my $file (@_) {
        my ($rc, $out, $err) = $node->psql('sql_app', $file, extra_params => [ '-1', '-U', 'deployer' ], on_error_stop => 1);
        is($rc, 0, 'deployer: ' . ($file =~ /^(SELECT.{0,50})/m)[0]) or diag($err);
    }
    return;
}
my $down = pop @sql;
is(scalar(@sql), 3, 'a table, its policy as it is later, and all policies');
there_and_back('sql_app', 'cart of deployer', sub { files(@sql) }, sub { files($down) });
is($node->safe_psql('sql_app', 'SELECT pool, seats, created_by FROM sweeper.pool_status'), 'checkout|50|deployer', 'its pool');

# in a database that has the extension from template1, pools need one step more
$node->safe_psql('postgres', 'CREATE DATABASE copied');
my @as = (extra_params => [ '-U', 'deployer' ], on_error_stop => 1);
my $drop = ($down =~ /^(SELECT sweeper\.drop_pool.*)$/m)[0];
$node->safe_psql('copied', q{SELECT sweeper.create_pool('checkout', seats => 50)}, @as);
my ($rc, $out, $err) = $node->psql('copied', $drop, @as);
like("$rc $err", qr/^3 .*restored/, 'a copied database: drop_pool is an error');
$node->safe_psql('copied', "SELECT sweeper.resume('sweeper.session'); $drop", @as);
is($node->safe_psql('copied', 'SELECT count(*) FROM sweeper.pool_status'), 0, 'after resume it is none');

SKIP: {
    my $here = system("$python -c 'import django, psycopg2' 2>/dev/null") == 0;
    diag('SKIPPED: Django') unless $here;
    skip 'there is no Django here; make setup installs what the machine can have', 1 unless $here;
    $node->safe_psql('postgres', 'CREATE DATABASE django_app');
    my $dir = project(
        'settings.py' => q{
SECRET_KEY = "x"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.sessions", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "django_app"}}
},
        'shop/__init__.py' => '',
        'shop/models.py' => q{
from django.db import models
class Cart(models.Model):
    expires_at = models.DateTimeField(db_index=True)
});
    my @django = ('-m', 'django');
    local @ENV{qw(DJANGO_SETTINGS_MODULE PYTHONPATH)} = ('settings', $dir);
    tool($dir, @django, 'makemigrations', 'shop');
    append_to_file("$dir/shop/migrations/0002_policies.py", $block{django});
    there_and_back('django_app', 'django_session of deployer, shop_cart of deployer',
        sub { tool($dir, @django, 'migrate') }, sub { tool($dir, @django, 'migrate', 'shop', '0001') });
    tool($dir, @django, 'makemigrations', '--check', '--dry-run');
}

SKIP: {
    my $here = system("$python -c 'import alembic, psycopg2' 2>/dev/null") == 0;
    diag('SKIPPED: Alembic') unless $here;
    skip 'there is no Alembic here; make setup installs what the machine can have', 1 unless $here;
    $node->safe_psql('postgres', 'CREATE DATABASE alembic_app');
    my $dir = project(
        'alembic.ini' => "[alembic]\nscript_location = .\n",
        'env.py' => q{
from alembic import context
from sqlalchemy import create_engine
with create_engine("postgresql+psycopg2:///alembic_app").connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
},
        'versions/0001_cart.py' => q{
import sqlalchemy as sa
from alembic import op
revision = "0001"
down_revision = None
def upgrade():
    op.create_table("cart", sa.Column("id", sa.BigInteger, primary_key=True), sa.Column("expires_at", sa.DateTime(timezone=True), index=True))
},
        'versions/0002_policies.py' => $block{alembic});
    my @alembic = ('-m', 'alembic');
    there_and_back('alembic_app', 'cart of deployer',
        sub { tool($dir, @alembic, 'upgrade', 'head') }, sub { tool($dir, @alembic, 'downgrade', '0001') });
}
$node->stop;
done_testing();
