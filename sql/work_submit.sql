-- Tasks with a time, a priority, a unique key, or an origin; several at once.
SET client_min_messages = warning;
CREATE FUNCTION code(command text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE command; RETURN 'ok';
    EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE || ': ' || SQLERRM; END $$;
SELECT sweeper.register_worker('w') AS w \gset
SELECT sweeper.register_job(:'w', 'r', 'c', n) IS NOT NULL AS registered FROM unnest('{a,b}'::text[]) AS n;
SELECT code(c) FROM (VALUES
    ($$SELECT sweeper.submit('r', 'c', 'a', priority => 101)$$),
    ($$SELECT sweeper.submit('r', 'c', 'a', priority => -101)$$),
    ($$SELECT sweeper.submit('r', 'c', 'a', priority => NULL)$$),
    ($$SELECT sweeper.submit('r', 'c', 'a', unique_key => '')$$),
    ($$SELECT sweeper.submit('r', 'c', 'a', origin => repeat('o', 256))$$),
    ($$SELECT sweeper.submit_many('r', 'c', 'a', NULL)$$),
    ($$SELECT sweeper.submit_many('r', 'c', 'a', '{NULL}')$$),
    ($$SELECT sweeper.submit_many('r', 'c', 'a', '{1,2}', unique_key => 'k')$$),
    ($$SELECT sweeper.submit_many('r', 'c', 'a', ARRAY[to_jsonb(repeat('x', 1048577))])$$)) AS v (c);
-- the higher priority first, then the older task, whichever its job
SELECT sweeper.submit('r', 'c', n, to_jsonb(n || p), priority => p) IS NOT NULL AS submitted
FROM (VALUES ('a', 0), ('b', -5), ('a', 100), ('b', 7), ('a', 7), ('b', 100), ('a', -100), ('b', 0)) AS v (n, p);
SELECT t.payload, l.priority, l.queue_position FROM sweeper.list_tasks(statuses => '{enqueued}') AS l JOIN sweeper.task AS t USING (task) ORDER BY l.name, l.queue_position;
SELECT count(*) FROM sweeper.list_tasks() AS l JOIN sweeper.task_info AS i USING (task) WHERE l.queue_position = i.queue_position;
SELECT payload FROM sweeper.claim(:'w');
SELECT payload FROM sweeper.claim(:'w', 3);
SELECT sweeper.submit('r', 'c', 'a', '"late a50"', priority => 50) IS NOT NULL AS submitted;
SELECT payload FROM sweeper.claim(:'w', 10);
DELETE FROM sweeper.task;
-- several at once, in their order; none
SELECT count(*), count(DISTINCT t) FROM sweeper.submit_many('r', 'c', 'a', ARRAY['1', '2', '3']::jsonb[], priority => 1, origin => 'elsewhere') AS t;
SELECT count(*) FROM sweeper.submit_many('r', 'c', 'b', '{}');
CREATE TEMP TABLE many AS SELECT * FROM sweeper.submit_many('r', 'c', 'b', ARRAY['4', '5']::jsonb[]) WITH ORDINALITY AS s (t, n);
SELECT n, payload FROM many JOIN sweeper.task ON task = t ORDER BY n;
DROP TABLE many;
SELECT payload FROM sweeper.claim(:'w', 10);
-- the room that submits
SELECT payload, room, t.origin FROM sweeper.list_tasks(origins => '{else*,r}') AS l JOIN sweeper.task AS t USING (task) ORDER BY payload;
SELECT count(*) FROM sweeper.list_tasks(origins => '{ELSEWHERE}', rooms => '{r}');
DELETE FROM sweeper.task;
-- one task of a key, until it has ended; of each job; a key is not that of another's
SELECT sweeper.submit('r', 'c', 'a', '1', unique_key => 'k') AS t1 \gset
SELECT sweeper.submit('r', 'c', 'a', '2', unique_key => 'k') = :'t1' AS same, sweeper.submit('r', 'c', 'b', '3', unique_key => 'k') <> :'t1' AS other_job,
    sweeper.submit('r', 'c', 'a', '4', unique_key => 'l') <> :'t1' AS other_key, sweeper.submit('r', 'c', 'a', '5') <> :'t1' AS none,
    (SELECT t FROM sweeper.submit_many('r', 'c', 'a', ARRAY['6'::jsonb], unique_key => 'k') AS t) = :'t1' AS same;
SELECT payload, unique_key FROM sweeper.task_detail ORDER BY task;
SELECT payload FROM sweeper.claim(:'w', start => true);
SELECT sweeper.submit('r', 'c', 'a', '7', unique_key => 'k') = :'t1' AS runs;
SELECT sweeper.finish_task(:'t1', 'completed');
SELECT sweeper.submit('r', 'c', 'a', '8', unique_key => 'k') AS t2 \gset
SELECT :'t2' <> :'t1' AS ended, sweeper.cancel_task(:'t2'), sweeper.submit('r', 'c', 'a', '9', unique_key => 'k') <> :'t2' AS cancelled;
-- one that has not come to its time counts, too; it can be cancelled
SELECT sweeper.submit('r', 'c', 'a', '10', run_at => now() + interval '1 h', unique_key => 'later') AS t3 \gset
SELECT sweeper.submit('r', 'c', 'a', '11', unique_key => 'later') = :'t3' AS same;
SELECT status, enqueued_at, queue_position, not_before > now() AS later FROM sweeper.get_task(:'t3');
SELECT count(*) FROM sweeper.claim(:'w', 10);
SELECT sweeper.cancel_task(:'t3'), sweeper.submit('r', 'c', 'a', '12', run_at => 'infinity') IS NOT NULL AS never, sweeper.submit('r', 'c', 'a', '13', run_at => '-infinity') IS NOT NULL AS past;
SELECT payload FROM sweeper.claim(:'w', 10);
SELECT status, n FROM sweeper._metric_task WHERE NOT ended ORDER BY status;
-- it keeps its job
SELECT sweeper.release(:'w');
SELECT name, workers, waiting FROM sweeper.job_status;
SELECT sweeper.drop_job('r', 'c', 'a');
SELECT status FROM sweeper.task WHERE payload = '12';
DELETE FROM sweeper.task;
DELETE FROM sweeper.job;
DROP FUNCTION code;
