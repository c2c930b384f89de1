#!/bin/bash
# House rules that a compiler does not check.  Prints what breaks them.
set -u
cd "$(dirname "$0")/.." || exit
bad=0
complain() { [ -z "$2" ] || { printf '%s\n%s\n' "$1" "$2"; bad=1; }; }

# C
sources=(session_sweeper.c src/*/*.c)
complain "PG_VERSION_NUM belongs in src/base/compat.h only:" \
    "$(grep -ln PG_VERSION_NUM "${sources[@]}" src/*/*.h | grep -v '^src/base/compat\.h$')"
complain "Functions that other files see begin with ssw_ (or are _PG_init):" \
    "$(awk 'FNR == 1 { before = "" }
        /^[A-Za-z_0-9]+\(/ && before !~ /static/ && !/^(PG_|ssw_|_PG_init|MarkGUC)/ { print "  " FILENAME ": " $0 }
        { before = $0 }' "${sources[@]}")"
complain "So do the symbols of what is built:" \
    "$([ ! -f session_sweeper.so ] || nm -D -g --defined-only session_sweeper.so |
        awk '$2 ~ /[TDB]/ && $3 !~ /^(ssw_|pg_finfo_ssw_|Ssw|MySsw|_PG_init|_PG_fini|Pg_magic_func|_init|_fini)/ { print "  " $3 }')"
objects=("${sources[@]/%.c/.o}")
complain "Used in its own file only, so make it static (entry points have PGDLLEXPORT):" \
    "$(ls "${objects[@]}" >/dev/null 2>&1 &&
        comm -23 <(nm -g --defined-only "${objects[@]}" | awk '$2 ~ /[TDBR]/ && $3 ~ /^ssw_/ { print $3 }' | sort -u) \
            <({ nm -g --undefined-only "${objects[@]}" | awk '{ print $2 }'
                sed -nE 's/^PG_FUNCTION_INFO_V1\((.*)\);/\1/p; s/^PGDLLEXPORT .*\<(ssw_[a-z_]+)\(.*/\1/p' "${sources[@]}" src/*/*.h; } | sort -u))"
complain "Modules include each other in a circle:" \
    "$(grep -oE '^#include "[a-z]+/[a-z_]+\.h"' src/*/*.[ch] |
        sed -nE 's,^src/([a-z_/]+)\.[ch]:#include "([a-z_/]+)\.h",\1 \2,p' | awk '$1 != $2' | tsort 2>&1 >/dev/null)"
# A folder sees itself and the folders above it in the table of src/README.md.
complain "A folder includes only itself and folders above it in the table of src/README.md:" \
    "$(grep -oE '^#include "[a-z]+/[a-z_]+\.h"' src/*/*.[ch] | sed -E 's,^(src/([a-z]+)/[^:]*):#include "(([a-z]+)/[^"]*)",\1 \2 \3 \4,' |
        while read -r file folder header other; do [ ! -f "src/$header" ] || echo "$file $folder $other $header"; done |
        awk 'FNR == NR { if (match($0, /^\| `[a-z]+\/`/)) at[substr($0, 4, RLENGTH - 5)] = ++n; next }
            !($2 in at) || !($3 in at) || at[$3] > at[$2] { print $1 " includes " $4 }' src/README.md - |
        sort)"
complain "Each .c has its own header, or exports nothing:" \
    "$(for file in src/*/*.c; do
        grep -qE "^#include \"${file#src/}" <(sed 's/\.h"/.c"/' "$file") ||
            awk -v file="$file" '/^PGDLLEXPORT/ { entry = $0 }
                /^ssw_[a-z_0-9]+\(/ && !index(entry, $1) && before !~ /static|^Datum$/ { print "  " file ": " $0 }
                { before = $0 }' "$file"
    done)"
complain "Each folder has a README.md of at most 15 lines, which names its files:" \
    "$(for folder in src/*/; do
        [ -f "${folder}README.md" ] || { echo "  $folder has none"; continue; }
        [ "$(wc -l <"${folder}README.md")" -le 15 ] || echo "  ${folder}README.md is longer"
        for file in "$folder"*.c; do
            name=${file##*/}
            grep -qE "\`${name%.c}\`" "${folder}README.md" || echo "  ${folder}README.md does not name ${name%.c}"
        done
    done)"
complain "Calls that can run code of users, where tools/gate-calls.txt does not have them:" \
    "$(awk '/^ ?\*|^\t*\/\*/ { next } { print FILENAME ": " $0 }' "${sources[@]}" |
        grep -oE '^[a-z_/]+\.c|\<(SPI_(prepare|exec|cursor_open|getvalue)[a-z_]*|parse_analyze[a-z_]*|pg_analyze_and_rewrite[a-z_]*|transform(Expr|Stmt)|eval_const_expressions|expression_planner|Oid[A-Za-z]*FunctionCall[A-Za-z0-9]*|(Input|Output|Receive|Send)FunctionCall[A-Za-z]*|FunctionCall[0-9][A-Za-z]*|FormIndexDatum|RelationGetIndex(Expressions|Predicate)|RelationGetPartition(Key|Qual)|has_partition_attrs|BuildIndexInfo|ExecOpenIndices|ssw_insert_index_tuples|AfterTriggerSetState|quote_qualified_identifier|format_type_extended|Exec(Init|Prepare|Eval)(Expr|Qual)[A-Za-z]*|domain_(check|in)|predicate_[a-z]+_by)\(' |
        awk 'FNR == NR { sub(/#.*/, ""); f = $1; sub(/:/, "", f); for (i = 2; i <= NF; i++) may[f, $i] = 1; next }
            /\.c$/ { path = file = $0; gsub(/.*\/|\.c$/, "", file); next }
            { sub(/\(/, ""); if (!(($0, file) in may)) print "  " path ": " $0 }' tools/gate-calls.txt - | sort -u)"
complain "A cursor that is open while code of users runs beside it needs PinPortal(), or CLOSE frees it (if none does, add the file here):" \
    "$(grep -l 'SPI_cursor_open' src/*/*.c | grep -vE '/(candidates|preview)\.c' | xargs -r grep -L 'PinPortal')"
complain "A policy may be gone when it is read by its number: ssw_policy_again() raises an error (elsewhere, check for null and add the file here):" \
    "$(grep -n 'ssw_policy_load(' src/*/*.c | grep -vE '^src/(policy/(policy|repair_hint)|process/policy_watch|sweep/worker_pass|commands/control|citus/definition)\.c')"
complain "A name with a line break would end the comment of a next step (test it on that line or the next):" \
    "$(awk -v q="'" 'function test(text) { if (text ~ "~ " q "\\[.r.n\\]" q) held = ""; if (held) print "  " held; held = "" }
        FNR == 1 { if (held) print "  " held; held = "" }
        held { test($0) }
        $0 !~ /^ *--/ && $0 ~ q "[^" q "]*-- [^" q "]*%([0-9][$])?[sIL]" { held = FILENAME ":" FNR; if ($0 ~ "~ " q "\\[.r.n\\]" q) held = "" }
        END { if (held) print "  " held }' schema/*.sql)"
complain "Entries of databases are read and written in base/ and process/ (the views copy them; runner_demand.c chooses the runner):" \
    "$(grep -nE '(ssw_shmem_database\(|SswShared->databases)' src/*/*.c | grep -vE '^src/(base|process)/|^src/monitor/stats\.c|^src/work/runner_demand\.c')"
complain "An error of class 42501 has a hint, which says who can give which right (errmsg_internal: no user sees it):" \
    "$(awk 'FNR == 1 || /ereport\(/ { lacks = 0 }
        /^\t.*aclcheck_error\(/ || /errcode\(ERRCODE_INSUFFICIENT_PRIVILEGE\)/ { lacks = FNR }
        /errhint\(|errmsg_internal\(/ { lacks = 0 }
        /;$/ { if (lacks) print "  " FILENAME ":" lacks; lacks = 0 }' "${sources[@]}"
    awk '/insufficient_privilege/ && !/^COMMENT/ { lacks = FNR }
        /HINT = / { lacks = 0 }
        /;$/ { if (lacks) print "  " FILENAME ":" lacks; lacks = 0 }' schema/*.sql)"
complain "A call, ++ or -- in Min() or Max(), which evaluate an argument twice (ssw_min() and ssw_max() do not):" \
    "$(awk -f tools/minmax.awk "${sources[@]}")"
# Users make trees of tables: what calls itself for them could run without end.  The functions named here are bounded by what
# they read: SSW_MAX_SWEPT tables; one more step; a number that is halved; a statement of the extension.
complain "A function that calls itself without CHECK_FOR_INTERRUPTS():" \
    "$(awk -v bounded=' add_tables ssw_rights_lock ssw_dispenser_advance search append_union move_in_halves run report find_forced ' '
        { line = $0; gsub(/"([^"\\]|\\.)*"/, "", line) }
        match(line, /^[a-z_0-9]+\(/) { name = substr(line, 1, RLENGTH - 1); next }
        line == "{" { body = 1; calls = 0; safe = 0; next }
        line == "}" { if (calls && !safe && index(bounded, " " name " ") == 0) print "  " FILENAME ": " name "()"; body = 0 }
        body && name != "" && match(line, "(^|[^a-z_0-9.>])" name "\\(") { calls = 1 }
        body && /CHECK_FOR_INTERRUPTS/ { safe = 1 }' "${sources[@]}")"
complain "Files of C have at most 600 lines:" "$(wc -l "${sources[@]}" | awk '$1 > 600 && $2 != "total"')"
complain "The page has at most 800 lines of our own:" "$(cat monitoring/page/*.* | wc -l | awk '$1 > 800')"
complain "Each C file and header begins with its name and purpose:" \
    "$(for file in "${sources[@]}" src/*/*.h; do sed -n 2p "$file" | grep -q "^ \* ${file##*/}$" || echo "  $file"; done)"
complain "What make chaos BREAK=name takes away is not there:" \
    "$(for file in test/chaos/break/*.patch; do patch -p1 --dry-run --force --silent <"$file" >/dev/null || echo "  $file"; done)"
complain "Functions for SQL, in C or in schema/ only:" \
    "$(comm -3 <(sed -nE 's/^PG_FUNCTION_INFO_V1\((.*)\);/\1/p' "${sources[@]}" | sort -u) \
        <(grep -hoE "'MODULE_PATHNAME', '[a-z_0-9]+'" schema/*.sql | sed -E "s/.* '(.*)'/\1/" | sort -u))"

# SQL
complain "Every function, procedure, view and type has a COMMENT ON:" \
    "$(grep -hoE '^CREATE (FUNCTION|PROCEDURE|VIEW|TYPE) sweeper\.[a-z_]+' schema/*.sql | awk '{ print $2, $3 }' | sort -u |
        while read -r kind name; do
            grep -qE "^COMMENT ON $kind ${name//./\\.}( |\(|$)" schema/*.sql || echo "  $kind $name"
        done)"

# Packages.  debian/control is made from control.in (pg_buildext updatecontrol);
# PGXN wants three numbers: 1.0 is 1.0.0 there.
version=$(sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" session_sweeper.control)
complain "META.json is not as PGXN's specification 1.0.0 wants it, or not of version $version:" \
    "$(perl -MJSON::PP -e '
        my ($version) = @ARGV;
        $version .= ".0" while ($version =~ tr/.//) < 2;
        my $meta = eval { local $/; open my $in, "<", "META.json" or die $!; decode_json(<$in>) } or print "  $@" and exit;
        $meta->{$_} or print "  $_ is missing\n" for qw(name abstract version maintainer license provides meta-spec);
        my $provided = $meta->{provides}{$meta->{name}} // {};
        $_->{version} eq $version or print "  version $_->{version}\n" for $meta, $provided;
        -f $_ or print "  no file $_\n" for $provided->{file} // "file", $provided->{docfile} // "docfile";
        print "  the abstract is not the comment of the control file\n" unless lc $meta->{abstract} eq lc $ARGV[1]' \
        "$version" "$(sed -n "s/^comment *= *'\(.*\)'.*/\1/p" session_sweeper.control)" 2>&1)"
complain "debian/changelog is not of version $version:" \
    "$(sed -n 1p debian/changelog | grep -vF "session-sweeper ($version-")"
complain "debian/control is not what its control.in gives:" \
    "$(sed 's/PGVERSION/15/' debian/control.in | diff - debian/control)"

# Tests
complain "Tests wait on a row, a log line or a wait event; they do not sleep:" \
    "$(grep -nE '(^|[^a-z_])(sleep|usleep)[ (]' test/t/*.pl test/perl/*.pm test/*.sh 2>/dev/null)"
complain "Tests without expected output:" \
    "$(for file in sql/*.sql; do [ -f "expected/$(basename "$file" .sql).out" ] || echo "  $file"; done
        for file in test/isolation/specs/*.spec; do
            [ ! -f "$file" ] || [ -f "test/isolation/expected/$(basename "$file" .spec).out" ] || echo "  $file"
        done)"

complain "Each test has one line in test/README.md, and each line its test:" \
    "$({ ls sql/*.sql test/isolation/specs/*.spec test/t/*.pl | sed 's,.*/,,; s,\..*,,'; ls src | sed 's/$/_/'; printf '%s\n' doc_ load_; } |
        awk '/_$/ { folder[$0] = 1; next } { test[$0]++ }
            END { while ((getline <"test/README.md") > 0)
                      if (match($0, /^\| `[a-z_0-9]+` \| [RIT] /)) { name = $0; gsub(/^\| `|`.*/, "", name); line[name]++ }
                  for (name in test) { prefix = name; sub(/_.*/, "_", prefix)
                      if (test[name] != line[name]) print "  " name ": " test[name] + 0 " files, " line[name] + 0 " lines"
                      if (!(prefix in folder)) print "  " name " does not begin with a folder of src/" }
                  for (name in line) if (!(name in test)) print "  " name ": no such file" }')"
complain "Tests that test/source-systems.md names and that are not there:" \
    "$(grep -oE '`(sql|t|specs|bench|test|monitoring)/[A-Za-z0-9_/.]+`' test/source-systems.md | tr -d '`' | sed -E 's,^t/,test/t/,; s,^specs/,test/isolation/specs/,' | sort -u |
        while read -r file; do [ -f "$file" ] || echo "  $file"; done)"
complain "Outputs of isolation tests are below 1,000 lines:" \
    "$(wc -l test/isolation/expected/*.out | awk '$2 != "total" && $1 >= 1000 { print "  " $2 ": " $1 }')"

# Everything
complain "Left for later:" \
    "$(grep -nE '(TODO|FIXME|HACK)' "${sources[@]}" src/*/*.h schema/*.sql test/t/*.pl tools/*.sh Makefile | grep -v '^tools/lint\.sh')"
complain "White space at the end of a line:" \
    "$(grep -nE '[[:blank:]]+$' "${sources[@]}" src/*/*.h schema/*.sql sql/*.sql test/t/*.pl test/perl/*.pm test/chaos/*.* test/chaos/Chaos/*.pm test/fuzz/*.* test/fuzz/Fuzz/*.pm test/monitoring/* monitoring/*.y*ml monitoring/page/*.* test/*.sh test/clients/*.* clients/*.* clients/*/*.* test/clients/laravel/*.php test/clients/laravel/*/*.php tools/* Makefile .ci/run)"
complain "The formatter did not understand:" "$(grep -n '/\*\*INDENT' src/*/*.[ch] session_sweeper.c)"
for file in tools/*.sh test/*.sh test/chaos/*.sh test/monitoring/*.sh test/clients/*.sh clients/*.sh bench/*.sh .ci/run; do
    [ ! -f "$file" ] || bash -n "$file" || bad=1
done
perl_of_server=$(dirname "$("${PG_CONFIG:-pg_config}" --pgxs 2>/dev/null)")/../test/perl
if [ -d "$perl_of_server" ]; then
    for file in test/perl/*.pm test/chaos/*.pm test/chaos/Chaos/*.pm test/fuzz/*.pm test/fuzz/Fuzz/*.pm test/t/*.pl test/monitoring/*.pl; do
        complaint=$(perl -I "$perl_of_server" -I test/perl -I test/chaos -I test/fuzz -c "$file" 2>&1) || complain "Perl:" "$complaint"
    done
fi

# Pictures
complain "Pictures are not what doc/pictures/draw.pl makes (make pictures):" \
    "$(drawn=$(mktemp -d) && doc/pictures/draw.pl "$drawn" 2>&1 &&
        for file in "$drawn"/*.svg; do cmp "$file" "doc/pictures/${file##*/}" 2>&1; done
        rm -r "$drawn")"

# Documents
complain "Documents name files that do not exist:" \
    "$(grep -noE '`(src|schema|test|clients|doc|tools|sql|bench|monitoring)/[A-Za-z_0-9./]+`' README.md doc/*.md bench/*.md monitoring/*.md schema/*.md test/*/README.md clients/*.md |
        sed 's/`//g' | while IFS=: read -r page at file; do [ -e "$file" ] || echo "  $page:$at: $file"; done)"

# Plain English
complain "English is not plain in these files: see tools/english.sh FILE, and doc/CONTRIBUTING.md:" \
    "$(tools/english.sh | grep ' long, ')"

[ "$bad" != 0 ] || echo "lint: ok"
exit "$bad"
