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
    on_expire text DEFAULT NULL,
    is_alive text DEFAULT NULL,
    group_by text DEFAULT NULL,
    capture text[] DEFAULT NULL,
    audit text DEFAULT 'row',
    notify_channel text DEFAULT NULL,
    notify_keys boolean DEFAULT false,
    check_every interval DEFAULT '1 s',
    max_lag interval DEFAULT '1 min',
    batch_size int DEFAULT 0,
    max_workers int DEFAULT 0,
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
    maintenance_window text DEFAULT NULL,
    start text DEFAULT 'auto',
    if_exists text DEFAULT 'error',
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
    reset text[] DEFAULT '{}',
    new_name text DEFAULT NULL
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_alter_policy';

CREATE FUNCTION sweeper.unregister(policy text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_unregister';

CREATE FUNCTION sweeper.preview(policy text) RETURNS sweeper.preview_result
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_preview';

COMMENT ON TYPE sweeper.preview_result IS
'What a pass over a policy would find.
state: waiting, held, paused, fuse, failing, broken, or dry run.
rows_estimate: rows that the policy covers. dead_estimate: rows that would expire now. If exact is true they are counted; of more than 100,000 rows only the dead ones are.
oldest_deadline, newest_deadline: of the dead rows that were read; null when none has a deadline. sample_keys: up to five dead rows, hashed with audit => ''hash''.
index_used: the index that finds the dead rows; null: each look reads the table.
cascade_rows_per_parent: rows that foreign keys delete or change with each row. estimated_seconds: for all dead rows. advice: statements and facts that help.';
COMMENT ON FUNCTION sweeper.register IS
'Registers a table of the caller as a policy. From the end of this transaction its dead rows are swept, with the rights of the table''s owner. Returns one row as preview() does; with dry_run => true it only checks and returns it.
deadline: a column, or an SQL expression over the row; the row is dead after it. Instead: last_seen with ttl, ttl_column, or both. ttl_column is an interval or a number of seconds. If last_seen is a number and unit is given, it counts in that unit. If it is null, zero or less, ttl counts; without ttl the row has no deadline. created with max_age: a second, absolute limit; is_alive is not called beyond it.
Column names are case-sensitive and without quotes. Types: timestamptz; timestamp and date with timezone; integer, bigint, numeric and double precision since 1970 with unit s, ms or us. Expressions are evaluated in UTC, with ISO dates and standard_conforming_strings. An expression that depends on settings of the session is refused. A date as deadline means its first instant; as last_seen or created it counts until its end. infinity never expires. on_null, for a null deadline: ignore, repair (one ttl from now) or expire.
keep_for: time between the deadline and the action. filter: one boolean expression; other rows are ignored. key: columns that identify a row; default the primary key, else a unique index over columns that are not null.
action: delete, update with set_clause, or call with on_expire. on_expire: a function of text[] (keys) or of an array of the table''s rows, called before the action. If it deletes rows itself, or changes their keys, the action must be call. is_alive: a function of the key as text that returns boolean, or of text[] that returns boolean[], called before a row expires, except past max_age. True gives the row one ttl from now, false expires it. Both functions belong to the table''s owner or a superuser. audit: row, hash, count or none.
Intervals have no months; a day is 24 hours. check_every ''0'': no automatic passes. rate_limit and backlog_rate are rows per second; 0 disables. lock_timeout must be below deadlock_timeout. search_path: for users'' code, by default the caller''s. maintenance_window: automatic passes run only then. It has times, days if not all, and a time zone, by default the session''s, as in ''Mon-Fri 22:00-06:00, Sat-Sun 00:00-24:00 Europe/Berlin''. Rows of sessions with heartbeats are refreshed at any time.
start: auto, now, or paused. auto holds the policy, with a NOTICE, if there are at least 20 rows and more than half of them, or of a sample, are dead already.
if_exists: error, or alter: if the table has a policy of this name, its arguments become those of this call; arguments that are not given get their defaults. It stays paused or held, and keeps its failed rows and heartbeats. If all arguments are as they were, nothing is written. start then matters only for a changed deadline: now does not hold the policy.
Errors: 42501 not the owner, 42809 not a table that can be swept, 42703 no such column, 42804 wrong type, 22023 arguments that do not fit or deadlines that are implausible, 42601 not one expression, 42P17 volatile, 42710 name taken, 55000 and 55P03 with if_exists as alter_policy(), 42939 name reserved, 22004 null, 0A000 not supported, 42P01 no such table, others of class 42 an expression that PostgreSQL refuses.';
COMMENT ON FUNCTION sweeper.alter_policy IS
'Changes arguments of a policy as in register(). null leaves an argument unchanged, reset names those that get their defaults, new_name renames the policy. Everything is checked as by register(), and changes are recorded in policy_change.
It waits for running batches. It also waits for transactions that ended rows by a call, at most the session''s lock_timeout, or, if that is 0, the policy''s. heartbeats => false and another key first write pending heartbeats to the rows, as unregister() does.
Level admin may change how often and how much is swept. All other arguments need the rights of the table''s owner.
Errors: 42704 no such policy, 42501 not allowed, 55000 built in, or the table has another owner, 55P03 those transactions have not ended, or as unregister(), and those of register().';
COMMENT ON FUNCTION sweeper.unregister IS
'Removes a policy; its rows and its evidence stay. Waits as alter_policy() does. If the policy takes heartbeats, they are first written to the rows. Until this transaction ends, the table is then locked in EXCLUSIVE mode: others read it, writers and heartbeats wait.
If it fails, nothing has changed. Errors: 55P03 others write or lock rows for longer than the session''s lock_timeout, or, if that is 0, than deadlock_timeout and the policy''s lock_timeout; 42704 no such policy, 42501 not its owner, 55000 built in, 22004 null.';
COMMENT ON FUNCTION sweeper.preview IS
'Returns what a pass over a policy would find now, as preview_result. Changes nothing. Counts at most 100,000 entries or for one second, and estimates beyond. Errors: 42704 no such policy, 42501 not allowed to see it, 42P01 its table no longer exists, 55000 another table has its name, or the table has another owner, 0A000 it is unlogged, on a standby, 22004 null.';
REVOKE EXECUTE ON FUNCTION sweeper.register, sweeper.alter_policy, sweeper.unregister, sweeper.preview FROM PUBLIC;
