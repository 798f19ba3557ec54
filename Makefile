# make run    every example through the command line tool
# make test   what continuous integration runs: lint, format, types, tests
# make clean  remove the virtual environment and all caches

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXAMPLES := $(sort $(wildcard examples/*.py))

.PHONY: run test clean
.DELETE_ON_ERROR:

# Reinstalled when the dependencies may have changed; an environment that was left half made is made anew.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Tidegate needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + "; set PYTHON=..." if sys.version_info < (3, 11) else 0)'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda,test]'
	@touch $@

run: $(STAMP)
	@set -e; for e in $(EXAMPLES); do echo "== $$e"; $(BIN)/tidegate run $$e; done

test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
