-- An update that leaves its rows dead is caught at registration, and the hint has the filter; hooks by their name alone.
SET client_min_messages = warning;
CREATE TABLE soft (id int PRIMARY KEY, d timestamptz, deleted_at timestamptz, status text DEFAULT 'active', revoked boolean DEFAULT false, n int, m timestamptz GENERATED ALWAYS AS (greatest(d, '2000-01-01 00:00+00'::timestamptz)) STORED);
CREATE INDEX ON soft (d);
INSERT INTO soft SELECT i, now() - interval '1 h' FROM generate_series(1, 5) AS i;
CREATE FUNCTION hint(arguments text, call text DEFAULT 'register(''soft'', deadline => ''d'', action => ''update'', check_every => ''0'', ') RETURNS text LANGUAGE plpgsql AS $$
DECLARE h text; BEGIN
    EXECUTE format('SELECT FROM sweeper.%s%s)', call, arguments);
    RETURN 'registered';
EXCEPTION WHEN invalid_parameter_value THEN
    GET STACKED DIAGNOSTICS h = PG_EXCEPTION_HINT;
    RETURN concat_ws(' / ', SQLERRM, h);
END $$;
SELECT s, hint(format('set_clause => %L', s)) FROM unnest(ARRAY['deleted_at = now()', 'status = ''gone''', 'revoked = true', 'n = 1, status = ''gone''', 'n = 1, deleted_at = now()', '(n, status) = (1, ''x'')', 'n = n + 1', 'n = 2 ', 'n = DEFAULT',
    'n = extract(epoch FROM now())', 'status = ''gone'' || now()', 'status = ''it''''s gone''']) AS s;
-- what the hint gives goes, and each row is marked once
SELECT substring(hint('set_clause => ''status = ''''gone''''''') FROM 'SELECT .*') AS call \gset
\o /dev/null
:call
\o
CALL sweeper.sweep('soft') \gset
CALL sweeper.sweep('soft', pass => NULL);
SELECT status, count(*) FROM soft GROUP BY status;
SELECT hint('reset => ''{filter}''', 'alter_policy(''soft'', ');
SELECT hint('set_clause => ''revoked = true'', reset => ''{filter}''', 'alter_policy(''soft'', ');
SELECT sweeper.unregister('soft');
-- with a filter of one's own, a new deadline, a trigger that may set it, or a generated deadline nothing is wrong
SELECT hint('set_clause => ''n = 1'', filter => ''n IS NULL'''), sweeper.unregister('soft');
SELECT hint('set_clause => ''n = 1, d = NULL'''), sweeper.unregister('soft');
SELECT hint('set_clause => ''d = now() + interval ''''1 h''''''', 'register(''soft'', deadline => ''m'', action => ''update'', check_every => ''0'', '), sweeper.unregister('soft');
CREATE FUNCTION later() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.d := now() + interval ''1 day''; RETURN NEW; END';
CREATE TRIGGER later BEFORE UPDATE ON soft FOR EACH ROW EXECUTE FUNCTION later();
SELECT hint('set_clause => ''n = 1'''), sweeper.unregister('soft');
-- a hook by its name
CREATE FUNCTION gone(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION "Still there"(text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION hook(name text, field text DEFAULT 'on_expire') RETURNS text LANGUAGE plpgsql AS $$
DECLARE h text; r text; BEGIN
    EXECUTE format('SELECT FROM sweeper.register(''soft'', deadline => ''d'', ttl => ''1 h'', check_every => ''0'', start => ''paused'', %s => %L)', field, name);
    SELECT coalesce(on_expire_name, is_alive_name) INTO r FROM sweeper.policy WHERE policy = 'soft';
    PERFORM sweeper.unregister('soft');
    RETURN r;
EXCEPTION WHEN undefined_function OR ambiguous_function OR invalid_text_representation OR syntax_error OR invalid_name THEN
    GET STACKED DIAGNOSTICS h = PG_EXCEPTION_HINT;
    RETURN concat_ws(' / ', SQLERRM, nullif(h, ''));
END $$;
SELECT n, hook(n) FROM unnest(ARRAY['gone', 'public.gone', 'gone(text[])', 'GONE', 'lost', 'gone(', '']) AS n;
SELECT hook('"Still there"', 'is_alive');
CREATE FUNCTION gone(int) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT hook('gone'), hook('gone(text[])');
SELECT FROM sweeper.register('soft', deadline => 'd', check_every => '0', start => 'paused');
SELECT sweeper.alter_policy('soft', on_expire => 'gone(text[])');
DROP FUNCTION gone(int);
SELECT sweeper.alter_policy('soft', on_expire => 'gone');
SELECT on_expire_name FROM sweeper.policy WHERE policy = 'soft';
SELECT sweeper.unregister('soft');
DROP TABLE soft;
DROP FUNCTION gone, hook, hint, later, "Still there";
