#!/bin/bash
# Run one regression or isolation test in a database that no other test has used.
#
#   fresh-database.sh PSQL COMMAND…      (the --launcher of pg_regress)
#
# The database of COMMAND is dropped and created with the extension; then COMMAND runs.  What it leaves in the rest of
# the cluster would reach the next test, so it is printed, and the test fails.  Numbers of policies, passes, events and rows begin
# anywhere, so a test whose output shows them fails, too.  Needs the rights of a superuser.
set -eu
psql=("$1" -X -q -A -t -v ON_ERROR_STOP=1)
shift
for argument; do
    case $argument in
        dbname=*) database=${argument#dbname=} ;; # isolationtester
        *) [ "${before:-}" != -d ] || database=$argument ;;
    esac
    before=$argument
done

leftovers() {
    "${psql[@]}" -d postgres <<'EOF'
SELECT 'database ' || datname FROM pg_database
UNION ALL SELECT 'role ' || rolname FROM pg_roles
UNION ALL SELECT 'tablespace ' || spcname FROM pg_tablespace
UNION ALL SELECT 'replication slot ' || slot_name FROM pg_replication_slots
UNION ALL SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts
UNION ALL SELECT 'setting ' || name || ' = ' || setting FROM pg_file_settings
UNION ALL SELECT 'setting of a role: ' || setrole::regrole::text || ' ' || array_to_string(setconfig, ', ') FROM pg_db_role_setting WHERE setdatabase = 0
ORDER BY 1
EOF
}

# The settings are those of pg_regress.
"${psql[@]}" -d postgres >/dev/null <<EOF
SET client_min_messages = error;
DROP DATABASE IF EXISTS "$database" (FORCE);
CREATE DATABASE "$database" TEMPLATE template0 ENCODING 'UTF8';
ALTER DATABASE "$database" SET lc_messages = 'C';
ALTER DATABASE "$database" SET lc_monetary = 'C';
ALTER DATABASE "$database" SET lc_numeric = 'C';
ALTER DATABASE "$database" SET lc_time = 'C';
ALTER DATABASE "$database" SET bytea_output = 'hex';
ALTER DATABASE "$database" SET timezone_abbreviations = 'Default';
\connect "$database"
CREATE EXTENSION session_sweeper;
SELECT setval(oid::regclass, 1000 + 1000 * ($RANDOM % 9)) FROM pg_class WHERE relkind = 'S' AND relnamespace = 'sweeper'::regnamespace;
EOF
before=$(leftovers)
status=0
"$@" || status=$?
diff <(echo "$before") <(leftovers) || true
exit "$status"
