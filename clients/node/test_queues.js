// Real job queues with heartbeats of session_sweeper: ../test.sh queues.  LONG: how many seconds living jobs run; LIBRARY: only that one.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const readline = require('node:readline');
const fs = require('node:fs');
const { Pool } = require('pg');

const LONG = Number(process.env.LONG || 20);
const pool = new Pool();
pool.on('error', () => {}).on('connect', (client) => client.on('error', () => {}));
const sql = async (statement, ...values) => (await pool.query(statement, values)).rows;
const sleep = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

async function waitFor(what, probe, seconds = 30) {
    for (const end = performance.now() + 1000 * seconds; ; await sleep(20)) {
        const found = await probe();
        if (found) return found;
        if (performance.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    }
}

/** A worker, and what it said: [word, id, when]. */
function start(library) {
    const child = spawn(process.execPath, ['queue_worker.js', library], { stdio: ['ignore', 'pipe', fs.openSync(process.env.CLIENT_LOG, 'a')] });
    const said = [];
    readline.createInterface(child.stdout).on('line', (line) => {
        fs.appendFileSync(process.env.CLIENT_LOG, `${new Date().toISOString()} ${child.pid} ${line}\n`);
        if (/^(began|ended|ready)/.test(line)) said.push([...line.split(' '), performance.now()]);
    });
    return { child, said: (word, id) => said.find((s) => s[0] === word && (id === undefined || s[1] === id)) };
}

/** As the hint of adopt() says, if the preset needs a function. */
async function adopt(relation, preset) {
    const call = () => sql('SELECT sweeper.adopt($1::text::regclass, $2, start => $3)', relation, preset, 'now');
    await call().catch(async (error) => {
        if (error.code !== '42883') throw error;
        const create = error.hint.match(/CREATE FUNCTION .*?; (?=SELECT)/s)[0];
        const signature = create.match(/FUNCTION (.*?) RETURNS/)[1];
        await sql(create);
        await sql('SELECT sweeper.adopt($1::text::regclass, $2, start => $3, on_expire => $4)', relation, preset, 'now', signature);
    });
}

const QUEUES = {
    pg_boss: {
        relation: 'pgboss.job',
        preset: 'pg-boss running',
        async prepare() {
            const { PgBoss } = await import('pg-boss');
            this.boss = new PgBoss({ supervise: false, schedule: false });
            this.boss.on('error', () => {});
            await this.boss.start();
            await this.boss.createQueue('dead');
            await this.boss.createQueue('video', { retryLimit: 3 });
            await this.boss.createQueue('long', { retryLimit: 3, expireInSeconds: 5 });
            await this.boss.createQueue('once', { retryLimit: 0, deadLetter: 'dead' });
            await sql("CREATE INDEX ON pgboss.job (started_on) WHERE state = 'active'");
        },
        send(seconds, queue = 'video') { return this.boss.send(queue, { seconds }); },
        async look(id) {
            return (await sql(`SELECT CASE state WHEN 'active' THEN 'running' WHEN 'completed' THEN 'done' ELSE 'waits' END AS state, retry_count AS lost,
                extract(epoch FROM now() - started_on)::float8 AS age, ROW(name, id)::text AS key FROM pgboss.job WHERE id = $1`, id))[0];
        },
    },
    graphile_worker: {
        relation: 'graphile_worker._private_jobs',
        preset: 'graphile-worker running',
        async prepare() {
            const { makeWorkerUtils } = await import('graphile-worker');
            this.utils = await makeWorkerUtils({ pgPool: pool });
            await this.utils.migrate();
            await sql('CREATE INDEX ON graphile_worker._private_jobs (locked_at) WHERE locked_at IS NOT NULL');
        },
        async send(seconds, queueName) { return (await this.utils.addJob('video', { seconds }, { queueName })).id; },
        async look(id) {
            return (await sql(`SELECT CASE WHEN locked_at IS NULL THEN 'waits' ELSE 'running' END AS state, attempts - 1 AS lost,
                extract(epoch FROM now() - locked_at)::float8 AS age, id::text AS key FROM graphile_worker._private_jobs WHERE id = $1`, id))[0] ?? { state: 'done' };
        },
    },
};

test('the lines of doc/clients.md are those of queue_worker.js', () => {
    const worker = fs.readFileSync('queue_worker.js', 'utf8').split('\n').map((line) => line.trim());
    const lines = fs.readFileSync('../clients.md', 'utf8').match(/^```js\n[^]*?^```$/gm).flatMap((block) => block.split('\n').slice(1, -1));
    assert.equal(lines.length, 8);
    for (const line of lines) assert.ok(worker.includes(line), line);
});

for (const [library, queue] of Object.entries(QUEUES).filter(([name]) => (process.env.LIBRARY ?? name) === name)) {
    test(library, async (t) => {
        await queue.prepare();
        await adopt(queue.relation, queue.preset);
        assert.match((await sql('SELECT index_used::text AS index FROM sweeper.preview($1)', queue.relation))[0].index ?? '', /started_on|locked_at/);
        const workers = [start(library), start(library)];
        t.after(() => workers.forEach(({ child }) => child.kill('SIGKILL')));
        await waitFor('two workers', () => workers.every((w) => w.said('ready')));
        const runs = (id) => waitFor(`the start of ${id}`, () => workers.find((w) => w.said('began', id) && w.child.exitCode === null && !w.child.killed));

        await t.test('kill -9 of a worker: another one has its job within 5 s', async () => {
            for (let i = 0; i < 3; i++) {
                const jobs = [await queue.send(8), ...library === 'graphile_worker' ? [await queue.send(8, `named ${i}`)] : []];
                for (const id of jobs) await runs(id);
                await sleep(1500 + 500 * i); // some heartbeats
                const victim = await runs(jobs[0]);
                const lost = jobs.filter((id) => victim.said('began', id));
                victim.child.kill('SIGKILL');
                const killed = performance.now();
                workers[workers.indexOf(victim)] = start(library);
                for (const id of lost) {
                    const [, , when] = await waitFor(`another worker for ${id}`, () => workers.map((w) => w.said('began', id)).find((said) => said));
                    const seconds = (when - killed) / 1000;
                    t.diagnostic(`taken after ${seconds.toFixed(2)} s`);
                    assert.ok(seconds < 5, `it took ${seconds} s`);
                    assert.equal((await queue.look(id)).lost, 1);
                }
                for (const id of jobs) await waitFor(`the end of ${id}`, async () => (await queue.look(id)).state === 'done');
            }
        });

        await t.test(`jobs of living workers are not put back in ${LONG} s`, async () => {
            const since = (await sql('SELECT coalesce(max(id), 0) AS id FROM sweeper.cleanup_event'))[0].id;
            const jobs = await Promise.all(Array.from({ length: 12 }, () => queue.send(LONG)));
            if (library === 'pg_boss') { // longer than its own time-out, which is 5 s
                jobs.push(await queue.send(LONG, 'long'));
                workers.push(start(library));
            }
            for (const id of jobs) await runs(id);
            let looks = 0;
            while (!workers.some((w) => jobs.some((id) => w.said('ended', id)))) {
                for (const id of jobs) {
                    const { state, lost, age } = await queue.look(id);
                    if (state === 'done') continue;
                    assert.deepEqual([state, lost], ['running', 0]);
                    assert.ok(age < 5, `for the library it has run for ${age} s`);
                }
                looks++;
                await sleep(1000);
            }
            t.diagnostic(`${jobs.length} jobs seen ${looks} times`);
            assert.ok(looks > LONG / 2);
            for (const id of jobs) {
                await waitFor(`the end of ${id}`, async () => (await queue.look(id)).state === 'done');
                assert.equal(workers.filter((w) => w.said('began', id)).length, 1, 'it ran once');
            }
            const schema = library.replace('pg_boss', 'pgboss'); // jobs of the other library may end meanwhile
            assert.deepEqual(await sql(`SELECT * FROM sweeper.cleanup_event WHERE id > $1 AND starts_with(relation, '${schema}.')`, since), []);
        });

        if (library === 'pg_boss') {
            await t.test('a job without another attempt fails as pg-boss has it', async () => {
                const id = await queue.send(1, 'once');
                await queue.boss.fetch('once');
                await waitFor('the dead letter', async () => (await sql("SELECT 1 FROM pgboss.job WHERE name = 'dead'")).length, 40);
                assert.deepEqual(await sql('SELECT state::text FROM pgboss.job WHERE id = $1', id), [{ state: 'failed' }]);
            });
        }

        await t.test('a heartbeat writes no WAL', async () => {
            await sql("SELECT sweeper.alter_policy($1, ttl => '10 min')", queue.relation);
            const jobs = await Promise.all(Array.from({ length: 10 }, () => queue.send(60)));
            for (const id of jobs) await runs(id);
            const keys = await Promise.all(jobs.map(async (id) => (await queue.look(id)).key));
            // those who write WAL are gone: what is left is this connection
            workers.forEach(({ child }) => child.kill('SIGKILL'));
            const client = await pool.connect();
            await client.query('SELECT sweeper.touch_many($1, $2)', [queue.relation, keys]);
            const { rows: [{ pid }] } = await client.query('SELECT pg_backend_pid() AS pid');
            await waitFor('an idle server', async () => (await sql('SELECT FROM pg_stat_activity WHERE backend_type = $1 AND pid <> ALL ($2)', 'client backend', [pid])).length <= 1);
            let least = Infinity; // other processes of the server write now and then
            for (let i = 0; i < 5 && least > 0; i++) {
                const [{ lsn: from }] = await sql('SELECT pg_current_wal_insert_lsn() AS lsn');
                for (let n = 0; n < 200; n++) {
                    const { rows } = await client.query('SELECT * FROM sweeper.touch_many($1, $2)', [queue.relation, keys]);
                    assert.deepEqual(rows, []);
                }
                least = Math.min(least, (await sql('SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)::float8 AS bytes', from))[0].bytes);
            }
            client.release();
            assert.equal(least, 0);
        });
        assert.deepEqual(await sql('SELECT * FROM sweeper.failed_row'), []);
        await queue.boss?.stop({ graceful: false });
        await queue.utils?.release();
    });
}
test.after(() => pool.end());
