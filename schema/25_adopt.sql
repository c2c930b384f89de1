-- Well-known session tables, as data: a new one needs a row and a test.

-- columns: "name type|type"; the type may be of any schema.  key: the unique key; {}: any.
-- indexed: a column that leads an index.  beside: a relation of the same schema.
-- settings: arguments of register().  A timezone is left out if the column has one;
--   "session" stands for the zone of the session that calls adopt().
-- hook: the body of an SQL function for on_expire; $1 are keys as text[], {schema} is
--   the table's schema.
-- advice: what else the user should know.  lifetime: the same, if ttl or max_age is not
--   given and depends on a setting of the application.
-- others: names of further columns of known versions.
-- Some software counts in whole seconds, and a session lives to the end of its last
-- one: then keep_for is that second.
CREATE TABLE sweeper.preset (
    preset    text PRIMARY KEY,
    columns   text[] NOT NULL,
    key       text[] NOT NULL,
    settings  jsonb NOT NULL CHECK (pg_catalog.jsonb_typeof(settings) = 'object'),
    note      text NOT NULL,
    indexed   text,
    beside    text,
    hook      text,
    advice    text,
    lifetime  text,
    others    text[] NOT NULL DEFAULT '{}',
    builtin   boolean NOT NULL DEFAULT false
);
SELECT pg_catalog.pg_extension_config_dump('sweeper.preset', 'WHERE NOT builtin');

INSERT INTO sweeper.preset (preset, note, columns, key, settings) VALUES
('connect_pg_simple', 'connect-pg-simple (express-session)',
 '{sid character varying,sess json|jsonb,expire timestamp without time zone|timestamp with time zone}', '{sid}',
 '{"deadline": "expire", "timezone": "session", "audit": "hash"}'),
('koa_pg_session', 'koa-pg-session',
 '{id text,expiry timestamp without time zone,session json|jsonb}', '{id}',
 '{"deadline": "expiry", "timezone": "session", "audit": "hash"}'),
('django', 'Django''s database-backed sessions',
 '{session_key character varying,session_data text,expire_date timestamp without time zone|timestamp with time zone}', '{session_key}',
 '{"deadline": "expire_date", "timezone": "session", "audit": "hash"}'),
('spring_session', 'Spring Session JDBC',
 '{primary_id character,session_id character,creation_time bigint,last_access_time bigint,max_inactive_interval integer,expiry_time bigint}', '{primary_id}',
 '{"deadline": "expiry_time", "unit": "ms", "audit": "hash"}'),
('scs', 'scs (postgresstore, pgxstore)',
 '{token text,data bytea,expiry timestamp with time zone}', '{token}',
 '{"deadline": "expiry", "audit": "hash"}'),
('flask_session', 'Flask-Session (SQLAlchemy)',
 '{id integer,session_id character varying,data bytea|text,expiry timestamp without time zone}', '{id}',
 '{"deadline": "expiry", "timezone": "UTC"}'),
('flask_session_pg', 'Flask-Session (PostgreSQL)',
 '{session_id character varying,created timestamp without time zone,data bytea,expiry timestamp without time zone}', '{session_id}',
 '{"deadline": "expiry", "timezone": "session", "audit": "hash"}'),
('superset', 'Superset''s key_value',
 '{id integer,resource character varying,value bytea,uuid uuid,expires_on timestamp without time zone}', '{id}',
 '{"deadline": "expires_on", "timezone": "session"}'),
('authjs', 'Auth.js (NextAuth)',
 '{id integer|uuid|text,userId integer|uuid|text,expires timestamp without time zone|timestamp with time zone,sessionToken character varying|text}', '{id}',
 '{"deadline": "expires", "timezone": "UTC"}'),
('authjs_token', 'Auth.js (Drizzle, Prisma)',
 '{sessionToken text,userId text,expires timestamp without time zone|timestamp with time zone}', '{sessionToken}',
 '{"deadline": "expires", "timezone": "UTC", "audit": "hash"}'),
('authjs_verification', 'Auth.js'' verification tokens',
 '{identifier text,token text,expires timestamp without time zone|timestamp with time zone}', '{}',
 '{"deadline": "expires", "timezone": "UTC", "audit": "hash"}'),
('better_auth', 'Better Auth',
 '{id text|integer|uuid,token text,userId text|integer|uuid,expiresAt timestamp without time zone|timestamp with time zone}', '{id}',
 '{"deadline": "expiresAt", "timezone": "UTC"}'),
('better_auth_drizzle', 'Better Auth (Drizzle)',
 '{id text|integer|uuid,token text,user_id text|integer|uuid,expires_at timestamp without time zone|timestamp with time zone,ip_address text,user_agent text}', '{id}',
 '{"deadline": "expires_at", "timezone": "UTC"}'),
('better_auth_verification', 'Better Auth''s verifications',
 '{id text|integer|uuid,identifier text,value text,expiresAt timestamp without time zone|timestamp with time zone}', '{id}',
 '{"deadline": "expiresAt", "timezone": "UTC"}'),
('supabase_session', 'Supabase Auth''s sessions',
 '{id uuid,user_id uuid,created_at timestamp with time zone,not_after timestamp with time zone,refreshed_at timestamp without time zone}', '{id}',
 '{"deadline": "not_after", "keep_for": "72 hours"}'),
('supabase_refresh_token', 'Supabase Auth''s refresh tokens',
 '{id bigint,token character varying,revoked boolean,parent character varying,updated_at timestamp with time zone,session_id uuid}', '{id}',
 '{"last_seen": "updated_at", "ttl": "24 hours", "filter": "revoked"}'),
('kratos', 'Ory Kratos',
 '{id uuid,issued_at timestamp without time zone,expires_at timestamp without time zone,authenticated_at timestamp without time zone,identity_id uuid,token character varying,nid uuid}', '{id}',
 '{"deadline": "expires_at", "timezone": "UTC"}'),
('doorkeeper_token', 'Doorkeeper''s access tokens',
 '{id bigint|integer,token character varying|text,refresh_token character varying,expires_in integer,created_at timestamp without time zone|timestamp with time zone,revoked_at timestamp without time zone|timestamp with time zone}', '{id}',
 '{"deadline": "least(revoked_at, CASE WHEN refresh_token IS NULL THEN created_at + make_interval(secs => expires_in) END)", "timezone": "UTC"}'),
('doorkeeper_grant', 'Doorkeeper''s access grants',
 '{id bigint|integer,token character varying|text,expires_in integer,redirect_uri text,created_at timestamp without time zone|timestamp with time zone,revoked_at timestamp without time zone|timestamp with time zone}', '{id}',
 '{"deadline": "least(revoked_at, created_at + make_interval(secs => expires_in))", "timezone": "UTC"}');

INSERT INTO sweeper.preset (preset, note, columns, key, settings, advice) VALUES
('pg_boss', 'pg-boss 11 and 12: jobs whose retention is over',
 '{id uuid,name text,started_on timestamp with time zone,completed_on timestamp with time zone,keep_until timestamp with time zone,expire_seconds integer,deletion_seconds integer,state job_state}', '{name,id}',
 '{"deadline": "CASE WHEN state < ''active'' THEN keep_until WHEN deletion_seconds > 0 THEN completed_on + make_interval(secs => deletion_seconds) END"}',
 'Jobs that are active for too long, or without a heartbeat, stay with pg-boss''s own supervision, which retries them.');

INSERT INTO sweeper.preset (preset, note, columns, key, settings, lifetime) VALUES
('rails', 'Rails (activerecord-session_store)',
 '{id bigint|integer,session_id character varying,data text,created_at timestamp without time zone|timestamp with time zone,updated_at timestamp without time zone|timestamp with time zone}', '{id}',
 '{"last_seen": "updated_at", "ttl": "30 days", "timezone": "UTC"}',
 'The lifetime is the default of activerecord-session_store''s trim task. Give ttl if SESSION_DAYS_TRIM_THRESHOLD, or expire_after of the session store, is different.'),
('laravel', 'Laravel',
 '{id character varying,payload text,last_activity integer}', '{id}',
 '{"last_seen": "last_activity", "ttl": "2 hours", "unit": "s", "keep_for": "1 s", "audit": "hash"}',
 'The lifetime is Laravel''s default. Give ttl if SESSION_LIFETIME (in minutes; lifetime in config/session.php) is different.'),
('codeigniter3', 'CodeIgniter 3, or 4 before 4.1.2',
 '{id character varying,ip_address character varying,timestamp bigint,data text}', '{}',
 '{"last_seen": "timestamp", "ttl": "2 hours", "unit": "s", "keep_for": "1 s", "audit": "hash"}',
 'The lifetime is CodeIgniter''s default. Give ttl if sess_expiration, or sessionExpiration of CodeIgniter 4, is different.'),
('codeigniter4', 'CodeIgniter 4',
 '{id character varying,ip_address inet,timestamp timestamp with time zone,data bytea}', '{}',
 '{"last_seen": "timestamp", "ttl": "2 hours", "audit": "hash"}',
 'The lifetime is CodeIgniter''s default. Give ttl if expiration in Config\Session, or before 4.3 sessionExpiration in Config\App, is different.'),
('pg_boss_archive', 'pg-boss 10: archived jobs',
 '{id uuid,name text,completed_on timestamp with time zone,keep_until timestamp with time zone,archived_on timestamp with time zone,expire_in interval}', '{name,id}',
 '{"last_seen": "archived_on", "ttl": "7 days"}',
 'The time is pg-boss''s default. Give ttl if deleteAfterDays, or another of its deleteAfter settings, differs.'),
('hangfire_server', 'Hangfire''s servers',
 '{id text|character varying,data jsonb|text,lastheartbeat timestamp without time zone|timestamp with time zone}', '{id}',
 '{"last_seen": "lastheartbeat", "ttl": "5 min", "timezone": "UTC"}',
 'The time is Hangfire''s default. Give ttl if ServerTimeout is different.');

INSERT INTO sweeper.preset (preset, note, columns, key, settings, indexed, hook, advice, lifetime) VALUES
('symfony', 'Symfony''s PdoSessionHandler, 4.4 and later',
 '{sess_id character varying,sess_data bytea,sess_lifetime integer,sess_time integer}', '{sess_id}',
 '{"deadline": "sess_lifetime", "unit": "s", "keep_for": "1 s", "filter": "sess_lifetime > 315576000", "audit": "hash"}',
 'sess_lifetime', NULL,
 'Rows that a version before 4.4 wrote have a lifetime of less than ten years of seconds there, and are not swept. Preset symfony_relative, with another policy name, is for them.', NULL),
('symfony_relative', 'Symfony''s PdoSessionHandler, 2.6 to 4.3',
 '{sess_id character varying,sess_data bytea,sess_lifetime integer,sess_time integer}', '{sess_id}',
 '{"last_seen": "sess_time", "ttl_column": "sess_lifetime", "unit": "s", "keep_for": "1 s", "filter": "sess_lifetime <= 315576000", "audit": "hash"}',
 NULL, NULL, NULL, NULL),
('keycloak_online', 'Keycloak''s online sessions',
 '{user_session_id character varying,realm_id character varying,offline_flag character varying,created_on integer,last_session_refresh integer}', '{user_session_id,offline_flag}',
 '{"last_seen": "last_session_refresh", "ttl": "30 min", "created": "created_on", "max_age": "10 hours", "unit": "s", "keep_for": "3 min", "filter": "offline_flag = ''0''"}',
 NULL,
 'DELETE FROM {schema}.offline_client_session AS c USING unnest($1) AS k WHERE c.user_session_id = coalesce(replace(replace(substring(k FROM ''^\("((?:[^"]|"")*)"''), ''""'', ''"''), ''\\'', ''\''), split_part(substr(k, 2), '','', 1)) AND ROW(c.user_session_id, c.offline_flag)::text = k',
 'Keycloak''s caches and events do not notice it.',
 'The lifetimes are Keycloak''s defaults. Give ttl and max_age of the realm that keeps sessions longest, or adopt each realm with a filter and a policy name of its own; sessions with "remember me" may live longer.'),
('keycloak_offline', 'Keycloak''s offline sessions',
 '{user_session_id character varying,realm_id character varying,offline_flag character varying,created_on integer,last_session_refresh integer}', '{user_session_id,offline_flag}',
 '{"last_seen": "last_session_refresh", "ttl": "30 days", "unit": "s", "keep_for": "3 min", "filter": "offline_flag = ''1''"}',
 NULL,
 'DELETE FROM {schema}.offline_client_session AS c USING unnest($1) AS k WHERE c.user_session_id = coalesce(replace(replace(substring(k FROM ''^\("((?:[^"]|"")*)"''), ''""'', ''"''), ''\\'', ''\''), split_part(substr(k, 2), '','', 1)) AND ROW(c.user_session_id, c.offline_flag)::text = k',
 'Keycloak''s caches and events do not notice it.',
 'The lifetime is Keycloak''s default. Give ttl of the realm that keeps offline sessions longest.'),
('mcp_gateway', 'MCP gateway (Context Forge)',
 '{session_id character varying,created_at timestamp without time zone|timestamp with time zone,last_accessed timestamp without time zone|timestamp with time zone,data text|character varying}', '{session_id}',
 '{"last_seen": "last_accessed", "ttl": "1 hour", "timezone": "UTC", "audit": "hash"}',
 NULL, 'DELETE FROM {schema}.mcp_messages WHERE session_id = ANY ($1)',
 NULL, 'The lifetime is the gateway''s default. Give ttl if SESSION_TTL (in seconds) is different.'),
('solid_queue', 'Solid Queue''s processes',
 '{id bigint,kind character varying,last_heartbeat_at timestamp without time zone|timestamp with time zone,supervisor_id bigint,pid integer,hostname character varying}', '{id}',
 '{"last_seen": "last_heartbeat_at", "ttl": "5 min", "timezone": "UTC"}',
 NULL,
 'WITH gone AS (DELETE FROM {schema}.solid_queue_claimed_executions WHERE process_id = ANY ($1::bigint[]) RETURNING job_id) INSERT INTO {schema}.solid_queue_failed_executions (job_id, error, created_at) SELECT job_id, ''{"exception_class":"SolidQueue::Processes::ProcessPrunedError","message":"Process was found dead and pruned","backtrace":[]}'', now() AT TIME ZONE ''UTC'' FROM gone ON CONFLICT (job_id) DO NOTHING',
 NULL, 'The time is Solid Queue''s default. Give ttl if process_alive_threshold is different.'),
('good_job', 'GoodJob''s processes',
 '{id uuid,created_at timestamp without time zone|timestamp with time zone,updated_at timestamp without time zone|timestamp with time zone,state jsonb,lock_type smallint}', '{id}',
 '{"last_seen": "updated_at", "ttl": "5 min", "timezone": "UTC", "filter": "lock_type IS NULL"}',
 NULL,
 'UPDATE {schema}.good_jobs SET locked_by_id = NULL, locked_at = NULL WHERE locked_by_id = ANY ($1::uuid[])',
 'Processes that hold an advisory lock (lock_type 0) are left to GoodJob.', NULL),
('hangfire_job', 'Hangfire''s jobs',
 '{id bigint|integer,stateid bigint|integer,statename text|character varying,createdat timestamp without time zone|timestamp with time zone,expireat timestamp without time zone|timestamp with time zone}', '{id}',
 '{"deadline": "expireat", "timezone": "UTC"}', NULL,
 'DELETE FROM {schema}.jobqueue WHERE jobid = ANY ($1::bigint[])', NULL, NULL),
('hangfire_data', 'Hangfire''s sets, lists, hashes and counters',
 '{id bigint|integer,key text|character varying,expireat timestamp without time zone|timestamp with time zone}', '{id}',
 '{"deadline": "expireat", "timezone": "UTC"}',
 NULL, NULL, NULL, NULL);
-- Job queues: jobs of workers that died run again soon, as the queue itself would have it after its own time-out.
-- Workers send a heartbeat for what they run.  So these are only for those who name them: adopt() does not recognise them.
INSERT INTO sweeper.preset (preset, note, columns, key, settings, hook, lifetime)
SELECT v.preset, v.note, v.columns, v.key, v.settings || '{"ttl": "3 s", "heartbeats": true, "check_every": "500 ms"}', v.hook,
       'Workers that send no heartbeats lose what they run: confirm with resume() when all of them do. Give ttl if they may be silent for longer, for example while they are busy.'
FROM (VALUES
-- a job without another attempt, or one that a waiting job of its key could exclude, is over its time for pg-boss's own supervision
('pg-boss running', 'pg-boss 12: jobs that run',
 '{id uuid,name text,state job_state,retry_limit integer,retry_count integer,retry_delay integer,retry_backoff boolean,retry_delay_max integer,expire_seconds integer,start_after timestamp with time zone,started_on timestamp with time zone,policy text,output jsonb,heartbeat_on timestamp with time zone}'::text[],
 '{name,id}'::text[], pg_catalog.jsonb_build_object('last_seen', 'started_on', 'action', 'update',
 'filter', 'state = ''active'' AND heartbeat_on IS DISTINCT FROM ''-infinity''',
 'set_clause', 'state = CASE WHEN retry_count < retry_limit AND policy IS DISTINCT FROM ''stately'' THEN ''retry'' ELSE state END, '
 'start_after = CASE WHEN retry_count >= retry_limit OR policy IS NOT DISTINCT FROM ''stately'' THEN start_after '
 'WHEN retry_backoff THEN now() + make_interval(secs => least(retry_delay_max, greatest(retry_delay, 1) * 2 ^ least(16, retry_count + 1) * (0.5 + random() / 2))) '
 'ELSE now() + make_interval(secs => retry_delay) END, '
 'output = ''{"value": {"message": "job heartbeat timeout"}}'', '
 'heartbeat_on = CASE WHEN retry_count < retry_limit AND policy IS DISTINCT FROM ''stately'' THEN NULL ELSE ''-infinity''::timestamptz END, '
 'started_on = CASE WHEN retry_count < retry_limit AND policy IS DISTINCT FROM ''stately'' THEN started_on ELSE started_on - make_interval(secs => expire_seconds) END'), NULL),
('graphile-worker running', 'graphile-worker: jobs that run',
 '{id bigint,job_queue_id integer,task_id integer,run_at timestamp with time zone,attempts smallint,max_attempts smallint,locked_at timestamp with time zone,locked_by text}',
 '{id}', pg_catalog.jsonb_build_object('last_seen', 'locked_at', 'action', 'update', 'filter', 'locked_at IS NOT NULL', 'notify_channel', 'jobs:insert',
 'set_clause', 'locked_at = NULL, locked_by = NULL, run_at = greatest(run_at, now())'),
 'UPDATE {schema}._private_job_queues AS q SET locked_at = NULL, locked_by = NULL FROM {schema}._private_jobs AS j WHERE j.id = ANY ($1::bigint[]) AND q.id = j.job_queue_id AND q.locked_by = j.locked_by'),
('River running', 'River: jobs that run',
 '{id bigint,state river_job_state,attempt smallint,max_attempts smallint,attempted_at timestamp with time zone,attempted_by text[],errors jsonb[],finalized_at timestamp with time zone,scheduled_at timestamp with time zone}',
 '{id}', pg_catalog.jsonb_build_object('last_seen', 'attempted_at', 'action', 'update', 'filter', 'state = ''running''',
 'set_clause', 'state = CASE WHEN attempt < max_attempts THEN ''retryable'' WHEN true THEN ''discarded'' ELSE state END, '
 'scheduled_at = CASE WHEN attempt < max_attempts THEN now() + make_interval(secs => (coalesce(cardinality(errors), 0) + 1) ^ 4 * (0.9 + random() / 5)) ELSE scheduled_at END, '
 'finalized_at = CASE WHEN attempt < max_attempts THEN NULL ELSE now() END, '
 'errors = array_append(errors, jsonb_build_object(''at'', now(), ''attempt'', attempt, ''error'', ''Stuck job rescued by session_sweeper'', ''trace'', ''''))'), NULL),
('Oban running', 'Oban: jobs that run',
 '{id bigint,state oban_job_state,queue text,worker text,attempt integer,max_attempts integer,attempted_at timestamp without time zone,attempted_by text[],discarded_at timestamp without time zone}',
 '{id}', pg_catalog.jsonb_build_object('last_seen', 'attempted_at', 'timezone', 'UTC', 'action', 'update', 'filter', 'state = ''executing''',
 'set_clause', 'state = CASE WHEN attempt < max_attempts THEN ''available'' WHEN true THEN ''discarded'' ELSE state END, '
 'discarded_at = CASE WHEN attempt < max_attempts THEN discarded_at ELSE now() AT TIME ZONE ''UTC'' END'), NULL),
('Solid Queue running', 'Solid Queue: workers and the jobs that they run',
 '{id bigint,kind character varying,last_heartbeat_at timestamp without time zone|timestamp with time zone,supervisor_id bigint,pid integer,hostname character varying}',
 '{id}', '{"last_seen": "last_heartbeat_at", "timezone": "UTC", "filter": "kind = ''Worker''"}',
 'WITH gone AS (DELETE FROM {schema}.solid_queue_claimed_executions WHERE process_id = ANY ($1::bigint[]) RETURNING job_id) INSERT INTO {schema}.solid_queue_ready_executions (job_id, queue_name, priority, created_at) SELECT j.id, j.queue_name, j.priority, now() AT TIME ZONE ''UTC'' FROM gone AS g JOIN {schema}.solid_queue_jobs AS j ON j.id = g.job_id ON CONFLICT (job_id) DO NOTHING'),
('GoodJob running', 'GoodJob: processes without an advisory lock, and the jobs that they run',
 '{id uuid,created_at timestamp without time zone|timestamp with time zone,updated_at timestamp without time zone|timestamp with time zone,state jsonb,lock_type smallint}',
 '{id}', '{"last_seen": "updated_at", "timezone": "UTC", "filter": "lock_type IS NULL"}',
 'UPDATE {schema}.good_jobs SET locked_by_id = NULL, locked_at = NULL WHERE locked_by_id = ANY ($1::uuid[])')) AS v (preset, note, columns, key, settings, hook);
UPDATE sweeper.preset SET beside = 'jobqueue' WHERE preset = 'hangfire_data';
UPDATE sweeper.preset AS p SET others = v.names FROM (VALUES
('spring_session', '{principal_name}'::text[]), ('superset', '{created_on,created_by_fk,changed_on,changed_by_fk}'),
('authjs_token', '{id,createdAt,updatedAt}'), ('better_auth', '{createdAt,updatedAt,ipAddress,userAgent}'),
('better_auth_drizzle', '{created_at,updated_at}'), ('better_auth_verification', '{createdAt,updatedAt}'),
('supabase_session', '{updated_at,factor_id,aal,user_agent,ip,tag,oauth_client_id,refresh_token_hmac_key,refresh_token_counter,scopes}'),
('supabase_refresh_token', '{instance_id,user_id,created_at}'),
('kratos', '{created_at,updated_at,active,logout_token,aal,authentication_methods,organization_id}'),
('doorkeeper_token', '{resource_owner_id,resource_owner_type,application_id,scopes,previous_refresh_token}'),
('doorkeeper_grant', '{resource_owner_id,resource_owner_type,application_id,scopes,code_challenge,code_challenge_method}'),
('pg_boss', '{priority,data,retry_limit,retry_count,retry_delay,retry_backoff,retry_delay_max,start_after,singleton_key,singleton_on,created_on,output,dead_letter,policy,group_id,group_tier,heartbeat_on,heartbeat_seconds}'),
('pg_boss_archive', '{priority,data,state,retry_limit,retry_count,retry_delay,retry_backoff,start_after,started_on,singleton_key,singleton_on,created_on,output,dead_letter,policy}'),
('laravel', '{user_id,ip_address,user_agent}'), ('hangfire_server', '{updatecount}'),
('keycloak_online', '{user_id,data,broker_session_id,version,remember_me}'), ('keycloak_offline', '{user_id,data,broker_session_id,version,remember_me}'),
('solid_queue', '{metadata,created_at,name}'),
('hangfire_job', '{invocationdata,arguments,updatecount}'), ('hangfire_data', '{value,score,field,updatecount}')) AS v (preset, names)
WHERE p.preset = v.preset;
UPDATE sweeper.preset SET builtin = true;

COMMENT ON TABLE sweeper.preset IS
'Session tables that adopt() recognises: by columns, unique key and index. settings are the arguments of register(). A preset with heartbeats is only used if adopt() names it. Keys that are credentials are hashed in the audit. Insert a row to add a table; a dump contains the rows that are not builtin.';

CREATE FUNCTION sweeper._matches(relation oid, columns text[], key text[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (
               SELECT FROM unnest(columns) AS c
               WHERE NOT EXISTS (
                   SELECT FROM pg_attribute AS a
                   WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
                     AND a.attname = split_part(c, ' ', 1)
                     AND substring(format_type(a.atttypid, NULL) FROM '[^.]*$') = ANY (string_to_array(substr(c, strpos(c, ' ') + 1), '|'))))
           AND (key = '{}' OR EXISTS (
               SELECT FROM pg_index AS i
               WHERE i.indrelid = relation AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid
                 AND i.indnkeyatts = cardinality(key)
                 AND NOT EXISTS (
                     SELECT FROM unnest(key) AS k (name)
                     WHERE NOT EXISTS (
                         SELECT FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS x (attnum, n)
                         JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = x.attnum AND a.attnotnull
                         WHERE x.n <= i.indnkeyatts AND a.attname = k.name))))
$$;
COMMENT ON FUNCTION sweeper._matches IS
'Does a relation have these columns ("name type|type") and this unique key without nulls ({}: any)?';

CREATE FUNCTION sweeper._surplus(relation oid, columns text[], others text[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute AS a
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
      AND a.attname::text <> ALL (others) AND a.attname::text <> ALL (ARRAY(SELECT split_part(c, ' ', 1) FROM unnest(columns) AS c))
$$;
COMMENT ON FUNCTION sweeper._surplus IS 'Columns of a relation that are in neither list; null if there are none.';

CREATE FUNCTION sweeper._indexed(relation oid, column_name text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = relation AND a.attname = column_name)
$$;
COMMENT ON FUNCTION sweeper._indexed IS 'Does the column lead an index of the relation?';

-- If one preset requires all that another one does, and more columns or an index, only the first counts.
CREATE FUNCTION sweeper._presets(relation oid) RETURNS SETOF sweeper.preset
LANGUAGE sql STABLE ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
    WITH named AS MATERIALIZED (
        SELECT p, ARRAY(SELECT split_part(c, ' ', 1) FROM unnest(p.columns) AS c) AS names FROM sweeper.preset AS p WHERE NOT p.settings ? 'heartbeats'),
    found AS MATERIALIZED (
        SELECT p, names FROM named
        -- cheap test first: most relations do not have the names
        WHERE CASE WHEN names <@ ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = relation AND attnum > 0) THEN sweeper._matches(relation, (p).columns, (p).key) END
          AND ((p).indexed IS NULL OR sweeper._indexed(relation, (p).indexed))
          AND ((p).beside IS NULL OR EXISTS (SELECT FROM pg_class AS c JOIN pg_class AS b USING (relnamespace) WHERE c.oid = relation AND b.relname = (p).beside)))
    SELECT (f.p).* FROM found AS f
    WHERE NOT EXISTS (SELECT FROM found AS g WHERE f.names <@ g.names AND (NOT g.names <@ f.names OR ((f.p).indexed IS NULL AND (g.p).indexed IS NOT NULL)))
$$;
COMMENT ON FUNCTION sweeper._presets IS
'Presets that match a relation by columns, key and index. A preset is left out if another one that matches requires more, or if it needs workers that send heartbeats.';

CREATE FUNCTION sweeper._adopt(relation oid, wanted text, OUT preset text, OUT note text, OUT hook text, OUT advice text, OUT lifetime text,
    OUT columns text, OUT misfit text, OUT surplus text, OUT settings text[]) RETURNS SETOF record
LANGUAGE sql STABLE ROWS 1 SET search_path = pg_catalog, pg_temp AS $$
    SELECT p.preset, p.note, (SELECT replace(p.hook, '{schema}', quote_ident(n.nspname)) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = relation),
           p.advice, p.lifetime, x.names,
           CASE WHEN NOT sweeper._matches(relation, p.columns, p.key) THEN coalesce('Missing columns: ' || x.missing || '.', format('It has no unique key %s without nulls.', p.key)) END,
           sweeper._surplus(relation, p.columns, p.others),
           ARRAY(SELECT v.item FROM jsonb_each(p.settings) AS e, LATERAL (VALUES (1, e.key), (2, CASE jsonb_typeof(e.value)
                     WHEN 'array' THEN ARRAY(SELECT jsonb_array_elements_text(e.value))::text ELSE e.value #>> '{}' END)) AS v (n, item) ORDER BY e.key, v.n)
    FROM sweeper.preset AS p
    CROSS JOIN LATERAL (
        SELECT string_agg(split_part(u.c, ' ', 1), ', ' ORDER BY u.n) AS names,
               string_agg(u.c, ', ' ORDER BY u.n) FILTER (WHERE NOT sweeper._matches(relation, ARRAY[u.c], '{}')) AS missing
        FROM unnest(p.columns) WITH ORDINALITY AS u (c, n)) AS x
    WHERE CASE WHEN wanted IS NULL THEN p.preset IN (SELECT f.preset FROM sweeper._presets(relation) AS f) ELSE p.preset = wanted END
    ORDER BY p.preset
$$;
COMMENT ON FUNCTION sweeper._adopt IS
'The preset of a name, or without one those that match a relation, as adopt() reads them. misfit: why the relation is no such table. settings: names and values in turn.';

CREATE VIEW sweeper.adoptable WITH (security_invoker = true) AS
SELECT c.oid::regclass AS relation, p.preset, p.note, sweeper._surplus(c.oid, p.columns, p.others) IS NULL AS exact,
       EXISTS (SELECT FROM sweeper.policy AS q WHERE q.relid = c.oid) AS registered
FROM pg_catalog.pg_class AS c
CROSS JOIN LATERAL sweeper._presets(c.oid) AS p
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'sweeper'::regnamespace);
COMMENT ON VIEW sweeper.adoptable IS
'Tables of this database that adopt() recognises. exact: the table has the columns of a known version and no others. registered: a policy sweeps it already.';

CREATE FUNCTION sweeper.adopt(
    relation regclass,
    preset text DEFAULT NULL,
    policy text DEFAULT NULL,
    key text[] DEFAULT NULL,
    deadline text DEFAULT NULL,
    last_seen text DEFAULT NULL,
    ttl interval DEFAULT NULL,
    ttl_column text DEFAULT NULL,
    created text DEFAULT NULL,
    max_age interval DEFAULT NULL,
    unit text DEFAULT NULL,
    timezone text DEFAULT NULL,
    keep_for interval DEFAULT NULL,
    filter text DEFAULT NULL,
    on_null text DEFAULT NULL,
    action text DEFAULT NULL,
    set_clause text DEFAULT NULL,
    on_expire text DEFAULT NULL,
    is_alive text DEFAULT NULL,
    group_by text DEFAULT NULL,
    capture text[] DEFAULT NULL,
    audit text DEFAULT NULL,
    notify_channel text DEFAULT NULL,
    notify_keys boolean DEFAULT NULL,
    check_every interval DEFAULT NULL,
    max_lag interval DEFAULT NULL,
    batch_size int DEFAULT NULL,
    max_workers int DEFAULT NULL,
    rate_limit int DEFAULT NULL,
    backlog_rate int DEFAULT NULL,
    soft_time_limit interval DEFAULT NULL,
    hard_time_limit interval DEFAULT NULL,
    lock_timeout interval DEFAULT NULL,
    max_retries int DEFAULT NULL,
    fuse_fraction real DEFAULT NULL,
    fuse_min int DEFAULT NULL,
    heartbeats boolean DEFAULT NULL,
    search_path text DEFAULT NULL,
    allow_replicated boolean DEFAULT NULL,
    maintenance_window text DEFAULT NULL,
    start text DEFAULT 'auto',
    if_exists text DEFAULT 'error',
    dry_run boolean DEFAULT false
) RETURNS sweeper.preview_result
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_adopt';
COMMENT ON FUNCTION sweeper.adopt IS
'Registers a well-known session table, which it recognises by columns, types and primary key. A NOTICE shows what it recognised and the arguments; then it does what register() does.
If it has to guess, the policy is held (reason assumed) until resume(), unless start is now. It guesses a lifetime or the time zone of a timestamp column that is not given. It also guesses the preset, if preset is not given and the table has columns that no known version has.
preset: the one to use, if more than one matches, or if it has heartbeats; see table preset and view adoptable. If a preset needs a function for on_expire, and none is given, it is refused; the hint is the statement that creates it. Every other argument of register() overrides the preset''s; a filter is joined to the preset''s by AND.
Errors: 42704 not recognised, 42P08 more than one preset matches, 22023 no such preset or not such a table, 42883 the preset needs on_expire, and those of register().';
REVOKE EXECUTE ON FUNCTION sweeper.adopt, sweeper._matches, sweeper._surplus, sweeper._indexed, sweeper._presets, sweeper._adopt FROM PUBLIC;
