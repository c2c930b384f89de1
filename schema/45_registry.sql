-- The registry: pools of seats, the sessions that hold them, what their use is billed.

CREATE TABLE sweeper.pool (
    pool            text PRIMARY KEY,
    seats           int CHECK (seats >= 0),
    ttl             interval NOT NULL,
    max_ttl         interval,
    max_per_owner   int CHECK (max_per_owner > 0),
    notify_channel  text,
    metadata        jsonb NOT NULL,
    -- the last fence given out
    counter         bigint NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    created_by      text NOT NULL
-- every acquire writes its counter, on the same page
) WITH (fillfactor = 50);

-- A pool is named, not referenced: what its sessions did stays on record when it is dropped, and a key would be locked
-- by each acquire.  The functions keep both together.
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
    metadata        jsonb NOT NULL
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

-- Counters of dropped pools: one that is made again begins above them.
CREATE SEQUENCE sweeper.fence_floor AS bigint CACHE 1;

SELECT pg_catalog.pg_extension_config_dump('sweeper.pool', 'WHERE pool NOT LIKE ''sweeper.%''');
SELECT pg_catalog.pg_extension_config_dump('sweeper.session', '');
SELECT pg_catalog.pg_extension_config_dump('sweeper.usage_event', '');
SELECT pg_catalog.pg_extension_config_dump('sweeper.fence_floor', '');

COMMENT ON TABLE sweeper.pool IS 'Pools of seats; written by create_pool(), alter_pool() and drop_pool(), and by each acquire().';
COMMENT ON COLUMN sweeper.pool.seats IS 'Sessions that may live at a time; null: any number.';
COMMENT ON COLUMN sweeper.pool.ttl IS 'How long a new session lives without a sign of life.';
COMMENT ON COLUMN sweeper.pool.max_ttl IS 'How long a new session lives at most; null: for ever.';
COMMENT ON COLUMN sweeper.pool.max_per_owner IS 'Sessions that one owner may hold at a time; null: any number.';
COMMENT ON COLUMN sweeper.pool.notify_channel IS 'Where the ends of its sessions are told.';
COMMENT ON COLUMN sweeper.pool.counter IS 'The last fence given out, by this pool or a dropped one.';
COMMENT ON TABLE sweeper.session IS 'Sessions that live, and those that have ended for as long as cleanup_event_retention says. Swept by the built-in policy sweeper.session.';
COMMENT ON COLUMN sweeper.session.session IS '122 random bits; whoever knows them may end the session.';
COMMENT ON COLUMN sweeper.session.owner IS 'Whom the application acquired it for; null until claim_session().';
COMMENT ON COLUMN sweeper.session.acquired_by IS 'The role that acquired it; its members see the session.';
COMMENT ON COLUMN sweeper.session.expires_at IS 'Dead from then on, unless there is a sign of life.';
COMMENT ON COLUMN sweeper.session.ends_at IS 'Dead from then on in any case: the pool''s max_ttl; infinity without.';
COMMENT ON COLUMN sweeper.session.released_at IS 'When its seat was given back.';
COMMENT ON COLUMN sweeper.session.ended_at IS 'The last evidence of its life: what is billed ends here.';
COMMENT ON COLUMN sweeper.session.fence IS 'Grows with each acquire of the pool, also after a fail-over, for which its upper bits are the timeline, and after a restore.';
COMMENT ON TABLE sweeper.usage_event IS 'One row for each session that ended; kept for as long as usage_event_retention says, by default for ever.';
COMMENT ON COLUMN sweeper.usage_event.id IS 'Id of its cleanup_event.';
COMMENT ON COLUMN sweeper.usage_event.hours IS 'From acquired_at to ended_at, to six digits.';

CREATE FUNCTION sweeper.create_pool(
    pool text,
    seats int DEFAULT NULL,
    ttl interval DEFAULT '6 min',
    max_ttl interval DEFAULT NULL,
    max_per_owner int DEFAULT NULL,
    notify_channel text DEFAULT NULL,
    metadata jsonb DEFAULT '{}'
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
CREATE FUNCTION sweeper.release(session uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_release';
CREATE FUNCTION sweeper.claim_session(session uuid, owner text) RETURNS text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_claim_session';

COMMENT ON FUNCTION sweeper.create_pool IS
'Makes a pool. seats: how many sessions may live at a time, null any number, 0 none; ttl: how long a session lives without a sign of life; max_ttl: how long it lives at most; max_per_owner: how many one owner may hold; notify_channel: where ends of its sessions are told. ttl and max_ttl have no months, a day is 24 hours. Errors: 54000 metadata is too long, or more than 1,000 pools in one transaction, 42710 the pool exists, 22004 null, 22023 an argument that does not fit, 42622 a name that is too long or empty, 42939 a name that begins with sweeper., 25006 read-only transaction or standby, 55P03 somebody else makes or drops it and does not end.';
COMMENT ON FUNCTION sweeper.alter_pool IS
'Changes a pool: null leaves a setting, reset names those to put back to their defaults. New times to live hold for new sessions. Fewer seats than live sessions end nobody: nobody acquires until there are fewer; see over_by of pool_status. Waits for an acquire that has not ended, and keeps others out until it commits. A built-in pool has neither seats nor max_per_owner: 55000. Errors: 54000 metadata is too long, 42704 no such pool, and those of create_pool().';
COMMENT ON FUNCTION sweeper.drop_pool IS
'Drops a pool without live sessions; with force it ends them, with type expired. What they did stays on record. Errors: 55006 sessions live, 42704 no such pool, 42939 a built-in pool, 22004 null, 25006 read-only transaction or standby, 55P03 a lock was not granted within lock_timeout.';
COMMENT ON FUNCTION sweeper.acquire IS
'Takes a seat of a pool for an owner: one row, or none when the pool is full or the owner has max_per_owner sessions. Seats whose holders are dead are free. takeover: when there is no seat, the owner''s oldest sessions in the pool are ended for it, as many as needed, if that is enough. owner: any text, by default the session''s user; null: nobody yet, see claim_session(). ttl: instead of the pool''s.
Returns the session, a secret to be kept; its fence, which is higher than that of any earlier session of the pool; when it expires without a sign of life, its time to live, and how often to give one; whether a session of the owner was ended for it; the seats and how many are used with it (null in a pool of any number).
A transaction that holds an acquire open keeps others from acquiring in the same pool until it ends: they wait for lock_timeout, their own or else that of policy sweeper.session, and no longer. A transaction above READ COMMITTED gets 40001 when the pool has changed since its snapshot: another has acquired, or a pass has ended or prolonged one of its sessions.
Errors: 54000 metadata is too long, or more than 1,000 pools in one transaction, 42704 no such pool, 22004 null, 22023 an argument that does not fit, 55P03 the pool''s lock was not granted, 40001 try again, 25006 read-only transaction or standby, 55000 library not preloaded.';
COMMENT ON FUNCTION sweeper.release IS
'Ends a session and frees its seat: true once, false when it is gone already or never was. Errors: 22004 null, 55P03 somebody else is just ending it, 40001 in a transaction above READ COMMITTED, 25006 read-only transaction or standby, 55000 library not preloaded or policy sweeper.session not usable.';
COMMENT ON FUNCTION sweeper.claim_session IS
'Gives a session without an owner to this one, if nobody was faster, and returns its owner now: who gets another name has not got it. Null when the session is gone. Errors: 53400 the owner has max_per_owner sessions in the pool, 22004 null, 22023 empty or too long, 55P03 somebody else holds the session or its pool, 25006 read-only transaction or standby, 55000 library not preloaded.';

CREATE FUNCTION sweeper._dead_sessions(OUT pool text, OUT fence bigint) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'ssw_dead_sessions';
COMMENT ON FUNCTION sweeper._dead_sessions IS 'Sessions that are dead and not swept yet: acquire() takes their seats.';

CREATE VIEW sweeper.pool_status AS
WITH dead AS MATERIALIZED (SELECT d.pool, d.fence FROM sweeper._dead_sessions() AS d)
SELECT p.pool, p.seats, c.live, CASE WHEN p.seats IS NOT NULL THEN greatest(p.seats - c.live, 0) END AS free, greatest(c.live - p.seats, 0) AS over_by,
       p.ttl, p.max_ttl, p.max_per_owner, c.owners, c.oldest, c.next_expiry, p.notify_channel, p.metadata, p.created_at, p.created_by
FROM sweeper.pool AS p
CROSS JOIN LATERAL (SELECT count(*) AS live, count(DISTINCT s.owner) AS owners, min(s.acquired_at) AS oldest,
                           nullif(min(least(s.expires_at, s.ends_at)), 'infinity') AS next_expiry
                    FROM sweeper.session AS s WHERE s.pool = p.pool AND s.status = 'active'
                    AND NOT EXISTS (SELECT FROM dead AS d WHERE d.pool = s.pool AND d.fence = s.fence)) AS c
WHERE p.pool NOT LIKE 'sweeper.%';
COMMENT ON VIEW sweeper.pool_status IS 'One row a pool of seats (workers: worker_status): seats, live sessions, free seats; every reader sees the numbers of all.';
COMMENT ON COLUMN sweeper.pool_status.live IS 'Sessions that hold a seat. One that is dead and not swept yet holds none: acquire() takes its seat.';
COMMENT ON COLUMN sweeper.pool_status.free IS 'Null in a pool of any number.';
COMMENT ON COLUMN sweeper.pool_status.over_by IS 'Sessions beyond the seats, after alter_pool(): nobody acquires until it is 0.';
COMMENT ON COLUMN sweeper.pool_status.owners IS 'Different owners of live sessions.';
COMMENT ON COLUMN sweeper.pool_status.oldest IS 'When the oldest live session was acquired.';
COMMENT ON COLUMN sweeper.pool_status.next_expiry IS 'When the next session dies if there is no sign of life from it.';

CREATE VIEW sweeper.live_session WITH (security_invoker = true) AS
SELECT s.session, s.pool, s.owner, s.acquired_by, s.acquired_at, greatest(s.last_seen_at, h.last_heartbeat) AS last_heartbeat, s.ttl,
       least(greatest(s.expires_at, h.last_heartbeat + s.ttl), s.ends_at) AS expires_at, s.ends_at, s.fence, s.metadata
FROM sweeper.session AS s CROSS JOIN LATERAL (SELECT sweeper._last_heartbeat(s.session) AS last_heartbeat) AS h WHERE s.status = 'active';
COMMENT ON VIEW sweeper.live_session IS 'Sessions that live, of which the reader may know: those acquired by a role whose member it is; all for monitor.';
COMMENT ON COLUMN sweeper.live_session.last_heartbeat IS 'The last sign of life.';
COMMENT ON COLUMN sweeper.live_session.ends_at IS 'The session ends then in any case; infinity: never.';

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
COMMENT ON COLUMN sweeper.stat_pool_cleanup.zombies IS 'Those whose signs of life stopped.';
COMMENT ON COLUMN sweeper.stat_pool_cleanup.percent IS 'Of all zombies that the reader may see; null when there is none.';
