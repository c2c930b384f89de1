-- Well-known session tables, as data: a new one is a row and a test.

-- columns: "name type", or "name type|type"; settings: arguments of register().
-- timezone "application" stands for what is set for the owner or the database.
CREATE TABLE sweeper.preset (
    preset    text PRIMARY KEY,
    columns   text[] NOT NULL,
    key       text[] NOT NULL,
    settings  jsonb NOT NULL,
    note      text NOT NULL
);
INSERT INTO sweeper.preset (preset, columns, key, settings, note) VALUES
    ('connect_pg_simple',
     '{sid character varying,sess json|jsonb,expire timestamp without time zone}', '{sid}',
     '{"deadline": "expire", "timezone": "application", "audit": "hash"}',
     'connect-pg-simple (express-session)'),
    ('django',
     '{session_key character varying,session_data text,expire_date timestamp with time zone}', '{session_key}',
     '{"deadline": "expire_date", "audit": "hash"}',
     'Django''s database-backed sessions'),
    ('spring_session',
     '{primary_id character,session_id character,creation_time bigint,last_access_time bigint,max_inactive_interval integer,expiry_time bigint}', '{primary_id}',
     '{"deadline": "expiry_time", "unit": "ms", "audit": "hash"}',
     'Spring Session JDBC');
COMMENT ON TABLE sweeper.preset IS
'Session tables that adopt() knows: the columns and the primary key it looks for, and the arguments of register() it gives. Keys of sessions are credentials: the audit keeps their hash.';

CREATE FUNCTION sweeper._matches(relation oid, columns text[], key text[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (
               SELECT FROM unnest(columns) AS c
               WHERE NOT EXISTS (
                   SELECT FROM pg_attribute AS a
                   WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
                     AND a.attname = split_part(c, ' ', 1)
                     AND format_type(a.atttypid, NULL) = ANY (string_to_array(substr(c, strpos(c, ' ') + 1), '|'))))
           AND EXISTS (
               SELECT FROM pg_index AS i
               WHERE i.indrelid = relation AND i.indisprimary
                 AND key = ARRAY(SELECT a.attname::text
                                 FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, n)
                                 JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                                 WHERE k.n <= i.indnkeyatts ORDER BY k.n))
$$;
COMMENT ON FUNCTION sweeper._matches IS
'Has a relation these columns ("name type|type") and this primary key?';

CREATE VIEW sweeper.adoptable WITH (security_invoker = true) AS
SELECT c.oid::regclass AS relation, p.preset, p.note,
       EXISTS (SELECT FROM sweeper.policy AS q WHERE q.relid = c.oid) AS registered
FROM pg_catalog.pg_class AS c
CROSS JOIN sweeper.preset AS p
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND sweeper._matches(c.oid, p.columns, p.key);
COMMENT ON VIEW sweeper.adoptable IS
'Tables of this database that adopt() recognises, and whether a policy sweeps them already.';

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
    on_expire regprocedure DEFAULT NULL,
    is_alive regprocedure DEFAULT NULL,
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
    start text DEFAULT 'auto',
    dry_run boolean DEFAULT false
) RETURNS sweeper.preview_result
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_adopt';
COMMENT ON FUNCTION sweeper.adopt IS
'Registers a well-known session table by its shape (columns, types, primary key): says in a NOTICE what it recognised and with which arguments it is registered, then does what register() does. preset: the one to use, if more than one matches; see table preset and view adoptable. Every other argument of register() overrides the preset''s. Errors: 42704 not recognised, 42P08 more than one preset matches, 22023 no such preset or not such a table, and those of register().';
REVOKE EXECUTE ON FUNCTION sweeper.adopt, sweeper._matches FROM PUBLIC;
