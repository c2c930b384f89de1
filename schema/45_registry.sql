-- The registry: pools of seats, the sessions that hold them, and usage events for billing.

CREATE TABLE sweeper.pool (
    pool            text PRIMARY KEY,
    seats           int CHECK (seats >= 0),
    ttl             interval NOT NULL,
    max_ttl         interval,
    max_per_owner   int CHECK (max_per_owner > 0),
    notify_channel  text,
    metadata        jsonb NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by      text NOT NULL
);

-- Sessions refer to the pool by name, without a foreign key.  So the events of its sessions stay when it is dropped, and
-- acquire() does not lock a key.  The functions keep both consistent.
CREATE TABLE sweeper.session (
    session         uuid PRIMARY KEY,
    pool            text NOT NULL,
    owner           text,
    acquired_by     text NOT NULL,
    ttl             interval NOT NULL,
    status          text NOT NULL CHECK (status IN ('active', 'released', 'expired')),
    acquired_at     timestamptz NOT NULL,
    last_seen_at    timestamptz NOT NULL,
    expires_at      timestamptz,
    ends_at         timestamptz NOT NULL,
    released_at     timestamptz,
    ended_at        timestamptz,
    fence           bigint NOT NULL,
    metadata        jsonb NOT NULL,
    seats_used      int
);
CREATE INDEX session_due ON sweeper.session (expires_at) WHERE status = 'active';
CREATE INDEX session_end ON sweeper.session (ends_at) WHERE status = 'active';
CREATE INDEX session_seat ON sweeper.session (pool, owner) WHERE status = 'active';
CREATE INDEX session_released ON sweeper.session (released_at) WHERE status <> 'active';

-- Append-only; the id is that of the cleanup event.
CREATE TABLE sweeper.usage_event (
    id              bigint NOT NULL,
    recorded_at     timestamptz NOT NULL,
    acquired_at     timestamptz NOT NULL,
    ended_at        timestamptz NOT NULL,
    session         uuid NOT NULL,
    pool            text NOT NULL,
    owner           text,
    hours           numeric NOT NULL,
    cleanup_type    text NOT NULL
);
ALTER TABLE sweeper.usage_event REPLICA IDENTITY FULL;
CREATE INDEX usage_event_time ON sweeper.usage_event USING brin (recorded_at) WITH (autosummarize = on);

-- Kept as usage events are: licences are trued up by it.
CREATE TABLE sweeper.pool_day (
    day             date NOT NULL,
    pool            text NOT NULL,
    seats           int,
    acquired        bigint NOT NULL DEFAULT 0,
    refused         bigint NOT NULL DEFAULT 0,
    last_refused    timestamptz,
    peak            bigint NOT NULL DEFAULT 0,
    zombie          bigint NOT NULL DEFAULT 0,
    expired         bigint NOT NULL DEFAULT 0,
    released        bigint NOT NULL DEFAULT 0,
    disconnected    bigint NOT NULL DEFAULT 0,
    manual          bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (pool, day)
);

-- The fences of all pools.
CREATE SEQUENCE sweeper.fence_seq AS bigint CACHE 1;
CREATE SEQUENCE sweeper._fence_origin AS bigint; -- not in dumps: see fence.c

SELECT pg_catalog.pg_extension_config_dump('sweeper.pool', 'WHERE pool NOT LIKE ''sweeper.%''');
SELECT pg_catalog.pg_extension_config_dump('sweeper.session', '');
SELECT pg_catalog.pg_extension_config_dump('sweeper.usage_event', '');
SELECT pg_catalog.pg_extension_config_dump('sweeper.pool_day', '');
SELECT pg_catalog.pg_extension_config_dump('sweeper.fence_seq', '');

COMMENT ON TABLE sweeper.pool IS 'Pools of seats; written by create_pool(), alter_pool() and drop_pool().';
COMMENT ON COLUMN sweeper.pool.seats IS 'Sessions that may live at the same time; null: any number.';
COMMENT ON COLUMN sweeper.pool.ttl IS 'How long a new session lives without a heartbeat.';
COMMENT ON COLUMN sweeper.pool.max_ttl IS 'How long a new session lives at most; null: no limit.';
COMMENT ON COLUMN sweeper.pool.max_per_owner IS 'Sessions that one owner may hold at the same time; null: any number.';
COMMENT ON COLUMN sweeper.pool.notify_channel IS 'Channel of notifications when its sessions end.';
COMMENT ON TABLE sweeper.session IS 'Living sessions, and ended ones for cleanup_event_retention. Swept by the built-in policy sweeper.session.';
COMMENT ON COLUMN sweeper.session.session IS '122 random bits. A user that knows them may end the session.';
COMMENT ON COLUMN sweeper.session.owner IS 'For whom the application acquired it; null until claim_session().';
COMMENT ON COLUMN sweeper.session.acquired_by IS 'The role that acquired it; its members see the session.';
COMMENT ON COLUMN sweeper.session.expires_at IS 'The session is dead after this time, unless it sends a heartbeat.';
COMMENT ON COLUMN sweeper.session.ends_at IS 'The session is dead after this time in any case (max_ttl of the pool); infinity: no limit.';
COMMENT ON COLUMN sweeper.session.released_at IS 'When its seat was released.';
COMMENT ON COLUMN sweeper.session.ended_at IS 'Last heartbeat or other evidence that it lived: the end of billing.';
COMMENT ON COLUMN sweeper.session.fence IS 'Grows with each acquire of the pool. Its upper bits are an epoch, which begins at the timeline and grows with each failover or restore.';
COMMENT ON COLUMN sweeper.session.seats_used IS 'Seats in use when it was acquired, its own included; null in a pool of any number. After its end: "seats_used" in the metadata of its cleanup_event, unless the pool had more than 10,000 sessions.';
COMMENT ON TABLE sweeper.pool_day IS 'What happened to each pool on each day, as a basis for the true-up of licences; for workers, pool sweeper.worker. Written at most 10 s after the event while the database is in use, else 5 minutes. A stop or crash of the server loses what was not written. Kept for usage_event_retention, by default forever.';
COMMENT ON COLUMN sweeper.pool_day.day IS 'In the time zone of setting log_timezone, which is the same for all sessions.';
COMMENT ON COLUMN sweeper.pool_day.seats IS 'Seats of the pool, when the row was last written; null: any number, or the pool was dropped before.';
COMMENT ON COLUMN sweeper.pool_day.acquired IS 'Sessions that got a seat.';
COMMENT ON COLUMN sweeper.pool_day.refused IS 'Calls of acquire(), and of acquire_wait() that ended without a seat, which found every seat taken, or promised to sessions that wait. A call that is refused because its owner has max_per_owner sessions, while a seat is free, does not count.';
COMMENT ON COLUMN sweeper.pool_day.last_refused IS 'When the last of these calls found the pool full.';
COMMENT ON COLUMN sweeper.pool_day.peak IS 'The most sessions that held a seat at the same time.';
COMMENT ON COLUMN sweeper.pool_day.zombie IS 'Sessions that ended because heartbeats stopped. The next columns are the other cleanup types.';
COMMENT ON TABLE sweeper.usage_event IS 'One row for each session that ended; kept for usage_event_retention, by default forever.';
COMMENT ON COLUMN sweeper.usage_event.id IS 'Id of its cleanup_event.';
COMMENT ON COLUMN sweeper.usage_event.hours IS 'From acquired_at to ended_at, to six digits.';

CREATE FUNCTION sweeper.create_pool(
    pool text,
    seats int DEFAULT NULL,
    ttl interval DEFAULT '6 min',
    max_ttl interval DEFAULT NULL,
    max_per_owner int DEFAULT NULL,
    notify_channel text DEFAULT NULL,
    metadata jsonb DEFAULT '{}',
    if_exists text DEFAULT 'error'
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_create_pool';
CREATE FUNCTION sweeper.alter_pool(
    pool text,
    seats int DEFAULT NULL,
    ttl interval DEFAULT NULL,
    max_ttl interval DEFAULT NULL,
    max_per_owner int DEFAULT NULL,
    notify_channel text DEFAULT NULL,
    metadata jsonb DEFAULT NULL,
    reset text[] DEFAULT '{}'
) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_alter_pool';
CREATE FUNCTION sweeper.drop_pool(pool text, force boolean DEFAULT false) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_drop_pool';
CREATE FUNCTION sweeper.acquire(
    pool text,
    owner text DEFAULT session_user,
    ttl interval DEFAULT NULL,
    metadata jsonb DEFAULT '{}',
    takeover boolean DEFAULT false,
    OUT session uuid,
    OUT fence bigint,
    OUT expires_at timestamptz,
    OUT ttl interval,
    OUT heartbeat_every interval,
    OUT taken_over boolean,
    OUT seats int,
    OUT seats_used int
) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1 AS 'MODULE_PATHNAME', 'ssw_acquire';
CREATE PROCEDURE sweeper.acquire_wait(
    pool text,
    owner text,
    wait interval,
    INOUT session uuid DEFAULT NULL,
    INOUT fence bigint DEFAULT NULL,
    INOUT expires_at timestamptz DEFAULT NULL,
    INOUT ttl interval DEFAULT NULL,
    INOUT heartbeat_every interval DEFAULT NULL,
    INOUT taken_over boolean DEFAULT NULL,
    INOUT seats int DEFAULT NULL,
    INOUT seats_used int DEFAULT NULL
)
LANGUAGE c AS 'MODULE_PATHNAME', 'ssw_acquire_wait';
CREATE FUNCTION sweeper.release(session uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_release';
CREATE FUNCTION sweeper.claim_session(session uuid, owner text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_claim_session';

COMMENT ON FUNCTION sweeper.create_pool IS
'Creates a pool. seats: how many sessions may live at the same time; null any number, 0 none. ttl: how long a session lives without a heartbeat. max_ttl: how long it lives at most. max_per_owner: how many one owner may hold. notify_channel: channel of notifications when its sessions end. ttl and max_ttl have no months, a day is 24 hours. if_exists: error, or alter: an existing pool gets these settings, as by alter_pool(); settings that are not given get their defaults. Errors: 54000 metadata is too long, 42710 the pool exists, 22004 null, 22023 an argument that does not fit, 42622 a name that is too long or empty, 42939 a name that begins with sweeper., 25006 read-only transaction or standby, 55P03 another transaction creates or drops it and does not end.';
COMMENT ON FUNCTION sweeper.alter_pool IS
'Changes a pool. null leaves a setting unchanged, reset names those that get their defaults. A new ttl or max_ttl holds for new sessions. If there are fewer seats than live sessions, no session ends, but acquire() returns no seat until there are fewer; see over_by of pool_status. Waits for an open acquire, and blocks others until it commits. A built-in pool has neither seats nor max_per_owner: 55000. Errors: 54000 metadata is too long, 42704 no such pool, and those of create_pool().';
COMMENT ON FUNCTION sweeper.drop_pool IS
'Drops a pool without live sessions; with force it ends them, with type expired. Their events stay. Errors: 55006 sessions live, 42704 no such pool, 42939 a built-in pool, 22004 null, 25006 read-only transaction or standby, 55P03 a lock was not granted within lock_timeout.';
COMMENT ON FUNCTION sweeper.acquire IS
'Takes a seat of a pool for an owner. Returns one row, or none if the pool is full or the owner has max_per_owner sessions. Seats of dead sessions are free. takeover: if there is no seat, the owner''s oldest sessions in the pool are ended, as many as needed, if that is enough. owner: any text, by default the session''s user; null: none yet, see claim_session(). ttl: instead of the pool''s.
session is a secret. fence is higher than that of any earlier session of the pool. The other columns: when the session expires without a heartbeat, its ttl, and how often to send a heartbeat; whether a session of the owner was ended for it; the seats of the pool, and how many are used with it (null in a pool of any number).
An open transaction with an acquire blocks others in the same pool, unless the pool has no limits. They wait for their lock_timeout, or else that of policy sweeper.session. Sessions are counted as they are committed now, at every isolation level. A transaction above READ COMMITTED gets 40001 if a session that it must end has changed since its snapshot.
Errors: 54000 metadata is too long, 42704 no such pool, 22004 null, 22023 an argument that does not fit, 55P03 the pool''s lock was not granted, 40001 try again, 25006 read-only transaction or standby, 55000 library not preloaded.';
COMMENT ON PROCEDURE sweeper.acquire_wait IS
'As acquire(), but waits for a seat, at most the given time; then the result is null. The sessions that wait get their seats in the order in which they called. acquire() does not overtake them. One whose owner has max_per_owner sessions lets others pass until a seat becomes free. It sleeps without a transaction; the end of a session, or alter_pool(), wakes it. It holds its connection: see claim_wait(). If the client has disconnected, it takes no seat.
ttl: the ttl of the session, by default the pool''s; of the other columns of the result, values that are given are ignored. Errors: 25001 in a transaction block, use acquire(); 22023 wait negative, 25006 read-only transaction or standby; those of acquire(), but 55P03: it tries again.';
COMMENT ON FUNCTION sweeper.release IS
'Ends a session and frees its seat. true once; false if it has ended already or never existed. Errors: 22004 null, 55P03 another transaction is ending it, 40001 in a transaction above READ COMMITTED, 25006 read-only transaction or standby, 55000 library not preloaded or policy sweeper.session not usable.';
COMMENT ON FUNCTION sweeper.claim_session IS
'Sets the owner of a session that has none, and returns its present owner. If that is another name, another caller was faster. Null: the session has ended. Errors: 53400 the owner has max_per_owner sessions in the pool, 22004 null, 22023 empty or too long, 55P03 another transaction holds the session or its pool, 25006 read-only transaction or standby, 55000 library not preloaded.';

CREATE FUNCTION sweeper._dead_sessions(OUT pool text, OUT fence bigint) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_dead_sessions';
COMMENT ON FUNCTION sweeper._dead_sessions IS 'Sessions that are dead and not yet swept: acquire() takes their seats.';

CREATE FUNCTION sweeper._pool_counts(OUT pool text, OUT day date, OUT acquired bigint, OUT refused bigint, OUT peak bigint, OUT change bigint, OUT highest bigint, OUT last_refused timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_pool_counts';
COMMENT ON FUNCTION sweeper._pool_counts IS 'What is not written to table pool_day yet. peak: the most that lived, as acquires counted. change, highest: how the number of sessions has changed since counts were written, and at most.';
CREATE FUNCTION sweeper._waiting(pool text) RETURNS int
LANGUAGE c VOLATILE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'ssw_waiting';
COMMENT ON FUNCTION sweeper._waiting IS 'How many sessions wait for a seat of the pool.';

CREATE VIEW sweeper.pool_status AS
WITH dead AS MATERIALIZED (SELECT d.pool, d.fence FROM sweeper._dead_sessions() AS d),
     counts AS MATERIALIZED (SELECT * FROM sweeper._pool_counts()),
     today AS (SELECT (now() AT TIME ZONE current_setting('log_timezone'))::date AS day)
SELECT p.pool, p.seats, c.live, CASE WHEN p.seats IS NOT NULL THEN greatest(p.seats - c.live, 0) END AS free, greatest(c.live - p.seats, 0) AS over_by,
       sweeper._waiting(p.pool) AS waiting, coalesce(d.refused, 0) + coalesce(n.refused, 0) AS refused,
       greatest(d.last_refused, n.last_refused) AS last_refused,
       greatest(c.live, d.peak, n.peak, CASE WHEN p.seats IS NULL THEN c.live - n.change + n.highest END) AS peak_today,
       p.ttl, p.max_ttl, p.max_per_owner, c.owners, c.oldest, c.next_expiry, p.notify_channel, p.metadata, p.created_at, p.created_by
FROM sweeper.pool AS p CROSS JOIN today AS t
LEFT JOIN sweeper.pool_day AS d ON d.pool = p.pool AND d.day = t.day
LEFT JOIN counts AS n ON n.pool = p.pool AND n.day = t.day
CROSS JOIN LATERAL (SELECT count(*) AS live, count(DISTINCT s.owner) AS owners, min(s.acquired_at) AS oldest,
                           nullif(min(least(greatest(s.expires_at, sweeper._last_heartbeat(s.session) + s.ttl), s.ends_at)), 'infinity') AS next_expiry
                    FROM sweeper.session AS s WHERE s.pool = p.pool AND s.status = 'active'
                    AND NOT EXISTS (SELECT FROM dead AS d WHERE d.pool = s.pool AND d.fence = s.fence)) AS c
WHERE p.pool NOT LIKE 'sweeper.%';
COMMENT ON VIEW sweeper.pool_status IS
'One row per pool (workers: see worker_status): seats, live sessions, free seats. Every reader sees the numbers of all sessions.';
COMMENT ON COLUMN sweeper.pool_status.live IS 'Sessions that hold a seat. A dead session that is not yet swept holds none: acquire() takes its seat.';
COMMENT ON COLUMN sweeper.pool_status.free IS 'Null in a pool of any number.';
COMMENT ON COLUMN sweeper.pool_status.over_by IS 'Sessions beyond the seats, after alter_pool(). acquire() returns no seat until it is 0.';
COMMENT ON COLUMN sweeper.pool_status.next_expiry IS 'When the first session ends unless it sends a heartbeat; null: none does.';
COMMENT ON COLUMN sweeper.pool_status.waiting IS 'Sessions that wait in acquire_wait().';
COMMENT ON COLUMN sweeper.pool_status.refused IS 'Calls today that found the pool full; see pool_day.';
COMMENT ON COLUMN sweeper.pool_status.last_refused IS 'When the last of them found the pool full.';
COMMENT ON COLUMN sweeper.pool_status.peak_today IS 'The most sessions that held a seat at the same time today.';
COMMENT ON COLUMN sweeper.pool_status.owners IS 'Different owners of live sessions.';
COMMENT ON COLUMN sweeper.pool_status.oldest IS 'When the oldest live session was acquired.';
COMMENT ON COLUMN sweeper.pool_status.next_expiry IS 'When the next session expires if it sends no heartbeat.';

CREATE VIEW sweeper.pool_month WITH (security_invoker = true) AS
SELECT date_trunc('month', d.day)::date AS month, d.pool, max(d.seats) AS seats, max(d.peak) AS peak, (array_agg(d.day ORDER BY d.peak DESC, d.day))[1] AS peak_day,
       greatest(max(d.peak - d.seats), 0) AS over_by, count(*) FILTER (WHERE d.peak >= d.seats) AS full_days, round(avg(d.peak), 1) AS avg_peak,
       sum(d.acquired)::bigint AS acquired, sum(d.refused)::bigint AS refused, count(*) FILTER (WHERE d.refused > 0) AS refused_days,
       sum(d.zombie)::bigint AS zombie, sum(d.expired)::bigint AS expired, sum(d.released)::bigint AS released, sum(d.disconnected)::bigint AS disconnected,
       sum(d.manual)::bigint AS manual
FROM sweeper.pool_day AS d WHERE d.pool NOT LIKE 'sweeper.%'
GROUP BY 1, 2 ORDER BY 1 DESC, 2;
COMMENT ON VIEW sweeper.pool_month IS 'The true-up of licences: table pool_day by month, the newest first.';
COMMENT ON COLUMN sweeper.pool_month.seats IS 'The most seats that the pool had; null: any number.';
COMMENT ON COLUMN sweeper.pool_month.peak IS 'The most sessions that held a seat at the same time.';
COMMENT ON COLUMN sweeper.pool_month.over_by IS 'The most sessions beyond the seats of their day, after alter_pool().';
COMMENT ON COLUMN sweeper.pool_month.full_days IS 'Days on which all seats were in use.';
COMMENT ON COLUMN sweeper.pool_month.avg_peak IS 'Of the days on which the pool was in use.';
COMMENT ON COLUMN sweeper.pool_month.zombie IS 'Sessions that ended because heartbeats stopped. The next columns are the other cleanup types.';

CREATE VIEW sweeper.live_session WITH (security_invoker = true) AS
SELECT s.session, s.pool, s.owner, s.acquired_by, s.acquired_at, greatest(s.last_seen_at, h.last_heartbeat) AS last_heartbeat, s.ttl,
       least(greatest(s.expires_at, h.last_heartbeat + s.ttl), s.ends_at) AS expires_at, s.ends_at, s.fence, s.metadata
FROM sweeper.session AS s CROSS JOIN LATERAL (SELECT sweeper._last_heartbeat(s.session) AS last_heartbeat) AS h WHERE s.status = 'active';
COMMENT ON VIEW sweeper.live_session IS 'Living sessions that the reader may see: those acquired by a role that it is a member of; all for monitor.';
COMMENT ON COLUMN sweeper.live_session.last_heartbeat IS 'Time of the last heartbeat.';
COMMENT ON COLUMN sweeper.live_session.ends_at IS 'The session ends at this time in any case; infinity: never.';

CREATE VIEW sweeper.stat_pool_cleanup WITH (security_invoker = true) AS
SELECT rank() OVER (ORDER BY c.zombies DESC) AS rank, c.*,
       round(100 * c.zombies / nullif(sum(c.zombies) OVER (), 0), 2) AS percent
FROM (SELECT e.pool, sum(e.count)::bigint AS ended,
             coalesce(sum(e.count) FILTER (WHERE e.cleanup_type = 'zombie'), 0)::bigint AS zombies,
             coalesce(sum(e.count) FILTER (WHERE e.cleanup_type = 'disconnected'), 0)::bigint AS disconnected,
             coalesce(sum(e.count) FILTER (WHERE e.cleanup_type = 'expired'), 0)::bigint AS expired,
             coalesce(sum(e.count) FILTER (WHERE e.cleanup_type = 'released'), 0)::bigint AS released,
             coalesce(sum(e.count) FILTER (WHERE e.cleanup_type = 'manual'), 0)::bigint AS manual
      FROM (SELECT "group" AS pool, cleanup_type, count::bigint FROM sweeper.cleanup_event
            WHERE policy = 'sweeper.session' AND cleaned_at >= now() - interval '30 days') AS e GROUP BY e.pool) AS c
ORDER BY c.zombies DESC, c.pool;
COMMENT ON VIEW sweeper.stat_pool_cleanup IS 'How the sessions of each pool ended in the last 30 days, the pool with the most zombies first (WHERE rank <= 20: the top 20).';
COMMENT ON COLUMN sweeper.stat_pool_cleanup.ended IS 'Sessions that ended, in any way.';
COMMENT ON COLUMN sweeper.stat_pool_cleanup.zombies IS 'Sessions that sent no heartbeat for one ttl.';
COMMENT ON COLUMN sweeper.stat_pool_cleanup.percent IS 'Share of all zombies that the reader may see; null if there are none.';
