# Everything a contributor needs, from a machine that has only make and Python 3.11 or newer.
# No root, no Docker: the virtual environment lives in .venv, and the servers of the tests come as packages.

PYTHON ?= python3
WORKERS ?= 2
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench
CHECKED := $(wildcard src tests tools bench examples)

# uv resolves in seconds, but does not read pip's configuration: where only pip knows the way to packages, pip does it.
define install
$(BIN)/uv pip install --quiet --python $(BIN)/python --editable '.[$(1)]' --constraint constraints.txt \
	|| $(BIN)/python -m pip install --quiet --editable '.[$(1)]' --constraint constraints.txt
endef

# Each step asks whether its result works, not just whether it exists: an environment that was left half-way is completed.
define prepare
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Holdfast needs Python 3.11 or newer: make PYTHON=...")'
@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
@$(BIN)/uv --version >/dev/null 2>&1 \
	|| $(BIN)/python -m pip install --quiet --disable-pip-version-check --force-reinstall 'uv>=0.5,<1'
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help venv test lint format bench demo explore docs-cli constraints clean

help: ## Say what can be made (the default)
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter, WORKERS=4 the test processes, ARGS='...' is passed on."

venv: $(DEV) ## Make or refresh .venv with everything the tests need

$(DEV): pyproject.toml constraints.txt
	$(prepare)
	$(call install,dev)
	@touch $@

$(BENCH): $(DEV)
	$(call install,bench)
	@touch $@

test: $(DEV) ## Run every test (ARGS='-k fencing' for some)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

lint: $(DEV) ## Check style, formatting and types
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy $(CHECKED)

format: $(DEV) ## Format the code and fix what can be fixed safely
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

bench: $(BENCH) ## Run the benchmarks
	$(BIN)/python -m bench $(ARGS)

demo: $(DEV) ## See it work on this machine
	$(BIN)/python examples/demo.py $(ARGS)

explore: $(DEV) ## Explore the interleavings of writers and the collector (ARGS='--help')
	$(BIN)/python -m holdfast.testing.explore $(ARGS)

docs-cli: $(DEV) ## Write docs/cli.md from the commands themselves
	$(BIN)/python -m tools.cli_reference docs/cli.md

# Not after the installation: that would fail where the old constraints contradict the new pyproject.toml.
constraints: ## Take the newest allowed versions into constraints.txt
	$(prepare)
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras --no-header \
		--no-emit-index-url --output-file constraints.txt pyproject.toml

clean: ## Remove everything that was made, .venv included
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests tools bench examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
