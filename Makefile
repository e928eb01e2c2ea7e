# Every target runs in .venv, which is created from requirements.lock on first use. `make demo` needs
# less: it creates .venv from requirements-light.lock, and any other target adds the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
LIGHT := $(VENV)/.installed-light

# Package index for torch, such as one of CPU builds; empty: the default build.
TORCH_INDEX ?=

# Python compiles the modules that are imported; most modules of the packages never are.
PIP_INSTALL := $(BIN)/python -m pip install --no-compile

# With it every process would compile all modules anew: tests start a few hundred.
unexport PYTHONDONTWRITEBYTECODE

# A process that crashes ends the run: pytest-xdist would wait for one that replaces it.
PARALLEL := --numprocesses auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

.PHONY: help install install-light demo test console-test unit check docs bench quality quality-page crash soak schemas stack-up stack-down stack-status lock clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/'

install: $(INSTALLED)  ## Install skillbus and its tools into .venv

# An older pip, such as that of Python 3.11, needs twice the time to read the package index. The pip
# of $(PYTHON), if there is one, installs it sooner than ensurepip.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("skillbus needs Python 3.11 or later; choose one: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv --without-pip $(VENV)
	@if $(PYTHON) -m pip --version >/dev/null 2>&1; \
		then $(PYTHON) -m pip --python $@ install --quiet --no-compile "pip>=25"; \
		else $@ -m ensurepip && $(PIP_INSTALL) --quiet "pip>=25"; fi

# It is a part of what requirements.lock pins, with the same versions: the other installation stays.
$(LIGHT): requirements-light.lock pyproject.toml | $(BIN)/python
	$(PIP_INSTALL) --no-deps -r requirements-light.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(INSTALLED): requirements.lock pyproject.toml | $(BIN)/python
ifneq ($(TORCH_INDEX),)
	$(PIP_INSTALL) --index-url $(TORCH_INDEX) "$$(grep '^torch==' requirements.lock)"
endif
	$(PIP_INSTALL) -r requirements.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $(LIGHT) $@

install-light: $(LIGHT)  ## Install skillbus with its default encoder only, without torch, into .venv

demo: $(LIGHT)  ## Show skillbus at work on the example skills
	@$(BIN)/python examples/demo.py

unit: $(INSTALLED)  ## Unit tests: no servers, no network
	$(BIN)/python -m pytest tests/unit $(PARALLEL) -p no:schemathesis

test: check  ## Checks, then the whole test suite
	@$(BIN)/python -m deploy.stack fetch || echo "Tests that need these servers are skipped."
	$(BIN)/python -m pytest $(PARALLEL)

console-test: $(INSTALLED)  ## Tests of the web console in Chromium; part of `make test`
	$(BIN)/python -m pytest tests/console $(PARALLEL)

check: $(INSTALLED)  ## Style, types, imports, dependencies, published schemas, links of the docs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry config skills search graph tasks workers
	$(BIN)/python docs/reference/schemas.py --check
	$(BIN)/python -m tests.bench.quality check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site

docs: $(INSTALLED)  ## Build the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site

# With a generated library; `make bench BENCH="--library DIR"` uses one of your own.
bench: $(INSTALLED)  ## Run the benchmarks and print their figures
	for what in ingest query edit memory; do \
		echo "$$what:"; $(BIN)/python -m tests.bench.run $$what $(BENCH) || exit 1; \
	done

# `make quality DATA=folder`; docs/how-to/measure-your-own-library.md says what the folder holds.
# `ONLY="routing roles"` measures some sections, `LIBRARY=home` reads a library that is there already,
# `CACHE=folder` keeps those that are made, `SAMPLE=20` tries it on few labels, `SIZES="1000 4000"`
# are those of the random parts.
quality: $(INSTALLED)  ## Measure on DATA=folder and write docs/explanation/quality.md
	@test -n "$(DATA)" || { echo "name the data: make quality DATA=folder"; exit 2; }
	$(BIN)/python -m tests.bench.quality measure $(DATA) $(if $(ONLY),--only $(ONLY)) \
		$(if $(LIBRARY),--library $(LIBRARY)) $(if $(CACHE),--cache $(CACHE)) \
		$(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SIZES),--sizes $(SIZES))

quality-page: $(INSTALLED)  ## Write docs/explanation/quality.md and its plots from quality.json
	$(BIN)/python -m tests.bench.quality render

crash: $(INSTALLED)  ## Kill a running sync 200 times and compare the library each time
	SKILLBUS_CRASH_ROUNDS=200 $(BIN)/python -m pytest tests/integration/faults/test_crash.py

# `make soak LIBRARY=home SOAK="--skills 300 --minutes 3 --kill-seconds 30 --updates 5"` is a short one.
soak: $(INSTALLED)  ## Load real servers for 40 minutes with kills, on the library in LIBRARY=home
	@test -n "$(LIBRARY)" || { echo "name an embedded library: make soak LIBRARY=home"; exit 2; }
	$(BIN)/python -m tests.bench.soak $(LIBRARY) $(SOAK)

schemas: $(INSTALLED)  ## Generate the schemas and API documents in docs/reference
	$(BIN)/python docs/reference/schemas.py

# For tests and trials on this machine; `make stack-up STACK="--broker rabbitmq"` passes options,
# `python3 -m deploy.stack up --help` lists them.
stack-up:  ## Start Elasticsearch, Neo4j and Redis on this machine
	@$(PYTHON) -m deploy.stack up $(STACK)

stack-down:  ## Stop these servers and delete their data
	@$(PYTHON) -m deploy.stack down

stack-status:  ## Show whether these servers answer
	@$(PYTHON) -m deploy.stack status

# Existing pins are kept if they still fit; `make lock UPGRADE=--upgrade` takes the newest versions.
# Packages that only a CUDA build of torch needs are not pinned: torch requires them itself.
# requirements-light.lock is all of what runs the default encoder, and setuptools, which installs
# skillbus; openvino-telemetry, which only reports to the makers of OpenVINO, is left out.
COMPILE := $(BIN)/pip-compile --allow-unsafe --strip-extras --quiet \
	--no-header --no-annotate --no-emit-options --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host

lock: $(INSTALLED)  ## Resolve pyproject.toml into requirements.lock and requirements-light.lock
	@mkdir -p build
	cp requirements.lock build/requirements.txt
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"], sep="\n")' \
		> build/dev.in
	$(COMPILE) $(UPGRADE) --extra tracing --output-file build/requirements.txt pyproject.toml build/dev.in
	sed -E -e '/^(nvidia|cuda|triton|pip==|#)/d' -e '/^$$/d' -e 's/\+[a-z0-9.]+$$//' \
		build/requirements.txt > requirements.lock
	$(BIN)/python -c 'import re, tomllib; read = tomllib.load(open("pyproject.toml", "rb")); \
		left_out = read["tool"]["skillbus"]["light"]["without"]; asked = read["project"]["dependencies"]; \
		print(*(one for one in asked if re.split("[<=>]", one)[0] not in left_out), sep="\n")' > build/light.in
	grep '^setuptools==' requirements.lock >> build/light.in
	rm -f build/requirements-light.txt
	$(COMPILE) --constraint requirements.lock --output-file build/requirements-light.txt build/light.in
	sed -E -e '/^(openvino-telemetry==|#)/d' -e '/^$$/d' build/requirements-light.txt > requirements-light.lock

clean:  ## Remove .venv, build outputs and caches
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
