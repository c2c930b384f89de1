-- Every kind of table that can be swept.
\set VERBOSITY terse
SET client_min_messages = warning;
-- partitioned: a live row that shares a ctid with a dead one in another leaf stays
CREATE TABLE part (id int, grp int, d timestamptz, PRIMARY KEY (id, grp)) PARTITION BY LIST (grp);
CREATE TABLE part_a PARTITION OF part FOR VALUES IN (1);
CREATE TABLE part_b PARTITION OF part FOR VALUES IN (2) PARTITION BY RANGE (id);
CREATE TABLE part_b1 PARTITION OF part_b FOR VALUES FROM (0) TO (100);
CREATE INDEX ON part (d);
INSERT INTO part SELECT i, 1, now() - '1 min'::interval FROM generate_series(1, 10) AS i;
INSERT INTO part SELECT i, 2, now() + CASE WHEN i > 8 THEN '-1 min' ELSE '1 h' END::interval FROM generate_series(1, 10) AS i;
SELECT state, dead_estimate FROM sweeper.register('part', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('part') \gset
SELECT grp, count(*), max(id) FROM part GROUP BY grp;
SELECT key FROM sweeper.cleanup_event WHERE policy = 'part' AND key LIKE '%,2)' ORDER BY key;
-- inherited
CREATE TABLE mother (id int PRIMARY KEY, d timestamptz);
CREATE TABLE child (extra text) INHERITS (mother);
INSERT INTO mother VALUES (1, now() - '1 min'::interval), (2, now() + '1 h'::interval);
INSERT INTO child VALUES (3, now() - '1 min'::interval), (4, now() + '1 h'::interval);
SELECT state FROM sweeper.register('mother', deadline => 'd', check_every => '0');
CALL sweeper.sweep('mother') \gset
SELECT id FROM mother ORDER BY id;
-- no key: by physical row
CREATE UNLOGGED TABLE nokey (v int, d timestamptz);
INSERT INTO nokey SELECT 7, now() + CASE WHEN i <= 3 THEN '-1 min' ELSE '1 h' END::interval FROM generate_series(1, 5) AS i;
SELECT state FROM sweeper.register('nokey', deadline => 'd', check_every => '0');
CALL sweeper.sweep('nokey') \gset
SELECT count(*) FROM nokey;
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'nokey' AND key LIKE '(0,%';
-- children: cascade, set null, restrict; deferred constraints; generated columns
CREATE TABLE top (id int PRIMARY KEY, d timestamptz, g int GENERATED ALWAYS AS (id * 2) STORED);
CREATE TABLE gone (id int REFERENCES top ON DELETE CASCADE);
CREATE TABLE nulled (id int REFERENCES top ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE guard (id int REFERENCES top DEFERRABLE INITIALLY DEFERRED);
INSERT INTO top SELECT i, now() + CASE WHEN i <= 3 THEN '-1 min' ELSE '1 h' END::interval FROM generate_series(1, 5) AS i;
INSERT INTO gone SELECT i FROM generate_series(1, 5) AS i;
INSERT INTO nulled SELECT i FROM generate_series(1, 5) AS i;
INSERT INTO guard VALUES (2);
SELECT state FROM sweeper.register('top', deadline => 'd', check_every => '0', capture => '{g}');
CALL sweeper.sweep('top') \gset
SELECT id FROM top ORDER BY id;
SELECT count(*) FROM gone;
SELECT count(*) FILTER (WHERE id IS NULL) AS nulled FROM nulled;
SELECT key, state, class, sqlstate, attempts FROM sweeper.failed_row WHERE policy = 'top';
SELECT key, metadata FROM sweeper.cleanup_event WHERE policy = 'top' ORDER BY key;
-- the guard gone, the row goes
DELETE FROM guard;
SELECT sweeper.retry_row('top', '2');
CALL sweeper.sweep('top') \gset
SELECT id FROM top ORDER BY id;
SELECT count(*) FROM sweeper.failed_row WHERE policy = 'top';
-- row security, forced, hides nothing from the sweep of the owner's table
CREATE ROLE regress_sweep_owner;
GRANT CREATE ON SCHEMA public TO regress_sweep_owner;
SELECT sweeper.grant_access('regress_sweep_owner', 'user');
SET ROLE regress_sweep_owner;
CREATE TABLE rls (id int PRIMARY KEY, d timestamptz);
ALTER TABLE rls ENABLE ROW LEVEL SECURITY;
ALTER TABLE rls FORCE ROW LEVEL SECURITY;
INSERT INTO rls SELECT 1, now() WHERE false;
CREATE POLICY nobody ON rls USING (false) WITH CHECK (true);
INSERT INTO rls VALUES (1, now() - '1 min'::interval), (2, now() + '1 h'::interval);
SELECT count(*) FROM rls;
SELECT state FROM sweeper.register('rls', deadline => 'd', check_every => '0');
CALL sweeper.sweep('rls') \gset
RESET ROLE;
SELECT id FROM rls;
-- a trigger with an unqualified name sees the search_path of registration
CREATE SCHEMA other;
CREATE TABLE other.log (id int);
CREATE TABLE other.trig (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION other.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (OLD.id); RETURN OLD; END $$;
CREATE TRIGGER note BEFORE DELETE ON other.trig FOR EACH ROW EXECUTE FUNCTION other.note();
INSERT INTO other.trig VALUES (1, now() - '1 min'::interval);
SET search_path = other, public;
SELECT policy, relation FROM sweeper.register('trig', deadline => 'd', check_every => '0');
RESET search_path;
CALL sweeper.sweep('other.trig') \gset
SELECT * FROM other.log;
-- a partition of somebody else is refused
ALTER TABLE part_a OWNER TO regress_sweep_owner;
SELECT sweeper.register('part', policy => 'again', deadline => 'd');
-- renamed columns and tables are followed, dropped ones noticed, others go on
ALTER TABLE mother RENAME COLUMN d TO due;
ALTER TABLE mother RENAME TO parent;
INSERT INTO parent VALUES (10, now() - '1 min'::interval);
CALL sweeper.sweep('mother') \gset
SELECT id FROM parent ORDER BY id;
-- in the policy's row, too: a dump has that, and a table made from it has other numbers
SELECT deadline, 'due' = ANY (columns) AS due, 'd' = ANY (columns) AS d, capture FROM sweeper.policy WHERE policy = 'mother';
CREATE TABLE swapped (id int PRIMARY KEY, a timestamptz, b timestamptz, c int);
INSERT INTO swapped VALUES (1, now() - '1 min'::interval, NULL), (2, NULL, now() - '1 min'::interval);
SELECT FROM sweeper.register('swapped', deadline => 'a', capture => '{b}', check_every => '0', start => 'paused');
BEGIN;
ALTER TABLE swapped RENAME a TO x;
ALTER TABLE swapped RENAME b TO a;
ALTER TABLE swapped RENAME x TO b;
COMMIT;
DO $$ BEGIN
    FOR i IN 1 .. 600 LOOP
        EXIT WHEN (SELECT deadline = 'b' FROM sweeper.policy WHERE policy = 'swapped');
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
ALTER TABLE swapped ALTER c TYPE bigint;
SELECT sweeper.resume('swapped');
CALL sweeper.sweep('swapped', force => true) \gset
SELECT id FROM swapped;
SELECT deadline, capture, columns FROM sweeper.policy WHERE policy = 'swapped';
SELECT sweeper.unregister('swapped');
DROP TABLE swapped;
-- an expression goes by no other column
CREATE TABLE kinds (id int PRIMARY KEY, d timestamptz, kind int);
INSERT INTO kinds VALUES (1, now() - '1 min'::interval, 2);
SELECT FROM sweeper.register('kinds', deadline => 'd', filter => 'kind = 1', check_every => '1 h', start => 'paused');
BEGIN;
ALTER TABLE kinds RENAME kind TO kind_v1;
ALTER TABLE kinds ADD COLUMN kind int DEFAULT 1;
ALTER TABLE kinds RENAME d TO due;
ALTER TABLE kinds ADD COLUMN d timestamptz DEFAULT '2000-01-01';
COMMIT;
SELECT sweeper._repair_hint(policy_id) AS next_step FROM sweeper.policy WHERE policy = 'kinds';
-- who alters something else has not said what the expression means now
\set VERBOSITY default
SELECT sweeper.alter_policy('kinds', notify_channel => 'gone');
SELECT * FROM sweeper.preview('kinds');
\set VERBOSITY terse
SELECT sweeper.alter_policy('kinds', new_name => 'sorts');
SELECT sweeper.alter_policy('kinds', deadline => 'd', reset => '{capture}');
SELECT sweeper.alter_policy('kinds', batch_size => 10);
SELECT sweeper.resume('kinds');
CALL sweeper.sweep('kinds', force => true) \gset
SELECT id FROM kinds;
-- there and back
BEGIN;
ALTER TABLE kinds RENAME kind TO x;
ALTER TABLE kinds RENAME kind_v1 TO kind;
COMMIT;
SELECT sweeper._repair_hint(policy_id) IS NULL AS fits FROM sweeper.policy WHERE policy = 'kinds';
BEGIN;
ALTER TABLE kinds RENAME kind TO kind_v1;
ALTER TABLE kinds RENAME x TO kind;
COMMIT;
SELECT sweeper.alter_policy('kinds', deadline => 'due', filter => 'kind_v1 = 1');
SELECT columns FROM sweeper.policy WHERE policy = 'kinds';
CALL sweeper.sweep('kinds', force => true) \gset
SELECT id FROM kinds;
-- a column that took the place of another and its name is followed as that was
BEGIN;
ALTER TABLE kinds ADD COLUMN new timestamptz;
UPDATE kinds SET new = now() + '1 h'::interval, kind_v1 = 1;
ALTER TABLE kinds DROP COLUMN due;
ALTER TABLE kinds RENAME new TO due;
COMMIT;
DO $$ BEGIN
    FOR i IN 1 .. 600 LOOP
        EXIT WHEN (SELECT array_position(columns, 'due') = attnum FROM sweeper.policy, pg_attribute WHERE policy = 'kinds' AND attrelid = relid AND attname = 'due');
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
SELECT columns FROM sweeper.policy WHERE policy = 'kinds';
BEGIN;
ALTER TABLE kinds RENAME due TO expires_at;
ALTER TABLE kinds RENAME d TO due;
COMMIT;
CALL sweeper.sweep('kinds', force => true) \gset
SELECT id FROM kinds;
SELECT sweeper.unregister('kinds');
DROP TABLE kinds;
DROP TABLE nokey;
INSERT INTO parent VALUES (11, now() - '1 min'::interval);
CALL sweeper.sweep('mother') \gset
CALL sweeper.sweep('nokey') \gset
SELECT policy, state, reason FROM sweeper.policy_status WHERE policy IN ('mother', 'nokey') ORDER BY policy;
SELECT severity, policy, problem, detail FROM sweeper.problem WHERE policy = 'nokey';
-- handed over: held until the new owner confirms
ALTER TABLE parent OWNER TO regress_sweep_owner;
ALTER TABLE child OWNER TO regress_sweep_owner;
INSERT INTO parent VALUES (12, now() - '1 min'::interval);
CALL sweeper.sweep('mother') \gset
SELECT id FROM parent WHERE id = 12;
SELECT state, reason FROM sweeper.policy_status WHERE policy = 'mother';
SELECT sweeper.resume('mother');
CALL sweeper.sweep('mother') \gset
SELECT id FROM parent WHERE id = 12;
-- a table that another one of its owner took the name of, which was renamed: held until somebody says that this one is meant
CREATE TABLE sess (id int PRIMARY KEY, e timestamptz);
CREATE INDEX ON sess (e);
SELECT FROM sweeper.register('sess', deadline => 'e', ttl => '1 h', heartbeats => true, check_every => '0', start => 'now', fuse_fraction => 1);
INSERT INTO sess VALUES (1, now() + interval '40 min'), (2, now() + interval '40 min');
SELECT sweeper.touch('sess', 1);
BEGIN;
CREATE TABLE sess_new (LIKE sess INCLUDING ALL);
INSERT INTO sess_new SELECT id, e - interval '1 h' FROM sess;
ALTER TABLE sess RENAME TO sess_old;
ALTER TABLE sess_new RENAME TO sess;
COMMIT;
\set VERBOSITY default
SELECT sweeper.touch('sess', 1);
SELECT sweeper.is_live('sess', '1');
SELECT sweeper.alter_policy('sess', ttl => '2 h');
\set VERBOSITY terse
BEGIN;
SELECT sweeper.unregister('sess');
ROLLBACK;
SELECT verdict, reason, hint FROM sweeper.explain_row('sess', '1');
-- whose policy is altered has it looked at
SELECT sweeper.alter_policy('sess', batch_size => 10);
DO $$ BEGIN
    FOR i IN 1 .. 600 LOOP
        EXIT WHEN (SELECT held_reason IS NOT NULL FROM sweeper.policy WHERE policy = 'sess');
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
SELECT severity, problem, detail, next_step FROM sweeper.problem WHERE policy = 'sess';
SELECT state, reason FROM sweeper.policy_status WHERE policy = 'sess';
SELECT sweeper.resume('sess');
SELECT sweeper.is_live('sess', i::text) FROM generate_series(1, 2) AS i;
CALL sweeper.sweep('sess') \gset
SELECT id, e > now() AS alive FROM sess ORDER BY id;
SELECT count(*) FROM sess_old;
-- not where a view has its name, or another role's table
ALTER TABLE sess RENAME TO sess_2;
CREATE VIEW sess AS TABLE sess_2;
SELECT sweeper.touch('sess', 1);
CALL sweeper.sweep('sess') \gset
SELECT state, relation FROM sweeper.policy_status WHERE policy = 'sess';
BEGIN;
ALTER TABLE sess_2 RENAME TO sess_3;
ALTER TABLE sess_old RENAME TO sess_2;
ALTER TABLE sess_2 OWNER TO regress_sweep_owner;
COMMIT;
SELECT sweeper.touch('sess', 1);
CALL sweeper.sweep('sess') \gset
SELECT state, relation FROM sweeper.policy_status WHERE policy = 'sess';
-- nor is one that is gone resumed
DROP TABLE sess_3 CASCADE;
\set VERBOSITY default
SELECT sweeper.touch('sess', 1);
SELECT sweeper.is_live('sess', '1');
\set VERBOSITY terse
SELECT next_step FROM sweeper.policy_status WHERE policy = 'sess';
DROP TABLE sess_2;
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
DROP TABLE parent, child, part, gone, nulled, guard, top, rls;
DROP SCHEMA other CASCADE;
SELECT sweeper.revoke_access('regress_sweep_owner');
REVOKE CREATE ON SCHEMA public FROM regress_sweep_owner;
DROP ROLE regress_sweep_owner;
-- a policy does not update what its table is partitioned by, at any level; a function may
CREATE TABLE job (id int, st text, seen timestamptz, d timestamptz, PRIMARY KEY (id, st, seen)) PARTITION BY LIST (st);
CREATE TABLE job_run PARTITION OF job FOR VALUES IN ('run');
CREATE TABLE job_end PARTITION OF job FOR VALUES IN ('end') PARTITION BY RANGE (seen);
CREATE TABLE job_end_old PARTITION OF job_end FOR VALUES FROM (MINVALUE) TO ('2001-01-01 UTC');
CREATE TABLE job_end_new PARTITION OF job_end FOR VALUES FROM ('2001-01-01 UTC') TO (MAXVALUE);
INSERT INTO job SELECT i, 'run', now() - interval '1 h', now() - i * interval '1 h' FROM generate_series(1, 5) AS i;
INSERT INTO job VALUES (6, 'run', now(), now() + interval '1 h'), (7, 'end', now(), now() - interval '1 h');
CREATE FUNCTION beats(text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION ends(job[]) RETURNS void LANGUAGE sql AS $$ UPDATE job SET st = 'end' WHERE id IN (SELECT id FROM unnest($1)) $$;
\set VERBOSITY default
SELECT FROM sweeper.register('job', deadline => 'd', action => 'update', set_clause => 'st = ''end''', filter => 'st = ''run''');
\set VERBOSITY terse
SELECT FROM sweeper.register('job', last_seen => 'seen', ttl => '5 min', on_null => 'repair');
SELECT FROM sweeper.register('job', last_seen => 'seen', ttl => '5 min', is_alive => 'beats(text)');
SELECT FROM sweeper.register('job', last_seen => 'seen', ttl => '5 min', heartbeats => true);
SELECT FROM sweeper.register('job', deadline => 'd', action => 'call', on_expire => 'ends(job[])', filter => 'st = ''run''', check_every => '0', start => 'now');
CALL sweeper.sweep('job', pass => NULL) \gset
SELECT tableoid::regclass AS leaf, count(*), min(st) AS st FROM job GROUP BY 1 ORDER BY 1;
SELECT left(key, 7) AS key, cleanup_type FROM sweeper.cleanup_event WHERE policy = 'job' ORDER BY key;
SELECT sweeper.unregister('job');
DROP FUNCTION ends, beats;
DROP TABLE job;
-- the text of a key is the same however it is made: by delete, update and hook, of plain columns
CREATE TABLE by_four (a int2, b int, c bigint, id uuid, d timestamptz, st text, PRIMARY KEY (id, a, c, b));
CREATE TABLE by_four_child () INHERITS (by_four);
CREATE TABLE by_one (a int2 PRIMARY KEY, d timestamptz, st text);
CREATE TABLE by_uuid (a uuid PRIMARY KEY, d timestamptz, st text);
CREATE FUNCTION seen(text[]) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION fill() RETURNS void LANGUAGE sql AS $$
    TRUNCATE by_four, by_one, by_uuid, sweeper.cleanup_event;
    INSERT INTO by_four VALUES (-32768, -2147483648, -9223372036854775808, 'ffffffff-0123-4567-89ab-cdef00000001', now() - interval '1 h'),
        (32767, 2147483647, 9223372036854775807, '00000000-0000-0000-0000-000000000000', now() - interval '1 h'), (0, -1, 10, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', now() - interval '1 h');
    INSERT INTO by_four_child SELECT 7, 8, 9, md5('x')::uuid, now() - interval '1 h';
    INSERT INTO by_one SELECT i, now() - interval '1 h' FROM unnest('{-32768,0,32767}'::int[]) AS i;
    INSERT INTO by_uuid SELECT id, d FROM by_four;
$$;
CREATE FUNCTION swept_by(action text, hook text) RETURNS void LANGUAGE sql AS $$
    SELECT sweeper.register(t, deadline => 'd', check_every => '0', start => 'now', action => action,
        set_clause => CASE WHEN action = 'update' THEN 'st = ''x'', d = NULL' END, on_expire => hook) FROM unnest('{by_four,by_one,by_uuid}'::text[]) AS t;
$$;
CREATE FUNCTION shown() RETURNS TABLE (policy text, keys text) LANGUAGE sql AS $$
    SELECT e.policy, string_agg(key, ' ' ORDER BY key COLLATE "C") FROM sweeper.cleanup_event AS e WHERE e.policy LIKE 'by\_%' GROUP BY 1 ORDER BY 1;
$$;
SELECT fill();
SELECT swept_by('delete', NULL);
CALL sweeper.sweep('by_four') \gset
CALL sweeper.sweep('by_one') \gset
CALL sweeper.sweep('by_uuid') \gset
SELECT * FROM shown();
CREATE TEMP TABLE deleted AS SELECT * FROM shown();
SELECT count(sweeper.unregister(policy)) FROM sweeper.policy WHERE policy LIKE 'by\_%';
SELECT fill();
SELECT swept_by('update', NULL);
CALL sweeper.sweep('by_four') \gset
CALL sweeper.sweep('by_one') \gset
CALL sweeper.sweep('by_uuid') \gset
SELECT count(*) AS same FROM shown() NATURAL JOIN deleted;
SELECT count(sweeper.unregister(policy)) FROM sweeper.policy WHERE policy LIKE 'by\_%';
SELECT fill();
SELECT swept_by('delete', 'seen(text[])');
CALL sweeper.sweep('by_four') \gset
CALL sweeper.sweep('by_one') \gset
CALL sweeper.sweep('by_uuid') \gset
SELECT count(*) AS same FROM shown() NATURAL JOIN deleted;
SELECT count(sweeper.unregister(policy)) FROM sweeper.policy WHERE policy LIKE 'by\_%';
DROP FUNCTION fill, swept_by, shown, seen;
DROP TABLE by_four, by_four_child, by_one, by_uuid, deleted;
-- blocks of the later partitions, by which many rows go: the dead alone, each once
CREATE TABLE hashed (id int PRIMARY KEY, d timestamptz NOT NULL) PARTITION BY HASH (id);
SELECT format('CREATE TABLE hashed_%1$s PARTITION OF hashed FOR VALUES WITH (MODULUS 4, REMAINDER %1$s)', i) FROM generate_series(0, 3) AS i \gexec
INSERT INTO hashed SELECT i, now() + CASE WHEN i % 4 = 0 THEN 1 ELSE -1 END * interval '1 h' - i % 7 * interval '1 ms' FROM generate_series(1, 20000) AS i;
CREATE INDEX ON hashed (d);
VACUUM ANALYZE hashed;
SELECT FROM sweeper.register('hashed', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('hashed') \gset
SELECT count(*), count(*) FILTER (WHERE d < now()) AS dead FROM hashed;
SELECT count(*), count(DISTINCT key) AS keys, bool_and(key::int % 4 > 0) AS dead FROM sweeper.cleanup_event WHERE policy = 'hashed';
SELECT sweeper.unregister('hashed');
DROP TABLE hashed;
-- a rule that was made after the registration, or by a hook: nothing of it runs
CREATE TABLE ruled (id int PRIMARY KEY, d timestamptz, dead boolean DEFAULT false);
CREATE INDEX ON ruled (d);
CREATE TABLE taken (id int, d timestamptz);
INSERT INTO ruled SELECT i, now() - interval '1 h' FROM generate_series(1, 3) AS i;
SELECT FROM sweeper.register('ruled', deadline => 'd', filter => 'NOT dead', action => 'update', set_clause => 'dead = true', check_every => '0', start => 'now', fuse_fraction => 1);
CREATE RULE late AS ON UPDATE TO ruled DO INSTEAD INSERT INTO taken VALUES (old.id, old.d) RETURNING id, d, true;
CALL sweeper.sweep('ruled');
SELECT sweeper.expire('ruled', '{1}');
SELECT brakes, reason FROM sweeper.policy_status WHERE policy = 'ruled';
DROP RULE late ON ruled;
SELECT sweeper.resume('ruled');
CREATE FUNCTION make_rule(text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE 'CREATE RULE late AS ON UPDATE TO public.ruled DO INSTEAD INSERT INTO public.taken VALUES (old.id, old.d) RETURNING id, d, true'; END $$;
SELECT sweeper.alter_policy('ruled', on_expire => 'make_rule');
CALL sweeper.sweep('ruled', pass => NULL) \gset
SELECT sweeper.unregister('ruled');
CREATE RULE late AS ON UPDATE TO ruled DO INSTEAD NOTHING;
SELECT FROM sweeper.register('ruled', deadline => 'd', ttl => '1 min', heartbeats => true);
SELECT (SELECT count(*) FROM ruled WHERE NOT dead) AS dead, (SELECT count(*) FROM taken) AS taken;
DROP TABLE ruled, taken;
DROP FUNCTION make_rule;
