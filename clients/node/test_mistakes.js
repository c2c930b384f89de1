// What goes wrong in a job, in a caller or in its settings, against a private server: ../test.sh node.
'use strict';
const test = require('node:test');
const assert = require('node:assert/strict');
const fs = require('node:fs');
const pg = require('pg');
const { seat, Worker, Full, Stopped, log } = require('./session_sweeper.js');

const TTL = 3;
const config = { application_name: 'client' };
const lines = []; // of the log
log.warn = (text) => {
    lines.push(text);
    fs.appendFileSync(process.env.CLIENT_LOG, `${new Date().toISOString()} ${text}\n`);
};

async function sql(statement, ...values) {
    const client = new pg.Client({ application_name: 'test' });
    await client.connect();
    try {
        return (await client.query(statement, values)).rows;
    } finally {
        await client.end();
    }
}

const sleep = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

async function waitFor(what, probe, seconds = 40) {
    for (const end = performance.now() + 1000 * seconds; ; await sleep(20)) {
        const found = await probe();
        if (found && found.length !== 0) return found;
        if (performance.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    }
}

const ended = (task) => waitFor(`the end of ${task}`, () => sql('SELECT * FROM sweeper.get_task($1) WHERE finished_at IS NOT NULL', task));

/** What a task of each body comes to, in one worker. */
async function outcomes(room, bodies, use = config) {
    const worker = new Worker(use, 'w', { ttl: TTL });
    const result = {};
    for (const [name, body] of Object.entries(bodies)) {
        await sql("SELECT sweeper.create_job($1, 'test', $2, max_attempts => 1)", room, name);
        worker.job(room, 'test', name, body);
    }
    const running = worker.run({ signals: false });
    try {
        for (const name of Object.keys(bodies)) {
            const [{ task }] = await sql("SELECT sweeper.submit($1, 'test', $2) AS task", room, name);
            [result[name]] = await ended(task);
        }
    } finally {
        worker.stop();
        await running;
    }
    return result;
}

const errors = (rows) => Object.fromEntries(Object.entries(rows).map(([name, { status, error }]) => [name, `${status}: ${error}`]));

test('whatever is thrown fails the task', async () => {
    const rows = await outcomes('thrown', {
        nothing: async () => { throw null; },
        undefined: () => Promise.reject(),
        zero: async () => { throw 0; },
        text: async () => { throw 'disk is full'; },
        nul: async () => { throw new RangeError('a\0b'); },
        object: async () => { throw { code: 7 }; },
        synchronous: () => { throw new Error('no'); },
        nameless: async () => { throw Object.create(null, { message: { get() { throw new Error('no text'); } } }); },
    });
    assert.deepEqual(errors(rows), {
        nothing: 'failed: null',
        undefined: 'failed: undefined',
        zero: 'failed: 0',
        text: 'failed: disk is full',
        nul: 'failed: RangeError: a?b',
        object: 'failed: { code: 7 }',
        synchronous: 'failed: Error: no',
        nameless: 'failed: an error without a text',
    });
});

test('only who is asked to stop is cancelled', async () => {
    const rows = await outcomes('alone', {
        abort: async () => { AbortSignal.abort().throwIfAborted(); },
        stopped: async () => { throw new Stopped('enough'); },
    });
    assert.deepEqual(errors(rows), { abort: 'failed: AbortError: This operation was aborted', stopped: 'failed: Error: enough' });
});

test('results and messages that cannot be stored', async () => {
    const rows = await outcomes('stored', {
        nul: async () => 'a\0b',
        surrogate: async () => '\ud800',
        bigint: async () => 1n,
        message: async (task) => { task.progress({ message: 'a\0b' }); },
    });
    assert.deepEqual(Object.values(rows).map((row) => row.status), ['failed', 'failed', 'failed', 'completed']);
    assert.equal(rows.message.message, 'a?b');
});

test('an error that the server refuses is replaced, and the task does not stay', async () => {
    const real = String.prototype.replaceAll;
    try {
        const rows = await outcomes('refused', {
            nul: async () => {
                String.prototype.replaceAll = function unchanged() { return String(this); };
                throw new Error('a\0b');
            },
        });
        assert.deepEqual(errors(rows), { nul: "failed: the server does not store the job's error" });
    } finally {
        String.prototype.replaceAll = real;
    }
});

test('a lock is waited for: an error that may pass does not fail a task that is done', async () => {
    const locker = new pg.Client();
    await locker.connect();
    const result = outcomes('locked', {
        job: async ({ task }) => {
            await locker.query('BEGIN');
            await locker.query('SELECT FROM sweeper.task WHERE task = $1 FOR UPDATE', [task]);
        },
    }, { ...config, options: '-c lock_timeout=200ms' });
    await waitFor('a finish that is refused', () => lines.some((line) => line.startsWith('finish of task') && /lock timeout/.test(line)));
    await locker.query('ROLLBACK');
    assert.equal((await result).job.status, 'completed');
    await locker.end();
});

test('a job that the server refuses ends the worker with its error', { timeout: 60000 }, async () => {
    await sql("SELECT sweeper.register_job(sweeper.register_worker('own'), 'own', 'c', 'n')");
    await sql('CREATE ROLE tenant LOGIN');
    await sql("SELECT sweeper.grant_access('tenant', 'user')");
    for (const [room, args, code] of [['own', {}, /^42501$/], ['x'.repeat(300), {}, /^(22|42)/], ['new', { on_worker_loss: 'nonsense' }, /^22/]]) {
        lines.length = 0;
        await assert.rejects(new Worker({ ...config, user: 'tenant' }, 'w', { ttl: TTL }).job(room, 'c', 'n', args, () => {}).run({ signals: false }), { code });
        assert.match(lines[0], room === 'own' ? /^the server refuses the worker, which ends: .*; HINT: / : /^the server refuses the worker, which ends: /);
        assert.doesNotMatch(lines[0], /access is given by/);
    }
});

test('a connection string is one', async () => {
    const url = 'postgresql://nobody@127.0.0.1:1/nosuchdb';
    await sql("SELECT sweeper.create_pool('string', seats => 1)");
    for (const there of [url, new URL(url)]) await assert.rejects(seat(there, 'string', {}, () => {}), { code: 'ECONNREFUSED' });
    const here = `postgresql:///${process.env.PGDATABASE}?host=${encodeURIComponent(process.env.PGHOST)}`;
    assert.equal(await seat(here, 'string', () => 7), 7);
    assert.equal((await outcomes('string', { job: async () => 7 }, here)).job.result, 7);
    for (const wrong of [7, null, new pg.Client(), new pg.Pool()]) {
        assert.throws(() => new Worker(wrong), { name: 'TypeError', message: /config/ });
        await assert.rejects(seat(wrong, 'string', () => {}), { name: 'TypeError', message: /config/ });
    }
});

test('settings', async () => {
    for (const wrong of [{ ttl: '60' }, { ttl: -1 }, { slots: 0 }, { slots: '2' }, { slotz: 3 }]) {
        assert.throws(() => new Worker({}, 'w', wrong), { name: 'TypeError', message: new RegExp(Object.keys(wrong)[0]) });
    }
    assert.throws(() => new Worker().job('a', 'b', 'c', {}), { name: 'TypeError', message: /function/ });
    await assert.rejects(seat({}, 'p', { wait: '3', owner: 'a' }, () => {}), { name: 'TypeError', message: /wait/ });
    await assert.rejects(seat({}, 'p', {}), { name: 'TypeError', message: /function/ });
});

test('neither the style of intervals nor the parsers of the application matter', async () => {
    await sql("SELECT sweeper.create_pool('style', seats => 1, ttl => '3 s')");
    const holds = async (use, args) => {
        assert.equal(await seat(use, 'style', { owner: 'ann', ...args }, async ({ signal, fence }) => {
            await assert.rejects(seat(use, 'style', { owner: 'bob' }, () => {}), (error) => error instanceof Full && /is full/.test(error.message));
            return [signal.aborted, typeof fence].join();
        }), 'false,number');
    };
    for (const style of ['postgres', 'iso_8601', 'sql_standard', 'postgres_verbose']) {
        for (const args of [{}, { wait: 1 }]) await holds({ ...config, options: `-c intervalstyle=${style}` }, args);
    }
    const before = [20, 1186].map((oid) => [oid, pg.types.getTypeParser(oid)]);
    pg.types.setTypeParser(20, BigInt);
    pg.types.setTypeParser(1186, (text) => text);
    try {
        for (const args of [{}, { wait: 1 }]) await holds(config, args);
    } finally {
        for (const [oid, parser] of before) pg.types.setTypeParser(oid, parser);
    }
});
