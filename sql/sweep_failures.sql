-- One bad row costs its neighbours nothing; when all fail, the policy is at fault.
SET client_min_messages = warning;
CREATE TABLE f (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON f (d);
INSERT INTO f SELECT i, now() - '1 min'::interval FROM generate_series(1, 2000) AS i;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id % 100 = 0 THEN RAISE EXCEPTION 'row % will not go', OLD.id; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON f FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT state FROM sweeper.register('f', policy => 'flaky', deadline => 'd', check_every => '0', start => 'now', max_retries => 0, fuse_fraction => 1);
CALL sweeper.sweep('flaky') \gset
SELECT count(*), bool_and(id % 100 = 0) FROM f;
SELECT count(*), state, class, sqlstate FROM sweeper.failed_row GROUP BY 2, 3, 4;
SELECT expired, failed, status FROM sweeper.pass WHERE policy = 'flaky';
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'flaky';
SELECT severity, problem, next_step FROM sweeper.problem WHERE policy = 'flaky';
-- quarantined rows do not hold up new ones, and are not tried again
INSERT INTO f VALUES (5001, now() - '1 h'::interval);
CALL sweeper.sweep('flaky') \gset
SELECT count(*) FROM f;
SELECT failed FROM sweeper.pass WHERE policy = 'flaky' ORDER BY pass DESC LIMIT 1;
-- a changed row lapses its entry; resume lifts the quarantine
UPDATE f SET d = now() - '30 s'::interval WHERE id = 100;
SELECT sweeper.resume('flaky');
DROP TRIGGER refuse ON f;
CALL sweeper.sweep('flaky') \gset
SELECT count(*) FROM f;
SELECT count(*) FROM sweeper.failed_row;
-- all rows fail alike: nothing is quarantined, the policy backs off and says why
INSERT INTO f SELECT i, now() - '1 min'::interval FROM generate_series(1, 500) AS i;
CREATE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'closed on Sundays'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON f FOR EACH ROW EXECUTE FUNCTION refuse_all();
CALL sweeper.sweep('flaky') \gset
SELECT count(*) FROM f;
SELECT count(*) FROM sweeper.failed_row;
SELECT brakes, last_error FROM sweeper.policy_status WHERE policy = 'flaky';
SELECT status, sqlstate, error FROM sweeper.pass WHERE policy = 'flaky' ORDER BY pass DESC LIMIT 1;
-- a missing table in a trigger is the policy's fault at once
CREATE OR REPLACE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO not_there VALUES (1); RETURN OLD; END $$;
SELECT sweeper.resume('flaky');
CALL sweeper.sweep('flaky') \gset
SELECT count(*) FROM f;
SELECT failures, last_sqlstate, last_error FROM sweeper.policy WHERE policy = 'flaky';
-- a trigger that keeps rows silently
CREATE OR REPLACE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN OLD.id > 3 THEN OLD END; END $$;
SELECT sweeper.resume('flaky');
CALL sweeper.sweep('flaky') \gset
SELECT id FROM f;
SELECT key, class FROM sweeper.failed_row ORDER BY key;
SELECT sweeper.unregister('flaky');
-- bad rows at the head hold up no other, whatever their error says and whether rows go one by one or together
CREATE TABLE g (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON g (d);
CREATE FUNCTION refuse_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id <= 30 THEN
        RAISE EXCEPTION 'row % will not go', OLD.id USING ERRCODE = current_setting('regress.code');
    END IF;
    RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON g FOR EACH ROW EXECUTE FUNCTION refuse_first();
CREATE TRIGGER refuse_late AFTER DELETE ON g FOR EACH ROW EXECUTE FUNCTION refuse_first();
SELECT FROM sweeper.register('g', deadline => 'd', check_every => '0', start => 'now', max_retries => 0, fuse_fraction => 1);
CREATE PROCEDURE bad_head(code text, batch int) LANGUAGE plpgsql AS $$ BEGIN
    TRUNCATE g;
    INSERT INTO g SELECT i, now() - '1 h'::interval + i * '1 s'::interval FROM generate_series(1, 1000) AS i;
    EXECUTE format('ALTER FUNCTION refuse_first() SET regress.code = %L', code);
    PERFORM sweeper.resume('g'), sweeper.alter_policy('g', batch_size => batch);
END $$;
CALL bad_head('P0001', 500);
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT count(*), max(id), (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'g') AS failed FROM g;
DROP TRIGGER refuse ON g;
CALL bad_head('42501', 500);
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT count(*), max(id), (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'g') AS failed FROM g;
CALL bad_head('42P01', 1);
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT count(*), max(id), (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'g') AS failed FROM g;
-- nor do many that lie together in the heap, nor one whose error looks like that of a disk or an index
CALL bad_head('54000', 500);
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT count(*), max(id), (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'g') AS failed FROM g;
CALL bad_head('P0001', 500);
UPDATE g SET d = now() - '1 min'::interval WHERE id BETWEEN 16 AND 30;
INSERT INTO g SELECT i, now() - '30 min'::interval FROM generate_series(-99, 0) AS i;
CLUSTER g USING g_pkey;
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT count(*), max(id), (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'g') AS failed FROM g;
-- alone and tried again, they are not quarantined, since a right may be missing for a while only; and the policy is not blamed
SELECT sweeper.alter_policy('g', max_retries => 1);
CALL bad_head('42501', 500);
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT count(*), count(*) FILTER (WHERE state = 'quarantined') AS quarantined FROM sweeper.failed_row WHERE policy = 'g';
UPDATE sweeper.failed_row SET next_attempt = now() WHERE policy = 'g';
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT count(*), count(*) FILTER (WHERE state = 'quarantined') AS quarantined FROM sweeper.failed_row WHERE policy = 'g';
SELECT failures FROM sweeper.policy WHERE policy = 'g';
-- the rows of a policy have its name
SELECT sweeper.alter_policy('g', new_name => 'h');
SELECT count(*) > 0 AS renamed FROM sweeper.failed_row WHERE policy = 'h';
SELECT sweeper.alter_policy('h', new_name => 'g');
-- nor are many others, whatever their error, until a row has gone after they failed: the cause may be another
CALL bad_head('P0001', 500);
UPDATE g SET d = now() - '1 s'::interval WHERE id <= 30;
CALL sweeper.sweep('g', pass => NULL) \gset
UPDATE sweeper.failed_row SET next_attempt = now() WHERE policy = 'g';
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT attempts, state, count(*) FROM sweeper.failed_row WHERE policy = 'g' GROUP BY 1, 2;
INSERT INTO g VALUES (1001, now());
UPDATE sweeper.failed_row SET next_attempt = now() WHERE policy = 'g';
CALL sweeper.sweep('g', pass => NULL) \gset
UPDATE sweeper.failed_row SET next_attempt = now() WHERE policy = 'g';
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT attempts, state, count(*) FROM sweeper.failed_row WHERE policy = 'g' GROUP BY 1, 2;
SELECT failures FROM sweeper.policy WHERE policy = 'g';
SELECT sweeper.alter_policy('g', max_retries => 0);
-- what begins to fail in the middle of a pass is not the fault of the rows that are left, and they come back
CREATE SEQUENCE tries;
CREATE FUNCTION lose_right() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('tries') > 400 THEN RAISE insufficient_privilege USING MESSAGE = 'permission denied for table log'; END IF;
    RETURN OLD; END $$;
CALL bad_head('P0001', 200);
ALTER TABLE g DISABLE TRIGGER USER;
CREATE TRIGGER lose_right BEFORE DELETE ON g FOR EACH ROW EXECUTE FUNCTION lose_right();
CALL sweeper.sweep('g', pass => NULL) \gset
UPDATE sweeper.failed_row SET next_attempt = now() WHERE policy = 'g';
INSERT INTO g SELECT i, now() FROM generate_series(1001, 1100) AS i;
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT count(*), (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'g' AND state = 'quarantined') AS quarantined FROM g;
SELECT brakes, reason FROM sweeper.policy_status WHERE policy = 'g';
DROP TRIGGER lose_right ON g;
SELECT sweeper.resume('g');
UPDATE sweeper.failed_row SET next_attempt = now() WHERE policy = 'g';
CALL sweeper.sweep('g') \gset
SELECT count(*), (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'g') AS failed FROM g;
DROP FUNCTION lose_right;
DROP SEQUENCE tries;
ALTER TABLE g ENABLE TRIGGER USER;
-- when all fail, it is the policy, even with few rows
CALL bad_head('42501', 500);
ALTER TABLE g DISABLE TRIGGER USER;
DELETE FROM g WHERE id > 3;
ALTER TABLE g ENABLE TRIGGER USER;
CALL sweeper.sweep('g') \gset
SELECT count(*), (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'g') AS failed FROM g;
SELECT sweeper.unregister('g');
-- the same for rows that must be asked about
CREATE FUNCTION g_lives(key text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    IF key::int <= 2 THEN RAISE EXCEPTION 'may not ask about %', key USING ERRCODE = '42501'; END IF; RETURN false; END $$;
DROP TRIGGER refuse_late ON g;
INSERT INTO g SELECT i, now() - '1 min'::interval FROM generate_series(4, 20) AS i;
SELECT FROM sweeper.register('g', deadline => 'd', is_alive => 'g_lives(text)', ttl => '1 h', check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT id, (SELECT message FROM sweeper.failed_row WHERE key = id::text) FROM g ORDER BY id;
SELECT sweeper.resume('g');
\set VERBOSITY terse
CALL sweeper.sweep('g') \gset
\set VERBOSITY default
SELECT count(*), (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'g') AS failed FROM g;
-- a right may be missing for a while: unlike other errors, that is tried until there is an answer
SELECT sweeper.resume('g'), sweeper.alter_policy('g', max_retries => 0);
INSERT INTO g SELECT i, now() - '1 min'::interval FROM generate_series(3, 9) AS i;
CREATE OR REPLACE FUNCTION g_lives(key text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    IF key::int <= 4 THEN RAISE EXCEPTION 'may not ask about %', key USING ERRCODE = CASE key::int % 2 WHEN 0 THEN 'P0001' ELSE '42501' END; END IF; RETURN false; END $$;
CALL sweeper.sweep('g', pass => NULL) \gset
SELECT key, state, sqlstate FROM sweeper.failed_row WHERE policy = 'g' ORDER BY key;
SELECT sweeper.unregister('g');
DROP FUNCTION g_lives;
DROP TABLE g;
DROP PROCEDURE bad_head;
DROP FUNCTION refuse_first;
DROP TABLE f;
DROP FUNCTION refuse, refuse_all;
-- one bad row of each leaf, where keys are not unique over leaves: each is quarantined, by its own name
CREATE TABLE parent (id int PRIMARY KEY, d timestamptz);
CREATE TABLE child (extra text) INHERITS (parent);
CREATE TABLE parts (n int, d timestamptz) PARTITION BY RANGE (n);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100);
CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (100) TO (200);
INSERT INTO parent SELECT id, now() - interval '1 h' FROM generate_series(1, 20) AS id;
INSERT INTO child SELECT id, now() - interval '2 h' FROM generate_series(1, 20) AS id;
INSERT INTO parts SELECT n, now() - interval '1 h' FROM generate_series(1, 199) AS n;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION '% keeps %', TG_TABLE_NAME, to_jsonb(OLD) - 'd'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON parent FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse BEFORE DELETE ON child FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse BEFORE DELETE ON parts FOR EACH ROW WHEN (OLD.n IN (1, 100)) EXECUTE FUNCTION refuse();
SELECT FROM sweeper.register('parent', deadline => 'd', check_every => '0', start => 'now', max_retries => 1);
SELECT FROM sweeper.register('parts', deadline => 'd', check_every => '0', start => 'now', max_retries => 1);
CALL sweeper.sweep('parent', pass => NULL) \gset
CALL sweeper.sweep('parts', pass => NULL) \gset
UPDATE sweeper.failed_row SET next_attempt = now();
CALL sweeper.sweep('parent', pass => NULL) \gset
CALL sweeper.sweep('parts', pass => NULL) \gset
SELECT policy, key, partition, state, attempts, message FROM sweeper.failed_row ORDER BY policy, partition;
SELECT (SELECT count(*) FROM parent) AS parent, (SELECT count(*) FROM parts) AS parts;
-- expire by a key that several children have ends all of them
ALTER TABLE parent DISABLE TRIGGER refuse;
ALTER TABLE child DISABLE TRIGGER refuse;
SELECT sweeper.expire('parent', '{2}', 'by hand');
-- what is gone with its leaf needs no attention
DROP TABLE parts_high;
CALL sweeper.sweep('parts') \gset
SELECT key, partition FROM sweeper.failed_row WHERE policy = 'parts';
SELECT sweeper.unregister('parent'), sweeper.unregister('parts');
DROP TABLE parent, child, parts;
-- a key may be longer than an index takes
CREATE TABLE long_key (k bytea PRIMARY KEY, d timestamptz);
INSERT INTO long_key SELECT decode(string_agg(md5(i::text), ''), 'hex'), now() - interval '1 h' FROM generate_series(1, 90) AS i;
INSERT INTO long_key VALUES ('x', now() - interval '1 h');
CREATE TRIGGER refuse BEFORE DELETE ON long_key FOR EACH ROW WHEN (length(OLD.k) > 1) EXECUTE FUNCTION refuse();
SELECT FROM sweeper.register('long_key', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('long_key', pass => NULL) \gset
CALL sweeper.sweep('long_key') \gset
SELECT length(key), class FROM sweeper.failed_row;
SELECT length(k) FROM long_key;
SELECT sweeper.unregister('long_key');
DROP TABLE long_key;
-- a row that is dead by both clocks: tried once a pass, and quarantined in its turn
CREATE TABLE twice (id int PRIMARY KEY, seen timestamptz, born timestamptz);
INSERT INTO twice SELECT id, now() - interval '2 h', now() - interval '2 d' FROM generate_series(1, 20) AS id;
CREATE SEQUENCE tries;
CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 1 THEN PERFORM nextval('tries'); RAISE EXCEPTION 'no'; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON twice FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT FROM sweeper.register('twice', last_seen => 'seen', ttl => '1 h', created => 'born', max_age => '1 d', check_every => '0', start => 'now', max_retries => 1, batch_size => 1);
CALL sweeper.sweep('twice', pass => NULL) \gset
SELECT state, attempts FROM sweeper.failed_row;
UPDATE sweeper.failed_row SET next_attempt = now() + interval '1 h';
CALL sweeper.sweep('twice') \gset
UPDATE sweeper.failed_row SET next_attempt = now();
CALL sweeper.sweep('twice') \gset
SELECT state, attempts FROM sweeper.failed_row;
SELECT last_value FROM tries;
SELECT verdict, attempts FROM sweeper.explain_row('twice', '1');
SELECT sweeper.unregister('twice');
DROP TABLE twice;
DROP SEQUENCE tries;
DROP FUNCTION refuse;
-- an entry goes with its row, also where several workers ask
CREATE TABLE m (id int PRIMARY KEY, seen timestamptz);
CREATE FUNCTION knows(key text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_sleep(0.005); IF key IN ('1', '2') THEN RAISE EXCEPTION 'cannot tell'; END IF; RETURN false; END $$;
INSERT INTO m SELECT i, now() - interval '1 h' FROM generate_series(1, 200) AS i;
SELECT FROM sweeper.register('m', last_seen => 'seen', ttl => '5 min', is_alive => 'knows(text)', max_workers => 4, max_retries => 0, check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('m', pass => NULL) \gset
SELECT key, state FROM sweeper.failed_row WHERE policy = 'm' ORDER BY key;
DELETE FROM m WHERE id = 1;
INSERT INTO m SELECT i, now() - interval '1 h' FROM generate_series(1001, 1200) AS i;
CALL sweeper.sweep('m', pass => NULL) \gset
SELECT max(workers) > 1 AS several FROM sweeper.pass WHERE policy = 'm';
SELECT key, state FROM sweeper.failed_row WHERE policy = 'm' ORDER BY key;
SELECT sweeper.unregister('m');
DROP TABLE m;
DROP FUNCTION knows;
-- several workers ask about rows of several partitions: each row is asked about where it is
CREATE TABLE mp (id int, grp int, seen timestamptz, PRIMARY KEY (id, grp)) PARTITION BY LIST (grp);
SELECT format('CREATE TABLE mp%s PARTITION OF mp FOR VALUES IN (%s)', i, i) FROM generate_series(1, 6) AS i \gexec
CREATE FUNCTION asks(key text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN false; END $$;
INSERT INTO mp SELECT i, grp, now() - interval '1 h' FROM generate_series(1, 6) AS grp, generate_series(1, 20) AS i;
SELECT FROM sweeper.register('mp', last_seen => 'seen', ttl => '5 min', is_alive => 'asks(text)', max_workers => 4, check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('mp', pass => NULL) \gset
SELECT max(workers) > 1 AS several FROM sweeper.pass WHERE policy = 'mp';
SELECT count(*) FROM mp;
SELECT sweeper.unregister('mp');
DROP TABLE mp;
DROP FUNCTION asks;
-- a row whose deadline or filter cannot be computed costs its neighbours nothing
CREATE TABLE doc (id int PRIMARY KEY, data jsonb);
INSERT INTO doc SELECT id, jsonb_build_object('exp', extract(epoch FROM now())::bigint - 3600, 'v', '1') FROM generate_series(1, 3000) AS id;
INSERT INTO doc SELECT id, jsonb_build_object('exp', extract(epoch FROM now())::bigint + 3600, 'v', '1') FROM generate_series(3001, 3100) AS id;
UPDATE doc SET data = '{"exp": "never", "v": "1"}' WHERE id = 50;
SELECT FROM sweeper.register('doc', deadline => '(data ->> ''exp'')::bigint', unit => 's', filter => '(data ->> ''v'')::int = 1', check_every => '0', start => 'now');
UPDATE doc SET data = jsonb_build_object('exp', extract(epoch FROM now())::bigint - 3600, 'v', '1') WHERE id = 50;
SELECT FROM sweeper.register('doc', deadline => '(data ->> ''exp'')::bigint', unit => 's', filter => '(data ->> ''v'')::int = 1', check_every => '0', start => 'now', max_retries => 1);
UPDATE doc SET data = '{"exp": "never", "v": "1"}' WHERE id IN (50, 3050);
UPDATE doc SET data = data || '{"v": "x"}' WHERE id = 2000;
CALL sweeper.sweep('doc', pass => NULL) \gset
SELECT count(*), count(*) FILTER (WHERE id <= 3000) AS dead FROM doc;
SELECT key, class, sqlstate, state, attempts, message FROM sweeper.failed_row ORDER BY key;
SELECT status, expired FROM sweeper.pass WHERE policy = 'doc';
SELECT verdict, reason FROM sweeper.explain_row('doc', '50');
-- those that are known are left alone until their time; others that come are found
UPDATE sweeper.failed_row SET next_attempt = now() + interval '1 h';
INSERT INTO doc VALUES (4000, '{"exp": "soon", "v": "1"}'), (4001, '{"exp": 1, "v": "1"}');
CALL sweeper.sweep('doc', pass => NULL) \gset
SELECT key, state, attempts FROM sweeper.failed_row ORDER BY key;
SELECT count(*) FROM doc WHERE id = 4001;
-- then quarantined; one that was mended goes
UPDATE sweeper.failed_row SET next_attempt = now();
UPDATE doc SET data = '{"exp": 1, "v": "1"}' WHERE id = 50;
CALL sweeper.sweep('doc', pass => NULL) \gset
SELECT key, state, attempts FROM sweeper.failed_row ORDER BY key;
SELECT failures FROM sweeper.policy WHERE policy = 'doc';
-- more than one search finds hold nothing up, and those that are known do not count
SELECT sweeper.alter_policy('doc', fuse_fraction => 1);
INSERT INTO doc SELECT id, '{"exp": "never", "v": "1"}' FROM generate_series(5001, 6500) AS id;
INSERT INTO doc SELECT id, '{"exp": 1, "v": "1"}' FROM generate_series(7001, 7100) AS id;
CALL sweeper.sweep('doc', pass => NULL) \gset
SELECT count(*) FILTER (WHERE id > 7000) AS dead, (SELECT count(*) > 1500 FROM sweeper.failed_row WHERE policy = 'doc') AS recorded FROM doc;
INSERT INTO doc SELECT id, '{"exp": "never", "v": "1"}' FROM generate_series(8001, 8020) AS id;
INSERT INTO doc SELECT id, '{"exp": 1, "v": "1"}' FROM generate_series(7001, 7100) AS id;
CALL sweeper.sweep('doc', pass => NULL) \gset
SELECT count(*) FILTER (WHERE id BETWEEN 7001 AND 7100) AS dead, (SELECT count(*) FROM sweeper.failed_row WHERE policy = 'doc' AND key > '8000') AS recorded FROM doc;
SELECT failures FROM sweeper.policy WHERE policy = 'doc';
-- when none can be computed, it is the policy
DELETE FROM doc WHERE id > 4000;
UPDATE doc SET data = '{"exp": "never", "v": "1"}';
DELETE FROM sweeper.failed_row WHERE policy = 'doc';
INSERT INTO doc SELECT id, '{"exp": "never", "v": "1"}' FROM generate_series(5000, 5100) AS id;
CALL sweeper.sweep('doc') \gset
SELECT count(*) FROM sweeper.failed_row WHERE policy = 'doc';
SELECT sweeper.unregister('doc');
DROP TABLE doc;
-- more of them than there is time for: what was found is on record, and the policy does not fail
CREATE TABLE slow (id int PRIMARY KEY, d text);
CREATE FUNCTION slowly(text) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$ BEGIN
    IF $1 LIKE '2100%' THEN PERFORM pg_sleep(0.01); END IF; RETURN $1::timestamptz; END $$;
SELECT FROM sweeper.register('slow', deadline => 'slowly(d)', soft_time_limit => '1 s', check_every => '0', start => 'now', fuse_fraction => 1);
INSERT INTO slow SELECT i, CASE WHEN i <= 100 OR i BETWEEN 650 AND 850 THEN 'never' WHEN i BETWEEN 1001 AND 1200 THEN '2100-01-01 00:00Z' ELSE '2099-01-01 00:00Z' END FROM generate_series(1, 1500) AS i;
CALL sweeper.sweep('slow') \gset
SELECT count(*) > 0 AS recorded FROM sweeper.failed_row WHERE policy = 'slow';
SELECT sweeper.unregister('slow');
DROP TABLE slow;
DROP FUNCTION slowly;
-- dead rows that a BEFORE trigger on their neighbours has updated go in the next passes
CREATE TABLE sib (id int PRIMARY KEY, grp int, n int DEFAULT 0, d timestamptz);
INSERT INTO sib SELECT i, i % 10, 0, now() - interval '1 h' FROM generate_series(1, 30) AS i;
CREATE FUNCTION touch_siblings() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    UPDATE sib SET n = n + 1 WHERE grp = OLD.grp AND id <> OLD.id; RETURN OLD; END $$;
CREATE TRIGGER touch_siblings BEFORE DELETE ON sib FOR EACH ROW EXECUTE FUNCTION touch_siblings();
SELECT FROM sweeper.register('sib', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('sib', pass => NULL) \gset
SELECT expired, skipped, failed FROM sweeper.pass WHERE pass = :pass;
CALL sweeper.sweep('sib', pass => NULL) \gset
SELECT expired, skipped, failed FROM sweeper.pass WHERE pass = :pass;
CALL sweeper.sweep('sib', pass => NULL) \gset
SELECT expired, skipped, failed FROM sweeper.pass WHERE pass = :pass;
SELECT count(*) FROM sib;
SELECT sweeper.unregister('sib');
DROP TABLE sib;
DROP FUNCTION touch_siblings;
-- one that its own trigger updates and keeps is recorded, and left alone for a time
CREATE TABLE soft (id int PRIMARY KEY, d timestamptz, n int DEFAULT 0);
INSERT INTO soft SELECT i, now() - interval '1 h' FROM generate_series(1, 5) AS i;
CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE soft SET n = n + 1 WHERE id = OLD.id; RETURN NULL; END $$;
CREATE TRIGGER mark BEFORE DELETE ON soft FOR EACH ROW EXECUTE FUNCTION mark();
SELECT FROM sweeper.register('soft', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('soft') \gset
SELECT n, count(*) FROM soft GROUP BY n;
SELECT class, state, attempts, count(*), message FROM sweeper.failed_row WHERE policy = 'soft' GROUP BY 1, 2, 3, 5;
CALL sweeper.sweep('soft') \gset
SELECT n, count(*) FROM soft GROUP BY n;
-- also where each pass has others that go
CREATE OR REPLACE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id > 5 THEN RETURN OLD; END IF; UPDATE soft SET n = n + 1 WHERE id = OLD.id; RETURN NULL; END $$;
SELECT sweeper.resume('soft');
UPDATE soft SET n = 0;
INSERT INTO soft VALUES (6, now() - interval '1 h');
CALL sweeper.sweep('soft') \gset
INSERT INTO soft VALUES (7, now() - interval '1 h');
CALL sweeper.sweep('soft') \gset
INSERT INTO soft VALUES (8, now() - interval '1 h');
CALL sweeper.sweep('soft') \gset
INSERT INTO soft VALUES (9, now() - interval '1 h');
CALL sweeper.sweep('soft') \gset
INSERT INTO soft VALUES (10, now() - interval '1 h');
CALL sweeper.sweep('soft') \gset
SELECT max(id), min(n) > 0 AND max(n) <= 4 AS tried FROM soft;
SELECT class, state, count(*) FROM sweeper.failed_row WHERE policy = 'soft' GROUP BY 1, 2;
SELECT sweeper.unregister('soft');
DROP TABLE soft;
DROP FUNCTION mark;
-- a long message is cut between characters
CREATE TABLE wordy (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'a' || repeat('ü€𝄞', 1000); END $$;
CREATE TRIGGER complain BEFORE DELETE ON wordy FOR EACH ROW EXECUTE FUNCTION complain();
INSERT INTO wordy SELECT i, now() FROM generate_series(1, 20) AS i;
SELECT FROM sweeper.register('wordy', deadline => 'd', check_every => '0', start => 'now');
\set VERBOSITY sqlstate
CALL sweeper.sweep('wordy', pass => NULL) \gset
\set VERBOSITY default
SELECT length(last_error) > 100 AS long, convert_from(convert_to(last_error, 'UTF8'), 'UTF8') = last_error AS whole FROM sweeper.policy WHERE policy = 'wordy'
UNION ALL SELECT length(error) > 100, convert_from(convert_to(error, 'UTF8'), 'UTF8') = error FROM sweeper.pass WHERE policy = 'wordy';
-- so is the one that is kept of each row
CREATE OR REPLACE FUNCTION complain() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id = 20 THEN RAISE EXCEPTION USING MESSAGE = 'a' || repeat('ü€𝄞', 1000000), HINT = repeat('€', 1000000); END IF; RETURN OLD; END $$;
SELECT sweeper.resume('wordy'), sweeper.alter_policy('wordy', max_retries => 0, fuse_fraction => 1);
CALL sweeper.sweep('wordy', pass => NULL) \gset
SELECT key, length(message) AS length, octet_length(message) AS bytes, left(message, 4) AS starts, right(message, 5) AS ends FROM sweeper.failed_row WHERE policy = 'wordy';
SELECT problem, length(detail) AS length FROM sweeper.problem WHERE policy = 'wordy';
SELECT sweeper.unregister('wordy');
DROP TABLE wordy;
DROP FUNCTION complain;
-- a filter that cannot be planned is looked for in no row of an empty table
CREATE SEQUENCE called;
CREATE FUNCTION f(int) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true';
CREATE TABLE nothing (id int PRIMARY KEY, d timestamptz);
SELECT FROM sweeper.register('nothing', deadline => 'd', filter => 'f(1)', check_every => '0', start => 'now');
CREATE OR REPLACE FUNCTION f(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('called'); RETURN 1 / 0; END $$;
CALL sweeper.sweep('nothing');
SELECT last_value < 50 AS few FROM called;
SELECT sweeper.unregister('nothing');
DROP TABLE nothing;
DROP FUNCTION f;
DROP SEQUENCE called;
-- SQLSTATEs that the sweep itself uses say nothing more when users' code raises them
CREATE TABLE sly (id int PRIMARY KEY, code text, d timestamptz);
CREATE INDEX ON sly (d);
CREATE FUNCTION raise_code() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.code <> '' THEN RAISE EXCEPTION USING ERRCODE = OLD.code; END IF; RETURN OLD; END $$;
CREATE TRIGGER raise_code BEFORE DELETE ON sly FOR EACH ROW EXECUTE FUNCTION raise_code();
INSERT INTO sly SELECT i, CASE WHEN i <= 6 THEN 'SW00' || i ELSE '' END, now() - interval '1 min' FROM generate_series(1, 100) AS i;
SELECT state FROM sweeper.register('sly', deadline => 'd', check_every => '0', start => 'now', max_retries => 0, fuse_fraction => 1);
CALL sweeper.sweep('sly', timeout => '20 s') \gset
SELECT id FROM sly ORDER BY id;
SELECT key, sqlstate FROM sweeper.failed_row WHERE policy = 'sly' ORDER BY key;
SELECT sweeper.unregister('sly');
DROP TABLE sly;
DROP FUNCTION raise_code;
-- nor does SW005 in a filter
CREATE FUNCTION sly_filter(int) RETURNS boolean STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$;
CREATE TABLE sly (id int PRIMARY KEY, d timestamptz);
SELECT state FROM sweeper.register('sly', deadline => 'd', filter => 'sly_filter(id)', check_every => '0');
CREATE OR REPLACE FUNCTION sly_filter(int) RETURNS boolean STABLE LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'sly' USING ERRCODE = 'SW005'; END $$;
INSERT INTO sly VALUES (1, now());
CALL sweeper.sweep('sly', timeout => '10 s') \gset
SELECT failures, last_sqlstate FROM sweeper.policy WHERE policy = 'sly';
SELECT sweeper.unregister('sly');
DROP TABLE sly;
DROP FUNCTION sly_filter;
-- what a trigger puts into a statement is no mark of ours
CREATE TABLE marked (id int PRIMARY KEY, d timestamptz, agent text);
CREATE TABLE agents (agent text);
CREATE FUNCTION log_agent() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('INSERT INTO public.agents VALUES (%L)', OLD.agent); RETURN OLD; END $$;
CREATE TRIGGER log_agent BEFORE DELETE ON marked FOR EACH ROW EXECUTE FUNCTION log_agent();
SELECT state FROM sweeper.register('marked', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1);
INSERT INTO marked SELECT i, now() - interval '1 min', '/*session_sweeper OID 1*/' FROM generate_series(1, 2) AS i;
CALL sweeper.sweep('marked') \gset
SELECT * FROM agents;
SELECT count(*) FROM marked;
SELECT sweeper.unregister('marked');
DROP TABLE marked, agents;
DROP FUNCTION log_agent;
-- a number that is too long for the cursor holds up no other row
CREATE TABLE digits (id int PRIMARY KEY, d numeric);
CREATE INDEX ON digits (d);
SELECT state FROM sweeper.register('digits', deadline => 'd', unit => 's', check_every => '0', start => 'now', fuse_fraction => 1);
INSERT INTO digits SELECT i, extract(epoch FROM now()) - 100 + i FROM generate_series(1, 50) AS i;
INSERT INTO digits SELECT 50 + i, extract(epoch FROM now()) - i + ('0.' || repeat('1', 300))::numeric FROM generate_series(1, 3) AS i;
INSERT INTO digits VALUES (60, '-1e1000'), (61, '-1e1000'), (62, '-1e2000'), (63, '-1e-300'), (64, 'NaN'), (65, '1e1000');
CALL sweeper.sweep('digits') \gset
CALL sweeper.sweep('digits') \gset
SELECT id FROM digits ORDER BY id;
SELECT sweeper.unregister('digits');
DROP TABLE digits;
-- the time to live of a row that the filter leaves out is no number: a plan that reads the whole table adds it up before it asks the filter
CREATE TABLE sums (id int PRIMARY KEY, seen timestamptz NOT NULL, ttl float8 NOT NULL, s text);
CREATE FUNCTION is_a(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE COST 10 AS $$ BEGIN RETURN $1 = 'a'; END $$;
CREATE INDEX ON sums (((seen AT TIME ZONE 'UTC') + make_interval(secs => ttl))) WHERE is_a(s);
INSERT INTO sums SELECT i, now() - interval '1 h', 1, 'a' FROM generate_series(1, 20) AS i;
ANALYZE sums;
SELECT state FROM sweeper.register('sums', last_seen => 'seen', ttl_column => 'ttl', filter => 'is_a(s)', check_every => '0', start => 'now');
INSERT INTO sums VALUES (21, now() - interval '1 h', 'NaN', 'b');
CALL sweeper.sweep('sums') \gset
SELECT id, s FROM sums;
SELECT failures, last_error FROM sweeper.policy WHERE policy = 'sums';
SELECT count(*) FROM sweeper.failed_row WHERE policy = 'sums';
SELECT sweeper.unregister('sums');
DROP TABLE sums;
DROP FUNCTION is_a;
