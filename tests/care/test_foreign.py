"""The texts of an export are redacted by the rules of the store that takes it, before anything of it is stored."""

from pathlib import Path

import pytest

from recollect.agentkit.protocol import BadLine, CostTotal, SessionInfo
from recollect.api import open_memory
from recollect.model.schema import TOOL_CALL
from recollect.store import open_store
from tests.builders import Home, at_ms, event, usage
from tests.care.rig import held
from tests.faults.rig import command, run
from tests.forget.traces import left_in

TOKEN = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0iL3oR6"
WORDS = [f"zqzq{letter * 12}" for letter in "abcdefghijklmnop"]  # a store with the rule never holds one
TEXT, PATH, CWD, BRANCH, REMOTE, TITLE, BAD, REASON, USAGE, PROVIDER, TOOL, CALL, NOTE, LEDGER, MODEL, PARENT = WORDS
RULE = "[redact.rules]\nown = 'zqzq[a-p]{12}'\n"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A session that has a word of its own at every place where a text can stand."""
    home = Home(tmp_path / "home")
    told = SessionInfo("s", cwd=f"/srv/{CWD}", git_branch=f"fix/{BRANCH}", title=f"on {TITLE}", title_rank=3)
    home.write(
        f"log-{PATH}",
        told,
        SessionInfo("s", git_remote=f"https://git.test/o/{REMOTE}", parent_native_id=f"p-{PARENT}"),
        event("s", 1, text=f"use {TEXT} and {TOKEN}"),
        event("s", 2, TOOL_CALL, "plain", tool=TOOL, call_id=f"c-{CALL}", metadata={"note": f"with {NOTE}"}),
        event("s", 3, text="plain", model=MODEL),
        usage("s", f"u-{USAGE}", provider=PROVIDER),
        CostTotal("s", f"run {LEDGER}", at_ms(1), 1.0),
        BadLine(9, 9000, f"no JSON {REASON}", f'{{"cut": "{BAD}'.encode()),
    )
    return home


@pytest.fixture
def export(tmp_path: Path, home: Home) -> Path:
    """Made by a store without the rule."""
    with open_memory(tmp_path / "without", [home.flag]) as memory:
        memory.sweep()
        memory.export(tmp_path / "export")
    assert left_in(tmp_path / "export", WORDS) == {*WORDS} - {BAD}  # which stands there in base64
    return tmp_path / "export"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Of a user who has the rule; nothing is in it yet."""
    (tmp_path / "with").mkdir(mode=0o700)
    (tmp_path / "with" / "config.toml").write_text(RULE)
    return tmp_path / "with"


def _sweep(store: Path, home: Home) -> None:
    with open_memory(store, [home.flag]) as memory:
        memory.sweep()


@pytest.mark.parametrize("is_held", [False, True])
def test_no_text_of_an_export_is_stored_with_its_secrets(store: Path, export: Path, home: Home, is_held: bool) -> None:
    if is_held:
        _sweep(store, home)

    with open_memory(store) as memory:
        memory.import_sessions(export)
        memory.import_sessions(export)

    assert left_in(store, [*WORDS, TOKEN]) == set()


@pytest.mark.parametrize("commits", range(1, 7))
def test_an_import_that_is_killed_leaves_no_secret(store: Path, export: Path, commits: int) -> None:
    failpoint = f"RECOLLECT_FAILPOINT=after-cache-commit:kill:{commits}"

    run(["env", failpoint, *command("import", str(export))], store)

    assert left_in(store, WORDS) == set()


def test_what_both_stores_marked_with_their_own_keys_is_one_event(store: Path, export: Path, home: Home) -> None:
    _sweep(store, home)
    before = held(store)

    with open_memory(store) as memory:
        report = memory.import_sessions(export)

    assert (report.events_new, held(store)) == (0, before)


def _import_without_the_rule(store: Path, export: Path) -> None:
    """Store texts that the rule would hide, in sessions of which the store knows that they went through no rules."""
    (store / "config.toml").unlink()
    with open_memory(store) as memory:
        memory.import_sessions(export)
    with open_store(store) as opened:
        opened.databases[0].write("UPDATE streams SET redacted_with = NULL")
    (store / "config.toml").write_text(RULE)


def test_a_rescan_reaches_every_text_that_an_import_stored(store: Path, export: Path, home: Home) -> None:
    _sweep(store, home)
    home.append(f"log-{PATH}", event("s", 4, text=f"later {TEXT}"))
    with open_memory(export.parent / "without", [home.flag]) as memory:
        memory.sweep()
        memory.export(export.parent / "grown")
    _import_without_the_rule(store, export.parent / "grown")
    assert left_in(store, WORDS) >= {TEXT, CWD, PATH, BAD, REASON, USAGE, LEDGER, PARENT}

    with open_memory(store) as memory:
        first, second = memory.rescan(), memory.rescan()

    assert left_in(store, WORDS) == set()
    assert (first.sessions, second.sessions) == (1, 0)


def test_a_file_known_by_its_path_and_by_the_redacted_one_is_one_source(store: Path, export: Path, home: Home) -> None:
    _sweep(store, home)
    before = held(store)
    _import_without_the_rule(store, export)

    with open_memory(store, [home.flag]) as memory:
        memory.rescan()
        report = memory.sweep()

        assert len(memory.session("s").sources) == 1
        assert len(memory.problems()) == 1
    assert report.events_new == report.sources_changed == 0
    assert held(store) == before
