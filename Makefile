# Every target sets up what it needs by itself: the virtual environment lives in .venv, and is built anew
# when its requirements have changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
# Tests wait for brokers more than they compute. Beside those on Spark fewer workers run: tests/support/work_sharing.py
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 3)')

.DEFAULT_GOAL := help
.PHONY: help setup tools demo test chaos siege compat check format docs bench bench-against bench-kafka bench-scale bench-spark clean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything that development needs

$(STAMP): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Forebay needs Python 3.11 or later; try: make PYTHON=python3.12 setup")'
	@echo "setting up $(VENV): once, and a few minutes (Spark alone is 450 MB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

tools: ## install the test tools that are not on PyPI: kcat, openssl, chromium
	@scripts/install-test-tools.sh

demo: $(STAMP) ## a broker, a queue, a cluster and Spark, killed and checked; ARGS="cluster" picks a chapter
	@$(BIN)/python examples/demo.py $(ARGS)

test: $(STAMP) ## run all tests on all cores; ARGS="-k name" picks some, WORKERS=0 keeps them in one process
	@scripts/install-test-tools.sh --quiet || true
	@$(BIN)/python -m compileall -q -j 0 src tests/support # once, not once in each worker
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

chaos: $(STAMP) ## random clients on a broker that is killed, and on a cluster to which everything happens, for CHAOS_SECONDS each; a kill a minute for CHAOS_KILLING_SECONDS; CHAOS_SEEDS stories and all mutants
	@$(BIN)/python -m pytest -q -m chaos $(ARGS)

siege: $(STAMP) ## strangers, users without rights, heavy queries and slow readers on a broker and a cluster, SIEGE_SECONDS each, beside good clients; ARGS="-k headers" picks an attack; SIEGE_INPUTS malformed requests
	@$(BIN)/python -m pytest -q -m siege $(ARGS)

compat: $(STAMP) ## Spark's Kafka connector, Kafka's own tools and integration tests, and franz-go on our broker, where Maven and Go's proxy are reachable; the Spark tests' core with each PySpark
	@$(BIN)/python -m pytest -q -m compat $(ARGS)

check: $(STAMP) ## format, lint, types and layers, in seconds
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## let ruff format and tidy the code
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

docs: $(STAMP) ## write docs/configuration.md and the table of docs/monitoring.md anew from the definitions
	@$(BIN)/python scripts/configuration_docs.py
	@$(BIN)/python scripts/monitoring_docs.py

bench: $(STAMP) ## measure this machine: a table, JSON, ratios to raw limits
	@$(BIN)/python -m bench $(ARGS)

bench-against: $(STAMP) ## this checkout beside another revision, in turns: make bench-against REV=v0.9.0; names what changed by more than 3 %
	@$(BIN)/python -m bench against $(REV) $(ARGS)

bench-kafka: $(STAMP) ## beside Apache Kafka: one broker each, then their share groups, then three (needs Java and Maven Central)
	@$(BIN)/python -m bench kafka $(ARGS)
	@$(BIN)/python -m bench kafka-shares $(ARGS)
	@$(BIN)/python -m bench kafka-cluster $(ARGS)

bench-scale: $(STAMP) ## curves by partitions, members of groups and partitions of a cluster, for docs/scale.md; ARGS="partitions --largest 10000 --write-docs"
	@$(BIN)/python -m bench.scale $(ARGS)

bench-spark: $(STAMP) ## rows/s through Spark, beside its own Kafka connector where Maven is reachable
	@$(BIN)/python -m bench.spark $(ARGS)

clean: ## remove .venv and everything generated
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
