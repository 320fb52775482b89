# Everything on a fresh machine: `make compare` shows the main job, `make test` checks it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles a module when it is imported; to compile all that comes with PyTorch or scipy takes longer than most runs.
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile

# Two BLAS threads a process and two test processes would fight for the same cores.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

# `make test` installs what a newcomer needs to test a change of the core; `make test EXTRAS=all` every extra, PyTorch
# and both engines too. A test that needs an absent extra is skipped and names it.
EXTRAS ?= he
ALL := $(filter all,$(EXTRAS))

.PHONY: compare demo test coverage test-long mutants elsewhere bench docs lint types dist release locks clean

compare: $(VENV)/.core        ## the main job on bundled data: every installed privacy mode side by side
	$(BIN)/python -m simulations compare

demo: $(VENV)/.core           ## a whole federation of processes on this computer, and a page to watch and break it
	$(BIN)/python -m analytic_secagg demo

test: $(VENV)/$(if $(ALL),.all,.test-$(EXTRAS))  ## all tests in short form that the installed extras allow; EXTRAS=all for every one
	$(TEST_ENV) $(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow"

coverage: $(VENV)/.all        ## the same with every extra, and the lines and branches that no test reaches: half as long again
	$(TEST_ENV) $(BIN)/python -m pytest -n auto --dist loadgroup -m "not slow" --cov --cov-report=term

test-long: lint types         ## the same with every sweep whole and long random searches; takes hours
	$(TEST_ENV) HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n auto --dist loadgroup

mutants: $(VENV)/.all         ## how many small faults of the core the tests notice: a sample of each package, hours; resumable
	nice $(BIN)/python tests/mutants.py $(MUTANTS)

elsewhere: $(VENV)/.all       ## the same bits on an emulated ARM64: Debian, as root, qemu-user-static and debootstrap
	.ci/elsewhere

bench: $(VENV)/.all           ## speed and size beside floors and peers, into docs/explanation/performance.md; takes long
	$(BIN)/python -m benchmarks --page docs/explanation/performance.md

docs: $(VENV)/.docs           ## the site in build/docs; a warning, such as a dead local link, is an error
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html docs build/docs

dist: $(VENV)/.release        ## wheel and sdist of the last commit, the same bytes for whoever builds it
	.ci/dist

release: $(VENV)/.release     ## the same, locked versions tried in empty environments, bills of materials, hashes: dist/
	.ci/release

locks: $(VENV)/.all           ## the versions and hashes that deployments install: requirements/
	for engine in flower nvflare; do \
	  $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	    --extra $$engine --extra he --output-file requirements/$$engine.txt pyproject.toml || exit 1; \
	done

lint: $(VENV)/.all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.all
	$(BIN)/mypy

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.core: pyproject.toml $(VENV)/.venv
	@echo "installing into $(VENV), about a minute"
	$(INSTALL) -e '.[simulations]'
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(INSTALL) -e '.[docs]'
	touch $@

$(VENV)/.release: pyproject.toml $(VENV)/.venv
	$(INSTALL) -e '.[release]'
	touch $@ $(VENV)/.core

$(VENV)/.test-$(EXTRAS): pyproject.toml $(VENV)/.venv
	$(INSTALL) -e '.[$(EXTRAS),test]'
	touch $@ $(VENV)/.core

$(VENV)/.all: pyproject.toml $(VENV)/.venv
	$(INSTALL) -e '.[all,dev]'
	touch $@ $(VENV)/.core

clean:
	rm -rf $(VENV) build dist mutants *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
