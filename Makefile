# Each goal makes the virtual environment it needs: plain Python 3.11+, pip and make are enough.
PYTHON ?= python3
PIP_FLAGS ?= --quiet --disable-pip-version-check
BIN := .venv/bin
SETTING ?= plain
JOBS ?= 300
REPEAT ?= 1
PROFILE ?= default
PODS ?= 300
SOURCES := pyproject.toml
UNUSED := /(tests|pip|mypyc?|setuptools|sqlalchemy|matplotlib|fontTools|networkx|selenium|pygments|_inductor|testing)/
# The tests start hundreds of processes: without bytecode each would parse every module anew.
export PYTHONDONTWRITEBYTECODE :=
# There are as many of them as cores: threads that wait for each other would only take time from the others.
export OPENBLAS_NUM_THREADS ?= 1
# Tables of tests are small: with one thread they take a fifth less CPU time. Of the tests alone: speed is measured with all.
test quick validate: export POLARS_MAX_THREADS ?= 1
# Files side by side, in the order of tests/conftest.py; one more than there are cores, since servers are waited for.
PYTEST = $(BIN)/python -m pytest --numprocesses $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist loadfile --no-loadscope-reorder

.PHONY: demo test quick validate realtest realtest-kubernetes realtest-watch check audit browser bench docs pictures notebooks dist clean

demo: .venv/.core
	$(BIN)/fleetlab demo --out build/demo.html

test: check .venv/.dev browser
	$(PYTEST) -m "not validate and not slurm and not kubernetes"

# The tests of what differs from main, found by imports; all of them where conftest.py differs.
quick: check .venv/.dev browser
	$(PYTEST) --changed -m "not validate and not slurm and not kubernetes"

# Slow proofs: long runs against exact theory, soak tests, fuzzing of the page's interface.
validate: .venv/.dev browser
	$(PYTEST) -m validate

# The same submissions to a real Slurm on this host and to ours; needs root and Debian's Slurm, and takes minutes.
realtest: .venv/.dev
	SETTING=$(SETTING) JOBS=$(JOBS) REPEAT=$(REPEAT) $(BIN)/python -m pytest -m slurm -s tests/realtest

# The same pods to a real kube-scheduler, and every decision checked; needs etcd, kube-apiserver and kube-scheduler.
realtest-kubernetes: .venv/.dev
	PROFILE=$(PROFILE) PODS=$(PODS) $(BIN)/python -m pytest -m kubernetes -s tests/realtest

# `fleetlab watch` beside a real Slurm and a real API server, killed again and again; needs what the two above need.
realtest-watch: .venv/.dev
	$(BIN)/python -m pytest -m "slurm or kubernetes" -s tests/realtest/test_watch_slurm.py tests/realtest/test_watch_kubernetes.py

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto
	$(BIN)/lint-imports --no-logo

# Known vulnerabilities of what is installed; where the online database does not answer: make audit DATABASE=DIR.
audit: .venv/.dev
	$(BIN)/python -m release.audit $(if $(DATABASE),--database $(DATABASE))

# Pages are looked at in a real browser; where none can be had, those tests say so and are skipped.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get install -y -qq chromium chromium-driver >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq chromium chromium-driver; } >/dev/null 2>&1; } \
	  || echo "no Chromium here: tests in a browser are skipped"; }

bench: .venv/.core
	$(BIN)/python -m benchmarks

# The documentation as a site, in build/site: a broken link or a name that is not there stops it. Opens from disk.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "built: build/site/index.html"

# Those of the README and of the guides, from real runs in headless Chromium; takes minutes.
pictures: .venv/.dev browser
	$(BIN)/python -m docs.pictures

# What the notebooks of docs/ show, from a real run of each.
notebooks: .venv/.dev
	$(BIN)/python -m docs.run_notebooks

# The source distribution, the wheel that is built from it alone, and that wheel with its loops compiled for this Python
# and platform; takes minutes.
dist: .venv/.dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m release.compiled_wheel dist/*-none-any.whl

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "fleetlab needs Python 3.11 or newer; this is %d.%d: make PYTHON=python3.11" % v[:2])'
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python $(SOURCES)
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable .
	touch $@

# pip would compile on one core. What no test imports is left out; files that are no Python, templates, make it fail.
.venv/.dev: .venv/bin/python $(SOURCES)
	$(BIN)/python -m pip install $(PIP_FLAGS) --no-compile --editable '.[dev]'
	$(BIN)/python -m compileall -q -j 0 -x '$(UNUSED)' .venv/lib >/dev/null || true
	touch $@ .venv/.core

.venv/.docs: .venv/bin/python $(SOURCES)
	$(BIN)/python -m pip install $(PIP_FLAGS) --editable '.[docs]'
	touch $@ .venv/.core
