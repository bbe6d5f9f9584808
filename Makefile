# feedrate: on a fresh machine, `make run` and `make test` are all you need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready-run
DEV_READY := $(VENV)/.ready-dev
TORCH := $(shell grep '^torch==' requirements/run.lock)
# The environment for the tests of training on Gaudi: an older transformers, and no Gaudi.
GAUDI := .venv-gaudi
GAUDI_READY := $(GAUDI)/.ready

# Choices for `make run` and `make plan`:
# make run PROFILE=gaudi STUDY="name name" DEVICE="name name" DATASET=name CONFIG=file.yaml ARGS='--quiet'
PROFILE ?=
STUDY ?=
DEVICE ?=
DATASET ?=
CONFIG ?=
ARGS ?=
CHOICES = $(if $(PROFILE),--profile $(PROFILE)) $(foreach study,$(STUDY),--study $(study)) \
	$(foreach device,$(DEVICE),--device $(device)) $(if $(DATASET),--dataset $(DATASET)) \
	$(if $(CONFIG),--configfile $(CONFIG)) $(ARGS)
# The index from which pip installs torch; empty: the default index. PyTorch's CPU index
# (https://download.pytorch.org/whl/cpu) saves gigabytes on a machine without a GPU.
TORCH_INDEX ?=

.PHONY: help setup run plan tune compare test check bench lock format clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(RUN_READY) ## Create the environment only

run: $(RUN_READY) ## Set up, run the studies of config/config.yaml, write report.html
	@$(BIN)/python -m feedrate run $(CHOICES)

plan: $(RUN_READY) ## Show what would run where, for how long and at what cost; nothing starts
	@$(BIN)/python -m feedrate plan $(CHOICES)

tune: $(RUN_READY) ## Recommend loader settings for this machine, with reasons and expected throughput
	@$(BIN)/python -m feedrate tune $(CHOICES)

compare: $(RUN_READY) ## Show what became slower or faster: make compare OLD=../before NEW=results
	@$(BIN)/python -m feedrate compare $(OLD) $(NEW) $(ARGS)

test: $(DEV_READY) $(GAUDI_READY) ## Run all tests
	@$(BIN)/python -m pytest --numprocesses 2 $(ARGS)

check: $(DEV_READY) ## Check formatting, lint, types, schemas and Snakemake's own lint
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/snakefmt --check Snakefile workflow/rules
	@$(BIN)/python -m feedrate schemas --check
	@$(BIN)/mypy
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake --lint

bench: $(DEV_READY) ## Measure the project's own speed, as ratios: a table, and benchmarks/latest.json
	@$(BIN)/python -m benchmarks $(ARGS)

format: $(DEV_READY) ## Format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/snakefmt Snakefile workflow/rules

lock: ## Renew requirements/*.lock, environment.yml and envs/ from requirements/*.in
	@$(PYTHON) requirements/lock.py

clean: ## Remove results, data and report (the environment stays)
	rm -rf results resources logs report.html .snakemake

$(RUN_READY): requirements/run.lock pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
		{ echo "feedrate needs Python 3.11, 3.12 or 3.13: make run PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || \
		{ rm -rf $(VENV); echo "This Python cannot make environments. On Debian and Ubuntu:" \
		"sudo apt install python3-venv"; exit 1; }
	@echo "feedrate: installing its environment into $(VENV) (once, a few minutes)"
	@$(BIN)/pip install --quiet --disable-pip-version-check \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/run.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(DEV_READY): $(RUN_READY) requirements/dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/dev.lock
	@touch $@

$(GAUDI_READY): requirements/gaudi.lock Makefile | $(RUN_READY)
	@test -x $(GAUDI)/bin/pip || $(PYTHON) -m venv --clear $(GAUDI)
	@echo "feedrate: installing optimum-habana for the tests into $(GAUDI) (once, a few minutes)"
	@$(GAUDI)/bin/pip install --quiet --disable-pip-version-check \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) \
		$(shell grep '^torch==' requirements/gaudi.lock)
	@$(GAUDI)/bin/pip install --quiet --disable-pip-version-check -r requirements/gaudi.lock
	@touch $@
