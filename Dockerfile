# The official image of PostgreSQL with session_sweeper:
#
#     docker build --build-arg PG_MAJOR=17 -t postgres-session-sweeper .
#     docker run -e POSTGRES_PASSWORD=… -p 5432:5432 postgres-session-sweeper
#
# A new cluster preloads the library, and its database POSTGRES_DB has the extension.
# An existing volume keeps its own configuration: set shared_preload_libraries there,
# restart, and run CREATE EXTENSION session_sweeper as a superuser.
#
# CloudNativePG: build an image of your own from its image.  The lines are
#     FROM ghcr.io/cloudnative-pg/postgresql:17
#     USER root
#     COPY --from=postgres-session-sweeper /session_sweeper/ /
#     USER 26
# and the Cluster needs, under spec.postgresql: shared_preload_libraries: [session_sweeper].
# Patroni: install the package on every member, and set shared_preload_libraries under
# postgresql.parameters with "patronictl edit-config"; then restart the members.
#
# Untried: no registry could be reached where this was written, so neither the image nor
# CloudNativePG nor Patroni has been run.  The two make commands below were run by hand.
ARG PG_MAJOR=17

FROM postgres:${PG_MAJOR} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev libkrb5-dev make postgresql-server-dev-${PG_MAJOR}
COPY . /src
RUN make -C /src -s -j2 PG_CONFIG=/usr/lib/postgresql/${PG_MAJOR}/bin/pg_config with_llvm=no \
    && make -C /src -s PG_CONFIG=/usr/lib/postgresql/${PG_MAJOR}/bin/pg_config with_llvm=no DESTDIR=/session_sweeper install

FROM postgres:${PG_MAJOR}
COPY --from=build /session_sweeper/ /session_sweeper/
RUN cp -a /session_sweeper/. / \
    && echo "shared_preload_libraries = 'session_sweeper'" >>/usr/share/postgresql/postgresql.conf.sample \
    && echo 'CREATE EXTENSION session_sweeper;' >/docker-entrypoint-initdb.d/session_sweeper.sql
