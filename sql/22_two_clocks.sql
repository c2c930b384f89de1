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
SELECT sweeper.unregister('b');
DROP TABLE b;
DROP SEQUENCE tries;
DROP FUNCTION refuse;
