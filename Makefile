# Two commands: `make demo` and `make test`. Each sets up what it needs; `make help` lists the rest.
# PYTHON chooses the interpreter; another one than the default gets an environment of its own.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

ifeq ($(origin PYTHON),undefined)
PYTHON := python3
VENV := .venv
else
VENV := .venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo unknown)
endif

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The editable install knows modules one by one: where one is added or moved it is made again.
MODULES := build/modules.txt
SOURCES := pyproject.toml $(MODULES) $(shell find kernels -type f 2>/dev/null)
LIST_MODULES := find dispatch bench patterns \( -name '*.py' -o -name '*.yaml' \) | LC_ALL=C sort
TESTS ?= tests
# Two processes at most: the compiler is hungry and so is XLA.
export CMAKE_BUILD_PARALLEL_LEVEL ?= 2
# Keras reads this at its first import; without it it looks for TensorFlow.
export KERAS_BACKEND := jax
# What Python imports is compiled once and kept with the environment, whatever the user has set for files of their own:
# hundreds of processes import JAX while the tests run, and each takes three times as long from its sources.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/pycache

.PHONY: help demo test test-isa install lint format types wheel clean FORCE

help:
	@echo 'make demo      show it: small example, ResNet50, a BERT layer, a Gaussian process: stock against dispatched'
	@echo 'make test      run the whole test suite (TESTS=tests/unit for a part)'
	@echo 'make test-isa  kernels and policies under an ISA cap: ISA=AVX2 or AVX512_CORE'
	@echo 'make install   only set up $(VENV)'
	@echo 'make lint      ruff, its formatter and clang-format: what they would change is an error'
	@echo 'make format    let them change it'
	@echo 'make types     pyright'
	@echo 'make wheel     build a wheel into dist/, install it into an empty environment and try it there (3.3 GB)'
	@echo 'make clean     remove environments and build output'
	@echo 'PYTHON=python3.13 make test   the same with another interpreter, in .venv-3.13'

demo: $(STAMP)
	@$(BIN)/hlo-dispatch demo

test: $(STAMP)
	@.ci/test $(BIN)/python $(TESTS)

# A lesser processor, as far as each of oneDNN, XLA and our own kernels can be told to take this one for it: what asks
# the processor is the kernels and the policies, but for what any processor does alike.
# `make test-isa TESTS=tests` runs everything there.
ISA ?= AVX2
XLA_ISA := $(patsubst AVX512_CORE%,AVX512%,$(ISA))
ISA_TESTS := tests/kernels tests/selection

test-isa: export ONEDNN_MAX_CPU_ISA := $(ISA)
test-isa: export HLO_DISPATCH_MAX_CPU_ISA := $(ISA)
test-isa: export XLA_FLAGS += --xla_cpu_max_isa=$(XLA_ISA)
ISA_MARKERS := not any_processor$(if $(filter AVX512_CORE%,$(ISA)), and not any_avx512)
test-isa: export TEST_MARKERS := $(if $(filter-out file,$(origin TESTS)),,$(ISA_MARKERS))
test-isa: $(STAMP)
	@.ci/test $(BIN)/python $(if $(filter-out file,$(origin TESTS)),$(TESTS),$(ISA_TESTS))

install: $(STAMP)

# What clang-format keeps in shape: everything in C++ that git knows.
CPP := $(shell git ls-files '*.cc' '*.h' 2>/dev/null)

lint: $(STAMP)
	@$(BIN)/python -m ruff check dispatch bench tests
	@$(BIN)/python -m ruff format --check --quiet dispatch bench tests || \
	  { echo 'not formatted; `make format` does it' >&2; exit 1; }
	@$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(STAMP)
	@$(BIN)/python -m ruff format dispatch bench tests
	@$(BIN)/clang-format -i $(CPP)

types: $(STAMP)
	@$(BIN)/python -m pyright --pythonpath $(BIN)/python

wheel:
	@.ci/check-machine "$(PYTHON)"
	@.ci/wheel "$(PYTHON)"

clean:
	rm -rf .venv .venv-* build dist .pytest_cache .ruff_cache .hypothesis .benchmarks
	find dispatch bench tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(MODULES): FORCE
	@mkdir -p $(@D)
	@$(LIST_MODULES) | cmp -s - $@ || $(LIST_MODULES) >$@

# Downloads and the build's milestones are shown, the rest of pip's talk goes to a log; errors are on stderr. Python
# compiles what it imports, which is a small part of what is installed: pip need not do it for all of it first.
$(STAMP): $(SOURCES)
	@.ci/check-machine "$(PYTHON)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || \
	  { echo "creating $(VENV) with $$($(PYTHON) --version)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing hlo-dispatch and what it needs into $(VENV) (the first time takes some minutes)"
	@$(BIN)/python -m pip install --disable-pip-version-check --no-input --progress-bar off --no-compile -e '.[models,dev,host]' \
	  | tee $(VENV)/install.log \
	  | awk '/^ *Downloading .*[0-9][0-9]\.[0-9] MB/ { n = split($$2, part, "/"); print "  download " part[n] " " $$3 " " $$4; fflush() } \
	         /Installing build dependencies: started/ { print "  preparing the build of the kernels"; fflush() } \
	         /Building editable.*: started/ { print "  building the kernels"; fflush() } \
	         /^Installing collected packages/ { print "  installing " NF - 3 " packages"; fflush() }' \
	  || { echo "installation failed; everything pip said is in $(VENV)/install.log" >&2; exit 1; }
	@$(BIN)/python -m pip install --disable-pip-version-check --no-input --progress-bar off --no-compile \
	  --no-deps lammps-jax-pjrt-cpu==0.11.2 >>$(VENV)/install.log \
	  || { echo "installation failed; everything pip said is in $(VENV)/install.log" >&2; exit 1; }
	@touch $@
