# Everything here needs only make and Python >= 3.11; the rest is installed into .venv from the locks.
#   make test PYTHON=python3.14 VENV=.venv-3.14     another Python beside the first

PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV     := $(VENV)/.dev

PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LOCKED  := $(PIP) --require-hashes --only-binary :all: -r
# "compat": a plain path entry; the import hook of the other mode costs each start of Python 12 ms.
PROJECT := $(PIP) --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test lint fix bench lock clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUNTIME) ## start the daemon on config/ in the foreground; Ctrl-C drains and stops it
	@mkdir -p var/state
	$(BIN)/schedulerd --config config/scheduler.toml --state ./var/state --socket ./var/control.sock

test: lint ## check format, lint, types and import contracts, then run all tests with coverage
	$(BIN)/pytest -n auto --maxprocesses 4 --cov

lint: $(DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fix: $(DEV) ## format, and repair what the linter can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(DEV) ## run the benchmarks
	@for script in benchmarks/*.py; do echo "== $$script" && $(BIN)/python $$script || exit 1; done

lock: $(DEV) ## choose the newest allowed versions and write both locks anew
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade -o requirements.lock pyproject.toml
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --upgrade --extra dev -c requirements.lock \
	    -o requirements-dev.lock pyproject.toml

clean: ## remove what make has made, but not var/ (the state of `make run`)
	rm -rf .venv .venv-* build dist *.egg-info .coverage .coverage.* .hypothesis .import_linter_cache \
	    .mypy_cache .pytest_cache .ruff_cache

# A stamp is newer than the lock and pyproject.toml that it was installed from.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "schedulerd needs Python 3.11 or newer; name one: make PYTHON=python3.13 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUNTIME): requirements.lock pyproject.toml | $(BIN)/python
	$(LOCKED) requirements.lock
	$(PROJECT)
	@touch $@

$(DEV): requirements-dev.lock pyproject.toml | $(BIN)/python
	$(LOCKED) requirements-dev.lock
	$(PROJECT)
	@touch $@ $(RUNTIME)
