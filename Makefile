# A fresh machine needs python3 and make; everything else goes into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test soak fix bench clean

demo: $(STAMP)  ## install, then the main job on bundled sample sessions
	@$(BIN)/recollect demo

test: $(STAMP)  ## install, then everything CI runs
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/cog --check -I docs docs/commands.md docs/library.md docs/privacy.md docs/schema.md
	@$(BIN)/python -m compileall -q src tests  # for the many processes that tests start where Python may not write bytecode
	$(BIN)/pytest -n auto

soak: $(STAMP)  ## the long forms of the randomised tests
	RECOLLECT_SOAK=1 $(BIN)/pytest -n auto

fix: $(STAMP)  ## format, fix what can be fixed, print the generated docs anew
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/cog -r -I docs docs/commands.md docs/library.md docs/privacy.md docs/schema.md

bench: $(STAMP)  ## ratios against the floor and against peers
	$(BIN)/python bench/ingest.py
	$(BIN)/python bench/redact.py
	$(BIN)/python bench/search.py
	$(BIN)/python bench/known_item.py
	$(BIN)/python bench/distil.py
	$(BIN)/python bench/outcomes.py

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
