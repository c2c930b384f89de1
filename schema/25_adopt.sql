-- Well-known session tables, as data: a new one is a row and a test.

CREATE TABLE sweeper.preset (
    preset    text PRIMARY KEY,
    columns   text[] NOT NULL,   -- "name type" that a table must have
    settings  jsonb NOT NULL,    -- arguments of register()
    note      text NOT NULL
);
INSERT INTO sweeper.preset VALUES
    ('connect_pg_simple', '{sid character varying,sess json,expire timestamp without time zone}',
     '{"deadline": "expire", "audit": "hash"}',
     'express-session with connect-pg-simple; expire is local time of the application''s TimeZone'),
    ('django', '{session_key character varying,session_data text,expire_date timestamp with time zone}',
     '{"deadline": "expire_date", "audit": "hash"}', 'Django, database-backed sessions'),
    ('spring_session', '{primary_id character,session_id character,last_access_time bigint,max_inactive_interval integer,expiry_time bigint}',
     '{"deadline": "expiry_time", "unit": "ms", "audit": "hash"}', 'Spring Session JDBC; attributes go with their session');
COMMENT ON TABLE sweeper.preset IS 'Session tables that adopt() knows: the columns it looks for, and the arguments of register() it uses.';

CREATE FUNCTION sweeper._matches(relation regclass, columns text[]) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT columns <@ (SELECT array_agg(a.attname || ' ' || format_type(a.atttypid, NULL))
                       FROM pg_attribute AS a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped)
$$;
COMMENT ON FUNCTION sweeper._matches IS 'Does a relation have all these columns ("name type")?';

CREATE VIEW sweeper.adoptable WITH (security_invoker = true) AS
SELECT c.oid::regclass AS relation, p.preset, p.note,
       EXISTS (SELECT FROM sweeper.policy AS q WHERE q.relid = c.oid) AS registered
FROM pg_catalog.pg_class AS c JOIN sweeper.preset AS p ON sweeper._matches(c.oid, p.columns)
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't';
COMMENT ON VIEW sweeper.adoptable IS 'Tables of this database that adopt() would recognise.';

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
    keep_for interval DEFAULT '0',
    filter text DEFAULT NULL,
    on_null text DEFAULT 'ignore',
    action text DEFAULT 'delete',
    set_clause text DEFAULT NULL,
    on_expire regprocedure DEFAULT NULL,
    is_alive regprocedure DEFAULT NULL,
    group_by text DEFAULT NULL,
    capture text[] DEFAULT NULL,
    audit text DEFAULT NULL,
    notify_channel text DEFAULT NULL,
    notify_keys boolean DEFAULT false,
    check_every interval DEFAULT '1 s',
    max_lag interval DEFAULT '1 min',
    batch_size int DEFAULT 0,
    max_workers int DEFAULT 1,
    rate_limit int DEFAULT 0,
    backlog_rate int DEFAULT 5000,
    soft_time_limit interval DEFAULT '50 s',
    hard_time_limit interval DEFAULT '55 s',
    lock_timeout interval DEFAULT '100 ms',
    max_retries int DEFAULT 3,
    fuse_fraction real DEFAULT 0.5,
    fuse_min int DEFAULT 100,
    heartbeats boolean DEFAULT false,
    search_path text DEFAULT NULL,
    allow_replicated boolean DEFAULT false,
    start text DEFAULT 'auto',
    dry_run boolean DEFAULT false
) RETURNS sweeper.preview_result
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    known   sweeper.preset[];
    found   sweeper.preset;
    defaults jsonb;
    zone    text := timezone;
BEGIN
    IF relation IS NULL THEN
        RAISE EXCEPTION 'relation must not be null' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    SELECT pg_catalog.array_agg(p) INTO known FROM sweeper.preset AS p
    WHERE CASE WHEN adopt.preset IS NULL THEN sweeper._matches(adopt.relation, p.columns)
               ELSE p.preset OPERATOR(pg_catalog.=) adopt.preset END;
    IF known IS NULL THEN
        RAISE EXCEPTION 'cannot adopt %: %', relation,
            CASE WHEN adopt.preset IS NULL THEN 'its columns match no known session table'
                 ELSE pg_catalog.format('there is no preset "%s"', adopt.preset) END
            USING ERRCODE = 'undefined_object',
                  HINT = 'Use sweeper.register(); SELECT * FROM sweeper.preset; lists what is known.';
    END IF;
    IF pg_catalog.cardinality(known) OPERATOR(pg_catalog.>) 1 THEN
        RAISE EXCEPTION 'cannot adopt %: its columns match more than one preset', relation
            USING ERRCODE = 'ambiguous_parameter',
                  HINT = pg_catalog.format('Name one: %s.', (SELECT pg_catalog.string_agg(k.preset, ', ') FROM pg_catalog.unnest(known) AS k));
    END IF;
    found := known[1];
    IF NOT sweeper._matches(relation, found.columns) THEN
        RAISE EXCEPTION 'cannot adopt % as %: columns are missing', relation, found.preset
            USING ERRCODE = 'undefined_column', DETAIL = pg_catalog.format('It needs %s.', pg_catalog.array_to_string(found.columns, ', '));
    END IF;
    RAISE NOTICE '% is recognised as %: %', relation, found.preset, found.note
        USING DETAIL = pg_catalog.format('Its columns are %s.', pg_catalog.array_to_string(found.columns, ', '));
    IF found.preset OPERATOR(pg_catalog.=) 'connect_pg_simple' AND zone IS NULL THEN
        zone := pg_catalog.current_setting('TimeZone');
        RAISE NOTICE 'column expire is read as local time of %', zone
            USING HINT = 'If the application connects with another TimeZone, pass timezone => ''…''.';
    END IF;
    defaults := found.settings;
    RETURN sweeper.register(relation, policy, key => adopt.key,
        deadline => coalesce(adopt.deadline, defaults OPERATOR(pg_catalog.->>) 'deadline'),
        last_seen => adopt.last_seen,
        ttl => adopt.ttl,
        ttl_column => adopt.ttl_column,
        created => adopt.created,
        max_age => adopt.max_age,
        unit => coalesce(adopt.unit, defaults OPERATOR(pg_catalog.->>) 'unit'),
        timezone => zone,
        keep_for => adopt.keep_for,
        filter => adopt.filter,
        on_null => adopt.on_null,
        action => adopt.action,
        set_clause => adopt.set_clause,
        on_expire => adopt.on_expire,
        is_alive => adopt.is_alive,
        group_by => adopt.group_by,
        capture => adopt.capture,
        audit => coalesce(adopt.audit, defaults OPERATOR(pg_catalog.->>) 'audit', 'row'),
        notify_channel => adopt.notify_channel,
        notify_keys => adopt.notify_keys,
        check_every => adopt.check_every,
        max_lag => adopt.max_lag,
        batch_size => adopt.batch_size,
        max_workers => adopt.max_workers,
        rate_limit => adopt.rate_limit,
        backlog_rate => adopt.backlog_rate,
        soft_time_limit => adopt.soft_time_limit,
        hard_time_limit => adopt.hard_time_limit,
        lock_timeout => adopt.lock_timeout,
        max_retries => adopt.max_retries,
        fuse_fraction => adopt.fuse_fraction,
        fuse_min => adopt.fuse_min,
        heartbeats => adopt.heartbeats,
        search_path => adopt.search_path,
        allow_replicated => adopt.allow_replicated,
        start => adopt.start,
        dry_run => adopt.dry_run);
END
$$;
COMMENT ON FUNCTION sweeper.adopt IS
'Registers a well-known session table by its shape: says what it recognised and registers it with the preset''s arguments; every argument of register() may be given to override. Errors: 42704 not recognised, 42P08 ambiguous, and those of register().';
