# Each target makes .venv by itself when it is missing.
VENV ?= .venv
BIN := $(VENV)/bin
.PHONY: setup demo test bench lint

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

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.ready-bench
	$(BIN)/python -m benchmarks
