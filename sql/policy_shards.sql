-- Shards as leaves.  Catalogs and functions of Citus are stood in for by ones with the same names and columns.
SET client_min_messages = warning;
SET allow_system_table_mods = on;
CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char", partkey text, colocationid int, repmodel "char", autoconverted boolean);
CREATE TABLE pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint, shardstorage "char", shardminvalue text, shardmaxvalue text);
CREATE TABLE pg_catalog.pg_dist_placement (placementid bigint, shardid bigint, shardstate int, shardlength bigint, groupid int);
CREATE TABLE pg_catalog.pg_dist_local_group (groupid int);
CREATE INDEX pg_dist_placement_shardid_index ON pg_catalog.pg_dist_placement (shardid);
INSERT INTO pg_dist_local_group VALUES (0);
CREATE FUNCTION pg_catalog.shard_name(regclass, bigint, boolean DEFAULT true) RETURNS text LANGUAGE sql
RETURN format('%s_%s', $1, $2);
CREATE FUNCTION pg_catalog.column_to_column_name(regclass, text) RETURNS text LANGUAGE sql
RETURN $2;
CREATE FUNCTION pg_catalog.lock_shard_metadata(int, bigint[]) RETURNS boolean LANGUAGE sql
RETURN pg_advisory_xact_lock_shared($2[1]) IS NOT NULL;
RESET allow_system_table_mods;
-- each shard has one dead row and one living row
CREATE FUNCTION make_shard(relation regclass, shard int, state int, of_group int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE %s_%s (LIKE %s INCLUDING ALL)', relation, shard, relation);
    EXECUTE format('INSERT INTO %s_%s VALUES (%s, now() - interval ''1 h''), (-%s, now() + interval ''1 d'')', relation, shard, shard, shard);
    INSERT INTO pg_dist_shard VALUES (relation, shard, 't');
    INSERT INTO pg_dist_placement VALUES (shard, shard, state, 0, of_group);
END $$;
CREATE FUNCTION rows_of(relation regclass, OUT shard text, OUT ids text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    FOR shard IN SELECT relname FROM pg_class WHERE relname ~ format('^%s_\d+$', relation) AND relkind = 'r' ORDER BY 1 LOOP
        EXECUTE format('SELECT string_agg(id::text, '' '' ORDER BY id) FROM %I', shard) INTO ids;
        RETURN NEXT;
    END LOOP;
END $$;

-- A shard with an active placement on this node is swept.
CREATE TABLE lease (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON lease (d);
INSERT INTO pg_dist_partition VALUES ('lease', 'h', 'id', 1, 's');
SELECT FROM make_shard('lease', 101, 1, 0);
-- on another node
SELECT FROM make_shard('lease', 102, 1, 3);
-- orphaned by a move, and not yet active
SELECT FROM make_shard('lease', 103, 4, 0);
SELECT FROM make_shard('lease', 104, 3, 0);
-- orphaned by a move that left no placement
SELECT FROM make_shard('lease', 105, 1, 0);
DELETE FROM pg_dist_placement WHERE shardid = 105;
-- a table that is only called like a shard, and a shard of another table
CREATE TABLE lease_106 (LIKE lease INCLUDING ALL);
INSERT INTO lease_106 VALUES (106, now() - interval '1 h');
CREATE TABLE other (id int PRIMARY KEY, d timestamptz);
SELECT FROM make_shard('other', 107, 1, 0);
-- a shard whose table is missing
INSERT INTO pg_dist_shard VALUES ('lease', 108, 't');
INSERT INTO pg_dist_placement VALUES (108, 108, 1, 0, 0);
SELECT policy FROM sweeper.register('lease', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT * FROM rows_of('lease');
SELECT * FROM rows_of('other');
SELECT policy, relation, key FROM sweeper.cleanup_event ORDER BY key;
-- when its placement is here, the shard is
UPDATE pg_dist_placement SET groupid = 0 WHERE shardid = 102;
UPDATE pg_dist_placement SET groupid = 3 WHERE shardid = 101;
INSERT INTO lease_101 VALUES (1, now() - interval '1 h');
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT * FROM rows_of('lease') WHERE shard < 'lease_103';

-- The placement moves between the look and the batch: the lock waits until then.
INSERT INTO lease_102 VALUES (2, now() - interval '1 h');
CREATE OR REPLACE FUNCTION pg_catalog.lock_shard_metadata(int, bigint[]) RETURNS boolean LANGUAGE sql
BEGIN ATOMIC
    UPDATE pg_dist_placement SET groupid = 3 WHERE shardid = $2[1] RETURNING true;
END;
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT * FROM rows_of('lease') WHERE shard = 'lease_102';
SELECT policy, problem, detail FROM sweeper.problem WHERE policy IS NOT NULL;
SELECT groupid FROM pg_dist_placement WHERE shardid = 102;
UPDATE pg_dist_placement SET groupid = 0 WHERE shardid = 102;
CREATE OR REPLACE FUNCTION pg_catalog.lock_shard_metadata(int, bigint[]) RETURNS boolean LANGUAGE sql
RETURN pg_advisory_xact_lock_shared($2[1]) IS NOT NULL;
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT * FROM rows_of('lease') WHERE shard = 'lease_102';

-- A move that holds a shard: its rows wait, and others do not.
UPDATE pg_dist_placement SET groupid = 0 WHERE shardid = 101;
INSERT INTO lease_101 VALUES (3, now() - interval '1 h');
INSERT INTO lease_102 VALUES (2, now() - interval '30 min');
SELECT pg_advisory_lock(101);
\set VERBOSITY terse
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT * FROM rows_of('lease') WHERE shard < 'lease_103';
SELECT state FROM sweeper.policy_status WHERE policy = 'lease';
SELECT pg_advisory_unlock(101);
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT * FROM rows_of('lease') WHERE shard < 'lease_103';

-- A shard's rows are handed to on_expire as rows of the table, whatever columns it has; explain_sweep shows the shards.
CREATE TABLE seat (id int PRIMARY KEY, gone text, "Who" text, d timestamptz);
ALTER TABLE seat DROP COLUMN gone;
CREATE TABLE seat_201 ("Who" text, d timestamptz, gone int, id int PRIMARY KEY);
ALTER TABLE seat_201 DROP COLUMN gone;
INSERT INTO seat_201 VALUES ('ann', now() - interval '1 h', 7), ('bob', now() + interval '1 h', 8);
INSERT INTO pg_dist_partition VALUES ('seat', 'h', 'id', 1, 's');
CREATE FUNCTION see(seat[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen SELECT id, "Who" FROM unnest($1); END $$;
CREATE TABLE seen (id int, who text);
SELECT policy FROM sweeper.register('seat', deadline => 'd', on_expire => 'see(seat[])', check_every => '0', start => 'now', fuse_fraction => 1);
SELECT line FROM sweeper.explain_sweep('seat') AS line WHERE line !~ '^ ';
INSERT INTO pg_dist_shard VALUES ('seat', 201, 't');
INSERT INTO pg_dist_placement VALUES (201, 201, 1, 0, 0);
SELECT line FROM sweeper.explain_sweep('seat') AS line WHERE line !~ '^ ';
CALL sweeper.sweep('seat', pass => NULL) \gset
SELECT * FROM seen;
SELECT id FROM seat_201;
SELECT state, message FROM sweeper.failed_row;
SELECT sweeper.unregister('seat');

-- What cannot be swept is refused.
\set VERBOSITY default
CREATE TABLE refused (id int PRIMARY KEY, tenant int, d timestamptz, UNIQUE (id, tenant));
CREATE INDEX ON refused (d);
INSERT INTO pg_dist_partition VALUES ('refused', 'n', NULL, 1, 't');
SELECT FROM sweeper.register('refused', deadline => 'd');
UPDATE pg_dist_partition SET partmethod = 'a', repmodel = 'c' WHERE logicalrelid = 'refused'::regclass;
SELECT FROM sweeper.register('refused', deadline => 'd');
UPDATE pg_dist_partition SET partmethod = 'r', partkey = 'tenant' WHERE logicalrelid = 'refused'::regclass;
SELECT FROM sweeper.register('refused', deadline => 'd');
UPDATE pg_dist_partition SET partmethod = 'h' WHERE logicalrelid = 'refused'::regclass;
SELECT FROM sweeper.register('refused', deadline => 'd');
UPDATE pg_dist_partition SET repmodel = 's' WHERE logicalrelid = 'refused'::regclass;
SELECT FROM sweeper.register('refused', deadline => 'd');
INSERT INTO refused VALUES (1, 1, now());
SELECT FROM sweeper.register('refused', deadline => 'd', key => '{id,tenant}');
-- a shard that is here; others are tables that only have such a name
SELECT FROM sweeper.register('lease_102', deadline => 'd', dry_run => true);
SELECT policy FROM sweeper.register('lease_103', deadline => 'd', dry_run => true);
SELECT policy FROM sweeper.register('lease_106', deadline => 'd', dry_run => true);
CREATE ROLE regress_shard_owner;
ALTER TABLE lease_102 OWNER TO regress_shard_owner;
SELECT policy FROM sweeper.register('lease_102', deadline => 'd', dry_run => true);
ALTER TABLE lease_102 OWNER TO CURRENT_USER;
DROP ROLE regress_shard_owner;
-- the distribution column is not updated, as a partition key is not
CREATE FUNCTION alive(text) RETURNS boolean LANGUAGE sql RETURN true;
CREATE TABLE spread (id int, tenant int, d timestamptz, PRIMARY KEY (id, d, tenant));
INSERT INTO pg_dist_partition VALUES ('spread', 'h', 'tenant', 1, 's');
SELECT FROM sweeper.register('spread', deadline => 'd', action => 'update', set_clause => 'd = ''infinity'', "tenant" = 2');
UPDATE pg_dist_partition SET partkey = 'd' WHERE logicalrelid = 'spread'::regclass;
SELECT FROM sweeper.register('spread', deadline => 'd', action => 'update', set_clause => '(tenant, d) = (2, ''infinity'')');
SELECT FROM sweeper.register('spread', deadline => '(d)', ttl => '1 h', is_alive => 'alive(text)');
SELECT FROM sweeper.register('spread', last_seen => 'd', ttl => '1 h', on_null => 'repair');
SELECT FROM sweeper.register('spread', last_seen => 'd', ttl => '1 h', heartbeats => true);
SELECT policy FROM sweeper.register('spread', deadline => 'd', check_every => '0');
SELECT sweeper.alter_policy('spread', ttl => '1 h', is_alive => 'alive(text)');
-- a policy that would do so later is broken
UPDATE pg_dist_partition SET partkey = 'tenant' WHERE logicalrelid = 'spread'::regclass;
SELECT sweeper.alter_policy('spread', ttl => '1 h', is_alive => 'alive(text)');
UPDATE pg_dist_partition SET partkey = 'd' WHERE logicalrelid = 'spread'::regclass;
SELECT problem, detail, next_step FROM sweeper.problem WHERE policy = 'spread';
SELECT sweeper.unregister('spread');
-- names in a step to paste: a newline does not end its comment
CREATE TABLE odd (id int PRIMARY KEY, d timestamptz, "x
SELECT 'pasted'; --" int);
SELECT policy FROM sweeper.register('odd', deadline => 'd', check_every => '0');
INSERT INTO pg_dist_partition VALUES ('odd', 'h', E'x\nSELECT ''pasted''; --', 1, 's');
SELECT problem, next_step FROM sweeper.problem WHERE policy = 'odd';
SELECT sweeper.unregister('odd');
SELECT FROM sweeper.register('odd', deadline => 'd');
-- a table that Citus does not know is an ordinary one
CREATE TABLE plain (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON plain (d);
SELECT policy FROM sweeper.register('plain', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1);

-- Catalogs and functions that are not as known: the policy says so, and others are swept.
\set VERBOSITY terse
SET allow_system_table_mods = on;
INSERT INTO lease_102 VALUES (2, now() - interval '1 h');
ALTER FUNCTION pg_catalog.shard_name RENAME TO other_name;
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT problem, detail FROM sweeper.problem WHERE policy IS NOT NULL;
ALTER FUNCTION pg_catalog.other_name RENAME TO shard_name;
SELECT sweeper.resume('lease');
UPDATE pg_dist_placement SET shardstate = NULL WHERE shardid = 102;
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT problem, detail FROM sweeper.problem WHERE policy IS NOT NULL;
UPDATE pg_dist_placement SET shardstate = 1 WHERE shardid = 102;
SELECT sweeper.resume('lease');
ALTER TABLE pg_catalog.pg_dist_placement ALTER groupid TYPE bigint;
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT problem, detail FROM sweeper.problem WHERE policy IS NOT NULL;
ALTER TABLE pg_catalog.pg_dist_placement ALTER groupid TYPE int;
SELECT sweeper.resume('lease');
ALTER TABLE pg_catalog.pg_dist_placement RENAME TO pg_dist_other;
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT problem, detail FROM sweeper.problem WHERE policy IS NOT NULL;
ALTER TABLE pg_catalog.pg_dist_other RENAME TO pg_dist_placement;
SELECT sweeper.resume('lease');
-- a node that Citus does not know has no shards
DELETE FROM pg_dist_local_group;
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT * FROM rows_of('lease') WHERE shard = 'lease_102';
INSERT INTO pg_dist_local_group VALUES (0);
CALL sweeper.sweep('lease', pass => NULL) \gset
SELECT * FROM rows_of('lease') WHERE shard = 'lease_102';
INSERT INTO plain VALUES (1, now() - interval '1 h');
CALL sweeper.sweep('plain', pass => NULL) \gset
SELECT count(*) FROM plain;
SELECT problem, detail FROM sweeper.problem WHERE policy IS NOT NULL;
