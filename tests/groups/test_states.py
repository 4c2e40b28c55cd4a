"""Each state of a group's session: every command answers, and once it is forgotten nothing of it is left."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.api import Memory
from recollect.cli import main
from tests import logs
from tests.forget.traces import left_in
from tests.groups.attacks import COMMANDS
from tests.groups.conftest import INSIDE, MAIN, OUTSIDE, WORDS, Planted, hidden_word, plant
from tests.retention.rig import evict_all

SESSION, WORD, NAMED = logs.session_id(INSIDE), hidden_word(INSIDE), "xxxxnamednumbat"
UNTRIED = (
    *("demo", "mcp", "web", "install", "uninstall", "watch", "schedule", "run", "completion", "doctor"),  # no reading
    *(
        "forget",
        "restore",
        "import",
        "fork",
        "handoff",
        "group add",
        "group remove",
        "clear",
        "rename",
        "note",
        "tag",
        "star",
    ),
)


def _ask(memory: Memory, **request: str) -> None:
    ipc = Path(memory.groups.get("inside").ipc)
    memory.groups.write_snapshots("inside")
    (ipc / "tasks" / f"{request['action']}.json").write_text(json.dumps(request))
    memory.groups.serve("inside")


def _noted(memory: Memory) -> None:
    session = memory.session(SESSION)
    memory.annotations.note(session, f"a note on {NAMED}")
    memory.annotations.rename(session, f"as {NAMED}")
    memory.annotations.tag(session, NAMED)


def _resumed(memory: Memory) -> None:
    memory.groups.clear(NAMED, "inside")
    memory.groups.resume(NAMED, "inside")
    memory.groups.sessions("inside").archive(NAMED)


STATES: dict[str, Callable[[Memory], object]] = {
    "active": lambda memory: None,
    "put aside": lambda memory: memory.groups.clear(NAMED, "inside"),
    "resumed": _resumed,
    "put aside by a request": lambda memory: _ask(memory, action="clear", name=NAMED),
    "found by a request": lambda memory: _ask(memory, action="search", query=WORDS[INSIDE]),
    "archived by a request": lambda memory: _ask(memory, action="archive"),
    "noted": _noted,
    "evicted": evict_all,
    "in main": lambda memory: memory.groups.remove("inside"),
}


def _outputs(planted: Planted, out: Path, group: str) -> str:
    """What every command prints; it ends in order."""
    said = ""
    names = {"word": WORD, "typo": WORDS[INSIDE], "id": SESSION, "own": SESSION, "file": f"test_{WORDS[INSIDE]}.py"}
    for number, (name, tries) in enumerate(COMMANDS.items()):
        is_changing = name in (
            "group remove",
            "group add",
            "clear",
            "restore",
            "import",
            "rename",
            "note",
            "tag",
            "star",
        )
        if name.split()[0] in UNTRIED or is_changing:
            continue
        for words in tries[:1]:
            line = [*name.split(), *shlex.split(words.format(**names, path=out, out=out / str(number)))]
            done = CliRunner().invoke(main, line, env={"RECOLLECT_HOME": str(planted.folder), "RECOLLECT_GROUP": group})
            assert isinstance(done.exception, SystemExit | None), (line, done.exception)
            assert "Traceback" not in done.output, line
            # What was asked for is repeated.
            said += "" if WORD in line or any(WORD in word for word in line) else done.output
    return said


@pytest.mark.parametrize("state", STATES)
def test_in_every_state_every_command_answers_and_forgetting_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    planted = plant(tmp_path)
    monkeypatch.chdir(tmp_path)
    (out := tmp_path / "out").mkdir()
    with planted.open() as memory:
        STATES[state](memory)
    group = "outside" if state == "in main" else "inside"
    assert WORD in _outputs(planted, out, "")
    assert (WORD in _outputs(planted, out, group)) == (group == "inside")

    with planted.open() as memory:
        memory.forget(memory.plan_forgetting(SESSION))
        memory.sweep()

    # Its words stand in the folder's name too, which is the group's: what it said with them is looked for.
    assert left_in(planted.folder, [NAMED, f"{WORD} is broken", f"xxxxplease fix {WORDS[INSIDE]}"]) == set()
    for name in ("", group):
        said = _outputs(planted, out, name)
        assert NAMED[4:] not in said and f"{WORD} is broken" not in said
    with planted.open() as memory:
        assert [memory.session(logs.session_id(number)).native_session_id for number in (OUTSIDE, MAIN)]
