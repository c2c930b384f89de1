-- Session tables as three frameworks create them, 100,000 rows each, 40 % of
-- them past their deadline; then what make demo asks of them.
\set ON_ERROR_STOP on
SET client_min_messages = warning;
CREATE EXTENSION session_sweeper;

-- connect-pg-simple 10, table.sql
CREATE TABLE "session" (
  "sid" varchar NOT NULL COLLATE "default",
	"sess" json NOT NULL,
	"expire" timestamp(6) NOT NULL
)
WITH (OIDS=FALSE);
ALTER TABLE "session" ADD CONSTRAINT "session_pkey" PRIMARY KEY ("sid") NOT DEFERRABLE INITIALLY IMMEDIATE;
CREATE INDEX "IDX_session_expire" ON "session" ("expire");

-- Django, sessions migration 0001
CREATE TABLE "django_session" ("session_key" varchar(40) NOT NULL PRIMARY KEY, "session_data" text NOT NULL, "expire_date" timestamp with time zone NOT NULL);
CREATE INDEX "django_session_session_key_c0390e0f_like" ON "django_session" ("session_key" varchar_pattern_ops);
CREATE INDEX "django_session_expire_date_a5c62663" ON "django_session" ("expire_date");

-- Spring Session JDBC, schema-postgresql.sql
CREATE TABLE SPRING_SESSION (
	PRIMARY_ID CHAR(36) NOT NULL,
	SESSION_ID CHAR(36) NOT NULL,
	CREATION_TIME BIGINT NOT NULL,
	LAST_ACCESS_TIME BIGINT NOT NULL,
	MAX_INACTIVE_INTERVAL INT NOT NULL,
	EXPIRY_TIME BIGINT NOT NULL,
	PRINCIPAL_NAME VARCHAR(100),
	CONSTRAINT SPRING_SESSION_PK PRIMARY KEY (PRIMARY_ID)
);
CREATE UNIQUE INDEX SPRING_SESSION_IX1 ON SPRING_SESSION (SESSION_ID);
CREATE INDEX SPRING_SESSION_IX2 ON SPRING_SESSION (EXPIRY_TIME);
CREATE INDEX SPRING_SESSION_IX3 ON SPRING_SESSION (PRINCIPAL_NAME);
CREATE TABLE SPRING_SESSION_ATTRIBUTES (
	SESSION_PRIMARY_ID CHAR(36) NOT NULL,
	ATTRIBUTE_NAME VARCHAR(200) NOT NULL,
	ATTRIBUTE_BYTES BYTEA NOT NULL,
	CONSTRAINT SPRING_SESSION_ATTRIBUTES_PK PRIMARY KEY (SESSION_PRIMARY_ID, ATTRIBUTE_NAME),
	CONSTRAINT SPRING_SESSION_ATTRIBUTES_FK FOREIGN KEY (SESSION_PRIMARY_ID) REFERENCES SPRING_SESSION(PRIMARY_ID) ON DELETE CASCADE
);

-- Dead for some minutes to an hour, or alive for at least an hour more.
CREATE FUNCTION pg_temp.deadline(i int) RETURNS timestamptz LANGUAGE sql STABLE AS
$$ SELECT now() + CASE WHEN i % 10 < 4 THEN -1 ELSE 10 END * (360 + i % 3600) * interval '1 s' $$;

INSERT INTO "session"
SELECT md5('c' || i), '{"cookie": {"originalMaxAge": 3600000, "httpOnly": true, "path": "/"}}', pg_temp.deadline(i)
FROM generate_series(1, 100000) AS i;
INSERT INTO django_session SELECT md5('d' || i), repeat('x', 100), pg_temp.deadline(i)
FROM generate_series(1, 100000) AS i;
INSERT INTO spring_session
SELECT md5('s' || i)::uuid, md5('i' || i)::uuid, 0, 0, 1800, extract(epoch FROM pg_temp.deadline(i)) * 1000, 'user' || i % 1000
FROM generate_series(1, 100000) AS i;
INSERT INTO spring_session_attributes
SELECT primary_id, 'SPRING_SECURITY_CONTEXT', '\xaced0005' FROM spring_session;
VACUUM ANALYZE;

-- Every session with its deadline, in one shape.  connect-pg-simple writes
-- the database's local time; so does this, and adopt() must find that out.
CREATE VIEW demo_row (policy, key, deadline) AS
SELECT 'session', sid::text, expire AT TIME ZONE current_setting('TimeZone') FROM "session"
UNION ALL SELECT 'django_session', session_key, expire_date FROM django_session
UNION ALL SELECT 'spring_session', primary_id, to_timestamp(expiry_time / 1000.0) FROM spring_session;

-- Who must still be there at the end.
CREATE TABLE demo_living AS SELECT policy, key FROM demo_row WHERE deadline > now();
CREATE UNIQUE INDEX ON demo_living (policy, key);
ANALYZE demo_living;

CREATE VIEW demo_progress AS
SELECT s.policy, r.live, r.dead, e.expired, e.rate AS "rows/s",
       CASE WHEN s.lag IS NOT NULL THEN date_trunc('second', s.lag)::text ELSE 'none' END AS lag, s.workers
FROM sweeper.policy_status AS s
JOIN (SELECT policy, count(*) FILTER (WHERE deadline > now()) AS live, count(*) FILTER (WHERE deadline <= now()) AS dead
      FROM demo_row GROUP BY policy) AS r USING (policy)
JOIN LATERAL (SELECT coalesce(sum(count), 0) AS expired,
                     coalesce(sum(count) FILTER (WHERE cleaned_at > clock_timestamp() - interval '1 s'), 0) AS rate
              FROM sweeper.cleanup_event AS e WHERE e.policy = s.policy) AS e ON true
ORDER BY s.policy;

-- What went wrong, if anything.
CREATE VIEW demo_fault AS
SELECT policy, count(*) || ' dead rows are left' AS fault FROM demo_row WHERE deadline <= now() GROUP BY policy
UNION ALL
SELECT policy, count(*) || ' live rows are missing' FROM demo_living AS l
WHERE NOT EXISTS (SELECT FROM demo_row AS r WHERE (r.policy, r.key) = (l.policy, l.key)) GROUP BY policy
UNION ALL
SELECT p.policy, e.n || ' events instead of 40000' FROM sweeper.policy AS p,
       LATERAL (SELECT coalesce(sum(count), 0) AS n, count(DISTINCT key) AS keys FROM sweeper.cleanup_event AS e WHERE e.policy = p.policy) AS e
WHERE p.policy IN (SELECT policy FROM demo_living) AND (e.n <> 40000 OR e.keys <> 40000)
UNION ALL
SELECT coalesce(policy, '(server)'), 'sweeper.problem: ' || problem || ', ' || coalesce(detail, '') FROM sweeper.problem;
