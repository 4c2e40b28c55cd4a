"""No door shows a group anything of another group: each is tried from inside, with a store that has both."""

import inspect
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from recollect import api
from recollect.api import Memory
from recollect.cli.entry import load, main
from recollect.groups.group import GroupSessions
from recollect.hooks.answers import NEWS
from recollect.mcp.door import GROUP_TOOLS, WRITE_TOOLS, Door, Scope
from recollect.mcp.door import TOOLS as READING_TOOLS
from recollect.model.errors import RecollectError
from tests import logs
from tests.groups.attacks import CALLS, COMMANDS, TOOLS, Other
from tests.groups.conftest import INSIDE, OUTSIDE, WORDS, Planted, hidden_word

HOW = "add a line to tests/groups/attacks.py, which says how"


def _commands() -> Iterator[str]:
    def walk(name: str, command: click.Command) -> Iterator[str]:
        if isinstance(command, click.Group):
            for part, inner in command.commands.items():
                yield from walk(f"{name} {part}", inner)
        else:
            yield name

    for name in main.list_commands(click.Context(main)):
        yield from walk(name, load(name))


def _family(member: object) -> type | None:
    """The class of ours that a property of Memory hands out for its methods; None for any other member."""
    function = getattr(member, "func", None)  # of a cached property
    return getattr(api, function.__annotations__["return"], None) if function else None


def _methods() -> Iterator[str]:
    families = [family for member in vars(Memory).values() if (family := _family(member))]
    for family in (Memory, GroupSessions, *families):
        for name, member in inspect.getmembers_static(family):
            if not name.startswith("_") and _family(member) is None:
                yield f"{family.__name__}.{name}"


def test_every_command_has_a_row() -> None:
    missing = set(_commands()) - COMMANDS.keys()

    assert not missing, HOW


def test_every_public_method_has_a_row() -> None:
    missing = set(_methods()) - CALLS.keys()

    assert not missing, HOW


def test_every_tool_has_a_row() -> None:
    assert {tool.name for tool in (*READING_TOOLS, *GROUP_TOOLS, *WRITE_TOOLS)} == TOOLS.keys(), HOW


@pytest.fixture
def other(planted: Planted, tmp_path: Path) -> Other:
    with planted.open() as memory:
        session = memory.session(logs.session_id(OUTSIDE))
    guessed = replace(session, title=None, cwd=None, repo=None, git_branch=None, sources=())
    return Other(guessed, WORDS[OUTSIDE], hidden_word(OUTSIDE)[:-1], f"test_{WORDS[OUTSIDE]}.py", tmp_path / "out")


def _seen(text: str, folder: Path) -> list[str]:
    """Words of others in an output, or in files that were written."""
    written = "".join(path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file())
    return [word for number in (2, 3) if (word := hidden_word(number)) in text + written]


@pytest.mark.parametrize("name", sorted(CALLS))
def test_no_method_shows_another_group(planted: Planted, other: Other, tmp_path: Path, name: str) -> None:
    with planted.open("inside") as memory:
        try:
            shown = repr(CALLS[name](memory, other))
        except RecollectError as error:
            shown = f"{error.message} {error.hint} {error.choices}"
        except KeyError as error:  # of a session that somebody made up
            shown = str(error)

    assert _seen(shown, tmp_path) == []


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_no_command_shows_another_group(
    planted: Planted, other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(planted.folder))
    monkeypatch.setenv("RECOLLECT_GROUP", "inside")
    for number, attack in enumerate(COMMANDS[name]):
        filled = attack.format(
            word=other.word,
            typo=other.typo,
            id=other.session.native_session_id,
            path=planted.folder.parent / f"work-{other.word}",
            out=tmp_path / f"out-{number}",
            own=logs.session_id(INSIDE),
        )
        result = CliRunner().invoke(main, [*name.split(), *shlex.split(filled)], input="")

        assert _seen(result.output, tmp_path) == [], filled
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception


@pytest.fixture
def door(planted: Planted, other: Other, monkeypatch: pytest.MonkeyPatch) -> Door:
    """The server's, in a process of the group `inside`; made after `other`, which that group cannot see."""
    monkeypatch.setenv("RECOLLECT_HOME", str(planted.folder))
    monkeypatch.setenv("RECOLLECT_GROUP", "inside")
    return Door(Scope(planted.folder.parent, "inside", has_wall=True), can_write=True)


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_no_tool_shows_another_group(door: Door, other: Other, tmp_path: Path, name: str) -> None:
    names = {"word": other.word, "typo": other.typo, "id": other.session.native_session_id, "file": other.path}
    for attack in TOOLS[name]:
        arguments = {key: value.format(**names) if isinstance(value, str) else value for key, value in attack.items()}

        answer, _ = door.call(name, arguments, {})

        assert _seen(answer, tmp_path) == [], attack


@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "PostToolUse", "PostToolUseFailure", *NEWS])
def test_no_hook_says_anything_to_a_group(door: Door, other: Other, event: str) -> None:
    said = {"prompt": f"fix {other.word}", "error": other.word, "tool_name": "Bash", "tool_response": other.word}
    payload = {"agent": "claude", "hook_event_name": event, "session_id": other.session.native_session_id, **said}

    assert door.hook(payload) == "{}"
