-- What happens to a dead row: update, call, hooks, checks, events.
SET client_min_messages = warning;
CREATE TABLE s (id int PRIMARY KEY, seen timestamptz, status text DEFAULT 'active', grp text);
CREATE INDEX ON s (seen);
INSERT INTO s SELECT i, now() - CASE WHEN i <= 4 THEN '10 min' ELSE '1 min' END::interval, 'active', 'g' || i % 2 FROM generate_series(1, 8) AS i;
-- update, excluded afterwards by the filter; activity: a zombie
SELECT state FROM sweeper.register('s', last_seen => 'seen', ttl => '5 min', action => 'update', set_clause => 'status = ''expired''',
    filter => 'status = ''active''', group_by => 'grp', check_every => '0');
SELECT count(*) FROM s WHERE status = 'expired';
CALL sweeper.sweep('s') \gset
SELECT count(*) FROM s WHERE status = 'expired';
SELECT sweeper.unregister('s');
SELECT key, cleanup_type, cleaned_at > last_seen + '5 min'::interval AS late_enough FROM sweeper.cleanup_event WHERE policy = 's' ORDER BY key;
UPDATE s SET status = 'active';
-- a count for each group instead of the keys
SELECT state FROM sweeper.register('s', deadline => 'seen + ''5 min''::interval', action => 'update', set_clause => 'status = ''expired''',
    filter => 'status = ''active''', group_by => 'grp', check_every => '0', audit => 'count', notify_channel => 'swept');
CALL sweeper.sweep('s') \gset
SELECT id, status FROM s ORDER BY id;
SELECT "group", cleanup_type, count, key FROM sweeper.cleanup_event WHERE policy = 's' AND key IS NULL ORDER BY "group";
CALL sweeper.sweep('s');
SELECT sweeper.unregister('s');
-- an action that leaves the row dead is undone
SELECT state FROM sweeper.register('s', deadline => 'seen', keep_for => '5 min', action => 'update', set_clause => 'status = ''again''', filter => 'true', check_every => '0');
CALL sweeper.sweep('s') \gset
SELECT DISTINCT status FROM s ORDER BY 1;
SELECT key, class, state FROM sweeper.failed_row WHERE policy = 's' ORDER BY key;
SELECT sweeper.unregister('s');
-- hooks: keys, and rows; before the delete
CREATE TABLE archive (LIKE s);
CREATE TABLE killed (keys text[]);
CREATE FUNCTION by_rows(s[]) RETURNS void LANGUAGE sql AS $$ INSERT INTO archive SELECT * FROM unnest($1) $$;
CREATE FUNCTION by_keys(text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO killed SELECT array_agg(k ORDER BY k) FROM unnest($1) AS k;
    UPDATE s SET status = 'touched by the hook' WHERE id::text = ANY ($1); END $$;
SELECT state FROM sweeper.register('s', deadline => 'seen', keep_for => '5 min', on_expire => 'by_rows(s[])', check_every => '0', audit => 'hash');
CALL sweeper.sweep('s') \gset
SELECT count(*) FROM s;
SELECT id, status FROM archive ORDER BY id;
SELECT count(*), min(length(key)) FROM sweeper.cleanup_event WHERE policy = 's' AND key = ANY (SELECT encode(sha256(convert_to(id::text, 'UTF8')), 'hex') FROM archive);
SELECT sweeper.unregister('s');
INSERT INTO s SELECT id, seen, 'active', grp FROM archive;
SELECT state FROM sweeper.register('s', deadline => 'seen', keep_for => '5 min', on_expire => 'by_keys(text[])', check_every => '0');
CALL sweeper.sweep('s') \gset
SELECT count(*) FROM s;
SELECT * FROM killed;
SELECT sweeper.unregister('s');
-- call: the hook is the whole action
CREATE FUNCTION renew(text[]) RETURNS void LANGUAGE sql AS $$ UPDATE s SET seen = now() WHERE id::text = ANY ($1) $$;
CREATE FUNCTION nothing(text[]) RETURNS void LANGUAGE sql AS $$ SELECT $$;
INSERT INTO s SELECT id, seen, 'active', grp FROM archive;
SELECT state FROM sweeper.register('s', deadline => 'seen', keep_for => '5 min', action => 'call', on_expire => 'nothing(text[])', check_every => '0');
CALL sweeper.sweep('s') \gset
SELECT key, class FROM sweeper.failed_row WHERE policy = 's' ORDER BY key;
SELECT sweeper.alter_policy('s', on_expire => 'renew(text[])');
SELECT sweeper.resume('s');
CALL sweeper.sweep('s') \gset
SELECT count(*) FROM s WHERE seen > now() - '1 min'::interval;
SELECT count(*) FROM sweeper.failed_row;
SELECT sweeper.unregister('s');
-- is_alive: true refreshes, false expires, null and errors leave the row
CREATE TABLE c (id text PRIMARY KEY, d timestamptz);
INSERT INTO c SELECT id, now() - '1 min'::interval FROM unnest('{alive,dead,error,unknown}'::text[]) AS id;
CREATE FUNCTION alive(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    IF $1 = 'error' THEN RAISE EXCEPTION 'cannot reach it'; END IF;
    RETURN CASE $1 WHEN 'alive' THEN true WHEN 'dead' THEN false END; END $$;
SELECT state FROM sweeper.register('c', deadline => 'd', ttl => '1 s', is_alive => 'alive(text)', check_every => '0');
CALL sweeper.sweep('c') \gset
SELECT id, d > now() - '30 s'::interval AS refreshed FROM c ORDER BY id;
SELECT key, class, state, message FROM sweeper.failed_row ORDER BY key;
SELECT key, cleanup_type FROM sweeper.cleanup_event WHERE policy = 'c';
SELECT expired, refreshed, failed FROM sweeper.pass WHERE policy = 'c';
SELECT sweeper.unregister('c');
-- repair: a null gets one ttl
CREATE TABLE r (id int PRIMARY KEY, d timestamptz);
INSERT INTO r VALUES (1, NULL), (2, now() - '1 s'::interval);
SELECT state FROM sweeper.register('r', deadline => 'd', ttl => '1 h', on_null => 'repair', check_every => '0');
CALL sweeper.sweep('r') \gset
SELECT id, d > now() + '59 min'::interval AS repaired FROM r;
SELECT repaired, expired FROM sweeper.pass WHERE policy = 'r';
SELECT sweeper.unregister('r');
-- notification: with the commit, keys only when asked for
LISTEN swept;
INSERT INTO r VALUES (3, now() - '1 s'::interval);
SELECT state FROM sweeper.register('r', deadline => 'd', check_every => '0', notify_channel => 'swept', audit => 'none');
UNLISTEN swept;
SELECT sweeper.unregister('r');
DROP TABLE s, archive, killed, c, r CASCADE;
DROP FUNCTION by_keys, renew, nothing, alive;
-- keep_for: dead by its last activity, a row stays that much longer
CREATE TABLE kept (id int PRIMARY KEY, seen timestamptz);
INSERT INTO kept VALUES (1, now() - interval '10 min'), (2, now() - interval '2 h');
SELECT FROM sweeper.register('kept', last_seen => 'seen', ttl => '1 min', keep_for => '1 h', check_every => '0', start => 'now');
CALL sweeper.sweep('kept', pass => NULL) \gset
SELECT id FROM kept;
SELECT verdict FROM sweeper.explain_row('kept', '1');
SELECT sweeper.unregister('kept');
DROP TABLE kept;
-- true means one time to live from now, whatever the cutoff of the pass: with keep_for, and in the backlog of a policy that was paused
CREATE FUNCTION yes(text) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
CREATE TABLE renewed (id int PRIMARY KEY, seen timestamptz, d date);
INSERT INTO renewed SELECT i, now() - interval '3 h', now() - interval '3 d' FROM generate_series(1, 3) AS i;
SELECT FROM sweeper.register('renewed', last_seen => 'seen', ttl => '5 min', keep_for => '1 h', is_alive => 'yes(text)', check_every => '0', start => 'paused');
SELECT sweeper.resume('renewed');
CALL sweeper.sweep('renewed', pass => NULL) \gset
SELECT count(*) FROM renewed WHERE seen BETWEEN now() - interval '1 min' AND now();
SELECT sweeper.unregister('renewed');
-- a date is over as it begins
SELECT FROM sweeper.register('renewed', deadline => 'd', timezone => 'UTC', ttl => '1 h', keep_for => '1 h', is_alive => 'yes(text)', check_every => '0', start => 'now');
CALL sweeper.sweep('renewed', pass => NULL) \gset
SELECT count(*) FROM renewed WHERE d::timestamp AT TIME ZONE 'UTC' > now();
SELECT sweeper.unregister('renewed');
-- a row that no update makes alive is told
CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.seen = OLD.seen; RETURN NEW; END $$;
CREATE TRIGGER stuck BEFORE UPDATE ON renewed FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION stuck();
ALTER TABLE renewed DISABLE TRIGGER stuck;
UPDATE renewed SET seen = now() - interval '1 h';
ALTER TABLE renewed ENABLE TRIGGER stuck;
SELECT FROM sweeper.register('renewed', last_seen => 'seen', ttl => '5 min', is_alive => 'yes(text)', check_every => '0', start => 'now');
CALL sweeper.sweep('renewed', pass => NULL) \gset
SELECT id FROM renewed WHERE seen < now() - interval '5 min';
SELECT key, class, message FROM sweeper.failed_row;
SELECT sweeper.unregister('renewed');
DROP TABLE renewed;
DROP FUNCTION stuck;
-- a row without a time is asked about, too, before it goes; the maximum age ends a row whatever is_alive says
CREATE TABLE aged (id int PRIMARY KEY, seen timestamptz, born timestamptz);
INSERT INTO aged VALUES (1, NULL, now()), (2, now(), now() - interval '2 d'), (3, now() - interval '1 h', now());
SELECT FROM sweeper.register('aged', last_seen => 'seen', ttl => '5 min', created => 'born', max_age => '1 d', on_null => 'expire', is_alive => 'yes(text)', check_every => '0', start => 'now');
CALL sweeper.sweep('aged', pass => NULL) \gset
SELECT id, seen > now() - interval '1 min' AS refreshed FROM aged ORDER BY id;
SELECT expired, refreshed, repaired FROM sweeper.pass WHERE policy = 'aged';
SELECT key, cleanup_type FROM sweeper.cleanup_event WHERE policy = 'aged';
SELECT sweeper.unregister('aged');
DROP TABLE aged;
DROP FUNCTION yes;
-- on_expire with keys whose text needs more than the name of their type
CREATE TYPE place AS (x int, y text);
CREATE TABLE odd_char (k char(8) PRIMARY KEY, n int NOT NULL, d timestamptz);
CREATE TABLE odd_bit (k bit(8) PRIMARY KEY, n int NOT NULL, d timestamptz);
CREATE TABLE odd_varbit (k varbit(8) PRIMARY KEY, n int NOT NULL, d timestamptz);
CREATE TABLE odd_numeric (k numeric(8, 2) PRIMARY KEY, n int NOT NULL, d timestamptz);
CREATE TABLE odd_array (k int[] PRIMARY KEY, n int NOT NULL, d timestamptz);
CREATE TABLE odd_nested (k char(3)[], n int NOT NULL, d timestamptz, PRIMARY KEY (n, k));
CREATE TABLE odd_place (k place PRIMARY KEY, n int NOT NULL, d timestamptz);
INSERT INTO odd_char SELECT k, n, now() - interval '1 h' FROM unnest('{a,abc,b,"ab c"}'::text[]) WITH ORDINALITY AS x (k, n);
INSERT INTO odd_bit VALUES (B'10101010', 1, now() - interval '1 h'), (B'11111111', 2, now() - interval '1 h');
INSERT INTO odd_varbit VALUES (B'1', 1, now() - interval '1 h'), (B'', 2, now() - interval '1 h');
INSERT INTO odd_numeric VALUES (1.5, 1, now() - interval '1 h'), (-0.01, 2, now() - interval '1 h');
INSERT INTO odd_array VALUES ('{1,2}', 1, now() - interval '1 h'), ('{}', 2, now() - interval '1 h'), ('{3}', 3, now() - interval '1 h');
INSERT INTO odd_nested VALUES ('{{a,"b "},{"c\"",d}}', 1, now() - interval '1 h'), ('{ab}', 2, now() - interval '1 h');
INSERT INTO odd_place VALUES ('(1,"a,b")', 1, now() - interval '1 h'), ('(2,)', 2, now() - interval '1 h');
CREATE FUNCTION see(text[]) RETURNS void LANGUAGE sql AS $$ SELECT $$;
SELECT policy FROM unnest('{odd_array,odd_bit,odd_char,odd_nested,odd_numeric,odd_place,odd_varbit}'::regclass[]) AS r,
    sweeper.register(r, deadline => 'd', on_expire => 'see(text[])', check_every => '0', start => 'now');
-- by hand: that row and no other
BEGIN;
SELECT sweeper.expire('odd_char', '{abc}', 'logged out'), sweeper.expire('odd_bit', '{11111111}', 'logged out'), sweeper.expire('odd_array', '{"{3}"}', 'logged out');
SELECT k FROM odd_char ORDER BY k;
SELECT k FROM odd_bit;
SELECT k FROM odd_array ORDER BY k;
ROLLBACK;
-- an action that leaves the rows dead is undone
SELECT sweeper.alter_policy('odd_char', action => 'call');
CALL sweeper.sweep('odd_char', pass => NULL) \gset
SELECT key, class FROM sweeper.failed_row WHERE policy = 'odd_char' ORDER BY key;
SELECT sweeper.alter_policy('odd_char', action => 'delete'), sweeper.resume('odd_char');
CALL sweeper.sweep('odd_array', pass => NULL) \gset
CALL sweeper.sweep('odd_bit', pass => NULL) \gset
CALL sweeper.sweep('odd_char', pass => NULL) \gset
CALL sweeper.sweep('odd_nested', pass => NULL) \gset
CALL sweeper.sweep('odd_numeric', pass => NULL) \gset
CALL sweeper.sweep('odd_place', pass => NULL) \gset
CALL sweeper.sweep('odd_varbit', pass => NULL) \gset
SELECT n FROM odd_array UNION ALL SELECT n FROM odd_bit UNION ALL SELECT n FROM odd_char UNION ALL SELECT n FROM odd_nested
    UNION ALL SELECT n FROM odd_numeric UNION ALL SELECT n FROM odd_place UNION ALL SELECT n FROM odd_varbit;
SELECT policy, count(*), count(DISTINCT key) FROM sweeper.cleanup_event WHERE policy LIKE 'odd%' GROUP BY policy ORDER BY policy;
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy LIKE 'odd%';
DROP TABLE odd_array, odd_bit, odd_char, odd_nested, odd_numeric, odd_place, odd_varbit;
DROP TYPE place;
DROP FUNCTION see;
-- on_expire of a table without a key: what it updates is found again
CREATE TABLE bare (n int, note text, d timestamptz);
INSERT INTO bare SELECT n, '', now() - interval '1 h' FROM generate_series(1, 5) AS n;
CREATE FUNCTION mark(text[]) RETURNS void LANGUAGE sql AS $$ UPDATE bare SET note = note || 'x' WHERE ctid = ANY ($1::tid[]); UPDATE bare SET note = note || 'y' WHERE note LIKE '%x' $$;
SELECT FROM sweeper.register('bare', deadline => 'd', action => 'call', on_expire => 'mark(text[])', check_every => '0', start => 'now');
CALL sweeper.sweep('bare', pass => NULL) \gset
SELECT count(*), sum(length(note)) FROM bare;
SELECT count(*), class FROM sweeper.failed_row GROUP BY class;
SELECT sweeper.alter_policy('bare', action => 'delete'), sweeper.resume('bare');
CALL sweeper.sweep('bare', pass => NULL) \gset
SELECT count(*) FROM bare;
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'bare';
SELECT sweeper.unregister('bare');
-- on_expire may give a row a new deadline; one that deletes rows, or changes keys, must be the whole action
CREATE TABLE taken (id int PRIMARY KEY, d timestamptz);
INSERT INTO taken SELECT id, now() - interval '1 h' FROM generate_series(1, 40) AS id;
CREATE TABLE kept (id int);
CREATE FUNCTION take(text[]) RETURNS void LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM taken WHERE id = ANY ($1::int[]) AND id IN (2, 4) RETURNING id) INSERT INTO kept SELECT id FROM gone;
    UPDATE taken SET id = -id WHERE id = ANY ($1::int[]) AND id = 3;
    UPDATE taken SET d = now() + interval '1 h' WHERE id = ANY ($1::int[]) AND id = 5 $$;
SELECT FROM sweeper.register('taken', deadline => 'd', on_expire => 'take(text[])', check_every => '0', start => 'now');
CALL sweeper.sweep('taken', pass => NULL) \gset
SELECT id, d > now() AS alive FROM taken ORDER BY id;
SELECT count(*) FROM kept;
SELECT key, class, sqlstate, message FROM sweeper.failed_row ORDER BY key;
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'taken';
SELECT sweeper.expire('taken', '{2}', 'by hand');
SELECT sweeper.alter_policy('taken', action => 'call', filter => 'id > 0'), sweeper.resume('taken');
CALL sweeper.sweep('taken', pass => NULL) \gset
SELECT id FROM taken ORDER BY id;
SELECT id FROM kept ORDER BY id;
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'taken';
SELECT sweeper.unregister('taken');
DROP TABLE bare, taken, kept;
DROP FUNCTION mark, take;
-- rows for on_expire, of a partition with its columns in another order
CREATE TABLE part_of (id int, gone text, g text, d timestamptz, PRIMARY KEY (id, g)) PARTITION BY LIST (g);
ALTER TABLE part_of DROP COLUMN gone;
CREATE TABLE part_a (d timestamptz, gone int, g text NOT NULL, id int NOT NULL);
ALTER TABLE part_a DROP COLUMN gone;
ALTER TABLE part_of ATTACH PARTITION part_a FOR VALUES IN ('a');
INSERT INTO part_of VALUES (1, 'a', now());
CREATE TABLE part_seen (id int, g text);
CREATE FUNCTION see(part_of[]) RETURNS void LANGUAGE sql AS 'INSERT INTO part_seen SELECT id, g FROM unnest($1)';
SELECT FROM sweeper.register('part_of', deadline => 'd', on_expire => 'see(part_of[])', check_every => '0', start => 'now');
CALL sweeper.sweep('part_of', pass => NULL) \gset
SELECT * FROM part_seen;
SELECT sweeper.unregister('part_of');
DROP TABLE part_of, part_seen CASCADE;
-- rows for on_expire, of a table with a column that is named like what the statements call it
CREATE TABLE named (id int PRIMARY KEY, t int, d timestamptz);
CREATE TABLE seen (t text);
INSERT INTO named VALUES (1, 5, now() - interval '1 h');
CREATE FUNCTION see(named[]) RETURNS void LANGUAGE sql AS $$ INSERT INTO seen SELECT row(x.id, x.t)::text FROM unnest($1) AS x $$;
SELECT FROM sweeper.register('named', deadline => 'd', on_expire => 'see(named[])', check_every => '0', start => 'now');
CALL sweeper.sweep('named', pass => NULL) \gset
SELECT * FROM seen;
SELECT sweeper.unregister('named');
DROP TABLE named, seen CASCADE;
-- a hook does not change what its rows are made of
CREATE TABLE keyed (id int PRIMARY KEY, d timestamptz);
INSERT INTO keyed VALUES (1, now() - interval '1 h');
CREATE FUNCTION drops_key(text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN ALTER TABLE keyed DROP COLUMN id; END $$;
SELECT FROM sweeper.register('keyed', deadline => 'd', on_expire => 'drops_key(text[])', check_every => '0', start => 'now', max_retries => 0);
CALL sweeper.sweep('keyed', pass => NULL) \gset
SELECT class, state, sqlstate, message FROM sweeper.failed_row WHERE policy = 'keyed';
SELECT sweeper.expire('keyed', '{1}');
SELECT count(*) FROM keyed;
SELECT sweeper.unregister('keyed');
DROP TABLE keyed;
DROP FUNCTION drops_key;
