# Two commands do all the set-up on a machine that has Python >= 3.11 and a package registry:
#   make demo   runs the main job        make test   passes the tests
# Each makes its own .venv; nothing has to be activated. PYTHON=python3.12 chooses another Python.
# WITH="torch dice-ml" adds large packages, without which the tests of what needs them skip.

PYTHON ?= python3
VENV ?= .venv
OLDEST := .venv-oldest
EXTRAS ?= test
WITH ?=
SCRIPTS := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN := $(VENV)/$(SCRIPTS)
OLDEST_BIN := $(OLDEST)/$(SCRIPTS)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# The workers of the tests, and the processes that tests start, would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE
# As the command line has it (cli/main.py): two workers with two threads each would only wait.
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo serve test test-oldest lint types clean

demo: $(VENV)/.installed-demo
	$(BIN)/waysout demo

serve: $(VENV)/.installed-demo
	$(BIN)/waysout serve

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n auto --dist worksteal

# The same tests with the lowest versions that pyproject.toml allows. EXTRAS=test,moc adds others;
# some of these ask for more than the bounds of the rest, which is tested without them.
ifeq ($(EXTRAS),test)
test-oldest: export WAYSOUT_OLDEST := 1
endif
test-oldest: $(OLDEST)/.installed-$(EXTRAS)
	$(OLDEST_BIN)/python -m pytest -n auto --dist worksteal

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# The stamp is older than pyproject.toml when the dependencies may have changed.
$(VENV)/.installed-%: pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'Waysout needs Python 3.11 or newer; this is ' + sys.version)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable ".[$*]" $(WITH)
	@$(PYTHON) -c "import pathlib; pathlib.Path('$@').touch()"

# pip has no way to ask for the lowest versions; uv has. What they need in turn is the newest, as it
# would be for anybody who installs them today. The folder is made anew: uv keeps what is there.
$(OLDEST)/.installed-$(EXTRAS): pyproject.toml
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST_BIN)/python -m pip --disable-pip-version-check --quiet install uv
	$(OLDEST_BIN)/python -m uv pip install --quiet --python $(OLDEST) --resolution lowest-direct --editable ".[$(EXTRAS)]"
	@$(PYTHON) -c "import pathlib; pathlib.Path('$@').touch()"

clean:
	$(PYTHON) -c "import shutil; [shutil.rmtree(name, ignore_errors=True) for name in ('$(VENV)', '$(OLDEST)')]"
