// express with express-session and connect-pg-simple.
//   node connect_pg_simple.js table            the session table, as the store makes it
//   node connect_pg_simple.js PORT LIFETIME    the application; seconds
'use strict';
const express = require('express');
const session = require('express-session');
const { Pool } = require('pg');

const pool = new Pool(); // PGHOST and the like
const Store = require('connect-pg-simple')(session);
// It does not prune: whatever goes here, the sweeper has removed.
const store = new Store({ pool, createTableIfMissing: true, pruneSessionInterval: false });
const [command, lifetime] = process.argv.slice(2);

function serve(port) {
    const app = express();
    // The rule of the store's own prune, with its idea of now.
    app.get('/admin/sessions', async (request, response) => {
        const { rows } = await pool.query(
            `SELECT sid AS id, sid AS key, extract(epoch FROM expire::timestamptz)::float8 AS dies,
                    expire < to_timestamp($1) AS expired FROM session`, [Math.ceil(Date.now() / 1000)]);
        response.json(rows);
    });
    app.use(session({
        store, secret: 'only for this test', resave: false, saveUninitialized: false,
        cookie: { maxAge: lifetime * 1000 },
    }));
    app.post('/login', (request, response, next) => request.session.regenerate((error) => {
        if (error) return next(error);
        request.session.user = request.query.user;
        response.json({ id: request.sessionID });
    }));
    app.get('/me', (request, response) => {
        const { user } = request.session;
        response.status(user ? 200 : 401).json({ user });
    });
    app.post('/logout', (request, response, next) =>
        request.session.destroy((error) => (error ? next(error) : response.json({}))));
    app.listen(Number(port), '127.0.0.1');
}

if (command === 'table') {
    store.get('the first look makes the table', (error) => {
        if (error) throw error;
        pool.end();
    });
} else {
    serve(command);
}
