# Everything needs Python 3.11 or newer with the venv module; the rest is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTERS := auto
# What is run a second time, on PostgreSQL.
ON_POSTGRES := tests/chats/turns tests/chats/compaction tests/chats/api tests/chats/signin tests/contextpolicy

.PHONY: run test test-all check format requirements replay-all chaos bench clean

run: $(VENV)/.for-running
	@$(BIN)/python manage.py serve

# Tests that need Chromium, PostgreSQL or Redis are listed as skipped where these are absent.
test: $(VENV)/.for-testing
	@$(MAKE) --no-print-directory check
	@$(BIN)/python -m pytest -n $(TESTERS) --dist loadgroup -rs

# The same, but an absent program fails the run instead of skipping its tests.
test-all: $(VENV)/.for-testing
	@$(MAKE) --no-print-directory check
	@PALIMPSEST_REQUIRE_SERVICES=1 $(BIN)/python -m pytest -n $(TESTERS) --dist loadgroup -rs
	@echo "The same rooms on PostgreSQL"
	@scripts/with_postgres.sh $(BIN)/python -m pytest -n $(TESTERS) --dist loadgroup -q $(ON_POSTGRES)

check: $(VENV)/.for-testing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy project chats contextpolicy tests
	$(BIN)/lint-imports --no-logo
	$(BIN)/djade --check --target-version 5.2 $$(git ls-files 'templates/*.html')
	$(BIN)/djlint templates --lint --profile django --quiet
	$(BIN)/deptry . --no-ansi
	$(BIN)/python manage.py makemigrations --check --dry-run

format: $(VENV)/.for-testing
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/djade --target-version 5.2 $$(git ls-files 'templates/*.html')

requirements: $(VENV)/.for-testing
	@$(BIN)/python -m pytest --requirements -q

# Recorded conversations through the real pipeline: make replay-all DATA=folder/of/jsonl
replay-all: $(VENV)/.for-testing
	@test -n "$(DATA)" || { echo "Say where the recordings are: make replay-all DATA=DIR"; exit 1; }
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && PALIMPSEST_DATA=$$folder \
		$(BIN)/python manage.py replay $(if $(POLICY),--policy $(POLICY)) \
		$$(ls $(DATA)/*.jsonl | grep -v '\.qa\.jsonl$$')

# Processes killed at random places of compaction: make chaos [KILLS=200] [CHATS=20] [SEED=1]
chaos: $(VENV)/.for-testing
	@$(BIN)/python -m tests.faults.crashes --kills $(or $(KILLS),200) --chats $(or $(CHATS),20) --seed $(or $(SEED),1)

# Ratios on this machine, never a test: composing, and streaming beside the bare parts.
bench: $(VENV)/.for-testing
	@test -n "$(TOOLS)" || { echo "Say where the load tools are: make bench TOOLS=DIR"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check httptools psutil
	@$(BIN)/python -m tests.load.compose
	@$(BIN)/python -m tests.load.streams --tools $(TOOLS) --concurrency 20,100 --repeat 3

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Palimpsest needs Python 3.11 or newer." if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing (Debian: apt install python3-venv)."; exit 1; }

$(VENV)/.for-running: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing (about half a minute, once)"
	@$(BIN)/python scripts/requirements.py > $(VENV)/requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/.for-testing: pyproject.toml constraints.txt | $(VENV)/bin/python
	@$(BIN)/python scripts/requirements.py test > $(VENV)/requirements-test.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $(VENV)/requirements-test.txt
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps \
		-d $(VENV)/compose-schema docker-compose==1.29.2
	@touch $@ $(VENV)/.for-running
