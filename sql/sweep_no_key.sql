-- Rows without a key are known by their place: what failed there says nothing of the row that comes there next.
SET client_min_messages = warning;
CREATE TABLE place (bad boolean, d timestamptz, n int);
CREATE TABLE place_child (extra text) INHERITS (place);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.bad THEN RAISE EXCEPTION 'row % will not go', OLD.n; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON place FOR EACH ROW EXECUTE FUNCTION refuse();
CREATE TRIGGER refuse BEFORE DELETE ON place_child FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT FROM sweeper.register('place', deadline => 'd', on_null => 'expire', check_every => '0', start => 'now', max_retries => 0, fuse_fraction => 1);
INSERT INTO place VALUES (false, NULL, 1), (true, NULL, 2), (false, NULL, 3);
INSERT INTO place_child VALUES (false, '2020-01-01', 1, 'a'), (false, '2020-01-01', 2, 'b'), (true, '2020-01-01', 3, 'c');
CALL sweeper.sweep('place', pass => NULL) \gset
CALL sweeper.sweep('place') \gset
SELECT tableoid::regclass, ctid, n FROM place ORDER BY tableoid;
SELECT partition, key, deadline, state, attempts, identity IS NOT NULL AS identified FROM sweeper.failed_row ORDER BY partition;
SELECT verdict, reason, attempts FROM sweeper.explain_row('place', '(0,2)');
SELECT verdict, reason, attempts FROM sweeper.explain_row('place', '(0,3)');
-- the same places and deadlines, other rows
TRUNCATE place;
INSERT INTO place VALUES (false, NULL, 11), (false, NULL, 12), (false, NULL, 13);
INSERT INTO place_child VALUES (false, '2020-01-01', 11), (false, '2020-01-01', 12), (true, '2020-01-01', 13);
SELECT verdict, reason, attempts FROM sweeper.explain_row('place', '(0,2)');
CALL sweeper.sweep('place', pass => NULL) \gset
SELECT tableoid::regclass, ctid, n FROM place;
SELECT partition, key, deadline, state, attempts, message FROM sweeper.failed_row ORDER BY partition;
SELECT verdict, reason, attempts FROM sweeper.explain_row('place', '(0,3)');
-- an entry counts attempts on its own row only
SELECT sweeper.alter_policy('place', max_retries => 1);
TRUNCATE place;
INSERT INTO place_child VALUES (true, '2020-01-01', 1);
INSERT INTO place_child VALUES (false, '2020-01-01', 1);
CALL sweeper.sweep('place', pass => NULL) \gset
TRUNCATE place;
INSERT INTO place_child VALUES (true, '2020-01-01', 21);
INSERT INTO place_child VALUES (false, '2020-01-01', 1);
CALL sweeper.sweep('place', pass => NULL) \gset
SELECT partition, key, state, attempts, message FROM sweeper.failed_row;
UPDATE sweeper.failed_row SET next_attempt = now();
CALL sweeper.sweep('place') \gset
SELECT partition, key, state, attempts, message FROM sweeper.failed_row;
SELECT sweeper.unregister('place');
DROP TABLE place, place_child;
DROP FUNCTION refuse;
