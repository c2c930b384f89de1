-- Names and errors that would do harm on a page that took them for HTML, and figures that stand still.
SET client_min_messages = warning;
CREATE TABLE "<img src=x onerror=owned()>" (id int PRIMARY KEY, d timestamptz NOT NULL);
CREATE INDEX ON "<img src=x onerror=owned()>" (d);
INSERT INTO "<img src=x onerror=owned()>" SELECT i, now() + interval '1 h' FROM generate_series(1, 50) AS i;
SELECT FROM sweeper.register('"<img src=x onerror=owned()>"', policy => '<script>owned()</script>', deadline => 'd');
SELECT FROM sweeper.pause('<script>owned()</script>', E'"><svg onload=owned()> & \u202Eeht\u061C\u115F\u1160\u180E\u3164\uFFA0\U000E0041');

-- every row fails, with a message of the table's owner
CREATE TABLE failing (id int PRIMARY KEY, d timestamptz NOT NULL);
CREATE INDEX ON failing (d);
INSERT INTO failing SELECT i, now() - interval '1 h' FROM generate_series(1, 3) AS i;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE '</td></table><img src=x onerror="owned()">%', chr(7); END $$;
CREATE TRIGGER refuse BEFORE DELETE ON failing FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT FROM sweeper.register('failing', policy => E'o''ne; \\ "two" -- \u202E\u2028 three', deadline => 'd', start => 'now', check_every => '100 ms', max_retries => 0);

-- held, with a long name that has no place to break
CREATE TABLE held (id int PRIMARY KEY, d timestamptz NOT NULL);
CREATE INDEX ON held (d);
INSERT INTO held SELECT i, now() - interval '1 h' FROM generate_series(1, 50) AS i;
SELECT FROM sweeper.register('held', policy => repeat('W', 63), deadline => 'd');

SELECT sweeper.create_pool('<b onclick=owned()>pool</b>', seats => 4, ttl => '1 d');
SELECT s.session IS NOT NULL AS seat FROM generate_series(1, 3) AS i CROSS JOIN LATERAL sweeper.acquire('<b onclick=owned()>pool</b>', '<i>' || i) AS s;
SELECT sweeper.create_pool('full', seats => 1, ttl => '1 d');
SELECT FROM sweeper.acquire('full', 'ann');
SELECT sweeper.create_pool('any number', ttl => '1 d');

SELECT sweeper.register_worker('<img src=x onerror=owned()>', ttl => '1 d') AS worker \gset
SELECT sweeper.register_job(:'worker', '<script>', 'owned()', '</script>');
SELECT sweeper.submit('<script>', 'owned()', '</script>') FROM generate_series(1, 3);
SELECT task FROM sweeper.claim(:'worker', start => true) \gset
SELECT sweeper.task_progress(:'task', 3, 12, '<img src=x onerror=owned()>');
SELECT sweeper.create_job('room', 'category', 'nobody works');
SELECT sweeper.submit('room', 'category', 'nobody works');
