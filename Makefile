# Everything that is needed is set up by the first call and left alone by the next.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .bench-venv
STANDINS := .standins
# Compiled once, even where the environment asks for nothing to be written: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo quick wheels alone pythons another-python test thorough check format bench docs picture clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

PROJECTS := $(wildcard packages/*/pyproject.toml)
NEEDED := tools/requirements

$(VENV)/.ready: $(PROJECTS) $(NEEDED)/packages.txt $(NEEDED)/dev.txt tools/make-venv
	@PYTHON=$(PYTHON) tools/make-venv $(VENV) -r $(NEEDED)/packages.txt -r $(NEEDED)/dev.txt
	@touch $@

$(BENCH)/.ready: $(PROJECTS) $(NEEDED)/packages.txt $(NEEDED)/bench.txt tools/make-venv
	@PYTHON=$(PYTHON) tools/make-venv $(BENCH) -r $(NEEDED)/packages.txt -r $(NEEDED)/bench.txt
	@touch $@

$(STANDINS)/.ready: tools/make-standins tools/make-venv
	@PYTHON=$(PYTHON) tools/make-standins $(STANDINS)
	@touch $@

demo: $(VENV)/.ready ## watch 2,000 items travel three stages, with partners that fail and dawdle; with a page to look at
	@$(BIN)/milepost demo

# The quick tier is a matter of place: tests in these folders belong to it, unless they are marked `slow`, `wire` or `thorough`.
QUICK := $(addprefix packages/milepost/tests/,core ports engine ledgers subscribers runners blobs app/test_station.py) packages/milepost-testing/tests

quick: $(VENV)/.ready ## the tests of the rules, the engine and the ledgers in memory and SQLite, in under a minute
	@$(BIN)/pytest -n 2 --dist worksteal -q -m "not slow and not wire and not thorough" $(QUICK)

# What differs between versions of Python is not in the browser, the deployment and the benchmarks.
APART := --ignore=packages/milepost-aws/tests/aws/infra --ignore=tests/bench --ignore=packages/milepost/tests/http/dashboard/browser

pythons: $(STANDINS)/.ready ## the tests, but for the slowest, with every newer Python that this machine has
	@tools/each-python -m "not slow and not thorough" $(APART) packages tests

another-python: ## the quick tests with the newest other Python that this machine has
	@tools/each-python --one -m "not slow and not wire and not thorough" $(QUICK)

wheels: $(VENV)/.ready ## the wheel and the source archive of every package, in dist/
	@tools/make-wheels dist $(BIN)/python
	@ls dist

alone: $(VENV)/.ready ## install every package alone, from its wheel, and import all of its modules
	@tools/each-package build/alone

test: ## format, lint, types, import layers, docs and all tests; of one package: make test PKG=milepost-net
	@# What is needed is set up side by side, and the checks run meanwhile; if one fails, nothing goes on.
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=line check $(STANDINS)/.ready $(INFRA)/.ready
	@tools/need-programs chromium curl
	@# One more than there are cores: many tests wait for other processes.
	@$(BIN)/pytest -n 3 --dist worksteal -q $(PKG:%=packages/%)

thorough: ## all of `make test`, with many more random examples and the contract on both stand-ins for AWS
	@MILEPOST_THOROUGH=1 $(MAKE) --no-print-directory test

check: $(VENV)/.ready ## format, lint, mypy strict, import layers, generated docs up to date
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

docs: $(VENV)/.ready ## write the generated pages (state diagram, import graph, reference)
	@$(BIN)/python -m tools.docs

picture: $(VENV)/.ready ## take the picture of the overview anew, from the demo
	@tools/need-programs chromium
	@$(BIN)/python -m tools.picture

clean: ## remove what was set up
	rm -rf $(VENV) $(VENV)-3.* $(BENCH) $(STANDINS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The deployment on AWS: an environment of its own, since the CDK is large.
INFRA := .infra-venv
ROUTES ?= examples/archive.py examples/parcels.py
PREFIX ?= prod
ALARMS ?= ops@example.org
.PHONY: synth clean-infra

AWS_PROJECT := packages/milepost-aws/pyproject.toml

$(INFRA)/.packages: $(AWS_PROJECT) tools/make-venv
	@$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("$(AWS_PROJECT)", "rb"))["project"]["optional-dependencies"]["infra"], sep="\n")' \
		| PYTHON=$(PYTHON) tools/make-venv $(INFRA) --no-compile -r /dev/stdin
	@touch $@

# After the other environment: for both build these packages, and write into the same folders.
$(INFRA)/.ready: $(INFRA)/.packages | $(VENV)/.ready
	@PYTHON=$(PYTHON) tools/make-venv $(INFRA) --no-compile -r $(NEEDED)/packages.txt
	@# Of very large packages only what is used is compiled.
	@$(INFRA)/bin/python -c 'import milepost_aws.infra.stack'
	@echo '{"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}}' | $(INFRA)/bin/cfn-lint
	@touch $@

synth: $(INFRA)/.ready ## write the CloudFormation template of the examples to build/synth and check it; needs no network
	@rm -rf build/synth
	@$(INFRA)/bin/python -m milepost_aws.infra $(ROUTES:%=--routes %) --prefix $(PREFIX) --alarm-email $(ALARMS) --code packages
	@$(INFRA)/bin/cfn-lint build/synth/$(PREFIX)-milepost.template.json

clean: clean-infra

clean-infra:
	rm -rf $(INFRA) build
