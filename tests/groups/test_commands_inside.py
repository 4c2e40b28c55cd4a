"""Every command as a group's process runs it: on its own session, on a foreign one, and in a group without any."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recollect.api import open_memory
from recollect.cli import main
from tests import logs
from tests.conftest import with_key
from tests.groups.attacks import COMMANDS
from tests.groups.conftest import INSIDE, OUTSIDE, Planted, hidden_word, plant

# What works on the group's own session, with its arguments.
WORKING = {
    "show --exchanges": "{id}",
    "mark star": "{id}",
    "mark tag": "{id} mine",
    "mark note": "{id} mine",
    "mark rename": "{id} mine",
    "show": "{id}",
    "digest": "{id}",
    "diff": "{id}",
    "signals": "{id}",
    "sessions --related": "{id}",
    "archive": "{id} --to {out}",
    "resume": "{id}",
    "resume --fork": "{id}",
    "knowledge rehearse": "--json",
    "sessions": "--json",
    "history": "everybodysays",
    "recent": "",
    "sessions --timeline": "",
    "open": "",
    "stats": "",
    "group bookmarks": "",
    "search": "everybodysays",
    "group clear": "later",
}
NAMING = [name for name, words in WORKING.items() if "{id}" in words]
WRONG = ("Traceback", "prohibited", "read-only", "check the permissions")
REFUSED = 1


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """With a group that has no session."""
    planted = plant(tmp_path_factory.mktemp("planted"))
    with planted.open() as memory:
        (empty := planted.folder.parent / "empty").mkdir()
        memory.groups.add("empty", empty)
    return planted


def _run(store: Path, group: str, words: str) -> Result:
    environment = {"RECOLLECT_HOME": str(store), "RECOLLECT_GROUP": group}
    done = CliRunner().invoke(main, shlex.split(words), env=environment)
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert not [text for text in WRONG if text in done.output], done.output
    return done


@pytest.mark.parametrize("name", WORKING)
def test_a_command_works_on_the_group_s_own_session(tmp_path: Path, name: str) -> None:
    planted = plant(tmp_path, numbers=(INSIDE, OUTSIDE))
    words = WORKING[name].format(id=logs.session_id(INSIDE), out=tmp_path / "out")

    done = _run(planted.folder, "inside", f"{name} {words}")

    assert done.exit_code == 0, done.output
    assert hidden_word(OUTSIDE) not in done.output


@pytest.mark.parametrize("name", NAMING)
def test_a_command_does_not_find_a_foreign_session(planted: Planted, tmp_path: Path, name: str) -> None:
    words = WORKING[name].format(id=logs.session_id(OUTSIDE), out=tmp_path / "out")

    done = _run(planted.folder, "inside", f"{name} {words}")

    assert done.exit_code == 4, done.output
    assert hidden_word(OUTSIDE) not in done.output
    with planted.open() as memory:
        noted = memory.annotations.of(memory.session(logs.session_id(OUTSIDE)))
    assert (noted.is_starred, noted.tags, noted.notes, noted.name) == (False, (), (), None)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_command_in_a_group_without_a_session_advises_nothing_that_is_refused(
    planted: Planted, tmp_path: Path, name: str
) -> None:
    for words in COMMANDS[name]:
        filled = words.format(
            word="x", typo="x", id="0123456789", path=tmp_path, file="x.py", out=tmp_path / "o", own="x"
        )
        done = _run(planted.folder, "empty", f"{name} {filled}")

        assert done.exit_code in (0, 1, 2, 4), done.output
        if "not_in_group" not in done.output and "inside group" not in done.output:
            assert "`recollect sweep`" not in done.output, filled


def test_what_is_noted_inside_is_kept(tmp_path: Path) -> None:
    planted, own = plant(tmp_path, numbers=(INSIDE,)), logs.session_id(INSIDE)

    for words in (f"star {own}", f"tag {own} mine", f"note {own} 'a note'", f"rename {own} 'a name'"):
        _run(planted.folder, "inside", f"mark {words}")

    with planted.open() as memory:
        noted = memory.annotations.of(memory.session(own))
        assert (noted.is_starred, noted.tags, noted.name) == (True, ("mine",), "a name")
        assert [note.text for note in noted.notes] == ["a note"]
        assert memory.session(own).title == "a name"


def test_a_process_with_an_ipc_folder_and_no_group_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_key(tmp_path / "store")
    open_memory(store).close()
    monkeypatch.setenv("RECOLLECT_IPC", str(tmp_path))

    for group in ("", "nobody"):
        done = _run(store, group, "sessions --json")

        assert done.exit_code != 0
        assert "group" in done.output
    server = subprocess.run([sys.executable, "-m", "recollect", "mcp"], input="", capture_output=True, text=True)
    assert server.returncode == 1
    assert server.stderr.startswith("Error: RECOLLECT_IPC names a group's folder, but no group")


@pytest.mark.parametrize("words", ["mcp", "mcp --http", "web --no-open", "group serve --once", "watch", "search x"])
def test_nothing_starts_for_a_group_that_does_not_exist(planted: Planted, words: str) -> None:
    program = [sys.executable, "-m", "recollect", *shlex.split(words)]
    environment = {"RECOLLECT_HOME": str(planted.folder), "RECOLLECT_GROUP": "nope"}

    done = subprocess.run(program, env=environment, input="", capture_output=True, text=True, timeout=30)

    assert done.returncode not in (0, 2), words
    assert done.stdout == ""
    assert "`nope`" in done.stderr or "No group has this name: nope" in done.stderr
    assert done.stderr.startswith("Error: ")
