# feedrate: on a fresh machine, `make run` and `make test` are all you need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready-run
CUDA_READY := $(VENV)/.ready-cuda
DEV_READY := $(VENV)/.ready-dev
TORCH := $(shell grep '^torch==' requirements/run.lock)
# The environment for the tests of training on Gaudi: an older transformers, and no Gaudi.
GAUDI := .venv-gaudi
GAUDI_READY := $(GAUDI)/.ready
# The loader libraries that the tests use, in a folder: only those tests see them. DALI's packages are
# large, and FFCV needs a compiler.
LOADERS := .loaders
LOADERS_READY := $(LOADERS)/.ready
LOADER_LOCKS := $(patsubst %,extras/loaders/requirements/%.lock,spdl torchdata grain webdataset litdata)

# Choices for `make run`, `make plan` and `make selftest`; ARGS goes to the command and to Snakemake:
# make run PROFILE=gaudi STUDY="name name" DEVICE="name name" DATASET=name CONFIG=file.yaml ARGS='-n'
# make bench ARGS='planning loading': some of the benchmarks.
PROFILE ?=
STUDY ?=
DEVICE ?=
DATASET ?=
CONFIG ?=
ARGS ?=
CHOICES = $(if $(PROFILE),--profile $(PROFILE)) $(foreach study,$(STUDY),--study $(study)) \
	$(foreach device,$(DEVICE),--device $(device)) $(if $(DATASET),--dataset $(DATASET)) \
	$(foreach file,$(CONFIG),--configfile=$(file)) $(ARGS)
# The index from which pip installs torch; empty: the one that the driver of this machine's NVIDIA GPUs
# needs, without GPUs the default index. PyTorch's CPU index (https://download.pytorch.org/whl/cpu)
# saves gigabytes on a machine without a GPU.
TORCH_INDEX ?=
# The NVIDIA driver's version on the machines that train, if this one is not one of them: 570.124.06
GPU_DRIVER ?=
# Prints the index for a driver. With GPUs, set-up also installs what decodes, multiplies in fp8 and
# measures energy on them.
BUILDS := requirements/torch_index.py
INDEX = $(if $(TORCH_INDEX),"$(TORCH_INDEX)",$$($(PYTHON) $(BUILDS) $(GPU_DRIVER) 2> /dev/null))
READY := $(RUN_READY) $(if $(GPU_DRIVER)$(shell command -v nvidia-smi 2> /dev/null),$(CUDA_READY))
# What `make clean` deletes.
MADE := runs results resources logs report.html .snakemake

.PHONY: help setup run plan doctor selftest first-hour fits compare test check bench lock \
	format clean

help: ## List these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(READY) ## Create the Python environment; the other targets do this when needed

run: $(READY) ## Run the studies of config/config.yaml and write report.html (ARGS=-n: dry run)
	@$(BIN)/python -m feedrate run $(CHOICES)

plan: $(READY) ## Show how many runs are to do, for how long and at what cost, without starting them
	@$(BIN)/python -m feedrate plan $(CHOICES)

doctor: $(READY) ## Show what this machine has, what each study lacks here, and what to do about it
	@$(BIN)/python -m feedrate doctor $(CHOICES)

selftest: $(READY) ## Show, in ten minutes or `--minutes N`, which capabilities of a device work here
	@$(BIN)/python -m feedrate selftest $(CHOICES)

first-hour: $(READY) ## Measure the most informative cells in a limited time: make first-hour MINUTES=8
	@$(BIN)/python -m feedrate first-hour $(if $(MINUTES),--minutes $(MINUTES)) $(CHOICES)

fits: $(READY) ## Show which published cells fit in memory, and the largest batches, without the device
	@$(BIN)/python -m feedrate fits $(CHOICES)

compare: $(RUN_READY) ## Show what became slower or faster: make compare OLD=../before NEW=results; alone: list the sets in runs/
	@$(BIN)/python -m feedrate compare $(OLD) $(NEW) $(ARGS)

# Some tests, by `-k` or a file: one process, and no environments that few of them need.
SOME_TESTS := $(filter -k% %.py,$(ARGS))
test: $(DEV_READY) $(if $(SOME_TESTS),,$(GAUDI_READY) $(LOADERS_READY)) ## Run all tests, or some: make test ARGS='-k name'
	@$(BIN)/python -m pytest --numprocesses $(if $(SOME_TESTS),1,3) $(ARGS)

check: $(DEV_READY) ## Check formatting, types and schemas, and run the linters
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/snakefmt --check Snakefile workflow/rules
	@$(BIN)/python docs/make_schemas.py --check
	@$(BIN)/mypy
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/snakemake --lint

bench: $(DEV_READY) ## Measure feedrate's own overhead and write benchmarks/latest.json
	@$(BIN)/python -m benchmarks $(ARGS)

format: $(DEV_READY) ## Format the code
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix . && $(BIN)/snakefmt Snakefile workflow/rules

lock: ## Update requirements/*.lock, environment.yml and envs/ from requirements/*.in
	@$(PYTHON) requirements/lock.py

clean: ## Delete results, data, logs and report.html, after asking (YES=1: without asking)
	@test -n "$(YES)" || { printf 'Delete $(MADE)? [y/N] '; read answer && test "$$answer" = y; } || \
		{ echo "Nothing was deleted. To delete without a question: make clean YES=1" >&2; exit 1; }
	rm -rf $(MADE)

$(RUN_READY): requirements/run.lock pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
		{ echo "feedrate needs Python 3.11, 3.12 or 3.13: make run PYTHON=/path/to/python3.12"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV) || \
		{ rm -rf $(VENV); echo "This Python cannot make environments. On Debian and Ubuntu, as root:" \
		"apt-get update && apt-get install python3-venv"; exit 1; }
	@# Says which torch an older NVIDIA driver needs, and stops if none fits.
	@test -n "$(TORCH_INDEX)" || $(PYTHON) $(BUILDS) $(GPU_DRIVER) > /dev/null
	@echo "feedrate: installing its environment into $(VENV) (once, a few minutes)"
	@index=$(INDEX); $(BIN)/pip install --quiet --disable-pip-version-check \
		$${index:+--index-url "$$index"} $(TORCH)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/run.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# torchvision and torchao are made for one version of CUDA: they come from the index that torch came
# from. --no-deps: what they need is installed, and their index has not all of it.
$(CUDA_READY): $(RUN_READY) requirements/cuda.lock
	@cuda=$$($(BIN)/python -c 'import torch; print(torch.version.cuda or "")'); \
	if test -z "$$cuda"; then \
		echo "feedrate: the torch in $(VENV) is a build for CPUs and uses no GPU" >&2; exit 0; fi; \
	echo "feedrate: installing torchvision, torchao and nvidia-ml-py for CUDA $$cuda"; \
	index=$(INDEX); $(BIN)/pip install --quiet --disable-pip-version-check --no-deps \
		$${index:+--index-url "$$index"} $$(grep '^torch' requirements/cuda.lock) && \
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps \
		$$(grep '^nvidia' requirements/cuda.lock) && touch $@

$(DEV_READY): $(RUN_READY) requirements/dev.lock extras/loaders/pyproject.toml
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements/dev.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e extras/loaders
	@touch $@

$(GAUDI_READY): requirements/gaudi.lock requirements/gaudi-tests.txt Makefile | $(RUN_READY)
	@test -x $(GAUDI)/bin/pip || $(PYTHON) -m venv --clear $(GAUDI)
	@echo "feedrate: installing optimum-habana for the tests into $(GAUDI) (once, a few minutes)"
	@$(GAUDI)/bin/pip install --quiet --disable-pip-version-check \
		$(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) \
		$(shell grep '^torch==' requirements/gaudi.lock)
	@# -c: or pip looks in every release of huggingface_hub for the extra that transformers names
	@$(GAUDI)/bin/pip install --quiet --disable-pip-version-check -r requirements/gaudi.lock \
		-r requirements/gaudi-tests.txt -c requirements/gaudi.lock
	@touch $@

$(LOADERS_READY): $(LOADER_LOCKS) Makefile | $(RUN_READY)
	@echo "feedrate: installing loader libraries for the tests into $(LOADERS) (once)"
	@rm -rf $(LOADERS)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $(LOADERS) \
		$(patsubst %,-r %,$(LOADER_LOCKS))
	@touch $@
