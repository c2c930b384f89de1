/*
 * Seats and workers of session_sweeper, for node-pg.
 *
 *     await seat({}, 'cad', { owner: 'ann' }, async ({ signal, fence }) => {
 *         // signal is aborted when the seat is lost: somebody else may have it then
 *     });
 *
 *     const worker = new Worker({}, 'resizer-1');
 *     worker.job('photos', 'image', 'resize', { on_worker_loss: 'requeue' }, async (task) => {
 *         task.progress({ done: 50, total: 100 });    // throws Stopped if the task was cancelled or taken away
 *         return { size: 1024 };                      // task.signal is aborted then, too
 *     });
 *     await worker.run();                             // until worker.stop(), or a signal SIGTERM or SIGINT
 *
 * What both keep: a session is attached and gets its heartbeats on one connection, which nothing else uses and which is
 * opened again when it breaks.  Only the answer false ends a session; after an error nothing is known, and the heartbeat
 * is tried again.  One time to live after the last answer true the session counts as lost, whatever the network does.
 * Heartbeats need the event loop: what keeps it busy for long belongs in a worker thread.
 */
'use strict';
const os = require('node:os');
const { inspect } = require('node:util');
const { Client } = require('pg');

const LIMIT = 5000; // milliseconds until a silent connection is given up
const LOOK = 1000; // between questions whether a running task is still wanted, and between tries after an error
const REFUSED = /^(22|3F|42)/; // SQLSTATE: a wrong argument, no such schema, no such function or no right
const PASSING = /^(40|53|55P03|57)/; // SQLSTATEs of what may go well at the next try
const UNTOLD = "the server does not store the job's error";
const WAIT = 5000; // that a worker waits for a task at a time

class Full extends Error {}
class Lost extends Error {}
class Stopped extends Error {}
/** Thrown by a job: this attempt failed, and the task shall be tried again. */
class Retry extends Error {}

const log = { warn: (text) => console.warn(`session_sweeper: ${text}`) };

/** Waits so many milliseconds, or until one of the signals. */
function pause(milliseconds, ...signals) {
    return new Promise((resolve) => {
        const timer = setTimeout(done, signals.some((signal) => signal.aborted) ? 0 : milliseconds);
        function done() {
            clearTimeout(timer);
            for (const signal of signals) signal.removeEventListener('abort', done);
            resolve();
        }
        for (const signal of signals) signal.addEventListener('abort', done);
    });
}

/** What the caller may give by name. */
const ARGUMENTS = {
    acquire: ['owner', 'ttl', 'metadata', 'takeover'],
    acquire_wait: ['owner', 'ttl', 'wait'],
    register_job: ['schema', 'on_worker_loss'],
    submit: ['group_role', 'run_at', 'priority', 'unique_key', 'origin'],
};

/** Named arguments of a function: their text in SQL, after n parameters, and their values.  Undefined ones keep their defaults. */
function named(of, args, n) {
    for (const name of Object.keys(args)) {
        const hint = of.startsWith('acquire') ? '' : '; attempts, backoff and timeout are set by sweeper.create_job()';
        if (!ARGUMENTS[of].includes(name)) throw new TypeError(`sweeper.${of}() has no argument "${name}", but ${ARGUMENTS[of].join(', ')}${hint}`);
    }
    const given = Object.entries(args).filter(([, value]) => value !== undefined && value !== null);
    return [given.map(([name], i) => `, ${name} => $${n + i + 1}`).join(''), given.map(([, value]) => value)];
}

/** Submits a task in the transaction of your client (or by your pool), and returns it.  args: others of sweeper.submit(). */
async function submit(client, room, category, name, payload = {}, args = {}) {
    const [text, values] = named('submit', args, 4);
    const { rows } = await client.query(`SELECT sweeper.submit($1, $2, $3, $4${text}) AS task`, [room, category, name, JSON.stringify(payload), ...values]);
    return rows[0].task;
}

/** What is a number as a bigint that is not negative: others would be refused later, far from the line with the mistake. */
function whole(name, value) {
    if (value === null) return null;
    if (typeof value !== 'number' && typeof value !== 'bigint') throw new TypeError(`${name} must be a number, not ${typeof value}`);
    if (!(value >= 0 && value < 2n ** 63n)) throw new RangeError(`${name} must be a number from 0 to 2^63 - 1, not ${value}`);
    return String(BigInt(typeof value === 'number' ? Math.trunc(value) : value));
}

/** What the caller gives, as new pg.Client() takes it. */
function configOf(config = {}) {
    if (typeof config === 'string' || config instanceof URL) return { connectionString: String(config) };
    if (config === null || typeof config !== 'object' || typeof config.query === 'function') {
        throw new TypeError('config must be that of a new pg.Client(): a connection string or an object of settings');
    }
    return config;
}

/** What was thrown, which may be anything, as a text that the server can store. */
function textOf(error) {
    let text = 'an error without a text';
    try {
        if (typeof error === 'string') text = error;
        else text = error?.message === undefined ? inspect(error) : `${error.name ?? 'Error'}: ${error.message}`;
    } catch { /* a getter that fails */ }
    return text.slice(0, 2000).replaceAll('\0', '?');
}

/** An error of the server, for the log. */
const full = (error) => [error.message, error.detail && `DETAIL: ${error.detail}`, error.hint && `HINT: ${error.hint}`].filter(Boolean).join('; ');

function check(holds, what) {
    if (!holds) throw new TypeError(what);
}

/** One connection, which is opened when it is needed; one call at a time.  No call outlasts its limit. */
class Line {
    constructor(config) {
        this.config = { connectionTimeoutMillis: LIMIT, ...configOf(config) };
        this.client = null;
        this.fresh = false;
        this.last = Promise.resolve();
    }

    get broken() { return this.client === null; }

    call(sql, values, limit = LIMIT) {
        const result = this.last.then(() => this.callNow(sql, values, limit));
        this.last = result.catch(() => {});
        return result;
    }

    async callNow(sql, values, limit) {
        if (!this.client) {
            const client = new Client(this.config);
            client.on('error', () => this.drop(client)); // it broke while it was idle
            client.on('end', () => this.drop(client));
            await client.connect().catch((error) => {
                this.drop(client);
                throw error;
            });
            this.client = client;
            this.fresh = true; // nothing is attached to it
        }
        const { client } = this;
        const timer = setTimeout(() => this.drop(client), limit);
        try {
            // bigints and intervals as texts, whatever parsers the application has
            const types = { getTypeParser: (oid, format) => (oid === 20 || oid === 1186 ? String : client.getTypeParser(oid, format)) };
            return (await client.query({ text: sql, values, types })).rows;
        } finally {
            clearTimeout(timer);
        }
    }

    /** At once, without a word to the server: it may be silent. */
    drop(client) {
        if (this.client === client) this.client = null;
        client.connection.stream.destroy();
    }

    async close() {
        const { client } = this;
        this.client = null;
        if (client) {
            const timer = setTimeout(() => this.drop(client), LIMIT);
            await client.end().catch(() => {});
            clearTimeout(timer);
        }
    }
}

/** A session that this process holds.  signal is aborted once it must not be relied on any more. */
class Lease {
    constructor(line, session, ttl, every, attach, asked) {
        Object.assign(this, { line, session, ttl, every, attach });
        this.controller = new AbortController();
        this.signal = this.controller.signal;
        this.over = false;
        this.confirm(asked);
    }

    confirm(asked) {
        clearTimeout(this.watch);
        if (!this.over) this.watch = setTimeout(() => this.lose('no heartbeat was confirmed for one time to live'), asked + this.ttl - performance.now());
    }

    lose(reason) {
        if (this.over) return;
        this.over = true;
        clearTimeout(this.watch);
        log.warn(`lost a session: ${reason}`);
        this.controller.abort(new Lost(reason));
    }

    /**
     * A heartbeat, and what else is asked in the same statement.  Its row; null: nothing is known, or the session is lost.
     * What the server refuses of `more` must not cost the heartbeat: that is sent alone then.
     */
    async ask(more = '', values = []) {
        const attach = this.attach && (this.line.fresh || this.line.broken);
        const asked = performance.now();
        let row;
        try {
            [row] = await this.line.call(`SELECT sweeper.${attach ? 'attach' : 'heartbeat'}($1) AS alive${more}`, [this.session, ...values],
                Math.min(LIMIT, this.every));
        } catch (error) {
            if (more && !this.line.broken) {
                if (error.message !== this.refused) log.warn(`the server refuses a report, which is dropped: ${error.message}`);
                this.refused = error.message;
                return this.ask();
            }
            log.warn(`heartbeat: nothing is known: ${error.message}`);
            if (attach && !this.line.broken) this.attach = false; // refused, for example by allow_attach: heartbeats must do
            return null;
        }
        this.line.fresh = false;
        if (!row.alive) this.lose('the session has ended');
        if (this.over) return null;
        this.confirm(asked);
        return row;
    }

    /** Releases it, if it can be reached; otherwise it ends with its connection, which the caller closes, or by its time to live. */
    async end() {
        const release = !this.over;
        this.over = true;
        clearTimeout(this.watch);
        if (release) await this.line.call('SELECT sweeper.release($1)', [this.session]).catch((error) => log.warn(`release: ${error.message}`));
    }
}

/** Which limit leaves no seat, as far as the role may see it. */
async function limit(line, pool) {
    const [row] = await line.call('SELECT free, max_per_owner AS most FROM sweeper.pool_status WHERE pool = $1', [pool]).catch(() => []);
    if (!row || row.free === '0') return `pool ${pool} is full`;
    return row.most ? `the owner has max_per_owner (${row.most}) seats of pool ${pool}` : `others wait for pool ${pool}`;
}

/**
 * Runs body with a seat of a pool, and returns its result.  config: as for new pg.Client().  args: those of sweeper.acquire(),
 * attach: false behind a pooler (otherwise the seat is free as soon as the connection ends), and wait: seconds to wait for a
 * seat, which needs owner and can have no others of acquire()'s.  Rejects with Full if there is
 * no seat, and with Lost as soon as the seat is lost; body should end then, by its signal.
 */
async function seat(config, pool, settings, body) {
    if (typeof settings === 'function') [settings, body] = [{}, settings];
    const { attach = true, wait = 0, ...args } = settings ?? {};
    check(typeof body === 'function', 'the last argument of seat() must be a function');
    check(Number.isFinite(wait) && wait >= 0, `wait must be a number of seconds, not ${inspect(wait)}`);
    const [text, values] = wait ? named('acquire_wait', { wait: `${wait} s`, ...args }, 1) : named('acquire', args, 1);
    if (wait && (args.owner ?? null) === null) throw new TypeError('wait needs owner');
    const line = new Line(config);
    let row, asked, ttl, every;
    try {
        [row] = await line.call(`${wait ? 'CALL sweeper.acquire_wait' : 'SELECT * FROM sweeper.acquire'}($1${text})`, [pool, ...values], 1000 * wait + LIMIT);
        if (!row?.session) throw new Full(await limit(line, pool));
        asked = performance.now();
        const seconds = (n) => `extract(epoch FROM $${n}::interval)::text`;
        const [beat] = await line.call(`SELECT sweeper.heartbeat($1) AS alive, ${seconds(2)} AS ttl, ${seconds(3)} AS every`, [row.session, row.ttl, row.heartbeat_every]);
        if (!beat.alive) throw new Lost('the session has ended');
        [ttl, every] = [1000 * beat.ttl, 1000 * beat.every];
    } catch (error) {
        await line.close();
        throw error;
    }
    const lease = new Lease(line, row.session, ttl, every, attach, asked);
    const leave = new AbortController();
    const heart = (async () => {
        while (!leave.signal.aborted && !lease.signal.aborted) {
            const known = await lease.ask();
            await pause(known ? lease.every : Math.min(LOOK, lease.every), leave.signal, lease.signal);
        }
    })();
    const lost = new Promise((resolve, reject) => { lease.signal.addEventListener('abort', () => reject(lease.signal.reason)); });
    lost.catch(() => {});
    try {
        const { session, fence, seats, seats_used } = row;
        const result = await Promise.race([body({ session, fence: Number(fence), seats, seats_used, signal: lease.signal }), lost]);
        lease.signal.throwIfAborted();
        return result;
    } finally {
        leave.abort();
        if (!lease.signal.aborted) await heart;
        await lease.end();
        await line.close();
    }
}

/** What a job gets: task, room, category, name, payload, attempt; signal is aborted when it shall end. */
class Task {
    constructor(row) {
        Object.assign(this, row);
        this.controller = new AbortController();
        this.signal = this.controller.signal;
        this.report = null;
        this.news = () => {};
    }

    /** Reports how far it is, in whole numbers; returns at once.  Throws Stopped if it shall stop. */
    progress({ done = null, total = null, message = null } = {}) {
        this.signal.throwIfAborted();
        this.report = [whole('done', done), whole('total', total), message === null ? null : textOf(String(message))];
        this.news();
    }

    stop() {
        if (!this.signal.aborted) this.controller.abort(new Stopped(`task ${this.task} shall stop`));
    }
}

/** Does tasks, `slots` of them at a time; each slot is a worker of the server with one connection.  ttl: seconds. */
class Worker {
    constructor(config, name = os.hostname(), { slots = 1, ttl = 60, attach = true, metadata = {}, ...others } = {}) {
        check(Object.keys(others).length === 0, `Worker has no option ${Object.keys(others)}, but slots, ttl, attach, metadata`);
        check(Number.isInteger(slots) && slots > 0, `slots must be a whole number above 0, not ${inspect(slots)}`);
        check(Number.isFinite(ttl) && ttl > 0, `ttl must be a number of seconds above 0, not ${inspect(ttl)}`);
        configOf(config); // refused here rather than by run()
        Object.assign(this, { config, name, slots, ttl, attach, metadata });
        this.jobs = new Map();
        this.stopping = new AbortController();
    }

    /** A job: body(task) is called for each of its tasks; its result is the task's.  args: others of sweeper.register_job(). */
    job(room, category, name, args, body) {
        if (typeof args === 'function') [args, body] = [{}, args];
        check(typeof body === 'function', 'the last argument of job() must be a function');
        this.jobs.set(JSON.stringify([room, category, name]), { key: [room, category, name], named: named('register_job', args ?? {}, 4), body });
        return this;
    }

    /** Takes no more tasks.  run() ends when those that run have ended, and within some seconds if there are none. */
    stop() { this.stopping.abort(); }

    /** Rejects if the server refuses the worker or a job, for example for want of a right: a service manager should see that. */
    async run({ signals = true } = {}) {
        const stop = () => this.stop();
        if (signals) process.on('SIGTERM', stop).on('SIGINT', stop);
        await Promise.all(Array.from({ length: this.slots }, () => this.slot()));
        if (signals) process.off('SIGTERM', stop).off('SIGINT', stop);
        if (this.refusal) throw this.refusal;
    }

    async slot() {
        const stop = this.stopping.signal;
        while (!stop.aborted) {
            const line = new Line(this.config);
            let lease;
            try {
                lease = await this.register(line);
            } catch (error) {
                if (REFUSED.test(error.code) && !line.broken) {
                    const hint = error.code === '42501' && !error.hint ? `; access is given by: SELECT sweeper.grant_access('${line.client.user}', 'user')` : '';
                    log.warn(`the server refuses the worker, which ends: ${full(error)}${hint}`);
                    this.refusal = error;
                    this.stop();
                } else {
                    log.warn(`cannot register the worker: ${full(error)}`);
                }
                await line.close();
                await pause(LOOK, stop);
                continue;
            }
            while (!stop.aborted && !lease.signal.aborted) {
                const task = await this.claim(lease);
                if (task) await this.work(lease, task);
            }
            await lease.end();
            await line.close();
        }
    }

    async register(line) {
        const asked = performance.now();
        const [{ worker }] = await line.call('SELECT sweeper.register_worker($1, $2, $3) AS worker', [this.name, JSON.stringify(this.metadata), `${this.ttl} s`]);
        const lease = new Lease(line, worker, 1000 * this.ttl, 1000 * this.ttl / 3, this.attach, asked);
        try {
            for (const { key, named: [text, values] } of this.jobs.values()) {
                await line.call(`SELECT sweeper.register_job($1, $2, $3, $4${text})`, [worker, ...key, ...values]);
            }
        } catch (error) {
            await lease.end();
            throw error;
        }
        return lease;
    }

    /** The next task, started; null: there was none, or nothing is known. */
    async claim(lease) {
        const wait = Math.min(WAIT, lease.every);
        if (!await lease.ask()) {
            if (!lease.signal.aborted) await pause(LOOK, this.stopping.signal);
            return null;
        }
        try {
            const [row] = await lease.line.call('CALL sweeper.claim_wait($1, $2, true)', [lease.session, `${wait} ms`], wait + LIMIT);
            return row.task ? new Task(row) : null;
        } catch (error) {
            log.warn(`claim: ${error.message}`);
            await pause(LOOK, this.stopping.signal);
            return null;
        }
    }

    /** Runs one task, and keeps it and the worker alive until it ends.  If the worker is lost, it has no result. */
    async work(lease, task) {
        const { body } = this.jobs.get(JSON.stringify([task.room, task.category, task.name]));
        const stop = () => task.stop();
        lease.signal.addEventListener('abort', stop);
        if (lease.signal.aborted) stop();
        const outcome = (async () => body(task))().then((result) => ({ result }), (error) => ({ error }));
        let ended = false;
        outcome.then(() => { ended = true; task.news(); });
        for (let due = performance.now(), known = true; !ended;) {
            const wait = due - performance.now();
            if (wait > 0 && !(task.report && known)) {
                const news = new AbortController();
                task.news = () => news.abort();
                await pause(wait, news.signal);
                continue;
            }
            due = performance.now() + Math.min(LOOK, lease.every);
            known = !lease.signal.aborted && await this.look(lease, task);
        }
        lease.signal.removeEventListener('abort', stop);
        await this.finish(lease, task, await outcome);
    }

    /** A heartbeat, what the task has to report, and whether it is still wanted. */
    async look(lease, task) {
        const { report } = task;
        const row = await lease.ask(', sweeper.task_progress($2, $3, $4, $5, attempt => $6) AS wanted', [task.task, ...(report ?? [null, null, null]), task.attempt]);
        if (row && row.wanted === false) task.stop();
        if (row && task.report === report) task.report = null;
        return row;
    }

    async finish(lease, task, outcome) {
        let { result } = outcome;
        let [status, text, more] = ['completed', null, ''];
        if ('error' in outcome) { // of any value
            const { error } = outcome;
            if (task.signal.aborted && (error instanceof Stopped || error?.name === 'AbortError')) [status, text] = ['cancelled', 'the worker was asked to stop'];
            else [status, text, more] = ['failed', textOf(error), error instanceof Retry ? ', retry => true' : ''];
        } else if (task.report && !lease.signal.aborted) {
            await this.look(lease, task);
        }
        while (!lease.signal.aborted) {
            try {
                const [{ done }] = await lease.line.call(`SELECT sweeper.finish_task($1, $2, $3, $4, attempt => $5${more}) AS done`,
                    [task.task, status, result === undefined ? null : JSON.stringify(result), text, task.attempt]);
                if (!done) log.warn(`task ${task.task} had ended, or was taken away, before its worker finished it`);
                return;
            } catch (failure) {
                log.warn(`finish of task ${task.task}: ${failure.message}`);
                if (lease.line.broken || PASSING.test(failure.code)) {
                    await pause(LOOK, lease.signal);
                    await lease.ask();
                } else if (text === UNTOLD) {
                    return;
                } else { // the server, or JSON, does not take it
                    [status, result, text] = ['failed', undefined, status === 'failed' ? UNTOLD : textOf(failure)];
                }
            }
        }
    }
}

module.exports = { seat, submit, Worker, Full, Lost, Retry, Stopped, log };
