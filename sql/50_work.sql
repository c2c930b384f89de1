SET client_min_messages = warning;
-- workers, jobs, tasks
SELECT sweeper.register_worker('w1') AS w1 \gset
SELECT sweeper.register_worker('w2') AS w2 \gset
SELECT sweeper.register_job(:'w1', 'room1', 'math', 'add', '{"a": 1}') = sweeper.register_job(:'w1', 'room1', 'math', 'add', '{"a": 1}') AS idempotent;
SELECT sweeper.register_job(:'w2', 'room1', 'math', 'add', '{"a": 2}');
SELECT sweeper.register_job(:'w2', 'room1', 'math', 'add', '{"a": 1}') IS NOT NULL AS second_worker;
SELECT sweeper.submit('room1', 'math', 'add', '{"n": 1}') AS t1 \gset
SELECT sweeper.submit('room1', 'math', 'add', '{"n": 2}') AS t2 \gset
SELECT :'t1' < :'t2' AS in_order;
SELECT sweeper.submit('room1', 'math', 'sub');
SELECT room, category, name, payload, attempt FROM sweeper.claim(:'w1');
SELECT task = :'t2' AS second, payload FROM sweeper.claim(:'w2', start => true);
SELECT * FROM sweeper.claim(:'w2');
SELECT sweeper.finish_task(:'t1', 'completed');
SELECT sweeper.start_task(:'t1'), sweeper.start_task(:'t1'), sweeper.start_task(:'t2');
SELECT sweeper.finish_task(:'t1', 'completed', '{"sum": 3}'), sweeper.finish_task(:'t1', 'failed');
SELECT sweeper.cancel_task(:'t1'), sweeper.cancel_task(:'t2'), sweeper.cancel_task(:'t2');
SELECT sweeper.release(:'w2');
SELECT payload, status, error, result, finished_at IS NOT NULL AS finished, worker_name FROM sweeper.task ORDER BY task;
SELECT status, comment FROM sweeper.task JOIN sweeper.task_comment USING (task) ORDER BY commented_at;
SELECT * FROM sweeper.job_worker JOIN sweeper.job USING (job) WHERE worker = :'w2';
SELECT deleted_at FROM sweeper.job;
SELECT sweeper.release(:'w1');
SELECT deleted_at IS NOT NULL AS deleted FROM sweeper.job;
SELECT * FROM sweeper.claim(:'w1');
SELECT kind, room, name, status, owner = current_user AS mine, queue_position, comments ~ 'cancel requested' AS cancelled FROM sweeper.get_task(:'t2');
SELECT payload FROM sweeper.task_detail WHERE task IN (SELECT task FROM sweeper.list_tasks(statuses => '{completed,failed}'));
SELECT count(*) FROM sweeper.list_tasks(names => '{A*}', consumed => true);
SELECT * FROM sweeper.get_task('00000000-0000-0000-0000-000000000000');
SELECT * FROM sweeper.job_status;
SELECT * FROM sweeper.worker_status;
