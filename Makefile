# Each goal makes the virtual environment it needs: plain Python 3.11+, pip and make are enough.
PYTHON ?= python3
PIP_FLAGS ?= --quiet --disable-pip-version-check
BIN := .venv/bin
SOURCES := pyproject.toml

.PHONY: demo test validate check browser bench clean

demo: .venv/.core
	$(BIN)/fleetlab demo --out build/demo.html

test: check .venv/.dev browser
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not validate"

# Slow proofs: long runs against exact theory, soak tests, fuzzing of the page's interface.
validate: .venv/.dev browser
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m validate

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Pages are looked at in a real browser; where none can be had, those tests say so and are skipped.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get install -y -qq chromium chromium-driver >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq chromium chromium-driver; } >/dev/null 2>&1; } \
	  || echo "no Chromium here: tests in a browser are skipped"; }

bench: .venv/.core
	$(BIN)/python -m benchmarks

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
