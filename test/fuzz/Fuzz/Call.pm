# A function of schema sweeper, as pg_proc has it, and the places from where it is called.
package Fuzz::Call;
use strict;
use warnings;
use Fuzz::Value qw(value one chance quoted);

my $isolation = [ '', '', ' ISOLATION LEVEL REPEATABLE READ', ' ISOLATION LEVEL SERIALIZABLE', ' READ ONLY', ' ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE' ];
my @disturbances = ('DROP TABLE fuzz.lease CASCADE', 'ALTER TABLE fuzz.lease RENAME COLUMN expires_at TO gone', 'ALTER TABLE fuzz.seen DROP COLUMN ttl_s', 'ALTER TABLE fuzz.hooked OWNER TO fuzz_admin',
    'DROP FUNCTION fuzz.hook', 'ALTER TABLE fuzz.composite ALTER COLUMN a TYPE text', 'ALTER TABLE fuzz.lease ENABLE ROW LEVEL SECURITY', 'ALTER SCHEMA fuzz RENAME TO fuzzy', 'TRUNCATE fuzz.lease', 'DELETE FROM sweeper.session',
    'UPDATE sweeper.policy SET policy_id = policy_id + 100', 'DELETE FROM sweeper.policy', 'DROP TABLE fuzz.part_one', 'LOCK TABLE fuzz.lease', 'LOCK TABLE sweeper.policy', 'UPDATE fuzz.lease SET expires_at = now() - interval \'1 h\'',
    "UPDATE sweeper.task SET status = 'failed'", "DELETE FROM fuzz.seen", "UPDATE sweeper.session SET expires_at = 'infinity'", "UPDATE sweeper.pool SET ttl = '-1 s', seats = -1", "SELECT set_config('session_replication_role', 'replica', true)",
    "ALTER TYPE fuzz.mood RENAME VALUE 'good' TO 'better'", 'SET CONSTRAINTS ALL IMMEDIATE', 'CREATE TEMP TABLE lease (id int)', 'ALTER EXTENSION session_sweeper DROP FUNCTION sweeper.is_live(uuid)');
my @settings = ("search_path = ''", 'search_path = fuzz, pg_catalog', "DateStyle = 'German, DMY'", "TimeZone = '+14:45'", 'IntervalStyle = sql_standard', 'standard_conforming_strings = off', 'array_nulls = off', 'client_encoding = LATIN1',
    'client_encoding = EUC_JP', 'work_mem = 64', 'plan_cache_mode = force_generic_plan', 'row_security = off', 'lock_timeout = 1', 'transaction_timeout = 1', 'enable_seqscan = off', 'default_transaction_isolation = serializable',
    'transform_null_equals = on', 'extra_float_digits = -15', 'bytea_output = escape', 'escape_string_warning = on', 'default_transaction_deferrable = on', 'temp_buffers = 100', 'default_tablespace = pg_global', 'max_stack_depth = 100');

sub new {
    my ($class, %proc) = @_;
    return bless {%proc}, $class;
}

# Arguments: those without a default, and now and then others.
sub arguments {
    my ($self, $all) = @_;
    my @in = @{ $self->{in} };
    my $want = one(0, 0.1, 0.3, 1);
    my @some;
    for my $i (0 .. $#in) {
        my $must = $i < @in - $self->{defaults} || $in[$i]{name} =~ /^(wait|timeout)$/;
        next unless $all || $must || chance($want * (@in > 20 ? 0.2 : 1));
        push @some, { %{ $in[$i] }, value => value($in[$i]{type}, $in[$i]{name}) };
    }
    return @some;
}

sub named {
    my ($self) = @_;
    return "sweeper.$self->{name}(" . join(', ', map { "$_->{name} => $_->{value}" } $self->arguments) . ')';
}

# A query, or for a procedure the CALL.
sub query {
    my ($self) = @_;
    return 'CALL ' . $self->named if $self->{kind} eq 'p';
    return one('SELECT * FROM ', 'SELECT ') . $self->named;
}

# Lines of a script: [ statement, the calls in it ].
sub lines {
    my ($self, $n) = @_;
    my $f = $self->{name};
    my $query = $self->query;
    my $call = [ "$query;", $f ];
    return $self->as_trigger($n) if $self->{returns} eq 'trigger';
    my $again = [ $self->query . ';', $f ];
    my $set = sub { 'SET ' . one(@settings) . ';' };
    my @everywhere = (
        sub { ($call) },
        sub { ($call) },
        sub { ($call, $again) },
        sub { ([ 'BEGIN' . one(@$isolation) . ';' ], [ 'SELECT now();' ], $call, $again, [ one('ROLLBACK', 'COMMIT') . ';', $f ]) },
        sub { (['BEGIN;'], ['SAVEPOINT a;'], $call, [ one('ROLLBACK TO a', 'RELEASE a', 'SAVEPOINT b; ROLLBACK TO a') . ';', $f ], $again, [ one('ROLLBACK', 'COMMIT') . ';', $f ]) },
        sub { (['BEGIN;'], ['SELECT 1/0;'], $call, ['ROLLBACK;']) },
        sub { (['BEGIN;'], $call, [ "PREPARE TRANSACTION 'fuzz$n';", $f, 'context' ], ['ROLLBACK;'], [ one('COMMIT', 'ROLLBACK') . " PREPARED 'fuzz$n';", $f, 'context' ]) },
        sub { (['BEGIN;'], [ one(@disturbances) . ';' ], [ @$call, 'context' ], ['ROLLBACK;']) },
        sub { ([ $set->() ], [ $set->() ], [ @$call, 'settings' ], [ @$again, 'settings' ], ['RESET ALL;']) },
        sub { ([ 'SET ROLE ' . one('fuzz_none', 'fuzz_user', 'fuzz_admin') . ';' ], $call, ['RESET ROLE;']) },
        sub { (['BEGIN;'], [ 'SET LOCAL ROLE ' . one('fuzz_none', 'fuzz_user', 'fuzz_admin') . ';' ], $call, ['COMMIT;', $f]) },
        sub { ([ 'DO ' . quoted("BEGIN PERFORM 1/0; EXCEPTION WHEN division_by_zero THEN EXECUTE " . quoted($query) . '; END') . ';', $f, 'context' ]) },
        sub { ([ 'DO ' . quoted('BEGIN EXECUTE ' . quoted($query) . '; COMMIT; EXECUTE ' . quoted($query) . '; END') . ';', $f, 'context' ]) },
        sub { ([ "SELECT fuzz." . one(qw(run run_stable run_immutable run_definer run_caught run_half)) . '(' . quoted($query) . ');', $f, 'context' ]) },
        sub { ([ 'CALL fuzz.run_procedure(' . quoted($query) . ');', $f, 'context' ]) },
        sub { ([ "INSERT INTO fuzz.at_trigger VALUES ('" . one(qw(before after deferred)) . "', " . quoted($query) . ');', $f, 'context' ]) },
        sub { ([ 'INSERT INTO fuzz.' . one(qw(at_check at_index at_security)) . ' VALUES (' . quoted($query) . ');', $f, 'context' ]) },
    );
    return one(@everywhere)->() if $self->{kind} eq 'p' || chance(0.7);
    my $function = $self->named;
    my @more = (
        sub { $self->prepared },
        sub { $self->prepared },
        sub { (["SET $self->{parallel} = on;"], [ 'SELECT fuzz.run_parallel(' . quoted($query) . ');', $f, 'context' ], ['RESET ALL;']) },
        sub { (['BEGIN;'], [ 'DECLARE c CURSOR' . one('', ' WITH HOLD') . " FOR $query;", $f ], [ 'FETCH 1 FROM c;', $f ], one([ 'COMMIT;', $f ], [ 'MOVE ALL FROM c;', $f ], ['SELECT 1/0;']), [ 'FETCH ALL FROM c;', $f, 'context' ], ['ROLLBACK;'], ['CLOSE ALL;']) },
        sub { ([ "SELECT count(*) FROM generate_series(1, 3), LATERAL $function AS x;", $f ]) },
        sub { (['BEGIN;'], [ "CREATE TEMP TABLE t AS $query;", $f, 'context' ], ['ROLLBACK;']) },
        sub { ([ "EXPLAIN (ANALYZE, VERBOSE) $query;", $f ]) },
        sub { ([ "COPY ($query) TO STDOUT;", $f, 'context' ]) },
        sub { ([ "SELECT $function LIMIT " . one(0, 1) . ';', $f ]) },
        sub { ([ "SELECT $function, " . $self->named . ' FROM generate_series(1, 2) ORDER BY 1;', $f, 'context' ]) },
        sub { ([ 'WITH x AS MATERIALIZED (' . $query . ') SELECT count(*) FROM x;', $f, 'context' ]) },
        sub { ([ "SELECT CASE WHEN random() < 2 THEN ($query LIMIT 1) END;", $f, 'context' ]) },
        sub { ([ "CREATE TABLE fuzz.t$n AS SELECT 1 WHERE EXISTS ($query);", $f, 'context' ], ["DROP TABLE fuzz.t$n;"]) },
        sub { (['DISCARD ALL;'], $call) },
    );
    return one(@more)->();
}

# With untyped parameters, as clients send them.
sub prepared {
    my ($self) = @_;
    my @values = map { $_->{value} } $self->arguments(1);
    my $list = join ', ', map { "\$$_" } 1 .. @values;
    my @lines = ([ 'PREPARE p AS ' . one('SELECT * FROM ', 'SELECT ') . "sweeper.$self->{name}($list);", $self->{name} ]);
    push @lines, [ 'EXECUTE p' . (@values ? '(' . join(', ', @values) . ')' : '') . ';', $self->{name}, 'prepared' ] for 1 .. one(1, 2, 7);
    return (@lines, ['DEALLOCATE p;']);
}

# On tables that it is not for.
sub as_trigger {
    my ($self, $n) = @_;
    my $when = one('BEFORE INSERT OR UPDATE OR DELETE ON fuzz.free FOR EACH ROW', 'AFTER INSERT OR UPDATE OR DELETE ON fuzz.free FOR EACH ROW', 'AFTER UPDATE ON fuzz.lease FOR EACH STATEMENT', 'BEFORE TRUNCATE ON fuzz.free FOR EACH STATEMENT', 'INSTEAD OF DELETE ON fuzz.view FOR EACH ROW',
        'BEFORE UPDATE ON sweeper.task FOR EACH ROW', 'BEFORE INSERT ON sweeper.session FOR EACH ROW');
    my $arguments = join ', ', map { quoted(one('x', '1', 'fuzz.lease', '')) } 1 .. int rand 3;
    return (['BEGIN;'], [ "CREATE TRIGGER x $when EXECUTE FUNCTION sweeper.$self->{name}($arguments);", $self->{name}, 'context' ],
        map({ ['SAVEPOINT a;'], [ "$_;", $self->{name}, 'context' ], ['ROLLBACK TO a;'] } 'INSERT INTO fuzz.free VALUES (1000, now())', 'UPDATE fuzz.free SET d = NULL', 'DELETE FROM fuzz.free', 'UPDATE fuzz.lease SET n = 1', 'TRUNCATE fuzz.free', 'DELETE FROM fuzz.view',
            "UPDATE sweeper.task SET status = '" . one(qw(claimed running completed x)) . "'"),
        ['ROLLBACK;']);
}
1;
