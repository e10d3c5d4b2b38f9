# Each target does its own set-up in .venv; `make demo` and `make test` are all a newcomer needs.
PYTHON ?= python3
BIN := .venv/bin
OUT ?= ragtrace-demo
SITE ?= docs/_build
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test check bench docs clean

demo: .venv/.demo
	$(BIN)/ragtrace demo --out $(OUT)

test: .venv/.test
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

check: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.test
	$(BIN)/python tests/benchmarks/overhead.py

docs: .venv/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs $(SITE)
	@echo "$(SITE)/index.html"

clean:
	rm -rf .venv $(OUT) $(SITE)

.venv/bin/python:
	$(PYTHON) -m venv .venv

# torch is constrained here, not in the published metadata: a plain `torch` may bring gigabytes of CUDA.
.venv/.demo: pyproject.toml .venv/bin/python
	$(PIP) torch==2.13.0
	$(PIP) -e '.[demo]'
	touch $@

.venv/.docs: pyproject.toml .venv/.demo
	$(PIP) -e '.[docs]'
	touch $@

.venv/.test: pyproject.toml .venv/.demo
	$(PIP) -e '.[test]'
	touch $@
