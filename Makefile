# make            lists the targets
# Every target that needs the environment builds it first, and only when a lock file or setup.py changed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory
.PHONY: help stack install run test test-faults test-all bytecode check docs docs-lock lock release bench bench-accuracy clean

# The newest stack that this machine supports, unless STACK is set: the wheels of tfx1.21 need glibc 2.39.
GLIBC := $(or $(shell getconf GNU_LIBC_VERSION 2>/dev/null | cut -d' ' -f2),0)
STACK ?= $(shell printf '2.39\n$(GLIBC)\n' | sort -CV && echo tfx1.21 || echo tfx1.15)
WHY := $(if $(filter file,$(origin STACK)),glibc is $(GLIBC) here and tfx1.21 needs 2.39 (STACK=tfx1.15 or tfx1.21 chooses),set by STACK)
PYTHONS_tfx1.15 := 3.10
PYTHONS_tfx1.21 := >=3.11,<3.14
PYTHONS := $(or $(PYTHONS_$(STACK)),$(error STACK=$(STACK) is unknown: use tfx1.15 or tfx1.21))
ifeq ($(STACK),tfx1.15)
VENV := .venv
else
VENV := .venv-$(STACK)
endif
PYTHON := $(VENV)/bin/python
# The pins for pipelines, and the same pins with those for tests and checks.
LOCK := requirements/$(STACK).lock
DEV_LOCK := requirements/$(STACK)-dev.lock
STAMP := $(VENV)/.installed
# Exists during an installation: after an interrupted one, the environment is rebuilt.
UNFINISHED := $(VENV)/.installing
# `uv` from PATH, or else our own in .uv/, with the version and hash of requirements/uv.txt.
UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)

# The project's address, for the metadata of the wheel and the site.
export REPOSITORY ?=
PRESET ?= digits
RUN_ARGS ?=
PYTEST_ARGS ?=
# One more than the cores of a small machine, because some tests mostly wait: see tests/queues.py.
WORKERS := -n 3
BENCH_ARGS ?=

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-14s %s\n", $$1, $$2}'

install: stack $(STAMP)  ## build .venv, or .venv-tfx1.21, from the developers' lock file: exact versions, checked by hash

run: stack $(STAMP)  ## run a whole pipeline; PRESET=mnist and RUN_ARGS="--workdir DIR" change which and where
	$(PYTHON) -m tfx_estimator run $(PRESET) $(RUN_ARGS)

test: stack $(STAMP) bytecode  ## run the tests; PYTEST_ARGS="-m unit" chooses
	@$(PYTHON) -m pytest $(WORKERS) $(PYTEST_ARGS)

test-faults: stack $(STAMP) bytecode  ## kill, stop and damage trainings in many ways, and print the matrix with the measured times
	@TFX_ESTIMATOR_LONG=1 $(PYTHON) -m pytest tests/faults $(PYTEST_ARGS)

test-all: stack $(STAMP) bytecode  ## run the tests that take many minutes as well
	@TFX_ESTIMATOR_LONG=1 $(PYTHON) -m pytest $(WORKERS) $(PYTEST_ARGS)

stack:
	@echo "stack $(STACK), Python $(PYTHONS): $(WHY)"

# With PYTHONDONTWRITEBYTECODE, each of the tests' hundreds of processes would otherwise compile its imports.
bytecode: $(STAMP)
	@$(PYTHON) -m compileall -q pipeline components model_fn data

check: stack $(STAMP)  ## lint, format, types, layers, docstrings, lock files
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PYTHON) requirements/check_lock.py

LOCKED_tfx1.15 = --python-version 3.10 --constraint requirements/quick.txt
LOCKED_tfx1.21 = --python-version 3.11 --universal
LOCKED = $(LOCKED_$(STACK)) --generate-hashes --no-emit-index-url --no-annotate --no-header
COMPILE = $(UV) pip compile setup.py --extra $(subst .,-,$(STACK)) $(LOCKED) $(if $(UPGRADE),--upgrade) --quiet

lock: | $(UV)  ## write the lock files of STACK from setup.py (UPGRADE=1: newest versions)
	$(COMPILE) --output-file $(LOCK)
	$(COMPILE) --extra dev --constraint $(LOCK) --output-file $(DEV_LOCK)
	sed -n 's/^tensorflow==\([^ ]*\).*/tensorflow-cpu==\1/p' $(LOCK) | $(UV) pip compile - --no-deps $(LOCKED) | \
	  $(PYTHON) requirements/image_lock.py

release: stack $(STAMP)  ## make dist/VERSION from the commit with the tag vVERSION: wheel, sdist, locks, changes, checksums
	@.ci/release $(PYTHON)

DOCS := .venv-docs

# About its generator's next major release; the lock file pins this one.
docs: export NO_MKDOCS_2_WARNING := 1
docs: stack $(STAMP) $(DOCS)/.installed  ## build the site into build/site, from these pages, the schema, the docstrings and a real run
	rm -rf build/docs
	$(PYTHON) docs/site/reference.py build/docs
	$(PYTHON) docs/site/draw.py build/docs
	$(DOCS)/bin/mkdocs build --strict

docs-lock: | $(UV)  ## write the lock file of the site's generator (UPGRADE=1: newest versions)
	$(UV) pip compile requirements/docs.in --python-version 3.10 --universal --generate-hashes --no-emit-index-url --no-annotate \
	  --no-header $(if $(UPGRADE),--upgrade) --quiet --output-file requirements/docs.lock

$(DOCS)/.installed: requirements/docs.lock | $(STAMP) $(UV)
	@rm -rf $(DOCS)
	$(UV) venv --quiet --python $(PYTHON) $(DOCS)
	$(UV) pip sync --quiet --python $(DOCS)/bin/python --require-hashes $<
	@touch $@

bench: stack $(STAMP)  ## measure against named peers; BENCH_ARGS="--only reader --rounds 5"
	$(PYTHON) -m tests.bench $(BENCH_ARGS)

bench-accuracy: $(STAMP)  ## train presets on the real data, and print the accuracies; PYTEST_ARGS="-k cifar10_resnet"
	@TFX_ESTIMATOR_LONG=1 TFX_ESTIMATOR_ACCURACY=1 $(PYTHON) -m pytest -s tests/e2e/test_accuracy.py $(PYTEST_ARGS)

clean:  ## remove the environment, runs and caches
	rm -rf .venv .venv-* .uv build dist runs bench-results *.egg-info src/*.egg-info .pytest_cache .mypy_cache \
	  .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --compile-bytecode writes .pyc files despite PYTHONDONTWRITEBYTECODE: without them TFX starts 2.4 times slower.
$(STAMP): $(LOCK) $(DEV_LOCK) setup.py | $(UV)
ifneq ($(STACK),tfx1.15)
	@printf '2.39\n$(GLIBC)\n' | sort -CV || { echo 'TFX 1.21 needs glibc 2.39, but here it is $(GLIBC):' \
	  'use STACK=tfx1.15, a container (docs/container.md), Debian 13 or Ubuntu 24.04.' >&2; exit 1; }
endif
	@if [ -e $(UNFINISHED) ] || ! $(PYTHON) -c '' 2>/dev/null; then \
	  rm -rf $(VENV); \
	  $(UV) venv --quiet --python '$(PYTHONS)' $(VENV) || { \
	    echo 'No Python $(PYTHONS) was found, and none could be downloaded.' \
	      'Install one (uv python install 3.10, or 3.13), or choose the other stack with STACK=, then run make again.' >&2; \
	    exit 1; }; \
	fi
	@touch $(UNFINISHED)
	$(UV) pip sync $(if $(CI),--quiet) --python $(PYTHON) --compile-bytecode --require-hashes $(DEV_LOCK)
	@rm -rf src/*.egg-info  # stale metadata, which the tests would find first on src/
	$(UV) pip install --python $(PYTHON) --quiet --no-deps --no-build-isolation --editable .
	$(PYTHON) -m pip check
	@rm -f $(UNFINISHED)
	@touch $@

.uv/bin/uv: requirements/uv.txt
	@rm -rf .uv
	@"$$(command -v python3.10 || command -v python3)" -m venv .uv || { rm -rf .uv; \
	  echo 'Could not make a virtual environment for uv.' \
	    'Install uv (pipx install uv) or the venv module (Debian: apt install python3-venv), then run make again.' >&2; \
	  exit 1; }
	@.uv/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
	@touch $@
