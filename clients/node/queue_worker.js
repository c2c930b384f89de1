// A worker of pg-boss or graphile-worker that sends heartbeats for what it runs: node queue_worker.js LIBRARY.
// test_queues.js kills it.  Each job has {"seconds"}; what it says goes to the standard output.
'use strict';
const { EventEmitter } = require('node:events');
const { Pool } = require('pg');

const pool = new Pool();
pool.on('error', () => {}).on('connect', (client) => client.on('error', () => {}));
const say = (...words) => console.log(words.join(' '));
const work = ({ seconds }) => new Promise((resolve) => { setTimeout(resolve, 1000 * seconds); });

const workers = {
    async pg_boss() {
        const { PgBoss } = await import('pg-boss');
        const boss = new PgBoss({ superviseIntervalSeconds: 1, monitorIntervalSeconds: 1 });
        boss.on('error', (error) => say('error', error.message));
        await boss.start();
        const running = new Set();
        setInterval(() => pool.query('SELECT sweeper.touch_many($1, $2)', ['pgboss.job', [...running]]).catch(() => {}), 1000);
        await boss.work('video', { pollingIntervalSeconds: 1, localConcurrency: 10 }, async ([job]) => {
            running.add(`(video,${job.id})`);
            say('began', job.id);
            await work(job.data).finally(() => running.delete(`(video,${job.id})`));
            say('ended', job.id);
        });
        // what is fetched by hand has no time-out in this process, only that of the supervision
        const [job] = await boss.fetch('long') ?? [];
        if (job) {
            running.add(`(long,${job.id})`);
            say('began', job.id);
            await work(job.data).finally(() => running.delete(`(long,${job.id})`));
            await boss.complete('long', job.id);
            say('ended', job.id);
        }
    },

    async graphile_worker() {
        const { run } = await import('graphile-worker');
        const running = new Set();
        const events = new EventEmitter();
        events.on('job:start', ({ job }) => running.add(job.id)).on('job:complete', ({ job }) => running.delete(job.id));
        setInterval(() => pool.query('SELECT sweeper.touch_many($1, $2)', ['graphile_worker._private_jobs', [...running]]).catch(() => {}), 1000);
        await run({
            pgPool: pool, events, concurrency: 10, pollInterval: 1000, noHandleSignals: true,
            taskList: {
                async video(payload, { job }) {
                    say('began', job.id);
                    await work(payload);
                    say('ended', job.id);
                },
            },
        });
    },
};

workers[process.argv[2]]().then(() => say('ready'), (error) => {
    say('failed', error.stack);
    process.exit(1);
});
