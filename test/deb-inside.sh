#!/bin/bash
# What test/deb.sh runs in a clean Debian: installs the package given, with what
# it depends on, preloads it, runs the demo, and takes it away again.
# Ends with a line "N passed, N failed".
set -uo pipefail
deb=$1
package=$(dpkg-deb -f "$deb" Package)
log=/src/log
passed=0 failed=0

check() {
    local what=$1
    shift
    if "$@" >"$log" 2>&1; then
        echo "ok - $what"
        passed=$((passed + 1))
    else
        echo "not ok - $what"
        tail -n 30 "$log"
        failed=$((failed + 1))
    fi
}

as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups env HOME=/tmp "$@"; }
setting() { pg_conftool 15 main "$@"; }
cluster() { timeout 90 pg_ctlcluster 15 main "$1"; }
sql() { as_postgres psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$1"; }
says() { [ "$(sql "$1")" = "$2" ]; }
# A cluster's data folder keeps what the service had to remember, as it keeps its tables.
gone() { [ -z "$(find / -path /src -prune -o -path /proc -prune -o -path /var/lib/postgresql -prune -o -name '*session[-_]sweeper*' -print | tee /dev/stderr)" ]; }

# Each page's links to files, from where it lies; sources are not in the package.
links_lead_somewhere() {
    find "/usr/share/doc/$package" -name '*.md' | perl -MFile::Basename -ne 'chomp; my $page = $_; $pages++;
        local $/; open my $in, "<", $page or die "$page: $!"; my $text = <$in>;
        $text =~ s/^ *```.*?^ *```$//msg; $text =~ s/`[^`\n]*`//g;
        for ($text =~ /\]\(([^)#\s]+)/g) { next if /^[a-z]+:/ || /\.(?:c|h|sql|pl|sh|txt)$/; $links++; -e dirname($page) . "/$_" or $bad++, print "$page: $_\n" }
        END { print "$pages pages, $links links\n"; $? = $bad || !$links ? 1 : 0 }'
}

# Servers start when we say so, on a socket inside this folder only.
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d

check 'package lists' apt-get -q update
check 'apt installs the package and what it depends on' apt-get -q -y install --no-install-recommends "$deb"
check 'its files are as they were packed' dpkg -V "$package"
check 'it says what to do next' grep -q shared_preload_libraries "/usr/share/doc/$package/README.Debian"
check 'the links of its pages lead somewhere' links_lead_somewhere
check 'alerts and dashboard are there' ls "/usr/share/doc/$package/monitoring/rules.yml" "/usr/share/doc/$package/monitoring/dashboard.json"
setting set listen_addresses ''
check 'clients are there, without their tests' bash -c 'cd "/usr/share/doc/$1/clients" && ls python/session_sweeper.py node/session_sweeper.js logout && ! find . -name "*test*" | grep .' - "$package"
check 'a server without preload starts' cluster start
check 'CREATE EXTENSION works there' sql 'CREATE EXTENSION session_sweeper'
check 'and says that the library is not preloaded' says "SELECT restart_needed FROM sweeper.version()" t
sql 'DROP EXTENSION session_sweeper; DROP SCHEMA IF EXISTS sweeper'
# the command that README.Debian gives
check 'it is preloaded' setting set shared_preload_libraries session_sweeper
check 'the cluster restarts with it' cluster restart
check 'the service runs' says "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'session_sweeper launcher'" 1
check 'make demo' as_postgres env PG_CONFIG=/usr/lib/postgresql/15/bin/pg_config PGHOST=/var/run/postgresql bash /src/tools/demo.sh --own-server
check 'the server runs without it' setting set shared_preload_libraries ''
check 'restart' cluster restart
check 'the package goes' apt-get -q -y purge "$package"
check 'nothing of it is left' gone
check 'the server still starts' cluster restart
check 'and stops' cluster stop

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
