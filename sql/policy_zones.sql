-- What an expression means in a pass, it means when it is registered: UTC, ISO dates; what depends on the zone is refused.
SET client_min_messages = warning;
SET timezone = 'America/Bogota';
CREATE TABLE z (id int PRIMARY KEY, local timestamp, day date, d timestamptz, sess jsonb, at timestamptz NOT NULL UNIQUE);
INSERT INTO z SELECT i, localtimestamp + interval '1 h', current_date, now() + interval '1 h',
    jsonb_build_object('local', to_char(localtimestamp + interval '1 h', 'YYYY-MM-DD HH24:MI:SS'),
        'utc', to_char((now() + interval '1 h') AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
    '2026-03-02 10:00+00'::timestamptz + i * interval '1 day' FROM generate_series(1, 5) AS i;
CREATE FUNCTION as_instant(timestamp) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN $1; END $$;
CREATE FUNCTION day_of(timestamptz) RETURNS date LANGUAGE sql IMMUTABLE AS $$ SELECT $1::date $$;
CREATE FUNCTION try(args text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    state text; dead bigint; message text; detail text;
BEGIN
    EXECUTE format('SELECT state, dead_estimate FROM sweeper.register(%L, %s, policy => ''try'')', 'z', args) INTO state, dead;
    PERFORM sweeper.unregister('try');
    RETURN state || ', ' || dead || ' dead';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
    RETURN message || ': ' || detail;
END $$;
SELECT args, try(args) FROM unnest(ARRAY[
    -- a local time that is made an instant by nobody knows which zone
    $$deadline => 'local::timestamptz'$$,
    $$deadline => 'coalesce(d, day)'$$,
    $$deadline => 'd', filter => 'local < now()'$$,
    $$deadline => 'd', filter => 'day < current_date'$$,
    $$deadline => 'd', filter => 'day < ''today'''$$,
    $$deadline => 'd', filter => 'local < timestamp ''tomorrow'''$$,
    $$deadline => 'd', filter => 'age(local) > interval ''1 h'''$$,
    $$deadline => 'd', filter => 'age(now(), d) > interval ''1 mon'''$$,
    $$deadline => 'd', filter => 'day = ANY (''{yesterday}'')'$$,
    $$deadline => 'd', filter => 'day < localtimestamp - interval ''19 h'''$$,
    $$deadline => 'date_trunc(''day'', d) + interval ''1 day'''$$,
    $$deadline => 'local AT TIME ZONE current_setting(''TimeZone'')'$$,
    $$deadline => 'make_timestamptz(2026, 3, extract(day FROM local)::int, 0, 0, 0)'$$,
    $$deadline => 'd', filter => 'extract(hour FROM d) < 7'$$,
    $$deadline => 'd', filter => 'd::text < ''2027'''$$,
    $$deadline => 'd', filter => 'concat(d) < ''2027'''$$,
    $$deadline => 'd', filter => 'age(d) > interval ''1 h'''$$,
    $$deadline => 'd', filter => '(d, id) < (day, 3)'$$,
    -- a constant without an offset
    $$deadline => 'd', filter => 'd > ''2026-01-01 00:00'''$$,
    -- a text without one
    $$deadline => '(sess->>''local'')::timestamptz'$$,
    $$deadline => 'd', filter => '(sess->>''local'')::timestamptz > now()'$$,
    -- code that is not known
    $$deadline => 'as_instant(local)'$$,
    $$deadline => 'd', filter => 'day_of(d) < ''2027-01-01'''$$,
    -- said which zone
    $$deadline => 'local', timezone => 'America/Bogota'$$,
    $$deadline => 'local AT TIME ZONE ''America/Bogota'''$$,
    $$deadline => '(sess->>''local'')::timestamp AT TIME ZONE ''America/Bogota'''$$,
    $$deadline => '(sess->>''utc'')::timestamptz'$$,
    $$deadline => 'd + interval ''1 day'''$$,
    $$deadline => 'd', filter => 'extract(epoch FROM d) > 7 AND (d, id) < (now() + interval ''9 years'', 3)'$$,
    $$deadline => 'make_timestamptz(2026, 3, extract(day FROM local)::int, 0, 0, 0, ''America/Bogota'')'$$,
    $$deadline => 'd', filter => 'd > ''2026-01-01 00:00-05'' AND now() > ''epoch'''$$,
    $$deadline => 'd', filter => 'day < ''2030-01-01'' AND d > ''2026-01-01 00:00-05'''$$,
    $$deadline => 'd', filter => 'local < now() AT TIME ZONE ''America/Bogota'' + interval ''1 day'''$$]) AS args;
-- the setting knows its summer, AT TIME ZONE does not; not every server has that zone
SELECT try($$deadline => 'local', timezone => 'CET'$$) ~ 'time zone "CET" is (also an abbreviation|not the name of a time zone)' AS refused;
-- it is asked of what is given, not again of what is altered beside it
SET timezone = 'UTC';
SELECT state FROM sweeper.register('z', deadline => 'd', filter => 'd > ''2026-01-01 00:00''', key => '{at}', check_every => '0');
SET timezone = 'America/Bogota';
SELECT sweeper.alter_policy('z', group_by => 'day');
SELECT sweeper.alter_policy('z', filter => 'd > ''2026-01-01 01:00''');
-- sample keys are canonical: what expire() and explain_row() take
UPDATE z SET d = now() - interval '1 h' WHERE id <= 2;
SET datestyle = 'SQL, DMY';
SELECT sample_keys FROM sweeper.preview('z');
SELECT found, verdict FROM sweeper.preview('z') AS p, sweeper.explain_row('z', p.sample_keys[1]);
SELECT sweeper.expire('z', (SELECT sample_keys FROM sweeper.preview('z')), 'by their samples');
SELECT id FROM z ORDER BY id;
SELECT sweeper.unregister('z');
DROP TABLE z;
DROP FUNCTION try, as_instant, day_of;
