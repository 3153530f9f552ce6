# Everything here needs only make and Python >= 3.11; the rest is installed into .venv from the locks.
#   make test PYTHON=python3.14 VENV=.venv-3.14     another Python beside the first

#   make install PREFIX=/usr DESTDIR=stage          for a package; INSTALLED=venv takes one that has schedulerd

PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV     := $(VENV)/.dev
DOCS    := .venv-docs
AUDIT   := .venv-audit
PEERS   := .venv-bench .venv-bench-apscheduler4

PREFIX  ?= /usr/local
LIBDIR  := $(PREFIX)/lib/schedulerd
UNITS   := $(PREFIX)/lib/systemd
DROPINS := $(PREFIX)/share/schedulerd/drop-ins
MANDIR  := $(PREFIX)/share/man
LINKED  := schedulerd schedctl

PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKED  := $(PIP) --require-hashes --only-binary :all: -r
# "compat": a plain path entry; the import hook of the other mode costs each start of Python 12 ms.
PROJECT := $(PIP) --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .

# Whatever the surroundings say: tests start Python hundreds of times, and each would compile everything anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test coverage faults soak mutants lint fix bench bench-full man schemas docs audit lock clean install uninstall

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUNTIME) ## start the daemon on config/ in the foreground; Ctrl-C drains and stops it
	@install -d -m 700 var/state
	$(BIN)/schedulerd --config config/scheduler.toml --state ./var/state --socket ./var/control.sock

# One worker more than cores: tests of real processes wait most of their time.
PARALLEL ?= -n $(shell echo $$(( 1 + $$(nproc) ))) --maxprocesses 8 --dist worksteal

test: lint ## check format, lint, types and import contracts, then run all tests
	$(BIN)/pytest $(PARALLEL)

# Tests that work in their own process show what of the code is reached; to measure the others would cost minutes.
coverage: $(DEV) ## tell what the tests reach that work in their own process
	$(BIN)/pytest $(PARALLEL) $(addprefix tests/,unit store engine control cli) --cov

faults: $(DEV) ## try every fault and death at every point, in all combinations (half an hour)
	SCHEDULERD_FAULTS=all $(BIN)/pytest $(PARALLEL) tests/faults

SOAK_REPORT ?= build/soak.md

soak: $(DEV) ## torment daemons for SCHEDULERD_SOAK_MINUTES (60), then kill one 200 times amid billed batches
	@mkdir -p $(dir $(SOAK_REPORT))
	SCHEDULERD_SOAK=1 $(BIN)/pytest tests/properties/test_store.py
	$(BIN)/python -m tests.soak $(SOAK_REPORT)
	SCHEDULERD_KILLS=200 $(BIN)/pytest tests/daemon/test_batch_kill.py

MUTANTS_REPORT ?= build/mutants.md

mutants: $(DEV) ## break rules, write-back, claims and SQL in a copy, a fault at a time; tell what no test notices
	$(BIN)/python -m scripts.mutants --report $(MUTANTS_REPORT) $(MUTANTS)

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fix: $(DEV) ## format, and repair what the linter can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# What it is measured on: BENCH="--folder /mnt/disk"; into the page: BENCH="--write docs/performance.md"
BENCH ?=

bench: $(DEV) $(addsuffix /.peers,$(PEERS)) ## measure it beside its peers, in ten minutes (docs/performance.md)
	$(BIN)/python -m benchmarks $(BENCH)

bench-full: $(DEV) $(addsuffix /.peers,$(PEERS)) ## the same with everything, in hours: a million jobs, weeks of history
	$(BIN)/python -m benchmarks --full $(BENCH)

man: $(RUNTIME) ## write the manual pages of schedctl and schedulerd into build/man, from their help
	$(BIN)/python scripts/manpages.py

schemas: $(RUNTIME) ## write docs/schemas, from the models of the control API
	$(BIN)/python scripts/schemas.py

docs: $(DOCS)/.docs ## build the pages of docs/ as a site in build/docs; a broken link fails it
	$(DOCS)/bin/python -m sphinx -W --keep-going -n -q -b html -d build/doctrees docs build/docs
	@echo "written: build/docs/index.html"

audit: $(AUDIT)/.audit ## look up known vulnerabilities of everything in the locks (asks a service on the network)
	$(AUDIT)/bin/pip-audit --strict --disable-pip --require-hashes -r requirements.lock -r requirements-dev.lock

lock: $(DEV) ## choose the newest allowed versions and write the locks anew
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade -o requirements.lock pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --extra dev -c requirements.lock \
	    -o requirements-dev.lock pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --extra docs -c requirements-dev.lock \
	    -o requirements-docs.lock pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --extra audit -c requirements-dev.lock \
	    -o requirements-audit.lock pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile $(LOOSE) -c requirements.lock \
	    -o requirements-bench.lock requirements-bench.in
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile $(LOOSE) \
	    -o requirements-bench-apscheduler4.lock requirements-bench-apscheduler4.in

# As [tool.pip-tools.compile] has it for pyproject.toml, which knows build requirements that a list has not.
LOOSE := --no-config --quiet --upgrade --allow-unsafe --generate-hashes --strip-extras --no-emit-index-url \
    --no-emit-trusted-host --no-emit-find-links --no-emit-options

# Fails where the Python is in a home and what is installed is not.
define IN_A_HOME
import os, sys
at_home = [os.path.realpath(p).startswith(("/root/", "/home/")) for p in (sys.executable, sys.argv[1])]
sys.exit(at_home == [True, False])
endef
export IN_A_HOME

# The environment knows its own path, so it is made where it will be; DESTDIR holds all else, and a copy of it.
install: ## install the daemon, schedctl, manual pages and the systemd units below PREFIX (docs/systemd.md)
ifdef INSTALLED
	@test -x $(INSTALLED)/bin/schedulerd || { echo "$(INSTALLED) has no bin/schedulerd" >&2; exit 1; }
else
	@$(PYTHON) -c "$$IN_A_HOME" $(LIBDIR) || { echo "$(PYTHON) is in a home, where the service's user may not" \
	    "look; name another: make install PYTHON=/usr/bin/python3" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(DESTDIR)$(LIBDIR)
	$(DESTDIR)$(LIBDIR)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	    --only-binary :all: -r requirements.lock
	$(DESTDIR)$(LIBDIR)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps .
	test -z "$(DESTDIR)" || grep -rlIZ --exclude-dir=__pycache__ "$(abspath $(DESTDIR))" $(DESTDIR)$(LIBDIR) | \
	    xargs -0r sed -i "s#$(abspath $(DESTDIR))##g"
endif
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(UNITS)/system $(DESTDIR)$(UNITS)/user \
	    $(DESTDIR)$(PREFIX)/lib/sysusers.d $(DESTDIR)$(PREFIX)/lib/tmpfiles.d $(DESTDIR)$(DROPINS)
	for name in $(LINKED); do \
	    ln -sf $(or $(INSTALLED),$(LIBDIR))/bin/$$name $(DESTDIR)$(PREFIX)/bin/$$name; done
	for unit in systemd/system/* systemd/user/*; do \
	    sed 's#/usr/local/lib/schedulerd/bin/#$(or $(INSTALLED),$(LIBDIR))/bin/#' $$unit \
	        > $(DESTDIR)$(UNITS)/$${unit#systemd/} && chmod 644 $(DESTDIR)$(UNITS)/$${unit#systemd/}; done
	install -m 644 systemd/sysusers.d/schedulerd.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/
	install -m 644 systemd/tmpfiles.d/schedulerd.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/
	install -m 644 systemd/drop-ins/* $(DESTDIR)$(DROPINS)/
	@bin=$(or $(INSTALLED),$(DESTDIR)$(LIBDIR))/bin/python; \
	    test ! -x $$bin || $$bin scripts/manpages.py $(DESTDIR)$(MANDIR)

uninstall: ## remove what `make install` put below PREFIX; configuration, state and user stay
	for name in $(LINKED); do rm -f $(DESTDIR)$(PREFIX)/bin/$$name; done
	for unit in systemd/system/* systemd/user/*; do rm -f $(DESTDIR)$(UNITS)/$${unit#systemd/}; done
	rm -f $(DESTDIR)$(PREFIX)/lib/sysusers.d/schedulerd.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/schedulerd.conf
	rm -f $(DESTDIR)$(MANDIR)/man1/schedctl.1 $(DESTDIR)$(MANDIR)/man1/schedctl-*.1 $(DESTDIR)$(MANDIR)/man8/schedulerd.8
	rm -rf $(DESTDIR)$(LIBDIR) $(DESTDIR)$(PREFIX)/share/schedulerd

clean: ## remove what make has made, but not var/ (the state of `make run`)
	rm -rf .venv .venv-* build dist *.egg-info .coverage .coverage.* .hypothesis .import_linter_cache \
	    .mypy_cache .pytest_cache .ruff_cache

# A stamp is newer than the lock and pyproject.toml that it was installed from.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "schedulerd needs Python 3.11 or newer; name one: make PYTHON=python3.13 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing what requirements.lock names into $(VENV): a minute or two, and silent"
	$(LOCKED) requirements.lock
	$(PROJECT)
	@touch $@

$(DEV): requirements-dev.lock pyproject.toml | $(BIN)/python
	@echo "installing what requirements-dev.lock names into $(VENV): a few minutes, and silent"
	$(LOCKED) requirements-dev.lock
	$(PROJECT)
	@touch $@ $(RUNTIME)

# An environment of its own: the site needs what neither the daemon nor its tests do.
$(DOCS)/.docs: requirements-docs.lock
	$(PYTHON) -m venv --clear $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
	    -r requirements-docs.lock
	@touch $@

$(AUDIT)/.audit: requirements-audit.lock
	$(PYTHON) -m venv --clear $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
	    -r requirements-audit.lock
	@touch $@

# The peers' own environments: what is measured beside us is nothing that we need.
.venv-%/.peers: requirements-%.lock
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
	    -r requirements-$*.lock
	@touch $@
