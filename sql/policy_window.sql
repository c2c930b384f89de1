-- Load care: maintenance windows, and the settings.  What they do is shown by test/t/sweep_throttle.pl.
\set VERBOSITY terse
CREATE TABLE win (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON win (d);
SET timezone = 'Europe/Berlin';
SELECT state FROM sweeper.register('win', deadline => 'd', maintenance_window => '22:00-06:00', start => 'paused');
SELECT maintenance_window FROM sweeper.policy WHERE policy = 'win';
SELECT sweeper.alter_policy('win', rate_limit => 10);
SELECT sweeper.alter_policy('win', maintenance_window => 'Mon-Fri 22:00-06:00,Sat 00:00-24:00, sun 12:30-13:00 UTC');
SELECT maintenance_window FROM sweeper.policy WHERE policy = 'win';
SELECT old, new FROM sweeper.policy_change WHERE policy = 'win' AND new ? 'maintenance_window' AND change <> 'register' ORDER BY changed_at;
-- a session's zone without a name is refused
SET TIME ZONE 3;
SELECT sweeper.alter_policy('win', maintenance_window => '19:00-20:00');
SELECT maintenance_window FROM sweeper.policy WHERE policy = 'win';
SELECT sweeper.alter_policy('win', rate_limit => 11);
SET timezone = 'UTC+2';
SELECT sweeper.alter_policy('win', maintenance_window => '19:00-20:00');
SELECT sweeper.alter_policy('win', rate_limit => 12);
SELECT maintenance_window FROM sweeper.policy WHERE policy = 'win';
RESET timezone;
-- what is none
DO $$
DECLARE w text;
BEGIN
    FOREACH w IN ARRAY '{"", "22:00", "22:00-22:00", "25:00-26:00", "24:00-06:00", "22:60-23:00", "22:00-06:00,", "Mon", "Mon-Fri", "Xyz 10:00-11:00", "Monday 10:00-11:00", "10:00-11:00 12:00-13:00"}'::text[] LOOP
        BEGIN
            PERFORM sweeper.alter_policy('win', maintenance_window => w);
            RAISE NOTICE 'accepted: %', w;
        EXCEPTION WHEN invalid_parameter_value THEN NULL;
        END;
    END LOOP;
END $$;
-- it goes by the clocks on the wall: an hour that they leave out opens nothing, one that they repeat is open twice
SELECT w, at AT TIME ZONE 'Europe/Berlin' AS local, o = at AS open, o AT TIME ZONE 'Europe/Berlin' AS opens
FROM (VALUES ('Sun 02:15-02:45', '2026-03-28 12:00Z'::timestamptz), ('22:00-02:30', '2026-03-29 00:59:59Z'), ('22:00-02:30', '2026-03-29 01:00Z'),
             ('02:00-03:00', '2026-10-25 00:30Z'), ('02:00-03:00', '2026-10-25 01:30Z'), ('23:00-02:30', '2026-10-25 00:40Z'),
             ('23:00-02:30', '2026-10-25 01:10Z'), ('23:00-02:30', '2026-10-25 01:40Z'), ('Fri-Mon 22:00-06:00', '2026-11-24 04:59:59.9Z'),
             ('Fri-Mon 22:00-06:00', '2026-11-24 05:00Z'), ('Sat 00:00-24:00', '2026-11-21 23:00Z')) AS v (w, at),
     sweeper._window_opens(w || ' Europe/Berlin', at) AS o;
SELECT sweeper._window_opens('Sun 02:15-02:45 Europe/Berlin', '2026-03-22 01:45Z'::timestamptz) IS NULL AS never;
SELECT sweeper._window_opens('at night', now());
SELECT length(sweeper.alter_policy('win', maintenance_window => repeat('10:00-11:00,', 31) || '12:00-13:00')::text);
SELECT sweeper.alter_policy('win', maintenance_window => '10:00-11:00 Mars/Phobos');
\set VERBOSITY default
SELECT sweeper.alter_policy('win', maintenance_window => '10:00-11:00 UTC+2');
SELECT sweeper.alter_policy('win', maintenance_window => '10:00-11:00 Sat5');
SELECT sweeper.alter_policy('win', maintenance_window => 'at night');
SELECT sweeper.alter_policy('win', reset => '{maintenance_window}');
SELECT maintenance_window FROM sweeper.policy WHERE policy = 'win';
-- who may only limit may close it
CREATE ROLE regress_window;
SELECT sweeper.grant_access('regress_window', 'admin');
SET ROLE regress_window;
SELECT sweeper.alter_policy('win', maintenance_window => '22:00-06:00 UTC');
RESET ROLE;
SELECT name, setting, unit FROM pg_settings WHERE name IN ('session_sweeper.max_wal_rate', 'session_sweeper.max_replica_lag') ORDER BY 1;
\set VERBOSITY sqlstate
ALTER SYSTEM SET session_sweeper.max_wal_rate = '-1';
\set VERBOSITY default
SELECT sweeper.revoke_access('regress_window');
DROP ROLE regress_window;
SELECT sweeper.unregister('win');
DROP TABLE win;
RESET timezone;
