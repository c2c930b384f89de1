-- The exact tables of connect-pg-simple, Django and Spring Session.
SET client_min_messages = warning;
SET timezone = 'UTC';
CREATE EXTENSION session_sweeper;

CREATE TABLE "session" (
  "sid" varchar NOT NULL COLLATE "default",
  "sess" json NOT NULL,
  "expire" timestamp(6) NOT NULL
);
ALTER TABLE "session" ADD CONSTRAINT "session_pkey" PRIMARY KEY ("sid") NOT DEFERRABLE INITIALLY IMMEDIATE;
CREATE INDEX "IDX_session_expire" ON "session" ("expire");

CREATE TABLE "django_session" ("session_key" varchar(40) NOT NULL PRIMARY KEY, "session_data" text NOT NULL, "expire_date" timestamp with time zone NOT NULL);
CREATE INDEX "django_session_session_key_c0390e0f_like" ON "django_session" ("session_key" varchar_pattern_ops);
CREATE INDEX "django_session_expire_date_a5c62663" ON "django_session" ("expire_date");

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

-- 40 % are past their deadline, the others have at least an hour to live
INSERT INTO "session" SELECT md5('c' || i), '{"cookie": {}}',
    (now() AT TIME ZONE 'UTC') + CASE WHEN i % 10 < 4 THEN -1 ELSE 10 END * (360 + i % 3600) * interval '1 s'
FROM generate_series(1, 100000) AS i;
INSERT INTO django_session SELECT md5('d' || i), repeat('x', 100),
    now() + CASE WHEN i % 10 < 4 THEN -1 ELSE 10 END * (360 + i % 3600) * interval '1 s'
FROM generate_series(1, 100000) AS i;
INSERT INTO SPRING_SESSION SELECT gen_random_uuid(), gen_random_uuid(), 0, 0, 1800,
    (extract(epoch FROM now()) + CASE WHEN i % 10 < 4 THEN -1 ELSE 10 END * (360 + i % 3600)) * 1000, 'u' || i % 1000
FROM generate_series(1, 100000) AS i;
INSERT INTO SPRING_SESSION_ATTRIBUTES SELECT PRIMARY_ID, 'SPRING_SECURITY_CONTEXT', '\x00' FROM SPRING_SESSION;
VACUUM ANALYZE;
CREATE TABLE demo_expected AS VALUES ('django_session', 'django_session', 60000), ('session', 'session', 60000), ('spring_session', 'spring_session', 60000);
ALTER TABLE demo_expected RENAME column1 TO relation;
ALTER TABLE demo_expected RENAME column2 TO policy;
ALTER TABLE demo_expected RENAME column3 TO live;

-- at a pace that can be watched
SELECT policy, dead_estimate, index_used FROM sweeper.adopt('"session"', start => 'now', backlog_rate => 8000);
SELECT policy, dead_estimate, index_used FROM sweeper.adopt('django_session', start => 'now', backlog_rate => 10000);
SELECT policy, dead_estimate, index_used FROM sweeper.adopt('spring_session', start => 'now', backlog_rate => 6000);
