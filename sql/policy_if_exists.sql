-- register and adopt of a policy that exists, as a migration tool calls them at each deploy.
SET client_min_messages = warning;
SET timezone = 'UTC';
CREATE ROLE regress_app;
CREATE ROLE regress_other;
SELECT sweeper.grant_access('regress_app', 'user'), sweeper.grant_access('regress_other', 'user');
GRANT CREATE ON SCHEMA public TO regress_app, regress_other;
SET ROLE regress_app;
CREATE TABLE cart (id int PRIMARY KEY, code text NOT NULL UNIQUE, d timestamptz, e timestamptz, seen timestamptz, over boolean NOT NULL DEFAULT false);
CREATE INDEX ON cart (d);
CREATE FUNCTION before_end(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
-- what a policy is, and how it changed
CREATE VIEW definition AS SELECT policy_id, policy, (to_jsonb(p) - '{policy_id,registered_at,last_pass_at,horizons,backlog_before}'::text[]) AS fields FROM sweeper.policy AS p;
CREATE VIEW change AS SELECT change, policy, changed_by, old, new FROM sweeper.policy_change WHERE policy NOT LIKE 'sweeper.%' ORDER BY changed_at;
RESET ROLE;
GRANT SELECT ON sweeper.policy, sweeper.policy_change TO regress_app;
SET ROLE regress_app;

-- the first call registers, the second changes nothing, however the same is written
SELECT state FROM sweeper.register('cart', deadline => 'd', ttl => '1 day', heartbeats => true, filter => 'NOT over', on_expire => 'before_end', check_every => '0', start => 'paused', if_exists => 'alter');
SELECT xmin::text AS written FROM sweeper.policy WHERE policy = 'cart' \gset
SELECT policy, state, rows_estimate, dead_estimate FROM sweeper.register('cart', deadline => '"d"', ttl => '24:00', heartbeats => true, filter => 'NOT over', on_expire => 'before_end(text[])', check_every => '0 s', key => '{id}', capture => '{}', start => 'paused', if_exists => 'alter');
SELECT xmin::text = :'written' AS not_written FROM sweeper.policy WHERE policy = 'cart';
SELECT change, policy FROM change;
-- nor does it wait for anybody, or write in a transaction that may not
BEGIN READ ONLY;
SELECT state FROM sweeper.register('cart', deadline => 'd', ttl => '1 day', heartbeats => true, filter => 'NOT over', on_expire => 'before_end', check_every => '0', if_exists => 'alter');
SELECT count(*) AS policy_locks FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_class'::regclass AND pid = pg_backend_pid();
SELECT state FROM sweeper.register('cart', deadline => 'd', check_every => '0', if_exists => 'alter');
ROLLBACK;

-- what is given is set, what is not goes back: it is as if it had been registered so
SELECT sweeper.alter_policy('cart', audit => 'hash', batch_size => 7, group_by => 'code');
SELECT state FROM sweeper.register('cart', deadline => 'd', keep_for => '1 h', capture => '{code}', check_every => '0', if_exists => 'alter');
SELECT change, changed_by = session_user AS me, old - 'on_expire' AS old, new FROM change OFFSET 2;
CREATE TEMP TABLE altered AS SELECT fields FROM definition;
BEGIN;
SELECT sweeper.unregister('cart');
SELECT state FROM sweeper.register('cart', deadline => 'd', keep_for => '1 h', capture => '{code}', check_every => '0', start => 'paused');
SELECT jsonb_object_agg(k, a.fields -> k) FROM altered AS a, definition AS d, LATERAL jsonb_object_keys(d.fields) AS k WHERE a.fields -> k IS DISTINCT FROM d.fields -> k AND k NOT IN ('paused_at', 'shared_as');
ROLLBACK;
-- with dry_run nothing changes
SELECT state FROM sweeper.register('cart', deadline => 'e', check_every => '0', if_exists => 'alter', dry_run => true);
SELECT d.fields = a.fields AS same FROM definition AS d, altered AS a;

-- brakes, counters and heartbeats stay
INSERT INTO cart VALUES (1, 'a', now() + interval '1 h', NULL, now());
SELECT state FROM sweeper.register('cart', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0', if_exists => 'alter');
SELECT sweeper.resume('cart');
SELECT sweeper.touch('cart', 1);
SELECT registered_at, policy_id FROM sweeper.policy WHERE policy = 'cart' \gset
SELECT sweeper.pause('cart', 'as it is');
SELECT state FROM sweeper.register('cart', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0', if_exists => 'alter');
SELECT last_heartbeat IS NOT NULL AS in_memory FROM sweeper.explain_row('cart', '1');
SELECT state FROM sweeper.register('cart', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0', batch_size => 3, if_exists => 'alter');
SELECT last_heartbeat IS NOT NULL AS in_memory FROM sweeper.explain_row('cart', '1');
SELECT paused_reason, registered_at = :'registered_at' AND policy_id = :policy_id AS same FROM sweeper.policy WHERE policy = 'cart';
SELECT sweeper.resume('cart');

-- a deadline that makes most rows dead holds the policy, unless start is now; registering the same again holds nothing
INSERT INTO cart SELECT i, i, now() + interval '1 h', now() - interval '1 h' FROM generate_series(2, 30) AS i;
SET client_min_messages = notice;
SELECT state FROM sweeper.register('cart', deadline => 'e', check_every => '0', if_exists => 'alter', dry_run => true);
SELECT state FROM sweeper.register('cart', deadline => 'e', check_every => '0', if_exists => 'alter');
SELECT sweeper.resume('cart');
SELECT state FROM sweeper.register('cart', deadline => 'e', check_every => '0', if_exists => 'alter');
SELECT state FROM sweeper.register('cart', deadline => 'd', check_every => '0', if_exists => 'alter');
SELECT state FROM sweeper.register('cart', deadline => 'e', check_every => '0', start => 'now', if_exists => 'alter');
SET client_min_messages = warning;

-- renamed columns: the new name is the same column; what lost its meaning is given a new one
SELECT state FROM sweeper.register('cart', deadline => 'd', filter => 'code <> ''x''', check_every => '0', if_exists => 'alter');
ALTER TABLE cart RENAME d TO expires;
ALTER TABLE cart RENAME code TO sku;
SELECT state FROM sweeper.register('cart', deadline => 'expires', filter => 'code <> ''x''', check_every => '0', if_exists => 'alter');
SELECT state FROM sweeper.register('cart', deadline => 'expires', filter => 'sku <> ''x''', check_every => '0', if_exists => 'alter');
SELECT deadline, filter FROM sweeper.policy WHERE policy = 'cart';
-- the same words for another column are a change
ALTER TABLE cart RENAME sku TO old_sku;
ALTER TABLE cart ADD sku text NOT NULL DEFAULT '';
SELECT state FROM sweeper.preview('cart');
SELECT state FROM sweeper.register('cart', deadline => 'expires', filter => 'sku <> ''x''', check_every => '0', if_exists => 'alter');
SELECT state FROM sweeper.preview('cart');
-- a function that was made again is bound again
DROP FUNCTION before_end;
CREATE FUNCTION before_end(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT state FROM sweeper.register('cart', deadline => 'expires', on_expire => 'before_end', check_every => '0', if_exists => 'alter');
DROP FUNCTION before_end;
CREATE FUNCTION before_end(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT state FROM sweeper.register('cart', deadline => 'expires', on_expire => 'before_end', check_every => '0', if_exists => 'alter');
SELECT on_expire = 'before_end'::regproc AS bound FROM sweeper.policy WHERE policy = 'cart';

-- refused: words, another table of that name, a table that is gone or was made again, another owner
SELECT sweeper.register('cart', deadline => 'expires', if_exists => 'replace');
SELECT sweeper.register('cart', deadline => 'expires', if_exists => NULL);
SELECT sweeper.register('cart', deadline => 'expires', start => 'soon');
SELECT sweeper.register('cart', deadline => 'expires');
SELECT sweeper.register('cart', deadline => 'expires', if_exists => 'error');
CREATE TABLE basket (id int PRIMARY KEY, d timestamptz);
SELECT sweeper.register('basket', policy => 'cart', deadline => 'd', if_exists => 'alter');
SELECT sweeper.register('cart', policy => 'sweeper.session', deadline => 'expires', if_exists => 'alter');
SELECT state FROM sweeper.register('basket', deadline => 'd', check_every => '0', if_exists => 'alter');
DROP TABLE basket;
CREATE TABLE basket (id int PRIMARY KEY, d timestamptz);
SELECT state FROM sweeper.register('basket', deadline => 'd', check_every => '0', if_exists => 'alter');
SELECT sweeper.resume('basket');
SELECT state FROM sweeper.register('basket', deadline => 'd', check_every => '0', if_exists => 'alter');
DROP TABLE basket;
SELECT state FROM sweeper.register('cart', policy => 'basket', deadline => 'expires', check_every => '0', if_exists => 'alter');
SELECT sweeper.unregister('basket');
RESET ROLE;
SET ROLE regress_other;
SELECT sweeper.register('cart', deadline => 'expires', if_exists => 'alter');
CREATE TABLE mine (id int PRIMARY KEY, d timestamptz);
SELECT sweeper.register('mine', policy => 'cart', deadline => 'd', if_exists => 'alter');
RESET ROLE;
-- level admin changes limits with alter_policy, not so
SELECT sweeper.grant_access('regress_other', 'admin');
SET ROLE regress_other;
SELECT sweeper.alter_policy('cart', batch_size => 5);
SELECT sweeper.register('cart', deadline => 'expires', on_expire => 'before_end', check_every => '0', if_exists => 'alter');
RESET ROLE;
ALTER TABLE cart OWNER TO regress_other;
SET ROLE regress_other;
SELECT sweeper.register('cart', deadline => 'expires', check_every => '0', if_exists => 'alter');
RESET ROLE;
ALTER TABLE cart OWNER TO regress_app;

-- adopt: the preset's arguments, and those that are given
SET ROLE regress_app;
CREATE TABLE django_session (session_key varchar(40) PRIMARY KEY, session_data text NOT NULL, expire_date timestamptz NOT NULL);
CREATE INDEX ON django_session (expire_date);
SELECT state FROM sweeper.adopt('django_session', check_every => '0', if_exists => 'alter');
SELECT state FROM sweeper.adopt('django_session', check_every => '0', if_exists => 'alter');
SELECT state FROM sweeper.adopt('django_session', keep_for => '1 h', check_every => '0', if_exists => 'alter');
SELECT sweeper.alter_policy('django_session', keep_for => '2 h', audit => 'none');
SELECT state FROM sweeper.adopt('django_session', check_every => '0', if_exists => 'alter');
SELECT change, old, new FROM change WHERE policy = 'django_session' AND change = 'alter';
-- a guess is confirmed once
CREATE TABLE sessions (id varchar(255) PRIMARY KEY, user_id bigint, ip_address varchar(45), user_agent text, payload text NOT NULL, last_activity int NOT NULL);
CREATE INDEX ON sessions (last_activity);
SELECT state FROM sweeper.adopt('sessions', check_every => '0', if_exists => 'alter');
SELECT sweeper.resume('sessions');
SELECT state FROM sweeper.adopt('sessions', check_every => '0', if_exists => 'alter');
SELECT state FROM sweeper.adopt('sessions', check_every => '0', ttl => '1 day', if_exists => 'alter');
RESET ROLE;
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
SELECT sweeper.revoke_access('regress_app'), sweeper.revoke_access('regress_other');
REVOKE SELECT ON sweeper.policy, sweeper.policy_change FROM regress_app;
DROP VIEW definition, change;
DROP TABLE altered, sessions, django_session, mine, cart;
DROP FUNCTION before_end;
REVOKE CREATE ON SCHEMA public FROM regress_app, regress_other;
DROP ROLE regress_app, regress_other;
