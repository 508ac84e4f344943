# Every target first creates what it needs in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --constraint constraints.txt --editable
# One process per core with one thread each: more threads would only wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4
.PHONY: setup demo test coverage lint format types docs results-check bench zoo

setup: $(VENV)/.ready

# The demo needs less than a developer: `.ready-lab` comes first, the rest is added to it.
$(VENV)/.ready-lab: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(INSTALL) '.[lab,view]'
	touch $@

$(VENV)/.ready: $(VENV)/.ready-lab
	$(INSTALL) '.[dev]'
	touch $@

$(VENV)/.ready-bench: $(VENV)/.ready
	$(INSTALL) '.[dev,bench]'
	touch $@

$(VENV)/.ready-zoo: $(VENV)/.ready
	$(INSTALL) '.[dev,zoo]'
	touch $@

demo: $(VENV)/.ready-lab
	$(BIN)/rankscope demo

test: setup
	$(PYTEST)

coverage: setup
	$(PYTEST) --cov --cov-report=term --cov-report=html

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

types: setup
	$(BIN)/mypy

docs: setup
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

results-check: setup
	$(BIN)/rankscope results check

bench: $(VENV)/.ready-bench
	$(BIN)/python -m benchmarks

zoo: $(VENV)/.ready-zoo
	$(PYTEST) -m zoo
