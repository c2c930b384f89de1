#!/bin/bash
# House rules that a compiler does not check.  Prints what breaks them.
set -u
cd "$(dirname "$0")/.."
bad=0
complain() { [ -z "$2" ] || { printf '%s\n%s\n' "$1" "$2"; bad=1; }; }

complain "PG_VERSION_NUM belongs in src/compat.h only:" \
    "$(grep -ln PG_VERSION_NUM ./*.c src/*.c src/*.h | grep -v '^src/compat\.h$')"
complain "Functions that other files see begin with ssw_ (or _PG_init):" \
    "$(for f in src/*.o session_sweeper.o; do [ ! -f "$f" ] || nm -g --defined-only "$f" | awk -v f="$f" \
        '$2 ~ /[TDB]/ && $3 !~ /^(ssw_|pg_finfo_ssw_|Ssw|MySsw|_PG_init|Pg_magic_func)/ { print "  " f ": " $3 }'; done)"
complain "Tests wait on a row, a log line or a wait event; they do not sleep:" \
    "$(grep -nE '(^|[^a-z_])(sleep|usleep)[ (]' test/t/*.pl test/perl/*.pm test/*.sh 2>/dev/null)"
complain "Left for later:" "$(grep -nE '(TODO|FIXME|HACK)' ./*.c src/*.[ch] schema/*.sql test/t/*.pl tools/*.sh Makefile | grep -v '^tools/lint.sh')"
complain "Every function has a COMMENT ON:" \
    "$(grep -hoE '^CREATE (FUNCTION|PROCEDURE) sweeper\.[a-z_]+' schema/*.sql | awk '{print $2, $3}' | sort -u | while read -r kind name; do
        grep -qE "^COMMENT ON $kind ${name//./\\.}( |\(|$)" schema/*.sql || echo "  $kind $name"; done)"
complain "Each C file begins with its purpose:" \
    "$(for f in session_sweeper.c src/*.c; do sed -n 2p "$f" | grep -q "^ \* ${f##*/}$" || echo "  $f"; done)"
for f in tools/*.sh test/*.sh bench/*.sh .ci/run; do
    [ ! -f "$f" ] || bash -n "$f" || bad=1
done
[ "$bad" = 0 ] && echo "lint: ok"
exit "$bad"
