#!/bin/bash
# Format the C code as PostgreSQL does; with --check, only show what would
# change.  Types of the server are in typedefs.list; our own are found.
set -eu
cd "$(dirname "$0")/.."
command -v pg_bsd_indent >/dev/null || { echo "indent: pg_bsd_indent is missing (make setup)" >&2; exit 1; }
options="-bad -bap -bbb -bc -bl -cli1 -cp33 -cdb -nce -d0 -di12 -nfc1 -i4 -l79 -lp -lpl -nip -npro -sac -tpg -ts4"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
files="session_sweeper.c $(echo src/*/*.c src/*/*.h)"
# shellcheck disable=SC2086  # a list
sed -nE 's/^typedef (struct|enum|union) [A-Za-z]+ \*?([A-Za-z]+);.*/\2/p; s/^\} ([A-Z][A-Za-z]+);.*/\1/p; s/^typedef .*\(\*([A-Za-z_]+)\).*/\1/p' $files |
    sort -u - tools/typedefs.list >"$work/typedefs"

status=0
for file in $files; do
    # shellcheck disable=SC2086  # a list
    pg_bsd_indent $options -U"$work/typedefs" <"$file" >"$work/new" 2>"$work/errors" || true
    if [ -s "$work/errors" ] || [ ! -s "$work/new" ]; then
        echo "indent: $file:" >&2
        cat "$work/errors" >&2
        status=1
    elif [ "${1:-}" = --check ]; then
        diff -u --label "$file" --label "$file (make indent)" "$file" "$work/new" || status=1
    elif ! cmp -s "$file" "$work/new"; then
        cat "$work/new" >"$file"
        echo "$file"
    fi
done
exit "$status"
