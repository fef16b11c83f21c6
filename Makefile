# Everything that is needed is set up by the first call and left alone by the next.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .bench-venv
STANDINS := .standins

.DEFAULT_GOAL := help
.PHONY: help demo test check format bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready: pyproject.toml tools/make-venv
	@PYTHON=$(PYTHON) tools/make-venv $(VENV) -e '.[dev]'
	@touch $@

$(BENCH)/.ready: pyproject.toml tools/make-venv
	@PYTHON=$(PYTHON) tools/make-venv $(BENCH) -e '.[bench]'
	@touch $@

$(STANDINS)/.ready: tools/make-standins tools/make-venv
	@PYTHON=$(PYTHON) tools/make-standins $(STANDINS)
	@touch $@

demo: $(VENV)/.ready ## watch 2,000 items travel three stages, with partners that fail and dawdle
	@$(BIN)/milepost demo

test: check $(STANDINS)/.ready ## format, lint, types, import layers, docs and all tests
	@tools/need-chromium
	@# One more than there are cores: many tests wait for other processes.
	@$(BIN)/pytest -n 3 --dist worksteal -q

check: $(VENV)/.ready ## format, lint, mypy strict on src, import layers, generated docs up to date
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.docs --check

format: $(VENV)/.ready ## put the code into shape
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .

bench: $(VENV)/.ready $(BENCH)/.ready $(STANDINS)/.ready ## measure against the raw limit and the nearest peer, in one run
	@$(BIN)/python -m bench

docs: $(VENV)/.ready ## write the generated pages (state diagram, command-line reference)
	@$(BIN)/python -m tools.docs

clean: ## remove what was set up
	rm -rf $(VENV) $(BENCH) $(STANDINS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The deployment on AWS: an environment of its own, since the CDK is large.
INFRA := .infra-venv
ROUTES ?= examples/archive.py examples/parcels.py
PREFIX ?= prod
ALARMS ?= ops@example.org
.PHONY: synth clean-infra

$(INFRA)/.ready: pyproject.toml tools/make-venv
	@PYTHON=$(PYTHON) tools/make-venv $(INFRA) --no-compile -e '.[infra]'
	@# Compiled once, and of very large packages only what is used.
	@env -u PYTHONDONTWRITEBYTECODE $(INFRA)/bin/python -c 'import infra.stack'
	@echo '{"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}' | env -u PYTHONDONTWRITEBYTECODE $(INFRA)/bin/cfn-lint
	@touch $@

test: $(INFRA)/.ready

synth: $(INFRA)/.ready ## write the CloudFormation template of the examples to build/synth and check it; needs no network
	@rm -rf build/synth
	@$(INFRA)/bin/python -m infra $(ROUTES:%=--routes %) --prefix $(PREFIX) --alarm-email $(ALARMS) --code src
	@$(INFRA)/bin/cfn-lint build/synth/$(PREFIX)-milepost.template.json

clean: clean-infra

clean-infra:
	rm -rf $(INFRA) build
