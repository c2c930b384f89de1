-- register, alter_policy, unregister, preview: what they write and return.
SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres';
CREATE SCHEMA reg;
SET search_path = reg, public;
CREATE TABLE reg.login (id int PRIMARY KEY, who text, seen timestamptz, expires timestamptz);
CREATE INDEX login_expires ON reg.login (expires);
INSERT INTO reg.login SELECT i, 'u' || i % 3, now(), now() + (i - 20) * interval '1 min' FROM generate_series(1, 100) AS i;

-- every argument has the default that its documentation gives
SELECT state FROM sweeper.register('login', deadline => 'expires', start => 'paused');
\x on
SELECT policy, relation, owner_name = current_user AS mine, key, deadline, keep_for, on_null, columns, action, audit, notify_keys, check_every, max_lag,
       batch_size, max_workers, rate_limit, backlog_rate, soft_time_limit, hard_time_limit, lock_timeout, max_retries, fuse_fraction, fuse_min,
       heartbeats, search_path, allow_replicated, paused_reason, backlog_before IS NOT NULL AS has_backlog,
       system_identifier = (SELECT system_identifier FROM pg_control_system()) AS stamped
FROM sweeper.policy WHERE policy = 'reg.login';
SELECT policy, relation, state, rows_estimate, dead_estimate, exact, newest_deadline - oldest_deadline AS span, index_used, cascade_rows_per_parent,
       estimated_seconds, sample_keys, advice
FROM sweeper.preview('reg.login');
\x off
-- reset puts each argument back to register's default
CREATE FUNCTION pg_temp.fields() RETURNS jsonb LANGUAGE sql AS
$$SELECT to_jsonb(p) - '{paused_at,registered_at,backlog_before,policy_id,last_pass_at,horizons}'::text[] FROM sweeper.policy AS p WHERE policy = 'reg.login'$$;
SELECT pg_temp.fields() AS before \gset
SELECT sweeper.alter_policy('reg.login', keep_for => '1 h', filter => 'id > 0', on_null => 'expire', audit => 'hash', notify_channel => 'c', notify_keys => true,
    check_every => '5 s', max_lag => '1 h', batch_size => 7, max_workers => 3, rate_limit => 10, backlog_rate => 0, soft_time_limit => '1 s', hard_time_limit => '2 s',
    lock_timeout => '50 ms', max_retries => 9, fuse_fraction => 0.25, fuse_min => 5, search_path => 'pg_catalog', allow_replicated => true, group_by => 'who', capture => '{who}',
    ttl => '1 h', created => 'seen', max_age => '30 days');
SELECT new FROM sweeper.policy_change WHERE change = 'alter' AND policy = 'reg.login';
SELECT sweeper.alter_policy('reg.login', reset => '{key,last_seen,ttl,ttl_column,created,max_age,unit,timezone,keep_for,filter,on_null,action,set_clause,on_expire,is_alive,group_by,capture,audit,notify_channel,notify_keys,check_every,max_lag,batch_size,max_workers,rate_limit,backlog_rate,soft_time_limit,hard_time_limit,lock_timeout,max_retries,fuse_fraction,fuse_min,heartbeats,search_path,allow_replicated}');
SELECT pg_temp.fields() = :'before' AS as_before;
-- null leaves everything
SELECT sweeper.alter_policy('reg.login');
SELECT pg_temp.fields() = :'before' AS as_before;
SELECT sweeper.alter_policy('reg.login', max_workers => 2, reset => '{max_workers}');
SELECT sweeper.alter_policy('reg.login', reset => '{max_worker}');
SELECT sweeper.alter_policy('reg.login', reset => NULL);
SELECT sweeper.alter_policy('reg.login', audit => 'hash');
SELECT array_agg(length(k)) FROM sweeper.preview('reg.login'), unnest(sample_keys) AS k;
-- names
SELECT sweeper.alter_policy('reg.login', new_name => 'sweeper.x');
SELECT policy FROM sweeper.register('login', policy => 'second', deadline => 'expires', start => 'paused');
SELECT sweeper.alter_policy('second', new_name => 'reg.login');
SELECT sweeper.alter_policy('second', new_name => 'third', keep_for => '2 h');
SELECT sweeper.register('login', policy => 'third', deadline => 'expires');
SELECT policy FROM sweeper.register('login', policy => 'third_2', deadline => 'expires', start => 'paused');
SELECT sweeper.register('login', policy => 'third', deadline => 'expires');
SELECT change, policy, old, new, changed_by = session_user AS me FROM sweeper.policy_change WHERE change = 'alter' AND policy = 'third';
CREATE TABLE public."Odd ""Name" (id int PRIMARY KEY, expires timestamptz);
CREATE INDEX ON public."Odd ""Name" (expires);
SELECT policy, relation FROM sweeper.register('"Odd ""Name"', deadline => 'expires', dry_run => true);
-- a renamed column is followed; an expression is stored by what it resolves to
ALTER TABLE login RENAME COLUMN expires TO "goodUntil";
SELECT dead_estimate FROM sweeper.preview('reg.login');
SELECT sweeper.alter_policy('reg.login', keep_for => '1 min');
SELECT deadline, columns FROM sweeper.policy WHERE policy = 'reg.login';
SELECT sweeper.alter_policy('reg.login', deadline => '"goodUntil"', group_by => 'lower(who)');
SELECT deadline, group_by, columns FROM sweeper.policy WHERE policy = 'reg.login';
-- so is a filter that is only a column, also by a change of something else
CREATE TABLE flagged (id int PRIMARY KEY, over boolean NOT NULL, d timestamptz NOT NULL);
SELECT FROM sweeper.register('flagged', deadline => 'd', filter => 'over', start => 'paused');
ALTER TABLE flagged RENAME over TO done;
SELECT sweeper.alter_policy('reg.flagged', audit => 'count');
SELECT filter FROM sweeper.policy WHERE policy = 'reg.flagged';
SELECT state FROM sweeper.preview('reg.flagged');
SELECT sweeper.unregister('reg.flagged');
-- the path of user code
SET search_path = pg_temp, "$user", reg, "Odd path", pg_catalog;
CREATE SCHEMA "Odd path";
SELECT sweeper.register('login', policy => 'path', deadline => 'goodUntil', start => 'paused') IS NOT NULL AS registered;
SELECT search_path FROM sweeper.policy WHERE policy = 'path';
SELECT sweeper.alter_policy('path', search_path => '"$user", pg_temp, "Odd path"');
SELECT search_path FROM sweeper.policy WHERE policy = 'path';
SET search_path = '';
SELECT sweeper.alter_policy('path', reset => '{search_path}');
SELECT search_path FROM sweeper.policy WHERE policy = 'path';
SET search_path = reg, public;
-- keys
CREATE TABLE k (a int NOT NULL, b text NOT NULL, c int, d int NOT NULL, expires timestamptz);
CREATE INDEX ON k (expires);
INSERT INTO k VALUES (1, 'x, y', 1, 1, now());
SELECT sample_keys, advice FROM sweeper.register('k', deadline => 'expires', dry_run => true);
CREATE UNIQUE INDEX ON k (c);
CREATE UNIQUE INDEX ON k (d) WHERE d > 0;
CREATE UNIQUE INDEX ON k (lower(b));
SELECT sample_keys FROM sweeper.register('k', deadline => 'expires', dry_run => true);
CREATE UNIQUE INDEX k_b_a ON k (b, a) INCLUDE (d);
SELECT sample_keys, advice FROM sweeper.register('k', deadline => 'expires', dry_run => true);
SELECT sample_keys FROM sweeper.register('k', deadline => 'expires', key => '{a,b}', dry_run => true);
SELECT sample_keys FROM sweeper.register('k', deadline => 'expires', key => '{d,b,a}', dry_run => true);
SELECT sample_keys FROM sweeper.register('k', deadline => 'expires', key => '{}', dry_run => true);
SELECT sweeper.register('k', deadline => 'expires', key => '{a}');
SELECT sweeper.register('k', deadline => 'expires', key => '{c}');
SELECT sweeper.register('k', deadline => 'expires', key => '{a,bb}');
SELECT sweeper.register('k', deadline => 'expires', key => '{a,b,a}');
SELECT sweeper.register('k', deadline => 'expires', key => '{a,NULL}');
-- children: rows that go too, those that hold their parent, missing indexes
CREATE TABLE attribute (login int REFERENCES login ON DELETE CASCADE, v text);
CREATE TABLE message (login int REFERENCES login, v text);
INSERT INTO attribute SELECT i, v FROM generate_series(1, 100) AS i, generate_series(1, 3) AS v;
ANALYZE attribute; ANALYZE login;
SELECT cascade_rows_per_parent, advice FROM sweeper.register('login', policy => 'c', deadline => 'goodUntil', dry_run => true);
CREATE INDEX ON attribute (login);
SELECT cascade_rows_per_parent, advice FROM sweeper.register('login', policy => 'c', deadline => 'goodUntil', action => 'update', set_clause => 'who = NULL', filter => 'who IS NOT NULL', dry_run => true);
-- a backlog is held by auto, not by now or paused
CREATE TABLE big (id int PRIMARY KEY, expires timestamptz);
CREATE INDEX ON big (expires);
INSERT INTO big SELECT i, now() + CASE WHEN i <= 6000 THEN -1 ELSE 1 END * interval '1 h' FROM generate_series(1, 10001) AS i;
SELECT state, rows_estimate, dead_estimate FROM sweeper.register('big', deadline => 'expires', check_every => '0', dry_run => true);
SELECT state FROM sweeper.register('big', deadline => 'expires', check_every => '0', backlog_rate => 0);
SELECT held_reason, held_at IS NOT NULL AS at, backlog_before IS NOT NULL AS before FROM sweeper.policy WHERE policy = 'reg.big';
SELECT state FROM sweeper.preview('reg.big');
SELECT sweeper.unregister('reg.big');
SELECT state FROM sweeper.register('big', deadline => 'expires', filter => 'id > 1', check_every => '0', start => 'now', dry_run => true);
SELECT state FROM sweeper.register('big', deadline => 'expires', filter => 'id > 1', check_every => '0', start => 'auto', dry_run => true);
SELECT state FROM sweeper.register('big', deadline => 'expires', keep_for => '2 h', check_every => '0');
SELECT backlog_before FROM sweeper.policy WHERE policy = 'reg.big';
-- a changed deadline is looked at in the same way
DELETE FROM big WHERE id > 10000; INSERT INTO big VALUES (0, now() - interval '1 h'), (-1, now() - interval '1 h');
SELECT sweeper.alter_policy('reg.big', reset => '{keep_for}');
SELECT held_reason, backlog_before IS NOT NULL AS before FROM sweeper.policy WHERE policy = 'reg.big';
-- the deadlines of living rows are not shown
CREATE TABLE few (id int PRIMARY KEY, expires timestamptz);
INSERT INTO few SELECT i, date_trunc('hour', now()) + i * interval '1 d' FROM generate_series(-3, 3) AS i WHERE i <> 0;
SELECT dead_estimate, newest_deadline - date_trunc('hour', now()) AS newest, newest_deadline - oldest_deadline AS span FROM sweeper.register('few', deadline => 'expires', dry_run => true);
DELETE FROM few WHERE id < 0;
SELECT dead_estimate, oldest_deadline, newest_deadline FROM sweeper.register('few', deadline => 'expires', dry_run => true);
DROP TABLE few;
-- large tables are sampled; the index finds the exact number
CREATE TABLE large (id int PRIMARY KEY, expires timestamptz, pad text);
INSERT INTO large SELECT i, now() + CASE WHEN i <= 500 THEN i - 2000 ELSE i END * interval '1 s', repeat('x', 50) FROM generate_series(1, 300000) AS i;
CREATE INDEX ON large (expires);
ANALYZE large;
SELECT exact, dead_estimate, rows_estimate BETWEEN 200000 AND 400000 AS about, newest_deadline - oldest_deadline BETWEEN '8 min' AND '9 min' AS span, sample_keys
FROM sweeper.register('large', deadline => 'expires', keep_for => '500 s', dry_run => true);
DROP INDEX large_expires_idx;
SELECT exact, rows_estimate BETWEEN 200000 AND 400000 AS about FROM sweeper.register('large', deadline => 'expires', dry_run => true);
-- more than a preview counts
UPDATE large SET expires = now() - interval '1 h' WHERE id <= 150000;
CREATE INDEX ON large (expires);
SELECT exact, dead_estimate >= 100000 AS many, estimated_seconds > 0 AS takes FROM sweeper.register('large', deadline => 'expires', start => 'now', dry_run => true);
-- many small partitions are sampled, too: a wrong unit is seen
CREATE TABLE many (id int PRIMARY KEY, expires bigint NOT NULL) PARTITION BY HASH (id);
DO $$ BEGIN FOR i IN 0 .. 255 LOOP
    EXECUTE format('CREATE TABLE many_%s PARTITION OF many FOR VALUES WITH (MODULUS 256, REMAINDER %s) WITH (autovacuum_enabled = off)', i, i);
END LOOP; END $$;
INSERT INTO many SELECT i, extract(epoch FROM now()) * 1000 + 3600000 FROM generate_series(1, 115000) AS i;
\set VERBOSITY terse
SELECT sweeper.register('many', deadline => 'expires', unit => 'us', dry_run => true);
\set VERBOSITY default
SET client_min_messages = warning;
SELECT rows_estimate BETWEEN 50000 AND 200000 AS about, dead_estimate, exact FROM sweeper.register('many', deadline => 'expires', unit => 'ms', dry_run => true);
-- nobody has analysed them: pages may be nearly empty; most rows are dead
DELETE FROM many WHERE id % 10 <> 0;
UPDATE many SET expires = expires - 7200000 WHERE id % 100 < 70;
SELECT state, rows_estimate BETWEEN 6000 AND 18000 AS about, exact FROM sweeper.register('many', deadline => 'expires', unit => 'ms', check_every => '0');
-- without any row in the sample all are looked at
DELETE FROM many WHERE id > 20;
SELECT rows_estimate > 0 AS some, dead_estimate > 0 AS dead FROM sweeper.preview('reg.many');
RESET client_min_messages;
SELECT sweeper.unregister('reg.many');
DROP TABLE many;
-- built-in policies: only how often and how much
SELECT sweeper.alter_policy('sweeper.pass', check_every => '2 min');
SELECT check_every FROM sweeper.policy WHERE policy = 'sweeper.pass';
SELECT sweeper.alter_policy('sweeper.pass', check_every => '1 min');
SELECT sweeper.alter_policy('sweeper.pass', filter => 'true');
SELECT sweeper.unregister('sweeper.pass');
SELECT sweeper.register('sweeper.pass', deadline => 'started_at');
-- a table that went; nothing that was a dry run was written
DROP TABLE k, message, attribute; DROP TABLE login;
SELECT sweeper.preview('reg.login');
SELECT sweeper.alter_policy('reg.login', keep_for => '1 h');
SELECT sweeper.unregister(policy) IS NOT NULL AS done, policy FROM (SELECT policy FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%' ORDER BY policy) AS p;
SELECT sweeper.unregister('reg.login');
SELECT sweeper.unregister(NULL);
SELECT sweeper.preview(NULL);
SELECT sweeper.alter_policy(NULL);
-- as drivers call it: untyped parameters
PREPARE r AS SELECT state FROM sweeper.register($1, deadline => $2, key => $3, ttl => $4, fuse_fraction => $5, batch_size => $6, notify_keys => $7, on_expire => $8, dry_run => $9);
EXECUTE r ('reg.big', 'expires', '{id}', '1 h', '0.5', '5', 'false', NULL, 'true');
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA reg CASCADE; DROP SCHEMA "Odd path"; DROP TABLE "Odd ""Name";
-- a look takes about a second at most, however slow the owner's code is
CREATE TABLE slow (id int PRIMARY KEY, d timestamptz);
INSERT INTO slow SELECT i, now() FROM generate_series(1, 1500) AS i;
CREATE FUNCTION dawdle(int) RETURNS boolean STABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN true; END $$;
SELECT clock_timestamp() AS start \gset
SELECT exact FROM sweeper.register('slow', deadline => 'd', filter => 'dawdle(id)', dry_run => true);
SELECT clock_timestamp() - :'start' < interval '10 s' AS soon;
DROP TABLE slow;
DROP FUNCTION dawdle;
-- a column that is no deadline ends nobody: twenty rows are enough to ask first
SET client_min_messages = notice;
CREATE TABLE cust (id int PRIMARY KEY, created_at timestamptz);
CREATE INDEX ON cust (created_at);
INSERT INTO cust SELECT i, now() - interval '1 h' FROM generate_series(1, 19) AS i;
SELECT state FROM sweeper.register('cust', 'nineteen', deadline => 'created_at', check_every => '0');
INSERT INTO cust VALUES (20, now() - interval '1 h');
SELECT state FROM sweeper.register('cust', deadline => 'created_at', check_every => '0');
INSERT INTO cust SELECT i, now() + interval '1 h' FROM generate_series(21, 40) AS i;
SELECT state FROM sweeper.register('cust', 'half', deadline => 'created_at', check_every => '0');
SELECT sweeper.alter_policy('half', keep_for => '1 day');
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE relation = 'public.cust';
DROP TABLE cust;
-- a key has no more columns than an index may have
DO $$ BEGIN EXECUTE 'CREATE TABLE wide (id int PRIMARY KEY, d timestamptz, ' || (SELECT string_agg(format('c%s int NOT NULL DEFAULT 0', i), ', ') FROM generate_series(1, 47) AS i) || ')'; END $$;
SELECT sweeper.register('wide', deadline => 'd', key => '{id}'::text[] || ARRAY(SELECT 'c' || i FROM generate_series(1, 47) AS i));
SELECT state FROM sweeper.register('wide', deadline => 'd', key => '{id}'::text[] || ARRAY(SELECT 'c' || i FROM generate_series(1, 31) AS i), check_every => '0');
\set VERBOSITY terse
UPDATE sweeper.policy SET key = key || '{c32}'::text[] WHERE policy = 'wide';
\set VERBOSITY default
INSERT INTO wide VALUES (1, now()), (2, now());
CALL sweeper.sweep('wide') \gset
SELECT count(*) FROM wide;
SELECT sweeper.unregister('wide');
DROP TABLE wide;
