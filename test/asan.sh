#!/bin/bash
# make check-asan: the suites named (regress and isolation by default) with the
# extension compiled for AddressSanitizer, against a copy of the server.  Any
# report is a failure.  What PostgreSQL itself allocates is not watched: that is
# what check-valgrind is for.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PG_CONFIG
. "$root/tools/private-cluster.sh"

private_folder
private_tree "$root"
private_server
private_install '-fsanitize=address -fno-omit-frame-pointer -O1'

# The server is not compiled for it, so the sanitizer has to be loaded before.
# It then looks into the C library's translations while these are being set up,
# and hangs; nobody translates here.  What the server starts goes without both.
gcc -shared -fPIC -x c -o "$private/untranslated.so" - <<'C'
#include <stdlib.h>
char *textdomain(const char *domain) { return (char *) domain; }
char *bindtextdomain(const char *domain, const char *folder) { return (char *) folder; }
char *bind_textdomain_codeset(const char *domain, const char *codeset) { return (char *) codeset; }
__attribute__((constructor)) static void alone(void) { unsetenv("LD_PRELOAD"); }
C
"${as_server_user[@]}" mkdir "$private/reports"
private_wrap env LD_PRELOAD="$(gcc -print-file-name=libasan.so) $private/untranslated.so" \
    ASAN_OPTIONS="detect_leaks=0:log_path=$private/reports/asan"

failed=0
[ $# -gt 0 ] || set -- regress isolation
"$root/test/run-suites.sh" "$@" || failed=1
for report in "$private"/reports/*; do
    [ -s "$report" ] || continue
    cat "$report" >&2
    failed=1
done
exit "$failed"
