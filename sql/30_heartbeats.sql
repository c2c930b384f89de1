-- Heartbeats: rows live by them, without being written.
CREATE TABLE basket (id uuid PRIMARY KEY, who text, expires_at timestamptz NOT NULL);
CREATE INDEX ON basket (expires_at);
SELECT state FROM sweeper.register('basket', deadline => 'expires_at', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1);
INSERT INTO basket SELECT md5(i::text)::uuid, 'u' || i, now() + interval '14 min' FROM generate_series(1, 5) AS i;
SELECT sweeper.touch('basket', md5('1')::uuid), sweeper.touch('basket', upper(md5('2')::uuid::text)), sweeper.touch('basket', md5('9')::uuid);
-- nothing was written
SELECT count(*) FROM basket WHERE expires_at > now() + interval '15 min';
SELECT sweeper.touch('basket', md5('1')::uuid) FROM generate_series(1, 3);
-- a pass looks ahead and writes the rows of those alive
CALL sweeper.sweep('basket') \gset
SELECT who, expires_at > now() + interval '59 min' AS prolonged FROM basket ORDER BY who;
SELECT expired, refreshed FROM sweeper.stat_policy WHERE policy = 'basket';
-- near its deadline a heartbeat writes its row itself
UPDATE basket SET expires_at = now() + interval '2 min' WHERE who = 'u3';
SELECT sweeper.touch('basket', md5('3')::uuid);
SELECT expires_at > now() + interval '59 min' AS prolonged FROM basket WHERE who = 'u3';
-- the application ends a session by writing its row
UPDATE basket SET expires_at = now() - interval '1 min' WHERE who IN ('u1', 'u4');
SELECT sweeper.is_live('basket', md5('1')::uuid::text), sweeper.is_live('basket', md5('2')::uuid::text);
CALL sweeper.sweep('basket') \gset
SELECT who FROM basket ORDER BY who;
SELECT sweeper.touch('basket', md5('1')::uuid);
SELECT cleanup_type, count(*) FROM sweeper.cleanup_event WHERE policy = 'basket' GROUP BY 1;
SELECT sweeper.unregister('basket');
DROP TABLE basket;
