# session_sweeper
#
# Packagers: plain PGXS.  Give PG_CONFIG of the wanted server and have that
# server preload the library (shared_preload_libraries = 'session_sweeper'):
#
#     make PG_CONFIG=… && make PG_CONFIG=… install && make PG_CONFIG=… installcheck
#
# Everybody else: "make demo" and "make check" need only git, make and a shell;
# "make help" lists the rest.

EXTENSION  = session_sweeper
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" $(EXTENSION).control)

# Debian's pg_config in PATH belongs to the newest server; ours is the primary.
PG_MAJOR  ?= 15
PG_CONFIG ?= $(firstword $(wildcard /usr/lib/postgresql/$(PG_MAJOR)/bin/pg_config) pg_config)

# Goals that bring their own prerequisites.  They work on a machine without
# PostgreSQL, so PGXS is not included for them (its "check" only says that it
# is not supported); they call make again once there is a server.
TEST_GOALS = check check-regress check-isolation check-tap
MORE_GOALS = demo bench model chaos fuzz coverage check-asan check-asserts check-valgrind
OWN_GOALS  = help setup $(MORE_GOALS) check-versions check-matrix check-clients check-monitoring check-citus $(TEST_GOALS) run-% indent indent-check lint pictures dist deb check-deb

ifneq ($(filter $(OWN_GOALS),$(MAKECMDGOALS)),)
# ---------------------------------------------------------------------------

.PHONY: $(filter-out run-%,$(OWN_GOALS))

help:
	@echo 'On a bare machine (as root, or with sudo):'
	@echo '  make demo              watch dead rows of three session tables go, in a private cluster;'
	@echo '                         PGHOST=… [PGPORT=… PGUSER=…]: on a server of your own'
	@echo '  make demo DEMO=watch   a busy server at a glance, for a minute: bars of lag and backlog, rates, events, problems'
	@echo '  make demo DEMO=page    the same in a browser: [PORT=8432]'
	@echo '  make check             regression, isolation and TAP tests against private clusters'
	@echo '  make check-regress     one suite alone: [REGRESS="name …"]'
	@echo '  make check-isolation   [ISOLATION="name …"]; this and the former: ORDER=shuffle [SEED=…]'
	@echo '  make check-tap         [PROVE_TESTS=test/t/….pl] [PROVE_JOBS=…]'
	@echo '  make check-clients     real applications of Express, Django, Symfony, Laravel and Flask with their session tables,'
	@echo '                         and the tests of clients/: [CLIENTS="django …"] (test/clients/README.md)'
	@echo '  make check-versions    all tests on PostgreSQL 17 and 18 (as root), in root folders of later Debian releases'
	@echo '                         that VERSIONS_DIR keeps: [VERSIONS_DIR=…] [VERSIONS="17 18"] [SUITES="regress …"]'
	@echo '  make check-monitoring  alerts, dashboard, exporter queries and the page, with Prometheus and a busy server: [PICTURES=doc/pictures]'
	@echo '  make check-matrix      check, then check-versions'
	@echo '  make bench             measurements against peers, 20 to 50 minutes: [BENCH="pass lag …"] [RUNS=5] (bench/README.md)'
	@echo '  make model             the protocol of heartbeats, checked exhaustively: a minute (test/model/README.md)'
	@echo '  make chaos             load and faults, judged by a model: [SEED=…] [STEPS=10000] [ROUNDS=10] (test/chaos/README.md)'
	@echo '                         CITUS=1 [ROWS=60000] [SECONDS=120]: of a Citus cluster, while shards move and nodes fail'
	@echo '  make fuzz              hostile calls and expressions: [SEED=…] [SECONDS=60] [CALLS=1000] [ONLY=function] (test/fuzz/README.md)'
	@echo '  make deb               Debian packages, in deb/'
	@echo '  make check-deb         that, and the package on a clean Debian 12 (as root), in a root folder: [VERSIONS_DIR=…]'
	@echo '  make setup             only install what the above need'
	@echo 'With PostgreSQL and its headers (PG_CONFIG=… for another server):'
	@echo '  make, make install, make uninstall, make clean'
	@echo '  make installcheck      the tests, against a server that preloads the library'
	@echo 'For developers:'
	@echo '  make indent            format the C code as PostgreSQL does'
	@echo '  make indent-check      say what that would change'
	@echo '  make lint              house rules and static checks'
	@echo '  make coverage          the lines of C that the tests run, page by page in test-output/coverage: [SUITES="regress …"]'
	@echo '  make check-asan        regression and isolation tests with AddressSanitizer: [SUITES="regress …"]'
	@echo '  make check-asserts     check, on a PostgreSQL built with assertions that ASSERT_DIR keeps: [SUITES="regress …"]'
	@echo '  make check-citus       a Citus cluster on this machine; give PG_CONFIG of a PostgreSQL that has Citus'
	@echo '  make check-valgrind    regression tests on that one under Valgrind: [REGRESS="name …"]'
	@echo '  make pictures          draws the pictures of the documents, doc/pictures/*.svg; the chart is of bench.txt there'
	@echo '  make dist              $(EXTENSION)-$(EXTVERSION).tar.gz, and .zip for PGXN, from the last commit'

# It gets PG_CONFIG only if the caller gave one.
setup:
	@PG_MAJOR='$(PG_MAJOR)' GOALS='$(MAKECMDGOALS)' tools/setup.sh

$(MORE_GOALS) $(TEST_GOALS): setup
	@$(MAKE) --no-print-directory run-$@

# A server that has Citus: PG_CONFIG=...
check-citus:
	@if [ -f "$$($(PG_CONFIG) --sharedir)/extension/citus.control" ]; \
	then $(MAKE) --no-print-directory check-tap PROVE_TESTS='$(wildcard test/t/citus_*.pl)'; \
	else echo 'SKIPPED check-citus: $(PG_CONFIG) has no Citus; name a PostgreSQL that has it: make check-citus PG_CONFIG=...'; fi

# Another Node.js than Debian's brings its own npm.
check-clients: setup
	@tools/setup.sh python3-psycopg2 python3-psycopg python3-django python3-flask-session python3-flask-sqlalchemy \
		php-cli php-pgsql php-symfony-http-foundation php-laravel-framework $$(command -v npm >/dev/null || echo nodejs npm)
	@$(MAKE) --no-print-directory run-$@

check-monitoring: setup
	@tools/setup.sh prometheus prometheus-postgres-exporter chromium-headless-shell python3 fonts-inter
	@$(MAKE) --no-print-directory run-$@

# From here on there is a server, and PG_CONFIG is known.
RUN = PG_CONFIG='$(PG_CONFIG)'
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))

run-install:
	@echo 'Building and installing for' $$($(PG_CONFIG) --version)
	@$(MAKE) --no-print-directory -s $(JOBS) all $(RUN)
	@if test -w "$$($(PG_CONFIG) --pkglibdir)"; \
	then $(MAKE) --no-print-directory -s install $(RUN); \
	else sudo $(MAKE) --no-print-directory -s install $(RUN); fi

# Only a PGHOST given to make itself leads to a server of one's own, never one
# that happens to be in the environment.
ifeq ($(origin PGHOST),command line)
run-demo:
	@test -z '$(DEMO)' || { echo 'make: DEMO=$(DEMO) has a server of its own; on yours, run monitoring/watch.sql in psql, or monitoring/page/server.py' >&2; exit 2; }
	@$(RUN) tools/demo.sh --own-server
else
run-demo: run-install
	@$(RUN) $(if $(PORT),PORT='$(PORT)') tools/demo$(addprefix -,$(DEMO)).sh
endif

run-model:
	@test/model/run.sh

run-chaos: run-install
	@$(RUN) SEED='$(SEED)' STEPS='$(STEPS)' ROUNDS='$(ROUNDS)' BREAK='$(BREAK)' CITUS='$(CITUS)' ROWS='$(ROWS)' SECONDS_OF_LOAD='$(SECONDS)' test/chaos/run.sh

run-fuzz: run-install
	@$(RUN) FUZZ_SEED='$(SEED)' FUZZ_SECONDS='$(or $(SECONDS),$(if $(CALLS),,60))' FUZZ_CALLS='$(CALLS)' FUZZ_ONLY='$(ONLY)' \
		SUITE_TIMEOUT=86400 PROVE_TESTS=test/t/load_fuzz.pl test/run-suites.sh tap

run-check-clients: run-install
	@$(RUN) test/clients/run.sh $(CLIENTS)

run-check-monitoring: run-install
	@$(RUN) test/monitoring/run.sh
	@$(RUN) test/monitoring/page.sh

check-versions:
	@tools/versions.sh $(VERSIONS)

check-matrix: check
	@tools/versions.sh $(VERSIONS)

deb:
	@tools/deb.sh

check-deb: deb
	@test/deb.sh

run-bench: run-install
	@$(RUN) BENCH='$(BENCH)' bench/run.sh

TEST_ENV = $(RUN) REGRESS='$(REGRESS)' ISOLATION='$(ISOLATION)' \
	PROVE_TESTS='$(PROVE_TESTS)' PROVE_JOBS='$(PROVE_JOBS)'
run-check: run-install
	@$(TEST_ENV) test/run-suites.sh $(or $(SUITES),regress isolation tap)

run-coverage:
	@$(TEST_ENV) test/coverage.sh $(SUITES)

run-check-asan:
	@$(TEST_ENV) test/asan.sh $(SUITES)

run-check-asserts:
	@$(MAKE) --no-print-directory run-check PG_CONFIG="$$(tools/assert-build.sh)" COPT=-Wno-clobbered

run-check-valgrind:
	@$(TEST_ENV) test/valgrind.sh

run-check-%: run-install
	@$(TEST_ENV) test/run-suites.sh $*

indent:
	@tools/indent.sh

indent-check:
	@tools/indent.sh --check

lint:
	@$(RUN) tools/lint.sh

# Output of make bench BENCH="pass cron" is kept in doc/pictures/bench.txt.
pictures:
	@doc/pictures/draw.pl

dist:
	git archive --format=tar.gz --prefix=$(EXTENSION)-$(EXTVERSION)/ -o $(EXTENSION)-$(EXTVERSION).tar.gz HEAD
	git archive --format=zip --prefix=$(EXTENSION)-$(EXTVERSION)/ -o $(EXTENSION)-$(EXTVERSION).zip HEAD

# What PGXS knows, asked for in the same breath ("make clean check").
ifneq ($(filter-out $(OWN_GOALS),$(MAKECMDGOALS)),)
OTHER_GOALS = $(filter-out $(OWN_GOALS),$(MAKECMDGOALS))
.PHONY: $(OTHER_GOALS)
$(OTHER_GOALS): ; @$(MAKE) --no-print-directory $@
setup: | $(OTHER_GOALS)
endif

else
# ---------------------------------------------------------------------------

PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)

ifneq ($(wildcard $(PGXS)),)

MODULE_big = $(EXTENSION)
OBJS       = $(EXTENSION).o $(patsubst %.c,%.o,$(sort $(wildcard src/*/*.c)))
DATA_built = $(EXTENSION)--$(EXTVERSION).sql
# Scripts that lead from one release to the next.
DATA       = $(wildcard schema/updates/$(EXTENSION)--*.sql)

PG_CPPFLAGS = -I$(srcdir)/src -DSSW_VERSION='"$(EXTVERSION)"'
PG_CFLAGS   = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror -MMD -MP

# Bitcode would need clang, and nothing here is inlined into queries.
ifeq ($(filter command%,$(origin with_llvm)),)
override with_llvm = no
endif

SUITES     ?= regress isolation tap
ifneq ($(filter regress,$(SUITES)),)
REGRESS    := $(or $(REGRESS),$(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql))))
endif
ifneq ($(filter isolation,$(SUITES)),)
ISOLATION  := $(or $(ISOLATION),$(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec))))
endif
# Each test has a new database with the extension.
FRESH      = --launcher='$(srcdir)/test/fresh-database.sh $(bindir)/psql'
REGRESS_OPTS = $(FRESH)
ISOLATION_OPTS = --inputdir=$(srcdir)/test/isolation $(FRESH)
ifneq ($(filter tap,$(SUITES)),)
TAP_TESTS   = 1
PROVE_TESTS ?= test/t/*.pl
endif
PROVE_FLAGS += -I test/perl

EXTRA_CLEAN = $(OBJS:.o=.d) .built-for $(EXTENSION)--*.sql $(EXTENSION)-*.tar.gz $(EXTENSION)-*.zip deb test-output

include $(PGXS)

# One file a subject, joined in the order of their names.  The folder is a
# prerequisite too: a file that goes away changes the result.
$(EXTENSION)--$(EXTVERSION).sql: schema $(sort $(wildcard schema/*.sql)) $(EXTENSION).control
	cat $(filter %.sql,$^) >$@.tmp && mv $@.tmp $@

# Objects know their headers (-MMD), the version and the server they are for:
# two of the same version may be built with and without assertions.
BUILT_FOR = $(VERSION) $(includedir_server) $(EXTVERSION) $(COPT)
$(OBJS): $(EXTENSION).control Makefile .built-for
.built-for: FORCE
	@echo '$(BUILT_FOR)' | cmp -s - $@ || echo '$(BUILT_FOR)' >$@
.PHONY: FORCE
-include $(OBJS:.o=.d)

else
# No server headers here: say so, and how to get them.

all install uninstall installcheck:
	@echo 'No PostgreSQL server headers found (PG_CONFIG=$(PG_CONFIG)): run "make setup", or give PG_CONFIG.' >&2; exit 1

clean:
	rm -rf *.o *.d *.so src/*/*.o src/*/*.d .built-for $(EXTENSION)--*.sql $(EXTENSION)-*.tar.gz $(EXTENSION)-*.zip deb test-output

.PHONY: all install uninstall installcheck clean
endif

endif
