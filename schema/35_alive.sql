-- Heartbeats: recorded in shared memory.

CREATE FUNCTION sweeper.touch(policy text, key text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_touch';
CREATE FUNCTION sweeper.touch(policy text, key bigint) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_touch';
CREATE FUNCTION sweeper.touch(policy text, key uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_touch';
CREATE FUNCTION sweeper._touch_here(policy text, key text, place text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_touch';
CREATE FUNCTION sweeper.touch_many(policy text, keys text[]) RETURNS TABLE (key text, state text, message text)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_touch_many';
CREATE FUNCTION sweeper._touch_many_rows(policy text, keys text[], place text) RETURNS TABLE (key text, state text, message text)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_touch_many';
CREATE FUNCTION sweeper._touch_many_here(policy text, keys text[], place text) RETURNS text[]
LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(ARRAY[r.key, r.state, r.message]), '{}') FROM sweeper._touch_many_rows($1, $2, $3) AS r
$$;
CREATE FUNCTION sweeper.heartbeat(session uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_heartbeat';
CREATE FUNCTION sweeper.heartbeat_many(sessions uuid[]) RETURNS TABLE (session uuid, state text, message text)
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_heartbeat_many';
CREATE FUNCTION sweeper.attach(session uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_attach';
CREATE FUNCTION sweeper.is_live(session uuid) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_session_is_live';
CREATE FUNCTION sweeper._last_heartbeat(session uuid) RETURNS timestamptz
LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'ssw_last_heartbeat';
CREATE FUNCTION sweeper.is_live(policy text, key text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_is_live';
CREATE FUNCTION sweeper._is_live_here(policy text, key text, place text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_is_live_here';

COMMENT ON FUNCTION sweeper.touch(text, text) IS
'A heartbeat for the row with that key. true: it lives for one ttl from now, also if this transaction is rolled back; only a row that this transaction has inserted loses the heartbeat by ROLLBACK TO an earlier savepoint. false: it has ended; only false means that. The key may have any spelling that its type reads, dates and times in ISO style and UTC; a composite one is (a,b).
It takes no transaction id and writes nothing, except near the row''s deadline. Needs a policy with heartbeats, and UPDATE on the table if its row security does not apply to the caller, or level user of the policy.
Errors, on which a client keeps its session and tries again: 55P03 the row is locked, 25006 standby or read-only transaction, 40001 others keep changing the row, 21000 rows of two tables have the key, 57P03 the server stops, 53400 memory for heartbeats is full and this is a transaction block, a pipeline, DO or a procedure, 55000 not preloaded or no heartbeats, or a row without a deadline where that means dead, in a transaction block, or this transaction has changed policies, 42501 no right, or a superuser asks for another node''s row in a table of a role that is none, 42704 no such policy, or not yet on the node of the row, 22004 null, others of class 22 no such key can be, SW002 a trigger kept the row from being written.';
COMMENT ON FUNCTION sweeper.touch(text, bigint) IS 'As touch(policy, key as text).';
COMMENT ON FUNCTION sweeper.touch(text, uuid) IS 'As touch(policy, key as text).';
COMMENT ON FUNCTION sweeper._touch_here IS 'As touch(policy, key), called by it on the node that has the row''s shard. place: the table and its key there. Errors: as touch(); 40001 if the shard is on another node, 55000 if the policy of this name is of another table or key here.';
COMMENT ON FUNCTION sweeper._touch_many_rows IS 'As touch_many(policy, keys); a row whose shard is on another node is unknown. place and errors: as for _touch_here().';
COMMENT ON FUNCTION sweeper._touch_many_here IS 'The rows of _touch_many_rows() in one array: key, state and message of each. Called by touch_many() on a node for all rows that it has. place and errors: as for _touch_many_rows().';
COMMENT ON FUNCTION sweeper._is_live_here IS 'As is_live(policy, key), called by it on the node that has the row''s shard. place: as for _touch_here(). Errors: as is_live(); 40001 if the shard is on another node, 55000 as _touch_here().';
COMMENT ON FUNCTION sweeper.touch_many IS
'Heartbeats for many rows. Returns a row for each key, as given, that was not confirmed: state gone, or unknown with the reason in message (the row is locked, a trigger refused it, the text is no key). All other keys are confirmed. A client keeps the sessions that are unknown and tries again. A call waits for locked rows for one lock_timeout. Errors: those of touch() that concern the policy or the transaction and not one key, and 22004 for a null key; then some heartbeats may have counted.';
COMMENT ON FUNCTION sweeper.is_live(text, text) IS
'Returns whether the row with that key is alive now, by its deadline, heartbeats and grace. It does not count as a heartbeat. Needs SELECT on the table if its row security does not apply to the caller, or level user of the policy. Errors: 42704 no such policy, 42501 no right, 25006 on a standby, 55000 not preloaded, or the policy''s table no longer exists, was replaced, or has another owner, 55P03 the table is locked, 22004 null, others of class 22 no such key can be, SW002 a trigger kept the row from being written.';
COMMENT ON FUNCTION sweeper.heartbeat IS
'A heartbeat of a session that acquire() returned. true: it lives for one ttl from now, also if this transaction is rolled back; only a row that this transaction has inserted loses the heartbeat by ROLLBACK TO an earlier savepoint. false: it has ended; only false means that. Any user that knows the session may send it. Errors, on which a client keeps its session and tries again: as touch().';
COMMENT ON FUNCTION sweeper.heartbeat_many IS 'Heartbeats of many sessions. Returns a row for each session that was not confirmed: state gone, or unknown with the reason in message. All others are confirmed. Errors: as touch_many().';
COMMENT ON FUNCTION sweeper.attach IS
'A heartbeat of a session that acquire() returned. From the commit of this transaction on, the session also ends when this connection does: at once, type disconnected, except at a stop or crash of the server. Answers as heartbeat(); there is no attachment before the commit, and none after a rollback. The session still needs heartbeats.
A session is attached to one connection, the last that committed; a connection may have many sessions. A heartbeat by another connection detaches it. A heartbeat after the connection has ended, and before the session has, keeps it alive without a connection. DISCARD ALL changes nothing. Any user that knows the session may attach it.
Never attach through a pooler in transaction mode: if all heartbeats use the same server connection, nothing detaches, and the session ends when the pooler closes that connection. session_sweeper.allow_attach = off for its roles refuses it.
Errors: as heartbeat(), 53400 heartbeat_memory is full, 55000 session_sweeper.allow_attach is off; PREPARE TRANSACTION after it fails with 0A000.';
COMMENT ON FUNCTION sweeper.is_live(uuid) IS 'Returns whether the session is alive now, by its deadline, heartbeats and grace. It does not count as a heartbeat. Errors: 22004 null, 25006 on a standby, 55000 not preloaded, or a node of a cluster, not the coordinator, that has never had a pool.';
COMMENT ON FUNCTION sweeper._last_heartbeat IS 'Time of the last heartbeat in memory; null if the row has all that is known.';
