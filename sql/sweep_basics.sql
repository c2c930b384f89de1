-- The whole path: register, sweep, events, nothing twice.
SELECT library = sql AS same, restart_needed FROM sweeper.version();
CREATE TABLE login (id int PRIMARY KEY, expires timestamptz NOT NULL, who text);
CREATE INDEX login_expires ON login (expires);
INSERT INTO login SELECT i, now() + (CASE WHEN i <= 40 THEN -1 ELSE 1 END) * (i || ' minutes')::interval, 'u' || i % 3
FROM generate_series(1, 100) AS i;
SELECT policy, relation, state, dead_estimate, exact, index_used, advice
FROM sweeper.register('login', deadline => 'expires', check_every => '0', group_by => 'who', capture => '{who}');
CALL sweeper.sweep('login') \gset
SELECT count(*), min(id) FROM login;
SELECT cleanup_type, relation, "group", count(*), min(key::int), max(key::int), bool_and(cleaned_at >= deadline) AS after_deadline,
       bool_and(metadata ->> 'who' = "group") AS captured
FROM sweeper.cleanup_event GROUP BY 1, 2, 3 ORDER BY 3;
SELECT policy, status, expired, failed, skipped, workers FROM sweeper.pass;
-- ids are unique and in order of the batches
SELECT count(DISTINCT id) FROM sweeper.cleanup_event;
-- nothing is due: null, no pass, no event
CALL sweeper.sweep('login');
SELECT count(*) FROM sweeper.pass;
SELECT policy, state, brakes, expired FROM sweeper.policy_status WHERE policy NOT LIKE 'sweeper.%event' ORDER BY policy;
SELECT expired, passes, (SELECT sum(x) FROM unnest(lag_histogram) AS x) AS lags FROM sweeper.stat_policy WHERE policy = 'login';
SELECT * FROM sweeper.problem;
-- dry run and rollback leave no trace
SELECT state FROM sweeper.register('login', policy => 'dry', deadline => 'expires', dry_run => true);
BEGIN;
SELECT state FROM sweeper.register('login', policy => 'undone', deadline => 'expires');
SELECT dead_estimate FROM sweeper.preview('undone');
ROLLBACK;
SELECT policy FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
-- prepared statements with untyped parameters, as drivers send them
PREPARE r AS SELECT state FROM sweeper.register($1, policy => $2, deadline => $3, check_every => $4, dry_run => $5);
EXECUTE r('login', 'prepared', 'expires', '5 s', true);
PREPARE p AS SELECT sweeper.pause($1, $2);
EXECUTE p('login', 'for a test');
PREPARE u AS SELECT sweeper.resume($1);
EXECUTE u('login');
-- alter, rename, unregister
SELECT sweeper.alter_policy('login', keep_for => '1 hour', new_name => 'logins');
SELECT policy, keep_for FROM sweeper.policy WHERE policy = 'logins';
UPDATE login SET expires = now() - interval '30 minutes' WHERE id = 50;
UPDATE login SET expires = now() - interval '2 hours' WHERE id = 51;
CALL sweeper.sweep('logins') \gset
SELECT id FROM login WHERE id IN (50, 51);
SELECT sweeper.alter_policy('logins', reset => '{keep_for}');
CALL sweeper.sweep('logins') \gset
SELECT id FROM login WHERE id IN (50, 51);
SELECT sweeper.unregister('logins');
SELECT change, policy FROM sweeper.policy_change ORDER BY changed_at;
-- evidence outlives the policy
SELECT count(*) FROM sweeper.cleanup_event;
DROP TABLE login;
