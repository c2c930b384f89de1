// Express, express-session and connect-pg-simple.  Pages that are open leave as soon as their session ends.
//   node express.js PORT SECONDS    SECONDS: lifetime of a session; PGHOST and the like say where the database is
// Once the table is there, its owner says, in the time zone of the connections that write it:
//   SELECT state FROM sweeper.adopt('session', notify_channel => 'session_ended', timezone => current_setting('TimeZone'))
//   SELECT sweeper.resume('session')    -- if the state is held
// The application reads cleanup_event: its role owns the table, or the owner gives it level monitor (or gives notify_keys
// to adopt(), and the application takes the keys of the notification).
// A session that the application itself deletes ends no page: end its streams there.
'use strict';
const { createHash } = require('node:crypto');
const express = require('express');
const session = require('express-session');
const { Client, Pool } = require('pg');

const [port, lifetime] = process.argv.slice(2).map(Number);
const pool = new Pool();
pool.on('error', () => {});
const Store = require('connect-pg-simple')(session);
const app = express();
app.use(session({
    store: new Store({ pool, createTableIfMissing: true, pruneSessionInterval: false }),
    secret: 'only an example', resave: false, saveUninitialized: false, cookie: { maxAge: 1000 * lifetime },
}));

const pages = new Map(); // what is open: id of the session -> streams
const hash = (sid) => createHash('sha256').update(sid).digest('hex');

function logOut(gone) {
    for (const [sid, streams] of pages) {
        if (gone(sid)) for (const stream of streams) stream.end('event: logout\ndata: the session has ended\n\n');
    }
}

/** Ids of sessions are credentials: the events have their hashes. */
async function ended({ first_id, last_id }) {
    const { rows } = await pool.query("SELECT key FROM sweeper.cleanup_event WHERE policy = 'session' AND id BETWEEN $1 AND $2", [first_id, last_id]);
    const keys = new Set(rows.map((row) => row.key));
    logOut((sid) => keys.has(hash(sid)));
}

/** After a time without a connection: which of our sessions are there? */
async function compare() {
    const { rows } = await pool.query('SELECT sid FROM session WHERE sid = ANY ($1)', [[...pages.keys()]]);
    const there = new Set(rows.map((row) => row.sid));
    logOut((sid) => !there.has(sid));
}

async function listen() {
    for (;;) {
        const client = new Client();
        const broken = new Promise((resolve) => { client.on('error', resolve).on('end', resolve); });
        client.on('notification', ({ payload }) => ended(JSON.parse(payload)).catch(() => client.end()));
        try {
            await client.connect();
            await client.query('LISTEN session_ended');
            await compare();
            await broken;
        } catch (error) {
            console.error(error.message);
        }
        client.end().catch(() => {});
        await new Promise((resolve) => { setTimeout(resolve, 500); });
    }
}

app.post('/login', (request, response) => {
    request.session.user = request.query.user;
    request.session.save(() => response.json({ id: request.sessionID }));
});

// The page's script: new EventSource('/events').addEventListener('logout', () => { location = '/login'; });
app.get('/events', (request, response) => {
    const sid = request.sessionID;
    if (!request.session.user) return response.sendStatus(401);
    response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
    response.write(': open\n\n');
    if (!pages.has(sid)) pages.set(sid, new Set());
    pages.get(sid).add(response);
    response.on('close', () => {
        pages.get(sid).delete(response);
        if (!pages.get(sid).size) pages.delete(sid);
    });
});

app.listen(port, '127.0.0.1');
listen();
