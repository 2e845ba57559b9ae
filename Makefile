PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= .venv-extras
MARKS ?= (extras or browser or real_data) and not slow
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: audit test test-all test-extras lint bench clean install

audit: $(INSTALLED)  ## audit the embedded example and write a page
	$(BIN)/glasshouse audit

test: $(INSTALLED)  ## the tests that fit into a few minutes
	$(BIN)/python -m pytest -m "not slow and not browser" --numprocesses auto --dist loadfile

test-all: $(INSTALLED)  ## every test; more of them run with GLASSHOUSE_DATA set
	$(BIN)/python -m pytest

test-extras: $(EXTRAS)/.installed  ## the tests that need Flower, NVIDIA FLARE, Ray, Dask, the Hugging Face library, a peer, chromium or GLASSHOUSE_DATA; none may be skipped
	$(EXTRAS)/bin/python -m pytest -m "$(MARKS)" --no-skips

lint: $(INSTALLED)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)  ## a round, strategies, shadow models, secure aggregation, attacks on inputs, curvature, inversion, clipping, recording, plans: each against its peers
	$(BIN)/python benchmarks/rounds.py
	$(BIN)/python benchmarks/strategies.py
	$(BIN)/python benchmarks/shadows.py
	$(BIN)/python benchmarks/secagg.py
	$(BIN)/python benchmarks/evasion.py
	$(BIN)/python benchmarks/curvature.py
	$(BIN)/python benchmarks/inversion.py
	$(BIN)/python benchmarks/clipping.py
	$(BIN)/python benchmarks/recording.py
	$(BIN)/python benchmarks/plans.py
	$(BIN)/python benchmarks/policies.py
	$(BIN)/python benchmarks/policy_scores.py

install: $(INSTALLED)

$(INSTALLED): EXTRA = dev
$(EXTRAS)/.installed: EXTRA = dev,flower,nvflare,ray,dask,hub
$(EXTRAS)/.installed: PEERS = torchattacks==3.5.1  # it declares a torchvision that it does not need
%/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $*
	$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$*/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRA)]"
	$(if $(PEERS),$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(PEERS))
	touch $@

clean:  ## remove the environments and caches; runs/ stays
	rm -rf .venv .venv-* build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
