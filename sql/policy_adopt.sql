-- Session tables that adopt() knows: overrides and doubts, then each by its exact DDL.
SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres';
CREATE SCHEMA shop;
SET search_path = shop, public;
SELECT preset, columns, key, settings FROM sweeper.preset WHERE preset IN ('connect_pg_simple', 'django', 'spring_session') ORDER BY preset;
CREATE TABLE "Sessions" (sid varchar NOT NULL COLLATE "default" PRIMARY KEY, sess jsonb NOT NULL, expire timestamp(6) NOT NULL);
CREATE INDEX ON "Sessions" (expire);
INSERT INTO "Sessions" SELECT i::text, '{}', now() + (i - 4) * interval '1 min' FROM generate_series(1, 10) AS i;
CREATE TABLE no_key (sid varchar NOT NULL, sess json NOT NULL, expire timestamp NOT NULL);
CREATE TABLE naive (session_key varchar(40) PRIMARY KEY, session_data text, expire_date date);
CREATE TABLE spring_session (primary_id char(36) PRIMARY KEY, session_id char(36) NOT NULL UNIQUE, creation_time bigint NOT NULL, last_access_time bigint NOT NULL,
    max_inactive_interval int NOT NULL, expiry_time bigint NOT NULL, principal_name varchar(100));
CREATE TABLE spring_session_attributes (session_primary_id char(36) NOT NULL REFERENCES spring_session ON DELETE CASCADE, attribute_name varchar(200) NOT NULL,
    attribute_bytes bytea NOT NULL, PRIMARY KEY (session_primary_id, attribute_name));
SELECT relation, preset, registered FROM sweeper.adoptable WHERE relation::text NOT LIKE 'public.%' ORDER BY 1;
-- a dry run says all of it and writes nothing; keys are shown hashed
SELECT policy, state, dead_estimate, length(sample_keys[1]) AS digits FROM sweeper.adopt('"Sessions"', dry_run => true);
SELECT registered FROM sweeper.adoptable WHERE relation = '"Sessions"'::regclass;
-- the zone is given
SELECT dead_estimate FROM sweeper.adopt('"Sessions"', timezone => 'America/New_York', dry_run => true);
\set VERBOSITY terse
SELECT sweeper.register('"Sessions"', deadline => 'expire');
\set VERBOSITY default
-- overrides
SELECT policy, state FROM sweeper.adopt('"Sessions"', policy => 'shop', audit => 'row', keep_for => '1 h', check_every => '0', start => 'paused');
SELECT deadline, timezone, audit, keep_for, check_every, key FROM sweeper.policy WHERE policy = 'shop';
SELECT relation FROM sweeper.adoptable WHERE registered AND relation = '"Sessions"'::regclass;
SELECT sweeper.adopt('"Sessions"', policy => 'shop');
SELECT sweeper.unregister('shop');
INSERT INTO spring_session SELECT i, i, e, e, 1800, e + 1800000, NULL FROM generate_series(1, 5) AS i, LATERAL (SELECT (extract(epoch FROM now()) * 1000)::bigint - i * 1000000 AS e) AS e;
INSERT INTO spring_session_attributes SELECT i, a, '' FROM generate_series(1, 5) AS i, unnest('{x,y}'::text[]) AS a;
CREATE INDEX ON spring_session (expiry_time);
SELECT dead_estimate, cascade_rows_per_parent > 0 AS cascades, index_used FROM sweeper.adopt('spring_session', start => 'paused');
SELECT deadline, unit, audit, key FROM sweeper.policy WHERE policy = 'shop.spring_session';
-- activity instead of the preset's deadline
SELECT dead_estimate FROM sweeper.adopt('spring_session', policy => 'idle', last_seen => 'last_access_time', ttl_column => 'max_inactive_interval', dry_run => true);
-- doubts
SELECT sweeper.adopt('no_key');
SELECT sweeper.adopt('naive');
SELECT sweeper.adopt('naive', preset => 'django');
SELECT sweeper.adopt('naive', preset => 'djanko');
SELECT sweeper.adopt(NULL);
SELECT sweeper.adopt('sweeper.adoptable');
BEGIN;
INSERT INTO sweeper.preset SELECT 'house_sessions', columns, key, settings, 'our own sessions' FROM sweeper.preset WHERE preset = 'connect_pg_simple';
SELECT relation, preset FROM sweeper.adoptable WHERE relation = '"Sessions"'::regclass ORDER BY 2;
SAVEPOINT s;
SELECT sweeper.adopt('"Sessions"');
ROLLBACK TO s;
SELECT state FROM sweeper.adopt('"Sessions"', preset => 'house_sessions');
ROLLBACK;
CREATE ROLE regress_guest;
CREATE ROLE regress_host;
ALTER TABLE "Sessions" OWNER TO regress_host;
GRANT USAGE ON SCHEMA shop TO regress_guest;
SELECT FROM sweeper.grant_access('regress_guest', 'user');
SET ROLE regress_guest;
SELECT sweeper.adopt('"Sessions"');
RESET ROLE;
SELECT FROM sweeper.revoke_access('regress_guest');
REVOKE ALL ON SCHEMA shop FROM regress_guest;
SELECT sweeper.unregister('shop.spring_session');
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA shop CASCADE;
DROP ROLE regress_guest, regress_host;
RESET datestyle; RESET intervalstyle;
-- Each session table that adopt() knows, by its exact DDL: recognised, the dead go, the living stay.
SET client_min_messages = warning;
SET timezone = 'UTC';
CREATE SCHEMA wild;
SET search_path = wild;
-- makes the table, fills it with rows of which the first three are dead, adopts it, sweeps; what is left must be the living
CREATE FUNCTION public.adopted(tab text, preset text, fill text, more text DEFAULT '', OUT recognised text)
LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE format('INSERT INTO %s %s', tab, fill);
    SELECT string_agg(a.preset, ' ' ORDER BY a.preset) INTO recognised FROM sweeper.adoptable AS a WHERE a.relation = tab::regclass;
    EXECUTE format('SELECT FROM sweeper.adopt(%L, policy => %L, check_every => ''0'', start => ''now'', fuse_fraction => 1 %s)', tab, preset, more);
EXCEPTION WHEN undefined_function THEN
    -- the preset needs a function: what the hint says is pasted
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    EXECUTE format('INSERT INTO %s %s', tab, fill);
    EXECUTE substring(hint FROM ': (.*)');
END $$;
CREATE FUNCTION public.at(i int) RETURNS timestamptz LANGUAGE sql AS $$ SELECT now() + CASE WHEN i <= 3 THEN interval '-100 days' ELSE interval '100 days' END $$;
CREATE FUNCTION public.seen(i int) RETURNS timestamptz LANGUAGE sql AS $$ SELECT now() - CASE WHEN i <= 3 THEN interval '100 days' ELSE interval '1 min' END $$;
CREATE FUNCTION public.utc(t timestamptz) RETURNS timestamp LANGUAGE sql AS $$ SELECT t AT TIME ZONE 'UTC' $$;
CREATE FUNCTION public.epoch(t timestamptz) RETURNS bigint LANGUAGE sql AS $$ SELECT extract(epoch FROM t)::bigint $$;
SET search_path = wild, public;
-- connect-pg-simple
CREATE TABLE "session" ("sid" varchar NOT NULL COLLATE "default", "sess" json NOT NULL, "expire" timestamp(6) NOT NULL) WITH (OIDS=FALSE);
ALTER TABLE "session" ADD CONSTRAINT "session_pkey" PRIMARY KEY ("sid") NOT DEFERRABLE INITIALLY IMMEDIATE;
CREATE INDEX "IDX_session_expire" ON "session" ("expire");
SELECT recognised FROM adopted('session', 'connect_pg_simple', $$SELECT i::text, '{}', utc(at(i)) FROM generate_series(1, 5) AS i$$);
-- koa-pg-session
CREATE TABLE koa (id text NOT NULL PRIMARY KEY, expiry timestamp NOT NULL, session json);
SELECT recognised FROM adopted('koa', 'koa_pg_session', $$SELECT i::text, utc(at(i)), '{}' FROM generate_series(1, 5) AS i$$);
-- Django, with and without USE_TZ
CREATE TABLE django_session (session_key varchar(40) NOT NULL PRIMARY KEY, session_data text NOT NULL, expire_date timestamptz NOT NULL);
CREATE INDEX django_session_expire_date_a5c62663 ON django_session (expire_date);
SELECT recognised FROM adopted('django_session', 'django', $$SELECT i::text, '', at(i) FROM generate_series(1, 5) AS i$$);
CREATE TABLE django_naive (session_key varchar(40) NOT NULL PRIMARY KEY, session_data text NOT NULL, expire_date timestamp NOT NULL);
SELECT recognised FROM adopted('django_naive', 'django_naive', $$SELECT i::text, '', utc(at(i)) FROM generate_series(1, 5) AS i$$);
-- Rails
CREATE TABLE rails (id bigserial PRIMARY KEY, session_id character varying NOT NULL, data text, created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL);
CREATE UNIQUE INDEX index_sessions_on_session_id ON rails (session_id);
CREATE INDEX index_sessions_on_updated_at ON rails (updated_at);
SELECT recognised FROM adopted('rails', 'rails', $$SELECT i, i::text, '', now() - interval '1 year', utc(seen(i)) FROM generate_series(1, 5) AS i$$);
-- Spring Session
CREATE TABLE SPRING_SESSION (PRIMARY_ID CHAR(36) NOT NULL, SESSION_ID CHAR(36) NOT NULL, CREATION_TIME BIGINT NOT NULL, LAST_ACCESS_TIME BIGINT NOT NULL,
    MAX_INACTIVE_INTERVAL INT NOT NULL, EXPIRY_TIME BIGINT NOT NULL, PRINCIPAL_NAME VARCHAR(100), CONSTRAINT SPRING_SESSION_PK PRIMARY KEY (PRIMARY_ID));
CREATE INDEX SPRING_SESSION_IX2 ON SPRING_SESSION (EXPIRY_TIME);
SELECT recognised FROM adopted('spring_session', 'spring_session', $$SELECT i::text, i::text, 0, 0, 1800, 1000 * epoch(at(i)) FROM generate_series(1, 5) AS i$$);
-- Laravel 8 and later; 5.2 to 7
CREATE TABLE laravel ("id" varchar(255) NOT NULL, "user_id" bigint NULL, "ip_address" varchar(45) NULL, "user_agent" text NULL, "payload" text NOT NULL, "last_activity" integer NOT NULL);
ALTER TABLE laravel ADD PRIMARY KEY ("id");
CREATE INDEX "sessions_last_activity_index" ON laravel ("last_activity");
SELECT recognised FROM adopted('laravel', 'laravel', $$SELECT i::text, NULL, NULL, NULL, '', epoch(seen(i)) FROM generate_series(1, 5) AS i$$);
CREATE TABLE laravel5 ("id" varchar(255) NOT NULL, "user_id" integer NULL, "ip_address" varchar(45) NULL, "user_agent" text NULL, "payload" text NOT NULL, "last_activity" integer NOT NULL);
ALTER TABLE laravel5 ADD CONSTRAINT "sessions_id_unique" UNIQUE ("id");
SELECT recognised FROM adopted('laravel5', 'laravel5', $$SELECT i::text, NULL, NULL, NULL, '', epoch(seen(i)) FROM generate_series(1, 5) AS i$$);
-- Symfony: a deadline since 4.4, which has an index; a lifetime before; both in a table that was upgraded
CREATE TABLE symfony (sess_id VARCHAR(128) NOT NULL PRIMARY KEY, sess_data BYTEA NOT NULL, sess_lifetime INTEGER NOT NULL, sess_time INTEGER NOT NULL);
CREATE TABLE symfony_old (LIKE symfony INCLUDING ALL);
CREATE TABLE symfony_new (LIKE symfony INCLUDING ALL);
CREATE INDEX sess_lifetime_idx ON symfony_new (sess_lifetime);
CREATE INDEX ON symfony (sess_lifetime);
SELECT recognised FROM adopted('symfony', 'symfony', $$SELECT i::text, '', epoch(at(i)), epoch(now()) FROM generate_series(1, 5) AS i$$);
SELECT recognised FROM adopted('symfony_old', 'symfony_old', $$SELECT i::text, '', 1440, epoch(seen(i)) FROM generate_series(1, 5) AS i$$);
SELECT deadline FROM sweeper.policy WHERE policy = 'symfony' UNION ALL SELECT last_seen FROM sweeper.policy WHERE policy = 'symfony_old';
SELECT recognised FROM adopted('symfony_new', 'symfony_new', 'SELECT $$1$$, $$$$, 1, 1 WHERE false');
SELECT deadline, filter FROM sweeper.policy WHERE policy = 'symfony_new';
INSERT INTO symfony_new SELECT i::text, '', epoch(at(i)), epoch(now()) FROM generate_series(1, 5) AS i;
INSERT INTO symfony_new SELECT 'old' || i, '', 1440, epoch(seen(i)) FROM generate_series(1, 5) AS i;
SELECT FROM sweeper.adopt('symfony_new', 'symfony_relative', policy => 'symfony_left', check_every => '0', start => 'now', fuse_fraction => 1);
-- Keycloak 26: which sessions, is asked
CREATE TABLE offline_user_session (user_session_id varchar(36) NOT NULL, user_id varchar(255) NOT NULL, realm_id varchar(36) NOT NULL, created_on integer NOT NULL,
    offline_flag varchar(4) NOT NULL, data text, last_session_refresh integer NOT NULL DEFAULT 0, broker_session_id varchar(1024), version integer DEFAULT 0, remember_me boolean,
    CONSTRAINT constraint_offl_us_ses_pk2 PRIMARY KEY (user_session_id, offline_flag));
CREATE TABLE offline_client_session (user_session_id varchar(36) NOT NULL, client_id varchar(255) NOT NULL, offline_flag varchar(4) NOT NULL, "timestamp" integer, data text,
    client_storage_provider varchar(36) NOT NULL DEFAULT 'local', external_client_id varchar(255) NOT NULL DEFAULT 'local', version integer DEFAULT 0, realm_id varchar(36),
    CONSTRAINT constraint_offl_cl_ses_pk3 PRIMARY KEY (user_session_id, client_id, client_storage_provider, external_client_id, offline_flag));
SELECT adopted('offline_user_session', 'keycloak', 'SELECT $$$$, $$$$, $$$$, 1, $$$$ WHERE false');
INSERT INTO offline_client_session SELECT i, c, f, 0 FROM generate_series(1, 5) AS i, unnest('{a,b}'::text[]) AS c, unnest('{0,1}'::text[]) AS f;
SELECT recognised FROM adopted('offline_user_session', 'keycloak_online', $$SELECT i::text, 'u', 'r', epoch(seen(i)), f, '', epoch(seen(i)) FROM generate_series(1, 5) AS i, unnest('{0,1}'::text[]) AS f$$, $$, preset => 'keycloak_online'$$);
SELECT FROM sweeper.adopt('offline_user_session', 'keycloak_offline', policy => 'keycloak_offline', on_expire => 'sweeper_keycloak_online(text[])', check_every => '0', start => 'now', fuse_fraction => 1);
-- scs
CREATE TABLE scs (token TEXT PRIMARY KEY, data BYTEA NOT NULL, expiry TIMESTAMPTZ NOT NULL);
CREATE INDEX sessions_expiry_idx ON scs (expiry);
SELECT recognised FROM adopted('scs', 'scs', $$SELECT i::text, '', at(i) FROM generate_series(1, 5) AS i$$);
-- Flask-Session, both back ends
CREATE TABLE flask (id serial NOT NULL, session_id varchar(255), data bytea, expiry timestamp without time zone, PRIMARY KEY (id), UNIQUE (session_id));
SELECT recognised FROM adopted('flask', 'flask_session', $$SELECT i, i::text, '', utc(at(i)) FROM generate_series(1, 5) AS i$$);
CREATE TABLE flask_sessions (session_id varchar(255) NOT NULL PRIMARY KEY, created timestamp without time zone DEFAULT (now() AT TIME ZONE 'utc'), data bytea, expiry timestamp without time zone);
CREATE UNIQUE INDEX uq_flask_sessions_session_id ON flask_sessions (session_id);
CREATE INDEX flask_sessions_expiry_idx ON flask_sessions (expiry);
SELECT recognised FROM adopted('flask_sessions', 'flask_session_pg', $$SELECT i::text, now(), '', utc(at(i)) FROM generate_series(1, 5) AS i$$);
-- Superset: what has no deadline stays
CREATE TABLE key_value (id serial NOT NULL, resource varchar(32) NOT NULL, value bytea NOT NULL, uuid uuid, created_on timestamp without time zone, created_by_fk integer,
    changed_on timestamp without time zone, changed_by_fk integer, expires_on timestamp without time zone, PRIMARY KEY (id));
CREATE INDEX ix_key_value_expires_on ON key_value (expires_on);
SELECT recognised FROM adopted('key_value', 'superset', $$SELECT i, 'app', '', NULL, NULL, NULL, NULL, NULL, CASE WHEN i < 5 THEN utc(at(i)) END FROM generate_series(1, 5) AS i$$);
-- Auth.js: pg, Supabase, Prisma as it was; Drizzle; Prisma; verification tokens
CREATE TABLE authjs (id SERIAL, "userId" INTEGER NOT NULL, expires TIMESTAMPTZ NOT NULL, "sessionToken" VARCHAR(255) NOT NULL, PRIMARY KEY (id));
SELECT recognised FROM adopted('authjs', 'authjs', $$SELECT i, 1, at(i), i::text FROM generate_series(1, 5) AS i$$);
CREATE TABLE authjs_drizzle ("sessionToken" text PRIMARY KEY NOT NULL, "userId" text NOT NULL, "expires" timestamp NOT NULL);
SELECT recognised FROM adopted('authjs_drizzle', 'authjs_drizzle', $$SELECT i::text, 'u', utc(at(i)) FROM generate_series(1, 5) AS i$$);
CREATE TABLE "Session" ("sessionToken" TEXT NOT NULL, "userId" TEXT NOT NULL, "expires" TIMESTAMP(3) NOT NULL, "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP, "updatedAt" TIMESTAMP(3) NOT NULL);
CREATE UNIQUE INDEX "Session_sessionToken_key" ON "Session"("sessionToken");
SELECT recognised FROM adopted('"Session"', 'authjs_prisma', $$SELECT i::text, 'u', utc(at(i)), now(), now() FROM generate_series(1, 5) AS i$$);
CREATE TABLE verification_token (identifier TEXT NOT NULL, expires TIMESTAMPTZ NOT NULL, token TEXT NOT NULL, PRIMARY KEY (identifier, token));
SELECT recognised FROM adopted('verification_token', 'authjs_verification', $$SELECT i::text, at(i), 't' FROM generate_series(1, 5) AS i$$);
-- Better Auth: its own migration, Drizzle, verifications
CREATE TABLE better ("id" text NOT NULL PRIMARY KEY, "expiresAt" timestamptz NOT NULL, "token" text NOT NULL UNIQUE, "createdAt" timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "updatedAt" timestamptz NOT NULL, "ipAddress" text, "userAgent" text, "userId" text NOT NULL);
SELECT recognised FROM adopted('better', 'better_auth', $$SELECT i::text, at(i), i::text, now(), now(), '', '', 'u' FROM generate_series(1, 5) AS i$$);
CREATE TABLE better_drizzle (id text PRIMARY KEY, expires_at timestamp NOT NULL, token text NOT NULL UNIQUE, created_at timestamp NOT NULL DEFAULT now(), updated_at timestamp NOT NULL,
    ip_address text, user_agent text, user_id text NOT NULL);
SELECT recognised FROM adopted('better_drizzle', 'better_auth_drizzle', $$SELECT i::text, utc(at(i)), i::text, now(), now(), '', '', 'u' FROM generate_series(1, 5) AS i$$);
CREATE TABLE verification ("id" text NOT NULL PRIMARY KEY, "identifier" text NOT NULL, "value" text NOT NULL, "expiresAt" timestamptz NOT NULL,
    "createdAt" timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP, "updatedAt" timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP);
SELECT recognised FROM adopted('verification', 'better_auth_verification', $$SELECT i::text, 'x', 'y', at(i) FROM generate_series(1, 5) AS i$$);
-- Supabase Auth
CREATE TYPE aal_level AS ENUM ('aal1', 'aal2', 'aal3');
CREATE TABLE supa_sessions (id uuid NOT NULL PRIMARY KEY, user_id uuid NOT NULL, created_at timestamptz, updated_at timestamptz, factor_id uuid, aal aal_level, not_after timestamptz,
    refreshed_at timestamp without time zone, user_agent text, ip inet, tag text);
CREATE INDEX sessions_not_after_idx ON supa_sessions (not_after DESC);
ALTER TABLE supa_sessions ENABLE ROW LEVEL SECURITY;
CREATE TABLE refresh_tokens (instance_id uuid, id bigserial NOT NULL PRIMARY KEY, token varchar(255), user_id varchar(255), revoked boolean, created_at timestamptz, updated_at timestamptz,
    parent varchar(255), session_id uuid REFERENCES supa_sessions ON DELETE CASCADE);
CREATE INDEX refresh_tokens_updated_at_idx ON refresh_tokens (updated_at DESC);
SELECT recognised FROM adopted('supa_sessions', 'supabase_session', $$SELECT lpad(i::text, 32, '0')::uuid, gen_random_uuid(), now(), now(), NULL, 'aal1', at(i) FROM generate_series(1, 5) AS i$$);
SELECT recognised FROM adopted('refresh_tokens', 'supabase_refresh_token', $$SELECT NULL, i, i::text, 'u', i <> 2, now(), seen(i), NULL, NULL FROM generate_series(1, 5) AS i$$);
-- Ory Kratos
CREATE TABLE kratos (id uuid NOT NULL PRIMARY KEY, issued_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, expires_at timestamp NOT NULL, authenticated_at timestamp NOT NULL, identity_id uuid NOT NULL,
    created_at timestamp NOT NULL, updated_at timestamp NOT NULL, token varchar(39), active boolean DEFAULT false, nid uuid, logout_token varchar(39), aal varchar(4) NOT NULL DEFAULT 'aal1', authentication_methods jsonb NOT NULL);
CREATE INDEX sessions_list_active_idx ON kratos (nid, expires_at, active, created_at DESC, id);
SELECT recognised FROM adopted('kratos', 'kratos', $$SELECT lpad(i::text, 32, '0')::uuid, now(), utc(at(i)), now(), gen_random_uuid(), now(), now(), i::text, true, NULL, i::text, 'aal1', '[]' FROM generate_series(1, 5) AS i$$);
-- Doorkeeper: who has a refresh token, or no end, stays until it is revoked
CREATE TABLE oauth_access_tokens (id bigserial PRIMARY KEY, resource_owner_id bigint, application_id bigint NOT NULL, token character varying NOT NULL, refresh_token character varying, expires_in integer,
    scopes character varying, created_at timestamp(6) NOT NULL, revoked_at timestamp(6), previous_refresh_token character varying NOT NULL DEFAULT '');
CREATE TABLE oauth_access_grants (id bigserial PRIMARY KEY, resource_owner_id bigint NOT NULL, application_id bigint NOT NULL, token character varying NOT NULL, expires_in integer NOT NULL, redirect_uri text NOT NULL,
    scopes character varying NOT NULL DEFAULT '', created_at timestamp(6) NOT NULL, revoked_at timestamp(6));
SELECT recognised FROM adopted('oauth_access_tokens', 'doorkeeper_token', $$VALUES (1, 1, 1, 'a', NULL, 7200, '', utc(seen(1)), NULL), (2, 1, 1, 'b', 'r', 7200, '', utc(seen(1)), utc(seen(1))),
    (3, 1, 1, 'c', NULL, NULL, '', utc(seen(1)), utc(seen(1))), (4, 1, 1, 'd', 'r', 7200, '', utc(seen(1)), NULL), (5, 1, 1, 'e', NULL, NULL, '', utc(seen(1)), NULL), (6, 1, 1, 'f', NULL, 7200, '', utc(seen(9)), NULL)$$);
SELECT recognised FROM adopted('oauth_access_grants', 'doorkeeper_grant', $$SELECT i, 1, 1, i::text, 600, '', '', utc(seen(i)) FROM generate_series(1, 5) AS i$$);
-- CodeIgniter 3, 4
CREATE TABLE ci3 ("id" varchar(128) NOT NULL, "ip_address" varchar(45) NOT NULL, "timestamp" bigint DEFAULT 0 NOT NULL, "data" text DEFAULT '' NOT NULL);
CREATE INDEX ci3_timestamp ON ci3 ("timestamp");
SELECT recognised FROM adopted('ci3', 'codeigniter3', $$SELECT i::text, '::1', epoch(seen(i)) FROM generate_series(1, 5) AS i$$);
CREATE TABLE ci4 ("id" varchar(128) NOT NULL, "ip_address" inet NOT NULL, "timestamp" timestamptz DEFAULT CURRENT_TIMESTAMP NOT NULL, "data" bytea DEFAULT '' NOT NULL);
ALTER TABLE ci4 ADD PRIMARY KEY (id, ip_address);
SELECT recognised FROM adopted('ci4', 'codeigniter4', $$SELECT i::text, '::1', seen(i) FROM generate_series(1, 5) AS i$$);
-- they live to the end of their last second
SELECT policy, keep_for FROM sweeper.policy WHERE policy ~ '^(symfony|laravel|codeigniter3)' ORDER BY policy;
-- MCP gateway: messages go before their sessions
CREATE TABLE mcp_sessions (session_id varchar(255) NOT NULL, created_at timestamptz NOT NULL, last_accessed timestamptz NOT NULL, data text, PRIMARY KEY (session_id));
CREATE TABLE mcp_messages (id serial NOT NULL, session_id varchar(255) NOT NULL, message text, created_at timestamptz NOT NULL, last_accessed timestamptz NOT NULL, PRIMARY KEY (id),
    FOREIGN KEY (session_id) REFERENCES mcp_sessions (session_id));
SELECT recognised FROM adopted('mcp_sessions', 'mcp_gateway', $$SELECT i::text, now(), seen(i), '' FROM generate_series(1, 5) AS i$$);
INSERT INTO mcp_messages (session_id, created_at, last_accessed) SELECT i, now(), now() FROM generate_series(1, 5) AS i, generate_series(1, 3);
-- pg-boss 12, and 10's archive
CREATE SCHEMA pgboss;
CREATE TYPE pgboss.job_state AS ENUM ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
CREATE TABLE pgboss.job (id uuid NOT NULL DEFAULT gen_random_uuid(), name text NOT NULL, priority integer NOT NULL DEFAULT 0, data jsonb, state pgboss.job_state NOT NULL DEFAULT 'created',
    retry_limit integer NOT NULL DEFAULT 2, retry_count integer NOT NULL DEFAULT 0, retry_delay integer NOT NULL DEFAULT 0, retry_backoff boolean NOT NULL DEFAULT false, retry_delay_max integer,
    expire_seconds int NOT NULL DEFAULT 900, deletion_seconds int NOT NULL DEFAULT 604800, singleton_key text, singleton_on timestamp without time zone, start_after timestamptz NOT NULL DEFAULT now(),
    created_on timestamptz NOT NULL DEFAULT now(), started_on timestamptz, completed_on timestamptz, keep_until timestamptz NOT NULL DEFAULT now() + interval '1209600', output jsonb, dead_letter text, policy text)
    PARTITION BY LIST (name);
ALTER TABLE pgboss.job ADD PRIMARY KEY (name, id);
CREATE TABLE pgboss.job_common PARTITION OF pgboss.job DEFAULT;
SELECT recognised FROM adopted('pgboss.job', 'pg_boss', $$(id, name, state, completed_on, keep_until, deletion_seconds) VALUES (lpad('1', 32, '0')::uuid, 'q', 'completed', seen(1), at(9), 604800),
    (lpad('2', 32, '0')::uuid, 'q', 'created', NULL, at(1), 604800), (lpad('3', 32, '0')::uuid, 'q', 'failed', seen(1), at(1), 604800), (lpad('4', 32, '0')::uuid, 'q', 'active', NULL, at(1), 604800),
    (lpad('5', 32, '0')::uuid, 'q', 'completed', seen(1), at(1), 0), (lpad('6', 32, '0')::uuid, 'q', 'completed', seen(9), at(1), 604800)$$);
CREATE TABLE pgboss.archive (id uuid NOT NULL, name text NOT NULL, completed_on timestamptz, keep_until timestamptz NOT NULL, expire_in interval NOT NULL DEFAULT '15 min', archived_on timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (name, id));
CREATE INDEX archive_i1 ON pgboss.archive (archived_on);
SELECT recognised FROM adopted('pgboss.archive', 'pg_boss_archive', $$SELECT lpad(i::text, 32, '0')::uuid, 'q', now(), now(), '1 min', seen(i) FROM generate_series(1, 5) AS i$$);
-- Solid Queue: what a dead process had claimed fails
CREATE TABLE solid_queue_processes (id bigserial PRIMARY KEY, kind character varying NOT NULL, last_heartbeat_at timestamp(6) NOT NULL, supervisor_id bigint, pid integer NOT NULL, hostname character varying,
    metadata text, created_at timestamp(6) NOT NULL, name character varying NOT NULL);
CREATE INDEX index_solid_queue_processes_on_last_heartbeat_at ON solid_queue_processes (last_heartbeat_at);
CREATE TABLE solid_queue_claimed_executions (id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE, process_id bigint, created_at timestamp(6) NOT NULL);
CREATE TABLE solid_queue_failed_executions (id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE, error text, created_at timestamp(6) NOT NULL);
SELECT recognised FROM adopted('solid_queue_processes', 'solid_queue', $$SELECT i, 'Worker', utc(seen(i)), NULL, i, 'h', '', now(), i::text FROM generate_series(1, 5) AS i$$);
INSERT INTO solid_queue_claimed_executions SELECT i, 100 + i, i, now() FROM generate_series(1, 5) AS i;
-- GoodJob: jobs are free again; what has an advisory lock is not ours
CREATE TABLE good_job_processes (id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY, created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL, state jsonb, lock_type smallint);
CREATE TABLE good_jobs (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), locked_by_id uuid, locked_at timestamp(6));
SELECT recognised FROM adopted('good_job_processes', 'good_job', $$SELECT lpad(i::text, 32, '0')::uuid, now(), utc(seen(i)), '{}', CASE WHEN i = 2 THEN 0 END FROM generate_series(1, 5) AS i$$);
INSERT INTO good_jobs SELECT lpad(i::text, 32, 'a')::uuid, lpad(i::text, 32, '0')::uuid, now() FROM generate_series(1, 5) AS i;
-- Hangfire
CREATE SCHEMA hangfire;
CREATE TABLE hangfire.server (id text NOT NULL PRIMARY KEY, data jsonb, lastheartbeat timestamptz NOT NULL, updatecount integer NOT NULL DEFAULT 0);
CREATE TABLE hangfire.job (id bigserial PRIMARY KEY, stateid bigint, statename text, invocationdata jsonb NOT NULL, arguments jsonb NOT NULL, createdat timestamptz NOT NULL, expireat timestamptz, updatecount integer NOT NULL DEFAULT 0);
CREATE INDEX ix_hangfire_job_expireat ON hangfire.job (expireat);
CREATE TABLE hangfire.state (id bigserial PRIMARY KEY, jobid bigint NOT NULL REFERENCES hangfire.job ON UPDATE CASCADE ON DELETE CASCADE, name text NOT NULL, createdat timestamptz NOT NULL);
CREATE TABLE hangfire.jobqueue (id bigserial PRIMARY KEY, jobid bigint NOT NULL, queue text NOT NULL, fetchedat timestamptz, updatecount integer NOT NULL DEFAULT 0);
CREATE TABLE hangfire."set" (id bigserial PRIMARY KEY, key text NOT NULL, score float8 NOT NULL, value text NOT NULL, expireat timestamptz, updatecount integer NOT NULL DEFAULT 0, UNIQUE (key, value));
SELECT recognised FROM adopted('hangfire.server', 'hangfire_server', $$SELECT i::text, '{}', seen(i) FROM generate_series(1, 5) AS i$$);
SELECT recognised FROM adopted('hangfire.job', 'hangfire_job', $$SELECT i, 1, 's', '{}', '[]', now(), CASE WHEN i < 5 THEN at(i) END FROM generate_series(1, 5) AS i$$);
SELECT recognised FROM adopted('hangfire."set"', 'hangfire_data', $$SELECT i, i::text, 1, 'v', at(i) FROM generate_series(1, 5) AS i$$);
INSERT INTO hangfire.state SELECT i, i, 's', now() FROM generate_series(1, 5) AS i;
INSERT INTO hangfire.jobqueue SELECT i, i, 'q', NULL FROM generate_series(1, 5) AS i;
-- every policy that was made has a pass; what is left is what should be
SELECT format('CALL sweeper.sweep(%L)', policy) FROM sweeper.policy WHERE relation LIKE ANY ('{wild.%,pgboss.%,hangfire.%}') ORDER BY policy
\o /dev/null
\gexec
\o
SELECT p.policy, p.audit, d.expired, d.failed FROM sweeper.policy AS p LEFT JOIN sweeper.pass AS d USING (policy_id)
WHERE p.relation LIKE ANY ('{wild.%,pgboss.%,hangfire.%}') ORDER BY 1;
-- keys that are credentials: only their hash is kept
SELECT p.audit, min(length(e.key)), max(length(e.key)) FROM sweeper.cleanup_event AS e JOIN sweeper.policy AS p USING (policy_id) WHERE p.audit = 'hash' GROUP BY 1;
SELECT key FROM sweeper.failed_row;
SELECT string_agg(user_session_id || '/' || offline_flag, ' ' ORDER BY 1) FROM offline_user_session;
SELECT count(*), count(*) FILTER (WHERE offline_flag = '0' AND user_session_id <= '3') AS of_the_dead FROM offline_client_session;
SELECT string_agg(id::text, ' ' ORDER BY id) AS tokens FROM oauth_access_tokens;
SELECT string_agg(ltrim(id::text, '0-'), ' ' ORDER BY id) AS jobs FROM pgboss.job;
SELECT string_agg(ltrim(id::text, '0-'), ' ' ORDER BY id) AS processes FROM good_job_processes;
SELECT count(*), count(locked_by_id) AS locked FROM good_jobs;
SELECT (SELECT count(*) FROM mcp_messages) AS messages, (SELECT string_agg(job_id::text, ' ' ORDER BY job_id) FROM solid_queue_claimed_executions) AS claimed, (SELECT string_agg(job_id::text, ' ' ORDER BY job_id) FROM solid_queue_failed_executions) AS failed;
SELECT (SELECT count(*) FROM hangfire.job) AS jobs, (SELECT count(*) FROM hangfire.state) AS states, (SELECT count(*) FROM hangfire.jobqueue) AS queued;
SELECT string_agg(sess_id, ' ' ORDER BY sess_id) FROM symfony_new;
-- what adopt() says, and what it makes
SELECT p.proname, p.proowner = c.relowner AS of_the_owner FROM pg_proc AS p, pg_class AS c WHERE p.proname LIKE 'sweeper\_%' AND p.pronamespace = 'wild'::regnamespace AND c.oid = 'mcp_sessions'::regclass ORDER BY 1;
SELECT sweeper.unregister('mcp_gateway');
SET client_min_messages = notice;
SELECT FROM sweeper.adopt('mcp_sessions', check_every => '0');
SELECT policy, advice FROM sweeper.adopt('mcp_sessions', check_every => '0', on_expire => 'sweeper_mcp_gateway(text[])');
CREATE INDEX ON mcp_messages (session_id);
SELECT policy FROM sweeper.adopt('symfony_new', policy => 'again', dry_run => true);
SET client_min_messages = warning;
-- a lifetime that is the application's setting: most rows would go by the default, and nobody has said that it is right
SELECT preset, settings -> 'ttl' AS ttl, settings -> 'max_age' AS max_age, lifetime FROM sweeper.preset WHERE builtin AND settings ?| '{ttl,max_age}' AND NOT settings ? 'heartbeats' ORDER BY 1;
CREATE TABLE living (LIKE laravel INCLUDING ALL);
INSERT INTO living SELECT i, NULL, NULL, NULL, '', epoch(now() - i * interval '50 min') FROM generate_series(1, 6) AS i;
SET client_min_messages = notice;
SELECT policy, state, dead_estimate, advice FROM sweeper.adopt('living', dry_run => true);
SELECT policy, state, dead_estimate, advice FROM sweeper.adopt('living');
SELECT state, reason FROM sweeper.policy_status WHERE policy = 'wild.living';
SELECT * FROM sweeper.resume_all() WHERE policy = 'wild.living';
SELECT state, reason FROM sweeper.policy_status WHERE policy = 'wild.living';
SELECT sweeper.alter_policy('wild.living', ttl => '30 days'), sweeper.resume('wild.living');
SELECT state FROM sweeper.adopt('living', policy => 'meant', check_every => '0', start => 'now');
SELECT state FROM sweeper.adopt('living', policy => 'given', check_every => '0', ttl => '2 hours');
DELETE FROM living WHERE id::int > 5;
SELECT state FROM sweeper.adopt('living', policy => 'few', check_every => '0');
DELETE FROM living WHERE id::int > 3;
INSERT INTO living SELECT 100 + i, NULL, NULL, NULL, '', epoch(now()) FROM generate_series(1, 6) AS i;
SELECT state, dead_estimate FROM sweeper.adopt('living', policy => 'one of many', check_every => '0');
SELECT state FROM sweeper.adopt('offline_user_session', 'keycloak_online', policy => 'age', ttl => '200 days', filter => 'true', on_expire => 'sweeper_keycloak_online(text[])', dry_run => true);
SET client_min_messages = warning;
-- what a filter chooses are still the preset's rows
SELECT policy FROM sweeper.adopt('offline_user_session', 'keycloak_online', policy => 'realm', start => 'paused', on_expire => 'sweeper_keycloak_online(text[])', filter => $$realm_id = 'r' OR true$$);
SELECT filter FROM sweeper.policy WHERE policy = 'realm';
-- a sample tells of no dead row: what nobody knows is not taken for none
CREATE TABLE vast (LIKE laravel INCLUDING ALL) WITH (autovacuum_enabled = off);
INSERT INTO vast SELECT i, NULL, NULL, NULL, '', epoch(now() - CASE i WHEN 77777 THEN interval '1 day' ELSE '0' END) FROM generate_series(1, 100000) AS i;
DROP INDEX vast_last_activity_idx;
SELECT state, exact FROM sweeper.adopt('vast', check_every => '0');
CREATE TABLE realms (LIKE offline_user_session INCLUDING ALL) WITH (autovacuum_enabled = off);
INSERT INTO realms SELECT i, 'u', 'r', epoch(now()), CASE WHEN i % 3000 = 0 THEN '1' ELSE '0' END, '', epoch(now() - CASE WHEN i % 3000 = 0 THEN interval '40 d' ELSE '0' END) FROM generate_series(1, 60000) AS i;
SELECT state FROM sweeper.adopt('realms', 'keycloak_offline', on_expire => 'sweeper_keycloak_online(text[])', check_every => '0');
-- the hook finds what is quoted in a row's text
INSERT INTO offline_client_session (user_session_id, client_id, offline_flag) SELECT k, 'c', '1' FROM unnest(ARRAY['a b', 'a,b', '(p)', ')', 'b\s', 'q"q', '', 'p']) AS k;
SELECT count(*) FROM offline_client_session WHERE client_id = 'c';
SELECT FROM sweeper_keycloak_online((SELECT array_agg(ROW(user_session_id, offline_flag)::text) FROM offline_client_session WHERE client_id = 'c'));
SELECT count(*) FROM offline_client_session WHERE client_id = 'c';
-- whose local time: that of the session is a guess, and the policy is held
CREATE TABLE local (sid character varying PRIMARY KEY, sess json NOT NULL, expire timestamp(6) NOT NULL);
CREATE INDEX ON local (expire);
INSERT INTO local SELECT i, '{}', now() AT TIME ZONE 'UTC' + i * interval '1 h' FROM generate_series(-1, 9) AS i;
SELECT state FROM sweeper.adopt('local', policy => 'sure', check_every => '0');
SET timezone = 'Asia/Tokyo';
SET client_min_messages = notice;
SELECT state, dead_estimate FROM sweeper.adopt('local', check_every => '0');
SET client_min_messages = warning;
SELECT state, dead_estimate FROM sweeper.adopt('local', policy => 'told', check_every => '0', timezone => 'UTC');
SELECT policy, timezone FROM sweeper.policy WHERE policy IN ('wild.local', 'told') ORDER BY 1;
SET timezone = 'UTC';
-- a table with columns that no known version has may be anything: it is held, unless somebody says what it is
CREATE TABLE agent (id text PRIMARY KEY, data jsonb, lastheartbeat timestamptz, name text);
INSERT INTO agent SELECT i, '{}', now() - interval '1 d', 'n' FROM generate_series(1, 5) AS i;
CREATE TABLE naming (LIKE django_session INCLUDING ALL, name text);
SELECT preset, exact FROM sweeper.adoptable WHERE relation IN ('agent'::regclass, 'naming'::regclass, 'django_session'::regclass) ORDER BY 1, 2;
SET client_min_messages = notice;
SELECT state, dead_estimate FROM sweeper.adopt('agent', check_every => '0');
SELECT state FROM sweeper.adopt('naming', check_every => '0');
SELECT state FROM sweeper.adopt('naming', preset => 'django', policy => 'named', check_every => '0');
SET client_min_messages = warning;
SELECT relation, preset FROM sweeper.adoptable WHERE NOT exact AND relation::text !~ '(agent|naming)' ORDER BY 1, 2;
-- a key that somebody prefers may be a credential
CREATE UNIQUE INDEX ON authjs ("sessionToken");
SELECT FROM sweeper.adopt('authjs', policy => 'by token', key => '{sessionToken}', start => 'paused');
SELECT FROM sweeper.adopt('authjs', policy => 'by token, seen', key => '{sessionToken}', audit => 'row', start => 'paused');
SELECT policy, audit FROM sweeper.policy WHERE policy LIKE 'by token%' ORDER BY 1;
-- pg-boss has the schema that one gives it; what else has such columns is not Hangfire's
ALTER TYPE pgboss.job_state SET SCHEMA wild;
SELECT preset FROM sweeper.adoptable WHERE relation = 'pgboss.job'::regclass;
CREATE TABLE licence (id bigint PRIMARY KEY, key text NOT NULL, expireat timestamptz NOT NULL);
INSERT INTO licence VALUES (1, 'k', now());
SELECT FROM sweeper.adopt('licence', dry_run => true);
-- what is missing
SELECT FROM sweeper.adopt('local', 'django', dry_run => true);
SET client_min_messages = notice;
-- an index that is there is not asked for; whose local time
SELECT advice FROM sweeper.adopt('mcp_sessions', policy => 'indexed', ttl => '1 hour', on_expire => 'sweeper_mcp_gateway(text[])', dry_run => true);
INSERT INTO key_value (id, resource, value, expires_on) SELECT 100 + i, 'app', '', now() AT TIME ZONE 'UTC' + i * interval '1 h' FROM generate_series(-1, 9) AS i;
SELECT state FROM sweeper.adopt('key_value', policy => 'host', check_every => '0');
SELECT state FROM sweeper.adopt('flask_sessions', policy => 'session', dry_run => true);
-- the function that a preset needs is the table owner's to make; a function of another role is refused
CREATE ROLE regress_preset_owner;
CREATE ROLE regress_preset_other;
CREATE SCHEMA "o'ne";
GRANT ALL ON SCHEMA "o'ne" TO regress_preset_owner, regress_preset_other;
CREATE TABLE "o'ne".mcp_sessions (LIKE mcp_sessions INCLUDING ALL);
ALTER TABLE "o'ne".mcp_sessions OWNER TO regress_preset_owner;
SELECT FROM sweeper.adopt('"o''ne".mcp_sessions', policy => 'hooked', dry_run => true);
SET ROLE regress_preset_other;
CREATE FUNCTION "o'ne".sweeper_mcp_gateway(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
RESET ROLE;
SELECT FROM sweeper.adopt('"o''ne".mcp_sessions', policy => 'hooked');
SELECT FROM sweeper.adopt('"o''ne".mcp_sessions', policy => 'hooked', on_expire => '"o''ne".sweeper_mcp_gateway(text[])');
-- rows of one's own: no settings, arrays
INSERT INTO sweeper.preset (preset, note, columns, key, settings) VALUES
('bare', 'our own', '{bare integer,d timestamp with time zone}', '{bare}', '{}'),
('arrays', 'our own', '{arrays integer,d timestamp with time zone}', '{arrays}', '{"deadline": "d", "capture": ["a \"b\"", "arrays"], "key": ["arrays"], "max_workers": 2, "allow_replicated": true, "filter": null}');
INSERT INTO sweeper.preset (preset, note, columns, key, settings) VALUES ('list', 'our own', '{a integer}', '{}', '[]');
CREATE TABLE bare (bare int PRIMARY KEY, d timestamptz);
CREATE TABLE arrays (arrays int PRIMARY KEY, d timestamptz, "a ""b""" text);
SELECT preset FROM sweeper.adoptable WHERE relation IN ('bare'::regclass, 'arrays'::regclass) ORDER BY 1;
\set VERBOSITY terse
SELECT FROM sweeper.adopt('bare');
SELECT FROM sweeper.adopt('bare', deadline => 'd', policy => 'bare', check_every => '0');
SELECT FROM sweeper.adopt('arrays', policy => 'arrays', check_every => '0');
\set VERBOSITY default
SELECT policy, deadline, key, capture, max_workers, allow_replicated, filter FROM sweeper.policy WHERE policy IN ('bare', 'arrays') ORDER BY 1;
DELETE FROM sweeper.preset WHERE NOT builtin;
SET client_min_messages = warning;
DROP SCHEMA "o'ne" CASCADE;
DROP ROLE regress_preset_owner, regress_preset_other;
SELECT count(*) FROM (SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE relation LIKE ANY ('{wild.%,pgboss.%,hangfire.%}')) AS u;
DROP SCHEMA wild, pgboss, hangfire CASCADE;
DROP FUNCTION public.adopted, public.at, public.seen, public.utc, public.epoch;
