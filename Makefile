# `make demo` and `make test` work in a fresh clone: they find a Python, make .venv and install
# into it. A second call installs again only when pyproject.toml has changed.

VENV := .venv
PY := $(VENV)/bin/python

# The arrays here are small: threads of BLAS would only get in each other's way.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export VECLIB_MAXIMUM_THREADS := 1
export NUMEXPR_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-all lint docs bench clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.plots ## compare three posteriors of a simulated survey; writes demo.png
	@$(PY) examples/survey.py

test: $(VENV)/.test lint ## ruff, mypy and the tests, the slow ones too
	$(PY) -m pytest -q -n 2 --dist worksteal -m "not exhaustive"

test-fast: $(VENV)/.test lint ## the same without the slow tests
	$(PY) -m pytest -q -n 2 --dist worksteal -m "not slow and not exhaustive"

test-all: $(VENV)/.test lint ## every notebook and page too, and every model that is sampled
	$(PY) -m pytest -q -n 2 --dist worksteal

lint: $(VENV)/.test ## ruff and mypy alone
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

docs: $(VENV)/.docs ## build docs/_build/html; every code cell is run, warnings are errors
	$(PY) -m sphinx -E -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html."

bench: $(VENV)/.plots ## run the benchmarks, one after the other
	@for script in $$(grep -l __main__ benchmarks/*.py); do \
		name=benchmarks.$$(basename "$$script" .py); \
		echo "$$name"; $(PY) -m "$$name" || exit 1; \
	done

clean: ## remove everything the other commands made, .venv too
	rm -rf $(VENV) demo.png dist docs/_build docs/jupyter_execute docs/notebooks
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp file for each extra of pyproject.toml.
$(VENV)/.%: pyproject.toml | $(PY)
	@echo "Installing pymc-privacy[$*] into $(VENV); the first time this takes a few minutes."
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@touch $@

$(PY):
	@python=$$(scripts/find-python) || exit 1; \
	"$$python" -c "import ensurepip, venv" 2>/dev/null || { \
		echo "$$python cannot make virtual environments: install its venv module (on Debian" \
			"or Ubuntu: apt-get install python3-venv), or name another with PYTHON=." >&2; \
		exit 1; \
	}; \
	echo "Making $(VENV) with $$python."; \
	"$$python" -m venv --clear $(VENV) || { rm -rf $(VENV); exit 1; }
