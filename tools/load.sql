-- An application in small, in a database of its own: what monitoring is shown with
-- and tested against.  CALL load(seconds) keeps it busy for so long.
\set ON_ERROR_STOP on
\o /dev/null
SET client_min_messages = warning;
CREATE EXTENSION session_sweeper;

-- Logins that live for some seconds, and a backlog from before that is worked off at a quiet rate.
CREATE TABLE login (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, expires_at timestamptz NOT NULL);
INSERT INTO login (expires_at) SELECT now() - i * interval '1 s' FROM generate_series(1, 60000) AS i;
INSERT INTO login (expires_at) SELECT now() + interval '1 h' FROM generate_series(1, 15000) AS i;
CREATE INDEX ON login (expires_at);
SELECT FROM sweeper.register('login', policy => 'login', deadline => 'expires_at', start => 'now', check_every => '250 ms', backlog_rate => 500);

-- Carts that the application forgets to give a deadline.
CREATE TABLE cart (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, expires_at timestamptz);
CREATE INDEX ON cart (expires_at);
SELECT FROM sweeper.register('cart', policy => 'cart', deadline => 'expires_at', on_null => 'repair', ttl => '5 s', check_every => '250 ms');

-- Devices that send heartbeats; one in ten falls silent and is taken for dead.
CREATE TABLE device (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, last_seen timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON device (last_seen);
SELECT FROM sweeper.register('device', policy => 'device', last_seen => 'last_seen', ttl => '4 s', check_every => '250 ms', heartbeats => true);

-- Parcels that come in heaps, and whose trigger takes its time: what piles up can be seen.
CREATE TABLE parcel (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, expires_at timestamptz NOT NULL);
CREATE INDEX ON parcel (expires_at);
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.002); RETURN OLD; END $$;
CREATE TRIGGER tell BEFORE DELETE ON parcel FOR EACH ROW EXECUTE FUNCTION tell();
SELECT FROM sweeper.register('parcel', policy => 'parcel', deadline => 'expires_at', check_every => '250 ms', max_lag => '5 s', fuse_fraction => 1);

-- Most is dead already: held until somebody looks.
CREATE TABLE legacy (id int PRIMARY KEY, expires_at timestamptz NOT NULL);
INSERT INTO legacy SELECT i, now() + CASE WHEN i <= 9000 THEN -1 ELSE 1 END * interval '1 h' FROM generate_series(1, 12000) AS i;
CREATE INDEX ON legacy (expires_at);
SELECT FROM sweeper.register('legacy', policy => 'legacy', deadline => 'expires_at');

-- A row that cannot go.
CREATE TABLE invoice (id int PRIMARY KEY, due timestamptz NOT NULL);
CREATE INDEX ON invoice (due);
INSERT INTO invoice SELECT i, now() + CASE WHEN i <= 5 THEN interval '-1 s' ELSE interval '1 h' END FROM generate_series(1, 100) AS i;
CREATE TABLE payment (invoice int REFERENCES invoice);
INSERT INTO payment VALUES (3);
SELECT FROM sweeper.register('invoice', policy => 'invoice', deadline => 'due', start => 'now', check_every => '250 ms', max_retries => 0);

-- Seats, tasks, and rows written behind.
SELECT sweeper.create_pool('cad', seats => 40, ttl => '10 s');
CREATE TABLE hit (id bigint GENERATED ALWAYS AS IDENTITY, page text NOT NULL);
SELECT sweeper.register_worker('resizer') AS worker \gset
SELECT sweeper.register_job(:'worker', 'media', 'image', 'resize');
SELECT sweeper.submit('media', 'image', 'resize') FROM generate_series(1, 3);
SELECT sweeper.claim(:'worker', start => true);
ANALYZE;

CREATE PROCEDURE load(seconds float8) LANGUAGE plpgsql AS $$
DECLARE
    stop timestamptz := clock_timestamp() + seconds * interval '1 s';
    turn int := 0;
BEGIN
    WHILE clock_timestamp() < stop LOOP
        turn := turn + 1;
        INSERT INTO login (expires_at) SELECT now() + (1 + random() * 5) * interval '1 s' FROM generate_series(1, 20 + turn % 40);
        INSERT INTO cart DEFAULT VALUES;
        INSERT INTO device SELECT FROM generate_series(1, 3);
        COMMIT;
        PERFORM sweeper.touch('device', id) FROM device WHERE id % 10 <> 0;
        DELETE FROM device WHERE id % 10 <> 0 AND id < (SELECT max(id) FROM device) - 300;
        PERFORM sweeper.acquire('cad', 'user' || turn % 10, ttl => '2 s');
        PERFORM sweeper.release(session) FROM (SELECT session FROM sweeper.live_session WHERE pool = 'cad' ORDER BY acquired_at LIMIT turn % 2) AS s;
        PERFORM sweeper.heartbeat(session) FROM (SELECT session FROM sweeper.live_session WHERE pool = 'cad' ORDER BY acquired_at DESC LIMIT 5) AS s;
        PERFORM sweeper.heartbeat(session) FROM sweeper.session WHERE pool = 'sweeper.worker' AND status = 'active';
        PERFORM sweeper.task_progress(task, turn % 400, 400, 'image ' || turn % 400) FROM sweeper.task_info WHERE status = 'running' AND kind = 'job';
        PERFORM sweeper.append('hit', jsonb_build_object('page', 'p' || turn));
        IF turn % 20 = 5 THEN
            INSERT INTO parcel (expires_at) SELECT now() + i * interval '1 ms' FROM generate_series(1, 1000) AS i;
        END IF;
        IF turn % 5 = 1 THEN
            PERFORM sweeper.submit_sql(CASE WHEN turn % 20 = 1 THEN 'SELECT 1 / 0' ELSE 'SELECT pg_sleep(0.5)' END);
            PERFORM sweeper.expire('login', ARRAY(SELECT id::text FROM login WHERE expires_at > now() + interval '1 s' ORDER BY id DESC LIMIT 1), 'logged out');
        END IF;
        COMMIT;
        PERFORM pg_sleep(0.2);
    END LOOP;
END
$$;
