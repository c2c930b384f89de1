-- Observation of all nodes of a Citus cluster; of this server, where it is in none.

CREATE FUNCTION sweeper._node() RETURNS text
LANGUAGE c STABLE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_node_name';
CREATE FUNCTION sweeper._node_rows(source text) RETURNS text
LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET IntervalStyle = postgres AS 'MODULE_PATHNAME', 'ssw_node_rows';
CREATE FUNCTION sweeper._other_nodes(source text, OUT node text, OUT rows json, OUT error text) RETURNS SETOF record
LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE ROWS 3 AS 'MODULE_PATHNAME', 'ssw_other_nodes';
COMMENT ON FUNCTION sweeper._node IS 'What this node is called in its cluster: host:port; in no cluster: session_sweeper.machine_id.';
COMMENT ON FUNCTION sweeper._node_rows IS
'Rows of a view or table on this node, as the caller sees them: policy_status, problem, stat_progress, pass or cleanup_event; of the last two the latest 10,000. Errors: 22023 another name, 57014 not ready within 2 s.';
COMMENT ON FUNCTION sweeper._other_nodes IS
'The result of _node_rows() on each other node of the cluster, which is asked as the caller; or the error. A connection may take 2 s. Errors: 22023 another name.';

CREATE VIEW sweeper.policy_status_all AS
SELECT l.node, s.* FROM sweeper._node() AS l (node) CROSS JOIN sweeper.policy_status AS s
UNION ALL
SELECT n.node, s.policy, s.relation, coalesce(s.state, 'no answer'), s.brakes, coalesce(s.reason, n.error), s.last_look, s.next_look, s.last_pass_at,
       s.last_success, s.next_due, s.oldest_deadline, s.lag, s.backlog, s.done, s.percent, s.rows_per_second, s.eta, s.workers, s.expired, s.last_error,
       CASE WHEN n.error IS NULL THEN s.next_step || ' -- on node ' || n.node ELSE 'SELECT * FROM sweeper.problem_all;' END
FROM sweeper._other_nodes('policy_status') AS n LEFT JOIN LATERAL json_populate_recordset(NULL::sweeper.policy_status, n.rows) AS s ON true
WHERE s.policy IS NOT NULL OR n.error IS NOT NULL;
COMMENT ON VIEW sweeper.policy_status_all IS 'policy_status of all nodes of a Citus cluster, asked as the reader. A node that does not answer within 2 s is a row with the state "no answer".';

CREATE VIEW sweeper.problem_all AS
SELECT l.node, p.* FROM sweeper._node() AS l (node) CROSS JOIN sweeper.problem AS p
UNION ALL
SELECT n.node, coalesce(p.severity, 'critical'), p.policy, coalesce(p.problem, 'node does not answer'), p.since, coalesce(p.detail, n.error),
       CASE WHEN n.error IS NULL THEN p.next_step || ' -- on node ' || n.node
            WHEN n.error LIKE '%permission denied%' THEN
                 format('SELECT * FROM run_command_on_all_nodes(%L); -- as a superuser', format('SELECT sweeper.grant_access(%L, ''monitor'')', quote_ident(current_user)))
            ELSE format('SELECT * FROM pg_dist_node WHERE nodename || '':'' || nodeport = %L;', n.node) ||
                 CASE WHEN current_user ~ '[\r\n]' THEN '' ELSE format(' -- this node must be able to connect there as role %I', current_user) END END
FROM sweeper._other_nodes('problem') AS n LEFT JOIN LATERAL json_populate_recordset(NULL::sweeper.problem, n.rows) AS p ON true
WHERE p.problem IS NOT NULL OR n.error IS NOT NULL;
COMMENT ON VIEW sweeper.problem_all IS 'problem of all nodes of a Citus cluster, asked as the reader, with the nodes that do not answer within 2 s.';

CREATE VIEW sweeper.stat_progress_all AS
SELECT l.node, s.* FROM sweeper._node() AS l (node) CROSS JOIN sweeper.stat_progress AS s
UNION ALL
SELECT n.node, s.* FROM sweeper._other_nodes('stat_progress') AS n CROSS JOIN LATERAL json_populate_recordset(NULL::sweeper.stat_progress, n.rows) AS s;
COMMENT ON VIEW sweeper.stat_progress_all IS 'stat_progress of all nodes of a Citus cluster, asked as the reader. A node that does not answer within 2 s is a warning.';

CREATE VIEW sweeper.pass_all AS
SELECT l.node, p.* FROM sweeper._node() AS l (node) CROSS JOIN sweeper.pass AS p
UNION ALL
SELECT n.node, p.* FROM sweeper._other_nodes('pass') AS n CROSS JOIN LATERAL json_populate_recordset(NULL::sweeper.pass, n.rows) AS p;
COMMENT ON VIEW sweeper.pass_all IS 'Passes of all nodes of a Citus cluster, asked as the reader; of each other node the latest 10,000. A node that does not answer within 2 s is a warning.';

CREATE VIEW sweeper.cleanup_event_all AS
SELECT l.node, e.* FROM sweeper._node() AS l (node) CROSS JOIN sweeper.cleanup_event AS e
UNION ALL
SELECT n.node, e.* FROM sweeper._other_nodes('cleanup_event') AS n CROSS JOIN LATERAL json_populate_recordset(NULL::sweeper.cleanup_event, n.rows) AS e;
COMMENT ON VIEW sweeper.cleanup_event_all IS 'Events of all nodes of a Citus cluster, asked as the reader; of each other node the latest 10,000. A node that does not answer within 2 s is a warning.';
