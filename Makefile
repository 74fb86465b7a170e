# Each goal makes the virtual environment it needs: plain Python 3.11+, pip and make are enough.
PYTHON ?= python3
PIP_FLAGS ?= --quiet --disable-pip-version-check
BIN := .venv/bin
SOURCES := pyproject.toml

.PHONY: demo test check bench clean

demo: .venv/.core
	$(BIN)/fleetlab synthesize pai2020 --tasks 100000 --seed 1 --out build/demo --brief
	$(BIN)/fleetlab show build/demo
	$(BIN)/fleetlab synthesize pai2020 --tasks 100000 --seed 1 --check --brief
	$(BIN)/fleetlab simulate build/demo --order sjf --estimate group

test: check .venv/.dev
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: .venv/.core
	$(BIN)/python -m bench

clean:
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "fleetlab needs Python 3.11 or newer; this is %d.%d: make PYTHON=python3.11" % v[:2])'
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python $(SOURCES)
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable .
	touch $@

.venv/.dev: .venv/bin/python $(SOURCES)
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[dev]'
	touch $@ .venv/.core
