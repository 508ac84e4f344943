# Each target makes .venv by itself when it is missing.
VENV ?= .venv
BIN := $(VENV)/bin
.PHONY: setup demo test bench lint results-check

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/.ready-bench: $(VENV)/.ready
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,bench]'
	touch $@

demo: setup
	$(BIN)/rankscope demo

# A process per core, of one thread each, so that they do not wait for each other's.
test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

results-check: setup
	$(BIN)/rankscope results check

bench: $(VENV)/.ready-bench
	$(BIN)/python -m benchmarks
