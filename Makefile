# `make help` lists the targets. Everything is installed in .venv; `make demo` keeps compiled programs there too.

VENV := .venv
STAMP := $(VENV)/.set-up
EXTRAS := $(VENV)/.extras
BROWSER := $(VENV)/.browser
BIN := $(VENV)/bin
TRIED := python3.14 python3.13 python3.12 python3.11

# Processes with one XLA thread each are faster than one with several, if none runs out of tests before the others; on two cores a third one works
# while tests of clusters and of what hangs wait. Compiled programs are kept between test runs, and so are test files as pytest rewrites them,
# whatever the environment says of bytecode.
TEST_ENV := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 JAX_COMPILATION_CACHE_DIR="$${JAX_COMPILATION_CACHE_DIR:-$(CURDIR)/$(VENV)/jax-cache}" JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.03
# Most tests spend most of their time in the compiler, and only what is computed counts; tests/conftest.py says which do not.
ONE_THREAD := --xla_cpu_multi_thread_eigen=false
# Emitting fusions by way of MLIR takes more than half of the rest; of what is left then, a third goes into rewriting loops, again and again, and
# into cutting a program into 32 modules for as many threads.
LOOPS_AS_THEY_ARE := --xla_disable_hlo_passes=simplify-while-loops,while-loop-invariant-code-motion,while-loop-constant-sinking
QUICKLY := $(ONE_THREAD) --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false \
	--xla_cpu_parallel_codegen_split_count=1 $(LOOPS_AS_THEY_ARE)
WORKERS ?= 3
TESTS = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
PYTEST_ARGS ?=

.PHONY: help setup demo test lint types unit docs format clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## */  make \1	/p' Makefile

setup: $(STAMP)  ## make .venv and install the package with everything its tests need

demo: setup  ## train EMC-VDN on the gridworld for a few minutes and write a report page
	@JAX_COMPILATION_CACHE_DIR="$${JAX_COMPILATION_CACHE_DIR:-$(CURDIR)/$(VENV)/jax-cache}" $(BIN)/emc demo

test: lint types unit  ## lint, types and all tests

lint: setup  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup  ## pyright, strict on emc/
	$(BIN)/basedpyright --pythonpath $(BIN)/python

# Both kinds run even where the first has failures. Pytest ends with 5 where PYTEST_ARGS leave nothing of one of them.
unit: $(EXTRAS) $(BROWSER)  ## all tests (PYTEST_ARGS="-m 'not slow'" leaves the slow ones out)
	@worst=0; \
	run() { echo "$$@"; env "$$@" || { ended=$$?; [ $$ended -eq 5 ] || worst=$$ended; }; }; \
	run $(TEST_ENV) XLA_FLAGS="$(QUICKLY) $(XLA_FLAGS)" $(TESTS) --compiled quickly $(PYTEST_ARGS); \
	run $(TEST_ENV) XLA_FLAGS="$(ONE_THREAD) $(XLA_FLAGS)" $(TESTS) --compiled as-users-have-it $(PYTEST_ARGS); \
	exit $$worst

docs: setup  ## the documentation as a site in site/; fails on any broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

format: setup  ## rewrite the source in the common layout
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv and caches; runs and results stay
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .jax_cache dist site
	find emc tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The system's own interpreters come first: distributions optimise theirs by a profile, version managers mostly do not, and tests take a tenth to a sixth
# longer with those. A candidate counts only if it runs: version managers leave names behind that lead nowhere.
$(STAMP): pyproject.toml constraints.txt
	@usable='import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))'; \
	found=; \
	if ! $(BIN)/python -c "$$usable" >/dev/null 2>&1; then \
		for candidate in $(PYTHON) $$(for name in $(TRIED); do command -pv $$name; done) $(TRIED) python3 python; do \
			if $$candidate -c "$$usable" >/dev/null 2>&1; then found=$$candidate; break; fi; \
		done; \
		if [ -z "$$found" ]; then \
			echo "emc needs Python 3.11 or newer with its venv module: install one (python3 and python3-venv), or name it: make PYTHON=..." >&2; \
			exit 1; \
		fi; \
		echo "setting up $(VENV) with $$($$found --version)"; \
		$$found -m venv --clear $(VENV); \
	fi
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling editables
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

# Environments by others, Ray, loggers and tools: where one of them has no build for this platform, its tests are skipped and everything else is tested.
$(EXTRAS): $(STAMP)
	@for extra in adapters lbf ray loggers optuna notebook; do \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[$$extra]" \
			|| echo "the extra '$$extra' cannot be installed here: its tests will be skipped" >&2; \
	done
	@touch $@

# The report page is tested in a real browser. One that is there is used; root on Debian gets one; elsewhere those tests are skipped.
$(BROWSER): $(STAMP)
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
		if $$name --version >/dev/null 2>&1; then touch $@; exit 0; fi; \
	done; \
	apt='apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=30'; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && $$apt update >/dev/null 2>&1 \
		&& DEBIAN_FRONTEND=noninteractive $$apt install -y --no-install-recommends chromium >/dev/null 2>&1; then \
		touch $@; \
	else \
		echo "no Chromium here and none can be installed: the tests of the report page in a browser will be skipped" >&2; \
	fi
