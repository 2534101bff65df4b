# Everything needs Python 3.11 or newer with the venv module; the rest is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TESTERS := auto
# What is run a second time, on PostgreSQL.
ON_POSTGRES := tests/chats/turns tests/chats/compaction tests/chats/api tests/chats/signin tests/contextpolicy

# SQLite, unless DATABASE=postgres asks for a server of the command's own.
ON_DATABASE = $(if $(filter postgres,$(DATABASE)),scripts/with_postgres.sh)

.PHONY: run test test-all check coverage mutation format requirements lock audit replay-all \
	chaos together beside races bench clean

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

# Lines and branches of the engine; fails below 100 %. The one test of speed is no test of coverage.
coverage: $(VENV)/.for-testing
	@$(BIN)/python -m coverage run --source=contextpolicy/engine --data-file=$(VENV)/.coverage \
		-m pytest -q -p no:randomly tests/engine \
		--deselect=tests/engine/test_engine_assembly.py::test_composing_a_thousand_messages_takes_milliseconds
	@$(BIN)/python -m coverage report --data-file=$(VENV)/.coverage --fail-under=100

# Breaks the engine in a thousand small ways and counts what its tests notice; twenty minutes.
mutation: $(VENV)/.for-testing
	@$(BIN)/python scripts/requirements.py mutation > $(VENV)/requirements-mutation.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements-mutation.txt
	@$(BIN)/python scripts/mutation.py

format: $(VENV)/.for-testing
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/djade --target-version 5.2 $$(git ls-files 'templates/*.html')

requirements: $(VENV)/.for-testing
	@$(BIN)/python -m pytest --requirements -q

# The pins with the hashes of their files, after a version was changed: make lock INDEX=address
lock: $(VENV)/.for-testing
	@test -n "$(INDEX)" || { echo "Say which index: make lock INDEX=address"; exit 1; }
	@$(BIN)/python scripts/lock.py $(INDEX)

# Known weaknesses of what is installed; a package that the service does not know counts as one.
audit: $(VENV)/.for-running
	@$(PYTHON) -m venv $(VENV)/audit && $(VENV)/audit/bin/python -m pip install --quiet pip-audit==2.10.1
	@$(VENV)/audit/bin/pip-audit --strict --require-hashes -r $(VENV)/requirements.txt

# Recorded conversations through the real pipeline, then through the engine alone in every
# combination of strategy, layout and budget: make replay-all DATA=folder/of/jsonl
replay-all: $(VENV)/.for-testing
	@test -n "$(DATA)" || { echo "Say where the recordings are: make replay-all DATA=DIR"; exit 1; }
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export PALIMPSEST_DATA=$$folder && \
		files=$$(ls $(DATA)/*.jsonl | grep -v '\.qa\.jsonl$$') && ended=0 && \
		{ $(BIN)/python manage.py replay $(if $(POLICY),--policy $(POLICY)) $$files || ended=1; } && \
		{ $(BIN)/python manage.py replay --matrix $$files || ended=1; } && exit $$ended

# Processes killed at random places: make chaos [KILLS=200] [CHATS=20] [SEED=1] [DATABASE=postgres]
chaos: $(VENV)/.for-testing
	@$(ON_DATABASE) $(BIN)/python -m tests.faults.crashes \
		--kills $(or $(KILLS),200) --chats $(or $(CHATS),20) --seed $(or $(SEED),1)

# Processes beside each other in the same chats, every law after each step:
# make together [WORKERS=8] [CHATS=50] [STEPS=25] [SEED=1] [DATABASE=postgres]
together: $(VENV)/.for-testing
	@$(ON_DATABASE) $(BIN)/python -m tests.faults.crashes --workers $(or $(WORKERS),8) \
		--chats $(or $(CHATS),50) --steps $(or $(STEPS),25) --seed $(or $(SEED),1)

# First words without background work and beside it, on either database; fails where replies wait:
# make beside [DURING=summaries,catch-up,verify,index] [LAYOUT=laptop|queues|two] [DATABASE=postgres]
beside: $(VENV)/.for-testing
	@$(ON_DATABASE) $(BIN)/python -m tests.load.beside \
		$(if $(DURING),--during $(DURING)) --layout $(or $(LAYOUT),laptop)

# Stops that race with the end of their reply, on both databases: make races [RACES=100]
races: $(VENV)/.for-testing
	@PALIMPSEST_STOP_RACES=$(or $(RACES),100) $(BIN)/python -m pytest -q -n 1 --timeout 900 \
		tests/faults/test_web_rows.py -k races_with_the_end

# Ratios on this machine, never a test: composing, and streaming beside the bare parts.
bench: $(VENV)/.for-testing
	@test -n "$(TOOLS)" || { echo "Say where the load tools are: make bench TOOLS=DIR"; exit 1; }
	@$(BIN)/python -m tests.load.compose
	@! $(BIN)/python -c 'import langchain_core, llama_index.core' 2>/dev/null || \
		$(BIN)/python -m tests.load.peers
	@$(BIN)/python -m tests.load.latency --pairs 60
	@$(BIN)/python -m tests.load.streams --tools $(TOOLS) --concurrency 20,100 --repeat 3

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Palimpsest needs Python 3.11 or newer." if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing (Debian: apt install python3-venv)."; exit 1; }

$(VENV)/.for-running: constraints.txt | $(VENV)/bin/python
	@echo "Installing (about half a minute, once)"
	@$(BIN)/python scripts/requirements.py > $(VENV)/requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/.for-testing: constraints.txt tests/compose-schema.txt | $(VENV)/bin/python
	@$(BIN)/python scripts/requirements.py test > $(VENV)/requirements-test.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/requirements-test.txt
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
		-d $(VENV)/compose-schema -r tests/compose-schema.txt
	@touch $@ $(VENV)/.for-running
