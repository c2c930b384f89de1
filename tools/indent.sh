#!/bin/bash
# Format the C code as PostgreSQL does; with --check, only say what would change.
set -eu
cd "$(dirname "$0")/.."
command -v pg_bsd_indent >/dev/null || { echo "indent: pg_bsd_indent is missing (make setup)" >&2; exit 1; }
options="-bad -bap -bbb -bc -bl -cli1 -cp33 -cdb -nce -d0 -di12 -nfc1 -i4 -l79 -lp -lpl -nip -npro -sac -tpg -ts4 -Utools/typedefs.list"
status=0
for f in session_sweeper.c src/*.c src/*.h; do
    # shellcheck disable=SC2086  # a list
    pg_bsd_indent $options "$f" /tmp/indent.$$ 2>/dev/null || { echo "indent: $f failed" >&2; status=1; continue; }
    if [ "${1:-}" = --check ]; then
        diff -u "$f" /tmp/indent.$$ || status=1
    else
        cat /tmp/indent.$$ >"$f"
    fi
done
rm -f /tmp/indent.$$
exit "$status"
