-- Two clocks: idle too long, or too old.
SET client_min_messages = warning;
-- a row that fails is one row, whichever of two clocks has found it: tried once a pass, counted, quarantined
CREATE TABLE b (id int PRIMARY KEY, seen timestamptz, created timestamptz);
CREATE SEQUENCE tries;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id <= 2 THEN PERFORM nextval('tries'); RAISE EXCEPTION 'row % will not go', OLD.id; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse AFTER DELETE ON b FOR EACH ROW EXECUTE FUNCTION refuse();
INSERT INTO b SELECT i, now() - interval '2 h', now() - interval '3 days' FROM generate_series(1, 20) AS i;
SELECT FROM sweeper.register('b', last_seen => 'seen', ttl => '30 min', created => 'created', max_age => '1 day', check_every => '0', start => 'now', batch_size => 1, max_retries => 1);
CALL sweeper.sweep('b') \gset
SELECT count(*) FROM b;
SELECT key, state, attempts, deadline = (SELECT created + interval '1 day' FROM b WHERE id = key::int) AS earliest FROM sweeper.failed_row WHERE policy = 'b' ORDER BY key;
SELECT last_value AS tries FROM tries;
SELECT verdict, attempts, last_error FROM sweeper.explain_row('b', '1');
-- a wait is kept by both
UPDATE sweeper.failed_row SET next_attempt = now() + interval '1 h' WHERE policy = 'b';
CALL sweeper.sweep('b') \gset
SELECT last_value AS tries FROM tries;
UPDATE sweeper.failed_row SET next_attempt = now() WHERE policy = 'b';
CALL sweeper.sweep('b') \gset
SELECT key, state, attempts FROM sweeper.failed_row WHERE policy = 'b' ORDER BY key;
SELECT problem, detail FROM sweeper.problem WHERE policy = 'b';
CALL sweeper.sweep('b') \gset
SELECT last_value AS tries FROM tries;
-- a sign of life changes nothing for a row beyond its greatest age; another age does
UPDATE b SET seen = now();
CALL sweeper.sweep('b') \gset
SELECT key, state, attempts FROM sweeper.failed_row WHERE policy = 'b' ORDER BY key;
UPDATE b SET created = created + interval '1 s' WHERE id = 1;
CALL sweeper.sweep('b') \gset
SELECT key, state, attempts FROM sweeper.failed_row WHERE policy = 'b' ORDER BY key;
-- one without a time that is to expire as well
UPDATE b SET seen = NULL;
SELECT sweeper.alter_policy('b', on_null => 'expire');
CALL sweeper.sweep('b') \gset
SELECT setval('tries', 1, false);
DELETE FROM sweeper.failed_row WHERE policy = 'b';
CALL sweeper.sweep('b') \gset
SELECT last_value AS tries FROM tries;
SELECT sweeper.unregister('b');
DROP TABLE b;
DROP SEQUENCE tries;
DROP FUNCTION refuse;
-- beyond the greatest age no answer helps: nobody is asked, the row goes, and first
CREATE TABLE o (id int PRIMARY KEY, seen timestamptz, created timestamptz);
CREATE TABLE asked (key text);
CREATE FUNCTION lives(key text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO asked VALUES (key); RETURN key <> '4'; END $$;
INSERT INTO o VALUES (1, now(), now() - interval '3 days'), (2, now() - interval '1 h', now() - interval '3 days'), (3, now() - interval '1 h', now()),
    (4, now() - interval '1 h', now()), (5, now(), now()), (6, NULL, now()), (7, NULL, now() - interval '3 days');
SELECT FROM sweeper.register('o', last_seen => 'seen', ttl => '5 min', created => 'created', max_age => '1 day', on_null => 'expire', is_alive => 'lives(text)', check_every => '0', start => 'now');
CALL sweeper.sweep('o') \gset
SELECT key FROM asked ORDER BY key;
SELECT id, seen > now() - interval '1 min' AS alive FROM o ORDER BY id;
SELECT key, cleanup_type FROM sweeper.cleanup_event WHERE policy = 'o' ORDER BY key;
SELECT expired, refreshed, failed FROM sweeper.pass WHERE policy = 'o';
-- and the next look has nothing to do
CALL sweeper.sweep('o');
SELECT count(*) FROM asked;
-- the fuse counts each of them once
INSERT INTO o SELECT i, now() - interval '1 h', now() - interval '3 days' FROM generate_series(101, 140) AS i;
SELECT sweeper.alter_policy('o', fuse_min => 41);
CALL sweeper.sweep('o') \gset
SELECT count(*) FROM o;
INSERT INTO o SELECT i, now() - interval '1 h', now() - interval '3 days' FROM generate_series(101, 141) AS i;
CALL sweeper.sweep('o') \gset
SELECT split_part(detail, '.', 1) AS detail FROM sweeper.problem WHERE policy = 'o';
SELECT sweeper.unregister('o');
DROP TABLE o, asked;
DROP FUNCTION lives;
-- an action that ends one of two clocks leaves the row dead: no event
CREATE TABLE e (id int PRIMARY KEY, seen timestamptz, created timestamptz);
INSERT INTO e SELECT i, now() - interval '1 h', now() - interval '2 days' FROM generate_series(1, 5) AS i;
INSERT INTO e VALUES (6, now() - interval '1 h', now());
CREATE FUNCTION renew(text[]) RETURNS void LANGUAGE sql AS $$ UPDATE e SET seen = 'infinity' WHERE id = ANY ($1::int[]) $$;
SELECT FROM sweeper.register('e', last_seen => 'seen', ttl => '5 min', created => 'created', max_age => '1 day', action => 'update', set_clause => 'seen = ''infinity''', check_every => '0', start => 'now');
CALL sweeper.sweep('e', pass => NULL) \gset
SELECT id, seen = 'infinity' AS ended FROM e ORDER BY id;
SELECT key FROM sweeper.cleanup_event WHERE policy = 'e';
SELECT key, class, attempts FROM sweeper.failed_row WHERE policy = 'e' ORDER BY key;
DELETE FROM sweeper.failed_row;
UPDATE e SET seen = now() - interval '1 h';
SELECT sweeper.alter_policy('e', action => 'call', on_expire => 'renew(text[])', reset => '{set_clause}');
CALL sweeper.sweep('e', pass => NULL) \gset
SELECT id, seen = 'infinity' AS ended FROM e ORDER BY id;
SELECT key, class, attempts FROM sweeper.failed_row WHERE policy = 'e' ORDER BY key;
SELECT sweeper.unregister('e');
DROP TABLE e;
DROP FUNCTION renew;
-- what is too old is deleted by whole blocks; what is_alive says of the others counts in the same pass
CREATE TABLE m (id int PRIMARY KEY, seen timestamptz, created timestamptz);
CREATE INDEX ON m (seen);
CREATE INDEX ON m (created);
CREATE FUNCTION is_even(text) RETURNS boolean LANGUAGE sql AS $$ SELECT $1::int % 2 = 0 $$;
INSERT INTO m SELECT i, now(), now() - interval '3 days' FROM generate_series(1, 3000) AS i;
INSERT INTO m SELECT i, now() - interval '1 h', now() FROM generate_series(3001, 3040) AS i;
ANALYZE m;
SELECT FROM sweeper.register('m', last_seen => 'seen', ttl => '5 min', created => 'created', max_age => '1 day', is_alive => 'is_even(text)', check_every => '0', start => 'now', fuse_fraction => 1, backlog_rate => 0, max_workers => 1);
CALL sweeper.sweep('m') \gset
SELECT count(*), count(*) FILTER (WHERE seen > now() - interval '1 min') AS refreshed FROM m;
SELECT sweeper.unregister('m');
DROP TABLE m;
DROP FUNCTION is_even;
