# Everything runs in a virtual environment of its own, made on first use.
#   make demo     installs mltree and finds the tree of twelve primates
#   make test     runs the test suite
#   make fuzz     runs the long versions of the tests of random cases, for an hour or more
#   make mutants  plants faults in the code and counts those that the tests notice, for an hour
#   make house    counts files, lines, rooms, ... (HOUSE='v0.1.0..HEAD': how commits differ)
#   make docs     makes the site from docs/, into build/docs
#   make bench    measures this machine (BENCH='search --help' for all there is to choose)
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
BENCH ?= table1
HOUSE ?=
MUTANTS ?= mltree/data mltree/models mltree/treesearch mltree/tree

# An empty environment has no PATH either.
PATH ?= /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH

.PHONY: demo test fuzz mutants house lint format docs bench clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.installed
	$(BIN)/mltree search datasets/primates.phy --prefix demo --redo

# Tests start a thousand processes, which share compiled modules whatever the environment says.
test: $(VENV)/.installed-dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --maxprocesses 4 $(TESTS)

fuzz: $(VENV)/.installed-dev
	MLTREE_FUZZ=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 -m cases $(TESTS)

mutants: $(VENV)/.installed-mutants
	$(BIN)/python tests/mutants.py $(MUTANTS)

house:
	@$(PYTHON) tests/budget.py $(HOUSE)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/vermin --quiet --target=3.10- --eval-annotations mltree bench
	$(BIN)/clang-format --dry-run --Werror opencl/*.cl opencl/*.h

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i opencl/*.cl opencl/*.h

docs: $(VENV)/.installed-docs
	$(BIN)/sphinx-build -W --keep-going -q -b html -c docs . build/docs
	@echo "build/docs/index.html"

bench: $(VENV)/.installed-bench
	$(BIN)/python -m bench $(BENCH)

clean:
	rm -rf $(VENV) build dist

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable .
	@touch $@

$(VENV)/.installed-%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 --editable '.[$*]'
	@touch $@ $(VENV)/.installed

# Debian packs venv and pip apart from Python: fetch them where that is allowed, else say so.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "mltree needs Python 3.10 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    apt-get update -qq && apt-get install -y -qq python3-venv; } || \
	  { echo "Python has no venv; install it first: sudo apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
