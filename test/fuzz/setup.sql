-- What the fuzzer plays with: roles of each level, tables of every kind of key,
-- users' code that fails, returns null or is slow, and ways to call a function
-- from odd places.  Users' code raises SQLSTATEs of class FZ only.
CREATE EXTENSION session_sweeper;
CREATE ROLE fuzz_none LOGIN;
CREATE ROLE fuzz_user LOGIN;
CREATE ROLE fuzz_monitor LOGIN;
CREATE ROLE fuzz_admin LOGIN;
CREATE ROLE fuzz_super LOGIN SUPERUSER;
CREATE ROLE "Odd ""role"" 'é" LOGIN;
CREATE ROLE fuzz_group;
GRANT fuzz_group TO fuzz_user;
CREATE SCHEMA fuzz;
GRANT ALL ON SCHEMA fuzz TO PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC;

-- Errors of users' code have codes that nobody else uses.
CREATE FUNCTION fuzz.fail(code text DEFAULT 'FZ001') RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'users'' code fails' USING ERRCODE = code; END $$;

CREATE TYPE fuzz.mood AS ENUM ('', 'good', 'it''s "odd", (é)', 'bad\');
CREATE FUNCTION fuzz.mood_text(fuzz.mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN nullif(enum_out($1)::text, 'good'); END $$;
CREATE CAST (fuzz.mood AS text) WITH FUNCTION fuzz.mood_text(fuzz.mood);
CREATE FUNCTION fuzz.picky(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN IF $1 LIKE 'fail%' THEN PERFORM fuzz.fail('FZ002'); END IF; RETURN $1 <> 'refused'; END $$;
CREATE DOMAIN fuzz.picky_text AS text CHECK (fuzz.picky(VALUE));
CREATE DOMAIN fuzz.never_null AS int NOT NULL;
CREATE DOMAIN fuzz.picky_list AS fuzz.picky_text[] CHECK (cardinality(VALUE) < 3);
CREATE TYPE fuzz.pair AS (a int, b text);

CREATE TABLE fuzz.lease (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), expires_at timestamptz, note text, n int, who text, props jsonb, mood fuzz.mood, picky fuzz.picky_text);
CREATE TABLE fuzz.seen (id bigint PRIMARY KEY, seen_at timestamptz NOT NULL DEFAULT now(), ttl_s int, created_at timestamptz DEFAULT now(), data bytea);
CREATE TABLE fuzz.composite (a int, b text, d timestamptz, PRIMARY KEY (a, b));
CREATE TABLE fuzz.moody (k fuzz.mood PRIMARY KEY, d timestamptz);
CREATE TABLE fuzz.picky (k fuzz.picky_text PRIMARY KEY, d timestamptz);
CREATE TABLE fuzz.char_key (k char(10) PRIMARY KEY, d timestamptz);
CREATE TABLE fuzz.no_key (k int, d timestamptz);
CREATE TABLE fuzz.part (id bigint, d timestamptz, g text, PRIMARY KEY (id, g)) PARTITION BY LIST (g);
CREATE TABLE fuzz.part_one PARTITION OF fuzz.part FOR VALUES IN ('g1');
CREATE TABLE fuzz.part_rest PARTITION OF fuzz.part DEFAULT;
CREATE TABLE fuzz.hooked (id int PRIMARY KEY, d timestamptz, done boolean);
CREATE TABLE fuzz.checked (id text PRIMARY KEY, d timestamptz);
CREATE TABLE fuzz.hashed (id text PRIMARY KEY, d timestamptz);
CREATE TABLE fuzz.epoch (id int PRIMARY KEY, d bigint, s numeric, f float8, t timestamp, day date, iv interval, b boolean);
CREATE TABLE fuzz."Odd ""table"" %s" ("weird; -- col" text PRIMARY KEY, "select" timestamptz, "D" timestamptz, tableoid_ oid);
CREATE INDEX ON fuzz.lease (expires_at);
CREATE INDEX ON fuzz.seen (seen_at);
CREATE TABLE fuzz.free (id int PRIMARY KEY, d timestamptz, n int);
CREATE TABLE fuzz.others (id int PRIMARY KEY, d timestamptz);
CREATE TABLE fuzz.target (a int, b text, c jsonb, at timestamptz DEFAULT now(), m fuzz.mood, p fuzz.picky_text, g int GENERATED ALWAYS AS (a + 1) STORED, f fuzz.pair, l int[]);
CREATE VIEW fuzz.view AS SELECT * FROM fuzz.lease;
CREATE MATERIALIZED VIEW fuzz.matview AS SELECT * FROM fuzz.lease;
CREATE SEQUENCE fuzz.sequence;
CREATE UNLOGGED TABLE fuzz.unlogged (id int PRIMARY KEY, d timestamptz);

-- Users' code: hooks and checks of the right and of the wrong shape.
CREATE FUNCTION fuzz.hook(text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CASE (random() * 12)::int WHEN 0 THEN PERFORM fuzz.fail('FZ003'); WHEN 1 THEN PERFORM pg_sleep(0.2); WHEN 2 THEN DELETE FROM fuzz.hooked WHERE id::text = $1[1];
    WHEN 3 THEN UPDATE fuzz.hooked SET d = now() + interval '1 s' WHERE id::text = ANY ($1); ELSE NULL; END CASE;
END $$;
CREATE FUNCTION fuzz.row_hook(fuzz.lease[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN UPDATE fuzz.hooked SET done = true WHERE id = cardinality($1); END $$;
CREATE FUNCTION fuzz.alive(text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    CASE (random() * 12)::int WHEN 0 THEN PERFORM fuzz.fail('FZ004'); WHEN 1 THEN PERFORM pg_sleep(0.2); WHEN 2 THEN RETURN NULL; WHEN 3 THEN RETURN true; ELSE NULL; END CASE;
    RETURN false;
END $$;
CREATE FUNCTION fuzz.alive_many(text[]) RETURNS boolean[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE (random() * 8)::int WHEN 0 THEN NULL WHEN 1 THEN '{}' WHEN 2 THEN ARRAY[[true, false], [NULL, true]] WHEN 3 THEN '[5:6]={t,f}'
           ELSE array_fill(false, ARRAY[coalesce(cardinality($1), 0)]) END;
END $$;
CREATE FUNCTION fuzz.wrong_set(text[]) RETURNS SETOF boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION fuzz.wrong_arguments(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION fuzz.wrong_any(anyelement) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION fuzz.wrong_variadic(VARIADIC text[]) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE PROCEDURE fuzz.wrong_procedure(text[]) LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
CREATE FUNCTION fuzz.wrong_trigger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE AGGREGATE fuzz.wrong_aggregate(text) (SFUNC = textcat, STYPE = text);
CREATE FUNCTION fuzz.odd_time(timestamptz) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE extract(second FROM $1)::int % 8 WHEN 0 THEN NULL WHEN 1 THEN 'infinity' WHEN 2 THEN '-infinity' WHEN 3 THEN '290000-01-01'
           WHEN 4 THEN fuzz.fail('FZ005')::text::timestamptz ELSE $1 END;
END $$;
CREATE FUNCTION fuzz.slow(anyelement) RETURNS anyelement LANGUAGE plpgsql STABLE AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN $1; END $$;

-- A trigger that now and then refuses, suppresses or delays what a sweep does.
CREATE FUNCTION fuzz.meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    CASE (random() * 40)::int WHEN 0 THEN PERFORM fuzz.fail('FZ006'); WHEN 1 THEN RETURN NULL; WHEN 2 THEN PERFORM pg_sleep(0.1); ELSE NULL; END CASE;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TRIGGER meddle BEFORE UPDATE OR DELETE ON fuzz.lease FOR EACH ROW EXECUTE FUNCTION fuzz.meddle();
CREATE TRIGGER meddle BEFORE UPDATE OR DELETE ON fuzz.seen FOR EACH ROW EXECUTE FUNCTION fuzz.meddle();
CREATE TRIGGER meddle BEFORE UPDATE OR DELETE ON fuzz.hooked FOR EACH ROW EXECUTE FUNCTION fuzz.meddle();

DO $$
DECLARE command text;
BEGIN
    FOR command IN
        SELECT format('ALTER %s fuzz.%I OWNER TO fuzz_user', CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, relname)
        FROM pg_class WHERE relnamespace = 'fuzz'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S') AND relname <> 'others'
        UNION ALL SELECT format('ALTER FUNCTION %s OWNER TO fuzz_user', oid::regprocedure) FROM pg_proc WHERE pronamespace = 'fuzz'::regnamespace AND prokind = 'f'
    LOOP EXECUTE command; END LOOP;
END $$;

CREATE FUNCTION fuzz.many_keys() RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$ SELECT jsonb_object_agg('k' || i, i) FROM generate_series(1, 20000) AS i $$;

-- Places from where a statement is run.
CREATE FUNCTION fuzz.run(statement text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN EXECUTE statement; RETURN true; END $$;
CREATE FUNCTION fuzz.run_parallel(statement text) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN EXECUTE statement; RETURN true; END $$;
CREATE FUNCTION fuzz.run_stable(statement text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN EXECUTE statement; RETURN true; END $$;
CREATE FUNCTION fuzz.run_immutable(statement text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN EXECUTE statement; RETURN true; END $$;
CREATE FUNCTION fuzz.run_definer(statement text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' SET work_mem = '64kB' AS $$ BEGIN EXECUTE statement; RETURN true; END $$;
ALTER FUNCTION fuzz.run_definer OWNER TO fuzz_user;
CREATE FUNCTION fuzz.run_caught(statement text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    BEGIN EXECUTE statement; RAISE EXCEPTION USING ERRCODE = 'FZ009'; EXCEPTION WHEN SQLSTATE 'FZ009' THEN NULL; END;
    BEGIN EXECUTE statement; EXCEPTION WHEN OTHERS THEN EXECUTE statement; END;
    RETURN true;
END $$;
CREATE FUNCTION fuzz.run_half(statement text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN FOR r IN EXECUTE statement LOOP EXIT; END LOOP; RETURN true; END $$;
CREATE PROCEDURE fuzz.run_procedure(statement text) LANGUAGE plpgsql AS $$ BEGIN COMMIT; EXECUTE statement; COMMIT; EXECUTE statement; ROLLBACK; END $$;
CREATE TABLE fuzz.at_trigger (moment text, statement text);
CREATE FUNCTION fuzz.run_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE NEW.statement; RETURN NEW; END $$;
CREATE TRIGGER b BEFORE INSERT ON fuzz.at_trigger FOR EACH ROW WHEN (NEW.moment = 'before') EXECUTE FUNCTION fuzz.run_trigger();
CREATE TRIGGER a AFTER INSERT ON fuzz.at_trigger FOR EACH ROW WHEN (NEW.moment = 'after') EXECUTE FUNCTION fuzz.run_trigger();
CREATE CONSTRAINT TRIGGER d AFTER INSERT ON fuzz.at_trigger DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.moment = 'deferred') EXECUTE FUNCTION fuzz.run_trigger();
CREATE TABLE fuzz.at_check (statement text CHECK (fuzz.run(statement)));
CREATE TABLE fuzz.at_index (statement text);
CREATE INDEX ON fuzz.at_index (fuzz.run_immutable(statement));
CREATE TABLE fuzz.at_security (statement text);
ALTER TABLE fuzz.at_security ENABLE ROW LEVEL SECURITY;
CREATE POLICY run ON fuzz.at_security USING (true) WITH CHECK (fuzz.run(statement));
GRANT ALL ON fuzz.at_trigger, fuzz.at_check, fuzz.at_index, fuzz.at_security TO PUBLIC;

-- A value of a kind, whoever asks; nobody's when there is none.
CREATE FUNCTION fuzz.pick(kind text, nth int) RETURNS uuid LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE found uuid;
BEGIN
    CASE split_part(kind, ' ', 1)
        WHEN 'session' THEN SELECT session INTO found FROM sweeper.session WHERE status = split_part(kind, ' ', 2) ORDER BY session OFFSET nth LIMIT 1;
        WHEN 'worker' THEN SELECT session INTO found FROM sweeper.session WHERE pool = 'sweeper.worker' AND status = 'active' ORDER BY session OFFSET nth LIMIT 1;
        WHEN 'task' THEN SELECT task INTO found FROM sweeper.task WHERE status = split_part(kind, ' ', 2) ORDER BY task DESC OFFSET nth LIMIT 1;
        WHEN 'lease' THEN SELECT id INTO found FROM fuzz.lease ORDER BY id OFFSET nth LIMIT 1;
    END CASE;
    RETURN coalesce(found, gen_random_uuid());
END $$;

-- What calls have used up is there again.  An error only means that it is there, but for an internal one.
CREATE PROCEDURE fuzz.try(statement text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
    IF SQLSTATE LIKE 'XX%' THEN RAISE; END IF;
    IF current_setting('fuzz.show', true) <> '' THEN RAISE NOTICE '%: %', statement, SQLERRM; END IF;
END $$;
CREATE PROCEDURE fuzz.refill() LANGUAGE plpgsql AS $$
DECLARE command text;
BEGIN
    FOREACH command IN ARRAY ARRAY[
        $s$INSERT INTO fuzz.lease (expires_at, note, n, who, props, mood)
           SELECT now() + (random() * 8 - 4) * interval '1 s', 'n' || i, i, 'who' || i % 3, '{"a": 1}', (enum_range(NULL::fuzz.mood))[1 + i % 4]
           FROM generate_series(1, greatest(0, 60 - (SELECT count(*)::int FROM fuzz.lease))) AS i$s$,
        $s$INSERT INTO fuzz.seen SELECT i, now() - random() * interval '4 s', CASE i % 4 WHEN 0 THEN NULL ELSE i % 3 END FROM generate_series(1, 40) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.composite SELECT i, CASE i % 3 WHEN 0 THEN '' WHEN 1 THEN 'a,"b\' ELSE '(é)' END, now() FROM generate_series(1, 20) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.moody SELECT unnest(enum_range(NULL::fuzz.mood)), now() ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.picky SELECT 'p' || i, now() FROM generate_series(1, 10) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.char_key SELECT 'c' || i, now() FROM generate_series(1, 10) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.part SELECT i, now(), 'g' || i % 3 FROM generate_series(1, 20) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.hooked SELECT i, now() FROM generate_series(1, 20) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.checked SELECT i, now() FROM generate_series(1, 20) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.hashed SELECT 'secret' || i, now() FROM generate_series(1, 20) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz."Odd ""table"" %s" SELECT '%s ' || i, now() FROM generate_series(1, 20) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.epoch SELECT i, extract(epoch FROM now()), CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN 'Infinity' ELSE extract(epoch FROM now()) END,
               CASE i WHEN 1 THEN 'NaN' WHEN 2 THEN '-Infinity' WHEN 3 THEN 1e300 ELSE extract(epoch FROM now()) END, now(), now(), '1 s', i % 2 = 0
           FROM generate_series(1, 20) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.free SELECT i, now() - interval '1 s', i FROM generate_series(1, 20) AS i ON CONFLICT DO NOTHING$s$,
        $s$INSERT INTO fuzz.no_key SELECT i, now() FROM generate_series(1, 20 - (SELECT count(*)::int FROM fuzz.no_key)) AS i$s$,
        $s$SELECT sweeper.grant_access('fuzz_user', 'user'), sweeper.grant_access('fuzz_monitor', 'monitor'), sweeper.grant_access('fuzz_admin', 'admin')$s$,
        $s$SELECT sweeper.register('fuzz.lease', deadline => 'expires_at', ttl => '3 s', heartbeats => true, group_by => 'who', start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.seen', last_seen => 'seen_at', ttl_column => 'ttl_s', ttl => '2 s', heartbeats => true, start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.composite', deadline => 'd', ttl => '2 s', heartbeats => true, start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.moody', deadline => 'd', ttl => '2 s', heartbeats => true, start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.picky', deadline => 'd', ttl => '2 s', heartbeats => true, start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.char_key', deadline => 'd', ttl => '2 s', heartbeats => true, start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.no_key', deadline => 'd', start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.part', deadline => 'd', group_by => 'g', start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.hooked', deadline => 'd', on_expire => 'fuzz.hook(text[])', start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.checked', deadline => 'd', ttl => '1 s', is_alive => 'fuzz.alive(text)', start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz.hashed', deadline => 'd', audit => 'hash', ttl => '2 s', heartbeats => true, start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.register('fuzz."Odd ""table"" %s"', deadline => 'select', action => 'update', set_clause => '"select" = null', start => 'now', fuse_fraction => 1)$s$,
        $s$SELECT sweeper.create_pool('p1', seats => 3, ttl => '2 s')$s$,
        $s$SELECT sweeper.create_pool('p2', ttl => '1 min', max_per_owner => 2)$s$,
        $s$SELECT sweeper.acquire('p1'), sweeper.acquire('p2', 'o' || n) FROM generate_series(1, 3) AS n$s$,
        $s$SELECT sweeper.register_job(sweeper.register_worker('w'), 'room', 'category', 'name')$s$,
        $s$SELECT sweeper.submit('room', 'category', 'name') FROM generate_series(1, 5)$s$,
        $s$SELECT sweeper.claim(fuzz.pick('worker', 0), 2)$s$,
        $s$SELECT sweeper.start_task(fuzz.pick('task claimed', 0))$s$,
        $s$SELECT sweeper.append('fuzz.target', '{"a": 1}')$s$]
    LOOP
        CALL fuzz.try(command);
    END LOOP;
END $$;
