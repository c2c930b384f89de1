# The migrations of doc/migrations.md, by Django and Alembic: up, down and up again, by a role that only owns its tables, in
# databases that have the extension from template1.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $page = slurp_file('doc/migrations.md');
my %block = map { /^from (\w+)/ ? ($1 => $_) : () } $page =~ /^```python\n(.*?)^```$/msg;
my $python = '/usr/bin/python3';
my $node = sweeper_node('main');
$node->safe_psql('template1', q{
    CREATE EXTENSION session_sweeper;
    CREATE ROLE deployer LOGIN;
    GRANT CREATE ON SCHEMA public TO deployer;
    SELECT sweeper.grant_access('deployer', 'user')});
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
