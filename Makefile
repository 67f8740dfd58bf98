# `make demo` and `make test` need nothing but Python 3.10+: the first run makes a virtual environment in .venv.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

.PHONY: demo test lint format bench campaign docs clean

demo: .venv/.installed
	$(BIN)/python -m adjoin.demo

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.installed
	for name in compiler dynamics simulation identification motion_control; do $(BIN)/python benchmarks/$$name.py || exit 1; done

campaign: .venv/.installed
	OMP_NUM_THREADS=1 $(BIN)/python tests/campaign/run.py --out tests/campaign/report.json

docs: .venv/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean
	@echo "open site/index.html"

.venv/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist site .pytest_cache .ruff_cache src/*.egg-info
