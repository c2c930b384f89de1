// The client against a private server that it may stop: ../test.sh node.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const { spawn, spawnSync } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const { Client } = require('pg');
const { seat, submit, Worker, Full, Lost, Retry, log } = require('./session_sweeper.js');

const TTL = 3;
const config = { application_name: 'client' };
log.warn = (text) => fs.appendFileSync(process.env.CLIENT_LOG, `${new Date().toISOString()} ${text}\n`);

async function sql(statement, ...values) {
    const client = new Client({ application_name: 'test' });
    client.on('error', () => {});
    await client.connect();
    try {
        return (await client.query(statement, values)).rows;
    } finally {
        await client.end();
    }
}

const sleep = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

async function waitFor(what, probe, seconds = 20) {
    for (const end = performance.now() + 1000 * seconds; ; await sleep(20)) {
        const found = await probe();
        if (found && found.length !== 0) return found;
        if (performance.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    }
}

/** True: the signal came within these seconds. */
async function aborted(signal, seconds) {
    const end = performance.now() + 1000 * seconds;
    while (!signal.aborted && performance.now() < end) await sleep(10);
    return signal.aborted;
}

function restart(mode) {
    for (const args of [['-m', mode, 'stop'], ['-l', process.env.SERVER_LOG, 'start']]) {
        const { status } = spawnSync(`${process.env.PG_BIN}/pg_ctl`, ['-w', '-D', process.env.PGDATA, ...args], { stdio: 'ignore' });
        assert.equal(status, 0);
    }
}

/** The server says nothing: not by the client's backends, and not to those who connect. */
async function silence(during) {
    const pids = (await sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'client'")).map((row) => row.pid);
    pids.push(Number(fs.readFileSync(`${process.env.PGDATA}/postmaster.pid`, 'utf8').split('\n')[0]));
    pids.forEach((pid) => process.kill(pid, 'SIGSTOP'));
    try {
        return await during(performance.now());
    } finally {
        pids.forEach((pid) => process.kill(pid, 'SIGCONT'));
    }
}

const kill = () => sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'client'");

test('seats', async (t) => {
    let pool;
    const live = async () => (await sql('SELECT live FROM sweeper.pool_status WHERE pool = $1', pool))[0].live;
    const withPool = (name, body, ttl = TTL) => t.test(name, async () => {
        pool = name;
        await sql('SELECT sweeper.create_pool($1, seats => 1, ttl => $2)', pool, `${ttl} s`);
        await body();
    });

    await withPool('held and released', async () => {
        const result = await seat(config, pool, { owner: 'ann' }, async (s) => {
            assert.deepEqual([s.seats, s.seats_used, await live()], [1, 1, '1']);
            await assert.rejects(seat(config, pool, {}, () => {}), Full);
            assert.equal(await aborted(s.signal, 2 * TTL), false, 'it lives on heartbeats');
            return 7;
        });
        assert.equal(result, 7);
        assert.deepEqual(await sql('SELECT owner, status FROM sweeper.session WHERE pool = $1', pool), [{ owner: 'ann', status: 'released' }]);
    });

    await withPool('which limit', async () => {
        await seat(config, pool, { owner: 'ann' }, async () => {
            await assert.rejects(seat(config, pool, { owner: 'ann' }, () => {}), { message: /is full/ });
            await sql('SELECT sweeper.alter_pool($1, seats => 2, max_per_owner => 1)', pool);
            await assert.rejects(seat(config, pool, { owner: 'ann' }, () => {}), { message: /max_per_owner \(1\)/ });
        });
    });

    await withPool('waits for its turn', async () => {
        if (!(await sql("SELECT FROM pg_proc WHERE proname = 'acquire_wait'")).length) return;
        let second;
        await seat(config, pool, { owner: 'ann' }, async () => {
            await assert.rejects(seat(config, pool, { owner: 'bob', wait: 1 }, () => {}), Full);
            second = seat(config, pool, { owner: 'bob', wait: 20 }, async (s) => [performance.now(), s.fence]);
            await sleep(2 * TTL * 1000);
        });
        const freed = performance.now();
        const [began, fence] = await second;
        assert.ok(began - freed < 1000 && fence > 0, `after ${began - freed} ms`);
    });

    await withPool('ends with the process', async () => {
        const child = spawn(process.execPath, ['-e', `require('./session_sweeper.js').seat({}, '${pool}', {}, () => { console.log('in'); return new Promise(() => {}); })`],
            { stdio: ['ignore', 'pipe', 'inherit'] });
        await once(child.stdout, 'data');
        await waitFor('the heartbeat that attaches', () => sql('SELECT FROM sweeper.live_session WHERE pool = $1 AND last_heartbeat IS NOT NULL', pool));
        const killed = performance.now();
        child.kill('SIGKILL');
        await waitFor('the seat is free', async () => await live() === '0');
        assert.ok(performance.now() - killed < 1500, 'at once, not after the time to live');
    });

    await withPool('false ends it at once', async () => {
        let signal;
        await assert.rejects(seat(config, pool, {}, async (s) => {
            ({ signal } = s);
            await sql("SELECT sweeper.expire('sweeper.session', ARRAY[$1::text], 'gone')", s.session);
            assert.ok(await aborted(s.signal, TTL / 3 + 1), 'with the next heartbeat');
        }), Lost);
        assert.ok(signal.aborted);
    });

    await withPool('survives a crash of the server', async () => {
        await assert.rejects(seat(config, pool, {}, async (s) => {
            for (const mode of ['immediate', 'fast']) {
                restart(mode);
                assert.equal(await aborted(s.signal, 12), false, mode);
            }
            assert.equal(await live(), '1');
            // it is attached again
            await waitFor('its connection', kill);
            await waitFor('the end of the session', async () => await live() === '0');
            assert.ok(await aborted(s.signal, 5));
        }), Lost);
    }, 10);

    await withPool('survives its connection without attach', async () => {
        await seat(config, pool, { attach: false }, async (s) => {
            for (let i = 0; i < 3; i++) {
                await kill();
                assert.equal(await aborted(s.signal, TTL), false);
            }
            assert.equal(await live(), '1');
        });
    });

    await withPool('a stopped backend is given up', async () => {
        await seat(config, pool, {}, async (s) => {
            const [{ pid }] = await waitFor('its backend', () => sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'client'"));
            process.kill(pid, 'SIGSTOP');
            try {
                assert.equal(await aborted(s.signal, 12), false, 'another connection keeps it');
            } finally {
                process.kill(pid, 'SIGCONT');
            }
        });
    }, 9);

    await withPool('silence ends it after one ttl', async () => {
        await assert.rejects(seat(config, pool, {}, async (s) => {
            assert.equal(await aborted(s.signal, TTL / 3 + 0.5), false);
            const lasted = await silence(async (began) => {
                assert.ok(await aborted(s.signal, 2 * TTL));
                return (performance.now() - began) / 1000;
            });
            assert.ok(lasted > TTL - TTL / 3 - 0.5 && lasted < TTL + 0.5, `it lasted ${lasted} s`);
        }), (error) => error instanceof Lost && /time to live/.test(error.message));
    });
});

test('workers', async (t) => {
    const ends = async (task, status) => {
        await waitFor(`the end of ${task}`, () => sql('SELECT FROM sweeper.get_task($1) WHERE finished_at IS NOT NULL', task), 40);
        const [row] = await sql('SELECT * FROM sweeper.get_task($1)', task);
        assert.equal(row.status, status, row.comments);
        return row;
    };
    const send = async (room, payload) => {
        const client = new Client();
        await client.connect();
        const task = await submit(client, room, 'test', 'job', payload);
        await client.end();
        return task;
    };
    const working = async (worker, room, body) => {
        const running = worker.run({ signals: false });
        try {
            await waitFor('the worker', () => sql('SELECT FROM sweeper.job_status WHERE room = $1 AND workers > 0', room));
            await body();
        } finally {
            worker.stop();
            await running;
        }
    };

    await t.test('do tasks', async () => {
        const worker = new Worker(config, 'w', { slots: 3, ttl: TTL }).job('do', 'test', 'job', {}, async (task) => {
            task.progress({ done: 1, total: 2, message: 'half' });
            if (task.payload.fail) throw new TypeError('no');
            if (task.payload.odd) return 1n; // JSON has no such number
            return { twice: 2 * task.payload.n };
        });
        await working(worker, 'do', async () => {
            const tasks = await Promise.all(Array.from({ length: 20 }, (_, n) => send('do', { n })));
            const [fails, odd] = [await send('do', { fail: true }), await send('do', { odd: true })];
            for (const [n, task] of tasks.entries()) {
                const row = await ends(task, 'completed');
                assert.deepEqual([row.result, row.message], [{ twice: 2 * n }, 'half']);
            }
            assert.equal((await ends(fails, 'failed')).error, 'TypeError: no');
            await ends(odd, 'failed');
        });
        assert.deepEqual(await sql("SELECT FROM sweeper.worker_status WHERE name = 'w'"), []);
    });

    await t.test('retry', async (retry) => {
        if (!(await sql("SELECT FROM pg_proc WHERE proname = 'finish_task' AND 'retry' = ANY (proargnames)")).length) return retry.skip('finish_task has no retry');
        const worker = new Worker(config).job('retry', 'test', 'job', {}, (task) => {
            if (task.attempt < 3) throw new Retry('later');
        });
        await working(worker, 'retry', async () => assert.equal((await ends(await send('retry'), 'completed')).attempt, 3));
    });

    await t.test('a job that hangs is taken away, though its worker lives, and is told to stop', async () => {
        await sql("SELECT sweeper.create_job('hangs', 'test', 'job', timeout => '2 s', backoff => '100 ms')");
        let stopped;
        const worker = new Worker(config).job('hangs', 'test', 'job', {}, async (task) => {
            if (task.attempt === 1) stopped = await aborted(task.signal, 60);
        });
        await working(worker, 'hangs', async () => assert.equal((await ends(await send('hangs'), 'completed')).attempt, 2));
        assert.equal(stopped, true);
    });

    await t.test('a worker without access ends with the error', async () => {
        await sql('CREATE ROLE stranger LOGIN');
        const { warn } = log;
        const lines = [];
        log.warn = (text) => { lines.push(text); };
        const worker = new Worker({ ...config, user: 'stranger' }).job('strange', 'test', 'job', {}, () => {});
        await assert.rejects(worker.run({ signals: false }), { code: '42501' });
        log.warn = warn;
        assert.match(lines.join('\n'), /^the server refuses the worker, which ends: .*SELECT sweeper\.grant_access\('stranger', 'user'\)$/);
    });

    await t.test('a report is checked where it is made; one that the server refuses does not cost the heartbeat', async () => {
        await sql("SELECT sweeper.create_job('reports', 'test', 'job', max_attempts => 1)");
        const refused = [];
        const warn = log.warn;
        const lines = [];
        log.warn = (text) => { lines.push(text); warn(text); };
        const worker = new Worker(config, 'w', { ttl: TTL }).job('reports', 'test', 'job', {}, async (task) => {
            for (const mistake of [{ done: '5' }, { total: [1] }, { done: -1 }, { done: NaN }, { total: 2n ** 63n }]) {
                try { task.progress(mistake); } catch (error) { refused.push(error.name); }
            }
            for (const end = performance.now() + 2000 * TTL; performance.now() < end; await sleep(100)) task.report = [null, null, '\0']; // progress() would replace it
            task.progress({ done: 1.25, total: 100n, message: 7 });
        });
        await working(worker, 'reports', async () => {
            const row = await ends(await send('reports'), 'completed');
            assert.deepEqual([row.done, row.total, row.message, row.attempt], ['1', '100', '7', 1]);
        });
        log.warn = warn;
        assert.deepEqual(refused, ['TypeError', 'TypeError', 'RangeError', 'RangeError', 'RangeError']);
        assert.equal(lines.filter((line) => line.includes('refuses a report')).length, 1, lines);
    });

    await t.test('cancel', async () => {
        let began;
        const worker = new Worker(config).job('cancel', 'test', 'job', {}, async (task) => {
            began = true;
            await aborted(task.signal, 30);
            task.signal.throwIfAborted();
        });
        await working(worker, 'cancel', async () => {
            const task = await send('cancel');
            await waitFor('its start', () => began);
            await sql('SELECT sweeper.cancel_task($1)', task);
            await ends(task, 'cancelled');
        });
    });

    await t.test('a task outlives a crash of the server', async () => {
        let began, goOn;
        const worker = new Worker(config, 'w', { ttl: 10 }).job('crash', 'test', 'job', { on_worker_loss: 'requeue' }, async () => {
            began = true;
            await waitFor('to go on', () => goOn, 60);
        });
        await working(worker, 'crash', async () => {
            const task = await send('crash');
            await waitFor('its start', () => began);
            restart('immediate');
            await sleep(12000);
            assert.equal((await sql('SELECT status FROM sweeper.get_task($1)', task))[0].status, 'running');
            goOn = true;
            assert.equal((await ends(task, 'completed')).attempt, 1);
        });
    });

    // a worker that loses its session stops its task, registers again, and the task runs once more
    const lost = async (room, takeAway) => {
        const attempts = [];
        let stopped;
        const worker = new Worker(config, 'w', { ttl: TTL }).job(room, 'test', 'job', { on_worker_loss: 'requeue' }, async (task) => {
            attempts.push(task.attempt);
            if (task.attempt > 1) return 'of the second';
            await aborted(task.signal, 30);
            stopped = performance.now();
            return 'of nobody';
        });
        let lasted;
        await working(worker, room, async () => {
            const task = await send(room);
            await waitFor('the first attempt', () => attempts);
            await takeAway(async (began) => {
                await waitFor('its end', () => stopped);
                lasted = (stopped - began) / 1000;
            });
            assert.equal((await ends(task, 'completed')).result, 'of the second');
            assert.deepEqual(attempts, [1, 2]);
        });
        return lasted;
    };
    await t.test('expired elsewhere', async () => {
        const lasted = await lost('expired', async (during) => {
            await sql("SELECT sweeper.expire('sweeper.session', ARRAY(SELECT session::text FROM sweeper.session WHERE pool = 'sweeper.worker' AND status = 'active'))");
            await during(performance.now());
        });
        assert.ok(lasted < TTL / 3 + 1, `it lasted ${lasted} s`);
    });
    await t.test('silence', async () => {
        const lasted = await lost('silence', silence);
        assert.ok(lasted > TTL - TTL / 3 - 0.5 && lasted < TTL + 1, `it lasted ${lasted} s`);
    });

    await t.test('kill -9: the task runs again at once, at another worker', async () => {
        const child = spawn(process.execPath, ['-e', `new (require('./session_sweeper.js').Worker)({}, 'first').job('kill', 'test', 'job',
            { on_worker_loss: 'requeue' }, () => { console.log('began'); return new Promise(() => {}); }).run()`], { stdio: ['ignore', 'pipe', 'inherit'] });
        await waitFor('the worker', () => sql("SELECT FROM sweeper.job_status WHERE room = 'kill' AND workers > 0"));
        const task = await send('kill');
        await once(child.stdout, 'data');
        const done = [];
        const worker = new Worker(config, 'second').job('kill', 'test', 'job', { on_worker_loss: 'requeue' }, async ({ attempt }) => { done.push(attempt); });
        await working(worker, 'kill', async () => {
            await waitFor('two workers', () => sql("SELECT FROM sweeper.job_status WHERE room = 'kill' AND workers > 1"));
            const killed = performance.now();
            child.kill('SIGKILL');
            await waitFor('the second attempt', () => done);
            assert.ok(performance.now() - killed < 2000);
            await ends(task, 'completed');
            assert.deepEqual(done, [2]);
        });
    });
});

test('examples of doc/clients.md', async () => {
    const example = (what) => {
        const [code] = fs.readFileSync('../clients.md', 'utf8').match(/^```javascript\n[^]*?^```$/gm).filter((block) => block.includes(what));
        return spawn(process.execPath, ['-e', code.replace(/```(javascript)?/g, '')], { stdio: ['ignore', 'pipe', 'inherit'] });
    };
    await sql("SELECT sweeper.create_pool('cad', seats => 1)");
    const holder = example('{ seat }');
    assert.match(String(await once(holder.stdout, 'data')), /^fence \d+\n/);
    assert.deepEqual(await once(holder, 'exit'), [0, null]);
    assert.deepEqual(await sql("SELECT owner, status FROM sweeper.session WHERE pool = 'cad'"), [{ owner: 'ann@example.com', status: 'released' }]);
    const worker = example('{ Worker }');
    await waitFor('the worker', () => sql("SELECT FROM sweeper.job_status WHERE room = 'photos' AND workers > 0"));
    const [{ task }] = await sql("SELECT sweeper.submit('photos', 'image', 'resize', '{\"id\": 7}') AS task");
    await waitFor('the result', async () => (await sql('SELECT result FROM sweeper.get_task($1)', task))[0].result?.size === 7168);
    worker.kill('SIGTERM');
    assert.deepEqual(await once(worker, 'exit'), [0, null]);
});

test('names of arguments', async () => {
    for (const mistake of [{ 'a" => 1); --': 1 }, { max_attempts: 4 }]) {
        await assert.rejects(submit({ query() {} }, 'a', 'b', 'c', {}, mistake), { name: 'TypeError', message: /create_job/ });
        assert.throws(() => new Worker().job('a', 'b', 'c', mistake, () => {}), { name: 'TypeError', message: /create_job/ });
    }
    await assert.rejects(seat({}, 'p', { wait: 1 }, () => {}), { name: 'TypeError', message: /owner/ });
    await assert.rejects(seat({}, 'p', { seats: 1 }, () => {}), { name: 'TypeError', message: /seats/ });
});
