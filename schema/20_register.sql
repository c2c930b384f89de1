-- Registration.

CREATE TYPE sweeper.preview_result AS (
    policy                  text,
    relation                text,
    state                   text,
    rows_estimate           bigint,
    dead_estimate           bigint,
    exact                   boolean,
    oldest_deadline         timestamptz,
    newest_deadline         timestamptz,
    index_used              regclass,
    cascade_rows_per_parent numeric,
    estimated_seconds       numeric,
    sample_keys             text[],
    advice                  text[]
);

CREATE FUNCTION sweeper.register(
    relation regclass,
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
    audit text DEFAULT 'row',
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
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_register';

CREATE FUNCTION sweeper.alter_policy(
    policy text,
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
    reset text[] DEFAULT '{}',
    new_name text DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_alter_policy';

CREATE FUNCTION sweeper.unregister(policy text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_unregister';

CREATE FUNCTION sweeper.preview(policy text) RETURNS sweeper.preview_result
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_preview';

COMMENT ON FUNCTION sweeper.register IS
'Registers a table of the caller''s as a policy and returns what a pass would find. Give deadline (column or expression), or last_seen with ttl and/or ttl_column (interval, or a number of seconds); created with max_age is a second, absolute clock. unit (s, ms, us) is required for numbers, timezone for timestamps without time zone. Intervals must not have months. Errors: 42501 not the owner, 42809 not a table, 42703 no such column, 22023 settings that do not fit, 42710 name taken.';
COMMENT ON FUNCTION sweeper.alter_policy IS
'Changes the given settings of a policy; null leaves a setting, reset puts the named settings back to their defaults, new_name renames. Waits for the batch in flight. Checks as register() does. Errors: 42704 no such policy, 42501 not its owner.';
COMMENT ON FUNCTION sweeper.unregister IS
'Removes a policy; its evidence stays. Waits for the batch in flight. Errors: 42704 no such policy, 42501 not its owner.';
COMMENT ON FUNCTION sweeper.preview IS
'Says what a pass over the policy would find now; counts at most 100,000 dead rows. Changes nothing. Errors: 42704 no such policy, 42501 not allowed to see it.';
