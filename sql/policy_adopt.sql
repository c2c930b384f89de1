-- Well-known session tables.
CREATE TABLE "session" ("sid" varchar NOT NULL COLLATE "default", "sess" json NOT NULL, "expire" timestamp(6) NOT NULL);
ALTER TABLE "session" ADD CONSTRAINT "session_pkey" PRIMARY KEY ("sid") NOT DEFERRABLE INITIALLY IMMEDIATE;
CREATE INDEX "IDX_session_expire" ON "session" ("expire");
CREATE TABLE django_session (session_key varchar(40) NOT NULL PRIMARY KEY, session_data text NOT NULL, expire_date timestamptz NOT NULL);
CREATE INDEX django_session_expire_date_a5c62663 ON django_session (expire_date);
CREATE TABLE SPRING_SESSION (PRIMARY_ID CHAR(36) NOT NULL, SESSION_ID CHAR(36) NOT NULL, CREATION_TIME BIGINT NOT NULL,
    LAST_ACCESS_TIME BIGINT NOT NULL, MAX_INACTIVE_INTERVAL INT NOT NULL, EXPIRY_TIME BIGINT NOT NULL, PRINCIPAL_NAME VARCHAR(100),
    CONSTRAINT SPRING_SESSION_PK PRIMARY KEY (PRIMARY_ID));
CREATE UNIQUE INDEX SPRING_SESSION_IX1 ON SPRING_SESSION (SESSION_ID);
CREATE INDEX SPRING_SESSION_IX2 ON SPRING_SESSION (EXPIRY_TIME);
CREATE TABLE SPRING_SESSION_ATTRIBUTES (SESSION_PRIMARY_ID CHAR(36) NOT NULL, ATTRIBUTE_NAME VARCHAR(200) NOT NULL, ATTRIBUTE_BYTES BYTEA NOT NULL,
    CONSTRAINT SPRING_SESSION_ATTRIBUTES_PK PRIMARY KEY (SESSION_PRIMARY_ID, ATTRIBUTE_NAME),
    CONSTRAINT SPRING_SESSION_ATTRIBUTES_FK FOREIGN KEY (SESSION_PRIMARY_ID) REFERENCES SPRING_SESSION (PRIMARY_ID) ON DELETE CASCADE);
INSERT INTO "session" SELECT 's' || i, '{}', (now() AT TIME ZONE 'UTC') + CASE WHEN i <= 4 THEN '-1 min' ELSE '1 h' END::interval FROM generate_series(1, 10) AS i;
INSERT INTO django_session SELECT 'd' || i, '', now() + CASE WHEN i <= 4 THEN '-1 min' ELSE '1 h' END::interval FROM generate_series(1, 10) AS i;
INSERT INTO SPRING_SESSION SELECT 'p' || i, 'i' || i, 0, 0, 1800, extract(epoch FROM now()) * 1000 + CASE WHEN i <= 4 THEN -60000 ELSE 3600000 END FROM generate_series(1, 10) AS i;
INSERT INTO SPRING_SESSION_ATTRIBUTES SELECT 'p' || i, 'a', '' FROM generate_series(1, 10) AS i;
SET timezone = 'UTC';
SELECT relation, preset, registered FROM sweeper.adoptable ORDER BY preset;
SELECT policy, dead_estimate, index_used, advice FROM sweeper.adopt('"session"', timezone => 'UTC', check_every => '0');
SELECT policy, dead_estimate, index_used FROM sweeper.adopt('django_session', check_every => '0');
SELECT policy, dead_estimate, index_used FROM sweeper.adopt('spring_session', check_every => '0');
CALL sweeper.sweep('session', pass => NULL) \gset
CALL sweeper.sweep('django_session', pass => NULL) \gset
CALL sweeper.sweep('spring_session', pass => NULL) \gset
SELECT (SELECT count(*) FROM "session") AS connect, (SELECT count(*) FROM django_session) AS django,
       (SELECT count(*) FROM spring_session) AS spring, (SELECT count(*) FROM spring_session_attributes) AS attributes;
-- keys are credentials: only their hash is kept
SELECT policy, count(*), min(length(key)), max(length(key)) FROM sweeper.cleanup_event
WHERE policy IN ('session', 'django_session', 'spring_session') GROUP BY policy ORDER BY policy;
CREATE TABLE stranger (id int PRIMARY KEY, d timestamptz);
SELECT sweeper.adopt('stranger');
SELECT sweeper.adopt('stranger', preset => 'django');
SELECT sweeper.adopt('stranger', preset => 'nope');
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
DROP TABLE stranger, "session", django_session, spring_session_attributes, spring_session;
