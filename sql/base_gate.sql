-- Every place where code of a table's owner can hide, under every kind of caller: it runs as the owner or not at all.
SET client_min_messages = warning;
\set VERBOSITY terse
CREATE ROLE gate_owner;
CREATE ROLE gate_member IN ROLE gate_owner;
CREATE ROLE gate_stranger;
CREATE ROLE gate_admin;
GRANT CREATE ON SCHEMA public TO gate_owner;
SELECT sweeper.grant_access(r, CASE r WHEN 'gate_admin'::regrole THEN 'admin' ELSE 'user' END)
FROM unnest(ARRAY['gate_owner', 'gate_member', 'gate_stranger', 'gate_admin']::regrole[]) AS r;
-- sequences outlive a rollback; one for each place, and one for each time that it was not the owner who ran it
CREATE SEQUENCE canary_wrong;
CREATE SEQUENCE canary_right;
GRANT ALL ON canary_wrong, canary_right TO PUBLIC;
SET ROLE gate_owner;
CREATE FUNCTION public.sing(place text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    IF current_user = 'gate_owner' THEN
        PERFORM nextval('public.canary_right');
    ELSE
        PERFORM nextval('public.canary_wrong');
        RAISE WARNING '% ran as %', place, current_user;
    END IF;
    RETURN true;
END $$;
CREATE FUNCTION canary(place text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN public.sing(place); END $$;
CREATE FUNCTION canary_i(place text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN public.sing(place); END $$;
CREATE FUNCTION canary_int(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM public.sing('index or partition'); RETURN i; END $$;
CREATE FUNCTION canary_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM public.sing('trigger');
    IF TG_OP = 'DELETE' AND OLD.n = 2 THEN RAISE EXCEPTION 'row 2 stays'; END IF;
    RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END; END $$;
CREATE DOMAIN canary_time AS timestamptz CHECK (public.canary('domain of a column'));
CREATE DOMAIN canary_text AS text CHECK (public.canary('domain of a key'));
CREATE DOMAIN canary_literal AS text CHECK (public.canary('domain of a literal'));
CREATE TYPE canary_enum AS ENUM ('1', '2', '3', '4', '5');
CREATE FUNCTION canary_cast(canary_enum) RETURNS text LANGUAGE plpgsql STABLE AS $$ BEGIN PERFORM public.sing('cast'); RETURN NULL; END $$;
CREATE CAST (canary_enum AS text) WITH FUNCTION canary_cast(canary_enum);
CREATE FUNCTION canary_hook(text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM public.sing('on_expire'); END $$;
CREATE FUNCTION canary_ask(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN NOT public.sing('is_alive'); END $$;
-- a key with a cast, heartbeats, row security
CREATE TABLE gate_enum (k canary_enum PRIMARY KEY, d canary_time, n int);
CREATE INDEX ON gate_enum (d) WHERE canary_i('predicate');
CREATE INDEX ON gate_enum (canary_int(n));
-- a key that is a domain, expressions with literals of a domain
CREATE TABLE gate_domain (k canary_text PRIMARY KEY, seen_ms bigint, ttl_s int, n int);
-- a composite key, partitioned by an expression
CREATE TABLE gate_part (k canary_enum, k2 canary_text, d timestamptz, n int) PARTITION BY LIST (canary_int(n));
CREATE TABLE gate_part_1 PARTITION OF gate_part FOR VALUES IN (1, 2, 3, 4, 5);
CREATE UNIQUE INDEX ON gate_part_1 (k, k2);
ALTER TABLE gate_part_1 ALTER k SET NOT NULL, ALTER k2 SET NOT NULL;
CREATE TRIGGER canary BEFORE UPDATE OR DELETE ON gate_enum FOR EACH ROW EXECUTE FUNCTION canary_trigger();
CREATE TRIGGER canary BEFORE INSERT OR UPDATE OR DELETE ON gate_domain FOR EACH ROW EXECUTE FUNCTION canary_trigger();
CREATE TRIGGER canary AFTER UPDATE OR DELETE ON gate_part_1 FOR EACH ROW EXECUTE FUNCTION canary_trigger();
CREATE PROCEDURE fill() LANGUAGE sql AS $$
    INSERT INTO public.gate_enum SELECT i::text::public.canary_enum, now() + (i - 3.5) * '1 h'::interval, i FROM generate_series(1, 5) AS i ON CONFLICT DO NOTHING;
    INSERT INTO public.gate_domain SELECT i, extract(epoch FROM now()) * 1000 + (i - 3.5) * 3600000, 600, i FROM generate_series(1, 5) AS i ON CONFLICT DO NOTHING;
    INSERT INTO public.gate_part SELECT i::text::public.canary_enum, i, now() + (i - 3.5) * '1 h'::interval, i FROM generate_series(1, 5) AS i ON CONFLICT DO NOTHING;
$$;
CALL fill();
GRANT SELECT, INSERT, UPDATE ON gate_enum, gate_domain, gate_part TO gate_stranger;
-- registered by the owner, by a member, by a superuser
SELECT FROM sweeper.register('gate_enum', deadline => 'd', ttl => '1 h', heartbeats => true, filter => $$'x'::canary_literal = 'x' AND canary('filter')$$,
    group_by => $$CASE WHEN canary('group_by') THEN n % 2 END$$, fuse_fraction => 1, check_every => '0', start => 'now');
SET ROLE gate_member;
SELECT FROM sweeper.register('gate_domain', last_seen => $$CASE WHEN '{x}'::canary_literal[] IS NOT NULL AND canary_i('folded') THEN seen_ms END$$,
    ttl_column => 'ttl_s', unit => 'ms', action => 'update', set_clause => $$n = CASE WHEN 'x'::canary_literal = 'x' THEN n + 10 END$$, filter => 'n < 10',
    fuse_fraction => 1, check_every => '0', start => 'now');
RESET ROLE;
SELECT FROM sweeper.register('gate_domain', 'gate_asked', last_seen => 'seen_ms', unit => 'ms', ttl => '10 min', is_alive => 'canary_ask(text)',
    on_expire => 'canary_hook(text[])', capture => '{k,n}', fuse_fraction => 1, check_every => '0', start => 'now');
SELECT FROM sweeper.register('gate_part_1', deadline => $$CASE WHEN '{x}'::canary_literal[] IS NOT NULL THEN d END$$, key => '{k,k2}', audit => 'hash',
    on_expire => 'canary_hook(text[])', fuse_fraction => 1, check_every => '0', start => 'now');
SELECT FROM sweeper.register('gate_part', deadline => 'd', action => 'update', set_clause => 'd = NULL', filter => 'canary_i(''folded'')',
    check_every => '0', start => 'now', fuse_fraction => 1);
SELECT policy FROM sweeper.policy WHERE policy LIKE 'gate_%' ORDER BY policy;
CREATE FUNCTION attempt(sql text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE sql; EXCEPTION WHEN OTHERS THEN NULL; END $$;
CREATE FUNCTION place(p text) RETURNS text SECURITY DEFINER LANGUAGE sql AS $$ SELECT relation || '(' || array_to_string(key, ', ') || ')' FROM sweeper.policy WHERE policy = p $$;
CREATE TABLE calls (n serial, sql text);
GRANT SELECT ON calls TO PUBLIC;
INSERT INTO calls (sql) SELECT format(call, p) FROM unnest(ARRAY['gate_enum', 'gate_domain', 'gate_asked', 'gate_part', 'gate_part_1']) WITH ORDINALITY AS p (p, i),
    unnest(ARRAY[
    $$SELECT sweeper.touch(%1$L, '4')$$, $$SELECT sweeper.touch(%1$L, 4)$$, $$SELECT sweeper._touch_here(%1$L, '4', place(%1$L))$$, $$SELECT sweeper._touch_many_here(%1$L, '{4,5,x}', place(%1$L))$$, $$SELECT sweeper._touch_many_rows(%1$L, '{4,5,x}', place(%1$L))$$, $$SELECT sweeper.touch_many(%1$L, '{4,5,x}')$$,
    $$SELECT sweeper._is_live_here(%1$L, '4', place(%1$L))$$, $$SELECT sweeper.is_live(%1$L, '4')$$, $$SELECT sweeper.is_live(%1$L, '(4,4)')$$,
    $$SELECT sweeper.explain_row(%1$L, '4')$$, $$SELECT sweeper.explain_row(%1$L, '(1,1)')$$, $$SELECT sweeper.explain_row(%1$L, '1')$$,
    $$SELECT sweeper.retry_row(%1$L, '2')$$, $$SELECT sweeper.explain_sweep(%1$L)$$, $$SELECT sweeper.preview(%1$L)$$,
    $$SELECT sweeper.alter_policy(%1$L, audit => 'hash')$$, $$SELECT sweeper.alter_policy(%1$L, audit => 'row', rate_limit => 100)$$,
    $$SELECT sweeper.alter_policy(%1$L, group_by => 'n')$$, $$SELECT sweeper.alter_policy(%1$L, filter => 'canary(''new filter'')')$$,
    $$SELECT sweeper.alter_policy(%1$L, reset => '{filter}')$$, $$SELECT sweeper.alter_policy(%1$L, unit => 'us')$$, $$SELECT sweeper.alter_policy(%1$L, unit => 'ms')$$,
    $$SELECT sweeper.pause(%1$L)$$, $$SELECT sweeper.resume(%1$L)$$, $$SELECT sweeper.pause_all()$$, $$SELECT sweeper.resume_all()$$,
    $$SELECT sweeper.expire(%1$L, '{1}', 'by hand')$$, $$SELECT sweeper._expire_here(%1$L, '{1,by hand}', place(%1$L))$$, $$SELECT sweeper.expire(%1$L, '{"(1,1)"}', 'by hand')$$, $$SELECT sweeper.expire_group(%1$L, '0', 'by hand')$$,
    $$SELECT sweeper.stat_reset(%1$L)$$, $$SELECT sweeper.schedule(%1$L, '* * * * *')$$, $$SELECT sweeper.unschedule(%1$L)$$,
    $$SELECT sweeper.grant_access('gate_member', 'user', policy => %1$L)$$, $$SELECT sweeper.revoke_access('gate_member', policy => %1$L)$$,
    $$SELECT sweeper.register(%1$L, %1$L || '_2', last_seen => 'CASE WHEN ''{x}''::canary_literal[] IS NOT NULL THEN d END', ttl => '1 h', dry_run => true)$$,
    $$SELECT sweeper.register(%1$L, %1$L || '_2', deadline => 'seen_ms', filter => '''x''::canary_literal = ''x''', dry_run => true)$$,
    $$SELECT sweeper.append('gate_domain', jsonb_build_object('k', gen_random_uuid(), 'n', 11))$$,
    $$SELECT sweeper.adopt(%1$L, dry_run => true)$$, $$SELECT * FROM sweeper.adoptable$$,
    $$SELECT sweeper._repair_hint(policy_id) FROM sweeper.policy WHERE policy = %1$L$$,
    $$SELECT sweeper._misfit(%1$L), sweeper._pasteable(%1$L, %1$L), sweeper._again(%1$L, '1'), sweeper._decide(%1$L, false), sweeper._lock_query(%1$L)$$,
    $$SELECT * FROM sweeper.policy_status, sweeper.problem$$, $$SELECT * FROM sweeper.stat_progress, sweeper.stat_policy$$, $$SELECT * FROM sweeper.metrics$$])
    WITH ORDINALITY AS c (call, j) ORDER BY i, j;
-- what takes a policy and is not among the calls; the last ones are called by themselves, or read nothing of a table
SELECT DISTINCT p.proname FROM pg_proc AS p WHERE p.pronamespace = 'sweeper'::regnamespace AND p.prokind IN ('f', 'p') AND 'policy' = ANY (p.proargnames)
    AND NOT EXISTS (SELECT FROM calls WHERE sql ~ ('sweeper.' || p.proname || '\(')) ORDER BY 1;
CREATE FUNCTION attempts() RETURNS void LANGUAGE sql AS $$ SELECT attempt(sql) FROM calls ORDER BY n $$;
-- a superuser, between sweeps; then all others
SELECT attempts();
CALL sweeper.sweep('gate_enum') \gset
CALL sweeper.sweep('gate_domain') \gset
CALL sweeper.flush('gate_domain');
CALL sweeper.sweep('gate_asked') \gset
CALL sweeper.sweep('gate_part_1') \gset
SET ROLE gate_owner;
CALL fill();
SELECT attempts();
SET ROLE gate_admin;
SELECT attempts();
SET ROLE gate_member;
SELECT attempts();
-- row security of the owner, against members as well
SET ROLE gate_owner;
CALL fill();
CREATE POLICY canary ON gate_enum USING (canary('row security'));
ALTER TABLE gate_enum ENABLE ROW LEVEL SECURITY;
SET ROLE gate_stranger;
SELECT attempts();
SET ROLE gate_owner;
ALTER TABLE gate_enum FORCE ROW LEVEL SECURITY;
SELECT attempts();
RESET ROLE;
CALL sweeper.sweep('gate_enum') \gset
CALL sweeper.sweep('gate_domain') \gset
CALL sweeper.flush('gate_domain');
CALL sweeper.sweep('gate_asked') \gset
CALL sweeper.sweep('gate_part') \gset
CALL sweeper.sweep('gate_part_1') \gset
SELECT attempts();
CALL sweeper.flush('gate_domain');
-- a key that was a number when heartbeats were let in
SET ROLE gate_owner;
CREATE TYPE canary_row AS (t canary_text);
CREATE TABLE gate_morph (k int PRIMARY KEY, d timestamptz);
GRANT SELECT, UPDATE ON gate_morph TO gate_stranger;
INSERT INTO gate_morph VALUES (1, now() + '1 h'::interval);
SELECT FROM sweeper.register('gate_morph', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0');
ALTER TABLE gate_morph ALTER k TYPE canary_row USING ROW(k::text)::canary_row;
SET ROLE gate_stranger;
SELECT sweeper.touch('gate_morph', '(1)');
SELECT sweeper.is_live('gate_morph', '(1)');
RESET ROLE;
SELECT count(*) > 20 AS appended FROM gate_domain WHERE length(k) = 36;
SELECT is_called AS any_ran_as_somebody_else FROM canary_wrong;
SELECT last_value > 500 AS many_ran_as_the_owner FROM canary_right;
-- what they leave open is closed, or whoever fetches from it runs its query
SET ROLE gate_owner;
CREATE TABLE gate_cursor (id int PRIMARY KEY, d timestamptz);
INSERT INTO gate_cursor SELECT i, now() + '1 h'::interval FROM generate_series(1, 3) AS i;
CREATE FUNCTION leave_cursor() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE c refcursor := 'left_behind'; mine refcursor := 'mine'; BEGIN
    IF OLD.id = 1 THEN OPEN c FOR SELECT public.sing('cursor'); CLOSE mine; OPEN mine FOR SELECT public.sing('cursor'); END IF;
    IF OLD.id = 3 THEN EXECUTE '/*session_sweeper*/ SELECT FROM public.gate_cursor AS t /*session_sweeper OID 1259*/'; END IF;
    RETURN OLD; END $$;
CREATE TRIGGER leave_cursor BEFORE DELETE ON gate_cursor FOR EACH ROW EXECUTE FUNCTION leave_cursor();
SELECT FROM sweeper.register('gate_cursor', deadline => 'd', check_every => '0');
RESET ROLE;
BEGIN;
DECLARE first CURSOR FOR SELECT 1;
DECLARE mine CURSOR FOR SELECT 2;
DECLARE last CURSOR FOR SELECT 3;
SELECT sweeper.expire('gate_cursor', '{1}', 'by hand');
SELECT name FROM pg_cursors WHERE name <> '' ORDER BY name;
ROLLBACK;
-- a statement on another table than the one that it means does not run
SELECT sweeper.expire('gate_cursor', '{3}', 'by hand');
-- a trigger cannot close what reads the rows that it is for
SET ROLE gate_owner;
CREATE TABLE gate_shut (id int PRIMARY KEY, d timestamptz NOT NULL);
INSERT INTO gate_shut VALUES (1, now() + '29 min'::interval);
CREATE FUNCTION shut() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE c refcursor := (SELECT name FROM pg_cursors WHERE statement LIKE '/*session_sweeper*/%' LIMIT 1); BEGIN
    IF c IS NOT NULL THEN CLOSE c; END IF; RETURN NEW; END $$;
CREATE TRIGGER shut BEFORE UPDATE ON gate_shut FOR EACH ROW EXECUTE FUNCTION shut();
SELECT FROM sweeper.register('gate_shut', deadline => 'd', ttl => '30 min', heartbeats => true, check_every => '0');
SELECT sweeper.touch('gate_shut', 1);
SELECT sweeper.unregister('gate_shut');
RESET ROLE;
SELECT is_called AS any_ran_as_somebody_else FROM canary_wrong;
SELECT count(sweeper.unregister(policy)) FROM sweeper.policy WHERE policy LIKE 'gate_%';
SELECT sweeper.revoke_access(r) FROM unnest(ARRAY['gate_owner', 'gate_member', 'gate_stranger', 'gate_admin']::regrole[]) AS r;
DROP TABLE calls;
DROP FUNCTION attempts, attempt;
DROP SEQUENCE canary_wrong, canary_right;
DROP OWNED BY gate_owner, gate_member, gate_stranger, gate_admin CASCADE;
DROP ROLE gate_owner, gate_member, gate_stranger, gate_admin;
